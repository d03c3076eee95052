#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the preprocessing of doc/export.md and a DenseNet-121 in numpy over exported
parameters, and compares the probabilities with predictions.csv of chex-eval.

usage: densenet_numpy.py CODE.py FILE.safetensors IMAGES predictions.csv [BREAK]
CODE.py: the page's function prepare. BREAK: a change of the metadata, "key=value", to see that it
matters. Prints the greatest difference.
"""
import csv
import json
import struct
import sys

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

BLOCKS = (6, 12, 24, 16)


def read(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = header.pop("__metadata__")
    tensors = {}
    for name, t in header.items():
        begin, end = (8 + length + offset for offset in t["data_offsets"])
        kind = {"F32": np.float32, "I64": np.int64}[t["dtype"]]
        tensors[name] = np.frombuffer(data[begin:end], kind).reshape(t["shape"])
    return about, tensors


class Net:
    """Layers over (channels, height, width), by the names of torchvision."""

    def __init__(self, tensors):
        self.tensors = tensors

    def conv(self, x, name, stride=1, pad=0):
        w = self.tensors[name + ".weight"]
        x = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
        windows = sliding_window_view(x, w.shape[2:], axis=(1, 2))[:, ::stride, ::stride]
        return np.tensordot(w, windows, axes=([1, 2, 3], [0, 3, 4]))

    def bn_relu(self, x, name):
        mean, var, weight, bias = (
            self.tensors[f"{name}.{part}"][:, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return np.maximum((x - mean) / np.sqrt(var + np.float32(1e-5)) * weight + bias, 0)

    def dense_block(self, x, block, layers):
        for layer in range(1, layers + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            y = self.conv(self.bn_relu(x, name + ".norm1"), name + ".conv1")
            y = self.conv(self.bn_relu(y, name + ".norm2"), name + ".conv2", pad=1)
            x = np.concatenate((x, y))
        return x

    def logits(self, x):
        x = self.bn_relu(self.conv(x, "features.conv0", 2, 3), "features.norm0")
        x = np.pad(x, ((0, 0), (1, 1), (1, 1)))  # after a ReLU zeros do not change the maximum
        x = sliding_window_view(x, (3, 3), axis=(1, 2))[:, ::2, ::2].max(axis=(3, 4))
        for block, layers in enumerate(BLOCKS, 1):
            x = self.dense_block(x, block, layers)
            if block < len(BLOCKS):
                name = f"features.transition{block}"
                x = self.conv(self.bn_relu(x, name + ".norm"), name + ".conv")
                x = sliding_window_view(x, (2, 2), axis=(1, 2))[:, ::2, ::2].mean(axis=(3, 4))
        x = self.bn_relu(x, "features.norm5").mean(axis=(1, 2))
        return self.tensors["classifier.weight"] @ x + self.tensors["classifier.bias"]


def main():
    page = {}
    exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), page)
    about, tensors = read(sys.argv[2])
    if len(sys.argv) > 5:
        key, value = sys.argv[5].split("=", 1)
        about[key] = value
    net, worst, count = Net(tensors), 0.0, 0
    with open(sys.argv[4], newline="") as table:
        for row in csv.DictReader(table):
            x = page["prepare"](f"{sys.argv[3]}/{row['image_id']}", about)
            p = 1 / (1 + np.exp(-net.logits(x).astype(np.float64)))
            theirs = [float(row["p_" + name]) for name in json.loads(about["classes"])]
            worst, count = max(worst, float(np.abs(p - theirs).max())), count + 1
    print(f"{count} images, greatest difference {worst:.2e}")


main()
