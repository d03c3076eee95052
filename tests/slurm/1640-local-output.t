#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# An output folder that the nodes do not share is refused before the first step.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
need_training
phantom_shards 40 2
train() {
    in_job -N2 --ntasks-per-node=2 chex-train --data shards --output "$1" --engine cpu --threads 1 \
        --image-size 32 --batch-size 4 --max-steps 1 --epochs 1
}
expect_status 4 train /dev/shm/run
is "$(err | grep -c 'does not see the folder of rank 0')" 1 "a local output folder is refused, in one line"
like "$(err)" "error: rank 2 on n1: --output /dev/shm/run: node n1 does not see .*name a folder that all nodes share" \
    "the line names the folder and the node, and what to do"
is "$(in_job -N1 -w n0 ls /dev/shm)" "" "the refused run leaves no folder on the node of rank 0"
in_job -N1 -w n0 mkdir /dev/shm/kept
expect_status 4 train /dev/shm/kept
is "$(in_job -N1 -w n0 ls /dev/shm)" "kept" "a folder that was there stays"
expect_status 0 train run
unlike "$(err)" "does not see" "a shared folder is not reported"
expect_status 0 train run
unlike "$(err)" "does not see" "a run that goes on in a shared folder is not reported"
done_testing
