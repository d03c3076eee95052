#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --stop-after ends a run whose result no longer improves, at the same epoch with any interruption.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40 --shards 1 --fractions 0.4,0.5,0.1
train=(chex-train --data set --model densenet_tiny --image-size 32 --batch-size 8 --engine cpu --threads 1 --epochs 40)
epochs() { grep -c '"kind":"epoch"' "$1/metrics.jsonl"; }
best() { grep '"kind":"epoch"' "$1/metrics.jsonl" | grep '"best":true' | tail -n 1 | grep -oE '"epoch":[0-9]+' | cut -d: -f2; }
results() { grep '"kind":"epoch"' "$1/metrics.jsonl" | grep -oE '"(epoch|step|loss|val_loss|val_auroc_mean|best)":[^,]+'; }

expect_status 0 "${train[@]}" --lr 1e-2 --stop-after 2 --output run
is "$(epochs run)" $(($(best run) + 2)) "the run ends 2 epochs after the best one"
[ "$(epochs run)" -lt 40 ]
ok $? "before --epochs"
like "$(err)" "done: .* of 40 epochs \(stopped by --stop-after: 2 epochs without a better one\); best val AUROC 0\.[0-9]+ in epoch $(best run);" \
    "the last lines name the option and the best epoch"
expect_status 0 "${train[@]}" --output run
like "$(err)" 'the run is complete at step [0-9]+; nothing to do \(raise --stop-after to go on\)' \
    "the run keeps the option, and is complete"
expect_status 0 "${train[@]}" --output run --plan
like "$(out)" 'complete: raise --stop-after to go on' "a plan says so too"

# The count survives interruptions: after each epoch, and within one.
steps=$(grep -c '"kind":"step"' run/metrics.jsonl)
per=$((steps / $(epochs run)))
for last in $(seq "$per" "$per" "$steps") $((steps + per)); do
    "${train[@]}" --lr 1e-2 --stop-after 2 --output parts --max-steps "$last" -q || fail "part $last"
done
is "$(results parts)" "$(results run)" "a run in parts ends at the same epoch with the same results"

more=$(epochs run)
expect_status 0 "${train[@]}" --output run --stop-after 3
[ "$(epochs run)" -gt "$more" ]
ok $? "a larger --stop-after goes on"

# A best.h5 that is lost on rank 0 must not let the ranks count differently.
if mpi_ranks 2; then
    two=("${ranks[@]}" "${train[@]}" --batch-size 4 --lr 1e-2 --stop-after 2 --stall-abort 60s --output two)
    expect_status 0 "${two[@]}" --max-steps $((2 * per))
    rm -f two/best.h5 two/checkpoints/*
    expect_status 0 "${two[@]}"
    is "$(epochs two)" $(($(best two) + 2)) "two ranks that lost best.h5 end at the same epoch"
else
    skip "no mpirun here" 3
fi

for bad in -1 x 1.5 1000001 ''; do
    expect_status 2 "${train[@]}" --stop-after "$bad" --output bad
done
[ ! -e bad ]
ok $? "a bad value creates no folder"
done_testing
