# SPDX-License-Identifier: Apache-2.0
"""Optimisers and their options beside PyTorch's own: parameters after 50 updates.

    optimisers_torch.py BUILD

BUILD is a build folder with tests/run_optimiser. Needs torch and numpy. With timm the moving
average is its ModelEmaV3, else the formula, and the layers of densenet121 and resnet50 are compared
with its param_groups_layer_decay. Both sides get the same parameters of a small network and the
same gradients. PyTorch computes in fp32 and in fp64.

For each case it prints, in units of the last place of the largest parameter, how far ours and
PyTorch's fp32 are from fp64, and how far they are from each other. Exit status 1: ours is further
from fp64 than the bound.

Bound. An update rounds a parameter once, by half a unit: 50 updates make 25 units. The change
itself has a relative error of a few roundings of moments, root, quotient and rate, at most
16 * 2^-24. The sum of the absolute changes of a parameter over all steps, times that, is added.
Adam with L2 divides g + decay * w by its own size. Where the two terms cancel few bits are left, in
PyTorch's fp32 too; so three times PyTorch's distance is also within the bound. PyTorch has no LARS;
its definition is written here.
"""
import fnmatch
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

try:
    from timm.utils import ModelEmaV3
except ImportError:
    ModelEmaV3 = None

STEPS, SHIFT, EPS = 50, 7919, 2.0**-24
CASES = [
    ("adam", {"lr": 1e-3}),
    ("adam", {"lr": 1e-3, "weight_decay": 0.05}),
    ("adamw", {"lr": 1e-3, "weight_decay": 0.05}),
    ("adamw", {"lr": 1e-3, "weight_decay": 0.05, "decay_norms": 1}),
    ("adamw", {"lr": 1e-3, "weight_decay": 0.05, "clip_norm": 1}),
    ("adamw", {"lr": 1e-3, "weight_decay": 0.05, "layer_decay": 0.75}),
    ("adamw", {"lr": 1e-3, "weight_decay": 0.05, "ema": 0.9}),
    ("adamw", {"lr": 1e-3, "weight_decay": 0.05, "clip_norm": 1, "ema": 0.99, "layer_decay": 0.9,
               "freeze": "layer0.*,layer1.conv*"}),
    ("sgd", {"lr": 1e-2}),
    ("sgd", {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.01}),
    ("sgd", {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.01, "nesterov": 1}),
    ("sgd", {"lr": 1e-2, "momentum": 0.9, "clip_norm": 5, "layer_decay": 0.75}),
    ("sgd", {"lr": 1e-2, "momentum": 0.9, "freeze": "layer[0-3].*", "ema": 0.9}),
    ("lars", {"lr": 1.0, "momentum": 0.9, "weight_decay": 0.01}),
]


class Holder(torch.nn.Module):
    """The parameters and running statistics of a network, without the network."""

    def __init__(self, rows, state, dtype):
        super().__init__()
        self.rows = rows
        for k, (_, count, at, trained, _, _) in enumerate(rows):
            values = torch.tensor(state[at:at + count], dtype=dtype)
            if trained:
                self.register_parameter(f"t{k}", torch.nn.Parameter(values))
            else:
                self.register_buffer(f"t{k}", values)

    def flat(self):
        return np.concatenate([getattr(self, f"t{k}").detach().double().numpy()
                               for k in range(len(self.rows))])


def rows_of(build, model):
    """(name, elements, offset, trained, weight, layers to the classifier) of each parameter"""
    lines = subprocess.run([build / "tests/run_optimiser", model], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return [(n, int(c), int(a), t == "1", w == "1", int(layer))
            for n, c, a, t, w, layer in map(str.split, lines)]


def compare_layers(build, model):
    """Whether timm's layer decay has the same layers."""
    import timm
    from timm.optim._param_groups import param_groups_layer_decay
    net = timm.create_model(model, num_classes=14)
    names = {id(p): n for n, p in net.named_parameters()}
    groups = param_groups_layer_decay(net, layer_decay=0.5)
    theirs = {names[id(p)]: round(-np.log2(g["lr_scale"])) for g in groups for p in g["params"]}
    same = theirs == {r[0]: r[5] for r in rows_of(build, model) if r[3]}
    print(f"{model}: {len(theirs)} tensors, layers {'as' if same else 'NOT as'} timm's")
    return same


def groups_of(holder, options):
    groups = []
    for k, (name, _, _, trained, weight, layer) in enumerate(holder.rows):
        if not trained:
            continue
        p = getattr(holder, f"t{k}")
        if any(fnmatch.fnmatchcase(name, f) for f in options.get("freeze", "").split(",") if f):
            p.requires_grad = False
            continue
        decays = weight or options.get("decay_norms")
        groups.append({"params": [p], "scale": options.get("layer_decay", 1) ** layer,
                       "weight_decay": options.get("weight_decay", 0) if decays else 0,
                       "weight": weight})
    return groups


class Lars(torch.optim.Optimizer):
    """You et al. 2017, as in engine/update.h."""

    def __init__(self, groups, lr, momentum, weight_decay):
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            p = g["params"][0]
            ratio = 1.0
            if g["weight"]:
                bottom = p.grad.norm() + g["weight_decay"] * p.norm()
                ratio = 0.001 * p.norm() / bottom
            d = ratio * (p.grad + g["weight_decay"] * p)
            m = self.state[p].setdefault("m", torch.zeros_like(p))
            m.mul_(g["momentum"]).add_(d)
            p.sub_(g["lr"] * m)


def optimiser(name, groups, o):
    lr, decay, momentum = o["lr"], o.get("weight_decay", 0), o.get("momentum", 0)
    if name == "lars":
        return Lars(groups, lr, momentum, decay)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=bool(o.get("nesterov")))
    return (torch.optim.Adam if name == "adam" else torch.optim.AdamW)(groups, lr=lr)


def average_of(holder, decay):
    if ModelEmaV3:
        ema = ModelEmaV3(holder, decay=decay)
        return ema.update, lambda: ema.module.flat()
    kept = [getattr(holder, f"t{k}").detach().clone() for k in range(len(holder.rows))]

    def update(h):
        for k, e in enumerate(kept):
            e.lerp_(getattr(h, f"t{k}").detach(), 1 - decay)
    return update, lambda: np.concatenate([e.double().numpy() for e in kept])


def run_torch(name, options, rows, state, base, dtype):
    """(state, average, sum of the absolute changes of each parameter)"""
    holder = Holder(rows, state, dtype)
    groups = groups_of(holder, options)
    opt = optimiser(name, groups, options)
    update, average = average_of(holder, options["ema"]) if "ema" in options else (None, None)
    moved = np.zeros(len(state))
    for t in range(1, STEPS + 1):
        g = np.roll(base, -SHIFT * t) * np.float32(1 + t % 3)
        before = holder.flat() if dtype == torch.float64 else None
        with torch.no_grad():
            for k, (_, count, at, trained, _, _) in enumerate(rows):
                p, part = getattr(holder, f"t{k}"), torch.tensor(g[at:at + count], dtype=dtype)
                if not trained:
                    p.mul_(0.9).add_(part, alpha=0.1)
                elif p.requires_grad:
                    p.grad = part
        if "clip_norm" in options:
            torch.nn.utils.clip_grad_norm_([q for group in groups for q in group["params"]],
                                           options["clip_norm"])
        for group in opt.param_groups:
            group["lr"] = options["lr"] * (1 - (t - 1) / (2 * STEPS)) * group["scale"]
        opt.step()
        if update:
            update(holder)
        if before is not None:
            moved += np.abs(holder.flat() - before)
    return holder.flat(), average() if average else None, moved


def run_ours(build, name, options, state, base, folder):
    given, got = folder / "in", folder / "out"
    np.concatenate([state, base]).astype("<f4").tofile(given)
    subprocess.run([build / "tests/run_optimiser", "small", name, str(STEPS), given, got,
                    *(f"{k}={v}" for k, v in options.items())], check=True)
    both = np.fromfile(got, "<f4").astype(np.float64)
    return both[:len(state)], both[len(state):]


def main():
    torch.set_num_threads(1)
    build = Path(sys.argv[1])
    rows = rows_of(build, "small")
    count = sum(r[1] for r in rows)
    random = np.random.default_rng(1)
    state = (0.1 * random.standard_normal(count)).astype(np.float32)
    base = (0.01 * random.standard_normal(count)).astype(np.float32)
    unit = 2.0**-23 * 2.0**np.floor(np.log2(np.abs(state).max()))
    print(f"{count} values, {STEPS} updates; distances in units of {unit:.3g}")
    print(f"{'case':<110} {'ours-fp64':>9} {'torch-fp64':>10} {'ours-torch':>10} {'bound':>6}")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, options in CASES:
            label = name + "".join(f" {k}={v}" for k, v in options.items())
            ours = run_ours(build, name, options, state, base, Path(folder))
            exact = run_torch(name, options, rows, state, base, torch.float64)
            plain = run_torch(name, options, rows, state, base, torch.float32)
            bound = 25 + 16 * EPS * exact[2].max() / unit
            for part in range(2 if exact[1] is not None else 1):
                far = [np.abs(a - b).max() / unit for a, b in
                       ((ours[part], exact[part]), (plain[part], exact[part]),
                        (ours[part], plain[part]))]
                text = label if part == 0 else "  its average"
                print(f"{text:<110} {far[0]:9.2f} {far[1]:10.2f} {far[2]:10.2f} {bound:6.1f}")
                failed |= not far[0] <= max(bound, 3 * far[1])
    if ModelEmaV3:
        for model in ("densenet121", "resnet50"):
            failed |= not compare_layers(build, model)
    return failed


if __name__ == "__main__":
    sys.exit(main())
