#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Collectives by MPI over two nodes, and the reduction that has the same bits for any number of
# ranks.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
[ -e "$build_dir/lib/chexnet-mpi.so" ] || skip_all "built without MPI"
# shellcheck disable=SC2119
slurm_fixture
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"

job "${four[@]}" "$probe" coll
all "collectives of four ranks" 4 '"library": "mpi", "right": true'
job -N2 -n3 --distribution=cyclic "$probe" coll
all "collectives of three ranks" 3 '"library": "mpi", "right": true'

digests() { sed 's/.*"digest": "\(.*\)".*/\1/' out | sort -u; }
for v in 4 6; do
    job -n1 "$probe" reduce logical_ranks=$v
    alone=$(digests)
    for n in 2 3 4; do
        job -N2 -n$n --distribution=cyclic "$probe" reduce logical_ranks=$v
        is "$v logical ranks: $n ranks have the bits of one" "$rc $(wc -l <out) $(digests)" \
            "0 $n $alone"
    done
    job "${four[@]}" "$probe" reduce logical_ranks=$v fixed=0
    is "$v logical ranks, not fixed: four ranks agree" "$rc $(digests | wc -l)" "0 1"
done
job -n2 "$probe" reduce logical_ranks=1
is "fewer logical ranks than ranks: usage" $rc 2
like "with both numbers" "$(cat err)" '1 logical ranks are too few for 2 ranks'

CHEX_LIBDIR=$scratch job -n2 "$probe" coll
is "without the module: status 4" $rc 4
like "and the loader's own text" "$(cat err)" '2 ranks need MPI: module chexnet-mpi.so: .*cannot open'
job -n2 "$probe" coll swap=1
is "an MPI that numbers the ranks otherwise: status 4" $rc 4
like "and what it says" "$(cat err)" 'MPI says rank 1 of 2 where pmix says rank 0 of 2'
done_testing
