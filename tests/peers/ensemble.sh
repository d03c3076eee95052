#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ensembles of networks that differ in the seed alone, trained on phantoms whose labels have errors:
# the AUROC of each member and of the ensemble with the paired gain, by both means; the spread of
# ensembles of n against that of single networks, which is 1/sqrt(n) for independent seeds; and the
# ensemble against PyTorch (the exported members) and ONNX Runtime (its model). doc/ensembles.md has
# a result.
#
# usage: tests/peers/ensemble.sh PYTHON OUT [SEEDS [IMAGES]]
# PYTHON needs torch, torchvision, onnxruntime, numpy and pillow. OUT keeps the runs; a
# second call makes only those that are missing. SEEDS: an even number (10); the first half of them
# are the ensemble. IMAGES: 2000. Needs a build with tests (densenet_tiny) in build/release or
# CHEX_TEST_BUILD.
set -eu -o pipefail
[ $# -ge 2 ] || { sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
PATH=${CHEX_TEST_BUILD:-$here/../../build/release}/bin:$PATH
python=$1 seeds=${3:-10} images=${4:-2000}
mkdir -p "$2"
cd "$2"
if [ ! -e set/manifest.json ]; then
    chex-shard phantom --count "$images" --size 64 --seed 1 --output ph -q
    "$python" "$here/ensemble.py" noise ph/labels.csv noisy.csv 0.1
    chex-shard --images ph/images --labels noisy.csv --output noisy --size 64 --split patient --fractions 0.6,0.1,0.3 -q
    # The test labels have no errors: rows and splits are those of the training set.
    chex-shard --images ph/images --labels ph/labels.csv --output set --size 64 --split patient --fractions 0.6,0.1,0.3 -q
fi
list() { seq -f "runs/%02g/best.h5" -s , "$1" "$2"; }
for s in $(seq "$seeds"); do
    run=$(printf 'runs/%02d' "$s")
    [ -e "$run/best.h5" ] || chex-train --data noisy --output "$run" --seed "$s" --model densenet_tiny --image-size 56 \
        --batch-size 16 --epochs 6 --lr 1e-3 --engine cpu --logical-ranks 1 -q
    [ -e "one/$s/auroc.json" ] || chex-eval --data set --checkpoint "$run/best.h5" --output "one/$s" -q >/dev/null
done
n=$((seeds / 2))
for half in "first 1 $n mean-probability" "second $((n + 1)) $seeds mean-probability" "logit 1 $n mean-logit"; do
    read -r name from to mean <<<"$half"
    chex-eval --data set --checkpoint "$(list "$from" "$to")" --ensemble "$mean" --output "$name" -f -q >"$name.txt"
    echo "$name: $mean of seeds $from to $to"
    tail -n 3 "$name.txt"
done
for mean in mean-probability mean-logit; do
    rm -rf "$mean" "$mean.onnx"
    chex-eval predict --images ph/images --checkpoint "$(list 1 "$n")" --ensemble $mean --output $mean -q \
        --precision fp32-strict --engine cpu >/dev/null
    chex-eval export --checkpoint "$(list 1 "$n")" --ensemble $mean --output $mean.onnx -q
done
for s in $(seq "$n"); do
    [ -e "member-$s.safetensors" ] ||
        chex-eval export --checkpoint "$(printf 'runs/%02d/best.h5' "$s")" --output "member-$s.safetensors" -q
done
"$python" "$here/ensemble.py" report "$seeds"
