#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The ranks of one node exchange data by shared memory, without MPI and with its bits.
source "$(dirname "$0")/lib.sh"
mpi_ranks 2 || skip_all "no mpirun that starts ranks here"

phantom_set 40
mkdir none
train() { # MPI RUN [OPTION...]
    CHEX_MPI=$1 "${ranks[@]}" chex-train --model densenet_tiny --data set --engine cpu --threads 1 --image-size 32 \
        --batch-size 2 --logical-ranks 2 --deterministic --epochs 100000 --output "$2" "${@:3}"
}
state() { tail -n 1 "$1/checkpoints.jsonl" | grep -o '"digest":"[^"]*"'; }

CHEX_LIBDIR=$PWD/none expect_status 0 train "" shm --max-steps 4
like "$(err)" "2 ranks of one node: shared memory" "a build without MPI trains on several ranks of a node"
for mpi in openmpi mpich; do
    module=$BUILD/lib/chexnet-${mpi/openmpi/mpi}.so
    [ -e "$module" ] || { skip "built without $mpi" 3; continue; }
    expect_status 0 train $mpi $mpi --max-steps 4
    unlike "$(err)" "shared memory" "CHEX_MPI=$mpi asks for MPI"
    is "$(state $mpi)" "$(state shm)" "$mpi has the bits of shared memory"
done
expect_status 2 train lam other --max-steps 4
like "$(err)" "error: .*CHEX_MPI: 'lam' is not valid: expected openmpi or mpich" "another value is refused"

# In another PID name space, as in a container, rank 1 does not find the segment of rank 0.
if [ -e "$BUILD/lib/chexnet-mpi.so" ] && unshare -pf --mount-proc true 2>/dev/null; then
    # shellcheck disable=SC2016
    ranks+=(bash -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec unshare -pf --mount-proc "$@"; exec "$@"' apart)
    expect_status 0 train "" apart --max-steps 4
    like "$(err)" "warn: rank 1 on .*: shared memory: /proc/[0-9]+/fd/[0-9]+: .*: MPI is used" "MPI replaces memory that is not shared"
    is "$(state apart)" "$(state shm)" "it has the same bits"
    mpi_ranks 2
else
    skip "no Open MPI, or no right to make a PID name space" 3
fi

# A rank that is killed leaves no segment and no process.
train "" lost --max-steps 100000 >lost.out 2>&1 &
wait_for grep -qs '"kind":"step"' lost/metrics.jsonl
segments() { find /proc/[0-9]*/map_files -lname '*memfd:chexnet*' 2>/dev/null | cut -d/ -f3 | sort -u; }
processes=$(segments)
is "$(wc -w <<<"$processes")" 2 "two processes share a segment"
kill -9 "${processes##*$'\n'}"
wait $!
[ $? != 0 ]
ok $? "a killed rank ends the run"
is "$(segments)" "" "no process has the segment any more"
done_testing
