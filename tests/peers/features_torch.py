# SPDX-License-Identifier: Apache-2.0
"""A classifier on features, trained by chex-train --features and by PyTorch from the same weights.

usage: python features_torch.py BUILD [DIR]

Draws a set of phantoms, writes features that know something of the labels as npy, trains some epochs of one
full batch with both, and evaluates the test split with chex-eval and scikit-learn. Prints the largest
differences and fails if one is beyond fp32 rounding. Runs the Python of doc/features.md. With DIR it writes there what
tests/cmd/0290-train-features.t compares: features.npy, features.csv, head.safetensors and expected.tsv.
"""

import contextlib
import csv
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from sklearn.metrics import roc_auc_score

FEATURES, EPOCHS, RATE, SEED = 16, 8, 0.2, 7


def read_set(folder):
    """Ids, splits and labels of all images, and the names of the findings."""
    ids, splits, labels = [], [], []
    for path in sorted(folder.glob("*/*.h5")):
        with h5py.File(path) as shard:
            names = [name.decode() if isinstance(name, bytes) else name for name in shard.attrs["classes"]]
            ids += [image.decode() for image in shard["image_id"][:]]
            splits += [path.parent.name] * len(shard["image_id"])
            labels.append(shard["label"][:])
    return ids, np.array(splits), np.concatenate(labels).astype(np.float32), names


def write_head(path, weight, bias):
    """A safetensors file; the features have no network of their own."""
    tensors = {"classifier.weight": weight, "classifier.bias": bias}
    header, at = {"__metadata__": {"model": f"features-{FEATURES}"}}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values()))


def train(features, labels, splits, weight, bias):
    """Losses of the steps, validation losses, and the probabilities of the test split, by PyTorch."""
    model = torch.nn.Linear(FEATURES, labels.shape[1])
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(weight))
        model.bias.copy_(torch.from_numpy(bias))
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    loss = torch.nn.BCEWithLogitsLoss()
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    steps, validation = [], []
    for _ in range(EPOCHS):
        optimiser.zero_grad()
        step = loss(model(x[splits == "train"]), y[splits == "train"])
        step.backward()
        optimiser.step()
        with torch.no_grad():
            steps.append(step.item())
            validation.append(loss(model(x[splits == "val"]), y[splits == "val"]).item())
    with torch.no_grad():
        return steps, validation, torch.sigmoid(model(x[splits == "test"])).numpy()


def train_chex(bin, work):
    """The same by chex-train and chex-eval."""
    batch = sum(",train" in line for line in open(work / "features.csv"))
    common = ["--data", work / "set", "--features", work / "features.npy", "--quiet"]
    run = lambda *words: subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    run(bin / "chex-train", *common, "--init", work / "head.safetensors", "--batch-size", batch, "--epochs",
        EPOCHS, "--lr", RATE, "--sched", "constant", "--output", work / "run")
    run(bin / "chex-eval", *common, "--checkpoint", work / "run/last.h5", "--output", work / "eval")
    lines = [json.loads(line) for line in open(work / "run/metrics.jsonl")]
    steps = [line["loss"] for line in lines if line["kind"] == "step"]
    validation = [line["val_loss"] for line in lines if line["kind"] == "epoch"]
    with open(work / "eval/predictions.csv") as file:
        table = {row["image_id"]: row for row in csv.DictReader(file)}
    return steps, validation, table, json.loads((work / "eval/auroc.json").read_text())


def run_page(bin, work):
    """The first two pieces of Python of doc/features.md, on the phantoms, with a network of random weights."""
    text = (Path(__file__).parents[2] / "doc/features.md").read_text()
    blocks, names = re.findall(r"```python\n(.*?)```", text, re.S), {}
    (work / "page").mkdir()
    with contextlib.chdir(work / "page"):
        os.symlink("../ph/images", "images")
        exec(blocks[0] + blocks[1].replace("weights=weights", "weights=None"), names)
        run = lambda *words: subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
        run(bin / "chex-train", "--data", "../set", "--features", "features.npy", "--epochs", 1, "--output", "run", "-q")
        labels = np.random.default_rng(1).integers(0, 2, (60, 2))
        ids = [path.name for path in names["paths"]]
        names["write_predictions"]("a.csv", ["A", "B"], ids, ids, labels, labels * 0.5 + 0.25)
        run(bin / "chex-eval", "score", "--predictions", "a.csv", "--output", "a", "-q")
        run(bin / "chex-eval", "card", "--evaluation", "a", "--output", "card.md", "-q")
        assert json.loads(Path("a/auroc.json").read_text())["mean"] == 1


def compare(bin, work):
    run = lambda *words: subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    run(bin / "chex-shard", "phantom", "--count", 60, "--size", 32, "--seed", 2, "--output", work / "ph", "-q")
    run(bin / "chex-shard", "--images", work / "ph/images", "--labels", work / "ph/labels.csv", "--size", 32,
        "--shards", 2, "--split", "patient", "--fractions", "0.6,0.2,0.2", "--output", work / "set", "-q")
    ids, splits, labels, names = read_set(work / "set")
    random = np.random.default_rng(SEED)
    mix = random.normal(size=(labels.shape[1], FEATURES))
    features = (labels @ mix + random.normal(size=(len(ids), FEATURES))).astype(np.float32)
    order = random.permutation(len(ids))  # rows are matched by id
    np.save(work / "features.npy", features[order])
    with open(work / "features.csv", "w") as file:
        file.write("image_id,split\n" + "".join(f"{ids[i]},{splits[i]}\n" for i in order))
    weight = random.normal(scale=0.1, size=(labels.shape[1], FEATURES)).astype(np.float32)
    bias = random.normal(scale=0.1, size=labels.shape[1]).astype(np.float32)
    write_head(work / "head.safetensors", weight, bias)

    steps, validation, probability = train(features, labels, splits, weight, bias)
    got_steps, got_validation, table, results = train_chex(bin, work)
    test_ids = [image for image, split in zip(ids, splits) if split == "test"]
    got = np.array([[float(table[image]["p_" + name]) for name in names] for image in test_ids])
    defined = [c for c in range(len(names)) if 0 < labels[splits == "test", c].sum() < len(test_ids)]
    aurocs = [roc_auc_score(labels[splits == "test", c], probability[:, c]) for c in defined]
    got_aurocs = [results["classes"][c]["auroc"] for c in defined]
    gaps = {"loss of a step": np.abs(np.subtract(steps, got_steps)).max(),
            "validation loss": np.abs(np.subtract(validation, got_validation)).max(),
            "probability": np.abs(probability - got).max(),
            "AUROC": np.abs(np.subtract(aurocs, got_aurocs)).max()}
    for name, gap in gaps.items():
        print(f"largest difference of {name}: {gap:.3g}")
    run_page(bin, work)
    if len(sys.argv) > 2:
        out = Path(sys.argv[2])
        for name in ("features.npy", "features.csv", "head.safetensors"):
            (out / name).write_bytes((work / name).read_bytes())
        with open(out / "expected.tsv", "w") as file:
            file.write(f"# epoch, loss of its step, validation loss; mean test AUROC. By PyTorch {torch.__version__} "
                       "(tests/peers/features_torch.py)\n")
            for epoch in range(EPOCHS):
                file.write(f"{epoch + 1}\t{steps[epoch]:.9g}\t{validation[epoch]:.9g}\n")
            file.write(f"auroc\t{np.mean(aurocs):.9g}\n")
    if max(gaps.values()) > 1e-6:
        sys.exit("beyond the rounding of fp32")


with tempfile.TemporaryDirectory() as folder:
    compare(Path(sys.argv[1]).resolve() / "bin", Path(folder))
