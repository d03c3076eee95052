# SPDX-License-Identifier: Apache-2.0
"""The parameters of the small network of tests/tiny_net.h: element i of tensor number t is
(i - 5) / 16 + t, exact in every type used.
"""
import torch

LAYER = "features.denseblock1.denselayer1."
NORM = ("weight", "bias", "running_mean", "running_var")
SHAPES = dict(
    [("features.conv0.weight", (4, 3, 3, 3))] + [(LAYER + "norm1." + part, (4,)) for part in NORM]
    + [(LAYER + "conv1.weight", (8, 4, 1, 1))] + [(LAYER + "norm2." + part, (8,)) for part in NORM]
    + [("classifier.weight", (3, 8)), ("classifier.bias", (3,))])


def tensors(dtype=torch.float32, classes=3):
    out = {}
    for t, (name, shape) in enumerate(SHAPES.items()):
        shape = (classes,) + shape[1:] if name.startswith("classifier") else shape
        count = torch.Size(shape).numel()
        values = (torch.arange(count, dtype=torch.float64) - 5) / 16 + t
        out[name] = values.reshape(shape).to(dtype).contiguous()
    return out


def old_name(name):
    """As torchvision named it before 2018."""
    for part in ("norm1", "norm2", "conv1", "conv2"):
        if "denselayer" in name:
            name = name.replace(f".{part}.", f".{part[:4]}.{part[4]}.")
    return name
