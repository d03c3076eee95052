# SPDX-License-Identifier: Apache-2.0
"""Computes every digest of a set of shards, and the order of its rows, from the rules of
doc/shard-format.md alone.

    shard_digests.py SET LABELS IMAGES     prints a line for each difference; status 1 then

SET is the folder of the set, LABELS its label file, IMAGES the folder in which each image is a file
at the path that its id is. Needs h5py and xxhash.
"""
import json
import os
import sys

import h5py
import xxhash

MASK = 2**64 - 1
faults = []


def compare(what, ours, theirs):
    if ours != theirs:
        faults.append(f"{what}: {ours}, the set says {theirs}")


def file_sum(paths):
    """The sum of XXH3-128 of the files, in each half modulo 2^64."""
    high = low = 0
    for path in paths:
        with open(path, "rb") as f:
            digest = xxhash.xxh3_128_intdigest(f.read())
        high, low = (high + (digest >> 64)) & MASK, (low + digest) & MASK
    return high, low


def hex_of(pair):
    return f"{pair[0]:016x}{pair[1]:016x}"


def chained(parts):
    h = 0
    for part in parts:
        h = xxhash.xxh3_64_intdigest(part, seed=h)
    return f"{h:016x}"


def shard_parts(shard, ids, patients):
    yield shard["checksum"][:].astype("<u8").tobytes()
    yield shard["label"][:].tobytes()
    yield from (i + b"\0" for i in ids)
    yield from (p + b"\0" for p in patients)
    yield shard["view"][:].tobytes()
    yield shard["age_years"][:].astype("<i2").tobytes()
    yield shard["sex"][:].tobytes()
    if "study_id" in shard:
        yield from (s + b"\0" for s in shard["study_id"][:])
    if "original_size" in shard:
        yield shard["original_size"][:].astype("<u2").tobytes()


def philox(seed, counter):
    """One block of Philox4x32-10."""
    key, c = [seed & 0xFFFFFFFF, seed >> 32], list(counter)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ key[0], p1 & 0xFFFFFFFF,
             (p0 >> 32) ^ c[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def dealt(ids, split, seed, shards):
    """The ids of each shard, in order, of a split without left-out images."""
    def key(image_id):
        item = xxhash.xxh3_64_intdigest(image_id)
        number = ["train", "val", "test", "all"].index(split)
        v = philox(seed, (number, item & 0xFFFFFFFF, item >> 32, 8))
        return v[0] << 32 | v[1], image_id

    rows, at = sorted(ids, key=key), 0
    for i in range(shards):
        end = at + len(rows) // shards + (i < len(rows) % shards)
        yield rows[at:end]
        at = end


def text_of(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def main(folder, labels, images):
    with open(os.path.join(folder, "manifest.json")) as f:
        manifest = json.load(f)
    high = low = shards = 0
    for name, split in manifest["splits"].items():
        members, found = 0, []
        for entry in split["shards"]:
            shards += 1
            with h5py.File(os.path.join(folder, entry["file"]), "r") as shard:
                ids = [bytes(i) for i in shard["image_id"][:]]
                patients = [bytes(p) for p in shard["patient_id"][:]]
                pixels = shard["image"][:]
                own = [xxhash.xxh3_64_intdigest(p.tobytes()) for p in pixels]
                compare(f"{entry['file']} checksum", own, [int(v) for v in shard["checksum"][:]])
                compare(f"{entry['file']} digest", chained(shard_parts(shard, ids, patients)),
                        entry["digest"])
                files = file_sum(os.path.join(images, i.decode()) for i in ids)
                compare(f"{entry['file']} source_digest", hex_of(files),
                        text_of(shard.attrs["source_digest"]))
            high, low = (high + files[0]) & MASK, (low + files[1]) & MASK
            found.append(ids)
            members += sum(xxhash.xxh3_64_intdigest(i) for i in ids)
        if not manifest["rejected"]:
            every = [i for ids in found for i in ids]
            order = list(dealt(every, name, manifest["seed"], len(found)))
            compare(f"order of {name}", order, found)
        compare(f"members of {name}", f"{members & MASK:016x}", split["members"])
    with open(labels, "rb") as f:
        text = f.read()
    compare("labels_digest", xxhash.xxh3_128_hexdigest(text), manifest["labels_digest"])
    compare("source_digest", xxhash.xxh3_128_hexdigest(hex_of((high, low)).encode() + text),
            manifest["source_digest"])
    print("\n".join(faults) if faults else f"{shards} shards: every digest is equal, and so is the order")
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
