# SPDX-License-Identifier: Apache-2.0
"""Times inference of torchvision's DenseNet-121 or ResNet-50 on the CPU, as torch_train.py times
training: batch norm folded by torch.compile's freezing or not at all, bf16 by autocast or by a model
whose weights are bf16, whichever --mode says.
"""
import torch
from torch._inductor import config as inductor

from torch_train import arguments, batch, network, time_steps


def main():
    a = arguments(__doc__)
    model = network(a).eval()
    x, _ = batch(a)
    if a.mode == "compile":
        inductor.freezing = True
        if a.precision == "bf16":
            model, x = model.bfloat16(), x.bfloat16()
        model = torch.compile(model)

    def step():
        half = a.precision == "bf16" and a.mode == "eager"
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            model(x)

    time_steps(step, a, 3)


if __name__ == "__main__":
    main()
