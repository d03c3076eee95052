#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Python code of doc/export.md gives the probabilities of predictions.csv. Its
# preprocessing runs here with a network in numpy; all of it runs where torch is installed.
# CHEX_TEST_PYTHON: a python with numpy and Pillow, if neither python3 nor Debian's own has them.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

# Grey images, and other kinds that Pillow and chexnet make grey: colour, alpha, palette, 1 bit.
quiet chex-shard phantom --count 12 --size 90 --seed 3 --output ph
python_with numpy,PIL || skip_all "no python3 with numpy and Pillow here"
quiet "$python" - <<'END'
import csv, os
import numpy as np
from PIL import Image
names = sorted(os.listdir("ph/images"))
kinds = ["RGB", "RGBA", "P", "1", "LA"]
ramp = np.arange(90)[:, None] + np.arange(160)
colour = np.stack([ramp % 251, ramp * 3 % 256, 255 - ramp % 256], 2).astype(np.uint8)
for kind, name in zip(kinds, names):
    Image.fromarray(colour).convert(kind).save("ph/images/" + name)  # wide, not square
END

quiet chex-shard --images ph/images --labels ph/labels.csv --split none --size 72 --shards 1 \
    --output shards
quiet chex-train --data shards --output run --image-size 64 --batch-size 4 --max-steps 2 --lr 0.002 \
    --engine cpu --threads 2
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output eval --allow-overlap \
    --engine cpu --precision fp32 --bootstrap 0
expect_status 0 chex-eval export --checkpoint run/last.h5 --output best.safetensors
header=$(head -c 20000 best.safetensors | tr -d '\0')
for text in '"input":"grey image of 8 bits, resized to stored_size x stored_size by resize, centre crop' \
    '"mean":"\[0\.485,0\.456,0\.406\]"' '"std":"\[0\.229,0\.224,0\.225\]"' '"crop":"centre"' \
    '"image_size":"64"' '"stored_size":"72"' '"resize":"pillow-bilinear"' '"output":"one logit'; do
    grep -qaE "$text" <<<"$header"
    ok $? "the metadata say $text"
done
listed=$(awk -F'|' '/^## Metadata/ {on = 1} on && $2 ~ /`/ {print $2}' "$SOURCE/doc/export.md" |
    grep -o '[a-z_]*' | sort)
written=$("$python" -c 'import json, struct
f = open("best.safetensors", "rb")
print("\n".join(json.loads(f.read(*struct.unpack("<Q", f.read(8))))["__metadata__"]))' | grep -vx format | sort)
is "$(tr '\n' ' ' <<<"$listed")" "$(tr '\n' ' ' <<<"$written")" "the page lists the keys that are written"

# block N: the Nth Python block of the page.
block() { awk -v want="$1" '/^```python/ {n++; on = n == want; next} /^```/ {on = 0} on' "$SOURCE/doc/export.md"; }
block 1 >prepare.py
peer() { "$python" "$SOURCE/tests/tools/densenet_numpy.py" prepare.py best.safetensors ph/images "$@" 2>&1; }
# below TEXT LIMIT IMAGES: whether the difference that peer printed for so many images is below the limit.
below() { awk -v limit="$2" -v images="$3" '{exit !($NF + 0 < limit && $1 == images)}' <<<"$1"; }
said=$(peer eval/predictions.csv)
below "$said" 1e-4 12
ok $? "the page's preprocessing gives the probabilities of predictions.csv" || diag "$said"
# The comparison would notice another preprocessing, in two images already.
head -n 3 eval/predictions.csv >two.csv
for change in 'mean=[0,0,0]' 'std=[1,1,1]' stored_size=64 stored_size=90; do
    said=$(peer two.csv "$change")
    below "$said" 1 2 && ! below "$said" 1e-3 2
    ok $? "the probabilities differ with $change" || diag "$said"
done

if "$python" -c 'import torch, torchvision, safetensors' 2>/dev/null; then
    name=$(sed -n '9s/,.*//p' eval/predictions.csv)
    cp "ph/images/$name" chest.png
    { block 1; block 2; } >whole.py
    expect_status 0 "$python" whole.py
    awk 'FNR == NR {p[$1] = $2; next}
        {n = split($0, cell, ",")}
        FNR == 1 {for (i = 1; i <= n; i++) if (cell[i] ~ /^p_/) name[i] = substr(cell[i], 3); next}
        FNR == 9 {for (i in name) {d = p[name[i]] - cell[i]; if (d > 1.5e-4 || d < -1.5e-4) exit 1; seen++}}
        END {if (seen != 14) exit 1}' out eval/predictions.csv
    ok $? "the whole code prints the probabilities of predictions.csv" || diag "$(out)"
else
    skip "no torch, torchvision and safetensors here" 2
fi
done_testing
