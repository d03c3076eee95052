#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of ensemble.sh that need Python.

    ensemble.py noise LABELS.csv OUTPUT.csv SHARE    turns each label of the training over with this chance
    ensemble.py report SEEDS                         compares ensembles, in the folder of ensemble.sh
"""
import csv
import itertools
import json
import random
import struct
import sys

import numpy as np

NAMES = ("Atelectasis Cardiomegaly Effusion Infiltration Mass Nodule Pneumonia Pneumothorax Consolidation Edema "
         "Emphysema Fibrosis Pleural_Thickening Hernia").split()


def noise(path, output, share):
    draw = random.Random(1)
    with open(path, newline="") as file, open(output, "w", newline="") as to:
        rows = csv.reader(file)
        out = csv.writer(to)
        out.writerow(next(rows))
        for row in rows:
            found = set(row[1].split("|"))
            found = [name for name in NAMES if (name in found) != (draw.random() < share)]
            out.writerow([row[0], "|".join(found) or "No Finding", *row[2:]])


def table(folder, prefix="p_"):
    """image ids, and (images, findings) of the columns with this prefix."""
    with open(f"{folder}/predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = [key for key in rows[0] if key.startswith(prefix)]
    return [row["image_id"] for row in rows], np.array([[float(row[k]) for k in keys] for row in rows])


def spread(seeds):
    """The standard deviation between two ensembles of n, divided by that of members: mean of the findings."""
    n = seeds // 2
    members = np.stack([table(f"one/{s + 1}")[1] for s in range(seeds)])
    pair = table("first")[1] - table("second")[1]
    of_members = np.sqrt((members.std(axis=0, ddof=1) ** 2).mean(axis=0))
    def ratio(difference):
        return (np.sqrt((difference**2).mean(axis=0) / 2) / of_members).mean()

    splits = [ratio(members[list(half)].mean(axis=0) - np.delete(members, half, axis=0).mean(axis=0))
              for half in itertools.combinations(range(seeds), n) if 0 in half]
    print(f"spread of ensembles of {n} to that of networks: {ratio(pair):.3f} for these two, {np.mean(splits):.3f} +- "
          f"{np.std(splits, ddof=1):.3f} over all {len(splits)} ways to share out the seeds; 1/sqrt({n}) is {n ** -0.5:.3f}")
    for what, values in ("networks", members), ("ensembles", np.stack([table("first")[1], table("second")[1]])):
        print(f"mean coefficient of variation of {len(values)} {what}: "
              f"{(values.std(axis=0, ddof=1) / values.mean(axis=0)).mean():.3f}")


def network(path):
    import torch
    import torchvision

    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    about, state = header.pop("__metadata__"), {}
    for name, t in header.items():
        values = np.frombuffer(body[slice(*t["data_offsets"])], {"F32": "<f4", "I64": "<i8"}[t["dtype"]])
        state[name] = torch.from_numpy(values.reshape(t["shape"]).copy())
    found = torchvision.models.DenseNet(32, (2, 2, 2, 2), 64, num_classes=len(json.loads(about["classes"])))
    found.load_state_dict(state)
    return found.eval(), about


def peers(n):
    import onnxruntime
    import torch
    from PIL import Image

    networks, about = zip(*(network(f"member-{s + 1}.safetensors") for s in range(n)))
    stored, side = int(about[0]["stored_size"]), int(about[0]["image_size"])
    edge = round((stored - side) / 2)
    ids, _ = table("mean-logit")
    grey = np.stack([np.asarray(Image.open(f"ph/images/{name}").convert("L").resize((stored, stored), Image.BILINEAR))
                     for name in ids])[:, None, edge : edge + side, edge : edge + side]
    mean, std = (np.float32(json.loads(about[0][k])).reshape(3, 1, 1) for k in ("mean", "std"))
    with torch.inference_mode():
        pixels = torch.from_numpy((np.float32(grey) / 255 - mean) / std)
        logits = torch.stack([torch.cat([one(part) for part in pixels.split(64)]) for one in networks]).double()
    for kind, theirs in ("mean-logit", logits.mean(0).sigmoid()), ("mean-probability", logits.sigmoid().mean(0)):
        ours = table(kind)[1]
        session = onnxruntime.InferenceSession(f"{kind}.onnx")
        (onnx,) = session.run(["probabilities"], {"image": grey})
        far = np.abs(table(kind, "s_")[1] - logits.sigmoid().std(0).numpy()).max()
        print(f"{kind}, {len(ids)} images: predict differs by {np.abs(ours - theirs.numpy()).max():.1e} from PyTorch, "
              f"its spread by {far:.1e}, ONNX Runtime by {np.abs(ours - onnx).max():.1e} from predict")


if sys.argv[1] == "noise":
    noise(sys.argv[2], sys.argv[3], float(sys.argv[4]))
else:
    spread(int(sys.argv[2]))
    peers(int(sys.argv[2]) // 2)
