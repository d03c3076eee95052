#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints are written in the background. Nothing is lost by a kill, a signal or a full disk.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"
need h5diff

chex-shard phantom --count 60 --size 32 --seed 2 --output ph -q >ph.out
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
    --fractions 0.8,0.1,0.1 --output set -q >set.out 2>&1
become() { # OUTPUT OPTION...: 6 steps an epoch
    exec chex-train --data set --model densenet_tiny --image-size 32 --batch-size 8 --engine cpu --threads 1 \
        --seed 3 --opt sgd --lr 1e-3 --output "$@" 2>"$1.err"
}
train() { (become "$@"); }
log() { # RUN KEY...: these keys of each line of checkpoints.jsonl
    local run=$1 key
    shift
    while IFS= read -r line; do
        for key in "$@"; do
            grep -oE "\"$key\":[^,}]+" <<<"$line" | cut -d: -f2 | tr '\n' ' '
        done
        echo
    done <"$run/checkpoints.jsonl" | sed 's/ *$//'
}
digest_of() { log "$1" step digest | grep "^$2 " | tail -n 1; } # RUN STEP

expect_status 0 train whole --epochs 3 --checkpoint-keep 0
is "$(log whole step epoch validation_due | paste -sd,)" "6 1 false,12 2 false,18 3 false" \
    "an epoch with a short validation writes one checkpoint"
is "$(ls whole/checkpoints | paste -sd,)" "step-0000000006.h5,step-0000000012.h5,step-0000000018.h5" \
    "the files are those of checkpoints.jsonl"
expect_status 0 train steps --epochs 2 --checkpoint-every 3steps --checkpoint-keep 0
is "$(log steps step validation_due | paste -sd,)" \
    "3 false,6 true,6 false,9 false,12 true,12 false" \
    "a save that is due at the last step of an epoch is made before the validation too"
is "$(digest_of steps 12)" "$(digest_of whole 12)" "the state does not depend on how often it is saved"
is "$(digest_of steps 6 | cut -d' ' -f2)" "$(log steps step digest | grep '^6 ' | head -n 1 | cut -d' ' -f2)" \
    "a validation changes no state"

# Every few epochs: also the best one, and the last.
expect_status 0 train few --epochs 4 --checkpoint-every 3epochs --checkpoint-keep 0
wanted=$(grep '"kind":"epoch"' few/metrics.jsonl |
    sed -E 's/.*"epoch":([0-9]+),"step":([0-9]+).*"best":(true|false).*/\1 \2 \3/' |
    awk '$3 == "true" || $1 == 3 || $1 == 4 { print $2 }' | paste -sd,)
is "$(log few step | paste -sd,)" "$wanted" \
    "--checkpoint-every 3epochs saves every third epoch, the best so far and the last"
for bad in 3epoch epochs -1epochs 0steps 0epochs 0s 3; do
    expect_status 2 train bad --epochs 1 "--checkpoint-every=$bad"
done
like "$(cat bad.err)" "checkpoint-every: '3' is not valid: expected a time such as 30m, steps such as 500steps, or epochs such as 2epochs; more than 0$" \
    "a bad interval is refused"

# await_write RUN: until the process $pid writes a checkpoint of the run, which takes some milliseconds.
await_write() {
    local from
    from=$(compgen -G "$1/checkpoints/*.tmp.*")
    until [ "$(compgen -G "$1/checkpoints/*.tmp.*")" != "$from" ] || ! kill -0 $pid 2>/dev/null; do :; done
}
# A kill at any moment of a write leaves the checkpoint before it.
for delay in 0 0.001 0.002; do
    become killed --epochs 3 --checkpoint-every 1steps &
    pid=$!
    await_write killed
    sleep $delay
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
done
expect_status 0 train killed --epochs 3 --checkpoint-every 30m
is "$(digest_of killed 18)" "$(digest_of whole 18)" "killed three times while it wrote, the run ends in the same state"
is "$(find killed -name '*.tmp.*' | wc -l)" 0 "no temporary file is left"
is "$(log killed step | sort -n -c 2>&1)" "" "checkpoints.jsonl is in order of the steps"

# A kill between the file and its line: the next start adds it.
sed -i '$d' killed/checkpoints.jsonl
expect_status 0 train killed --epochs 4
is "$(digest_of killed 18)" "$(digest_of whole 18)" "a line that a kill has prevented is added when the run is resumed"

# A signal while a checkpoint is written: both are on disk, then exit 6.
become term --epochs 300 --checkpoint-every 3steps --checkpoint-keep 0 &
pid=$!
await_write term
kill -TERM $pid
wait $pid
is $? 6 "TERM while a checkpoint is written: exit 6"
step=$(grep -oE 'saved at step [0-9]+' term.err | grep -oE '[0-9]+$')
is "$(log term step | tail -n 1)" "$step" "the file of the step that the log names is whole"
[ -s "term/checkpoints/step-$(printf %010d "$step").h5" ] && h5diff "term/checkpoints/step-$(printf %010d "$step").h5" term/last.h5
ok $? "last.h5 is that checkpoint"
is "$(log term step | head -n 1)" 3 "the one that was being written before it is whole too"

# Memory that ends. Below the first limit the loader of shared libraries fails.
statuses() { # COMMAND...: its statuses under limits of its address space, until it succeeds
    local limit status
    for ((limit = 70000; limit < 600000; limit += 6000)); do
        rm -rf less && cp -r tiny less
        (ulimit -v $limit && exec "$@") >less.out 2>less.err
        status=$?
        [ $status = 127 ] || echo $status
        [ $status != 0 ] || return 0
    done | sort -n | uniq -c | sed 's/^ *[0-9]* *//' | paste -sd,
}
small=(--model densenet_tiny --data set --image-size 32 --batch-size 4 --engine cpu --threads 1 --workers 1 --seed 3)
expect_status 0 chex-train "${small[@]}" --output tiny --max-steps 1
is "$(statuses chex-train "${small[@]}" --output fresh --max-steps 1)" "0,9" \
    "memory that ends at any moment of a run is status 9"
is "$(statuses chex-train "${small[@]:2}" --output less --max-steps 2)" "0,9" \
    "memory that ends while a run resumes or saves is status 9"
# With some libraries their loader needs more than the export.
like "$(statuses chex-eval export --checkpoint less/best.h5 --output less/x.safetensors)" "^0(,9)?$" \
    "memory that ends while a checkpoint is exported is status 9"
is "$(statuses chex-eval --data set --split val --checkpoint less/best.h5 --output less/eval --engine cpu --threads 1)" "0,9" \
    "memory that ends during an evaluation is status 9"

# A full disk ends the run with 9 at the next exchange.
mkdir full
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=9m tmpfs full 2>/dev/null; then
    at_exit umount full
    train full/run --epochs 300 --checkpoint-every 4steps --checkpoint-keep 0
    is $? 9 "a full disk: exit 9"
    like "$(cat full/run.err)" 'error: .*No space left on device.*; make room and run again: it goes on from full/run/checkpoints/step-0000000006.h5$' \
        "the error names the checkpoint that the next start resumes from"
    is "$(log full/run step | paste -sd,)" "4,6" "checkpoints.jsonl has the whole files only"
    is "$(ls full/run/checkpoints | wc -l)" 2 "nothing is left of the third file"
    steps=$(grep -c '"kind":"step"' full/run/metrics.jsonl)
    [ "$steps" -ge 8 ]
    ok $? "the metrics go on until the run ends"
    if mpi_ranks 2; then
        rm -r full/run
        expect_status 9 "${ranks[@]}" chex-train --data set --model densenet_tiny --image-size 32 --batch-size 4 \
            --engine cpu --threads 1 --seed 3 --opt sgd --epochs 300 --checkpoint-every 4steps --checkpoint-keep 0 --output full/two
        error_line 'No space left on device.*it goes on from full/two/checkpoints/step-0000000006.h5$' \
            "all ranks end together with the error of rank 0"
    else
        skip "no mpirun here" 2
    fi
else
    skip "cannot mount a tmpfs here" 7
fi
done_testing
