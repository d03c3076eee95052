# SPDX-License-Identifier: Apache-2.0
"""What the peers of one step and of 200 steps share: batches that tests/tools/dump_batches wrote,
initial weights in a safetensors file, and the loss of chex-train.
"""
import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import load_file, save_file

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def read_batches(path):
    """Pixels (steps, batch, 1, size, size) f32 and labels (steps, batch, classes) i8."""
    raw = np.fromfile(path, np.uint8)
    steps, batch, size, classes = (int(v) for v in raw[:16].view(np.int32))
    each = raw[16:].reshape(steps, batch * (4 * size * size + classes))
    pixels = np.ascontiguousarray(each[:, :4 * batch * size * size]).view(np.float32)
    labels = np.ascontiguousarray(each[:, 4 * batch * size * size:]).view(np.int8)
    return (torch.from_numpy(pixels.reshape(steps, batch, 1, size, size)),
            torch.from_numpy(labels.reshape(steps, batch, classes)))


def to_input(pixels, dtype):
    mean = torch.tensor(MEAN).to(dtype).view(1, 3, 1, 1)
    std = torch.tensor(STD).to(dtype).view(1, 3, 1, 1)
    return (pixels.to(dtype) - mean) / std


def write_start(model, classes, seed, path):
    """torchvision's own initial weights."""
    torch.manual_seed(seed)
    net = getattr(torchvision.models, model)(weights=None, num_classes=classes)
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, path)


def network(model, classes, start):
    net = getattr(torchvision.models, model)(weights=None, num_classes=classes)
    net.load_state_dict(load_file(start))
    return net.train()


def loss_of(net, x, labels, precision):
    """Mean over all labels; masked ones add nothing."""
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        logits = net(x)
    logits = logits.to(x.dtype)
    each = F.binary_cross_entropy_with_logits(logits, (labels > 0).to(x.dtype), reduction="none")
    return (each * (labels >= 0)).sum() / labels.numel()
