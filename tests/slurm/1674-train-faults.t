#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The fault matrix of doc/faults.md for four ranks on two nodes, and a lost node for one rank: one run meets one
# fault after the other, goes on after each with the stated status, and ends with the bits of an undisturbed one.
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --set TaskPlugin=task/none --disk 60m
need_training

phantom_shards 60 2
common=(--data shards --image-size 32 --batch-size 2 --logical-ranks 4 --seed 5 --deterministic --engine cpu
    --threads 1 --epochs 100000 --checkpoint-every 2steps --checkpoint-keep 2 --save-before-end off)
limits=(--stall-warn 2s --stall-abort 15s)
four=(srun --wait=2 -N2 -n4 --ntasks-per-node=2 chex-train "${common[@]}" "${limits[@]}")
one=(srun --wait=2 -N1 -n1 -w n1 chex-train "${common[@]}" "${limits[@]}")
run=$CLUSTER/disk/run
rank() { processes chex-train "$1"; }
last_step() { tail -n 1 "$1/metrics.jsonl" 2>/dev/null | grep -o '"step":[0-9]*' | grep -o '[0-9]*'; }
# start COMMAND...: starts or continues the run, and waits for three more steps.
start() {
    local before
    before=$(last_step "$run")
    timeout -k 5 "$CHEX_TEST_WAIT" "$@" --output "$run" --resume auto >out 2>err </dev/null &
    job=$!
    wait_for grep -qsE "\"step\":$((${before:-0} + 3))," "$run/metrics.jsonl" || diag "$(cat err)"
}
ends() { # STATUS NAME
    wait "$job"
    is $? "$1" "$2: status $1" || diag "$(tail -n 5 err)"
}

start "${four[@]}"
kill -9 "$(rank 3)"
wait "$job"
like $? '^(137|14)$' "a killed rank: status 137, or 14 if Open MPI 5 ended another one"
like "$(cat err)" 'n1: tasks? (2-)?3: Killed' "srun names the killed task and its node"

start "${four[@]}"
kill -STOP "$(rank 1)"
ends 7 "a stopped rank"
like "$(cat err)" 'error: stalled: .*rank 1 on n0 does not answer' "the stopped rank is named with its node"

start "${four[@]}"
scancel --signal=USR2 "$(squeue -hs -o %i | grep -v batch | sort -V | tail -n 1)"
ends 6 "a preempted run"
like "$(cat err)" 'asked to stop: saved at step [0-9]+' "it has saved"

# A node without power is down after SlurmdTimeout; setting it down saves the wait. No task of srun is left then,
# and its status is 0.
start "${one[@]}"
bash "$fixture" kill-node "$CLUSTER" n1
scontrol update NodeName=n1 State=DOWN Reason=power
wait "$job"
like "$(cat err)" 'Node failure on n1' "srun names the node"
bash "$fixture" start-node "$CLUSTER" n1

start "${four[@]}"
cat /dev/zero >"$CLUSTER/disk/other" 2>/dev/null
ends 9 "a full disk"
is "$(grep -c 'error: .*No space left on device.*; make room and run again' err)" 1 "one line of one rank says so"
rm "$CLUSTER/disk/other"

# Newest checkpoint truncated; last.h5 is the same file.
torn=$(find "$run"/checkpoints -name 'step-*.h5' | sort | tail -n 1)
truncate -s 1M "$torn"
end=$(($(last_step "$run") + 4))
timeout -k 5 "$CHEX_TEST_WAIT" "${four[@]}" --output "$run" --resume auto --max-steps $end >out 2>err </dev/null &
job=$!
ends 0 "a torn checkpoint"
like "$(cat err)" "warn: .*${torn##*/}" "all ranks go on from the one before, and the torn file is named"
chex-train "${common[@]}" --output whole --max-steps $end >/dev/null 2>&1
for group in params moment1 moment2; do
    h5diff whole/last.h5 "$run/last.h5" /$group /$group >/dev/null
    ok $? "after all of these faults $group has the bits of an undisturbed run"
done

timeout -k 5 "$CHEX_TEST_WAIT" "${four[@]}" --output nan --opt sgd --lr 1000 --weight-decay 1 --max-steps 50 >out 2>err </dev/null &
job=$!
ends 8 "a loss that is not finite"
is "$(find "$run" -name "*.tmp*")" "" "no fault leaves a partial file"
done_testing
