#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints, for each way in which srun connects ranks, the time from the start of srun to its end with one
# exchange, the median peak memory of a rank, and the requests to slurmctld: two nodes on this machine, 4
# and 64 ranks that share its CPUs. With strace: the calls about files of rank 0 and of rank 1. Asserts
# no time.
#
#   CHEX_TEST_BUILD=build/release tests/slurm/measure_launch.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none

step() { # METHOD RANKS COMMAND...
    in_job --mpi="$1" -N2 --overcommit --ntasks="$2" --distribution=plane=$(($2 / 2)) "${@:3}" >out 2>err
}
requests() {
    sdiag | awk '/by message type/ { on = 1 } /by user/ { on = 0 } on && /count:/ { sub(/.*count:/, ""); n += $1 }
        END { print n + 0 }'
}
for method in pmix pmi2 none; do
    for ranks in 4 64; do
        for ((i = 0; i < 3; i++)); do
            before=$(requests) start=$EPOCHREALTIME
            rm -f rss.*
            step "$method" $ranks sh -c 'exec "$1" rss.$SLURM_PROCID "$2" exchange rounds=1' _ \
                "$BUILD/tests/peak_rss" "$BUILD/tests/launch_probe"
            status=$? end=$EPOCHREALTIME
            printf '# %-5s %2d ranks: %5.2f s, %6d KiB a rank, %3d requests to slurmctld; status %d\n' \
                "$method" $ranks "$(bc <<<"$end - $start")" "$(cat rss.* | sort -n | sed -n "$((ranks / 2))p")" \
                $(($(requests) - before)) $status
        done
        is "$status" 0 "$ranks ranks start by $method"
    done
    if command -v strace >/dev/null; then
        step "$method" 64 sh -c '[ $SLURM_PROCID -lt 2 ] || exec "$@"
            exec strace -f -c -e trace=%file,close,read,pread64,write,pwrite64,fcntl -o strace.$SLURM_PROCID "$@"' _ \
            "$BUILD/tests/launch_probe" exchange rounds=10
        for rank in 0 1; do
            echo "# $method, 64 ranks, rank $rank, ten exchanges:$(awk '$NF ~ /^(open|openat|close|pread64|pwrite64|readlinkat|fcntl)$/ {
                printf " %s %d", $NF, $4 }' strace.$rank)"
        done
    fi
done
done_testing
