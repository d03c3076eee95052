#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains small networks without an option, and with --pos-weight, --ema and --label-smoothing, and
# prints mean and standard deviation over seeds of the validation AUROC and calibration error.
# doc/what-options-do.md has a result. No part of tests/run.sh: 40 short trainings, about ten minutes.
#   tests/examples/what_options_do.sh OUT [SEEDS]
# OUT keeps the runs; a second call makes only those that are missing. SEEDS: 5 if not given.
# Needs python3, and the commands in build/release/bin or $CHEX_TEST_BUILD/bin. JOBS: trainings at
# a time (2), one thread each.
set -eu -o pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
PATH=${CHEX_TEST_BUILD:-$here/build/release}/bin:$PATH
command -v chex-train >/dev/null || { echo "no chex-train: build first, see CONTRIBUTING.md" >&2; exit 4; }
[ $# -ge 1 ] && [[ ${2:-5} =~ ^[1-9][0-9]*$ ]] || { echo "usage: $0 OUT [SEEDS]" >&2; exit 2; }
mkdir -p "$1"
cd "$1"
seeds=${2:-5}
sample=$here/datasets/nih-sample

shards() { # NAME IMAGES LABELS
    [ -e "$1/manifest.json" ] || chex-shard --images "$2" --labels "$3" --output "$1" --size 64 --shards 2 \
        --split patient --fractions 0.6,0.3,0.1 -q
}

# one SET EPOCHS NAME SEED OPTION...: trains, then evaluates the last state on the validation split.
one() {
    local set=$1 epochs=$2 run=runs/$1-$3-$4 seed=$4
    shift 4
    [ -e "$run/eval/auroc.json" ] && return
    chex-train --data "$set" --output "$run" --image-size 64 --batch-size 16 --epochs "$epochs" --lr 1e-3 \
        --seed "$seed" --engine cpu --threads 1 -q "$@"
    chex-eval --data "$set" --split val --checkpoint "$run/last.h5" --output "$run/eval" --engine cpu --threads 1 \
        --compare none --hardest 0 --subgroups none -q >"$run/eval.txt"
}

if [ ! -e phantom.done ]; then
    chex-shard phantom --count 480 --size 64 --seed 1 --output phantom-images -q
    touch phantom.done
fi
shards phantom phantom-images/images phantom-images/labels.csv
shards nih-sample "$sample/images" "$sample/Data_Entry_2017.csv"

failed=0
start() { # as one, while fewer than JOBS run
    while [ "$(jobs -pr | wc -l)" -ge "${JOBS:-2}" ]; do wait -n || failed=1; done
    one "$@" &
}
for ((seed = 1; seed <= seeds; seed++)); do
    for set in 'phantom 4' 'nih-sample 2'; do
        # shellcheck disable=SC2086 # two words: name and epochs
        {
            start $set plain $seed
            start $set pos-weight $seed --pos-weight balanced
            start $set ema $seed --ema 0.95
            start $set label-smoothing $seed --label-smoothing 0.1
        }
    done
done
while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
[ $failed -eq 0 ] || { echo "$0: a training failed" >&2; exit 1; }
python3 "$here/tests/tools/what_options_do.py" runs "$seeds" what-options-do.svg
