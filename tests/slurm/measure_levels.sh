#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the wall time of chex-env at levels 1 and 2, as steps of a cluster of two nodes on this
# machine: with 4 ranks, and with 64 ranks that share its CPUs. And what of it measurements take: the
# checks of level 2 of the rank that spends most time in them. Asserts no time.
#
#   CHEX_TEST_BUILD=build/release tests/slurm/measure_levels.sh
#
# CHEX_MEASURE_CHECKS=1 prints the time of each check of level 2, too.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
have chex-env || skip_all "chex-env is not built"

measure() { # RANKS LEVEL REPETITIONS
    local start end i status
    for ((i = 0; i < $3; i++)); do
        start=$EPOCHREALTIME
        in_job -N2 --overcommit --ntasks="$1" --distribution=plane=$(($1 / 2)) \
            chex-env --log-level debug --level "$2" >out 2>err
        status=$?
        end=$EPOCHREALTIME
        awk -v ranks="$1" -v level="$2" -v seconds="$(bc <<<"$end - $start")" -v status=$status '
            match($0, /\[r[0-9]+/) && / check [a-z-]+ took / {
                rank = substr($0, RSTART, RLENGTH)
                if ($(NF - 3) ~ /-(rate|share|bits)$/) sum[rank] += $(NF - 1)
            }
            END { for (r in sum) if (sum[r] > most) most = sum[r]
                  printf "# %2d ranks, level %d: %6.2f s, of them %6.2f s in measurements; status %d\n",
                      ranks, level, seconds, most, status }' err
    done
    # A verdict on this machine is no failure.
    [[ $status = [045] ]]
    ok $? "chex-env --level $2 answers with $1 ranks" || diag "$(tail -n 5 out err)"
    [ -z "${CHEX_MEASURE_CHECKS-}" ] || [ "$2" = 1 ] ||
        diag "$(grep -o 'r0/.* check .*took.*' err | sort -t'k' -rn -k 5 | head -n 60)"
}

measure 4 1 3
measure 4 2 3
measure 64 1 2
measure 64 2 2
done_testing
