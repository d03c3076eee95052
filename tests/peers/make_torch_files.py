#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes networks of torchvision with random parameters as people save them, and the probabilities
of PyTorch for the test images of shards.

usage: make_torch_files.py SHARDS SIDE OUTPUT [NAME...]
OUTPUT/NAME.pth is a file, OUTPUT/NAME.csv has image_id and a probability for each output. SIDE: of
the centre crop. Needs torch, torchvision, h5py.
"""
import csv
import glob
import sys
import types

import h5py
import numpy as np
import torch
import torchvision

from tiny_tensors import old_name

CLASSES = 14
OTHERS = ("densenet161", "densenet169", "densenet201", "resnet18", "resnet34", "resnet101", "resnet152")
MEAN = torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)


def images(shards, side):
    """All test images as grey u8 (n, 1, side, side), and their names."""
    names, pixels = [], []
    for path in sorted(glob.glob(f"{shards}/test/*.h5")):
        with h5py.File(path) as file:
            names += [name.decode() for name in file["image_id"][:]]
            pixels.append(file["image"][:])
    stored = np.concatenate(pixels)
    edge = round((stored.shape[1] - side) / 2)
    return names, torch.from_numpy(stored[:, None, edge : edge + side, edge : edge + side])


def scramble(network):
    """Gives every parameter and statistic a value of its own, so that no mix-up cancels out."""
    generator = torch.Generator().manual_seed(5)
    for name, t in network.state_dict().items():
        noise = torch.randn(t.shape, generator=generator) if t.is_floating_point() else None
        if name.endswith("running_var"):
            t.copy_(1 + 0.2 * noise.abs())
        elif noise is not None and t.dim() == 1:
            t.add_(0.1 * noise)
    return network.eval()


def shallow(network):
    """Makes the residual branches small, as in trained networks. Else the sums double from block to
    block, and so do the roundings."""
    for module in network.modules():
        if isinstance(module, torchvision.models.resnet.BasicBlock):
            module.bn2.weight.data *= 0.2
        elif isinstance(module, torchvision.models.resnet.Bottleneck):
            module.bn3.weight.data *= 0.2
    return network


class CheXNet(torch.nn.Module):
    """The wrapper of arnoweng/CheXNet: a head of two layers in a Sequential."""

    def __init__(self, network):
        super().__init__()
        self.densenet121 = network
        self.densenet121.classifier = torch.nn.Sequential(network.classifier, torch.nn.Sigmoid())

    def forward(self, x):
        return self.densenet121(x)


def one_channel(network):
    first = network.features.conv0
    network.features.conv0 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    # Inputs are 1,024 times as large as normalised ones.
    network.features.conv0.weight.data = first.weight.data[:, :1].clone() / 1000
    return network


def densenet():
    torch.manual_seed(1)
    return scramble(torchvision.models.densenet121(num_classes=CLASSES))


def fake_torchxrayvision():
    """torchxrayvision publishes pickled modules of this class."""
    module = types.ModuleType("torchxrayvision.models")
    sys.modules["torchxrayvision"] = types.ModuleType("torchxrayvision")
    sys.modules["torchxrayvision.models"] = module

    class DenseNet(torchvision.models.DenseNet):
        pass

    DenseNet.__module__, DenseNet.__qualname__ = "torchxrayvision.models", "DenseNet"
    module.DenseNet = DenseNet
    return DenseNet


def main():
    shards, side, output = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    names, grey = images(shards, side)
    normal = (grey.float() / 255 - MEAN) / STD
    xrv = (2 * (grey.float() / 255) - 1) * 1024

    def save(name, data, network, x=normal, sigmoid=True, **options):
        if sys.argv[4:] and name not in sys.argv[4:]:
            return
        torch.save(data, f"{output}/{name}.pth", **options)
        with torch.inference_mode():
            y = network(x)
        y = torch.sigmoid(y) if sigmoid else y
        with open(f"{output}/{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([name, *row] for name, row in zip(names, y.tolist()))

    network = densenet()
    state = network.state_dict()
    save("zip", state, network)
    save("legacy", state, network, _use_new_zipfile_serialization=False)
    save("protocol4", state, network, pickle_protocol=4)
    save("protocol5", {"net": state}, network, pickle_protocol=5)
    save("module", network, network)
    save("module-legacy", network, network, _use_new_zipfile_serialization=False)
    save("compiled", {"model": {f"_orig_mod.{k}": t for k, t in state.items()}}, network)
    strided = {k: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t
               for k, t in state.items()}
    save("strided", strided, network)
    save("parameters", {k: torch.nn.Parameter(t) if t.is_floating_point() else t
                        for k, t in state.items()}, network)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    for p in network.parameters():
        p.grad = torch.zeros_like(p)
    optimiser.step()
    save("training", {"epoch": 7, "best_loss": np.float64(0.5), "args": types.SimpleNamespace(a=1),
                      "optimizer": optimiser.state_dict(), "model_state_dict": state}, network)
    half = densenet().half().float()
    save("half", {k: t.half() if t.is_floating_point() else t
                  for k, t in half.state_dict().items()}, half)
    bf16 = densenet().bfloat16().float()
    save("bf16", {k: t.bfloat16() if t.is_floating_point() else t
                  for k, t in bf16.state_dict().items()}, bf16)
    save("double", {k: t.double() if t.is_floating_point() else t for k, t in state.items()},
         network)

    wrapped = CheXNet(densenet())
    parallel = {f"module.{old_name(k)}": t for k, t in wrapped.state_dict().items()}
    save("arnoweng", {"epoch": 3, "state_dict": parallel}, wrapped, sigmoid=False,
         _use_new_zipfile_serialization=False)

    resnet = scramble(torchvision.models.resnet50(num_classes=CLASSES))
    save("resnet50", resnet.state_dict(), resnet)

    for name in [name for name in OTHERS if name in (sys.argv[4:] or OTHERS)]:
        other = shallow(scramble(getattr(torchvision.models, name)(num_classes=CLASSES)))
        save(name, other.state_dict(), other.double(), normal.double())

    published = fake_torchxrayvision()(num_classes=CLASSES)
    published.load_state_dict(densenet().state_dict())
    published = one_channel(published).eval()
    save("torchxrayvision", published, published, xrv, _use_new_zipfile_serialization=False)
    save("torchxrayvision-state", published.state_dict(), published, xrv)


main()
