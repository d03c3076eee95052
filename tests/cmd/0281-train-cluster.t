#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --plan --machines predicts the speed on a described cluster.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need chex-train chex-shard

chex-shard phantom --count 120 --size 32 --seed 1 --output ph -q >/dev/null || fail "phantom"
chex-shard create --images ph/images --labels ph/labels.csv --size 32 --shards 1 --split patient \
    --seed 1 --output shards -q >/dev/null 2>&1 || fail "shards"
plan() { expect_status "$1" chex-train --plan --data shards --output run --image-size 32 --batch-size 2 \
    --engine ref "${@:2}"; }

# A step of 2 images takes 200 ms on one process; four take 240 ms.
cat >four.json <<'JSON'
{"schema": 1, "nodes": 2, "processes_a_node": 4, "images_per_s": 10, "batch_images": 2,
 "links": {"local": {"bytes_per_s": 1e12}, "network": {"bytes_per_s": 1e9, "latency_s": 1e-3}},
 "measured": {"processes": 4, "images_per_s": 33.333333}}
JSON
plan 0 --machines four.json
like "$(out)" '^cluster +four.json: 2 nodes of 4 processes, 10.0 images/s on one$' "the plan shows the cluster"
is "$(grep -A9 '^cluster' out | grep -cE '^ +[1-8] .* %')" 5 "the plan has a line for 1, 2, 3, 4 and 8 processes"
like "$(out)" '^ +1 +1 +200 ms .* 10\.0 +100\.0 %' "one process has the speed that was measured"
like "$(out)" '^ +4 +1 +240 ms .* 33\.3 +83\.3 %' "and four have theirs"
like "$(out)" '^ +8 +1 +2[67][0-9] ms' "eight on two nodes wait longer, and for the network"
plan 0 --machines four.json --batch-size 3
like "$(out)" '^warning +--machines four.json was measured with batches of 2 images, and --batch-size is 3' \
    "another batch size gives a warning"
plan 0 --machines four.json --logical-ranks 3
is "$(grep -A9 'processes  passes' out | grep -cE '^ +[1-8] .* %')" 3 "3 logical ranks have lines for 1, 2 and 3 processes"
like "$(out)" '^ +2 +2 +42[0-9] ms' "two processes share 3 logical ranks: two passes"
like "$(out)" '^warning +the run has 3 logical ranks, so it uses at most 3 of the cluster.s 8 processes$' \
    "the warning says that more processes are of no use"
plan 0 --machines four.json --accumulate 4
like "$(out)" '^ +1 +4 +800 ms .* 10\.0 +100\.0 %' "--accumulate 4 has four passes a step"
plan 0 --machines four.json --sync-bn
like "$(out)" '^ +--sync-bn: 242 sums over all processes in each step$' "--sync-bn: the sums are counted"
# Up and down one level of the tree of nodes: 242 x 2 x 1 ms, and about 1 ms for the bytes.
like "$(out)" '^ +8 +1 +7[89][0-9] ms .* 48[45] ms ' "their time is in the step"
plan 0 --machines four.json --audit-steps 5
like "$(out)" '^ +1 +1 +240 ms .* 40\.0 ms ' "--audit-steps 5 adds a fifth of a pass"
plan 0 --machines four.json --json
like "$(out)" '"predictions": \[\{"processes": 1, "nodes": 1, "passes": 1, "step_s": 0.2,' "JSON has the predictions"

expect_status 2 chex-train --data shards --output run --machines four.json
like "$(err)" 'error: --machines four.json: expected --plan with it$' "without --plan it is refused"
plan 2 --cluster four.json
like "$(err)" "unknown option '--cluster'; did you mean --machines\?" "the word of chex-eval is no option here"
plan 2 --machines missing.json
like "$(err)" 'error: --machines: cannot open missing.json' "a missing file is refused"
sed 's/"nodes": 2/"nodes": 0/' four.json >bad.json
plan 2 --machines bad.json
like "$(err)" 'error: --machines bad.json: nodes: 0 \(expected a whole number from 1 to 65536\)$' \
    "a value out of range is named"
is "$(ls -d run 2>/dev/null)" "" "nothing was written"
done_testing
