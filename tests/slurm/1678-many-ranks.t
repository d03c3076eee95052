#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sixteen ranks on two nodes, many more than there are cores, start, train and end. tests/scale.sh
# does it with 64.
# shellcheck source=tests/slurm/lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture
need_training
need h5diff

phantom_shards 80 2
train() { # OUTPUT: a step of 16 logical ranks
    chex-train --data shards --image-size 32 --batch-size 1 --engine cpu --threads 1 --seed 3 \
        --logical-ranks 16 --deterministic --epochs 1 --max-steps 1 -q --output "$1"
}
export -f train
in_job -N2 -n16 --ntasks-per-node=8 --overcommit --cpu-bind=none bash -c 'train many' 2>err
is $? 0 "16 ranks train" || diag "$(cat err)"
is "$(grep -c '"kind":"step"\|"step_ms"' many/metrics.jsonl)" 1 "one step is recorded"
is "$(grep -o '"local_rank"' many/ranks.json | wc -l)" 16 "ranks.json has all ranks"
train alone 2>err
h5diff many/last.h5 alone/last.h5 /params /params
ok $? "16 ranks have the parameters of one, to the last bit"
h5diff many/last.h5 alone/last.h5 /moment2 /moment2
ok $? "and the moments"
done_testing
