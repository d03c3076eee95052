#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --plan changes nothing, says what a run then does, and fails as the run does.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need chex-train chex-shard
without PYTHON && skip_all "CHEX_TEST_WITHOUT names PYTHON"
need python3

phantom_set 120 --fractions 0.7,0.15,0.15
common=(--data set --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --threads 1 --lr 1e-3 --seed 5)

# Names, sizes, times, contents.
listing() { find . -mindepth 1 ! -path ./out ! -path ./err ! -path ./seen ! -path ./values -printf '%p %s %T@ %l\n' | sort; }
remember() { listing >seen; }
untouched() { # NAME: since remember
    is "$(listing | diff seen -)" "" "$1"
}
value() { sed -n "s/^$1 //p" values; } # PATH: of the last plan's object: steps.steps_in_all, ranks.0.host
plan() {
    expect_status 0 chex-train --plan --json "$@"
    python3 - >values <<'P'
import json
def show(path, o):
    print(path, json.dumps(o) if isinstance(o, (dict, list, bool)) or o is None else o)
    for key, value in o.items() if isinstance(o, dict) else enumerate(o) if isinstance(o, list) else ():
        show(f"{path}.{key}" if path else str(key), value)
show("", json.load(open("out")))
P
}

remember
expect_status 0 chex-train --plan "${common[@]}" --output new/run --stage .
untouched "a preview changes no file and makes none, not even for --stage"
like "$(out)" '^chex-train would start a run in new/run; nothing was done$' "it says what a run would do"
like "$(out)" '^ranks +1 on 1 node ' "the plan shows the ranks"
like "$(out)" 'rank 0 on .*, cores .*: logical rank 0, images 0 to [0-9]+; reads [0-9.]+ KiB in its first epoch' \
    "the plan says what each rank reads"
like "$(out)" '^time +at least [0-9.]+ m?s a step, .* for the run' "the plan gives the least time of a step and of the run"
like "$(out)" '^training +bce loss$' "the plan names the loss"
like "$(out)" 'from: the machine.s limits, just measured on rank 0: [0-9.]+ GFLOP/s' "the plan says where the time comes from"
expect_status 0 chex-train --plan "${common[@]}" --output new/run --engine ref
like "$(out)" '^time +no estimate: no limits are measured' "without measured limits the plan has no estimate of time"

# What it says is what the run then does.
plan "${common[@]}" --epochs 2 --output run
untouched "with --json too nothing is made"
expect_status 0 chex-train "${common[@]}" --epochs 2 --output run
cp err run.err
is "$(value steps.steps_in_all)" "$(grep -c '"kind":"step"' run/metrics.jsonl)" "the steps"
is "$(value options)" "$(python3 -c 'import json; print(json.dumps(json.load(open("run/config.json"))["options"]))')" \
    "the options are those of config.json"
is "$(value origins)" "$(python3 -c 'import json; print(json.dumps(json.load(open("run/config.json"))["origins"]))')" \
    "the plan gives the origin of each option"
like "$(cat run.err)" "$(value data.splits.0.rows) training images, $(value data.splits.1.rows) validation images; batch 4 x 1 logical rank = 4 images a step, $(value steps.steps_an_epoch) steps an epoch" \
    "the images"
memory() { value "memory.rank_0.$1_bytes"; }
mib=$(awk -v b=$(($(memory parameters) + $(memory optimizer) + $(memory work))) 'BEGIN {
    printf b < 100 * 2 ^ 20 ? "%.1f" : "%.0f", b / 2 ^ 20 }')
like "$(cat run.err)" "engine $(value engine.name) \($(value engine.variant)\), $(value engine.precision), $(value engine.threads) thread, $mib MiB" \
    "engine, variant, precision, threads and memory"
like "$(cat run.err)" "shuffle $(value order.shuffle_rows) rows wide" "the width of the shuffle"
like "$(cat run.err)" "$(value order.cache | sed 's/half of the.*//')" "the plan says where rows are kept"
size=$(stat -c %s run/last.h5)
[ "$size" -ge "$(value checkpoints.file_bytes)" ] && [ "$size" -lt $(($(value checkpoints.file_bytes) * 11 / 10)) ]
ok $? "the plan gives the size of a checkpoint, without HDF5's tables"
is "$(value ranks.0.host)" "$(python3 -c 'import json; print(json.load(open("run/ranks.json"))["ranks"][0]["host"])')" \
    "a rank's place"
is "$(value gradients.carrier)" null "one process has no carrier of gradients"

# Going on.
plan "${common[@]}" --epochs 2 --output run
is "$(value action)" nothing "a complete run: nothing to do, exit 0"
like "$(value warnings)" 'raise --epochs' "a complete run has a warning"
remember
plan "${common[@]}" --epochs 4 --output run
untouched "a run that would go on is left as it is"
is "$(value action)" "go on" "it would go on"
is "$(value start.steps_done)" "$(value steps.steps_done)" "the plan starts at the last step"
is "$(value start.epoch)" 3 "the plan starts in epoch 3"
like "$(value start.file)" 'run/checkpoints/step-[0-9]+.h5' "the plan starts from the newest checkpoint"
like "$(value time.measured.from)" 'epoch 2 of this run' "the plan gives the measured time of the last epoch"
unlike "$(err)" "changed since.* plan" "the preview itself is no change of settings"
expect_status 0 chex-eval export --checkpoint run/last.h5 --output w.safetensors -q
plan "${common[@]/cpu/ref}" --init w.safetensors --output other
is "$(value start.from) $(value start.file)" "init w.safetensors" "parameters of a file"
plan "${common[@]/cpu/ref}" --sched cosine --epochs 5 --warmup-epochs 1 --output other
is "$(value schedule.warmup_steps)" "$(value steps.steps_an_epoch)" "warm-up in steps"
awk -v next_lr="$(value schedule.next_step_lr)" -v last="$(value schedule.last_step_lr)" \
    'BEGIN { exit !(next_lr > 0 && next_lr < 1e-3 / 5 && last < 1e-5) }'
ok $? "the first and the last rate"

# Memory: the largest batch is the largest.
plan "${common[@]/4/40}" --output other # the need depends on the processor, so the limit is taken from it
limit=$(($(memory host) * 16 / 15 / 1048576 + 1))
export SLURM_MEM_PER_NODE=$limit
plan "${common[@]}" --output other
largest=$(value memory.largest_batch)
[ "$largest" -ge 40 ] && [ "$largest" -lt 80 ]
ok $? "a batch of $largest fits into $limit MiB"
is "$(value memory.node_allowed_by)" Slurm "the limit comes from Slurm"
plan "${common[@]/4/$largest}" --output other
[ "$(memory host)" -le $(((limit << 20) * 15 / 16)) ]
ok $? "it fits"
plan "${common[@]/4/$((largest + 1))}" --output other
[ "$(memory host)" -gt $(((limit << 20) * 15 / 16)) ]
ok $? "a batch of one more does not fit"
like "$(value warnings)" "Slurm was asked for $limit(\\.0)? MiB" "a batch that does not fit is warned of"
unset SLURM_MEM_PER_NODE

# Warnings.
ref=("${common[@]/cpu/ref}") # it needs no measurement
plan "${ref[@]/4/50}" --output other
like "$(value warnings)" 'are left out of each epoch' "much of the data left out"
plan "${ref[@]}" --epochs 2 --warmup-epochs 3 --output other
like "$(value warnings)" 'warmup-epochs 3 is longer than the run: the rate never reaches' "a warm-up that does not end"
plan "${ref[@]}" --epochs 2 --warmup-epochs 2 --output other
unlike "$(value warnings)" 'warmup-epochs' "one whose last step is the last"
plan "${common[@]}" --workers 200 --threads 200 --output other
like "$(value warnings)" 'rank 0: 200 compute and 200 input threads' "more threads than cores"
like "$(err)" 'warn: --threads 200: more than the [0-9]+ cores?' "more threads than cores are warned about before the measurement"
chex-shard create --images ph/images --labels ph/labels.csv --size 32 --shards 1 --split none --output whole -q
plan "${ref[@]/set/whole}" --output other
like "$(value warnings)" 'no validation images: .*plateau' "plateau without validation images"
is "$(value data.trained_on)" all "without a split the run trains on all images"
SLURM_JOB_END_TIME=$(($(date +%s) + 60)) plan "${common[@]}" --epochs 100000 --output other
like "$(value warnings)" 'the job has .* left and the run takes' "a job that ends before the run"

# What stops the run stops the preview, with the same line and the same status.
same() { # NAME ARGUMENTS: of a run that fails
    local name=$1 status line
    shift
    chex-train "$@" >/dev/null 2>err
    status=$?
    line=$(grep error: err)
    remember
    chex-train --plan "$@" >out 2>err
    is "$? $(grep error: err)" "$status $line" "$name: exit $status"
    [ $status != 0 ] && [ ! -s out ] && [ -z "$(listing | diff seen -)" ]
    ok $? "$name: nothing printed, nothing changed"
}
same "no data" "${common[@]/set/nowhere}" --output other
same "stored size below the image size" "${common[@]}" --image-size 64 --output other
same "a batch that no rank can fill" "${common[@]/4/500}" --output other
same "no such engine" "${common[@]/cpu/gpu}" --output other
same "no such variant" "${common[@]/cpu/cpu:none}" --output other
same "a folder that cannot be made" "${common[@]}" --output ph/labels.csv/run
same "a run there already" "${common[@]}" --resume none --output run
same "another batch size on resume" "${common[@]/4/8}" --epochs 9 --output run
same "no such checkpoint" "${common[@]}" --resume none.h5 --output other
head -c 5000 run/last.h5 >torn.h5
same "a folder as checkpoint" "${common[@]}" --resume run --output other
like "$(cat err)" 'run: not a regular file \(a folder; expected a file\)' "the error says that the file is a folder"
same "a damaged checkpoint" "${common[@]}" --resume torn.h5 --output other
head -c 5000 w.safetensors >torn.safetensors
same "a damaged file of parameters" "${common[@]}" --init torn.safetensors --output other
same "a torn checkpoint as --init" "${common[@]}" --init torn.h5 --output other
printf 'PK\003\004' >torn.pth
same "a torn PyTorch file as --init" "${common[@]}" --init torn.pth --output other
same "no folder to stage to" "${common[@]}" --stage nowhere --output other
same "--bench besides" "${common[@]}" --bench 1 --bench-input 1
(
    ulimit -v 150000
    FAILED=0
    same "too little memory" "${common[@]}" --model densenet121 --output other
    exit "$FAILED"
)
ok $? "too little memory fails in the plan as in the run"
expect_status 2 chex-train --plan --bench 2
error_line '--plan and --bench: expected one of them' "--plan with --bench"
expect_status 2 chex-train --plan --data set
error_line '--output DIR is required' "--plan without --output"
for kind in --plan --json; do
    expect_status 2 chex-train $kind --data set --output $'odd\377'
    error_line "--output 'odd\\\\xFF': the name is no UTF-8 text, as $kind needs" "$kind of such a name"
done
mkdir stray
echo stray >stray/step-1.h5
same "a folder with a file of ours" "${common[@]}" --output stray

# A folder in which a run is at work.
chex-train "${common[@]}" --epochs 100000 --output busy -q 2>/dev/null &
pid=$!
wait_for test -s busy/ranks.json
expect_status 4 chex-train --plan "${common[@]}" --output busy
error_line "output folder busy is in use by process $pid on " "a run is at work there: exit 4, as its rival would"
kill -USR2 $pid
wait $pid
is $? 6 "the plan does not disturb a run that is active"
done_testing
