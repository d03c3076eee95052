#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes this sample: radiographs of any PNG kind to 8-bit grey PNG, names kept.

    make.py INPUT OUTPUT     INPUT holds images/ and Data_Entry_2017.csv

Every filter and deflate strategy is tried and the smallest file kept; text and other extra chunks
go. Each result is read back and compared with the source's grey. Needs Pillow.
"""
import os
import shutil
import struct
import sys
import zlib

from PIL import Image


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def paeth(a, b, c):
    pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def filtered(kind, row, above):
    left = b"\0" + row[:-1]
    corner = b"\0" + above[:-1]
    if kind == 0:
        return row
    if kind == 1:
        return bytes((x - a) & 255 for x, a in zip(row, left))
    if kind == 2:
        return bytes((x - b) & 255 for x, b in zip(row, above))
    if kind == 3:
        return bytes((x - (a + b) // 2) & 255 for x, a, b in zip(row, left, above))
    return bytes((x - paeth(a, b, c)) & 255 for x, a, b, c in zip(row, left, above, corner))


def candidates(w, h, pixels):
    """Filtered streams: one filter throughout, and the smallest sum of differences row by row."""
    rows = [pixels[y * w:(y + 1) * w] for y in range(h)]
    above = [bytes(w)] + rows[:-1]
    table = [[filtered(k, r, a) for k in range(5)] for r, a in zip(rows, above)]
    for kind in range(5):
        yield b"".join(bytes([kind]) + t[kind] for t in table)
    best = []
    for t in table:
        kind = min(range(5), key=lambda k: sum(min(v, 256 - v) for v in t[k]))
        best.append(bytes([kind]) + t[kind])
    yield b"".join(best)


def encode(w, h, pixels):
    smallest = None
    for stream in candidates(w, h, pixels):
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_RLE):
            z = zlib.compressobj(9, zlib.DEFLATED, 15, 9, strategy)
            data = z.compress(stream) + z.flush()
            if smallest is None or len(data) < len(smallest):
                smallest = data
    header = struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", smallest)
            + chunk(b"IEND", b""))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    os.makedirs(os.path.join(target, "images"), exist_ok=True)
    names = sorted(os.listdir(os.path.join(source, "images")))
    total = 0
    for name in names:
        grey = Image.open(os.path.join(source, "images", name)).convert("L")
        out = os.path.join(target, "images", name)
        data = encode(grey.width, grey.height, grey.tobytes())
        with open(out, "wb") as f:
            f.write(data)
        back = Image.open(out)
        if back.mode != "L" or back.size != grey.size or back.tobytes() != grey.tobytes():
            sys.exit(f"{out}: differs from its source")
        total += len(data)
    shutil.copyfile(os.path.join(source, "Data_Entry_2017.csv"),
                    os.path.join(target, "Data_Entry_2017.csv"))
    print(f"{len(names)} images, {total} bytes, pixels equal to their sources")


if __name__ == "__main__":
    main()
