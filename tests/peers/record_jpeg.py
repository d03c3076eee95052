# SPDX-License-Identifier: Apache-2.0
"""Records what tests/unit/image_jpeg.c compares with, from Pillow.

    record_jpeg.py TESTS_DATA      writes TESTS_DATA/jpeg/*

One small file of every kind that is read or refused, and expected.txt: name, target size, width,
height and the FNV-1a digest of the grey pixels, as Pillow's convert("L") has them after draft() to
the scale that the target allows.
"""
import io
import os
import sys

import numpy as np
from PIL import Image

from record_images import fnv


def picture(w, h, channels):
    """Slopes, a bright disc with a hard edge, and noise: enough for every coefficient."""
    rng = np.random.default_rng(w * 1000 + h + channels)
    y, x = np.mgrid[0:h, 0:w]
    planes = []
    for c in range(channels):
        slope = (x * (2 + c) + y * (3 - c)) * 160 / (2 * w + 3 * h)
        disc = 80 * ((x - w / 2) ** 2 + (y - h / 2 - c) ** 2 < (min(w, h) / 3) ** 2)
        planes.append(slope + disc + rng.integers(0, 12, (h, w)))
    out = np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)
    return Image.fromarray(out[:, :, 0] if channels == 1 else out)


def scale_for(size, target):
    """The rule of libcore/image/image.h."""
    best = 1
    for s in (2, 4, 8):
        if target and all(-(-side // s) >= 4 * target for side in size):
            best = s
    return best


def grey(data, target):
    image = Image.open(io.BytesIO(data))
    size, scale = image.size, scale_for(image.size, target)
    if scale > 1:
        image.draft(image.mode, (size[0] // scale, size[1] // scale))
        assert image.size == tuple(-(-side // scale) for side in size), (image.size, size, scale)
    return np.asarray(image.convert("L"))


KINDS = [  # name, width, height, channels, options of Image.save
    ("grey", 37, 29, 1, {"quality": 90}),
    ("grey-1x1", 1, 1, 1, {"quality": 75}),
    ("grey-17x1", 17, 1, 1, {"quality": 75}),
    ("grey-restarts", 37, 29, 1, {"quality": 60, "restart_marker_blocks": 3}),
    ("grey-progressive", 37, 29, 1, {"quality": 90, "progressive": True}),
    ("grey-big", 129, 131, 1, {"quality": 70, "optimize": True}),
    ("grey-big-progressive", 131, 129, 1, {"quality": 70, "progressive": True}),
    ("colour-444", 37, 29, 3, {"quality": 90, "subsampling": 0}),
    ("colour-422", 37, 29, 3, {"quality": 80, "subsampling": 1}),
    ("colour-420", 37, 29, 3, {"quality": 80, "subsampling": 2}),
    ("colour-420-progressive", 37, 29, 3, {"quality": 80, "subsampling": 2, "progressive": True}),
    ("colour-rgb", 37, 29, 3, {"quality": 80, "keep_rgb": True}),
    ("colour-big-420", 131, 130, 3, {"quality": 50, "subsampling": 2}),
    ("grey-turned", 37, 29, 1, {"quality": 80, "exif": True}),
]


def main(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "expected.txt"), "w") as out:
        for name, w, h, channels, options in KINDS:
            if options.get("exif"):
                options["exif"] = Image.Exif()
                options["exif"][0x0112] = 6  # orientation: a quarter turn
            buffer = io.BytesIO()
            picture(w, h, channels).save(buffer, "JPEG", **options)
            data = buffer.getvalue()
            with open(os.path.join(folder, name + ".jpg"), "wb") as f:
                f.write(data)
            for target in (0, 1, 4, 5, 8, 9, 16, 17, 1000):
                pixels = grey(data, target)
                out.write(f"{name} {target} {pixels.shape[1]} {pixels.shape[0]} "
                          f"{fnv(pixels.tobytes()):016x}\n")
    picture(9, 7, 3).convert("CMYK").save(os.path.join(folder, "cmyk.jpg"), quality=80)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(os.path.join(sys.argv[1], "jpeg"))
