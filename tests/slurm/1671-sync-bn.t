#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --sync-bn over several ranks and nodes: the bits of one rank, and an end with 7 if a rank stops in
# the middle of its passes.
# shellcheck source=tests/slurm/lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture
need_training

phantom_shards 40 2
common=(--data shards --image-size 32 --batch-size 2 --lr 1e-3 --seed 3 --engine cpu --threads 1
    --logical-ranks 4 --sync-bn)

train() { # NAME RANKS OPTION...
    local name=$1 tasks=$2
    shift 2
    in_job -N2 -n"$tasks" --cpu-bind=none chex-train "${common[@]}" "$@" --output "$name" \
        >"$name.out" 2>"$name.err"
    status=$?
}

chex-train "${common[@]}" --deterministic --max-steps 2 --output one -q 2>one.err
is $? 0 "one rank plays four logical ranks"
for ranks in 3 4; do
    train "by$ranks" $ranks --deterministic --max-steps 2
    is $status 0 "$ranks ranks on two nodes play them"
    h5diff one/last.h5 "by$ranks/last.h5" /params /params >/dev/null &&
        h5diff one/last.h5 "by$ranks/last.h5" /moment2 /moment2 >/dev/null
    ok $? "$ranks ranks give the bits of one"
done

# Rank 1 is stopped, most likely in a pass.
{ wait_for [ -s stopped/metrics.jsonl ] && signal_ranks STOP 1; } &
train stopped 2 --epochs 100000 -q --stall-warn 2s --stall-abort 5s
wait
is $status 7 "a rank that stops: exit 7"
like "$(cat stopped.err)" 'r0/2 n0\] error: stalled: rank 0 on n0 has been (exchanging batch statistics|reducing gradients|waiting for the other ranks|validating|saving a checkpoint) .*; rank 1 on n1 does not answer' \
    "the other one names it"
done_testing
