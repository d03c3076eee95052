#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# If training on four ranks and two nodes makes no progress, one rank names the rank and node that
# the others wait for, and the job ends with 7.
# shellcheck source=tests/slurm/lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture
need_training

phantom_shards 160 4
common=(--data shards --image-size 32 --batch-size 2 --lr 1e-3 --seed 3 --engine cpu --threads 1
    --epochs 100000 -q)

train() { # NAME [WRAPPER]: four ranks into the folder NAME; log in NAME.err, status in $status
    local name=$1
    shift
    in_job -N2 -n4 --ntasks-per-node=2 --cpu-bind=none "$@" "${common[@]}" \
        "${limits[@]}" --output "$name" \
        >"$name.out" 2>"$name.err"
    status=$?
    wait
}

after_a_while() { # NAME COMMAND: once the run is under way
    wait_for grep -qs '"step":5,' "$1/metrics.jsonl"
    "${@:2}"
}

# The report: once, by the lowest rank that still runs.
place='(reducing gradients|waiting for the other ranks) at step [0-9]+(, bucket [1-9] of [1-9])?'
named() { # NAME REPORTER WHO WAITERS
    is $status 7 "$1: exit 7"
    is "$(grep -c 'error: ' <(grep '^chex-train' "$1.err"))" 1 "$1: one rank says why"
    like "$(cat "$1.err")" "^chex-train\[r$2/4 n[01]\] error: stalled: rank [0-3] on n[01] has been $place, for [0-9]+ s \(--stall-abort\); $3; $4; ending the job" \
        "$1: rank $2 names who, and where"
}

# On a busy machine a rank that is well may need seconds to answer.
limits=(--stall-warn 1500ms --stall-abort 10s)
after_a_while one signal_ranks STOP 3 &
train one chex-train
named one 0 'rank 3 on n1 does not answer \(stopped, gone or cut off\)' 'ranks 0-2 wait'
like "$(cat one.err)" 'warn: no progress for [0-9]+ s: .*(rank 3|ranks 2-3) on n1 do(es)? not answer' \
    "and so did a warning"

after_a_while first signal_ranks STOP 0 &
train first chex-train
named first 1 'rank 0 on n0 does not answer \(stopped, gone or cut off\)' 'ranks 1-3 wait'

# A node that is gone, as far as the others can see: its ranks, its daemon and its step's.
freeze_n1() {
    local pid daemons=()
    for pid in $(processes 'slurmd|slurmstepd'); do
        [ "$(nsenter -t "$pid" -u hostname)" != n1 ] || daemons+=("$pid")
    done
    kill -STOP "${daemons[@]}"
    signal_ranks STOP 2 3
    wait_for grep -qs 'error: stalled' node.err
    kill -CONT "${daemons[@]}" # so that the cluster can be taken down
}
after_a_while node freeze_n1 &
train node chex-train
named node 0 'ranks 2-3 on n1 do not answer \(stopped, gone or cut off\)' 'ranks 0-1 wait'

# A rank that is alive says itself what it waits for. Reads that take long stand for a slow disk.
cat >slow-disk <<'END'
#!/bin/bash
[ "$SLURM_PROCID" != 2 ] || exec strace -f -qq -o /dev/null -e trace=pread64 \
    -e inject=pread64:delay_enter=20000000:when=100+ "$@"
exec "$@"
END
chmod +x slow-disk
if command -v strace >/dev/null; then
    train data ./slow-disk chex-train --cache none
    named data 0 'rank 2 on n1 has been waiting for data for [0-9]+ s' 'the other 3 ranks wait'
else
    echo "# no strace: a rank that waits for data is not tried"
fi

# One that dies is named by Slurm, which ends the others.
limits=(--stall-warn 100s --stall-abort "${CHEX_TEST_WAIT}s")
after_a_while dead signal_ranks KILL 3 &
train dead chex-train
is "$((status != 0))" 1 "a rank is killed: the job ends"
like "$(cat dead.err)" 'n1: tasks? (2-)?3: Killed' "and srun names it"

# A job that was suspended as a whole has not stalled.
limits=(--stall-warn 8s --stall-abort 10s)
suspended() {
    signal_ranks STOP 0 1 2 3
    sleep 12
    signal_ranks CONT 0 1 2 3
    goes_on() { [ "$(steps suspended)" -gt "$1" ]; }
    wait_for goes_on $(($(steps suspended) + 9))
    signal_ranks USR2 0 1 2 3
}
after_a_while suspended suspended &
train suspended chex-train
is $status 6 "suspended for longer than --stall-abort: it goes on"
is "$(grep -c 'no progress\|stalled' suspended.err)" 0 "and nothing is said"
done_testing
