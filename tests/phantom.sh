#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Learns: a DenseNet-121 on 2,000 phantom radiographs of 64 px must reach a mean test AUROC of 0.95
# in five epochs. Three to six minutes on two cores, so it is no part of tests/run.sh.
#   tests/phantom.sh [chex-train options]
# Needs the commands in build/release/bin, or in $CHEX_TEST_BUILD/bin.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
bin=${CHEX_TEST_BUILD:-$here/build/release}/bin
[ -x "$bin/chex-train" ] || { echo "no $bin/chex-train: build first, see CONTRIBUTING.md" >&2; exit 4; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bin/chex-shard" phantom --count 2000 --size 64 --seed 1 --output "$work/phantom" -q
"$bin/chex-shard" --images "$work/phantom/images" --labels "$work/phantom/labels.csv" --size 64 \
    --shards 4 --split patient --output "$work/shards" -q
"$bin/chex-train" --data "$work/shards" --output "$work/run" --image-size 64 --batch-size 16 \
    --epochs 5 --lr 1e-3 "$@"
"$bin/chex-eval" --data "$work/shards" --checkpoint "$work/run/best.h5" --output "$work/eval" \
    --compare none
mean=$(sed -n 's/^ *"mean": *\([0-9.]*\).*/\1/p' "$work/eval/auroc.json" | head -n 1)
awk -v m="$mean" 'BEGIN { if (m >= 0.95) { print "mean test AUROC " m ": at least 0.95"; exit 0 }
    print "mean test AUROC " m ": below 0.95"; exit 1 }'
