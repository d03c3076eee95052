# SPDX-License-Identifier: Apache-2.0
"""Reads and checks a checkpoint by the rules of doc/checkpoint-format.md alone.

    read_checkpoint.py FILE                  prints what the file holds, or the first rule it breaks
    read_checkpoint.py FILE digest           also prints the digest of the state
    read_checkpoint.py FILE copy COPY        also writes its content to a new checkpoint
    read_checkpoint.py FILE order SET ROWS   also compares the order of the samples of a run

SET is the set of shards. ROWS is a file of tests/tools/dump_batches, the batches of one logical
rank from its first epoch on; the labels of each row of SET must differ. Needs h5py and xxhash.
"""
import json
import os
import struct
import sys

import h5py
import numpy as np
import xxhash

from checksum_record import append, record_of
from shard_digests import philox

ATTRIBUTES = {"format": str, "version": int, "model": str, "classes": list, "image_size": int,
              "meta": str, "meta_xxh3": int}


class Broken(Exception):
    """The file breaks a rule of the page."""


def need(held, what):
    if not held:
        raise Broken(what)


def batch_norm(channels):
    return [channels]


def densenet(g, *layers):
    """Layers in order: name and shape of the weight; one dimension is a batch norm."""
    k = 2 * g
    yield "features.conv0", [k, 3, 7, 7]
    yield "features.norm0", batch_norm(k)
    for b in range(4):
        for i in range(layers[b]):
            layer = f"features.denseblock{b + 1}.denselayer{i + 1}"
            yield layer + ".norm1", batch_norm(k)
            yield layer + ".conv1", [4 * g, k, 1, 1]
            yield layer + ".norm2", batch_norm(4 * g)
            yield layer + ".conv2", [g, 4 * g, 3, 3]
            k += g
        if b < 3:
            yield f"features.transition{b + 1}.norm", batch_norm(k)
            yield f"features.transition{b + 1}.conv", [k // 2, k, 1, 1]
            k //= 2
    yield "features.norm5", batch_norm(k)
    yield "classifier", k


def resnet(m, *blocks):
    k = 64
    yield "conv1", [k, 3, 7, 7]
    yield "bn1", batch_norm(k)
    for s in range(4):
        w = 64 << s
        for b in range(blocks[s]):
            block, out = f"layer{s + 1}.{b}", m * w
            yield block + ".conv1", [w, k, 3, 3] if m == 1 else [w, k, 1, 1]
            yield block + ".bn1", batch_norm(w)
            yield block + ".conv2", [w, w, 3, 3]
            yield block + ".bn2", batch_norm(w)
            if m > 1:
                yield block + ".conv3", [out, w, 1, 1]
                yield block + ".bn3", batch_norm(out)
            if b == 0 and k != out:
                yield block + ".downsample.0", [out, k, 1, 1]
                yield block + ".downsample.1", batch_norm(out)
            k = out
    yield "fc", k


# densenet_tiny and densenet_tiny48 are networks of tests.
NETWORKS = {"densenet121": (densenet, 32, 6, 12, 24, 16), "densenet161": (densenet, 48, 6, 12, 36, 24),
            "densenet169": (densenet, 32, 6, 12, 32, 32), "densenet201": (densenet, 32, 6, 12, 48, 32),
            "resnet18": (resnet, 1, 2, 2, 2, 2), "resnet34": (resnet, 1, 3, 4, 6, 3),
            "resnet50": (resnet, 4, 3, 4, 6, 3), "resnet101": (resnet, 4, 3, 4, 23, 3),
            "resnet152": (resnet, 4, 3, 8, 36, 3), "densenet_tiny": (densenet, 32, 2, 2, 2, 2),
            "densenet_tiny48": (densenet, 48, 2, 2, 2, 2)}


def parameters(model, classes):
    """(name, shape) of each parameter, in the order of the flat vector."""
    trained, running = [], []
    for name, shape in NETWORKS[model][0](*NETWORKS[model][1:]):
        if isinstance(shape, int):
            trained += [(name + ".weight", [classes, shape]), (name + ".bias", [classes])]
        elif len(shape) == 1:
            trained += [(name + ".weight", shape), (name + ".bias", shape)]
            running += [(name + ".running_mean", shape), (name + ".running_var", shape)]
        else:
            trained.append((name + ".weight", shape))
    return trained + running


def check_record(path):
    with open(path, "rb") as f:
        data = f.read()
    need(data[-56:-48] == b"CHEXSEAL", "no checksum record")
    need(data[-56:] == record_of(data[:-56]), "the checksum record does not match")


def text_of(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def attributes(file):
    found = {}
    for name, kind in ATTRIBUTES.items():
        need(name in file.attrs, f"no attribute {name}")
        value = file.attrs[name]
        if kind is list:
            need(value.ndim == 1, f"{name} has one dimension")
            found[name] = [text_of(v) for v in value]
        else:
            found[name] = text_of(value) if kind is str else int(value)
    need(found["format"] == "chexnet-checkpoint", "another format")
    need(found["version"] == 1, "another version")
    need(all(found["classes"]), "a class without a name")
    need(1 <= found["image_size"] <= 65536, "image_size is out of range")
    need(xxhash.xxh3_64_intdigest(found["meta"].encode()) == found["meta_xxh3"],
         "meta does not match meta_xxh3")
    return found


def state(file, group, params):
    """The datasets of a group by their names."""
    need(group in file, f"no group /{group}")
    values = {}
    for name, shape in params:
        need(name in file[group], f"no dataset /{group}/{name}")
        data = file[group][name]
        need(list(data.shape) == shape, f"/{group}/{name} has shape {data.shape}, not {shape}")
        need(data.dtype == np.dtype("<f4"), f"/{group}/{name} is not f32")
        values[name] = data[()]
        need(xxhash.xxh3_64_intdigest(values[name].tobytes()) == int(data.attrs["xxh3"]),
             f"/{group}/{name} does not match its xxh3")
    return values


def check_meta(meta, groups):
    need(meta["schema"] == 1, "another schema of meta")
    for key, wanted in (("mean", (0.485, 0.456, 0.406)), ("std", (0.229, 0.224, 0.225))):
        need(np.allclose(meta[key], wanted, atol=1e-6), f"pixels are normalised by another {key}")
    identity, at, plateau = meta["identity"], meta["position"], meta["plateau"]
    need(identity["opt"] in ("adam", "adamw", "sgd", "lars"), "another optimiser")
    need(("moment2" in groups) == identity["opt"].startswith("adam"), "/moment2 is of Adam alone")
    steps = identity["rows"] // identity["logical_ranks"] // identity["batch_size"]
    need(at["step"] == at["epoch"] * steps + at["step_in_epoch"], "step is not that of the position")
    need(0 <= at["step_in_epoch"] <= steps and at["best_step"] <= at["step"], "steps out of range")
    need(isinstance(at["validation_due"], bool) and isinstance(at["has_best"], bool), "booleans")
    need(plateau["scale"] > 0 and plateau["bad_epochs"] >= 0, "another plateau")
    need(set(meta["options"]) == set(meta["origins"]), "each option has an origin")
    need(set(meta["origins"].values()) <= {"command line", "environment", "file", "run", "default"},
         "another origin")
    need(all(isinstance(v, str) for v in meta["options"].values()), "options are texts")


def read(path):
    """(attributes, groups)"""
    check_record(path)
    with h5py.File(path, "r") as file:
        head = attributes(file)
        params = parameters(head["model"], len(head["classes"]))
        names = [g for g in ("params", "moment1", "moment2", "ema") if g == "params" or g in file]
        groups = {g: state(file, g, params) for g in names}
        need(all(set(file[g]) == {name for name, _ in params} for g in names), "other datasets")
    need(all(np.isfinite(v).all() for v in groups["params"].values()), "a value is not finite")
    need(not any(groups[g][n].any() for g in names if g.startswith("moment") for n in groups[g]
                 if ".running_" in n),
         "a moment of a running statistic is not zero")
    check_meta(json.loads(head["meta"]), groups)
    return head, groups


def state_digest(groups, params):
    """The digest of the record of checkpoints: flat vectors, one after the other."""
    digest = xxhash.xxh3_128()
    for values in groups.values():
        for name, _ in params:
            digest.update(values[name].tobytes())
    return digest.hexdigest()


def write(path, head, groups):
    """Writes a checkpoint with h5py, with what the page demands and nothing else."""
    def fixed(text):
        return np.array(text.encode(), dtype=h5py.string_dtype("utf-8", len(text.encode()) + 1))

    with h5py.File(path, "w", libver=("earliest", "v108"), track_order=False) as file:
        for name in ("format", "model", "meta"):
            file.attrs[name] = fixed(head[name])
        width = max(len(c.encode()) for c in head["classes"]) + 1
        file.attrs.create("classes", [c.encode() for c in head["classes"]],
                          dtype=h5py.string_dtype("utf-8", width))
        for name, kind in (("version", "<i8"), ("image_size", "<i8"), ("meta_xxh3", "<u8")):
            file.attrs.create(name, head[name], dtype=kind)
        for group, values in groups.items():
            for name, value in values.items():
                data = file.create_dataset(f"{group}/{name}", data=value, dtype="<f4")
                data.attrs.create("xxh3", xxhash.xxh3_64_intdigest(value.tobytes()), dtype="<u8")
    append(path)


def epoch_order(identity, v, epoch):
    """Rows of logical rank v in an epoch, as many as whole batches need."""
    rows, ranks = identity["rows"], identity["logical_ranks"]
    local = identity["order"] == "local"
    first, end = (v * rows // ranks, (v + 1) * rows // ranks) if local else (0, rows)
    a, n, u = list(range(first, end)), end - first, v + 1 if local else 0
    for k in range(n - 1):
        w = philox(identity["seed"], (k // 4, u, epoch % 2**32, 1))[k % 4]
        i, j = n - 1 - k, w * (n - k) >> 32
        a[i], a[j] = a[j], a[i]
    skip, batch = 0 if local else v * (rows // ranks), identity["batch_size"]
    return a[skip:skip + rows // ranks // batch * batch]


def compare_order(meta, folder, dumped):
    """The rows of dump_batches are those of logical rank 0, in order."""
    with open(os.path.join(folder, "manifest.json")) as f:
        shards = json.load(f)["splits"][meta["split"]]["shards"]
    labels = []
    for entry in shards:
        with h5py.File(os.path.join(folder, entry["file"]), "r") as shard:
            labels += [row.tobytes() for row in shard["label"][:]]
    need(len(set(labels)) == len(labels) == meta["identity"]["rows"], "the labels of rows differ")
    with open(dumped, "rb") as f:
        steps, batch, size, classes = struct.unpack("<4i", f.read(16))
        found = []
        for _ in range(steps):
            f.seek(4 * batch * size * size, os.SEEK_CUR)
            found += [labels.index(f.read(classes)) for _ in range(batch)]
    wanted, epoch = [], 0
    while len(wanted) < len(found):
        wanted, epoch = wanted + epoch_order(meta["identity"], 0, epoch), epoch + 1
    need(found == wanted[:len(found)], "the order of the samples is another")
    return f"{len(found)} samples of {epoch} epochs are in the order of the page"


def main(path, action=None, *rest):
    try:
        head, groups = read(path)
        meta = json.loads(head["meta"])
        print(f"{head['model']}, {len(head['classes'])} classes, {head['image_size']} px,",
              f"step {meta['position']['step']}, {meta['identity']['opt']}, {' '.join(groups)},",
              f"{len(groups['params'])} datasets each")
        if action == "digest":
            print(state_digest(groups, parameters(head["model"], len(head["classes"]))))
        if action == "copy":
            write(rest[0], head, groups)
        elif action == "order":
            print(compare_order(meta, *rest))
    except Broken as fault:
        print(f"{path}: {fault}")
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) - 2 not in (0, 1, 2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
