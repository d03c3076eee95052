# SPDX-License-Identifier: Apache-2.0
"""Times training steps of torchvision's networks on a GPU: upload of a batch of
grey images of 8 bits from pinned memory (the bytes that bench-step uploads), normalised into three
channels of the network's type on the GPU, forward, BCE loss, backward, fused Adam. Modes:
  eager                    NCHW
  channels_last            NHWC
  graph                    channels_last, the whole step captured as a CUDA graph
  compile                  channels_last, torch.compile, default mode
  max-autotune             the same, max-autotune-no-cudagraphs
  reduce-overhead          the same, with CUDA graphs of its own
Prints one JSON object a measurement: images a second by the wall clock with everything waited for,
and the median time of a step's work on the device, by events, without its upload. With --serve it reads lines "MODE BATCH SIZE" from standard
input, answers each with such a line, and keeps what it compiled, so that its turns can alternate
with another program's; the device is idle between them.
"""
import argparse
import gc
import json
import os
import statistics
import sys
import time

import torch
import torchvision

MODES = ["eager", "channels_last", "graph", "compile", "max-autotune", "reduce-overhead"]
COMPILE = {"compile": "default", "max-autotune": "max-autotune-no-cudagraphs",
           "reduce-overhead": "reduce-overhead"}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
BATCHES = 4
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # torchvision's


def arguments(text):
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--model", default="densenet121")
    p.add_argument("--device", default="cuda")
    p.add_argument("--mode", default="eager", help="one or more of " + ",".join(MODES))
    p.add_argument("--precision", choices=list(DTYPES), default="bf16")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--steps", type=int, default=20, help="timed steps of a round")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--serve", action="store_true")
    a = p.parse_args()
    for mode in a.mode.split(","):
        if mode not in MODES:
            p.error(f"mode '{mode}': expected one of {', '.join(MODES)}")
    return a


class Training:
    """One mode at one batch and size, ready to be timed."""

    def __init__(self, a, mode, batch, size):
        self.mode, self.batch, self.size = mode, batch, size
        self.device = torch.device(a.device)
        self.on_gpu = self.device.type == "cuda"
        self.dtype = DTYPES[a.precision]
        torch.manual_seed(0)
        layout = torch.contiguous_format if mode == "eager" else torch.channels_last
        model = getattr(torchvision.models, a.model)(num_classes=14)
        self.model = model.to(self.device).to(memory_format=layout).train()
        # capturable: a captured step reads its count from the device
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=self.on_gpu,
                                          capturable=self.on_gpu and mode == "graph")
        self.scaler = torch.amp.GradScaler("cuda") if a.precision == "fp16" and self.on_gpu else None
        self.loss_of = torch.nn.BCEWithLogitsLoss()
        self.fill(layout)
        self.forward = self.loss
        if mode in COMPILE:
            self.forward = torch.compile(self.loss, mode=COMPILE[mode], dynamic=False)
        self.turn = 0
        self.captured = None
        if mode == "graph" and self.on_gpu:
            self.capture()
        for _ in range(4 if self.on_gpu else 1):
            self.step()
        self.wait()

    def fill(self, layout):
        """Random batches in pinned memory and the tensors on the device that they go to."""
        self.hosts = []
        for _ in range(BATCHES):
            grey = torch.randint(256, (self.batch, 1, self.size, self.size), dtype=torch.uint8)
            y = (torch.rand(self.batch, 14) < 0.1).float()
            self.hosts.append((grey.pin_memory(), y.pin_memory()) if self.on_gpu else (grey, y))
        self.grey = torch.empty_like(self.hosts[0][0], device=self.device)
        self.x = torch.empty(self.batch, 3, self.size, self.size, device=self.device,
                             dtype=self.dtype, memory_format=layout)
        mean, std = (torch.tensor(v, device=self.device).view(1, 3, 1, 1) for v in (MEAN, STD))
        self.scale, self.shift = 1 / (255 * std), -mean / std
        self.y = torch.empty_like(self.hosts[0][1], device=self.device)

    def loss(self):
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            out = self.model(self.x)
        return self.loss_of(out.float(), self.y)

    def work(self):
        self.optimizer.zero_grad(set_to_none=self.mode != "graph")
        if self.scaler:
            self.scaler.scale(self.forward()).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.forward().backward()
            self.optimizer.step()

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.work()
        torch.cuda.current_stream().wait_stream(side)
        self.captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.captured):
            self.work()

    def step(self, began=None, ended=None):
        """One step; the events, if there are, are recorded around its work on the device."""
        grey, y = self.hosts[self.turn % BATCHES]
        self.turn += 1
        self.grey.copy_(grey, non_blocking=True)
        self.y.copy_(y, non_blocking=True)
        if began:
            began.record()
        torch.addcmul(self.shift, self.grey.float(), self.scale, out=self.x)
        if self.captured:
            self.captured.replay()
        else:
            self.work()
        if ended:
            ended.record()

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def rate(self, steps):
        """Images a second, and the median of the steps' milliseconds on the device."""
        events = [(None, None)] * steps
        if self.on_gpu:
            events = [tuple(torch.cuda.Event(enable_timing=True) for _ in "be") for _ in events]
        self.wait()
        start = time.perf_counter()
        for began, ended in events:
            self.step(began, ended)
        self.wait()
        seconds = time.perf_counter() - start
        device_ms = [b.elapsed_time(e) for b, e in events] if self.on_gpu else [1e3 * seconds / steps]
        return self.batch * steps / seconds, statistics.median(device_ms)


def settings(a):
    if a.precision == "fp32":  # plain fp32, as the engine's
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    # Every mode and shape compiles the same function; none may push another out.
    torch._dynamo.config.cache_size_limit = 64


def record(a, training, measured, set_up_s):
    rates = [r for r, _ in measured]
    on_gpu = training.on_gpu
    return {
        "schema": 1, "kind": "torch", "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": torch.__version__, "torchvision": torchvision.__version__,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None, "cuda": torch.version.cuda,
        "mode": training.mode, "model": a.model, "precision": a.precision,
        "batch": training.batch, "size_px": training.size, "steps": a.steps,
        "images_per_s": statistics.median(rates), "images_per_s_rounds": rates,
        "step_ms": 1e3 * training.batch / statistics.median(rates), "input": "raw",
        "device_ms": statistics.median(ms for _, ms in measured),
        "memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        "set_up_s": set_up_s}


def give_back(a):
    """Hands what is free in PyTorch's pools back to the device: the engine has the next turn."""
    gc.collect()
    if a.device.startswith("cuda"):
        torch.cuda.empty_cache()


def make_room(a, kept, key):
    """The same, and where captured modes hold half of the device, the last one goes: the engine
    needs as much as a mode does. Its next round captures anew."""
    give_back(a)
    if a.device.startswith("cuda"):
        free, total = torch.cuda.mem_get_info()
        if free < total / 2:
            kept.pop(key, None)
            give_back(a)


def timed(a, kept, key, rounds):
    start = time.perf_counter()
    if key in kept:
        kept[key].step()  # takes its memory again
    else:
        kept[key] = Training(a, *key)
    set_up_s = time.perf_counter() - start
    return record(a, kept[key], [kept[key].rate(a.steps) for _ in range(rounds)], set_up_s)


def measure(a, kept, mode, batch, size, rounds):
    """One record; an error is a record too, so that the next measurement has its turn."""
    key = (mode, batch, size)
    try:
        try:
            return timed(a, kept, key, rounds)
        except torch.OutOfMemoryError:  # captured modes keep their memory: alone it may fit
            kept.clear()
        give_back(a)
        return timed(a, kept, key, rounds)
    except Exception as error:  # out of memory, a compiler that is missing
        kept.pop(key, None)
        return {"schema": 1, "kind": "torch", "mode": mode, "batch": batch, "size_px": size,
                "error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}


def answer(a, kept, line):
    """The record of one line."""
    words = line.split()
    if len(words) != 3 or words[0] not in MODES:
        return {"kind": "torch", "error": f"not MODE BATCH SIZE: {line.strip()}"}
    mode, batch, size = words[0], int(words[1]), int(words[2])
    for key in [k for k in kept if k[1:] != (batch, size)]:
        del kept[key]  # the next shape needs the memory
    give_back(a)
    result = measure(a, kept, mode, batch, size, 1)
    make_room(a, kept, (mode, batch, size))
    return result


def serve(a):
    """A line for a line: what libraries and compilers print is no answer, and goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kept = {}
    for line in sys.stdin:
        print(json.dumps(answer(a, kept, line)), file=answers, flush=True)


def main():
    a = arguments(__doc__)
    settings(a)
    if a.serve:
        serve(a)
        return
    kept = {}
    for mode in a.mode.split(","):
        print(json.dumps(measure(a, kept, mode, a.batch, a.size, a.rounds)), flush=True)
        kept.clear()


if __name__ == "__main__":
    main()
