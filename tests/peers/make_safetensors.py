#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/safetensors/*.safetensors with the Python package, for tests/unit/safetensors.c.

A network of one convolution, two batch norms and a head of three classes. Element i of the tensor
with number t is (i - 5) * 2^-4 + t, exact in every type used.
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYER = "features.denseblock1.denselayer1."
SHAPES = {
    "features.conv0.weight": (4, 3, 3, 3),
    LAYER + "norm1.weight": (4,),
    LAYER + "norm1.bias": (4,),
    LAYER + "norm1.running_mean": (4,),
    LAYER + "norm1.running_var": (4,),
    LAYER + "conv1.weight": (8, 4, 1, 1),
    LAYER + "norm2.weight": (8,),
    LAYER + "norm2.bias": (8,),
    LAYER + "norm2.running_mean": (8,),
    LAYER + "norm2.running_var": (8,),
    "classifier.weight": (3, 8),
    "classifier.bias": (3,),
}


def tensors(dtype, rename=lambda name: name, classes=3):
    out = {}
    for t, (name, shape) in enumerate(SHAPES.items()):
        if name.startswith("classifier"):
            shape = (classes,) + shape[1:]
        count = torch.Size(shape).numel()
        values = (torch.arange(count, dtype=torch.float64) - 5) / 16 + t
        out[rename(name)] = values.reshape(shape).to(dtype).contiguous()
    return out


def old_name(name):
    """torchvision 0.2's, from within DataParallel."""
    for part in ("norm", "conv"):
        for i in "12":
            name = name.replace(f"denselayer1.{part}{i}.", f"denselayer1.{part}.{i}.")
    return "module." + name


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    f32 = tensors(torch.float32)
    for norm in (LAYER + "norm1", LAYER + "norm2"):
        f32[norm + ".num_batches_tracked"] = torch.tensor(7)
    save_file(f32, folder / "f32.safetensors", metadata={"format": "pt"})
    save_file(tensors(torch.float16), folder / "f16.safetensors")
    save_file(tensors(torch.bfloat16), folder / "bf16.safetensors")
    save_file(tensors(torch.float64), folder / "f64.safetensors")
    save_file(tensors(torch.float32, old_name), folder / "names-2018.safetensors")
    save_file(tensors(torch.float32, classes=5), folder / "head-5.safetensors")


if __name__ == "__main__":
    default = Path(__file__).parent.parent / "data" / "safetensors"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
