#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run logs what is on and what changes, and its numbers agree with their nouns.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 24 --shards 1
like "$(cat set.out)" '^train +[0-9]+ images in 1 shard$' "one shard is no shards"
train=(chex-train --data set --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu --threads 1)

expect_status 0 "${train[@]}" --max-steps 1 --output one
like "$(err)" 'augmentation: crops of 0.5 of the area or more, flip with probability 0.5 \(' "augmentations that are off are not mentioned"
like "$(err)" 'batch 2 x 1 logical rank = 2 images a step' "one logical rank"
like "$(err)" 'done: 1 step, 0 of 15 epochs .*; 1 step of this start took' "one step"
expect_status 0 "${train[@]}" --max-steps 1 --output turned --rotate 1 --contrast 0.2 --antialias --epochs 1
like "$(err)" 'augmentation: .* more, antialiased, flip with probability 0.5, rotation up to 1 degree, contrast 0.2 \(' "augmentations that are on are listed"
like "$(err)" '0 of 1 epoch ' "one epoch"

expect_status 0 "${train[@]}" --epochs 5 --output five
sed -n 's/^.*  time: .* of the mean); //p' err >advice
[ "$(uniq <advice | wc -l)" = "$(wc -l <advice)" ] && [ -s advice ]
ok $? "the advice of an epoch is logged when it changes"
is "$(grep -c '"kind":"epoch".*"time_shares".*"advice"' five/metrics.jsonl)" 5 "metrics.jsonl has that of each epoch"
like "$(err)" 'time of all steps: data wait [0-9.]+ %.* of the mean\); [a-z]' "the end has shares and advice"
done_testing
