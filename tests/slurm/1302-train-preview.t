#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --plan and --timeline work over ranks and nodes.
# shellcheck source=tests/slurm/lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture
need_training
without PYTHON && skip_all "CHEX_TEST_WITHOUT names PYTHON"
need python3

phantom_shards 160 4
common=(--data shards --image-size 32 --batch-size 2 --lr 1e-3 --seed 3 --engine cpu --threads 1)
train() { # NAME ARGUMENTS: two ranks on two nodes; status in $status
    local name=$1
    shift
    in_job -N2 -n2 --cpu-bind=none chex-train "${common[@]}" "$@" >"$name.out" 2>"$name.err"
    status=$?
}
value() { # FILE EXPRESSION: over o, the object
    python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
print(eval(sys.argv[2]))' "$1" "$2"
}

# What two ranks would do, and then do.
train plan --plan --json --logical-ranks 4 --deterministic --epochs 2 --output run -q
is $status 0 "--plan on two nodes"
is "$(grep -c schema plan.out)" 1 "one object"
[ ! -e run ]
ok $? "the plan creates nothing"
is "$(value plan.out '[r["logical_ranks"] for r in o["ranks"]]')" "[[0, 2], [2, 4]]" "the plan says which ranks play which logical ranks"
is "$(value plan.out '[r["host"] for r in o["ranks"]]')" "['n0', 'n1']" "the plan names the host of each rank"
is "$(value plan.out 'o["ranks"][0]["train_rows"][1] == o["ranks"][1]["train_rows"][0]')" True "each its own rows"
is "$(value plan.out 'o["gradients"]["carrier"], o["gradients"]["way"]')" "('openmpi', 'all-reduce along the fixed tree')" \
    "gradients by Open MPI, along the tree at the cost of an all-reduce"
is "$(value plan.out '[r["memory"]["snapshot_bytes"] > 0 for r in o["ranks"]]')" "[True, False]" \
    "only rank 0 has a checkpoint to write"
train run --logical-ranks 4 --deterministic --epochs 2 --output run --timeline run.json
is $status 0 "the run"
is "$(grep -c '"kind":"step"' run/metrics.jsonl)" "$(value plan.out 'o["steps"]["steps_in_all"]')" "has as many steps"
is "$(value run/ranks.json '[r["logical_ranks"] for r in o["ranks"]]')" "[[0, 2], [2, 4]]" "plan and run give the same logical ranks"
train bad --plan --logical-ranks 1 --output run2
is $status 2 "fewer logical ranks than ranks: exit 2"
is "$(grep -c 'error: ' <(grep '^chex-train' bad.err))" 1 "one rank says so"
like "$(cat bad.err)" 'error: .*--logical-ranks 1, but the job has 2 ranks' "the plan fails as the run would"

# Ranks with other options, as from a variable that one node lacks.
cat >odd.sh <<'END'
[ "$SLURM_PROCID" = 1 ] || set -- "$@" "$ODD"
exec chex-train "$@"
END
# OPTION VALUE ARGUMENTS...: rank 0 alone has that value. $shown: the value in the message, if it is
# another; $text: the message, if it is another.
differ() {
    local option=$1 value=$2
    shift 2
    ODD=--$option=$value in_job -N2 -n2 --cpu-bind=none bash odd.sh "${common[@]}" --output odd "$@" \
        >odd.out 2>odd.err
    is $? 2 "rank 0 has another --$option: exit 2"
    like "$(grep 'error: ' odd.err)" \
        "error: ${text-rank 1 on n1: --$option is '[a-z0-9.]*' here and '${shown-$value}' on rank 0}: give all ranks the same options" "it says which"
    [ ! -e odd ]
    ok $? "nothing is begun"
}
differ batch-size 4 --plan
differ lr 0.0001
differ timeline odd.json
# These decide which collective calls follow.
shown='a path' differ init odd.safetensors
shown='a path' differ stage /tmp
differ resume none
text='--precision is not the same on all ranks' differ precision fp32

# A node without the memory: /proc/meminfo of rank 1 says so. Nothing is begun.
cat >small.sh <<'END'
[ "$SLURM_PROCID" = 1 ] || exec chex-train "$@"
printf 'MemTotal: 9000 kB\nMemAvailable: 9000 kB\n' >meminfo
exec unshare -m bash -c 'mount --bind meminfo /proc/meminfo && exec chex-train "$@"' small "$@"
END
for option in --plan --json; do
    in_job -N2 -n2 --cpu-bind=none bash small.sh "${common[@]}" --output small $option >small.out 2>small.err
    is $? 9 "a node with too little memory: exit 9, $option"
    is "$(grep 'error: ' small.err | grep -c '^chex-train')" 1 "one rank says so"
    like "$(cat small.err)" 'error: rank 1 on n1: 1 rank of this node takes [0-9.]+ MiB of memory, and the machine allows 8[.]8 MiB: not even one image fits; use larger nodes' \
        "which node, how much, and what to do"
    [ ! -e small ] && [ ! -s small.out ]
    ok $? "nothing starts and nothing is printed"
done

# The timeline. Both nodes of this cluster are one machine: their clocks differ by nothing.
steps=$(value plan.out 'o["steps"]["steps_in_all"]')
like "$(python3 "$SOURCE/tests/tools/check_timeline.py" run.json --same-clock 2>&1)" \
    "^ranks 2; steps $steps $steps; .*kinds: backward, checkpoint, compare clocks, forward, make batch, optimizer, reduce bucket, " \
    "the timeline has steps and buckets of two ranks, and clocks within the stated error"
is "$(value run.json 'sorted(e["args"]["name"] for e in o["traceEvents"] if e["name"] == "process_name")')" \
    "['rank 0 (n0)', 'rank 1 (n1)']" "ranks are named with their hosts"
is "$(value run.json 'max(r["clock_points"] for r in o["otherData"]["ranks"])')" 4 \
    "clocks are compared at the start, after each epoch and at the end"
train sum --max-steps 2 --output sum --timeline sum.json
like "$(python3 "$SOURCE/tests/tools/check_timeline.py" sum.json --same-clock 2>&1)" 'kinds: .*reduce bucket' \
    "all-reduces are there too"

# If a rank hangs, rank 0 writes its own events.
when_at_work() { # NAME SIGNAL RANK...
    wait_for grep -qs '"step":5,' "$1/metrics.jsonl"
    signal_ranks "${@:2}"
}
when_at_work stop STOP 1 &
train stop --epochs 100000 --output stop --timeline stop.json --stall-warn 2s --stall-abort 5s
wait
is $status 7 "rank 1 is stopped: exit 7"
like "$(cat stop.err)" 'timeline stop.json: [0-9]+ events of 1 rank, rank 0 alone' "rank 0 writes its part and says so"
like "$(python3 "$SOURCE/tests/tools/check_timeline.py" stop.json 2>&1)" '^ranks 1; steps [0-9]+; .*stalled' \
    "with the place where it stood"
is "$(value stop.json 'o["otherData"]["all_ranks"]')" False "the timeline says that it does not have all ranks"
when_at_work preempted USR2 0 1 &
train preempted --epochs 100000 --output preempted --timeline preempted.json
wait
is $status 6 "preempted: exit 6"
like "$(python3 "$SOURCE/tests/tools/check_timeline.py" preempted.json --same-clock 2>&1)" '^ranks 2; steps' \
    "with the whole timeline"
done_testing
