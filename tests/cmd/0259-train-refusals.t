#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train refuses combinations of options before any work: those that the values decide before it
# looks for the data, the others before it opens a shard.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"

# refused REGEX OPTION...: with data that does not exist (status 3 if anything looked for them).
refused() {
    expect_status 2 chex-train --data nowhere --output bad --engine cpu "${@:2}"
    error_line "$1" "the reason is named"
}
refused '--bench and --bench-input: expected one of them' --bench 2 --bench-input 2
refused '--plan and --bench: expected one of them' --plan --bench 2
refused '--plan and --bench-input: expected one of them' --plan --bench-input 2
refused '--timeline and --bench: a timeline is one of a run' --timeline t.json --bench 2
refused '--accumulate and --logical-ranks: expected one of them' --accumulate 2 --logical-ranks 4
refused '--sync-bn and --bench: it times each rank on its own' --sync-bn --bench 2
refused '--audit-steps and --sync-bn: a pass needs all ranks, so no process can repeat one' \
    --audit-steps 5 --sync-bn --logical-ranks 2
refused '--audit-steps and --pipeline old: no other process can repeat its batches' --audit-steps 5 --pipeline old
refused '--head-only and --pipeline old: it reads images in every epoch' --head-only --pipeline old
for option in --crop-scale=0.5 --hflip=0 --no-antialias --rotate=0 --freeze=none --layer-decay=1 --no-sync-bn \
    --audit-steps=0 --cache=auto --resident=auto; do
    name=${option#--no-} name=${name#--} name=${name%%=*}
    refused "--head-only and --$name: only the classifier trains" --head-only "$option"
done
refused '--nesterov: --opt is adam \(expected sgd\)' --opt adam --nesterov
refused '--focal-gamma: --loss is bce \(expected focal\)' --focal-gamma 1
refused '--min-lr 1: expected no more than --lr, 0.1' --lr 0.1 --min-lr 1

# With a manifest whose shards are gone: reading them would be status 3.
chex-shard phantom --count 30 --size 32 --seed 2 --output ph -q >ph.out
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 1 --split none --output set -q >set.out 2>&1
find set -type f ! -name manifest.json -delete
unopened() {
    expect_status 2 chex-train --data set --output bad --image-size 32 "${@:2}"
    error_line "$1" "the reason is named"
}
expect_status 3 chex-train --data set --output bad --image-size 32 --engine cpu
unopened "--freeze: 'features.none' matches no trained parameter of densenet121" --engine cpu --freeze features.none
unopened "--freeze \*: no parameter is left to train" --engine cpu --freeze '*'
unopened 'engine cpu: precision fp16 needs a GPU' --engine cpu --precision fp16
unopened "engine cpu:sse: unknown variant, expected one of" --engine cpu:sse
unopened 'engine ref: precision fp16: expected bf16, fp32 or fp32-strict' --engine ref --precision fp16
unopened '--sync-bn: 13 logical ranks on one rank \(expected at most 12' --engine cpu --sync-bn --logical-ranks 13
unopened '--sync-bn: --pipeline old has one batch at a time for 2 logical ranks' \
    --engine cpu --sync-bn --logical-ranks 2 --pipeline old
unopened '--head-only: the network has only the parameters of --seed' --engine cpu --head-only

# without_effect TEXT OPTION...: one warning, before any shard is opened.
without_effect() {
    expect_status 3 chex-train --data set --output bad --image-size 32 --engine cpu "${@:2}"
    is "$(grep -o -- '--.* has no effect with .*' err)" "$1" "$1"
}
without_effect '--momentum has no effect with --opt adam' --momentum 0.9
without_effect '--decay-norms has no effect with --weight-decay 0' --decay-norms
without_effect '--lr-factor has no effect with --sched cosine' --sched cosine --lr-factor 0.5
without_effect '--patience-epochs has no effect with --sched constant' --sched constant --patience-epochs 2
without_effect '--min-lr has no effect with --sched constant' --sched constant --min-lr 0
without_effect '--step-epochs has no effect with --sched plateau' --step-epochs 5
without_effect '--shuffle-block has no effect with --pipeline old' --pipeline old --shuffle-block 2
expect_status 3 chex-train --data set --output bad --image-size 32 --engine cpu --opt lars --momentum 0.5 \
    --weight-decay 0.1 --decay-norms --sched step --step-epochs 2 --lr-factor 0.5
unlike "$(err)" 'no effect' "no warning about options that have an effect"
expect_status 3 chex-train --data set --output bad --image-size 32 --engine cpu --no-decay-norms
unlike "$(err)" 'no effect' "no warning about a flag that is off"
expect_status 0 chex-train --bench 1 --model densenet_tiny --image-size 32 --batch-size 1 --engine cpu --epochs 3
like "$(err)" '--epochs has no effect with --bench 1' "options of training are reported with --bench"
[ ! -e bad ]
ok $? "a refused run writes nothing"
done_testing
