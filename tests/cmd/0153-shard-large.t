#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard works with as many threads as a large node has CPUs, and with as many shards as
# images.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 120 --size 32 --output ph --quiet >/dev/null || exit 1
run=(chex-shard --labels ph/labels.csv --split none --size 32 --shards 5 --quiet)
"${run[@]}" --images ph/images --workers 1 --output one || exit 1
mkdir packed && tar -C ph -czf packed/images.tgz images
for workers in 256 1024; do
    expect_status 0 "${run[@]}" --images ph/images --workers $workers --output w$workers
    diff -r one w$workers
    ok $? "$workers threads make the bytes of one"
    expect_status 0 "${run[@]}" --images packed --workers $workers --output t$workers
    diff -r one/all t$workers/all
    ok $? "a compressed archive gives the same set"
    expect_status 0 chex-shard verify one --workers $workers
    expect_status 0 chex-shard reshard one --shards 3 --workers $workers --output r$workers
    expect_status 0 "${run[@]}" --images ph/images --workers $workers --output one --resume
done
diff -r r256 r1024
ok $? "reshard makes the same bytes"
expect_status 2 "${run[@]}" --images ph/images --workers 1025 --output none
expect_status 0 "${run[@]}" --images ph/images --shards 99999 --output each
is "$(find each/all -name '*-of-00120.h5' | grep -c .)" 120 "more shards than images: one image a shard"
expect_status 0 chex-shard verify each
expect_status 2 "${run[@]}" --images ph/images --shards 100000 --output none
done_testing
