#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the small PyTorch files of tests/data/torch.

usage: make_torch.py [FOLDER]
All hold the parameters of the small network of tests/tiny_net.h (tiny_tensors.py). Needs torch.
"""
import os
import sys
import types
from collections import OrderedDict

import torch

from tiny_tensors import SHAPES, old_name, tensors


def tracked_tensors():
    """With the counts of batches beside the running statistics."""
    state = OrderedDict()
    for name, value in tensors().items():
        state[name] = value
        if name.endswith("running_var"):
            state[name.replace("running_var", "num_batches_tracked")] = torch.tensor(41)
    return state


def unknown_class():
    """A class that readers do not have. Without a file torch.save cannot add its source code."""
    sys.modules["hospital"] = types.ModuleType("hospital")
    net = type("Net", (torch.nn.Module,), {"__module__": "hospital"})
    sys.modules["hospital"].Net = net
    return net


def module_of(state):
    """A pickled module of an unknown class, with modules in modules as the names say."""
    net = unknown_class()
    root = net()
    for name, value in state.items():
        *path, last = name.split(".")
        part = root
        for word in path:
            if word not in part._modules:
                part.add_module(word, net())
            part = part._modules[word]
        if "running" in last or "tracked" in last:
            part.register_buffer(last, value)
        else:
            part.register_parameter(last, torch.nn.Parameter(value))
    return root


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "data", "torch")
    os.makedirs(folder, exist_ok=True)

    def save(name, data, **options):
        torch.save(data, os.path.join(folder, name + ".pth"), **options)

    state = tracked_tensors()
    legacy = {"_use_new_zipfile_serialization": False}
    floats = [name for name in state if "tracked" not in name]
    save("zip", state)
    save("legacy", state, **legacy)
    save("protocol5", state, pickle_protocol=5)
    save("half", {k: v.half() if k in floats else v for k, v in state.items()})
    save("bf16", {k: v.bfloat16() if k in floats else v for k, v in state.items()})
    save("double", {k: v.double() if k in floats else v for k, v in state.items()}, **legacy)
    # Views of one storage, with an offset, in another order of dimensions.
    whole = torch.cat([state[name].flatten() for name in floats])
    views, at = OrderedDict(), 0
    for name in floats:
        shape = SHAPES[name]
        views[name] = whole[at : at + state[name].numel()].reshape(shape)
        at += state[name].numel()
        if len(shape) == 4:
            views[name] = views[name].contiguous(memory_format=torch.channels_last)
    save("views", views)
    save("views-legacy", views, **legacy)
    save("module", module_of(state))
    save("module-legacy", module_of(state), **legacy)
    # A training script's dictionary around the names of arnoweng/CheXNet.
    wrapped = OrderedDict(
        ("module.densenet121." + old_name(k).replace("classifier.", "classifier.0."), v)
        for k, v in state.items())
    moments = {"state": {0: {"exp_avg": whole.clone(), "step": torch.tensor(3.0)}}}
    save("training", {"epoch": 3, "arch": types.SimpleNamespace(lr=0.1), "optimizer": moments,
                      "state_dict": wrapped}, **legacy)
    save("two", {"state_dict": state, "ema": {"shadow": state}, "epoch": 3})
    save("none", {"epoch": 3, "loss": torch.tensor(0.5)})
    one = OrderedDict(state)
    one["features.conv0.weight"] = state["features.conv0.weight"][:, :1].clone()
    save("one-channel", one)
    save("whole-numbers", OrderedDict((k, v.long()) for k, v in state.items()))


main()
