#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Combinations of training options, in which every pair of values appears: losses beside PyTorch's in
# double precision (tests/peers/record_options.py), equal bits with one and two processes, and after a
# resume. Four epochs of one step each.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck source=tests/tools/options_set.sh
source "$SOURCE/tests/tools/options_set.sh"

options_set "$SOURCE/datasets/nih-sample/images" >set.out 2>&1 || { diag "$(tail -n 5 set.out)"; fail "the data"; }
printf 'class,pos_weight\nEffusion,2.5\nMass,0.5\nNodule,4\n' >weights.csv
here=(--engine cpu --threads 1 -q)
new=("${here[@]}" --model densenet_tiny --image-size 32 --init start.h5 --epochs 4 --precision fp32-strict
    --deterministic --checkpoint-keep 0 --seed 1)
# The image is as large as the crop: no augmentation. Rows do not depend on the order (the recorder).
plain=(--crop-scale 1 --hflip 0)
mpi_ranks 2 || ranks=()

# The losses of the epochs: training, validation, validation by the trained loss.
losses() { # RUN
    local key
    for key in loss val_loss val_training_loss; do
        grep '"kind":"epoch"' "$1/metrics.jsonl" | grep -o "\"$key\":[^,]*" | cut -d: -f2
    done | tr '\n' ' '
}
# The largest relative distance of two lists of numbers; "none" if they are not 12 numbers each.
farthest() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        if (split(a, x, " ") != 12 || split(b, y, " ") != 12) { print "none"; exit }
        for (i = 1; i <= 12; i++) {
            if (x[i] !~ /^[0-9.e+-]+$/ || y[i] !~ /^[0-9.e+-]+$/ || y[i] <= 0) { print "none"; exit }
            d = (x[i] - y[i]) / y[i]; d = d < 0 ? -d : d; most = d > most ? d : most
        }
        printf "%.2g", most
    }'
}
digest() { grep "\"step\":$2," "$1/checkpoints.jsonl" | tail -n 1 | grep -o '"digest":"[0-9a-f]*"'; } # RUN STEP
results() { sed -n '/"kind":"epoch"/p' "$1/metrics.jsonl" | grep -oE '"(val_)?(training_)?(loss|auroc_mean|lr|grad_norm_largest)":[^,]*'; }

number=0
while IFS=$'\t' read -r options expected; do
    number=$((number + 1)) run=run$number
    read -ra words <<<"$options"
    base=("${new[@]}" "${plain[@]}")
    [[ $options != *--head-only* ]] || base=("${new[@]}") # it refuses augmentation
    expect_status 0 chex-train "${base[@]}" "${words[@]}" --output $run || diag "$options"
    off=$(farthest "$(losses $run)" "${expected//$'\t'/ }")
    # fp32 beside double precision: three updates amplify rounding to at most 1.2e-4 where gradients
    # are not clipped, and to 1e-6 elsewhere. A wrong weight or rule changes 1e-3 and more.
    awk -v off="$off" 'BEGIN { exit !(off ~ /^[0-9.e+-]+$/ && off < 5e-4) }'
    ok $? "the losses are PyTorch's within $off: $options" || {
        diag "ours:    $(losses $run)"
        diag "torch's: $expected"
    }
    start=(chex-train)
    if [ ${#ranks[@]} -gt 0 ]; then
        start=("${ranks[@]}" chex-train)
        read -ra words <<<"${options/--accumulate 2/--accumulate 1}"
    fi
    "${start[@]}" "${base[@]}" "${words[@]}" --max-steps 2 --output two$number >two.out 2>&1 </dev/null
    is "$(digest two$number 2)" "$(digest $run 2)" "two processes have its bits" || diag "$(tail -n 3 two.out)"
    data=${options#--data }
    expect_status 0 chex-train "${here[@]}" --data "${data%% *}" --output two$number
    [ "$(digest $run 4)" ] && [ "$(digest two$number 4)" = "$(digest $run 4)" ]
    ok $? "the run that one process resumes has its bits"
    is "$(results two$number)" "$(results $run)" "and its results"
    rm -rf $run two$number
done <"$SOURCE/tests/data/truth/options.tsv"
ok $((number < 10)) "there are combinations: $number"
done_testing
