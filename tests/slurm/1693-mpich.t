#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MPICH carries the messages of two nodes under each launch method: the bits are those of Open MPI, also
# after a killed rank and a resume.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
need_training
[ -e "$BUILD/lib/chexnet-mpich.so" ] || skip_all "built without MPICH: no libmpich-dev"
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"
methods=(pmix pmi2 none) # values of srun --mpi
# The nodes of the fixture are one machine without common memory, which UCX does not expect.
export UCX_TLS=tcp,self

phantom_shards 60 2
train() { # METHOD NODES RANKS MPI RUN [OPTION...]
    CHEX_MPI=$4 in_job "--mpi=$1" "-N$2" "-n$3" --overcommit --cpu-bind=none chex-train --data shards --engine cpu --threads 1 \
        --image-size 32 --batch-size 2 --seed 5 --deterministic --logical-ranks 4 --epochs 100000 --output "$5" "${@:6}"
}
# The digest of the last state.
state() { tail -n 1 "$1/checkpoints.jsonl" | grep -o '"digest":"[^"]*"'; }

expect_status 0 train pmix 2 2 openmpi whole --max-steps 12
like "$(err)" "2 ranks: Open MPI" "the log names Open MPI"
expect_status 0 train pmix 1 2 "" node --max-steps 12
like "$(err)" "2 ranks of one node: shared memory" "the ranks of one node need no MPI"
is "$(state node)" "$(state whole)" "shared memory has the bits of Open MPI"

for method in "${methods[@]}"; do
    job "--mpi=$method" "${four[@]}" env CHEX_MPI=mpich "$probe" coll
    all "$method: collectives of four ranks" 4 '"library": "mpich", "right": true'
    for n in 2 4; do
        expect_status 0 train "$method" 2 $n mpich "$method$n" --max-steps 12
        like "$(err)" "$n ranks: MPICH Version: [0-9.]+" "$method: the log names MPICH and its version"
        is "$(state "$method$n")" "$(state whole)" "$method: $n ranks by MPICH have the bits of Open MPI"
    done
    train "$method" 2 2 mpich "$method" --stall-abort 20s --checkpoint-every 2steps >killed.out 2>&1 &
    wait_for grep -qs '"step":[4-9]' "$method/checkpoints.jsonl"
    signal_ranks KILL 1
    wait $!
    like "$?" "^(7|137)$" "$method: a killed rank ends the job"
    done=$(tail -n 1 "$method/checkpoints.jsonl" | grep -o '"step":[0-9]*')
    expect_status 0 train "$method" 2 2 mpich "$method" --max-steps $((${done#*:} + 3))
    expect_status 0 train pmix 1 2 "" "$method-whole" --max-steps $((${done#*:} + 3))
    is "$(state "$method")" "$(state "$method-whole")" "$method: the resumed run has the bits of one without a fault"
done

CHEX_MPI=mpich expect_status 0 in_job -N2 -n2 chex-env -v
like "$(out)" "^modules +pass +mpich loads" "chex-env loads the one that is asked for"
CHEX_MPI=openmpi expect_status 0 in_job -N2 -n2 chex-env -v
like "$(out)" "^modules +pass +mpi loads" "or the other one"
# shellcheck disable=SC2016
expect_status 4 in_job -N2 -n2 bash -c 'CHEX_MPI=$([ $SLURM_PROCID = 0 ] && echo mpich || echo openmpi) exec "$0" coll' "$probe"
like "$(err)" "error: rank 0 would use mpich, rank 1 openmpi: CHEX_MPI and the modules must be the same on all nodes" \
    "ranks that would use different libraries are refused"
done_testing
