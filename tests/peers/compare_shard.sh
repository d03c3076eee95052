#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes shards of 256 px with chex-shard and with Pillow and h5py in a pool of processes, in turn and
# on the same processors, and prints both medians, both bests and the ratio.
#   tests/peers/compare_shard.sh DIR [PYTHON] [PAIRS] [IMAGES] [WORKERS]
# DIR holds PNG files, of 1024 px if the figures are to mean anything; hard links (or copies) of them
# make up IMAGES (512). Not part of tests/run.sh.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:?DIR with PNG files} python=${2:-python3} pairs=${3:-5} count=${4:-512} workers=${5:-2}
bin=${CHEX_TEST_BUILD:-$here/build/release}/bin
"$python" -c 'import PIL, h5py' 2>/dev/null ||
    { echo "skipped: $python has no pillow and h5py"; exit 77; }
mapfile -t files < <(find "$dir" -name '*.png' | sort)
[ ${#files[@]} -gt 0 ] || { echo "no PNG files in $dir" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/images"
for ((i = 0; i < count; i++)); do
    name=$(printf '%08d_000.png' $i)
    ln "${files[i % ${#files[@]}]}" "$work/images/$name" 2>/dev/null ||
        cp "${files[i % ${#files[@]}]}" "$work/images/$name"
    echo "$name 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
done >"$work/labels.txt"
cat "$work/images"/* >/dev/null # into the page cache
for ((pair = 0; pair < pairs; pair++)); do
    rm -rf "$work/shards" "$work/peer.h5"
    "$bin/chex-shard" --images "$work/images" --labels "$work/labels.txt" --split none --size 256 \
        --shards 4 --workers "$workers" --json -q --output "$work/shards" | tr -d '\n' >>"$work/ours"
    echo >>"$work/ours"
    "$python" "$here/tests/peers/pil_shard.py" --images "$work/images" --labels "$work/labels.txt" \
        --processes "$workers" --output "$work/peer.h5" >>"$work/theirs"
done
"$python" - "$work/ours" "$work/theirs" "$count" "$workers" "$work" <<'P'
import json, os, statistics as st, sys
ours, theirs = ([json.loads(line) for line in open(f)] for f in sys.argv[1:3])
count, workers, work = int(sys.argv[3]), sys.argv[4], sys.argv[5]
a, b = ([r["images_per_s"] for r in x] for x in (ours, theirs))
size = sum(e.stat().st_size for e in os.scandir(work + "/images"))
print(f"{count} images, {size / count / 1e3:.0f} kB a file, {workers} workers, {len(a)} pairs, "
      f"Pillow {theirs[0]['pillow']}, h5py {theirs[0]['h5py']}")
for name, v in (("chex-shard", a), ("Pillow + h5py", b)):
    print(f"{name:14} median {st.median(v):7.1f} img/s, best {max(v):7.1f}")
ratio = [x / y for x, y in zip(a, b)]
print(f"ratio          median {st.median(ratio):.2f}, {min(ratio):.2f} to {max(ratio):.2f}; "
      f"112,120 images by extrapolation: {112120 / st.median(a):.0f} s")
P
