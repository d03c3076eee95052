# SPDX-License-Identifier: Apache-2.0
"""Writes the broken shards of tests/data/broken, each wrong in one way, with h5py.

    make_broken.py TESTS_DATA/broken

good.h5 is what all of them are made from: three rows of 16 px, two classes, split train. foreign.h5
is good as well, in chunks and compressed. cases.tsv has a line for each: file, the status of
`chex-shard info` (open) or `verify` (read), and what the error line must hold.
"""
import os
import struct
import sys

import h5py
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../tools"))
from checksum_record import append, xxh3  # noqa: E402

ROWS, SIZE, CLASSES = 3, 16, [b"Mass", b"Edema"]
PIXELS = (np.arange(ROWS * SIZE * SIZE).reshape(ROWS, SIZE, SIZE) * 7 % 251).astype("u1")


def good():
    """Attributes and datasets of a sound shard, to be changed before they are written."""
    rows = [PIXELS[i].tobytes() for i in range(ROWS)]
    attributes = {"format": np.bytes_("chexnet-shard"), "version": np.int64(1),
                  "classes": np.array(CLASSES, "S5"), "size": np.int64(SIZE),
                  "resize": np.bytes_("pillow-bilinear"), "split": np.bytes_("train"),
                  "source_digest": np.bytes_("0123456789abcdef" * 2),
                  "tool_version": np.bytes_("hand-made")}
    datasets = {"image": PIXELS, "label": np.array([[1, 0], [0, -1], [-2, 1]], "i1"),
                "image_id": np.array([b"a.png", b"b.png", b"c.png"]),
                "patient_id": np.array([b"p1", b"p1", b"p2"]),
                "view": np.array([1, 2, 0], "u1"), "age_years": np.array([40, 41, -1], "<i2"),
                "sex": np.array([77, 70, 0], "u1"),
                "checksum": np.array([xxh3(r) for r in rows], "<u8")}
    return attributes, datasets


def write(path, attributes, datasets, **image_options):
    with h5py.File(path, "w", libver="earliest") as f:
        for name, value in attributes.items():
            f.attrs[name] = value
        for name, value in datasets.items():
            if callable(value):
                value(f, name)
            else:
                f.create_dataset(name, data=value, track_times=False,
                                 **(image_options if name == "image" else {}))
    append(path)


def without(kind, name):
    return lambda a, d: (a if kind == "attribute" else d).pop(name)


def attribute(name, value):
    return lambda a, d: a.update({name: value})


def dataset(name, value):
    return lambda a, d: d.update({name: value})


def cell(name, at, value):
    def change(_, d):
        d[name][at] = value
    return change


def unwritten(shape, kind):
    return lambda f, name: f.create_dataset(name, shape, kind, track_times=False)


def external(f, name):
    f.create_dataset(name, PIXELS.shape, "u1", external=[("pixels.raw", 0, PIXELS.nbytes)])


def other_group(f, name):
    f.create_group(name)


# name: (change, what the error line holds)
OPEN = {
    "no-format": (without("attribute", "format"), "not a shard: no attribute 'format'"),
    "other-format": (attribute("format", np.bytes_("pictures")),
                     "not a shard: format is 'pictures', expected 'chexnet-shard'"),
    "number-format": (attribute("format", np.int64(1)), "attribute 'format'"),
    "version-0": (attribute("version", np.int64(0)),
                  "shard version 0, this program reads version 1"),
    "version-2": (attribute("version", np.int64(2)),
                  "shard version 2, this program reads version 1: a newer chexnet wrote it"),
    "text-version": (attribute("version", np.bytes_("1")), "attribute 'version'"),
    "no-version": (without("attribute", "version"), "no attribute 'version'"),
    "no-classes": (without("attribute", "classes"), "no attribute 'classes'"),
    "no-size": (without("attribute", "size"), "no attribute 'size'"),
    "no-resize": (without("attribute", "resize"), "no attribute 'resize'"),
    "no-split": (without("attribute", "split"), "no attribute 'split'"),
    "no-source-digest": (without("attribute", "source_digest"), "no attribute 'source_digest'"),
    "short-source-digest": (attribute("source_digest", np.bytes_("0123456789abcdef")),
                            "source_digest is not 32 hex digits"),
    "no-tool-version": (without("attribute", "tool_version"), "no attribute 'tool_version'"),
    "size-0": (attribute("size", np.int64(0)), "size is 0 px, expected 1 to 16384"),
    "size-17": (attribute("size", np.int64(17)),
                "images of 16 x 16 px, but attribute 'size' is 17"),
    "one-class": (attribute("classes", np.array([b"Mass"])),
                  "dataset 'label' has 2 columns for 1 findings"),
    "same-classes": (attribute("classes", np.array([b"Mass", b"Mass"])),
                     "findings 0 and 1 are both 'Mass'"),
    "empty-class": (attribute("classes", np.array([b"Mass", b""])), "finding 1 has no name"),
    **{f"no-{name.replace('_', '-')}": (without("dataset", name), f"no dataset '{name}'")
       for name in ("image", "label", "image_id", "patient_id", "view", "age_years", "sex",
                    "checksum")},
    "group-image": (dataset("image", other_group), "dataset 'image': not a dataset"),
    "float-image": (dataset("image", PIXELS.astype("<f4")), "dataset 'image' is not of type u8"),
    "signed-image": (dataset("image", PIXELS.astype("i1")), "dataset 'image' is not of type u8"),
    "flat-image": (dataset("image", PIXELS.reshape(ROWS, -1)),
                   "dataset 'image' has 2 dimensions, expected 3"),
    "wide-image": (dataset("image", PIXELS[:, :, :15]),
                   "images of 16 x 15 px, but attribute 'size' is 16"),
    "no-rows": (dataset("image", unwritten((0, SIZE, SIZE), "u1")), "0 rows, expected 1 to"),
    "unwritten-image": (dataset("image", unwritten(PIXELS.shape, "u1")),
                        "dataset 'image' was never written"),
    "external-image": (dataset("image", external), "dataset 'image' lies in another file"),
    "float-label": (dataset("label", np.zeros((ROWS, 2), "<f4")),
                    "dataset 'label' is not of type i8"),
    "unsigned-label": (dataset("label", np.zeros((ROWS, 2), "u1")),
                       "dataset 'label' is not of type i8"),
    "flat-label": (dataset("label", np.zeros(ROWS, "i1")),
                   "dataset 'label' has 1 dimensions, expected 2"),
    "short-label": (dataset("label", np.zeros((ROWS - 1, 2), "i1")),
                    "dataset 'label' has 2 rows, 'image' has 3"),
    "unwritten-label": (dataset("label", unwritten((ROWS, 2), "i1")),
                        "dataset 'label' was never written"),
    "label-2": (cell("label", (1, 1), 2), "row 1: label 2 of Edema, expected -2 to 1"),
    "label-minus-3": (cell("label", (2, 0), -3), "row 2: label -3 of Mass, expected -2 to 1"),
    "number-id": (dataset("image_id", np.arange(ROWS, dtype="<i4")),
                  "dataset 'image_id' does not hold strings of a fixed length"),
    "variable-id": (dataset("image_id", np.array(["a", "b", "c"], h5py.string_dtype())),
                    "dataset 'image_id' does not hold strings of a fixed length"),
    "short-id": (dataset("image_id", np.array([b"a.png", b"b.png"])),
                 "dataset 'image_id' has 2 rows, 'image' has 3"),
    "empty-id": (cell("image_id", 1, b""), "row 1: empty image_id"),
    "twice-id": (cell("image_id", 2, b"a.png"), "rows 0 and 2 have one image_id: a.png"),
    "empty-patient": (cell("patient_id", 2, b""), "row 2: empty patient_id"),
    "view-4": (cell("view", 0, 4), "row 0: view 4, expected 0 to 3"),
    "wide-view": (dataset("view", np.zeros(ROWS, "<u2")), "dataset 'view' is not of type u8"),
    "short-age": (dataset("age_years", np.zeros(1, "<i2")),
                  "dataset 'age_years' has 1 rows, 'image' has 3"),
    "unsigned-age": (dataset("age_years", np.zeros(ROWS, "<u2")),
                     "dataset 'age_years' is not of type i16"),
    "sex-1": (cell("sex", 2, 1), "row 2: sex 1, expected 77, 70 or 0"),
    "narrow-checksum": (dataset("checksum", np.zeros(ROWS, "<u4")),
                        "dataset 'checksum' is not of type u64"),
    "flat-checksum": (dataset("checksum", np.zeros((ROWS, 1), "<u8")),
                      "dataset 'checksum' has 2 dimensions, expected 1"),
}
READ = {
    "wrong-checksum": (cell("checksum", 1, 12345),
                       "row 1 (b.png): pixels do not match their checksum"),
    "wrong-pixel": (cell("image", (2, 5, 5), 255),
                    "row 2 (c.png): pixels do not match their checksum"),
}


def patched(folder, name, old, new):
    """good.h5 with the only place of some bytes overwritten."""
    with open(f"{folder}/good.h5", "rb") as f:
        data = f.read()[:-56]
    assert data.count(old) == 1, (name, data.count(old))
    with open(f"{folder}/{name}.h5", "wb") as f:
        f.write(data.replace(old, new))
    append(f"{folder}/{name}.h5")


def main(folder):
    os.makedirs(folder, exist_ok=True)
    lines = []
    for kind, cases in (("open", OPEN), ("read", READ)):
        for name, (change, message) in cases.items():
            attributes, datasets = good()
            datasets = {k: v.copy() for k, v in datasets.items()}
            change(attributes, datasets)
            write(f"{folder}/{name}.h5", attributes, datasets)
            lines.append(f"{name}.h5\t{kind}\t{message}")
    write(f"{folder}/good.h5", *good())
    write(f"{folder}/foreign.h5", *good(), chunks=(1, SIZE, SIZE), compression="gzip")
    with h5py.File(f"{folder}/good.h5") as f:
        place = struct.pack("<QQ", f["image"].id.get_offset(), PIXELS.nbytes)
    patched(folder, "far-image", place, struct.pack("<QQ", 1 << 40, PIXELS.nbytes))
    lines.append("far-image.h5\topen\timage")  # HDF5 1.14 finds it before chexnet does
    with open(f"{folder}/good.h5", "rb") as f:
        data = f.read()
    for name, content, message in (
            ("truncated", data[:size - 700], "truncated"),
            ("no-record", data[:-56], "no checksum record at its end"),
            ("half", data[:size // 2], "truncated"),
            ("head", data[:64], "truncated: its HDF5 data end at byte 6176, the file has 64"),
            ("magic", b"\x89PNG" + data[4:], "not an HDF5 file"),
            ("empty", b"", "not an HDF5 file"),
            ("text", b"these are no images\n", "not an HDF5 file")):
        with open(f"{folder}/{name}.h5", "wb") as f:
            f.write(content)
        lines.append(f"{name}.h5\topen\t{message}")
    with open(f"{folder}/cases.tsv", "w", encoding="ascii") as f:
        f.write("\n".join(sorted(lines)) + "\n")


main(sys.argv[1])
