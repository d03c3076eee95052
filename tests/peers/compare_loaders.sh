#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The input pipeline alone, against torch's DataLoader over h5py and tf.data (the article's old and new
# pipeline), in turn and on the same processors, from the same rows of 256 px with the same
# augmentation to 224 px. Prints medians, bests and ratios to each peer and to the best of them.
#   tests/peers/compare_loaders.sh [PYTHON] [PAIRS] [ROWS] [WORKERS] [IMAGE_SIZE]
# CHEX_AUGMENT=--antialias adds it on both sides. Not part of tests/run.sh.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${1:-python3} pairs=${2:-5} rows=${3:-4096} workers=${4:-2} size=${5:-224}
bin=${CHEX_TEST_BUILD:-$here/build/release}/bin
read -ra augment <<<"${CHEX_AUGMENT-}"
peers=()
"$python" -c 'import torch, torchvision, h5py' 2>/dev/null && peers+=(torch)
"$python" -c 'import tensorflow, h5py' 2>/dev/null && peers+=(tf-old tf-new)
[ ${#peers[@]} -gt 0 ] || { echo "skipped: $python has neither torch nor tensorflow with h5py"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bin/chex-shard" phantom --count "$rows" --size 256 --seed 1 --output "$work/phantom" -q >/dev/null
"$bin/chex-shard" --images "$work/phantom/images" --labels "$work/phantom/labels.csv" --size 256 \
    --fractions 1,0,0 --split patient --shards 4 --output "$work/shards" -q >/dev/null
rm -r "$work/phantom"
for ((pair = 0; pair < pairs; pair++)); do
    for pipeline in new old; do
        "$bin/chex-train" --data "$work/shards" --image-size "$size" --batch-size 64 \
            --workers "$workers" --bench-input $((rows * 8 / 64)) --pipeline $pipeline --json -q \
            "${augment[@]}" | tr -d '\n' >>"$work/chexnet-$pipeline"
        echo >>"$work/chexnet-$pipeline"
    done
    for peer in "${peers[@]}"; do
        "$python" "$here/tests/peers/loaders.py" "$peer" --data "$work/shards" --scratch "$work" \
            --workers "$workers" --image-size "$size" "${augment[@]}" 2>/dev/null |
            tail -n 1 >>"$work/$peer"
    done
done
"$python" - "$work" "$workers" "${peers[@]}" <<'P'
import json, statistics as st, sys
work, workers, peers = sys.argv[1], sys.argv[2], sys.argv[3:]
rates = {}
print(f"img/s, {workers} workers, median of the runs' medians and best of their bests")
for name in ("chexnet-new", "chexnet-old", *peers):
    runs = [json.loads(line) for line in open(f"{work}/{name}")]
    rates[name] = [r["images_per_s_median"] for r in runs]
    versions = " ".join(f"{k} {v}" for k, v in runs[0].items() if k.startswith("t") and "." in str(v))
    print(f"{name:12} {st.median(rates[name]):9.0f} {max(r['images_per_s_best'] for r in runs):9.0f}"
          f"  {versions}")
for name in ("chexnet-old", *peers):
    ratio = [a / b for a, b in zip(rates["chexnet-new"], rates[name])]
    print(f"new / {name:12} {st.median(ratio):6.1f} ({min(ratio):.1f} to {max(ratio):.1f})")
best = [max(p) for p in zip(*(rates[name] for name in peers))]
ratio = [a / b for a, b in zip(rates["chexnet-new"], best)]
print(f"new / best of the peers {st.median(ratio):.1f} ({min(ratio):.1f} to {max(ratio):.1f})")
P
