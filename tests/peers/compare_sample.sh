#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains the bundled real sample with chex-train and with PyTorch, three seeds each, from the same
# shards and with the same recipe, and says whether the two means lie within each other's spread.
# Not part of tests/run.sh: it takes half an hour on two cores.
#   tests/peers/compare_sample.sh [PYTHON] [EPOCHS]
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${1:-python3} epochs=${2:-8}
bin=${CHEX_TEST_BUILD:-$here/build/release}/bin
"$python" -c 'import torch, torchvision, h5py, sklearn' 2>/dev/null ||
    { echo "skipped: $python has no torch, torchvision, h5py and scikit-learn"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bin/chex-shard" --images "$here/datasets/nih-sample/images" --split patient --size 64 --shards 4 \
    --labels "$here/datasets/nih-sample/Data_Entry_2017.csv" --output "$work/shards" -q
ours=()
for seed in 0 1 2; do
    "$bin/chex-train" --data "$work/shards" --output "$work/run$seed" --image-size 64 \
        --batch-size 16 --epochs "$epochs" --lr 1e-3 --sched constant --seed $seed
    "$bin/chex-eval" --data "$work/shards" --checkpoint "$work/run$seed/last.h5" --bootstrap 0 \
        --output "$work/eval$seed" >/dev/null
    ours+=("$("$python" -c 'import json,sys; print(json.load(open(sys.argv[1]))["mean"])' \
        "$work/eval$seed/auroc.json")")
    echo "chex-train seed $seed: mean test AUROC ${ours[-1]}"
done
"$python" "$here/tests/peers/torch_sample.py" --data "$work/shards" --epochs "$epochs" | tee "$work/torch"
"$python" - "$work/torch" "${ours[@]}" <<'P'
import json, statistics as st, sys
theirs = json.loads(open(sys.argv[1]).read().splitlines()[-1])["mean_auroc"]
ours = [float(x) for x in sys.argv[2:]]
def line(name, v):
    print(f"{name}: mean {st.mean(v):.4f}, spread {min(v):.4f} to {max(v):.4f}")
line("chexnet", ours)
line("PyTorch", theirs)
inside = max(min(ours), min(theirs)) <= min(max(ours), max(theirs))
print("the spreads overlap" if inside else "the spreads do not overlap")
sys.exit(0 if inside else 1)
P
