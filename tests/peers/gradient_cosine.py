#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's part of gradient_cosine.sh, and the comparison.

    gradient_cosine.py start MODEL CLASSES SEED OUTPUT.safetensors
    gradient_cosine.py compare CASE MODEL START.safetensors BATCHES NAME=OURS.safetensors...

compare computes the gradient of the first batch in float64, which is the truth, in float32 and under
autocast to bf16, and prints the cosine of each, and of ours, with the truth: of the whole vector, and
as the median and least of the parameters' own; and for ours in bf16 1 - cosine as a multiple of
autocast's. A NAME holds its precision in front of a blank.
"""
import sys

import numpy as np
import torch
from safetensors.torch import load_file

import same_batches as same

def gradient(model, start, pixels, labels, precision):
    dtype = torch.float64 if precision == "fp64" else torch.float32
    net = same.network(model, labels.shape[-1], start).to(dtype)
    loss = same.loss_of(net, same.to_input(pixels, dtype), labels, precision)
    loss.backward()
    return {n: p.grad.double().numpy().reshape(-1) for n, p in net.named_parameters()}


def cosine(a, b):
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def row(name, grads, truth):
    whole = cosine(np.concatenate([grads[n] for n in truth]), np.concatenate(list(truth.values())))
    each = sorted(cosine(grads[n], truth[n]) for n in truth)
    print(f"  {name:28} {whole:.6f}   {np.median(each):.6f}   {each[0]:.6f}", flush=True)
    return whole


def compare(case, model, start, batches, *files):
    pixels, labels = (t[0] for t in same.read_batches(batches))
    truth = gradient(model, start, pixels, labels, "fp64")
    print(f"{case}, cosine with float64{' ' * (20 - len(case))} whole     median     least")
    row("PyTorch fp32", gradient(model, start, pixels, labels, "fp32"), truth)
    peer = row("PyTorch bf16 autocast", gradient(model, start, pixels, labels, "bf16"), truth)
    for item in files:
        name, path = item.split("=", 1)
        ours = {n: v.double().numpy().reshape(-1) for n, v in load_file(path).items() if n in truth}
        whole = row("chexnet " + name, ours, truth)
        if name.startswith("bf16"):
            print(f"    1 - cosine is {(1 - whole) / (1 - peer):.4f} of autocast's", flush=True)


def main():
    torch.set_num_threads(1)  # one order of sums
    if sys.argv[1:2] == ["start"] and len(sys.argv) == 6:
        same.write_start(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) > 6:
        compare(*sys.argv[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
