#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files in the output folder ask a run to save, or to save and end, on all ranks at one step.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"
need h5diff

phantom_set 60 --fractions 0.8,0.1,0.1
train=(chex-train --data set --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu --threads 1 --seed 3 \
    --logical-ranks 2 --deterministic --epochs 100000)
stepped() { grep -qs '"kind":"step"' "$1/metrics.jsonl"; }
gone() { [ ! -e "$1" ]; }
saved_step() { grep -oE 'saved at step [0-9]+' "$1" | grep -oE '[0-9]+$'; }
launch=()

# asked NAME: starts a run, asks for a save and then for a stop.
asked() {
    local name=$1 pid
    timeout "$CHEX_TEST_WAIT" "${launch[@]}" "${train[@]}" --output "$name" 2>"$name.err" &
    pid=$!
    wait_for stepped "$name"
    touch "$name/save"
    wait_for gone "$name/save"
    wait_for grep -qs "$name/save: the run saves after step" "$name.err"
    echo now >"$name/stop"
    wait $pid
    is $? 0 "$name: a run that was stopped by file ends with status 0"
    like "$(cat "$name.err")" "$name/stop: saved at step [0-9]+; run the same command again to go on" \
        "$name: it says how to go on"
    [ ! -e "$name/stop" ]
    ok $? "$name: the request is removed"
    is "$(grep -c '"kind":"step"' "$name/metrics.jsonl")" "$(saved_step "$name.err")" \
        "$name: no step follows the save"
}
asked one
at=$(grep -oE 'saves after step [0-9]+' one.err | grep -oE '[0-9]+$')
[ "$at" -le "$(saved_step one.err)" ]
ok $? "DIR/save lets the run go on"
if mpi_ranks 2; then
    launch=("${ranks[@]}")
    asked two
    launch=()
else
    skip "no mpirun here" 4
    cp -r one two
fi

# Going on gives the bits of a run that was never asked.
last=$(($(saved_step one.err) > $(saved_step two.err) ? $(saved_step one.err) : $(saved_step two.err)))
for name in whole one two; do
    expect_status 0 "${train[@]}" --output "$name" --max-steps $((last + 2))
done
for name in one two; do
    h5diff whole/last.h5 "$name/last.h5" /params /params && h5diff whole/last.h5 "$name/last.h5" /moment2 /moment2
    ok $? "$name: a stopped run that goes on has the bits of an uninterrupted one"
done

# Requests from before the start are not obeyed.
touch one/stop one/save
expect_status 0 "${train[@]}" --output one --max-steps $((last + 3))
like "$(err)" 'one/stop is from before the start of the run: it is removed and not obeyed' "an old stop has a warning"
like "$(err)" 'one/save is from before the start of the run' "an old save too"
[ ! -e one/stop ] && [ ! -e one/save ]
ok $? "both are removed"
like "$(err)" 'done: .*stopped by --max-steps' "the run is not stopped"

# What cannot be removed is ignored, and reported once.
mkdir one/stop
expect_status 0 "${train[@]}" --output one --max-steps $((last + 4))
is "$(grep -c 'one/stop is ignored: it cannot be removed (Is a directory; expected a file)' err)" 1 \
    "a folder named stop is reported once"
mkdir new && touch new/stop
expect_status 2 "${train[@]}" --output new --max-steps 1
error_line 'output folder new holds no training run, but other files \(stop\)' "a stop in a folder without a run is refused"
done_testing
