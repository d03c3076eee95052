#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to an AUROC table of real radiographs. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=packages.sh
. "$root/share/packages.sh"
sample=$root/datasets/nih-sample
build=$root/build/quickstart
output=$build/result epochs=5 install=yes

usage() {
    cat <<END
usage: share/quickstart.sh [OPTION...]
Installs what the build needs (Debian packages, by apt), builds, makes shards of the 1,000 radiographs
in datasets/nih-sample, trains a DenseNet-121 on them at 64 px without a GPU, evaluates it and prints
the AUROC of each finding. Under 10 minutes on two cores. It can be run again.
  --epochs N     passes over the training images ($epochs)
  --output DIR   where shards, run and report go (build/quickstart/result); what an earlier
                 quickstart left there is replaced
  --no-install   install nothing
  --help
So few and so small images teach a network little: expect a mean AUROC of about 0.6. The whole
NIH set at 224 px is what chex-train is for.
Exit status: that of the command that failed; 2 usage; 4 packages are missing.
END
}

die() {
    local status=$1
    shift
    echo "quickstart: $*" >&2
    exit "$status"
}

step() {
    printf '\n== %s\n' "$*"
}

run() {
    printf '$ %s\n' "${*//"$root"\//}"
    "$@"
    local status=$?
    [ $status = 0 ] || die $status "$(basename "$1") ended with status $status"
}

# The same with its output in a file, which is shown if the command fails.
run_logged() { # FILE COMMAND...
    local log=$1 status
    shift
    printf '$ %s >%s\n' "${*//"$root"\//}" "${log#"$root/"}"
    "$@" >"$log" 2>&1
    status=$?
    [ $status = 0 ] && return
    tail -n 40 "$log" >&2
    die $status "$(basename "$1") ended with status $status; its whole output is in $log"
}

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --no-install) install=no ;;
    --epochs | --output)
        [ $# -gt 1 ] || die 2 "$1 needs a value; try --help"
        if [ "$1" = --epochs ]; then epochs=$2; else output=$2; fi
        shift
        ;;
    *) die 2 "unknown argument '$1'; try --help" ;;
    esac
    shift
done
[[ $epochs =~ ^[1-9][0-9]*$ ]] || die 2 "--epochs '$epochs': expected a number from 1"
[[ $output = /* ]] || output=$PWD/$output
if [ -e "$output" ] && [ -n "$(ls -A "$output")" ] && [ ! -f "$output/.quickstart" ]; then
    die 2 "$output holds something that is not of an earlier quickstart"
fi
began=$SECONDS

if [ $install = yes ]; then
    step "packages"
    # shellcheck disable=SC2086
    packages_install $packages_build || exit $?
    echo "all there"
fi

step "build"
cd "$root" || exit 1
echo "without CUDA, even if nvcc is installed: the sample is trained on the CPU"
mkdir -p "$build" || die 9 "cannot make $build"
run_logged "$build/configure.log" cmake --preset release -B "$build" -DCHEX_WITH_CUDA=OFF
run_logged "$build/build.log" cmake --build "$build" -j "$(nproc)"
bin=$build/bin
rm -rf "$output"
mkdir -p "$output" || die 9 "cannot make $output"
touch "$output/.quickstart"

step "is this machine fit?"
run "$bin/chex-env"

step "shards: decoded and resized once, split by patient"
run "$bin/chex-shard" --images "$sample/images" --labels "$sample/Data_Entry_2017.csv" \
    --split patient --size 64 --shards 4 --output "$output/shards"

step "training: $epochs epochs of a DenseNet-121 on the CPU"
run "$bin/chex-train" --data "$output/shards" --output "$output/run" --engine cpu \
    --image-size 64 --epochs "$epochs" --lr 1e-3 --seed 1

step "evaluation: test patients, whom the network never saw"
run "$bin/chex-eval" --data "$output/shards" --checkpoint "$output/run/best.h5" \
    --output "$output/eval" --engine cpu

echo
echo "Another kind of processor rounds in another order, so its training ends with other values than README.md's."
printf '\nReport: %s\nDone in %d s.\n' "$output/eval/report.html" $((SECONDS - began))
