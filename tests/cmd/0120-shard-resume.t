# SPDX-License-Identifier: Apache-2.0
# chex-shard: a killed run is resumed without doing its work again; a full disk leaves nothing.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 400 --size 96 --output ph --quiet || exit 1
run=(chex-shard --images ph/images --labels ph/labels.csv --split none --size 96 --shards 40 --workers 1)
"${run[@]}" --output whole --quiet || exit 1

partial=o/.chex-shard-partial
interrupt() {
    "${run[@]}" --output o --quiet 2>/dev/null &
    local pid=$! i
    for ((i = 0; i < 2000; i++)); do
        [ "$(find $partial -name '*.h5' 2>/dev/null | wc -l)" -ge 3 ] && break
        sleep 0.005
    done
    kill -9 $pid
    wait $pid 2>/dev/null
}
interrupt
if [ -e o/manifest.json ]; then
    skip "the run was over before it could be killed" 9
else
    done=$(find $partial -name '*.h5' | wc -l)
    is "$(ls -A o)" ".chex-shard-partial" "$done of 40 shards done, nothing under a final name"
    expect_status 3 chex-shard info o
    error_line "o: no manifest.json" "what was interrupted is no set"
    expect_status 2 "${run[@]}" --output o
    error_line "o holds an interrupted run; --resume goes on with it, --force starts anew" "it is not overwritten"
    expect_status 0 "${run[@]}" --output o --resume
    like "$(out)" "^$done shards kept from the interrupted run" "--resume keeps the $done shards"
    diff -r whole o
    ok $? "and ends with the bytes of a run in one go"
    [ ! -e $partial ]
    ok $? "the partial folder is gone"
fi
rm -rf o
interrupt
if [ -e o/manifest.json ]; then
    skip "the run was over before it could be killed" 2
else
    # Shards of other input are not kept: one image has changed.
    cp -r ph ph2
    cp ph/images/00000002_000.png ph2/images/00000001_000.png
    expect_status 0 "${run[@]}" --images ph2/images --labels ph2/labels.csv --output o --resume
    expect_status 0 chex-shard verify o
    rm -rf o
fi
interrupt
if [ -e o/manifest.json ]; then
    skip "the run was over before it could be killed" 3
else
    expect_status 0 "${run[@]}" --output o --force
    unlike "$(out)" "kept" "--force starts anew"
    diff -r whole o
    ok $? "with the same result"
fi

# --resume keeps finished shards when a run fails by itself; without it they go.
cp -r ph bad
head -c 100 ph/images/00000003_000.png >bad/images/00000003_000.png
rm -rf o
expect_status 3 "${run[@]}" --images bad/images --output o
[ ! -e o ]
ok $? "a failed run leaves nothing"
expect_status 3 "${run[@]}" --images bad/images --output o --resume
is "$(find $partial -name '*.h5' | wc -l)" 39 "with --resume the 39 good shards stay"
expect_status 0 "${run[@]}" --images bad/images --output o --resume --max-bad 1
like "$(out)" "^39 shards kept" "and are taken up when the bad image is allowed"
expect_status 0 "${run[@]}" --images bad/images --output fresh --max-bad 1 --workers 2
diff -r o fresh
ok $? "with the bytes of a fresh run"

# Resharding is resumed in the same way.
chex-shard reshard whole --output more --shards 300 --workers 1 --quiet &
pid=$!
for ((i = 0; i < 2000; i++)); do
    [ "$(find more/.chex-shard-partial -name '*.h5' 2>/dev/null | wc -l)" -ge 3 ] && break
    sleep 0.002
done
kill -9 $pid
wait $pid 2>/dev/null
if [ -e more/manifest.json ]; then
    skip "the run was over before it could be killed" 4
else
    done=$(find more/.chex-shard-partial -name '*.h5' | wc -l)
    expect_status 0 chex-shard reshard whole --output more --shards 300 --resume
    like "$(out)" "^$done shards kept from the interrupted run" "reshard --resume keeps $done of 300 shards"
    expect_status 0 chex-shard reshard whole --output more2 --shards 300 --quiet
    diff -r more more2
    ok $? "with the bytes of a run in one go"
fi

# Killed at random moments again and again.
bash "$SOURCE/tests/soak_shard.sh" --kills 6 --count 300 >soak 2>&1
ok $? "$(tail -n 1 soak)" || diag "$(cat soak)"

# A full disk: too small from the start, and full in the middle (no inode left).
mkdir small
if mount -t tmpfs -o size=2m none small 2>/dev/null; then
    at_exit umount -l "$SCRATCH/small"
    expect_status 9 "${run[@]}" --output small/o
    error_line "the shards take .* and small/o has only 2 MiB|2\.0 MiB free" "the disk is too small"
    is "$(ls -A small)" "" "nothing was written"
    mount -t tmpfs -o remount,size=64m,nr_inodes=14 none small
    expect_status 9 "${run[@]}" --output small/o
    error_line "No space left on device" "the disk is full in the middle"
    is "$(ls -A small)" "" "nothing is left"
    expect_status 9 chex-shard reshard whole --output small/r --shards 40
    error_line "No space left on device" "so with reshard"
    is "$(ls -A small)" "" "nothing is left"
    expect_status 9 "${run[@]}" --output small/o --resume
    kept=$(find small/o -name '*.h5' | wc -l)
    [ "$kept" -ge 1 ] && [ -z "$(find small/o -name '*.tmp.*')" ]
    ok $? "with --resume the $kept finished shards stay, the unfinished one does not"
    mount -t tmpfs -o remount,nr_inodes=1000 none small
    expect_status 0 "${run[@]}" --output small/o --resume
    like "$(out)" "^$kept shards kept" "and are taken up when there is room"
    diff -r whole small/o
    ok $? "with the bytes of a run in one go"
else
    skip "cannot mount a tmpfs here (not root)" 14
fi
done_testing
