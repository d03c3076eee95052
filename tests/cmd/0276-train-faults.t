#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The fault matrix of doc/faults.md for one process: each fault ends with the stated status, and the run
# that goes on ends with the bits of an undisturbed one.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

need chex-train chex-shard
phantom_set 40
common=(--data set --model densenet_tiny --image-size 32 --batch-size 1 --deterministic --seed 5 --engine cpu
    --threads 1 --opt sgd --checkpoint-every 2steps --save-before-end off)
train() { chex-train "${common[@]}" "$@"; }

# goes_on RUN: the next start ends the run, with the bits of `whole`.
goes_on() {
    expect_status 0 train "${whole[@]}" --output "$1" --resume auto
    is "$(last_digest "$1")" "$(last_digest whole)" "$1: the run that goes on has the bits of the undisturbed one"
}
last_digest() { tail -n 1 "$1/checkpoints.jsonl" | grep -oE '"(step|digest)":[^,]*'; } # of parameters and moments
more_saved() { [ "$(grep -c . "$1/checkpoints.jsonl")" -gt "$2" ]; } # RUN COUNT
# endless RUN: a run without end in the background, with two checkpoints.
endless() {
    chex-train "${common[@]}" --epochs 100000 --output "$@" 2>err &
    pid=$!
    wait_for grep -qs '"step":4,' "$1/checkpoints.jsonl"
}

endless killed
kill -9 $pid
wait $pid 2>/dev/null
is $? 137 "killed: status 137"
last=$(find killed/checkpoints -name 'step-*.h5' | sort | tail -n 1)

# The same run goes on from each state of its folder.
cp -r killed torn
truncate -s 1M "torn/${last#killed/}"
cp "torn/${last#killed/}" torn/last.h5
cp -r killed bits
printf 'wrong bits' | dd of="bits/${last#killed/}" bs=1 seek=2000000 conv=notrunc 2>/dev/null
rm -f bits/last.h5
whole=(--max-steps $((10#$(sed 's/.*step-//; s/.h5//' <<<"$last") + 3)))
expect_status 0 train "${whole[@]}" --output whole
goes_on killed
for group in params moment1; do
    h5diff whole/last.h5 killed/last.h5 /$group /$group >/dev/null
    ok $? "killed: so has $group of its last checkpoint"
done
goes_on torn
like "$(err)" 'warn: .*torn/checkpoints/step-[0-9]+.h5' "torn file: a warning names it"
goes_on bits
like "$(err)" 'warn: .*bits/checkpoints/step-[0-9]+.h5' "wrong bits in a checkpoint: a warning names it"

endless preempted
kill -USR2 $pid
wait $pid
is $? 6 "preempted: status 6"
like "$(err)" 'asked to stop: saved at step [0-9]+; run again to go on' "preempted: saved"

endless stopped
kill -STOP $pid
wait_for grep -q '^State:.T' /proc/$pid/status
from=$(grep -c . stopped/checkpoints.jsonl)
kill -CONT $pid
wait_for more_saved stopped "$from"
kill -USR2 $pid
wait $pid
is $? 6 "stopped and continued: the run goes on, and saves when asked"

expect_status 8 train --batch-size 2 --output nan --lr 1000 --weight-decay 1000 --max-steps 9
# A step or the validation finds it, whichever the rounding of the processor's kernels lets come first.
error_line '(the loss|the logit) is (-?nan|-?inf).*lower --lr' "diverged: one line says so"

faulty=$BUILD/tests/chex-train-faulty
if [ -x "$faulty" ]; then
    # Two passes before the first step, then one in each step and one for each audit: that of step 4 is wrong.
    FAULTY_PASS=0:8 expect_status 5 "$faulty" "${common[@]}" --audit-steps 2 --max-steps 6 --output wrong
    error_line 'audit of step 4: rank 0 on .* computed two different gradients .*; the next start goes on from step 2' \
        "wrong bits in a pass: an audit names the node"
    like "$(err)" 'the process repeats a pass of its own \(a device that is always wrong stays unnoticed\)' \
        "wrong bits in a pass: the log says that the audit of one process is weaker"
    goes_on wrong
else
    skip "no chex-train-faulty here" 5
fi

mkdir full
if mount -t tmpfs -o size=6m tmpfs full 2>/dev/null; then
    at_exit umount full
    dd if=/dev/zero of=full/other bs=1M count=4 2>/dev/null
    expect_status 9 train "${whole[@]}" --output full/run
    error_line 'checkpoint|No space left|free' "full disk: one line says so"
    if mpi_ranks 4; then
        expect_status 9 "${ranks[@]}" chex-train "${common[@]}" --max-steps 3 --output full/four
        is "$(err | grep -c 'error: ')" 1 "full disk: one of four processes says so" || diag "$(err)"
        # 76 bytes of a page are left for the line of the first step, and there is room for checkpoints.
        mkdir page lines
        mount -t tmpfs -o size=4k tmpfs page
        at_exit umount page
        printf '{"step":0,"pad":"%04000d"}\n' 0 >page/metrics.jsonl
        ln -s ../page/metrics.jsonl lines/
        touch lines/checkpoints.jsonl # no checkpoint was whole: the run may start again
        expect_status 9 "${ranks[@]}" chex-train "${common[@]}" --max-steps 3 --output lines
        like "$(err | grep 'error: ')" '^chex-train[^ ]* [^ ]*] error: rank 0 on [^ ]*: cannot write lines/metrics.jsonl: No space left on device; make room and run again$' \
            "full disk at a line of metrics.jsonl: the ranks agree on the error of rank 0"
        is "$(find lines/checkpoints -name '*.h5')" "" "full disk at a line of metrics.jsonl: the run ends at the next step"
    else
        skip "no mpirun here" 5
    fi
    rm full/other
    mount -o remount,size=60m full
    goes_on full/run
else
    skip "no file system can be mounted here" 9
fi
done_testing
