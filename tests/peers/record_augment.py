# SPDX-License-Identifier: Apache-2.0
"""Records what tests/unit/augment.c compares with, from torchvision.

    record_augment.py TESTS_DATA      writes TESTS_DATA/augment.txt

Lines `resize S N TOP LEFT HEIGHT WIDTH FLIP ANTIALIAS`, `rotate S DEGREES` and
`jitter S BRIGHTNESS CONTRAST`, each followed by a line of values: grey levels of every 29th
pixel of the result of torchvision's functional form on a float image of picture() (for `jitter`
of the whole image), and for `resize` after a `|` those of the 8-bit path.
"""
import os
import sys

import torch
import torchvision.transforms.functional as F
from record_images import picture

STEP = 29


def values(image):
    return " ".join(f"{v:.2f}" for v in (image.flatten()[::STEP]).tolist())


def resize(out, s, n, crop, flip, antialias):
    grey = torch.from_numpy(picture(s, s))[None]

    def run(image):
        image = F.resized_crop(image, *crop, [n, n], F.InterpolationMode.BILINEAR,
                               antialias=antialias)
        return F.hflip(image) if flip else image
    exact, bytes_ = run(grey.float()), run(grey).float()
    out.write(f"resize {s} {n} {' '.join(map(str, crop))} {flip:d} {antialias:d}\n")
    out.write(values(exact) + " | " + values(bytes_) + "\n")


def main(folder):
    with open(os.path.join(folder, "augment.txt"), "w") as out:
        for s, n, crop in [(64, 56, (3, 5, 50, 47)), (64, 56, (0, 0, 64, 64)),
                           (64, 40, (2, 1, 60, 63)), (40, 33, (4, 2, 33, 36)),
                           (90, 17, (1, 0, 80, 90)), (33, 48, (0, 1, 30, 32))]:
            for flip in (False, True):
                for antialias in (False, True):
                    resize(out, s, n, crop, flip, antialias)
        for s, degrees in [(40, 10.0), (40, -7.5), (33, 45.0), (33, 90.0)]:
            image = torch.from_numpy(picture(s, s))[None].float()
            out.write(f"rotate {s} {degrees}\n")
            out.write(values(F.rotate(image, degrees, F.InterpolationMode.BILINEAR)) + "\n")
        for b, c in [(1.2, 1.0), (0.7, 1.0), (1.0, 1.3), (1.0, 0.6), (0.8, 1.2), (0.9, 0.5)]:
            image = torch.from_numpy(picture(40, 40))[None].float() / 255
            image = F.adjust_brightness(image, b).expand(3, -1, -1)
            image = F.adjust_contrast(image, c)[0] * 255
            out.write(f"jitter 40 {b} {c}\n{values(image)}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
