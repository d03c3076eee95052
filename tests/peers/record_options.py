#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records tests/data/truth/options.tsv: what PyTorch gives, in double precision, for combinations of
training options, for tests/cmd/0255-train-matrix.t.

    PATH=BUILD/bin:$PATH record_options.py IMAGES >tests/data/truth/options.tsv

IMAGES: datasets/nih-sample/images. Needs torch, torchvision and h5py, and chex-shard and chex-train for
the data (tests/tools/options_set.sh). The rows are a covering array: every pair of values of FACTORS
appears together at least once, if chex-train allows it. A row: the options; then the training loss, the
validation loss and the validation loss of the trained loss after each of four epochs. An epoch is one
step on all training images in two logical ranks of known rows, so nothing depends on the order.

Not here, because PyTorch has nothing to compare with: lars (tests/peers/optimisers_torch.py has its
definition) and --data-weights, whose rows depend on the order.
"""
import itertools
import os
import re
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torchvision.ops import sigmoid_focal_loss

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
EPOCHS, NAMES = 4, ["Effusion", "Mass", "Nodule"]
FILE_WEIGHTS = {"Effusion": 2.5, "Mass": 0.5, "Nodule": 4.0}
FACTORS = {
    "data": ["a", "a,b"],
    "loss": ["bce", "focal --focal-alpha 0.25", "asl --asl-gamma-neg 2"],
    "pos-weight": ["none", "balanced", "weights.csv"],
    "label-smoothing": ["0", "0.1"],
    "uncertain": ["ignore", "zeros", "Mass=smooth:0.6,Nodule=ones", "smooth"],
    "loss-mean": ["all", "stated"],
    "opt": ["adam", "adamw", "sgd", "sgd --nesterov"],
    "weight-decay": ["0", "0.05", "0.05 --decay-norms"],
    "clip-norm": ["0", "0.3"],
    "ema": ["0", "0.6"],
    "freeze": ["none", "features.conv0.*,features.denseblock1.*"],
    "layer-decay": ["1", "0.7"],
    "sync-bn": ["no", "yes"],
    "head-only": ["no", "yes"],
    "logical": ["logical-ranks", "accumulate"],
    "sched": ["constant", "cosine --warmup-epochs 2", "plateau --patience-epochs 0", "step --step-epochs 2"],
}


def allowed(row):
    return row.get("head-only") != "yes" or not any(
        row.get(k, off) != off for k, off in (("freeze", "none"), ("layer-decay", "1"), ("sync-bn", "no")))


def covering_array():
    """Greedy: each row takes, factor by factor, the value with most pairs that are still missing."""
    keys = list(FACTORS)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(keys, 2) for x in FACTORS[a]
               for y in FACTORS[b] if allowed({a: x, b: y})}
    rows = []
    while missing:
        first = min(missing, key=lambda p: (keys.index(p[0][0]), keys.index(p[1][0]), p))
        row = dict(first)
        for key in keys:
            if key in row:
                continue
            gain = lambda v: sum(1 for pair in missing if (key, v) in pair
                                 and all(row.get(k, w if k == key else None) == w for k, w in pair))
            options = [v for v in FACTORS[key] if allowed({**row, key: v})]
            row[key] = max(options, key=gain)
        covered = {p for p in missing if all(row[k] == v for k, v in p)}
        assert covered
        missing -= covered
        rows.append(row)
    return rows


def read(name, part):
    with h5py.File(f"{name}/{part}/{part}-00000-of-00001.h5") as f:
        return f["image"][:], f["label"][:]


def rows_of(row, part):
    sets = [read(name, part) for name in row["data"].split(",")]
    grey = torch.tensor(np.concatenate([s[0] for s in sets]).astype(np.float64) / 255)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (grey[:, None] - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
    return x, torch.tensor(np.concatenate([s[1] for s in sets]))


def policies(row, y):
    """The labels after zeros and ones, and the target of the uncertain ones that are left."""
    y, target = y.clone(), [-1.0] * 3
    for c, name in enumerate(NAMES):
        policy = row["uncertain"]
        if "=" in policy:
            policy = dict(p.split("=") for p in policy.split(",")).get(name, "ignore")
        if policy in ("zeros", "ones"):
            y[:, c][y[:, c] == -1] = policy == "ones"
        elif policy.startswith("smooth"):
            target[c] = float(np.float32((policy.split(":") + ["0.7"])[1]))
    return y, torch.tensor(target)


def value(text, name, default=0.0):
    found = re.search(rf"--{name} (\S+)", text)
    return float(found.group(1)) if found else default


class Loss:
    def __init__(self, row, y):
        self.row, self.kind = row, row["loss"].split()[0]
        y, self.target = policies(row, y)
        positive, negative = (y == 1).sum(0), (y == 0).sum(0)
        stated = positive + negative + ((y == -1) & (self.target >= 0)).sum(0)
        self.pos = torch.ones(3)
        if row["pos-weight"] == "balanced":
            self.pos = negative / positive
        elif row["pos-weight"] != "none":
            self.pos = torch.tensor([FILE_WEIGHTS[n] for n in NAMES])
        self.weight = len(y) / stated if row["loss-mean"] == "stated" else torch.ones(3)

    def hard(self, z, positive):
        t = torch.full_like(z, float(positive))
        if self.kind == "bce":
            return F.binary_cross_entropy_with_logits(z, t, reduction="none")
        if self.kind == "focal":
            return sigmoid_focal_loss(z, t, alpha=0.25, gamma=2)
        p, q = torch.sigmoid(z), torch.sigmoid(-z) # the formula of AsymmetricLossMultiLabel of timm
        if positive:
            return -(1 - p) * torch.log(p)
        q = (q + 0.05).clamp(max=1)
        return -((1 - q) ** value(self.row["loss"], "asl-gamma-neg")) * torch.log(q)

    def __call__(self, z, y):
        y, _ = policies(self.row, y)
        t = torch.where(y == -1, self.target, y.to(z.dtype))
        keep = (y >= -1) & (t >= 0)
        s = float(self.row["label-smoothing"])
        t = t * (1 - s) + s / 2
        one = self.weight * (t * self.pos * self.hard(z, 1) + (1 - t) * self.hard(z, 0))
        return torch.where(keep, one, 0.0).sum() / y.numel()

    def plain(self, z, y):
        y, _ = policies(self.row, y)
        one = torch.where(y >= 0, F.binary_cross_entropy_with_logits(z, y.clamp(min=0).to(z.dtype),
                                                                     reduction="none"), 0.0)
        if self.row["loss-mean"] == "all":
            return one.sum() / y.numel()
        return (one.sum(0) / (y >= 0).sum(0).clamp(min=1)).mean()


def network():
    net = torchvision.models.DenseNet(32, (2, 2, 2, 2), 64, num_classes=3)
    with h5py.File("start.h5") as f:
        state = {k: torch.tensor(v[()].astype(np.float64)) for k, v in f["params"].items()}
    missing, extra = net.load_state_dict(state, strict=False)
    assert not extra and all("num_batches" in k for k in missing)
    return net


LAYERS = 9 # the stem, eight dense layers and the head


def layer_of(name):
    block = re.search(r"denseblock(\d)\.denselayer(\d)", name)
    if block:
        return 2 * (int(block[1]) - 1) + int(block[2])
    transition = re.search(r"transition(\d)", name)
    return 2 * int(transition[1]) if transition else LAYERS if re.search("norm5|classifier", name) else 0


def optimiser(row, net):
    groups, momentum = [], 0.9
    for name, p in net.named_parameters():
        frozen = row["freeze"] != "none" and re.match(r"features\.(conv0|denseblock1)\.", name)
        head = row["head-only"] == "no" or name.startswith("classifier")
        p.requires_grad_(bool(head and not frozen))
        decays = p.dim() > 1 or "--decay-norms" in row["weight-decay"]
        if p.requires_grad:
            groups.append({"params": [p], "weight_decay": float(row["weight-decay"].split()[0]) * decays,
                           "scale": float(row["layer-decay"]) ** (LAYERS - layer_of(name))})
    kind = row["opt"].split()[0]
    if kind == "sgd":
        return torch.optim.SGD(groups, 1, momentum=momentum, nesterov="nesterov" in row["opt"])
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](groups, 1)


class Rate:
    """The schedule, by the rules of PyTorch: one step is one epoch."""

    def __init__(self, row):
        self.kind, self.lr = row["sched"].split()[0], base_lr(row)
        dummy = torch.optim.SGD([torch.zeros(1)], self.lr)
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(dummy, patience=0)
        self.dummy = dummy

    def at(self, epoch):
        if self.kind == "cosine": # two epochs of warm-up
            t = (epoch - 2) / (EPOCHS - 2)
            return self.lr * (epoch + 1) / 2 if epoch < 2 else 0.5 * self.lr * (1 + np.cos(np.pi * t))
        if self.kind == "step":
            return self.lr * 0.1 ** (epoch // 2)
        return self.dummy.param_groups[0]["lr"] if self.kind == "plateau" else self.lr


def base_lr(row):
    return 0.005 if row["opt"].startswith("sgd") else 0.0001


def norms(net):
    return [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]


def forward(row, net, x):
    """The logits of the batches of both logical ranks, with the batch's statistics. The running ones
    move by the mean of both; autograd keeps the buffers of each pass, so each pass gets new ones."""
    half = len(x) // 2
    parts = [x] if row["sync-bn"] == "yes" else [x[:half], x[half:]]
    before = [(m.running_mean, m.running_var) for m in norms(net)]
    after, logits = [], []
    net.train()
    for part in parts:
        for m, (mean, var) in zip(norms(net), before):
            m.running_mean, m.running_var = mean.clone(), var.clone()
        logits.append(net(part))
        after.append([(m.running_mean, m.running_var) for m in norms(net)])
    for m, *of_parts in zip(norms(net), *after):
        m.running_mean, m.running_var = (sum(v).div(len(v)) for v in zip(*of_parts))
    return torch.cat(logits)


def train(row):
    x, y = rows_of(row, "train")
    xv, yv = rows_of(row, "val")
    net, loss, rate = network(), Loss(row, y), Rate(row)
    steps = optimiser(row, net)
    average, decay = {k: v.clone() for k, v in net.state_dict().items()}, float(row["ema"])
    losses, val, val_training = [], [], []
    for epoch in range(EPOCHS):
        for group in steps.param_groups:
            group["lr"] = rate.at(epoch) * group["scale"]
        steps.zero_grad()
        if row["head-only"] == "yes":
            net.eval()
            logits = net(x)
        else:
            logits = forward(row, net, x)
        value_now = loss(logits, y)
        value_now.backward()
        if float(row["clip-norm"]):
            torch.nn.utils.clip_grad_norm_([p for p in net.parameters() if p.requires_grad], float(row["clip-norm"]))
        steps.step()
        for k, v in net.state_dict().items():
            if "num_batches" not in k:
                average[k] += (1 - decay) * (v - average[k])
        kept = {k: v.clone() for k, v in net.state_dict().items()}
        if decay:
            net.load_state_dict(average)
        net.eval()
        with torch.no_grad():
            z = net(xv)
            losses.append(value_now.item())
            val.append(loss.plain(z, yv).item())
            val_training.append(loss(z, yv).item())
        net.load_state_dict(kept)
        rate.plateau.step(val_training[-1])
    return losses + val + val_training


def options_of(row):
    text = [f"--data {row['data']} --batch-size {12 if ',' in row['data'] else 8} --lr {base_lr(row)}"]
    for key in FACTORS:
        off = {"freeze": "none", "layer-decay": "1", "label-smoothing": "0", "weight-decay": "0", "clip-norm": "0",
               "ema": "0", "uncertain": "ignore", "loss-mean": "all", "pos-weight": "none"}.get(key)
        if key in ("sync-bn", "head-only"):
            text += [f"--{key}"] * (row[key] == "yes")
        elif key == "logical":
            text.append(f"--{row[key]} 2")
        elif key != "data" and row[key] != off:
            text.append(f"--{key} {row[key]}")
    return " ".join(text)


def main():
    images, tool = os.path.abspath(sys.argv[1]), os.path.abspath(f"{os.path.dirname(__file__)}/../tools/options_set.sh")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        subprocess.run(["bash", "-c", f'. {tool}; options_set "$1"', "-", images], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for row in covering_array():
            print(options_of(row), *(f"{v:.9g}" for v in train(row)), sep="\t", flush=True)


if __name__ == "__main__":
    main()
