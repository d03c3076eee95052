#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Labels from which nothing can be learned are refused, and labels without an AUROC are reported.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q >ph.out
mapfile -t images < <(cd ph/images && ls)
shard() { # LABELS OUTPUT OPTION...
    chex-shard --images ph/images --labels "$1" --size 32 --shards 3 --output "${@:2}" -q >shard.out 2>&1 ||
        diag "$(cat shard.out)"
}
train=(chex-train --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu --threads 1 --max-steps 2)

# No label at all, and the same label everywhere.
for value in 0 1; do
    {
        echo "Image,Effusion,Mass"
        printf "%s,$value,$value\n" "${images[@]}"
    } >constant.csv
    shard constant.csv constant$value --split none
    expect_status 3 "${train[@]}" --data constant$value --output run
    error_line "split all: nothing can be learned: no finding has both positives and negatives" \
        "labels that are all $value: refused"
    [ ! -e run/last.h5 ]
    ok $? "no run starts"
done
expect_status 3 "${train[@]}" --data constant0 --output run --plan
error_line "nothing can be learned" "--plan says it too"

# Gaps in train and val. Patients are on one side each: every fourth validates, every fifth tests.
touch train.txt val.txt test.txt
echo "Image,Effusion,Mass,Nodule" >gaps.csv
for i in "${!images[@]}"; do
    patient=$((10#${images[i]%%_*}))
    side=train row=$((i % 2)),0,$((i % 3 == 0))
    ((patient % 4)) || side=val row=1,0,1
    ((patient % 5)) || side=test row=1,0,1
    echo "${images[i]}" >>$side.txt
    echo "${images[i]},$row" >>gaps.csv
done
lists=(--split official --train-list train.txt --val-list val.txt --test-list test.txt)
shard gaps.csv gaps "${lists[@]}"
expect_status 0 "${train[@]}" --data gaps --output gaps-run
like "$(err)" 'warn: split train: no positives of Mass$' "a finding without positives in train is named"
like "$(err)" 'warn: split val: nothing can be learned and no AUROC computed' "a finding of the validation split without labels is warned about"
like "$(err)" 'warn: val AUROC is undefined: best.h5 is chosen by the validation loss' "a warning says that the validation loss chooses best.h5"
like "$(err)" 'val AUROC undefined, best so far' "the epoch has no AUROC"
like "$(err)" 'done: .*; val AUROC undefined, best val loss [0-9.]+ in epoch 1;' "the last line says that the AUROC is undefined"
unlike "$(err)" 'nan|-0\.0' "neither nan nor -0.0 is printed"
expect_status 0 "${train[@]}" --data gaps --output other --plan
like "$(out)" 'warning +split train: no positives of Mass$' "--plan warns of the same"
like "$(out)" 'warning +val AUROC is undefined: best.h5 is chosen by the validation loss' "the plan warns that the AUROC is undefined"

# The ranks count their own rows.
if mpi_ranks 2; then
    for order in local global; do
        expect_status 0 "${ranks[@]}" "${train[@]}" --data gaps --output "ranks-$order" --order $order
        is "$(grep -c 'warn: .*split train: no positives of Mass$' err)" 1 "order $order: two ranks say it once"
    done
else
    skip "no mpirun here" 4
fi
done_testing
