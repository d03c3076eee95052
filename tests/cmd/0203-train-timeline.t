#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --timeline writes a file that viewers accept, however the run ends.
# tests/slurm/1302-train-preview.t has the stall.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
without PYTHON && skip_all "CHEX_TEST_WITHOUT names PYTHON"
need python3 h5diff chex-train chex-shard

phantom_set 40
common=(--data set --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --threads 1 --lr 1e-3 --seed 5)
check() { # FILE REGEX NAME: of the line of figures
    like "$(python3 "$SOURCE/tests/tools/check_timeline.py" "$1" 2>&1)" "$2" "$3"
}
has() { # FILE PYTHON-EXPRESSION NAME: over o, the object
    python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "$1" "$2"
    ok $? "$3"
}

expect_status 0 chex-train "${common[@]}" --epochs 2 --workers 2 --output run --timeline new/a.json
like "$(err)" 'timeline new/a.json: [0-9]+ events of 1 rank$' "the log names the timeline, in a folder that did not exist"
steps=$(grep -c '"kind":"step"' run/metrics.jsonl)
check new/a.json "^ranks 1; steps $steps; .*dropped 0; kinds: backward, checkpoint, forward, make batch, optimizer, step, validation, wait for data, wait for gradients, wait for ranks$" \
    "every step, and what is in it"
python3 "$SOURCE/tests/tools/check_timeline.py" new/a.json | grep -qE 'explained to ([5-9][0-9]|100)\.'
ok $? "most of a step is explained by its parts"
has new/a.json 'o["otherData"]["engine"] == "cpu" and o["otherData"]["all_ranks"]' "with what it is of"
has new/a.json 'len({e["tid"] for e in o["traceEvents"] if e["name"] == "make batch"}) == 2' \
    "two input workers have a row each"
has new/a.json '{e["name"] for e in o["traceEvents"] if e["ph"] == "C"} == {"images/s", "loss", "ready batches"}' \
    "the file has counter events"
is "$(find . -name '*.tmp.*' | wc -l)" 0 "no temporary file is left"
expect_status 0 chex-train "${common[@]}" --epochs 2 --output plain
h5diff run/last.h5 plain/last.h5 /params /params
ok $? "the weights are those of a run without it"
like "$(cat plain/config.json)" '"timeline": ""' "a run without --timeline records none"
expect_status 0 chex-train "${common[@]}" --epochs 3 --output run --timeline b.json
unlike "$(err)" 'changed since.*timeline' "it is no change of settings"
check b.json "^ranks 1; steps $((steps / 2));" "a run that goes on has its own steps"
expect_status 0 chex-train "${common[@]}" --logical-ranks 3 --max-steps 2 --output v3 --timeline v3.json
has v3.json '[e["args"]["logical_rank"] for e in o["traceEvents"] if e["name"] == "backward"] == [0, 1, 2] * 2' \
    "a pass for each logical rank"
check v3.json 'kinds: add bucket,' "the file has the additions of gradient buckets"
expect_status 0 chex-train --plan "${common[@]}" --output p --timeline p/new/p.json
[ ! -e p ]
ok $? "--plan makes none"

# However it ends.
chex-train "${common[@]}" --epochs 100000 --output sig --timeline sig.json >/dev/null 2>err &
pid=$!
wait_for grep -qs '"step":3,' sig/metrics.jsonl
kill -USR2 $pid
wait $pid
is $? 6 "preempted: exit 6"
check sig.json '^ranks 1; steps [0-9]*[1-9]' "an interrupted run writes its timeline"
expect_status 8 chex-train "${common[@]}" --lr 1000 --opt sgd --weight-decay 1000 --output boom --timeline boom.json
error_line 'loss is' "diverged: exit 8"
check boom.json '^ranks 1; steps [0-9]*[1-9]' "a failed run writes its timeline"

# What cannot be.
expect_status 4 chex-train "${common[@]}" --max-steps 1 --output x --timeline ph/labels.csv/t.json
error_line 'cannot make folder ph/labels.csv' "a folder that cannot be made, before anything is done"
expect_status 4 chex-train "${common[@]}" --max-steps 1 --output x --timeline ph
error_line 'cannot create ph: it is a folder' "a folder in its place"
cp ph/labels.csv kept.csv
for option in "" --plan; do
    expect_status 2 chex-train $option "${common[@]}" --max-steps 1 --output x --timeline ph/labels.csv
    error_line 'ph/labels.csv: a file of that name is there and is no timeline' \
        "a file that would be lost ${option:-without --plan}"
done
cmp -s kept.csv ph/labels.csv
ok $? "an existing file is left as it was"
mkfifo pipe
expect_status 4 chex-train "${common[@]}" --max-steps 1 --output x --timeline pipe
error_line 'cannot create pipe: it is a device or a pipe' "a pipe is refused as a timeline"
[ -p pipe ] && [ ! -e x ]
ok $? "a refused timeline starts no run"
expect_status 2 chex-train "${common[@]}" --max-steps 1 --output own --timeline own/metrics.jsonl
error_line 'own/metrics.jsonl: a file of that name is there and is no timeline: .*; the run itself is whole, in own' \
    "a file that the run has made meanwhile"
like "$(cat own/metrics.jsonl)" '"kind":"step"' "a run whose timeline cannot be written keeps its metrics"
expect_status 2 chex-train --bench 1 --timeline t.json
error_line '--timeline and --bench: a timeline is one of a run' "a measurement has no timeline"
done_testing
