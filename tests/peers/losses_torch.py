#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the losses of chex-train with PyTorch, torchvision and timm, in double precision.

    python3 -m venv venv && venv/bin/pip install torch torchvision timm
    cmake --build build/release --target dump_loss
    venv/bin/python tests/peers/losses_torch.py build/release/tests/dump_loss

bce is BCEWithLogitsLoss with soft targets, weight and pos_weight; focal is sigmoid_focal_loss of
torchvision; asl is AsymmetricLossMultiLabel of timm. The last two are asked for hard targets only: a
soft target is the mix of the losses of 1 and 0 here, while they put it into the focusing factor.
timm takes logarithms of at least 1e-8, so logits beyond 18 are left out of asl, and it computes in
fp32. Prints the greatest differences of each case; exit status 1: one is above the bound."""
import json
import subprocess
import sys

import torch
from timm.loss import AsymmetricLossMultiLabel
from torch.nn.functional import binary_cross_entropy_with_logits
from torchvision.ops import sigmoid_focal_loss

torch.set_default_dtype(torch.float64)
LOSS_BOUNDS = {"bce": 1e-13, "focal": 1e-13, "asl": 5e-6}
GRADIENT_BOUNDS = {"bce": 1.2e-7, "focal": 1.2e-7, "asl": 5e-6}


def hard_loss(case, z, positive):
    """The loss of each logit for one label, without weights."""
    y = torch.full_like(z, float(positive))
    if case["kind"] == "bce":
        return binary_cross_entropy_with_logits(z, y, reduction="none")
    if case["kind"] == "focal":
        return sigmoid_focal_loss(z, y, alpha=case["alpha"], gamma=case["gamma_pos"])
    one = AsymmetricLossMultiLabel(case["gamma_neg"], case["gamma_pos"], case["clip"])
    return torch.stack([one(a, b) for a, b in zip(z.split(1), y.split(1))])


def peer_loss(case, z, y, keep):
    """The mean loss over all labels; masked ones add 0."""
    k = torch.arange(len(z)) % case["classes"]
    per_class = lambda key, default: torch.tensor(case[key] or [default] * case["classes"])[k]
    t = torch.where(y == -1, per_class("uncertain_target", -1.0), y.double())
    keep = keep & (y >= -1) & (t >= 0)
    t = t * (1 - case["smoothing"]) + case["smoothing"] / 2
    weight, more = per_class("class_weight", 1.0), per_class("pos_weight", 1.0)
    if case["kind"] == "bce":
        loss = binary_cross_entropy_with_logits(z, t, weight, pos_weight=more, reduction="none")
    else:
        loss = weight * (t * more * hard_loss(case, z, 1) + (1 - t) * hard_loss(case, z, 0))
    return torch.where(keep, loss, 0.0)


def main():
    good = True
    for case in json.loads(subprocess.run(sys.argv[1:2], check=True, capture_output=True).stdout):
        z = torch.tensor(case["logits"], requires_grad=True)
        keep = (z.detach().abs() < 18) | torch.tensor(case["kind"] != "asl")
        loss = peer_loss(case, z, torch.tensor(case["labels"]), keep)
        (loss.sum() / len(z)).backward()
        off = {}
        for name, peer, ours in ("loss", loss.detach(), case["values"]), ("gradient", z.grad, case["dlogits"]):
            peer, ours = peer[keep], torch.tensor(ours)[keep]
            off[name] = ((peer - ours).abs().max() / peer.abs().max()).item()
        good = good and off["loss"] < LOSS_BOUNDS[case["kind"]]
        good = good and off["gradient"] < GRADIENT_BOUNDS[case["kind"]]
        print(f"{case['name']}: loss within {off['loss']:.1e}, gradient within {off['gradient']:.1e}"
              f" of the largest; {int(keep.sum())} of {len(z)} values")
    sys.exit(not good)


if __name__ == "__main__":
    main()
