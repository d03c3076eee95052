#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads an ONNX model of chex-eval export by the wire format of Protocol Buffers alone, compares
its initializers with a safetensors export of the same checkpoint, bit for bit, and runs it in
numpy.

usage: run_onnx.py FILE.onnx FILE.safetensors SHARD.h5 predictions.csv
Prints what the model says of itself, its kinds of nodes, the equal initializers, and the greatest
difference of a probability from predictions.csv. With a table of chex-eval predict that has
recalibrated probabilities (c_*) these count, and the decisions (d_*) are compared.
"""
import csv
import json
import struct
import sys
from collections import Counter

import h5py
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def fields(data):
    """(field, value) of a message: an int, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        elif tag & 7 == 5:
            at += 4
            yield tag >> 3, bytes(data[at - 4 : at])
        else:
            assert tag & 7 == 2, "a wire type that ONNX does not have"
            length = varint()
            at += length
            yield tag >> 3, data[at - length : at]


def every(data, field):
    return [value for number, value in fields(data) if number == field]


def text(data, field):
    return bytes(every(data, field)[0]).decode()


def shape_of(value):
    """Element type and dimensions of a ValueInfoProto."""
    tensor = every(every(value, 2)[0], 1)[0]
    dims = []
    for dim in every(every(tensor, 2)[0], 1):
        (number, content), = fields(dim)
        dims.append(content if number == 1 else bytes(content).decode())
    return every(tensor, 1)[0], dims


def attributes(node):
    found = {}
    for a in every(node, 5):
        kind = every(a, 20)[0]
        found[text(a, 1)] = (struct.unpack("<f", every(a, 2)[0])[0] if kind == 1
                             else every(a, 3)[0] if kind == 2 else every(a, 8))
    return found


def windows(x, a, fill):
    pad = a["pads"]
    x = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[2]), (pad[1], pad[3])), constant_values=fill)
    step = a["strides"]
    return sliding_window_view(x, a["kernel_shape"], axis=(2, 3))[:, :, :: step[0], :: step[1]]


def batch_norm(a, x, weight, bias, mean, var):
    x, weight, bias, mean, var = (v if v.ndim == 4 else v[:, None, None]
                                  for v in (x, weight, bias, mean, var))
    return (x - mean) / np.sqrt(var + np.float32(a["epsilon"])) * weight + bias


OPERATORS = {
    "Cast": lambda a, x: x.astype({1: np.float32}[a["to"]]),
    "Div": lambda a, x, y: x / y,
    "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y,
    "Add": lambda a, x, y: x + y,
    "Relu": lambda a, x: np.maximum(x, 0),
    "Conv": lambda a, x, w: np.tensordot(
        windows(x, a, 0), w, axes=([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2),
    "BatchNormalization": batch_norm,
    "MaxPool": lambda a, x: windows(x, a, -np.inf).max((4, 5)),
    "AveragePool": lambda a, x: windows(x, a, 0).mean((4, 5)),
    "Concat": lambda a, *x: np.concatenate(x, a["axis"]),
    "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdims=True),
    "Flatten": lambda a, x: x.reshape(len(x), -1),
    "Gemm": lambda a, x, w, b: x @ (w.T if a["transB"] else w) + b,
    "Sigmoid": lambda a, x: 1 / (1 + np.exp(-x)),
    "Log": lambda a, x: np.log(x),
    "Neg": lambda a, x: -x,
    "Mean": lambda a, *x: np.mean(x, axis=0, dtype=np.float32),
}


def main():
    model = memoryview(open(sys.argv[1], "rb").read())
    graph = every(model, 7)[0]
    print("ir", every(model, 1)[0], "opset", every(every(model, 8)[0], 2)[0], text(model, 2))
    metadata = {text(entry, 1): text(entry, 2) for entry in every(model, 14)}
    for key, value in metadata.items():
        print("metadata", key, value)
    for kind, field in (("input", 11), ("output", 12)):
        for value in every(graph, field):
            print(kind, text(value, 1), *shape_of(value))

    values = {}
    for t in every(graph, 5):
        assert every(t, 2) == [1], "an initializer that is no FLOAT"
        values[text(t, 8)] = np.frombuffer(every(t, 9)[0], "<f4").reshape(every(t, 1))
    data = open(sys.argv[2], "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    equal = 0
    for name, t in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__" or t["dtype"] != "F32" or name.startswith("chexnet."):
            continue
        begin, end = t["data_offsets"]
        assert list(values[name].shape) == t["shape"], name
        assert values[name].tobytes() == data[8 + length + begin : 8 + length + end], name
        equal += 1
    print("initializers", len(values), "equal", equal)

    nodes = every(graph, 1)
    print("nodes", dict(sorted(Counter(text(node, 4) for node in nodes).items())))
    with h5py.File(sys.argv[3]) as file:
        ids, pixels = [name.decode() for name in file["image_id"][:]], file["image"][:]
    side = shape_of(every(graph, 11)[0])[1][-1]
    edge = round((pixels.shape[1] - side) / 2)
    values["image"] = pixels[:, None, edge : edge + side, edge : edge + side]
    for node in nodes:
        inputs = [values[bytes(name).decode()] for name in every(node, 1)]
        values[text(node, 2)] = OPERATORS[text(node, 4)](attributes(node), *inputs)
    theirs = dict(zip(ids, values["probabilities"]))
    thresholds = json.loads(metadata.get("deployment", "{}")).get("thresholds", {})
    difference = other = positive = 0
    with open(sys.argv[4], newline="") as file:
        for row in csv.DictReader(file):
            if row["image_id"] not in theirs:
                continue
            kind = "c_" if any(key.startswith("c_") for key in row) else "p_"
            ours = np.array([float(row[key]) for key in row if key.startswith(kind)])
            difference = max(difference, np.abs(ours - theirs[row["image_id"]]).max())
            for p, (name, threshold) in zip(theirs[row["image_id"]], thresholds.items()):
                positive += p >= threshold
                other += int(p >= threshold) != int(row["d_" + name])
    print("decisions", positive > 0, "other", other)
    print(f"difference {difference:.1e}", "small" if difference < 2e-5 else "large")


main()
