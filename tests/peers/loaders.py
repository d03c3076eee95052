# SPDX-License-Identifier: Apache-2.0
"""The peers of chex-train --bench-input: torch's DataLoader over h5py, and tf.data as in the article.

Each gives batches of one grey channel in float [0, 1], cropped at random (scale 0.5 to 1, ratio 3/4
to 4/3), resized to --image-size and flipped, from the rows of shards that chex-shard made (torch), or
from TFRecords of the same rows (tf: --records raw holds the pixels, png holds PNG files as the
article's did). tf-old and tf-new are the article's two pipelines with today's names of the calls.
Prints one JSON object with images_per_s of each epoch, its median and best.
"""
import argparse
import glob
import json
import os
import statistics
import time

import h5py
import numpy as np


def shard_files(data, split):
    files = sorted(glob.glob(os.path.join(data, split, "*.h5")))
    if not files:
        raise SystemExit(f"no shards in {data}/{split}")
    return files


def run(name, batches_of_epoch, a, extra):
    """Counts images of a.epochs epochs; the first one warms up."""
    rates = []
    for epoch in range(a.epochs + 1):
        start, images = time.perf_counter(), 0
        for pixels, _ in batches_of_epoch():
            images += len(pixels)
        if epoch:
            rates.append(images / (time.perf_counter() - start))
    print(json.dumps({"loader": name, "images_per_s_median": statistics.median(rates),
                      "images_per_s_best": max(rates), "images_per_s": rates, "batch": a.batch,
                      "workers": a.workers, "antialias": a.antialias, **extra}))


def torch_loader(a):
    import torch
    import torchvision
    from torchvision.transforms import v2

    class Rows(torch.utils.data.Dataset):
        def __init__(self, files):
            self.files, self.open = files, None
            self.ends = np.cumsum([h5py.File(f)["image"].shape[0] for f in files])
            self.transform = v2.Compose([
                v2.RandomResizedCrop(a.image_size, scale=(0.5, 1), antialias=a.antialias),
                v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])

        def __len__(self):
            return int(self.ends[-1])

        def __getitem__(self, i):
            if self.open is None:  # in the worker: HDF5 handles do not survive a fork
                self.open = [(h["image"], h["label"]) for h in map(h5py.File, self.files)]
            s = int(np.searchsorted(self.ends, i, "right"))
            row = i - (int(self.ends[s - 1]) if s else 0)
            image, label = self.open[s]
            return self.transform(torch.from_numpy(image[row][None])), label[row]

    loader = torch.utils.data.DataLoader(
        Rows(shard_files(a.data, a.split)), batch_size=a.batch, shuffle=True, drop_last=True,
        num_workers=a.workers, persistent_workers=a.workers > 0, prefetch_factor=a.prefetch)
    run("torch", lambda: loader, a,
        {"torch": torch.__version__, "torchvision": torchvision.__version__})


def records(a, tf):
    """TFRecords of the shards' rows beside them, made once."""
    made = []
    for path in shard_files(a.data, a.split):
        out = os.path.join(a.scratch, os.path.basename(path) + f".{a.records}.tfrecord")
        made.append(out)
        if os.path.exists(out):
            continue
        with h5py.File(path) as f, tf.io.TFRecordWriter(out + ".tmp") as w:
            for pixels, label in zip(f["image"], f["label"]):
                body = pixels.tobytes() if a.records == "raw" else \
                    tf.io.encode_png(pixels[:, :, None]).numpy()
                w.write(tf.train.Example(features=tf.train.Features(feature={
                    "image/encoded": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[body])),
                    "image/label": tf.train.Feature(
                        int64_list=tf.train.Int64List(value=[int(x) for x in label])),
                })).SerializeToString())
        os.rename(out + ".tmp", out)
    return made


def tf_loader(a, new):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(a.workers)
    tf.config.threading.set_inter_op_parallelism_threads(a.workers)
    files = records(a, tf)
    with h5py.File(shard_files(a.data, a.split)[0]) as f:
        stored, classes = f["image"].shape[1], f["label"].shape[1]
    keys = {"image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/label": tf.io.FixedLenFeature([classes], tf.int64)}

    def parse(record):
        e = tf.io.parse_single_example(record, keys)
        if a.records == "raw":
            image = tf.reshape(tf.io.decode_raw(e["image/encoded"], tf.uint8), [stored, stored, 1])
        else:
            image = tf.io.decode_png(e["image/encoded"], 1)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            [stored, stored, 1], tf.zeros([1, 0, 4]), area_range=(0.5, 1),
            aspect_ratio_range=(3 / 4, 4 / 3), use_image_if_no_bounding_boxes=True)
        image = tf.image.resize(tf.slice(image, begin, size), [a.image_size] * 2,
                                antialias=a.antialias)
        return tf.image.random_flip_left_right(image) / 255, e["image/label"]

    auto = tf.data.AUTOTUNE
    if new:
        d = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files))
        d = d.interleave(tf.data.TFRecordDataset, cycle_length=10, num_parallel_calls=auto)
        d = d.prefetch(a.batch).shuffle(10000).map(parse, auto, deterministic=False)
        d = d.batch(a.batch, drop_remainder=True).prefetch(auto)
    else:
        d = tf.data.TFRecordDataset(files).map(parse, 10).shard(1, 0).shuffle(500)
        d = d.batch(a.batch, drop_remainder=True).prefetch(a.batch)
    options = tf.data.Options()
    options.threading.private_threadpool_size = a.workers
    d = d.with_options(options)
    run("tf-new" if new else "tf-old", lambda: d, a,
        {"tensorflow": tf.__version__, "records": a.records})


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("loader", choices=["torch", "tf-old", "tf-new"])
    p.add_argument("--data", required=True, help="folder that chex-shard made")
    p.add_argument("--split", default="train")
    p.add_argument("--scratch", default=".", help="folder for the TFRecords")
    p.add_argument("--records", choices=["raw", "png"], default="raw")
    p.add_argument("--image-size", type=int, default=224)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--prefetch", type=int, default=4)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--antialias", action="store_true")
    a = p.parse_args()
    torch_loader(a) if a.loader == "torch" else tf_loader(a, a.loader == "tf-new")


if __name__ == "__main__":
    main()
