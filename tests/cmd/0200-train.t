#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train alone writes the files of a run, gives equal bits for any number of threads, survives
# interruptions and refuses bad input. The first runs are of a whole DenseNet-121.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff h5dump chex-train chex-shard

phantom_set 40
common=(--data set --image-size 32 --batch-size 4 --engine cpu --threads 1 --lr 1e-3 --seed 5)
same() { # FILE FILE NAME: equal parameters and moments, to the last bit
    h5diff "$1" "$2" /params /params && h5diff "$1" "$2" /moment1 /moment1 &&
        h5diff "$1" "$2" /moment2 /moment2
    ok $? "$3"
}
steps() { grep -c '"kind":"step"' "$1/metrics.jsonl"; } # RUN

# The files of a run.
expect_status 0 chex-train "${common[@]}" --epochs 2 --output run
for f in last.h5 best.h5 metrics.jsonl config.json ranks.json; do
    [ -s run/$f ]
    ok $? "run/$f"
done
is "$(find run -name 'events.out.tfevents.*' | wc -l)" 1 "one event file"
like "$(tr -c '[:print:]' '\n' <"$(find run -name 'events.out.tfevents.*')")" 'train/step_loss' "TensorBoard gets the loss of a step before the first epoch ends"
is "$(find run -name '*.tmp.*' | wc -l)" 0 "no temporary file is left"
is "$(grep -c '"kind":"epoch"' run/metrics.jsonl)" 2 "one line of metrics an epoch"
like "$(cat run/metrics.jsonl)" '"val_auroc_mean":0\.[0-9]' "the metrics have the validation AUROC"
like "$(err)" 'epoch 2/2: loss' "each epoch logs one line"
like "$(err)" 'data wait [0-9.]+ %, forward' "the log has the share of each phase"
like "$(err)" "slowest rank 0 on $(hostname) \\(1.00 of the mean\\)" "the summary names the slowest rank and its host"
like "$(cat run/metrics.jsonl)" "\"slowest_rank\":0,\"slowest_host\":\"$(hostname)\"" "the metrics name the slowest rank"
like "$(h5dump -a /format run/last.h5)" 'chexnet-checkpoint' "the checkpoint is plain HDF5"
like "$(cat run/config.json)" '"epochs": "2"' "the configuration has the effective options"
is "$(tail -qc 1 run/config.json run/ranks.json | wc -l)" 2 "config.json and ranks.json end with a new line"
like "$(sed -n '/"origins"/,$p' run/config.json)" '"epochs": "command line"' "config.json has the origin of each option"
like "$(sed -n '/"origins"/,$p' run/config.json)" '"momentum": "default"' "each of them"
expect_status 0 chex-train "${common[@]}" --epochs 2 --output run --json
like "$(err)" 'complete' "a complete run is left alone"
like "$(out)" '^\{"schema":1,"status":0,"output":"run","steps":[0-9]+,"epochs":2,"best_epoch":[12],"best_val_auroc":0\.[0-9]+,"best_loss":null,"best":"best.h5","energy":(null|\{.*\})\}$' \
    "--json prints the position of the run"

# Going on where a run stopped, after an epoch's end; within the first one: 0201-train-folder.t.
expect_status 0 chex-train "${common[@]}" --epochs 2 --max-steps $(($(steps run) / 2 + 1)) --output part
expect_status 0 chex-train "${common[@]}" --epochs 2 --max-steps 0 --output part
same run/last.h5 part/last.h5 "stopped in the second epoch and resumed: the same bits"
is "$(steps part)" "$(steps run)" "each step is in the metrics once"

common+=(--model densenet_tiny)
bench=(chex-train --model densenet_tiny --image-size 32 --batch-size 1)

# Results do not depend on threads or workers.
expect_status 0 chex-train "${common[@]}" --max-steps 5 --threads 1 --workers 1 --output t1
expect_status 0 chex-train "${common[@]}" --max-steps 5 --threads 3 --workers 2 --output t3
same t1/last.h5 t3/last.h5 "1 and 3 threads give the same bits"
expect_status 0 chex-train "${common[@]}" --max-steps 5 --seed 6 --output t6
h5diff -q t1/last.h5 t6/last.h5 /params /params
[ $? -eq 1 ]
ok $? "another seed gives others"

# Logical ranks in one process; the fixed tree is what --deterministic asks for.
expect_status 0 chex-train "${common[@]}" --max-steps 3 --logical-ranks 3 --deterministic --output v3

# kill -9 at some moment, then again.
endless=("${common[@]}" --epochs 100000)
chex-train "${endless[@]}" --checkpoint-every 3steps --output killed -q &
pid=$!
wait_for compgen -G 'killed/checkpoints/*.h5' >checkpoints
kill -9 $pid
wait $pid 2>/dev/null
last=$(($(steps killed) + 4))
expect_status 0 chex-train "${endless[@]}" --max-steps $last --output whole
expect_status 0 chex-train "${endless[@]}" --max-steps $last --checkpoint-every 3steps --output killed
same whole/last.h5 killed/last.h5 "killed and resumed: the same bits"
is "$(find killed -name '*.tmp.*' | wc -l)" 0 "the temporary files of a killed run are removed"
[ "$(find killed/checkpoints -name '*.h5' | wc -l)" -le 3 ]
ok $? "at most three numbered checkpoints are kept"

# USR2 and TERM save and leave with 6.
for signal in USR2 TERM; do
    chex-train "${endless[@]}" --output sig$signal >/dev/null 2>err &
    pid=$!
    wait_for grep -qs '"kind":"step"' sig$signal/metrics.jsonl
    kill -$signal $pid
    wait $pid
    is $? 6 "$signal: exit 6"
    like "$(cat err)" 'asked to stop: saved at step' "$signal: and it says where"
    [ -s sig$signal/last.h5 ]
    ok $? "$signal: with a checkpoint"
done

# Bad input.
expect_status 2 chex-train --output x
error_line '--data DIR is required' "no --data"
expect_status 2 chex-train "${common[@]}" --output=
error_line '--output: the value is empty: expected DIR' "an empty folder name"
expect_status 2 chex-train "${common[@]}" --min-lr 1e-2 --output x
error_line '--min-lr 0.01: expected no more than --lr, 0.001' "a rate that would not fall but rise"
for option in --bench-layers --bench-infer; do
    expect_status 2 chex-train "${common[@]}" $option --output x
    error_line "$option: expected --bench N with it" "$option alone starts no training"
done
expect_status 3 chex-train "${common[@]/set/nowhere}" --output x
error_line 'nowhere: no such folder' "no such data"
expect_status 3 chex-train "${common[@]}" --image-size 64 --output x
error_line 'stored at 32 px' "stored size below the image size"
expect_status 2 chex-train "${common[@]}" --batch-size 500 --output x
error_line '500' "a batch that no rank can fill"
expect_status 2 chex-train "${common[@]}" --engine gpu --output x
error_line "gpu" "an unknown engine"
expect_status 2 chex-train "${common[@]}" --precision fp64 --output x
error_line 'bf16, fp32' "an unknown precision"
expect_status 2 chex-train "${common[@]}" --checkpoint-every 30 --output x
error_line '30m' "a cadence without a unit"
expect_status 8 chex-train "${common[@]}" --lr 1000 --opt sgd --weight-decay 1000 --output boom
error_line 'loss is .*nan.*lower --lr' "a diverged loss"
expect_status 8 chex-train "${common[@]}" --lr 1000 --opt sgd --max-steps 1 --output boom1
error_line 'validation at step 1: .*the logit is (nan|-?inf), .*lower --lr' "a diverged network is noticed in the validation"
expect_status 2 chex-train "${common[@]}" --resume none --output run
error_line 'already holds a run' "--resume none over a run"
expect_status 2 chex-train "${common[@]}" --batch-size 8 --epochs 9 --output whole
error_line 'batch_size is 4 in the checkpoint and 8 now' "another batch size on resume"

# Other shards of the same images: split by another seed into parts of the same sizes, of another
# side; and the same ones in another number.
printf 'image,patient,Mass\n' >each.csv
for f in ph/images/*.png; do echo "${f##*/},${f##*/},$((RANDOM % 2))"; done >>each.csv
each() { # OUT OPTION...
    chex-shard create --images ph/images --labels each.csv --split patient --shards 3 -q \
        --output "$@" >/dev/null || fail "shards"
}
each each --size 32 --seed 1 && each each-2 --size 32 --seed 2 && each each-36 --size 36 --seed 1
chex-shard reshard each --output each-5 --shards 5 -q >/dev/null || fail "reshard"
short=("${common[@]:2}" --max-steps 1)
expect_status 0 chex-train --data each "${short[@]}" --output each-run
expect_status 2 chex-train --data each-2 "${short[@]}" --max-steps 2 --output each-run
error_line 'its split train held other images than that of each-2' "another split on resume"
expect_status 2 chex-train --data each-36 "${short[@]}" --max-steps 2 --output each-run
error_line 'trained on another set \([0-9]+ images of 32 px in each\) than split train of --data each-36 \([0-9]+ images of 36 px\)' "another stored size on resume"
expect_status 0 chex-train --data each-5 "${short[@]}" --output each-run
like "$(err)" 'complete' "another number of shards is the same data"
SLURM_GPUS_ON_NODE=1 CUDA_VISIBLE_DEVICES=0 expect_status 4 chex-train --data set --image-size 32 --output x
error_line -- '--engine cpu' "an allotted GPU is never a silent CPU run"
[ ! -e x ]
ok $? "refused commands create nothing"

# A damaged newest checkpoint: the one before is taken; a damaged only one is an error.
cp -a killed torn
newest=$(find torn/checkpoints -name '*.h5' | sort | tail -n 1)
before=$(find torn/checkpoints -name '*.h5' | sort | tail -n 2 | head -n 1)
truncate -s 100000 "$newest"
expect_status 0 chex-train "${endless[@]}" --max-steps $last --output torn
like "$(err)" "warn: .*${newest##*/}.*going on from $before" "a truncated newest checkpoint is passed over"
same whole/last.h5 torn/last.h5 "the run ends with the same bits"
[ "$newest" != "$before" ]
ok $? "there was one before"
find torn -name '*.h5' | while read -r f; do truncate -s 5000 "$f"; done
expect_status 3 chex-train "${endless[@]}" --max-steps $((last + 4)) --output torn
error_line 'checkpoints/step-' "only truncated checkpoints"

# Parameters go out and come in again by torchvision's names.
expect_status 0 chex-eval export --checkpoint whole/last.h5 --output whole.safetensors
expect_status 0 chex-train "${common[@]}" --max-steps 1 --init whole.safetensors --output from
like "$(err)" "parameters from whole.safetensors; the head is the file's" "--init takes an export"
truncate -s 5000 whole.safetensors
expect_status 3 chex-train "${common[@]}" --max-steps 1 --init whole.safetensors --output from2
error_line 'whole.safetensors' "a truncated one is refused"

# Measuring.
expect_status 0 "${bench[@]}" --bench 2 --json
for key in images_per_s_median images_per_s_best peak_rss_bytes engine precision batch image_size threads; do
    like "$(out)" "\"$key\":" "--bench --json has $key"
done
unlike "$(out)" '"layers":' "without --bench-layers there is no table of layers"
layers=("${bench[@]}" --bench 1 --bench-layers --threads 1)
rate='[0-9]+\.[0-9]'
times=" +[0-9]+\\.[0-9]{3} +$rate +$rate"
expect_status 0 "${layers[@]}" --engine cpu
like "$(out)" "^limits of this machine: $rate GFLOP/s, $rate GB/s; % is of whichever binds$" \
    "--bench-layers measures the limits"
like "$(out)" '^operation +ms +GFLOP/s +GB/s +% +bound +ms +GFLOP/s +GB/s +% +bound$' "the columns"
like "$(out)" "^block4.layer2.conv2$times +[0-9]+ (flop|bytes)$times +[0-9]+ (flop|bytes) *$" \
    "each operation with both directions"
like "$(out)" "^pool0$times +[0-9]+ bytes$times +[0-9]+ bytes *$" "a pool is bound by bytes"
like "$(tail -n 1 out)" "^all$times +[0-9]+ (flop|bytes)$times" "the sum comes last"
expect_status 0 "${layers[@]}" --engine cpu --bench-infer
like "$(out)" '^operation +ms +GFLOP/s +GB/s +% +bound *$' "inference has one direction"
like "$(out)" "^block4.layer2.conv2$times +[0-9]+ (flop|bytes) *$" "inference has one group of columns"
expect_status 0 "${layers[@]}" --engine ref
like "$(out)" '^limits of this machine: not measured by this engine$' "ref has no limits to measure"
like "$(out)" "^block4.layer2.conv2$times +- +-$times +- +- *$" "columns without a time show a dash"
expect_status 0 "${layers[@]}" --engine cpu --json
for key in images_per_s_median limit_gflop_per_s limit_gb_per_s layers; do
    like "$(out)" "\"$key\":" "--bench-layers --json has $key"
done
part='"ms": [^,]+, "gflop": [^,]+, "gb": [^,]+, "gflop_per_s": [^,]+, "gb_per_s": [^,]+'
part+=', "limit_percent": [0-9.e+-]+, "bound": "(flop|bytes)"'
like "$(out)" "\"name\": \"block4.layer2.conv2\", \"forward\": \{$part\}, \"backward\": \{$part\}\}" \
    "the keys of an operation"
expect_status 0 "${layers[@]}" --engine ref --json
like "$(out)" '"limit_gflop_per_s": null, "limit_gb_per_s": null' "no limits are null"
like "$(out)" '"limit_percent": null, "bound": null' "shares of unknown limits are null"
"${bench[@]}" --bench 1 >/dev/full 2>err
is $? 9 "a full standard output is no success"
SLURM_JOB_ID=5 SLURM_NTASKS=4 expect_status 0 "${bench[@]}" --bench 1
like "$(err)" "warn: the job has 4 tasks, but this is one process.*: start it with srun" \
    "one process of a job with four tasks says that it is alone"
if mpi_ranks 2; then
    expect_status 0 "${ranks[@]}" "${bench[@]}" --bench 1 --json
    is "$(grep -c schema out)" 1 "several ranks print one object"
    like "$(out)" '"ranks": 2, "slowest_rank": [01], "slowest_images_per_s": ' "the JSON counts the ranks"
    # shellcheck disable=SC2016 # the ranks expand it
    expect_status 2 "${ranks[@]}" bash -c 'engine=cpu
        [ "$OMPI_COMM_WORLD_RANK" = 0 ] || engine=cpu:none
        exec "$@" --engine $engine' - "${bench[@]}" --bench 1
    error_line "rank 1 on .+: engine cpu:none: unknown variant" "a rank that fails is named"
else
    skip "no mpirun here" 5
fi
# CHEX_CPU holds the engine's kernels back too.
CHEX_CPU=generic expect_status 0 "${bench[@]}" --bench 1 --json
like "$(out)" '"variant": "generic"' "CHEX_CPU=generic runs the generic kernels"
CHEX_CPU=generic expect_status 4 chex-train --bench 1 --engine cpu:avx2
error_line "engine cpu:avx2: .*no avx2, or CHEX_CPU holds it back" "a variant beyond CHEX_CPU is refused"
done_testing
