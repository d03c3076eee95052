#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks an ONNX model of chex-eval export and runs it over the test images of shards.

usage: run_onnx.py FILE.onnx SHARDS OUTPUT.csv
OUTPUT.csv has image_id and a probability for each output. Needs onnx, onnxruntime, h5py.
"""
import csv
import glob
import sys

import h5py
import onnx
import onnxruntime

model = onnx.load(sys.argv[1])
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(sys.argv[1])
side = session.get_inputs()[0].shape[-1]
with open(sys.argv[3], "w", newline="") as output:
    for path in sorted(glob.glob(f"{sys.argv[2]}/test/*.h5")):
        with h5py.File(path) as file:
            pixels, names = file["image"][:], file["image_id"][:]
        edge = round((pixels.shape[1] - side) / 2)
        crop = pixels[:, None, edge : edge + side, edge : edge + side]
        (probabilities,) = session.run(["probabilities"], {"image": crop})
        csv.writer(output).writerows(
            [name.decode(), *row] for name, row in zip(names, probabilities.tolist())
        )
