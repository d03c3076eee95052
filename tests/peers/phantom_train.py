# SPDX-License-Identifier: Apache-2.0
"""Can a DenseNet-121 learn the phantom set? Trains torchvision's on it and prints the test AUROCs.

    phantom_train.py DIR [--epochs 5] [--lr 1e-3] [--batch 16]

DIR is what `chex-shard phantom` wrote. Patients are split 70/10/20; no augmentation.
"""
import argparse
import csv
import hashlib
import os
import time

import numpy as np
import torch
import torchvision
from PIL import Image
from sklearn.metrics import roc_auc_score

CLASSES = ("Atelectasis Cardiomegaly Effusion Infiltration Mass Nodule Pneumonia Pneumothorax "
           "Consolidation Edema Emphysema Fibrosis Pleural_Thickening Hernia").split()


def load(folder):
    with open(os.path.join(folder, "labels.csv"), newline="") as f:
        rows = list(csv.reader(f))[1:]
    x = np.stack([np.asarray(Image.open(os.path.join(folder, "images", r[0]))) for r in rows])
    y = np.array([[float(c in r[1].split("|")) for c in CLASSES] for r in rows], np.float32)
    place = np.array([int(hashlib.sha256(r[3].encode()).hexdigest()[:8], 16) / 2**32 for r in rows])
    return x, y, place


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    torch.manual_seed(a.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y, place = load(a.dir)
    x = torch.from_numpy(x).float().div(255)[:, None].repeat(1, 3, 1, 1)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (x - mean[:, None, None]) / std[:, None, None]
    y = torch.from_numpy(y)
    train, test = np.flatnonzero(place < 0.7), np.flatnonzero(place >= 0.8)
    net = torchvision.models.densenet121(num_classes=len(CLASSES)).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=a.lr)
    loss_fn = torch.nn.BCEWithLogitsLoss()
    for epoch in range(a.epochs):
        begin, total = time.time(), 0.0
        net.train()
        order = np.random.default_rng(epoch).permutation(train)
        for i in range(0, len(order) - a.batch + 1, a.batch):
            rows = order[i:i + a.batch]
            loss = loss_fn(net(x[rows].to(device)), y[rows].to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        net.eval()
        with torch.no_grad():
            scores = torch.cat([net(x[test[i:i + 64]].to(device)).cpu()
                                for i in range(0, len(test), 64)])
        auroc = [roc_auc_score(y[test, c], scores[:, c]) for c in range(len(CLASSES))]
        print(f"epoch {epoch + 1}: train {len(train)}, loss {total / (len(order) // a.batch):.4f}, "
              f"test {len(test)}, mean AUROC {np.mean(auroc):.4f}, {time.time() - begin:.0f} s",
              flush=True)
    for c, v in zip(CLASSES, auroc):
        print(f"  {c:20s} {v:.4f}")


if __name__ == "__main__":
    main()
