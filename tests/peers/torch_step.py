# SPDX-License-Identifier: Apache-2.0
"""Times steps of torchvision's networks on the CPU, on resident random data,
channels_last. train: forward, BCE loss, backward, Adam, bf16 by autocast. infer: batch norm folded by
torch.compile's freezing or not at all, bf16 by autocast or by a model whose weights are bf16, whichever
--mode says. Prints one JSON object with the keys of chex-train --bench --json.
"""
import argparse
import json
import resource
import statistics
import time

import torch
import torchvision
from torch._inductor import config as inductor


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("kind", choices=["train", "infer"])
    p.add_argument("--model", default="densenet121")
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--mode", choices=["eager", "compile"], default="eager")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--bench", type=int, default=5, help="timed steps")
    return p.parse_args()


def network(a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = getattr(torchvision.models, a.model)(num_classes=14)
    return model.to(memory_format=torch.channels_last)


def batch(a):
    x = torch.rand(a.batch_size, 3, a.image_size, a.image_size)
    return x.to(memory_format=torch.channels_last), (torch.rand(a.batch_size, 14) < 0.1).float()


def time_steps(step, a, warm_up):
    for _ in range(warm_up):
        step()
    seconds = []
    for _ in range(a.bench):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({
        "images_per_s_median": a.batch_size / statistics.median(seconds),
        "images_per_s_best": a.batch_size / min(seconds),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "engine": "torch " + torch.__version__, "torchvision": torchvision.__version__,
        "mode": a.mode, "model": a.model, "precision": a.precision, "batch": a.batch_size,
        "image_size": a.image_size, "threads": a.threads, "steps": a.bench}))


def training_step(a):
    model = network(a).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loss_of = torch.nn.BCEWithLogitsLoss()
    x, y = batch(a)

    def loss_step():
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            return loss_of(model(x), y)

    run = torch.compile(loss_step) if a.mode == "compile" else loss_step

    def step():
        optimizer.zero_grad(set_to_none=True)
        run().backward()
        optimizer.step()
    return step


def inference_step(a):
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
    return step


if __name__ == "__main__":
    options = arguments()
    time_steps((training_step if options.kind == "train" else inference_step)(options), options,
               2 if options.kind == "train" else 3)
