#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A resumed run keeps its options: command line > CHEX_* > file > run > default.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
here=(--engine cpu --threads 1)
run=(--model densenet_tiny --image-size 32 --batch-size 2 --lr 0.00123456789012345 --seed 5 --opt adamw --sched cosine
    --epochs 3 --deterministic --weight-decay 0.01 --checkpoint-keep 0 --order global)
train() { chex-train --data set "${here[@]}" "$@"; }

expect_status 0 train "${run[@]}" --output whole --max-steps 6
expect_status 0 train "${run[@]}" --output run --max-steps 2
like "$(err)" 'sched cosine: the rate falls over the [0-9]+ steps of --epochs 3; at the end of --max-steps 2 it is 0.00[0-9]+: to end there, give --epochs 1$' \
    "a run that --max-steps ends within the cosine is warned about"
expect_status 0 train --output run --max-steps 6
like "$(err)" "taken from run/checkpoints/step-0000000002.h5: model 'densenet_tiny', image-size '32', batch-size '2', epochs '3', opt 'adamw', lr '0.00123456789012345', weight-decay '0.01', sched 'cosine', seed '5', order 'global', deterministic 'yes', checkpoint-keep '0'; changed since: max-steps '2' -> '6'" \
    "one line says what is taken over and what changes"
h5diff whole/last.h5 run/last.h5 /params /params
ok $? "the bits are those of a run without interruption"
expect_status 0 train "${run[@]}" --output run --max-steps 6
like "$(err)" 'complete' "the whole command line again is the same run"

# Each source before the run.
printf 'lr = 0.5\nweight-decay = 0.25\nmomentum = 0.7\n' >options.conf
cp -r run anew
CHEX_LR=0.25 CHEX_WEIGHT_DECAY=0.125 expect_status 0 train --output anew --max-steps 7 --lr 1e-3 \
    --config options.conf
like "$(err)" "changed since: max-steps '6' -> '7', lr '0.00123456789012345' -> '0.001', weight-decay '0.01' -> '0.125', momentum '0.9' -> '0.7'" \
    "command line, environment and file go before the run"
is "$(grep -oE '"(lr|weight-decay|momentum|seed|workers)": "(command line|environment|file|run|default)"' anew/config.json | tr '\n' ' ')" \
    '"lr": "command line" "weight-decay": "environment" "momentum": "file" "seed": "run" "workers": "default" ' \
    "config.json names the origins"
like "$(cat anew/config.json)" '"lr": "0.001"' "config.json has the new values"
expect_status 0 train --output anew --max-steps 8 --no-deterministic
like "$(err)" "deterministic 'yes' -> 'no'" "a flag can be taken back"
expect_status 2 train --output run --max-steps 7 --batch-size 4
error_line 'batch_size is 2 in the checkpoint and 4 now' "an option that must not change is refused"
expect_status 2 train --output run --max-steps 7 --min-lr 0.1
error_line '--min-lr 0.1: expected no more than --lr, 0.0012' "values given anew are checked against the run's"
expect_status 2 train --output fresh --min-lr 0.1
error_line '--min-lr 0.1: expected no more than --lr, 0.0001' "--min-lr is compared with the default rate in a new run"
expect_status 0 train --output elsewhere --resume run/last.h5 --max-steps 7 --plan
like "$(err)" "taken from run/last.h5: model 'densenet_tiny', image-size '32'" "--resume FILE and --plan take them too"

# --init has had its effect.
chex-eval export --checkpoint run/last.h5 --output init.safetensors -q >export.out 2>&1
expect_status 0 train --output anew --max-steps 9 --init init.safetensors
like "$(err)" 'warn: --init init.safetensors has no effect: the run goes on from anew/checkpoints/step-0000000008.h5' \
    "--init on resume has no effect, and a line says so"
unlike "$(err)" "init '' ->" "it is no change"

# Another set, by name.
for other in other:--seed=9 big:--size=40; do
    chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
        --fractions 0.6,0.2,0.2 --output "${other%:*}" -q "${other#*:}" >shard.out
done
expect_status 2 train --output run --max-steps 7 --data big
error_line 'trained on another set \([0-9]+ images of 32 px in set\) than split train of --data big \([0-9]+ images of 40 px\)' \
    "another set is named, not its digest"
expect_status 2 train --output run --max-steps 7 --data other
error_line '(trained on another set|held other images)' "another split of the same images is refused"
done_testing
