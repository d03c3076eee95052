# SPDX-License-Identifier: Apache-2.0
"""Records what tests/unit/image.c and resize.c compare with, from Pillow.

    record_images.py TESTS_DATA      writes TESTS_DATA/png/* and TESTS_DATA/resize.txt

png/: one small file of every colour type, depth and interlacing, written by the few lines below
(Pillow writes too few kinds), and expected.txt: name, width, height and the grey pixels in hex as
Pillow's convert("L") has them; grey of 16 bits by the window of image_png.c, because Pillow clips it.
resize.txt: from, to and the FNV-1a digest of Pillow's BILINEAR result for the picture of picture(),
rows first and columns second as Pillow up to 12.2 always does (13.0 picks the cheaper order: the
tall sizes differ there, see tests/unit/resize.c).
"""
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 11, 9
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
         (0, 1, 1, 2)]  # x0, y0, dx, dy
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack(samples, depth):
    """Rows of samples (n, values) to bytes, most significant bits first."""
    out = []
    for row in samples:
        bits = "".join(format(int(v), f"0{depth}b") for v in row)
        bits += "0" * (-len(bits) % 8)
        out.append(int(bits, 2).to_bytes(len(bits) // 8, "big"))
    return out


def filter_rows(rows, pixel_bytes, first):
    """Each row with the next of the five filters, so that all are met."""
    out, above = b"", bytes(len(rows[0])) if rows else b""
    for y, row in enumerate(rows):
        kind = (first + y) % 5
        line = bytearray()
        for i, v in enumerate(row):
            a = row[i - pixel_bytes] if i >= pixel_bytes else 0
            c = above[i - pixel_bytes] if i >= pixel_bytes else 0
            b = above[i]
            p = a + b - c
            near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line.append((v - (0, a, b, (a + b) // 2, near)[kind]) & 255)
        out += bytes([kind]) + bytes(line)
        above = row
    return out


def write_png(path, colour, depth, interlaced, extra=b""):
    channels = CHANNELS[colour]
    rng = np.random.default_rng(colour * 100 + depth)
    limit = min(2**depth, 12) if colour == 3 else 2**depth
    samples = rng.integers(0, limit, (HEIGHT, WIDTH, channels))
    if path.endswith("-hot.png"):  # 12 of 16 bits and a dead element, in 1,023 pixels
        samples = rng.integers(300, 4096, (31, 33, channels))
        samples[7, 5], samples[20, 30] = 65535, 0
    pixel_bytes = max(1, channels * depth // 8)
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    stream = b""
    for i, (x0, y0, dx, dy) in enumerate(passes):
        part = samples[y0::dy, x0::dx]
        if part.shape[0] and part.shape[1]:
            stream += filter_rows(pack(part.reshape(part.shape[0], -1), depth), pixel_bytes, i)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(
        ">IIBBBBB", samples.shape[1], samples.shape[0], depth, colour, 0, 0, int(interlaced)))
    if colour == 3:
        data += chunk(b"PLTE", rng.integers(0, 256, 3 * limit, dtype=np.uint8).tobytes())
    packed = zlib.compress(stream, 9)
    half = len(packed) // 2
    data += extra + chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:])
    data += chunk(b"IEND", b"")
    with open(path, "wb") as f:
        f.write(data)
    return samples


def window(v):
    """The values from the 0.1 % to the 99.9 % quantile as 0..255, rounded half up."""
    sorted_v = np.sort(v.ravel())
    skip = sorted_v.size // 1000
    low, high = sorted_v[skip], sorted_v[-1 - skip]
    if low == high:
        low, high = sorted_v[0], sorted_v[-1]
    return ((510 * (np.clip(v, low, high) - low) + high - low) // (2 * (high - low))).astype(np.uint8)


def record_png(folder):
    os.makedirs(folder, exist_ok=True)
    kinds = [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4),
             (3, 8), (4, 8), (4, 16), (6, 8), (6, 16)]
    names = {0: "grey", 2: "rgb", 3: "palette", 4: "grey-alpha", 6: "rgba"}
    files = [(f"{names[c]}-{d}{'-adam7' if i else ''}", c, d, i, b"") for c, d in kinds
             for i in (False, True)]
    files += [("grey-8-trns", 0, 8, False, chunk(b"tRNS", b"\0\x07")),
              ("grey-2-trns", 0, 2, False, chunk(b"tRNS", b"\0\1")),
              ("rgb-8-trns", 2, 8, False, chunk(b"tRNS", b"\0\1\0\2\0\3")),
              ("palette-4-trns", 3, 4, False, chunk(b"tRNS", b"\0\x80\xff")),
              ("palette-8-trns-adam7", 3, 8, True, chunk(b"tRNS", b"\0\x80\xff")),
              ("grey-16-hot", 0, 16, False, b""),
              ("grey-alpha-16-adam7-hot", 4, 16, True, b""),
              ("grey-8-gamma", 0, 8, False, chunk(b"gAMA", struct.pack(">I", 100000)))]
    with open(os.path.join(folder, "expected.txt"), "w") as out:
        for name, colour, depth, interlaced, extra in files:
            path = os.path.join(folder, name + ".png")
            samples = write_png(path, colour, depth, interlaced, extra)
            if colour in (0, 4) and depth == 16:
                grey = window(samples[:, :, 0])
            else:
                grey = np.asarray(Image.open(path).convert("L"))
            out.write(f"{name} {grey.shape[1]} {grey.shape[0]} {grey.tobytes().hex()}\n")


def picture(w, h):
    """The same in tests/unit/resize.c: a hash of the pixel's number, and a slope."""
    i = np.arange(w * h, dtype=np.uint32)
    v = i * np.uint32(2654435761)
    v ^= v >> np.uint32(15)
    v *= np.uint32(2246822519)
    noise = v >> np.uint32(25)  # 0..127
    slope = (i % np.uint32(w)) * np.uint32(128) // np.uint32(w)
    return (noise + slope).astype(np.uint8).reshape(h, w)


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & (2**64 - 1)
    return h


def record_resize(path):
    sizes = [(64, 64, 64, 64), (1, 1, 1, 1), (1, 1, 7, 5), (7, 5, 1, 1), (2, 2, 3, 3),
             (3, 3, 2, 2), (64, 64, 32, 32), (64, 64, 256, 256), (100, 80, 256, 256),
             (333, 257, 224, 224), (257, 333, 64, 64), (1, 500, 20, 20), (500, 1, 20, 20),
             (256, 256, 256, 100), (256, 256, 100, 256), (1024, 1024, 256, 256),
             (1024, 1024, 224, 224), (1025, 1023, 256, 256), (2000, 3, 17, 90), (31, 977, 64, 64),
             (640, 480, 320, 320), (255, 257, 256, 256), (1500, 1200, 512, 512),
             (100, 1000, 50, 50), (1024, 2048, 256, 256), (700, 3001, 256, 256)]
    with open(path, "w") as out:
        for w, h, dw, dh in sizes:
            rows = Image.fromarray(picture(w, h)).resize((dw, h), Image.BILINEAR)
            small = rows.resize((dw, dh), Image.BILINEAR)
            out.write(f"{w} {h} {dw} {dh} {fnv(small.tobytes()):016x}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    record_png(os.path.join(sys.argv[1], "png"))
    record_resize(os.path.join(sys.argv[1], "resize.txt"))
