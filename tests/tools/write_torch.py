#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the parameters of a safetensors file as torch.save would, without PyTorch.

usage: write_torch.py FILE.safetensors OUTPUT FORMAT [SHAPE]
FORMAT: zip (PyTorch 1.6 and newer) or legacy.
SHAPE: state (the default), the state dictionary itself
       arnoweng, a training script's dictionary with the names of arnoweng/CheXNet
       xrv, a pickled module of torchxrayvision with one input channel (that of red)
       two, two state dictionaries
"""
import json
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict


class Tensor:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), data

    def __reduce__(self):
        strides, step = [], 1
        for n in reversed(self.shape):
            strides.insert(0, step)
            step *= n
        return rebuild_tensor, (Storage(self), 0, self.shape, tuple(strides), False, OrderedDict())


class Storage:
    def __init__(self, tensor):
        self.tensor = tensor
        self.count = len(tensor.data) // (8 if tensor.dtype == "I64" else 4)


def module(name, **content):
    """A module that pickle believes to be there, under the name that torch has."""
    made = sys.modules[name] = types.ModuleType(name)
    for key, value in content.items():
        value.__module__, value.__qualname__ = name, value.__name__
        setattr(made, key, value)


def _rebuild_tensor_v2(*_):
    raise AssertionError


rebuild_tensor = _rebuild_tensor_v2
FloatStorage, LongStorage, DenseNet, Part = (
    type(name, (), {}) for name in ("FloatStorage", "LongStorage", "DenseNet", "Part")
)
module("torch", FloatStorage=FloatStorage, LongStorage=LongStorage)
module("torch._utils", _rebuild_tensor_v2=_rebuild_tensor_v2)
module("torchxrayvision", Part=Part)
module("torchxrayvision.models", DenseNet=DenseNet)


class Pickler(pickle.Pickler):
    """Storages are persistent objects; their bytes are written elsewhere."""

    def __init__(self, file, extra):
        super().__init__(file, 2)
        self.storages, self.extra = [], extra

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        kind = LongStorage if obj.tensor.dtype == "I64" else FloatStorage
        self.storages.append(obj)
        return ("storage", kind, str(len(self.storages) - 1), "cpu", obj.count, *self.extra)


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    body = data[8 + length :]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return OrderedDict(
        (name, Tensor(t["dtype"], t["shape"], body[slice(*t["data_offsets"])]))
        for name, t in header.items()
    )


def module_tree(state):
    root = DenseNet()
    for part in (root,):
        part.__dict__.update(_parameters=OrderedDict(), _buffers=OrderedDict(),
                             _modules=OrderedDict(), training=False)
    for name, tensor in state.items():
        *path, last = name.split(".")
        part = root
        for word in path:
            if word not in part._modules:
                part._modules[word] = Part()
                part._modules[word].__dict__.update(
                    _parameters=OrderedDict(), _buffers=OrderedDict(), _modules=OrderedDict())
            part = part._modules[word]
        kind = "_buffers" if "running" in last or "tracked" in last else "_parameters"
        getattr(part, kind)[last] = tensor
    return root


def shaped(state, shape):
    if shape == "arnoweng":
        def old(name):
            for part in ("norm1", "norm2", "conv1", "conv2"):
                if "denselayer" in name:
                    name = name.replace(f".{part}.", f".{part[:4]}.{part[4]}.")
            return "module.densenet121." + name.replace("classifier.", "classifier.0.")

        moments = {"state": {0: {"exp_avg": next(iter(state.values()))}}, "param_groups": []}
        return {"epoch": 3, "best_loss": 0.5, "optimizer": moments, "args": Part(),
                "state_dict": OrderedDict((old(k), t) for k, t in state.items())}
    if shape == "xrv":
        first = state["features.conv0.weight"]
        taps = 4 * first.shape[2] * first.shape[3]
        red = b"".join(first.data[3 * taps * i :][:taps] for i in range(first.shape[0]))
        state["features.conv0.weight"] = Tensor("F32", (first.shape[0], 1, *first.shape[2:]), red)
        return module_tree(state)
    return {"model": state, "ema": {"shadow": state}} if shape == "two" else state


def main():
    source, output, form, shape = (*sys.argv[1:], "state")[:4]
    data = shaped(read(source), shape)
    if form == "zip":
        with zipfile.ZipFile(output, "w") as archive:
            with archive.open("archive/data.pkl", "w", force_zip64=True) as file:
                pickler = Pickler(file, ())
                pickler.dump(data)
            archive.writestr("archive/byteorder", "little")
            for i, storage in enumerate(pickler.storages):
                archive.writestr(f"archive/data/{i}", storage.tensor.data)
            archive.writestr("archive/version", "3\n")
        return
    with open(output, "wb") as file:
        pickle.dump(0x1950A86A20F9469CFC6C, file, 2)
        pickle.dump(1001, file, 2)
        pickle.dump({"protocol_version": 1001, "little_endian": True}, file, 2)
        pickler = Pickler(file, (None,))
        pickler.dump(data)
        pickle.dump([str(i) for i in range(len(pickler.storages))], file, 2)
        for storage in pickler.storages:
            file.write(struct.pack("<q", storage.count) + storage.tensor.data)


main()
