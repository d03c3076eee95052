#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The options of chex-train's input work: --bench-input, --pipeline old, --cache, --shuffle-block,
# --stage.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff chex-train chex-shard

chex-shard phantom --count 40 --size 32 --seed 1 --output ph -q >/dev/null || fail "phantom"
chex-shard create --images ph/images --labels ph/labels.csv --size 32 --shards 4 --split patient \
    --seed 1 --output shards -q || fail "shards"
bench=(chex-train --data shards --model densenet_tiny --image-size 32 --batch-size 8 --bench-input 40)
common=(chex-train --data shards --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --threads 1 --lr 1e-3
    --seed 5 --epochs 3 --max-steps 10)
same() { # FILE FILE NAME
    h5diff "$1" "$2" /params /params
    ok $? "$3"
}

# Measuring.
for pipeline in new old; do
    expect_status 0 "${bench[@]}" --pipeline $pipeline --json
    for key in images_per_s_median images_per_s_best peak_rss_bytes bytes_per_s stall_share \
        consume_images_per_s engine precision threads pipeline workers batch image_size stored_size \
        cache shuffle_width ranks; do
        grep -q "\"$key\":" out || echo "$key"
    done >missing
    is "$(cat missing)" "" "--bench-input --json, $pipeline: every key is there"
    like "$(out)" "\"pipeline\": \"$pipeline\"" "the JSON names the pipeline"
    like "$(out)" '"engine": "none", "precision": "fp32",.* "threads": [1-9]' "the JSON says that there is no engine"
done
expect_status 0 "${bench[@]}" --workers 2 --consume 2000
like "$(out)" '^input new, 32 px of 32 stored, batch 8, 2 workers, 1 rank: [0-9]+ images/s median' "a line for people"
like "$(out)" '^consumed at 2000 images/s a rank: [0-9]+ reached, stalled [0-9.]+ %' "the stall share at a rate"
rate=$("${bench[@]}" --consume 800 -q | sed -n 's/.*a rank: \([0-9]*\) reached.*/\1/p')
[ "$rate" -le 900 ]
ok $? "the consumer takes the requested rate at most ($rate for 800)"
like "$(err)" 'input pipeline new, 2 threads; order local, shuffle [0-9]+ rows wide' "the pipeline is named"
expect_status 0 "${bench[@]}" --pipeline old --workers 3
like "$(err)" 'reads and augments all [0-9]+ rows on every rank, with one reader.*--workers mean nothing' \
    "what the old pipeline ignores is said"
expect_status 2 chex-train --bench-input 4
error_line -- '--data DIR is required' "--bench-input needs data"
expect_status 2 "${bench[@]}" --bench 4
error_line 'expected one of them' "one bench at a time"
expect_status 2 chex-train --data shards --output x --consume 100
error_line -- '--consume 100: expected --bench-input' "--consume alone"

# The same run from memory, from files and from a copy; in windows from memory and from files.
expect_status 0 "${common[@]}" --cache none --output none
like "$(err)" 'rows read as needed \(--cache none\)' "--cache none is said"
expect_status 0 "${common[@]}" --cache memory --workers 2 --output memory
like "$(err)" 'rows kept in memory \(--cache memory\)' "--cache memory is said"
same none/last.h5 memory/last.h5 "--cache changes no bit"
expect_status 0 "${common[@]}" --output auto
like "$(err)" 'less than half of the .* that is free' "auto says why"
expect_status 0 "${common[@]}" --shuffle-block 8 --cache none --output block
expect_status 0 "${common[@]}" --shuffle-block 8 --cache memory --output block2
same block/last.h5 block2/last.h5 "windows: --cache changes no bit"

# The old pipeline trains too, and goes on where it stopped.
expect_status 0 "${common[@]}" --pipeline old --output old
expect_status 0 "${common[@]}" --pipeline old --max-steps 6 --output old2
expect_status 2 "${common[@]}" --pipeline new --output old2
error_line 'pipeline is "old" in the checkpoint and "new" now' "a run stays with its pipeline"
expect_status 0 "${common[@]}" --output old2
like "$(err)" "taken from old2/.*: pipeline 'old'" "old settings are taken over without an option"
same old/last.h5 old2/last.h5 "old: stopped at step 6 and resumed, the same bits"

# A copy on the node.
mkdir node
touch node/theirs
expect_status 0 "${common[@]}" --stage node --output staged
like "$(err)" 'staging [0-9]+ shards, .* from shards to node \(.* free\)' "--stage says what it copies"
like "$(err)" 'staged and verified in' "the log says that the staged copy is verified"
same none/last.h5 staged/last.h5 "--stage changes no bit"
is "$(ls node)" "theirs" "nothing remains, and nothing else is touched"
expect_status 0 "${bench[@]}" --stage node
expect_status 4 "${common[@]}" --stage nowhere --output x
error_line -- '--stage nowhere: no such folder' "no such folder"
if have strace; then
    SLURM_JOB_ID=4711 strace -f -qq -e trace=openat,mkdir -o trace "${bench[@]}" --stage node -q >/dev/null
    grep -q 'node/chexnet-' trace
    ok $? "the copy is what is read"
    [ "$(grep -c 'openat.*[" ]shards/train.*h5' trace)" -gt 0 ] && [ "$(grep -c 'openat.*node/chexnet-.*train.*h5' trace)" -gt 0 ]
    ok $? "the rows come from the shards"
else
    skip "no strace" 2
fi
cp -r shards hurt
shard=$(find hurt/train -name '*.h5' | sort | head -n 1)
size=$(stat -c %s "$shard")
printf '\377\001\377\001' | dd of="$shard" bs=1 seek=$((size / 2)) conv=notrunc status=none
chex-shard verify hurt -q >/dev/null 2>&1
if [ $? = 3 ]; then
    expect_status 3 "${common[@]}" --data hurt --stage node --output x
    is "$(ls node)" "theirs" "a damaged shard is found while staging, and nothing remains"
else
    fail "the damage is no damage"
    skip "no damage" 1
fi
mkdir full
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=48k tmpfs full 2>/dev/null; then
    at_exit umount full
    expect_status 9 "${common[@]}" --stage full --output x
    error_line -- '--stage full: [0-9]+ shards need .* is free there' "space is checked before"
    is "$(ls full)" "" "a stage folder without space gets no file"
else
    skip "cannot mount a tmpfs here" 3
fi
done_testing
