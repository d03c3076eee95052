#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what torchvision's DenseNet-121 and ResNet-50 compute, for tests/op/truth.h.

    record_truth.py OUTPUT_DIR [MODEL...]

Weights, images and labels are functions of a seed (Philox4x32-10, as in base/rng.h and
model/net.c), so that both sides make them anew and only results are stored: logits, loss, and of
every parameter's gradient the norm, the sum and eight elements, and the losses of 20 optimiser steps,
all in float64; and how far PyTorch's own float32 and bfloat16 runs are from float64 by the measures
of the test, which is where the test's bounds come from. A ReLU whose input is nearly 0 may open in
one run and not in the other, so these are the largest of a few runs from weights that differ in the
last bit. Needs torch, torchvision and numpy. One run takes about five minutes.
"""
import copy
import json
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

SEED = 20240917
STREAM_INIT, STREAM_TEST = 3, 7
CLASSES, SAMPLES, STEPS, BATCHES = 14, 8, 20, 4
CASES = [dict(size=64, n=4, first_image=0), dict(size=75, n=3, first_image=100)]
STEP_CASE = dict(size=64, n=4)
OPTIMISERS = {
    "adam": dict(lr=1e-4, weight_decay=0.0),
    "sgd": dict(lr=2e-3, weight_decay=1e-4),
}
RUNS = {"fp32": 3, "bf16": 2}
# PyTorch's bfloat16 takes ten times as long as its float32 on small maps: one run, one model.
STEP_RUNS = {"densenet121": {"fp32": 3, "bf16": 1}, "resnet50": {"fp32": 3}}
LABEL_DRAW, BN_ITEM = 1 << 24, 1 << 20


def philox(seed, c0, c1, c2, c3):
    """Four words for each counter; arguments broadcast."""
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    c = [np.asarray(x, dtype=np.uint64) for x in (c0, c1, c2, c3)]
    c = list(np.broadcast_arrays(*c))
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(k0), p1 & mask,
             (p0 >> shift) ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def draw(stream, item, at):
    item = np.asarray(item, dtype=np.uint64)
    return philox(SEED, at, item & np.uint64(0xFFFFFFFF), item >> np.uint64(32), stream)


def unit(word):
    return (word >> np.uint64(8)).astype(np.float64) * 2.0 ** -24


def below(word, n):
    return (word * np.uint64(n)) >> np.uint64(32)


def normals(item, count):
    """normal_at of model/net.c."""
    r = draw(STREAM_INIT, item, np.arange((count + 1) // 2, dtype=np.uint64))
    u = (r[0].astype(np.float64) + 1.0) * 2.0 ** -32
    v = r[1].astype(np.float64) * 2.0 ** -32
    radius, angle = np.sqrt(-2.0 * np.log(u)), 6.283185307179586 * v
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return both.reshape(-1)[:count].astype(np.float32)


def initial_value(model, name, shape, item, features):
    """chex_net_init_state, then batch norms moved away from 1 and 0 so that they count."""
    count = int(np.prod(shape))
    dense = model == "densenet121"
    if len(shape) == 4:
        fan = (shape[1] if dense else shape[0]) * shape[2] * shape[3]
        return (np.float32(np.sqrt(2.0 / fan)) * normals(item, count)).reshape(shape)
    if name.startswith(("classifier.", "fc.")):
        if dense and name.endswith("bias"):
            return np.zeros(shape, np.float32)
        u = unit(draw(STREAM_INIT, item, np.arange(count, dtype=np.uint64))[0])
        return ((2.0 * u - 1.0) / np.sqrt(features)).astype(np.float32).reshape(shape)
    u = unit(draw(STREAM_TEST, BN_ITEM + item, np.arange(count, dtype=np.uint64))[0])
    low, high = {"weight": (0.5, 1.5), "bias": (-0.25, 0.25), "running_mean": (-0.25, 0.25),
                 "running_var": (0.5, 1.5)}[name.rsplit(".", 1)[1]]
    if name.endswith("bn3.weight"):
        # Small residual branches keep a ResNet that is 50 layers deep from being chaotic.
        low, high = low / 10, high / 10
    return (low + (high - low) * u).astype(np.float32)


def build(model):
    """The model in float64 and the list of (name, index in net->params)."""
    net = getattr(torchvision.models, model)(num_classes=CLASSES)
    features = (net.classifier if model == "densenet121" else net.fc).in_features
    names = [n for n, _ in net.named_parameters()]
    names += [n for n, _ in net.named_buffers() if not n.endswith("num_batches_tracked")]
    net = net.double()
    tensors = dict(net.named_parameters()) | dict(net.named_buffers())
    for item, name in enumerate(names):
        value = initial_value(model, name, tuple(tensors[name].shape), item, features)
        tensors[name].data.copy_(torch.from_numpy(value.astype(np.float64)))
    return net, names


def grey(image, size):
    """One u8 image: block noise at five scales, so that neighbouring pixels belong together."""
    y, x = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    total = np.zeros((size, size), np.uint64)
    for k, (side, weight) in enumerate([(32, 6), (16, 4), (8, 3), (4, 2), (1, 1)]):
        at = (k << 16) | ((y // side) * 256 + x // side)
        total += (draw(STREAM_TEST, image, at.astype(np.uint64))[0] >> np.uint64(24)) * np.uint64(
            weight)
    return (total >> np.uint64(4)).astype(np.uint8)


def batch(case, first):
    images = range(first, first + case["n"])
    pixels = np.stack([grey(i, case["size"]) for i in images])
    word = np.stack([draw(STREAM_TEST, i, LABEL_DRAW + np.arange(CLASSES))[0] for i in images])
    kind = below(word, 16)
    labels = np.where(kind == 15, -1, np.where(kind < 5, 1, 0)).astype(np.int8)
    return pixels, labels


def to_input(pixels):
    x = torch.from_numpy(pixels.astype(np.float32) / np.float32(255)).double()[:, None]
    mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float32).double().view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float32).double().view(1, 3, 1, 1)
    return (x - mean) / std


def loss_of(logits, labels):
    t = torch.from_numpy(labels)
    each = F.binary_cross_entropy_with_logits(logits, (t > 0).to(logits.dtype), reduction="none")
    return (each * (t >= 0)).sum() / t.numel()


def prepared(net, mode, number):
    """A copy in the mode's storage; from number 1 on the weights are off by about one rounding."""
    net = copy.deepcopy(net)
    if number:
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(1 + 2.0 ** -24 * torch.randn(p.shape, generator=generator).double())
    return net if mode == "fp64" else net.float()


def run(net, case, mode, number=0):
    """Logits, loss and gradients in the batch-statistics mode: mode fp64, fp32 or bf16."""
    net = prepared(net, mode, number).train()
    x, labels = batch(case, case["first_image"])
    x = to_input(x)
    x = x if mode == "fp64" else x.float()
    with torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16"):
        logits = net(x)
    logits = logits if mode == "fp64" else logits.float()
    loss = loss_of(logits, labels)
    loss.backward()
    grads = {n: p.grad.double().numpy().reshape(-1) for n, p in net.named_parameters()}
    return logits.detach().double().numpy(), float(loss.detach()), grads, state_of(net)


def infer(net, case, mode):
    net = prepared(net, mode, 0).eval()
    x = to_input(batch(case, case["first_image"])[0])
    x = x if mode == "fp64" else x.float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16"):
        return net(x).double().numpy()


def sample_at(item, count):
    return below(draw(STREAM_TEST, item, np.arange(SAMPLES))[0], count).astype(np.int64)


def summary(values, item):
    return [float(np.sqrt((values ** 2).sum())), float(values.sum())] + [
        float(v) for v in values[sample_at(item, values.size)]]


def distance(got, want):
    return float(np.sqrt(((got - want) ** 2).sum() / (want ** 2).sum()))


def gradient_measures(grads, truth, names):
    """The test's measures: deviation of norms, and of the samples in units of the gradient's root
    mean square; and the cosine of all samples in those units, where every tensor weighs the same."""
    norm, sample, got, want = [], [], [], []
    for item, name in enumerate(names):
        if name not in truth:
            continue
        t = truth[name]
        size = np.sqrt((t ** 2).sum())
        norm.append(abs(np.sqrt((grads[name] ** 2).sum()) / size - 1))
        at = sample_at(item, t.size)
        sample.append(np.sqrt((((grads[name] - t)[at] * np.sqrt(t.size) / size) ** 2).mean()))
        got.append(grads[name][at] * np.sqrt(t.size) / size)
        want.append(t[at] * np.sqrt(t.size) / size)
    got, want = np.concatenate(got), np.concatenate(want)
    return dict(norm_median=float(np.median(norm)), norm_max=float(np.max(norm)),
                sample_median=float(np.median(sample)), sample_max=float(np.max(sample)),
                cosine=float(got @ want / np.sqrt((got @ got) * (want @ want))))


def steps(net, optimiser, mode, number=0):
    net = prepared(net, mode, number).train()
    o = OPTIMISERS[optimiser]
    if optimiser == "adam":
        opt = torch.optim.Adam(net.parameters(), lr=o["lr"], weight_decay=o["weight_decay"])
    else:
        opt = torch.optim.SGD(net.parameters(), lr=o["lr"], momentum=0.9,
                              weight_decay=o["weight_decay"])
    losses = []
    for step in range(STEPS):
        x, labels = batch(STEP_CASE, step % BATCHES * STEP_CASE["n"])
        x = to_input(x)
        x = x if mode == "fp64" else x.float()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16"):
            logits = net(x)
        loss = loss_of(logits if mode == "fp64" else logits.float(), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
    return losses, net


def state_of(net):
    both = dict(net.named_parameters()) | dict(net.named_buffers())
    return {n: v.detach().double().numpy().reshape(-1) for n, v in both.items()
            if not n.endswith("num_batches_tracked")}


def record_case(net, names, case):
    logits, loss, grads, after = run(net, case, "fp64")
    out = dict(case, logits=logits.reshape(-1).tolist(), loss=loss)
    reference = infer(net, case, "fp64")
    out["infer_logits"] = reference.reshape(-1).tolist()
    out["gradients"] = {n: summary(grads[n], names.index(n)) for n in grads}
    running = [n for n in names if n.endswith(("running_mean", "running_var"))]
    out["running"] = {n: summary(after[n], names.index(n)) for n in running[:4] + running[-4:]}
    out["pytorch"] = {}
    for mode in RUNS:
        measured = []
        for number in range(RUNS[mode]):
            l2, loss2, g2, _ = run(net, case, mode, number)
            measured.append(dict(logits=distance(l2, logits), loss=abs(loss2 / loss - 1),
                                 **gradient_measures(g2, grads, names)))
        out["pytorch"][mode] = {k: (min if k == "cosine" else max)(m[k] for m in measured)
                                for k in measured[0]}
        out["pytorch"][mode]["infer_logits"] = distance(infer(net, case, mode), reference)
        print(case, mode, out["pytorch"][mode], flush=True)
    return out


def record_steps(model, net, names, optimiser, kept):
    losses, after = steps(net, optimiser, "fp64")
    out = dict(STEP_CASE, batches=BATCHES, **OPTIMISERS[optimiser], losses=losses)
    for mode, runs in STEP_RUNS[model].items():
        off = [np.abs(np.array(steps(net, optimiser, mode, i)[0]) - losses)
               for i in range(runs)]
        # What has parted once stays apart, so the spread never falls.
        out["spread_" + mode] = np.maximum.accumulate(np.max(off, axis=0)).tolist()
        print(optimiser, mode, out["spread_" + mode], flush=True)
    state = state_of(after)
    out["state"] = {n: summary(state[n], names.index(n)) for n in kept}
    return out


def rounded(x, digits=10):
    if isinstance(x, float):
        return float(f"{x:.{digits}g}")
    if isinstance(x, dict):
        return {k: rounded(v, digits) for k, v in x.items()}
    return [rounded(v, digits) for v in x] if isinstance(x, list) else x


def dump(record):
    """One line a parameter, so that a change shows in a diff."""
    text = json.dumps(rounded(record), indent=1)
    out, depth = [], 0
    for line in text.split("\n"):
        s = line.strip()
        if depth:
            out[-1] += s
        else:
            out.append(line)
        depth += s.endswith("[") - s.startswith("]")
    return "\n".join(out) + "\n"


def record(model):
    torch.manual_seed(0)
    net, names = build(model)
    state = state_of(net)
    bns = [n[:-len(".running_mean")] for n in names if n.endswith(".running_mean")]
    few = [bns[0], bns[1], bns[len(bns) // 2], bns[-1]]
    kept = [f"{b}.{p}" for b in few for p in ("weight", "bias", "running_mean", "running_var")]
    kept += [n for n in names if n.startswith(("classifier.", "fc."))]
    kept += [n for n, p in net.named_parameters() if p.dim() == 4][::10]
    pixels, labels = batch(CASES[0], 0)
    return dict(
        model=model, seed=SEED, classes=CLASSES, torch=torch.__version__,
        torchvision=torchvision.__version__,
        inputs=dict(grey_sum=int(pixels.sum()), labels=labels.reshape(-1).tolist()),
        initial={n: summary(state[n], names.index(n)) for n in kept},
        cases=[record_case(net, names, c) for c in CASES],
        steps={o: record_steps(model, net, names, o, kept) for o in OPTIMISERS})


def main():
    torch.set_num_threads(1)  # one order of sums
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    for model in sys.argv[2:] or ["densenet121", "resnet50"]:
        path = os.path.join(sys.argv[1], model + ".json")
        text = dump(record(model))
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        print(path, len(text), "bytes", flush=True)


if __name__ == "__main__":
    main()
