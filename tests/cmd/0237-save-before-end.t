#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run saves by itself before the end of its job, which SLURM_JOB_END_TIME names.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 60
train() {
    chex-train --data set --engine cpu --threads 1 --model densenet_tiny --image-size 32 --batch-size 2 --seed 5 "$@"
}
in_s() { # SECONDS COMMAND...: the job ends in so many seconds
    local end=$(($(date +%s) + $1))
    shift
    SLURM_JOB_END_TIME=$end "$@"
}
steps() { grep -c '"kind": *"step"' "$1/metrics.jsonl"; }

began=${EPOCHREALTIME/./}
expect_status 0 in_s 5 train --output off --save-before-end off --max-steps 2 --epochs 9
unlike "$(err)" "the job ends" "off asks for nothing"
# A busy machine needs longer until the first step.
expect_status 6 in_s $((23 + 10 * (${EPOCHREALTIME/./} - began) / 1000000)) train --output run --epochs 100000
like "$(err)" "the job ends in [0-9.ms]+ s? ?\(SLURM_JOB_END_TIME\); the run saves before" "the log names the end and its source"
is "$(err | grep -cE 'SLURM_JOB_END_TIME\): the run saves now, ([2-9][0-9][.0-9]* s|[1-9][0-9]*m[0-9]+s) before the end')" 1 \
    "auto saves once, 20 s and the time of saves and steps before the end"
done=$(steps run)
like "$(err)" "asked to stop: saved at step ${done}[,;]" "the run has saved at the step that it reached"
expect_status 0 train --output run --epochs 100000 --max-steps $((done + 2))
expect_status 0 train --output whole --epochs 100000 --max-steps $((done + 2))
h5diff whole/last.h5 run/last.h5 /params /params
ok $? "the bits are those of a run without interruption"

expect_status 6 in_s 600 train --output fixed --save-before-end 10m --epochs 100000
is "$(steps fixed)" 1 "a margin as long as the job still does one step"
expect_status 0 in_s -5 train --output past --max-steps 2 --epochs 9
unlike "$(err)" "the job ends" "an end in the past is ignored"
expect_status 0 train --output unknown --save-before-end 5m --max-steps 1 --epochs 9
like "$(err)" "warn: --save-before-end: the end of the job is unknown: SLURM_JOB_END_TIME is not set, and libslurm does not answer: not in a Slurm job" \
    "a margin without a known end is reported"
expect_status 0 train --output unknown --max-steps 2 --epochs 9
unlike "$(err)" "save-before-end: the end" "auto without a known end says nothing"
for bad in sometimes 0s 5; do
    expect_status 2 train --output bad --save-before-end $bad
done
error_line "save-before-end: '5' is not valid: expected auto, off, or a time such as 5m" "a bad value is refused"
done_testing
