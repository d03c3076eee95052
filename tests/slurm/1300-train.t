#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The four srun lines work on two nodes with two fake GPUs each, and results do not depend on the
# number of ranks. The first training and its evaluation are of the whole network.
# shellcheck source=tests/slurm/lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture

gpus=(-N2 -n4 --ntasks-per-node=2 --gpus-per-task=1 --cpu-bind=none)
run() { # NAME srun arguments: output in NAME.out and NAME.err, status in $status
    local name=$1
    shift
    in_job "$@" >"$name.out" 2>"$name.err"
    status=$?
    [ $status = 0 ] || diag "$(tail -n 5 "$name.err")"
}

chex-shard phantom --count 160 --size 32 --seed 2 --output ph -q

run env "${gpus[@]}" chex-env
like "$status" '^[04]$' "chex-env answers under srun"
run shard -N2 -n4 --ntasks-per-node=2 --cpu-bind=none chex-shard --images ph/images \
    --labels ph/labels.csv --size 32 --shards 4 --split patient --fractions 0.6,0.2,0.2 --output shards
is $status 0 "chex-shard on 4 ranks"
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 4 --split patient \
    --fractions 0.6,0.2,0.2 --output alone -q
diff -r shards/train alone/train
ok $? "4 ranks and one make the same shards"
chex-shard verify shards -q
ok $? "chex-shard verify agrees"

common=(--data shards --image-size 32 --batch-size 2 --lr 1e-3 --seed 3)
run refused "${gpus[@]}" chex-train "${common[@]}" --max-steps 2 --output refused
is $status 4 "a GPU was allotted and cannot be used: refused"
like "$(cat refused.err)" '--engine cpu' "and the remedy is named"

# shellcheck disable=SC2016
run traced -N2 -n4 --ntasks-per-node=2 --cpu-bind=none bash -c \
    'strace -f -qq -e trace=openat -o trace.$SLURM_PROCID chex-train "$@"' strace \
    "${common[@]}" --engine cpu --threads 1 --max-steps 2 --output traced
run train "${gpus[@]}" chex-train "${common[@]}" --engine cpu --threads 1 --epochs 1 --output run
is $status 0 "chex-train on 4 ranks with --engine cpu"
is "$(grep -cE 'rank [0-3]/4, n[01],' train.err)" 4 "one line a rank"
is "$(grep -cE 'rank [0-3]/4, n1,' train.err)" 2 "two of them on n1"
is "$(grep -cE 'slowest rank ([01] on n0|[23] on n1) ' train.err)" 2 \
    "the epoch and the end name the slowest rank and its host"
is "$(find run -name last.h5 | wc -l)" 1 "one checkpoint"
is "$(find run -name 'events.*' | wc -l)" 1 "one event file"
is "$(grep -c '"local_rank"' run/ranks.json)" 4 "ranks.json has four ranks"

run eval "${gpus[@]}" chex-eval --data shards --checkpoint run/best.h5 --engine cpu --threads 1 \
    --output eval4
is $status 0 "chex-eval on 4 ranks"
chex-eval --data shards --checkpoint run/best.h5 --engine cpu --output eval1 >/dev/null 2>&1
cmp eval4/predictions.csv eval1/predictions.csv
ok $? "4 ranks and one make the same predictions"
rows=$(($(wc -l <eval4/predictions.csv) - 1))
is "$(tail -n +2 eval4/predictions.csv | cut -d, -f1 | sort -u | wc -l)" $rows "each image once"

# Shards are read by their owners only: 4 ranks, 4 shards of equal size, order local.
if command -v strace >/dev/null && ls trace.* >/dev/null 2>&1; then
    for shard in 0 1 2 3; do
        is "$(grep -l "train-0000$shard-of-00004.h5" trace.* | wc -l)" 1 "train shard $shard is opened by one rank"
    done
else
    echo "# no strace: who opens which shard is not checked"
fi

# The same bits from 1, 2 and 4 ranks with four logical ranks.
export CHEX_MODEL=densenet_tiny
fixed=("${common[@]}" --engine cpu --threads 1 --logical-ranks 4 --deterministic --epochs 9 --max-steps 8
    --ema 0.9)
chex-train "${fixed[@]}" --output r1 -q
for n in 2 4; do
    run r$n -N2 -n$n --ntasks-per-node=$((n / 2)) --cpu-bind=none chex-train "${fixed[@]}" --output r$n -q
    is $status 0 "8 steps on $n ranks"
    h5diff r1/last.h5 r$n/last.h5 /params /params
    ok $? "$n ranks: the parameters of one, to the last bit"
    h5diff r1/last.h5 r$n/last.h5 /moment2 /moment2 && h5diff r1/last.h5 r$n/last.h5 /ema /ema
    ok $? "and the moments and the moving average"
done
# Three ranks share four logical ones unevenly.
run r3 -N2 -n3 --cpu-bind=none chex-train "${fixed[@]}" --output r3 -q
h5diff r1/last.h5 r3/last.h5 /params /params
ok $? "3 ranks: the same"

# Stopped on four ranks, gone on with two.
stop=("${fixed[@]/8/3}")
run p4 -N2 -n4 --ntasks-per-node=2 --cpu-bind=none chex-train "${stop[@]}" --output part -q
run p2 -N2 -n2 --ntasks-per-node=1 --cpu-bind=none chex-train "${fixed[@]}" --output part -q
h5diff r1/last.h5 part/last.h5 /params /params && h5diff r1/last.h5 part/last.h5 /ema /ema
ok $? "4 ranks, then 2: the same bits"

# An error of the command line is reported once, by exactly one rank.
# shellcheck disable=SC2016
each=(-N2 -n4 --ntasks-per-node=2 --cpu-bind=none bash -c
    'chex-train "${@:2}" $([ $SLURM_PROCID != "$1" ] || echo --nonsense)' each)
in_job -N2 -n4 --ntasks-per-node=2 --cpu-bind=none chex-train --nonsense 2>wrong.err
is $? 2 "an unknown option on all ranks: exit 2"
is "$(grep -c "^chex-train.*error: unknown option '--nonsense'" wrong.err)" 1 "one line says so"
in_job -N2 -n4 --ntasks-per-node=2 --cpu-bind=none chex-eval 2>wrong.err
is "$? $(grep -c '^chex-eval.*error: chex-eval needs --data' wrong.err)" "2 1" "chex-eval: the same"
for rank in 0 2; do
    in_job "${each[@]}" $rank "${common[@]}" --engine cpu --output wrong 2>wrong.err
    is $? 2 "a wrong option on rank $rank alone ends with status 2"
    is "$(grep -c "^chex-train.*error: unknown option '--nonsense'" wrong.err)" 1 "it says so"
    unlike "$(cat wrong.err)" "did not come" "and no other rank waits until its limit"
done

# A signal to all tasks: all save at one step and leave with 6.
(
    wait_for grep -qs '"kind":"step"' sig/metrics.jsonl
    chex-train "${common[@]}" --engine cpu --threads 1 --output sig >second.out 2>second.err
    echo $? >second.status
    scancel -s USR2 "$(squeue -h -o %A | head -n 1)"
) &
run sig -N2 -n4 --ntasks-per-node=2 --cpu-bind=none chex-train "${common[@]}" --engine cpu --threads 1 \
    --epochs 100000 --output sig
wait
is $status 6 "USR2 to the step: exit 6"
is "$(grep -c 'asked to stop: saved' sig.err)" 1 "one rank says so"
is "$(cat second.status)" 4 "a second run on its folder: exit 4"
like "$(cat second.err)" 'error: output folder sig is in use by process [0-9]+ on n0, job [0-9]+' \
    "which names the process, its node and its job"
done_testing
