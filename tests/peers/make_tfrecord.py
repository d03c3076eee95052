#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the small TFRecord files of tests/data/tfrecord with TensorFlow's own writer.

usage: make_tfrecord.py OUTPUT

dell.tfrecord  Dell's form: int64 labels; three images
float.tfrecord  the same three images with the labels as floats
images/, list.txt  what both hold: the files, and the labels as a CheXNet list
"""
import io
import pathlib
import sys

import numpy as np
import tensorflow as tf
from PIL import Image

CHEXNET = ("Atelectasis Cardiomegaly Effusion Infiltration Mass Nodule Pneumonia Pneumothorax "
           "Consolidation Edema Emphysema Fibrosis Pleural_Thickening Hernia").split()
DELL = ("Cardiomegaly Emphysema Effusion Hernia Nodule Pneumothorax Atelectasis Pleural_Thickening "
        "Mass Edema Consolidation Infiltration Fibrosis Pneumonia").split()
IMAGES = {"00000007_000.png": {"Hernia"}, "00000007_001.png": set(),
          "00000009_000.png": {"Atelectasis", "Pneumonia"}}


def png(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6), np.uint8).repeat(4, 0).repeat(4, 1)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "png")
    return data.getvalue()


def example(name, image, labels, kind):
    if kind == "int64":
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=labels))
    else:
        label = tf.train.Feature(float_list=tf.train.FloatList(value=labels))
    data = lambda b: tf.train.Feature(bytes_list=tf.train.BytesList(value=[b]))
    feature = {"image/encoded": data(image), "image/label": label, "image/filename": data(name.encode())}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def main():
    out = pathlib.Path(sys.argv[1])
    (out / "images").mkdir(parents=True, exist_ok=True)
    for kind, file in (("int64", "dell.tfrecord"), ("float", "float.tfrecord")):
        with tf.io.TFRecordWriter(str(out / file)) as writer:
            for seed, (name, findings) in enumerate(IMAGES.items()):
                labels = [int(c in findings) for c in DELL]
                writer.write(example(name, png(seed), labels, kind))
    lines = []
    for seed, (name, findings) in enumerate(IMAGES.items()):
        (out / "images" / name).write_bytes(png(seed))
        lines.append(" ".join([name] + [str(int(c in findings)) for c in CHEXNET]) + "\n")
    (out / "list.txt").write_text("".join(lines))


main()
