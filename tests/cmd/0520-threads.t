#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Training and evaluation work with as many threads as large nodes have cores. They report "out of
# memory" only if memory is out.
source "$(dirname "$0")/lib.sh"
need h5diff

chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
    --output shards -q
common=(--engine cpu --image-size 32 --batch-size 4 -q)
train() { # threads, option...
    chex-train --data shards --output "run$1" --model densenet_tiny "${common[@]}" --max-steps 2 --seed 3 --threads "$@"
}
evaluate() {
    chex-eval --data shards --checkpoint run1/last.h5 --output "eval$1" "${common[@]}" --threads "$1"
}

expect_status 0 train 1
expect_status 0 evaluate 1
for threads in 60 256 1024; do
    expect_status 0 train $threads
    h5diff run1/last.h5 run$threads/last.h5 /params /params
    ok $? "training with $threads threads gives the parameters of 1 thread"
    expect_status 0 evaluate $threads
    cmp eval1/predictions.csv eval$threads/predictions.csv
    ok $? "evaluation with $threads threads gives the predictions of 1 thread"
done

# Address space for the program and its libraries, but not for the network. The sanitizers need
# terabytes of addresses.
limited() {
    (ulimit -v 200000 && "$@")
}
if limited chex-train --version >/dev/null 2>&1; then
    expect_status 9 limited chex-train --bench 1 --engine cpu --batch-size 64
    error_line "out of memory" "a network that does not fit is out of memory"
else
    skip "a sanitizer reserves more addresses than the test allows" 2
fi
done_testing
