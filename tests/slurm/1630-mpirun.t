#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpirun inside an allocation, started where no rank runs: Open MPI counts that machine as node 0.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
need_training
need mpirun
export NO_COLOR=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# within NODES COMMAND...: four ranks of mpirun in an allocation of that many nodes.
within() { timeout -k 5 "$CHEX_TEST_WAIT" salloc -Q "-N$1" -n4 --overcommit mpirun --bind-to none -n 4 "${@:2}" </dev/null; }
for nodes in 1 2; do
    expect_status 0 within $nodes chex-env
    like "$(out)" "^fit to train: .*; 4 ranks on $nodes node" "chex-env under mpirun counts $nodes of $nodes nodes"
done
expect_status 4 within 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" != 3 ] || export OMPI_MCA_btl=^vader; exec chex-env'
like "$(out)" "^mpi-env +fail +rank 3 \\(n1\\): OMPI_MCA_btl=.vader" "settings of one rank are still named"
phantom_shards 40 2
expect_status 0 within 2 chex-train --data shards --output run --engine cpu --threads 1 --image-size 32 \
    --batch-size 4 --max-steps 1 --epochs 1
is "$(grep -o '"host": "[^"]*"' run/ranks.json | sort | uniq -c | tr -s ' \n' ' ')" \
    ' 2 "host": "n0" 2 "host": "n1" ' "a training under mpirun has two ranks on each node"
done_testing
