#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# In a Slurm job the end of a run says what was asked, what was used and what to ask for next time.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40 --shards 1 --fractions 0.4,0.5,0.1
train=(chex-train --data set --model densenet_tiny --image-size 32 --batch-size 8 --engine cpu --threads 1 --epochs 2)
now=$(date +%s)
job=(env SLURM_JOB_ID=7 SLURM_MEM_PER_NODE=65536 SLURM_JOB_START_TIME=$((now - 600))
    SLURM_JOB_END_TIME=$((now + 6600)))

expect_status 0 "${train[@]}" --max-steps 1 --output run
unlike "$(err)" 'job: asked' "outside of a job there is no such line"
expect_status 0 "${job[@]}" "${train[@]}" --output whole
like "$(err)" 'job: asked for 64.0 GiB a node, 2h00m; used [0-9.]+ cores a task, [0-9.]+ MiB a node, 1[0-9]m[0-9]+s; next time ask for --mem=[0-9]+[MG] --time=0:[1-4][0-9]:00$' \
    "memory and time are compared with the request"
expect_status 0 "${job[@]}" "${train[@]}" --output run
like "$(err)" 'job: asked .*; next time ask for --mem=[0-9]+[MG]$' "a job that did a part of the run says nothing about time"
done_testing
