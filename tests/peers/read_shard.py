# SPDX-License-Identifier: Apache-2.0
"""Reads shards with h5py by doc/shard-format.md alone, and checks all that it promises.

    read_shard.py SET_FOLDER [--images FOLDER]

For each shard: types, shapes, ranges, ids, the place of the image block, checksums and the digest
of the manifest; for the set: counts, and that no patient is in two splits.
--images: source_digest against the image files. Prints a line a split: name, rows, shards, a sum
over the pixels. Exit status 1 with a line for each fault.
Needs h5py, and xxhash or libxxhash (else checksums and digests are left out, and that is said).
"""
import argparse
import ctypes
import json
import os
import struct
import sys

import h5py
import numpy as np

NUMBERS = {"image": "u1", "label": "i1", "view": "u1", "age_years": "<i2", "sex": "u1",
           "checksum": "<u8"}
faults = []


def expect(condition, where, what):
    if not condition:
        faults.append(f"{where}: {what}")


def find_xxh3():
    """XXH3-64 with a seed and XXH3-128, both of bytes; None where there is no such library."""
    try:
        import xxhash
        return xxhash.xxh3_64_intdigest, xxhash.xxh3_128_intdigest
    except ImportError:
        pass
    try:
        library = ctypes.CDLL("libxxhash.so.0")
    except OSError:
        return None, None

    class Pair(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    short, long = library.XXH3_64bits_withSeed, library.XXH3_128bits
    short.restype, short.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t,
                                                      ctypes.c_uint64]
    long.restype, long.argtypes = Pair, [ctypes.c_char_p, ctypes.c_size_t]

    def wide(data):
        pair = long(data, len(data))
        return pair.high << 64 | pair.low
    return (lambda data, seed=0: short(data, len(data), seed)), wide


XXH3, XXH128 = find_xxh3()


def words(dataset):
    return [bytes(v).rstrip(b"\0") for v in dataset[()]]


def digest(f, ids, patients):
    """As the manifest lists it."""
    parts = [f["checksum"][()].astype("<u8").tobytes(), f["label"][()].tobytes()]
    parts += [i + b"\0" for i in ids] + [p + b"\0" for p in patients]
    parts += [f["view"][()].tobytes(), f["age_years"][()].astype("<i2").tobytes(),
              f["sex"][()].tobytes()]
    if "study_id" in f:
        parts += [s + b"\0" for s in words(f["study_id"])]
    if "original_size" in f:
        parts.append(f["original_size"][()].astype("<u2").tobytes())
    value = 0
    for part in parts:
        value = XXH3(part, value)
    return value


def read_pixels(f, path, n, side):
    """Through HDF5 and straight from the file: the block is contiguous."""
    image = f["image"]
    pixels = image[()]
    expect(image.chunks is None and image.compression is None, path, "image has chunks or filters")
    place = image.id.get_offset()
    with open(path, "rb") as raw:
        raw.seek(place)
        expect(raw.read(n * side * side) == pixels.tobytes(), path, "the block is not the pixels")
    expect(n * side * side < 1 << 20 or place % 4096 == 0, path, f"image starts at byte {place}")
    return pixels


def check_record(path, image_from, image_to):
    """The checksum record at the end of the file."""
    with open(path, "rb") as f:
        data = f.read()
    magic, version, zero, a, b, end, value, own = struct.unpack("<8sIIQQQQQ", data[-56:])
    expect(magic == b"CHEXSEAL" and (version, zero) == (1, 0), path, "checksum record")
    expect((a, b, end) == (image_from, image_to, len(data) - 56), path, "checksum record: places")
    digest_of = 0
    for part in (data[:a], data[b:end]):
        for at in range(0, len(part), 1 << 20):
            digest_of = XXH3(part[at:at + (1 << 20)], digest_of)
    expect(value == digest_of and own == XXH3(data[-56:-8]), path, "checksum record: digest")


def text_of(value):
    """h5py gives texts of fixed length as bytes, those of variable length as str."""
    return value.decode() if isinstance(value, bytes) else value


def check_attributes(f, path, split, manifest):
    text = {name: text_of(f.attrs[name]) for name in ("format", "resize", "split", "source_digest",
                                                      "tool_version")}
    expect(text["format"] == "chexnet-shard", path, "format")
    expect(f.attrs["version"] == 1, path, "version")
    expect([text_of(c) for c in f.attrs["classes"]] == manifest["classes"], path, "classes")
    expect(f.attrs["size"] == manifest["size"], path, "size")
    expect(text["resize"] == manifest["resize"], path, "resize")
    expect(text["split"] == split, path, "split")
    expect(len(text["source_digest"]) == 32 and int(text["source_digest"], 16) >= 0, path,
           "source_digest")
    expect(text["tool_version"] == manifest["tool_version"], path, "tool_version")


def source_sum(files, ids):
    """The sum of the files' hashes, each half modulo 2^64."""
    high = low = 0
    for name in ids:
        with open(files[name.decode()], "rb") as f:
            value = XXH128(f.read())
        high, low = (high + (value >> 64)) % 2**64, (low + value % 2**64) % 2**64
    return f"{high:016x}{low:016x}"


def read_shard(path, split, entry, manifest, files):
    n, side, classes = entry["rows"], manifest["size"], len(manifest["classes"])
    with h5py.File(path) as f:
        check_attributes(f, path, split, manifest)
        shapes = {"image": (n, side, side), "label": (n, classes)}
        for name, kind in NUMBERS.items():
            expect(f[name].dtype == np.dtype(kind), path, f"{name} is {f[name].dtype}")
            expect(f[name].shape == shapes.get(name, (n,)), path, f"{name} is {f[name].shape}")
        for name in ("image_id", "patient_id"):
            expect(f[name].dtype.kind == "S" and f[name].shape == (n,), path, f"{name}")
        pixels = read_pixels(f, path, n, side)
        ids, patients, labels = words(f["image_id"]), words(f["patient_id"]), f["label"][()]
        expect(all(ids) and all(patients), path, "an empty id")
        expect(labels.min() >= -2 and labels.max() <= 1, path, "labels")
        expect(f["view"][()].max() <= 3, path, "view")
        expect(set(f["sex"][()]) <= {0, 70, 77}, path, "sex")
        expect(f["age_years"][()].min() >= -1, path, "age_years")
        if XXH3:
            place = f["image"].id.get_offset()
            check_record(path, place, place + n * side * side)
            for i in range(n):
                expect(XXH3(pixels[i].tobytes()) == f["checksum"][i], path, f"checksum of row {i}")
            expect(f"{digest(f, ids, patients):016x}" == entry["digest"], path, "digest")
        if files and XXH128:
            expect(source_sum(files, ids) == text_of(f.attrs["source_digest"]), path, "source_digest")
    return ids, patients, labels, int(pixels.sum(dtype=np.uint64))


def read_split(folder, split, about, manifest, files):
    ids, patients, labels, total = [], [], [], 0
    for entry in about["shards"]:
        path = os.path.join(folder, entry["file"])
        i, p, shard_labels, pixels = read_shard(path, split, entry, manifest, files)
        ids, patients, total = ids + i, patients + p, total + pixels
        labels.append(shard_labels)
    labels = np.concatenate(labels)
    sizes = [entry["rows"] for entry in about["shards"]]
    expect(len(ids) == about["rows"] == len(set(ids)), split, "rows, or an image twice")
    expect(len(set(patients)) == about["patients"], split, "patients")
    expect(max(sizes) - min(sizes) <= 1, split, "shards differ by more than a row")
    for c, name in enumerate(manifest["classes"]):
        expect((labels[:, c] == 1).sum() == about["positives"][name], split, f"positives {name}")
        expect((labels[:, c] == -1).sum() == about["uncertain"][name], split, f"uncertain {name}")
    print(f"{split} {len(ids)} {len(about['shards'])} {total}")
    return set(patients)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("set")
    parser.add_argument("--images")
    args = parser.parse_args()
    with open(os.path.join(args.set, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    expect(manifest["schema"] == "chexnet-manifest" and manifest["version"] == 1, "manifest",
           "schema or version")
    if XXH128:
        content = {key: value for key, value in manifest.items() if key != "digest"}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        expect(manifest["digest"] == f"{XXH128(text.encode()):032x}", "manifest", "digest")
    files = {}
    for folder, _, names in os.walk(args.images) if args.images else ():
        files.update((name, os.path.join(folder, name)) for name in names)
    seen = set()
    for split, about in manifest["splits"].items():
        patients = read_split(args.set, split, about, manifest, files)
        expect(not seen & patients, split, "patients of another split")
        seen |= patients
    with open(os.path.join(args.set, "rejected.csv"), encoding="utf-8") as f:
        expect(len(f.readlines()) - 1 == manifest["rejected"], "rejected.csv", "lines")
    if not XXH3:
        print("no xxhash here: checksums and digests were left out", file=sys.stderr)
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


main()
