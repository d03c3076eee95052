#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recipe of chex-train in PyTorch, on the same shards: for comparing results, not speed.

Reads the v1 shards with h5py, trains torchvision's network from scratch with the same crops, flips,
optimiser, loss and number of steps, and prints the mean test AUROC of each seed as one JSON object.
Needs torch, torchvision, h5py, numpy and scikit-learn.
"""
import argparse
import glob
import json

import h5py
import numpy as np
import torch
import torchvision
from sklearn.metrics import roc_auc_score

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


def read(data, split):
    images, labels = [], []
    for path in sorted(glob.glob(f"{data}/{split}/*.h5")):
        with h5py.File(path, "r") as f:
            images.append(f["image"][:])
            labels.append(f["label"][:])
    return torch.from_numpy(np.concatenate(images)), torch.from_numpy(np.concatenate(labels)).float()


def normalise(batch):
    return (batch.expand(-1, 3, -1, -1) - MEAN) / STD


def crops(batch, size):
    transform = torchvision.transforms.RandomResizedCrop(
        size, scale=(0.5, 1.0), ratio=(3 / 4, 4 / 3), antialias=False)
    out = [transform(x) for x in batch]
    return torch.stack([x.flip(-1) if torch.rand(()) < 0.5 else x for x in out])


def train(args, seed):
    torch.manual_seed(seed)
    images, labels = read(args.data, "train")
    net = getattr(torchvision.models, args.model)(weights=None, num_classes=labels.shape[1])
    optimiser = torch.optim.Adam(net.parameters(), lr=args.lr)
    loss_of = torch.nn.BCEWithLogitsLoss()
    steps = len(images) // args.batch_size
    for epoch in range(args.epochs):
        net.train()
        order, total = torch.randperm(len(images)), 0.0
        for step in range(steps):
            rows = order[step * args.batch_size:(step + 1) * args.batch_size]
            x = crops(images[rows].unsqueeze(1).float() / 255, args.image_size)
            optimiser.zero_grad()
            loss = loss_of(net(normalise(x)), labels[rows])
            loss.backward()
            optimiser.step()
            total += loss.item()
        print(f"# seed {seed} epoch {epoch + 1}: loss {total / steps:.4f}", flush=True)
    return net


@torch.no_grad()
def score(args, net):
    images, labels = read(args.data, "test")
    net.eval()
    logits = torch.cat([net(normalise(images[i:i + 64].unsqueeze(1).float() / 255))
                        for i in range(0, len(images), 64)])
    defined = [c for c in range(labels.shape[1]) if 0 < labels[:, c].sum() < len(labels)]
    return float(np.mean([roc_auc_score(labels[:, c], logits[:, c]) for c in defined]))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", required=True)
    p.add_argument("--model", default="densenet121")
    p.add_argument("--image-size", type=int, default=64)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seeds", default="0,1,2")
    args = p.parse_args()
    seeds = [int(s) for s in args.seeds.split(",")]
    scores = [score(args, train(args, seed)) for seed in seeds]
    print(json.dumps({"torch": torch.__version__, "seeds": seeds, "mean_auroc": scores}))


if __name__ == "__main__":
    main()
