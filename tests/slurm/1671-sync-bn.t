#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --sync-bn over several ranks and nodes: the bits of one rank, and an end with 7 if a rank stops in
# the middle of its passes.
# shellcheck source=tests/slurm/lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture

chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q >ph.out
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
    --fractions 0.6,0.2,0.2 --output shards -q >shards.out 2>&1
common=(--data shards --image-size 32 --batch-size 2 --lr 1e-3 --seed 3 --engine cpu --threads 1
    --logical-ranks 4 --sync-bn)

train() { # NAME RANKS OPTION...
    local name=$1 ranks=$2
    shift 2
    in_job -N2 -n"$ranks" --cpu-bind=none chex-train "${common[@]}" "$@" --output "$name" \
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
stop_rank() { # RANK, once the run is under way
    local pid
    for _ in $(seq 200); do
        [ ! -s stopped/metrics.jsonl ] || break
        sleep 0.1
    done
    for pid in $(pgrep -x chex-train); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxF "SLURM_CONF=$SLURM_CONF" || continue
        ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxF "SLURM_PROCID=$1" ||
            kill -STOP "$pid"
    done
}
stop_rank 1 &
train stopped 2 --epochs 5000 -q --stall-warn 1s --stall-abort 3s
wait
is $status 7 "a rank that stops: exit 7"
like "$(cat stopped.err)" 'r0/2 n0\] error: stalled: rank 0 on n0 has been (exchanging batch statistics|reducing gradients|waiting for the other ranks|validating|saving a checkpoint) .*; rank 1 on n1 does not answer' \
    "the other one names it"
done_testing
