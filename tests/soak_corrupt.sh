#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Changes bits of shards and checkpoints. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${CHEX_TEST_BUILD:-${BUILD:-$root/build/release}}
PATH=$build/bin:$PATH
# shellcheck source=options.sh
. "$root/tests/options.sh"

usage() {
    cat <<END
usage: tests/soak_corrupt.sh [--flips N] [--seed N] [FILE...]
Changes one bit at a time in a copy of each FILE and opens it, N times (5000). Without FILE: a shard
and a checkpoint that are made for it. Each trial is a process with a time limit. It must end with
status 3.
Exit status: 0 passed, 1 not, 2 usage. The programs are taken from CHEX_TEST_BUILD or build/release,
which must have been built with -DCHEX_BUILD_TESTS=ON.
END
}

flips=5000 seed=1 files=()
read_options "flips# seed#" "$@"
for file in "${words[@]}"; do files+=("$(realpath "$file")"); done

scratch_folder
if [ ${#files[@]} = 0 ]; then
    chex-shard phantom --count 200 --size 32 --output ph --quiet &&
        chex-shard --images ph/images --labels ph/labels.csv --split patient --size 32 --shards 1 \
            --output set --quiet &&
        chex-train --data set --output run --image-size 32 --batch-size 2 --engine cpu \
            --max-steps 1 --quiet || exit 1
    files=(set/train/train-00000-of-00001.h5 run/last.h5)
fi
"$build/tests/unit-corrupt" "$flips" "$seed" "${files[@]}" 2>/dev/null | tee log
exit "${PIPESTATUS[0]}"
