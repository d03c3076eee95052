#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares chex-eval predict with its two parts alone: decoding (chex-shard) and inference (chex-eval
# on shards of the same images). Prints seconds and images per second of each, with the set-up of
# the commands left out.
set -u
usage() {
    cat <<END
usage: tests/peers/predict_speed.sh --images FOLDER --checkpoint FILE [--bin FOLDER] [--threads N] [--workers N]
FOLDER has PNG, JPEG or DICOM files only. --threads and --workers: as for chex-eval predict.
Exit status: 0 measured, 2 usage, otherwise that of the command that failed.
END
}

# shellcheck source=../options.sh
. "$(dirname "$0")/../options.sh"
images='' checkpoint='' bin='' threads=0 workers=0
read_options "images checkpoint bin threads workers" "$@"
no_words
[ -d "$images" ] && [ -f "$checkpoint" ] || { usage >&2 && exit 2; }
[ -z "$bin" ] || PATH=$bin:$PATH
cores=$(nproc)
scratch=$(mktemp -d) || exit 4
trap 'rm -rf "$scratch"' EXIT

{
    echo Path,Finding
    find "$images" -type f -printf '%P\n' | sort | awk '{ print $0 "," NR % 2 }'
} >"$scratch/labels.csv"

# timed LINE-REGEX COMMAND...: the images per second that the command prints.
timed() {
    local regex=$1
    shift
    "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2 && exit 1; }
    grep -oE "$regex" "$scratch/log" | tail -n 1 | grep -oE '[0-9.]+ img/s' | cut -d' ' -f1
}

size=$(chex-eval predict --images "$images" --checkpoint "$checkpoint" --output "$scratch/warm" \
    --threads "$threads" --workers "$workers" 2>&1 | sed -n 's/.* at [0-9]* of \([0-9]*\) px.*/\1/p')
decoders=$workers
[ "$decoders" -gt 0 ] || decoders=$cores
decode=$(timed 'in .* img/s' chex-shard --images "$images" --labels "$scratch/labels.csv" --format csv \
    --columns image=Path,labels=Finding --size "$size" --shards 1 --split none --workers "$decoders" \
    --output "$scratch/shards")
both=$(timed 'in .* img/s' chex-eval predict --images "$images" --checkpoint "$checkpoint" \
    --output "$scratch/both" --threads "$threads" --workers "$workers")
chex-shard phantom --count "$(find "$images" -type f | wc -l)" --size "$size" --output "$scratch/ph" -q \
    >/dev/null 2>&1
chex-shard --images "$scratch/ph/images" --labels "$scratch/ph/labels.csv" --split none --size "$size" \
    --shards 1 --output "$scratch/phantoms" -q >/dev/null 2>&1
infer=$(timed 'evaluating .* img/s' chex-eval --data "$scratch/phantoms" --checkpoint "$checkpoint" \
    --output "$scratch/eval" --threads "$threads" --bootstrap 0)
echo "images per second"
printf 'decoding alone   %8s\ninference alone  %8s\npredict          %8s\n' "$decode" "$infer" "$both"
awk -v d="$decode" -v i="$infer" -v b="$both" 'BEGIN {
    printf "of the slower one %6.1f %%; of both in turn on the same cores %6.1f %%\n",
        100 * b / (d < i ? d : i), 100 * b * (1 / d + 1 / i) }'
