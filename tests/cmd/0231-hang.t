#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A rank that hangs in a library while it sets up is ended by the stall watch, and by a second
# signal.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
common=(--data set --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu --threads 1 --stall-abort 1h)
hangs() { # IN COMMAND...: files of this name hang
    LD_PRELOAD=$BUILD/tests/fake/h5_hang.so HANG_IN=$1 "${@:2}" --stall-abort "$stall"
}

began=${EPOCHREALTIME/./}
expect_status 0 chex-train "${common[@]}" --max-steps 1 --output run -q
stall=$((2 + 10 * (${EPOCHREALTIME/./} - began) / 1000000))s # no busy machine stalls a start for so long
expect_status 7 hangs val-00001 chex-train "${common[@]}" --max-steps 1 --output other
error_line 'stalled: rank 0 on .+ has been opening the shards before the first step, for [0-9]+ s' \
    "a hang in opening a shard"
expect_status 7 hangs run/last chex-train "${common[@]}" --max-steps 2 --output run --resume run/last.h5
error_line 'stalled: rank 0 on .+ has been reading checkpoints before the first step, for' \
    "a hang in reading a checkpoint"
expect_status 7 hangs val-00001 chex-train "${common[@]}" --plan --max-steps 1 --output other
error_line 'stalled: rank 0 on .+ has been opening the shards' "a hang in a plan"

# asked STATUS SIGNAL...: signals to a run that hangs, more than two seconds apart.
asked() {
    local want=$1 pause=0 signal pid
    shift
    LD_PRELOAD=$BUILD/tests/fake/h5_hang.so HANG_IN=val-00001 chex-train "${common[@]}" \
        --max-steps 1 --output other 2>err &
    pid=$!
    usr2_set $pid chex-train SigCgt # from here on signals ask it to save
    for signal; do
        sleep $pause
        pause=2.5
        kill "-$signal" $pid
    done
    wait $pid 2>/dev/null
    is $? "$want" "$*: status $want"
}
asked 143 TERM TERM
like "$(err)" 'second signal: ending at once, without saving' "the second signal is reported"
asked 130 TERM INT

# Two signals at once are one request, as timeout and mpirun pass them on.
chex-train "${common[@]}" --epochs 100000 --output once 2>err &
pid=$!
wait_for grep -qs '"step":2,' once/metrics.jsonl
kill -TERM $pid
kill -INT $pid
wait $pid
is $? 6 "TERM and INT at once: saved"

if mpi_ranks 3; then
    HANG_ON=2 expect_status 7 hangs train-0000 "${ranks[@]}" chex-train "${common[@]}" --max-steps 1 --output other
    like "$(err)" 'error: stalled: rank [01] on .+ has been waiting for the other ranks before the first step, for .*; rank 2 on .+ has been opening the shards for [0-9]+ s; ranks 0-1 wait; ending the job' \
        "of several ranks the one that hangs is named"
else
    skip "no mpirun here" 2
fi
done_testing
