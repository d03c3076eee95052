#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collectives by Open MPI work over two nodes, those by shared memory on one, and the reduction has
# the same bits for any number of ranks.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
[ -e "$BUILD/lib/chexnet-mpi.so" ] || skip_all "built without MPI"
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"

job "${four[@]}" "$probe" coll
all "collectives of four ranks" 4 '"library": "openmpi", "right": true'
job -N2 -n3 --distribution=cyclic "$probe" coll
all "collectives of three ranks" 3 '"library": "openmpi", "right": true'
job -N1 -n2 "$probe" coll
all "collectives of two ranks of one node" 2 '"library": "shm", "right": true'

digests() { sed 's/.*"digest": "\(.*\)".*/\1/' out | sort -u; }
for v in 4 6; do
    job -n1 "$probe" reduce logical_ranks=$v
    alone=$(digests)
    for n in 2 3 4; do
        job -N2 -n$n --distribution=cyclic "$probe" reduce logical_ranks=$v
        is "$rc $(wc -l <out) $(digests)" "0 $n $alone" "$v logical ranks: $n ranks have the bits of one"
    done
    job "${four[@]}" "$probe" reduce logical_ranks=$v fixed=0
    is "$rc $(digests | wc -l)" "0 1" "$v logical ranks, not fixed: four ranks agree"
done
job -N2 -n2 "$probe" reduce logical_ranks=1
is $rc 2 "fewer logical ranks than ranks: usage"
like "$(cat err)" 'logical-ranks 1: too few for 2 ranks' "the error has both numbers"

CHEX_LIBDIR=$SCRATCH job -N2 -n2 "$probe" coll
is $rc 4 "a missing MPI module ends with status 4"
like "$(cat err)" '2 ranks need MPI: module chexnet-mpi.so: .*cannot open' "and the loader's own text"
job -N2 -n2 "$probe" coll swap=1
is $rc 4 "an MPI that numbers the ranks otherwise: status 4"
like "$(cat err)" 'Open MPI v.* says rank (1 of 2 where pmix says rank 0|0 of 2 where pmix says rank 1) of 2: .*CHEX_MPI=mpich' \
    "what it says, and what to load"
# shellcheck disable=SC2016
job -N2 -n2 bash -c '[ $SLURM_PROCID = 0 ] || export CHEX_MPI=openmpi CHEX_LIBDIR=/nowhere; exec "$@"' odd "$probe" coll
is $rc 4 "a node without the module ends the job with status 4"
like "$(cat err)" 'rank 1 on n1: 2 ranks need MPI: module chexnet-mpi.so' "and is named"
done_testing
