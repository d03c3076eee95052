# SPDX-License-Identifier: Apache-2.0
"""What users write without chex-shard: Pillow in a pool of processes, rows into one HDF5 file.

Reads the images of a CheXNet list, resizes them with Pillow's BILINEAR to --size and writes datasets
image, label and image_id. Prints one JSON object: images, seconds (without imports and the start of
the pool, which favours it), images_per_s, versions.
"""
import argparse
import json
import multiprocessing as mp
import os
import time

import h5py
import numpy as np
import PIL
from PIL import Image


def load(job):
    path, size = job
    with Image.open(path) as image:
        return np.asarray(image.convert("L").resize((size, size), Image.BILINEAR))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--images", required=True)
    p.add_argument("--labels", required=True, help="CheXNet list: name and 14 zeros or ones a line")
    p.add_argument("--output", required=True, help="HDF5 file")
    p.add_argument("--size", type=int, default=256)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--chunk", type=int, default=8, help="images a task of the pool")
    a = p.parse_args()
    rows = [line.split() for line in open(a.labels) if line.strip()]
    jobs = [(os.path.join(a.images, r[0]), a.size) for r in rows]
    labels = np.array([[int(x) for x in r[1:]] for r in rows], np.int8)
    with mp.Pool(a.processes) as pool:
        pool.map(abs, range(64 * a.processes), 1)  # every process is up
        start = time.perf_counter()
        with h5py.File(a.output, "w") as f:
            image = f.create_dataset("image", (len(rows), a.size, a.size), np.uint8)
            for i, row in enumerate(pool.imap(load, jobs, a.chunk)):
                image[i] = row
            f["label"] = labels
            f["image_id"] = np.array([r[0] for r in rows], "S64")
        seconds = time.perf_counter() - start
    print(json.dumps({"images": len(rows), "seconds": seconds,
                      "images_per_s": len(rows) / seconds, "processes": a.processes,
                      "pillow": PIL.__version__, "h5py": h5py.__version__}))


if __name__ == "__main__":
    main()
