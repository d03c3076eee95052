#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's part of loss_curves.sh, and the judgement.

    loss_curves.py start MODEL CLASSES SEED OUTPUT.safetensors
    loss_curves.py train MODEL START.safetensors BATCHES PRECISION LR THREADS OUTPUT.json
    loss_curves.py judge FOLDER OUTPUT.svg

judge reads FOLDER/torch-PRECISION-SEED.json and FOLDER/ours-PRECISION-SEED-ENGINE.json (a list of
losses each), prints a table and draws the curves. Single losses are noise of their batch, which all
runs share, so curves are compared by their means over ten steps.
"""
import glob
import itertools
import json
import os
import re
import sys

import numpy as np

WINDOW = 10


def train(model, start, path, precision, lr, threads, output):
    import torch

    import same_batches as same
    torch.set_num_threads(int(threads))
    pixels, labels = same.read_batches(path)
    net = same.network(model, labels.shape[-1], start).to(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(net.parameters(), lr=float(lr))
    losses = []
    for p, t in zip(pixels, labels):
        x = same.to_input(p, torch.float32).to(memory_format=torch.channels_last)
        optimiser.zero_grad()
        loss = same.loss_of(net, x, t, precision)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    with open(output, "w", encoding="ascii") as f:
        json.dump(losses, f)


def means(losses):
    whole = len(losses) // WINDOW * WINDOW
    return np.array(losses[:whole]).reshape(-1, WINDOW).mean(axis=1)


def load(folder, precision):
    """{seed: curve} of PyTorch's and {engine: {seed: curve}} of ours."""
    theirs, ours = {}, {}
    for path in sorted(glob.glob(f"{folder}/torch-{precision}-*.json")):
        seed = re.fullmatch(r".*-(\d+)\.json", path).group(1)
        theirs[int(seed)] = means(json.load(open(path, encoding="ascii")))
    for path in sorted(glob.glob(f"{folder}/ours-{precision}-*.json")):
        seed, engine = re.fullmatch(rf".*ours-{precision}-(\d+)-(.*)\.json", path).groups()
        ours.setdefault(engine, {})[int(seed)] = means(json.load(open(path, encoding="ascii")))
    return theirs, ours


def distance(a, b):
    return float(np.abs(a - b).mean())


def judge_precision(precision, theirs, ours):
    """Within the spread: ours from PyTorch's start is no farther from PyTorch's own run of that start
    than PyTorch's runs of different starts are from each other."""
    pairs = [distance(a, b) for a, b in itertools.combinations(theirs.values(), 2)]
    all_theirs = np.stack(list(theirs.values()))
    low, high = all_theirs.min(axis=0), all_theirs.max(axis=0)
    print(f"{precision}: means over {WINDOW} steps; {len(theirs)} seeds of PyTorch are "
          f"{np.mean(pairs):.4f} ({min(pairs):.4f} to {max(pairs):.4f}) from each other")
    good = True
    for engine, runs in ours.items():
        off = [distance(curve, theirs[seed]) for seed, curve in runs.items()]
        bias = np.mean([np.mean(curve - theirs[seed]) for seed, curve in runs.items()])
        inside = np.mean([(low <= c) & (c <= high) for c in runs.values()])
        within = np.mean(off) <= np.mean(pairs)
        good = good and within
        print(f"  {engine:16} {len(off)} seed{'s' if len(off) > 1 else ' '}: "
              f"{np.mean(off):.4f} ({min(off):.4f} to {max(off):.4f}) from PyTorch of the same "
              f"start, signed {bias:+.4f}, {100 * inside:.0f} % of the points between PyTorch's "
              f"least and greatest: {'within' if within else 'OUTSIDE'} the spread")
    best = {e: r for e, r in ours.items() if len(r) == len(theirs)}
    name = next(iter(best), None)
    mean = np.stack(list(best[name].values())).mean(axis=0) if name else None
    print(f"  steps       PyTorch least, mean, greatest{f'   mean of {name}' if name else ''}")
    for i in range(len(low)):
        print(f"  {i * WINDOW + 1:3} to {(i + 1) * WINDOW:3}  {low[i]:.4f}  "
              f"{all_theirs[:, i].mean():.4f}  {high[i]:.4f}"
              + (f"   {mean[i]:.4f}" if name else ""))
    return good


# ---- the drawing ----

LEFT, TOP, WIDE, HIGH, GAP = 50, 62, 380, 250, 60
STYLE = ("text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#1c2733}.m{fill:#5b6875}"
         ".t{font-size:15px;font-weight:600}.g{stroke:#c3ccd5;stroke-dasharray:1 3}"
         "path{fill:none}.their{stroke:#9aa7b4;stroke-width:1.5}.our{stroke:#0b62c4;stroke-width:1.5}"
         ".other{stroke:#c2571a;stroke-width:1.2;stroke-dasharray:4 3}")


def curve_path(kind, curve, x0, scale):
    at = [(x0 + (i + 0.5) / len(curve) * WIDE, scale(v)) for i, v in enumerate(curve)]
    return f'<path class="{kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in at) + '"/>'


def panel(precision, theirs, ours, x0, low, high):
    def scale(v):
        return TOP + (high - v) / (high - low) * HIGH
    out = [f'<text class="t" x="{x0}" y="{TOP - 10}">{precision}</text>']
    for k in range(round((high - low) * 20) + 1):
        v = low + k / 20
        out.append(f'<path class="g" d="M{x0} {scale(v):.1f}H{x0 + WIDE}"/>')
        out.append(f'<text class="m" text-anchor="end" x="{x0 - 6}" y="{scale(v) + 4:.1f}">'
                   f'{v:.2f}</text>')
    steps = WINDOW * len(next(iter(theirs.values())))
    for k in range(5):
        out.append(f'<text class="m" text-anchor="middle" x="{x0 + k * WIDE / 4:.0f}" '
                   f'y="{TOP + HIGH + 18}">{steps * k // 4}</text>')
    out += [curve_path("their", c, x0, scale) for c in theirs.values()]
    for runs in ours.values():
        kind = "our" if len(runs) == len(theirs) else "other"
        out += [curve_path(kind, c, x0, scale) for c in runs.values()]
    return out


def draw(measured, path):
    every = np.concatenate([c for theirs, ours in measured.values()
                            for c in [*theirs.values(), *(c for r in ours.values()
                                                          for c in r.values())]])
    low, high = np.floor(every.min() * 20) / 20, np.ceil(every.max() * 20) / 20
    width = LEFT + len(measured) * (WIDE + GAP)
    height = TOP + HIGH + 60
    out = ['<?xml version="1.0" encoding="UTF-8"?>',
           f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}" role="img">',
           "<title>Loss curves of chexnet and PyTorch</title>", f"<style>{STYLE}</style>",
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           f'<text class="t" x="16" y="24">Training loss, means over {WINDOW} steps</text>']
    for i, (precision, (theirs, ours)) in enumerate(measured.items()):
        out += panel(precision, theirs, ours, LEFT + i * (WIDE + GAP), low, high)
    y = TOP + HIGH + 42
    for x, kind, text in ((0, "their", "PyTorch, a line a seed"), (190, "our", "chexnet, same starts"),
                          (370, "other", "its other variants, first start")):
        out.append(f'<path class="{kind}" d="M{LEFT + x} {y - 4}h24"/>'
                   f'<text x="{LEFT + x + 30}" y="{y}">{text}</text>')
    with open(path + ".tmp", "w", encoding="utf-8") as f:
        f.write("\n".join(out + ["</svg>"]) + "\n")
    os.rename(path + ".tmp", path)


def judge(folder, svg):
    measured = {}
    for precision in ("fp32", "bf16"):
        theirs, ours = load(folder, precision)
        if len(theirs) > 1 and ours:
            measured[precision] = (theirs, ours)
    if not measured:
        sys.exit(f"{folder}: no two runs of PyTorch and one of ours")
    good = [judge_precision(p, *m) for p, m in measured.items()]
    draw(measured, svg)
    sys.exit(0 if all(good) else 1)


def start(model, classes, seed, output):
    import same_batches as same
    same.write_start(model, int(classes), int(seed), output)


def main():
    kinds = {"start": (start, 4), "train": (train, 7), "judge": (judge, 2)}
    if len(sys.argv) < 2 or sys.argv[1] not in kinds or len(sys.argv) - 2 != kinds[sys.argv[1]][1]:
        sys.exit(__doc__)
    kinds[sys.argv[1]][0](*sys.argv[2:])


if __name__ == "__main__":
    main()
