# SPDX-License-Identifier: Apache-2.0
# chex-shard resumes a killed run without repeating its work. A full disk leaves nothing.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 400 --size 96 --output ph --quiet || exit 1
run=(chex-shard --images ph/images --labels ph/labels.csv --split none --size 96 --shards 40 --workers 1)
"${run[@]}" --output whole --quiet || exit 1

partial=o/.chex-shard-partial
begun() { [ "$(find "$1/.chex-shard-partial" -name '*.h5' 2>/dev/null | wc -l)" -ge 3 ]; } # FOLDER
interrupt() {
    "${run[@]}" --output o --quiet 2>/dev/null &
    pid=$!
    wait_in_run $pid begun o
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
    error_line "o: no manifest.json" "an interrupted run is not a set"
    expect_status 2 "${run[@]}" --output o
    error_line "o holds an interrupted run; --resume continues it, --force starts again" "it is not overwritten"
    expect_status 0 "${run[@]}" --output o --resume
    like "$(out)" "^$done shards kept from the interrupted run" "--resume keeps the $done shards"
    kept=$(out | sed -n 's/.* images, \([0-9]*\) of them kept, in .*/\1/p')
    is "$kept" "$((done * 10))" "kept shards do not count as work of the resumed run"
    diff -r whole o
    ok $? "a resumed set has the bytes of an uninterrupted one"
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
    ok $? "the result is the same"
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
like "$(out)" "^39 shards kept" "finished shards are kept when the bad image is allowed"
expect_status 0 "${run[@]}" --images bad/images --output fresh --max-bad 1 --workers 2
diff -r o fresh
ok $? "the bytes are those of a new run"

# Two runs in one folder: the second is refused, whatever it asks for, and the first goes on.
"${run[@]}" --output two --quiet >/dev/null 2>&1 &
pid=$!
wait_in_run $pid begun two
kill -STOP $pid
if [ -e two/manifest.json ]; then
    skip "the run was over before it could be stopped" 7
    kill -CONT $pid
    wait $pid
else
    for how in --resume --force --quiet; do
        expect_status 4 "${run[@]}" --output two $how
        error_line "output two is in use by process $pid on .*: wait for that run" "$how: a live run is no interrupted one"
    done
    kill -CONT $pid
    wait $pid
    diff -r whole two
    ok $? "the first run ends as if alone"
fi

# --resume on the complete set: nothing to do for the same options and sources, else as without.
sum=$(cat two/manifest.json two/all/*.h5 | md5sum)
expect_status 0 "${run[@]}" --output two --resume
like "$(out)" "^two: nothing to do: the set of 400 images is complete" "a job that is queued anew ends well"
is "$(cat two/manifest.json two/all/*.h5 | md5sum)" "$sum" "a refused command changes no file"
expect_status 0 "${run[@]}" --output two --resume --json
like "$(out)" '"shards_kept": 40' "--json tells of all shards"
mkdir two/.chex-shard-partial && touch two/.chex-shard-partial/moves
expect_status 0 "${run[@]}" --output two --resume
is "$(ls -A two | paste -sd' ')" "all manifest.json rejected.csv" "the leftovers of a run killed at its end are removed"
other() {
    expect_status 2 "${run[@]}" --output two --resume "${@:2}"
    error_line "output two holds a set of shards already; --force replaces it" "${*:2}: another set"
    like "$(err)" "the set in two is not the set of this run: $1" "the difference is named: $1"
}
other "size 96" --size 64
other "seed 1" --seed 2
other "shards a split: 40" --shards 7
other "split none" --split patient
other "its split has no " --views PA
sed '3s/^\([^,]*,\)[^,]*,/\1Hernia,/' ph/labels.csv >relabelled.csv
other "another labels of |source " --labels relabelled.csv
cp -rp ph newer && touch -d 'now + 1 hour' newer/images/00000001_000.png
other "a newer file of 00000001_000.png" --images newer/images
expect_status 0 "${run[@]}" --images bad/images --output o --resume --max-bad 1
like "$(out)" "nothing to do: the set of 399 images" "a set with an image left out has nothing to do"
expect_status 0 chex-shard reshard whole --output few --shards 3 --quiet
expect_status 0 chex-shard reshard whole --output few --shards 3 --resume
like "$(out)" "few: nothing to do: the set of 400 images" "a finished reshard has nothing to do"
expect_status 2 chex-shard reshard o --output few --shards 3 --resume
rm -rf two newer few

# Resharding is resumed in the same way.
chex-shard reshard whole --output more --shards 150 --workers 1 --quiet &
pid=$!
wait_in_run $pid begun more
kill -9 $pid
wait $pid 2>/dev/null
if [ -e more/manifest.json ]; then
    skip "the run was over before it could be killed" 4
else
    done=$(find more/.chex-shard-partial -name '*.h5' | wc -l)
    expect_status 0 chex-shard reshard whole --output more --shards 150 --resume
    like "$(out)" "^$done shards kept from the interrupted run" "reshard --resume keeps $done of 150 shards"
    expect_status 0 chex-shard reshard whole --output more2 --shards 150 --quiet
    diff -r more more2
    ok $? "the bytes are those of an uninterrupted run"
fi

# Killed at random moments again and again.
bash "$SOURCE/tests/soak_shard.sh" --kills 6 --count 200 >soak 2>&1
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
    error_line "No space left on device" "reshard reports a full disk too"
    is "$(ls -A small)" "" "nothing is left"
    expect_status 9 "${run[@]}" --output small/o --resume
    kept=$(find small/o -name '*.h5' | wc -l)
    [ "$kept" -ge 1 ] && [ -z "$(find small/o -name '*.tmp.*')" ]
    ok $? "with --resume the $kept finished shards stay, the unfinished one does not"
    mount -t tmpfs -o remount,nr_inodes=1000 none small
    expect_status 0 "${run[@]}" --output small/o --resume
    like "$(out)" "^$kept shards kept" "finished shards are kept when there is room again"
    diff -r whole small/o
    ok $? "the bytes are those of an uninterrupted run"
else
    skip "cannot mount a tmpfs here (not root)" 14
fi
done_testing
