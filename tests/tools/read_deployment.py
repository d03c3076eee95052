# SPDX-License-Identifier: Apache-2.0
"""Reads a deployment file by doc/deployment.md alone and decides on a table of predictions.

    read_deployment.py FILE.safetensors                   prints what the file holds
    read_deployment.py FILE.safetensors PREDICTIONS.csv   prints tp, fp, tn and fn of each class

Needs NumPy and xxhash."""
import csv
import json
import math
import struct
import sys

import numpy as np
import xxhash


def read(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    body = data[8 + length:]
    metadata = header.pop("__metadata__")
    return metadata, header, body


def tensor(header, body, name):
    begin, end = header[name]["data_offsets"]
    return np.frombuffer(body[begin:end], "<f4").reshape(header[name]["shape"])


def digest(header, body):
    """Of all F32 tensors that are no statistics, in the order of the file; each is seeded with the
    digest of those before it."""
    seed = 0
    for name in sorted(header, key=lambda n: header[n]["data_offsets"]):
        if header[name]["dtype"] == "F32" and not name.startswith("chexnet."):
            begin, end = header[name]["data_offsets"]
            seed = xxhash.xxh3_64_intdigest(body[begin:end], seed=seed)
    return f"{seed:016x}"


def calibrate(p, fit):
    if fit["slope"] == 1 and fit["intercept"] == 0 or p in (0, 1):
        return p
    x = math.log(p) - math.log1p(-p)
    return 1 / (1 + math.exp(-(fit["slope"] * x + fit["intercept"])))


def decide(deployment, rows, name):
    threshold, fit = deployment["thresholds"][name], deployment["calibration"][name]
    counts = {"tp": 0, "fp": 0, "tn": 0, "fn": 0}
    for row in rows:
        if row["y_" + name] not in ("0", "1") or threshold is None:
            continue
        called = calibrate(float(row["p_" + name]), fit) >= threshold
        right = called == (row["y_" + name] == "1")
        counts[("t" if right else "f") + ("p" if called else "n")] += 1
    return counts


def main(path, predictions=None):
    metadata, header, body = read(path)
    deployment = json.loads(metadata["deployment"])
    classes = json.loads(metadata["classes"])
    if deployment["schema"] != 1 or list(deployment["thresholds"]) != classes:
        sys.exit("not a deployment of schema 1 for the classes of the file")
    if deployment["parameters_digest"] != digest(header, body):
        sys.exit(f"digest {digest(header, body)}, the file says {deployment['parameters_digest']}")
    if predictions:
        rows = list(csv.DictReader(open(predictions)))
        for name in classes:
            print(name, *decide(deployment, rows, name).values())
        return
    print("rule", deployment["rule"], "recalibration", deployment["recalibration"])
    print("views", *(f"{k}={v}" for k, v in deployment["views"].items()))
    if deployment["features"]:
        mean = tensor(header, body, "chexnet.features.mean")
        packed = tensor(header, body, "chexnet.features.factor")
        factor = np.zeros((len(mean), len(mean)))
        factor[np.tril_indices(len(mean))] = packed
        sound = np.isfinite(factor).all() and (np.diag(factor) > 0).all()
        print("features", len(mean), "of", deployment["features"]["rows"], "images",
              "sound" if sound else "damaged")


if __name__ == "__main__":
    main(*sys.argv[1:])
