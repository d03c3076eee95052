#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --audit-steps over three nodes: the node with a silent fault is named, and the run goes back.
. "$(dirname "$0")/lib.sh"
slurm_fixture --nodes 3 --set TaskPlugin=task/none
have chex-train || skip_all "chex-train is not built"
[ -e "$BUILD/lib/chexnet-mpi.so" ] || skip_all "built without MPI"
[ -x "$BUILD/tests/chex-train-faulty" ] || skip_all "no chex-train-faulty here"
chex-shard phantom --count 40 --size 32 --output ph -q >/dev/null
chex-shard create --images ph/images --labels ph/labels.csv --size 32 --shards 3 --split none \
    --output shards -q >/dev/null 2>&1
train() { # COMMAND OPTION...
    in_job -N3 --ntasks-per-node=1 "$1" --data shards --engine cpu --precision fp32 --threads 1 \
        --image-size 32 --batch-size 2 --deterministic --checkpoint-every 1steps "${@:2}"
}
# Rank 1 is wrong from step 3 on: two passes at the start, one in step 1, one in step 2.
export FAULTY_PASS=1:5-
expect_status 5 train "$BUILD/tests/chex-train-faulty" --audit-steps 2 --max-steps 9 --output run
like "$(err)" 'error: audit of step 8: rank 1 on n1 \(.*\) computed a wrong gradient .* repeated, it was wrong again' \
    "the node with the fault is named"
is "$(err | grep -c 'audit of step')" 1 "in one line of one rank"
unset FAULTY_PASS
is "$(cd run/checkpoints && echo step-*.h5)" step-0000000002.h5 \
    "the checkpoint of its last audit is kept beyond --checkpoint-keep"
expect_status 0 train chex-train --max-steps 5 --output run
like "$(err)" 'going on from step 2' "the next start goes on from the last one"
done_testing
