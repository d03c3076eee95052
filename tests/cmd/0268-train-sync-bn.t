#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --sync-bn: the logical ranks of a step train as one batch. Several ranks: tests/slurm/1671.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

# 16 images and 16 images a step: each step has all of them, in whatever order.
chex-shard phantom --count 16 --size 32 --seed 2 --output ph -q >ph.out
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split none \
    --output set -q >set.out 2>&1
here=(--data set --engine cpu --threads 2)
new=("${here[@]}" --model densenet_tiny --image-size 32 --precision fp32-strict --opt sgd --lr 0.1
    --deterministic)
parts=("${new[@]}" --batch-size 8 --logical-ranks 2)
loss() { grep '"kind":"step"' "$1/metrics.jsonl" | sed -n "$2s/.*\"loss\":\([^,]*\).*/\1/p"; } # RUN STEP
planned() { grep -o "\"$1\": [0-9]*" "$2" | head -n 1 | grep -o '[0-9]*$'; }                      # KEY FILE
equal() { for group in params moment1; do h5diff "$1/last.h5" "$2/last.h5" /$group /$group || return 1; done >/dev/null; }

expect_status 0 chex-train "${new[@]}" --batch-size 16 --max-steps 2 --output whole
memory() { sed -n 's/.*, \([0-9]*\)[.0-9]* MiB of memory.*/\1/p' err; }
expect_status 0 chex-train "${parts[@]}" --max-steps 2 --output alone
one=$(memory)
expect_status 0 chex-train "${parts[@]}" --max-steps 2 --output sync --sync-bn
like "$(err)" 'sync-bn: batch norms use the 16 images of a step; gradients are reduced after backward; this rank has 2 engines, which share its memory and 2 threads' \
    "the log says what it costs"
like "$(err)" ' MiB of memory in 2 engines$' "and names the memory of both engines"
[ -n "$one" ] && (($(memory) * 2 >= one * 3))
ok $? "which is more than that of one: $one, then $(memory) MiB"
# Rounding alone: 1e-6 of the loss before the first update, some more after it.
near "$(loss whole 1)" "$(loss sync 1)" 1e-5 "the first loss is that of one batch"
near "$(loss whole 2)" "$(loss sync 2)" 1e-3 "so is the second"
apart "$(loss whole 2)" "$(loss alone 2)" 1e-3 "without it the second is another"
expect_status 0 chex-train "${parts[@]}" --threads 1 --max-steps 1 --output again --sync-bn
expect_status 0 chex-train "${here[@]}" --threads 7 --max-steps 2 --output again
like "$(err)" "sync-bn 'yes'" "a resumed run keeps it"
equal sync again
ok $? "and has the bits of one that did not stop, with other threads"

expect_status 0 chex-train "${new[@]}" --batch-size 16 --max-steps 2 --output single --sync-bn
like "$(err)" 'sync-bn: one logical rank: its batch is the whole step already' \
    "with one logical rank there is nothing to do"
equal whole single
ok $? "and nothing changes"

expect_status 0 chex-train --plan "${parts[@]}" --model densenet121 --output new --json
cp out alone.json
expect_status 0 chex-train --plan "${parts[@]}" --model densenet121 --output new --json --sync-bn
is "$(planned engines out) $(planned engines alone.json)" '2 1' "--plan counts the engines"
(($(planned work_bytes out) * 2 > $(planned work_bytes alone.json) * 3))
ok $? "and their activations (the scratch of a thread is not repeated)"
expect_status 0 chex-train --plan "${parts[@]}" --output new --sync-bn
like "$(out)" '--sync-bn: 2 engines share them, one for each logical rank' "the text has them too"

expect_status 2 chex-train "${new[@]}" --batch-size 1 --logical-ranks 13 --output new --sync-bn
error_line '--sync-bn: 13 logical ranks on one rank \(expected at most 12, .*\): use more ranks' \
    "too many logical ranks of one rank are refused"
expect_status 2 chex-train "${parts[@]}" --pipeline old --output new --sync-bn
error_line '--sync-bn: --pipeline old has one batch at a time for 2 logical ranks of one rank \(expected --pipeline new\)' \
    "the old pipeline is refused"
expect_status 2 chex-train --bench 1 --sync-bn
error_line '--sync-bn and --bench: it times each rank on its own' "--bench is refused"
if [ -f "$BUILD/tests/emulated/chexnet-cuda.so" ]; then
    CHEX_LIBDIR=$BUILD/tests/emulated expect_status 2 chex-train "${parts[@]}" --precision fp32 \
        --engine cuda:s0 --output new --sync-bn
    error_line '--sync-bn: 2 logical ranks on one GPU \(expected 1\): run as many ranks as --logical-ranks' \
        "several logical ranks on one GPU are refused"
else
    diag "no emulated device in this build: several logical ranks on one GPU are not tried"
fi
[ ! -e new ]
ok $? "refused runs and plans write nothing"
done_testing
