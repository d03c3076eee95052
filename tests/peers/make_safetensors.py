#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/safetensors/*.safetensors with the Python package, for tests/unit/safetensors.c.

A network of one convolution, two batch norms and a head of three classes (tiny_tensors.py).
"""
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from tiny_tensors import LAYER, old_name, tensors


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    f32 = tensors(torch.float32)
    for norm in (LAYER + "norm1", LAYER + "norm2"):
        f32[norm + ".num_batches_tracked"] = torch.tensor(7)
    save_file(f32, folder / "f32.safetensors", metadata={"format": "pt"})
    save_file(tensors(torch.float16), folder / "f16.safetensors")
    save_file(tensors(torch.bfloat16), folder / "bf16.safetensors")
    save_file(tensors(torch.float64), folder / "f64.safetensors")
    renamed = {"module." + old_name(name): t for name, t in tensors().items()}  # within DataParallel
    save_file(renamed, folder / "names-2018.safetensors")
    save_file(tensors(torch.float32, classes=5), folder / "head-5.safetensors")


if __name__ == "__main__":
    default = Path(__file__).parent.parent / "data" / "safetensors"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else default)
