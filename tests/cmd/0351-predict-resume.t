#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval predict goes on after a kill or a full disk with the same result, and refuses to mix two
# runs.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

mkdir images
cp "$SOURCE"/datasets/nih-sample/images/000000[0-2]*_00*.png images
: >images/empty.png
quiet chex-shard --images images --labels "$SOURCE"/datasets/nih-sample/Data_Entry_2017.csv \
    --size 36 --shards 1 --split none --max-bad 100000 --output shards
quiet chex-train --data shards --output run --model densenet_tiny --image-size 32 --batch-size 4 --max-steps 2 \
    --engine cpu --threads 2
predict=(chex-eval predict --images images --checkpoint run/last.h5 --batch-size 4 --workers 1)
partial=cut/.predict-partial

# finished: lines of the unfinished results.
finished() { cat $partial/part-* 2>/dev/null | wc -l; }

expect_status 0 "${predict[@]}" --output whole --sheet --heat-maps 3

# A run that is killed after some images. --engine ref is slow; it is compared with itself.
killed=
for _ in 1 2 3; do
    "${predict[@]}" --output cut --engine ref --threads 1 >/dev/null 2>&1 &
    process=$!
    for ((i = 0; i < 600; i++)); do
        [ "$(finished)" -lt 8 ] || break
        sleep 0.02
    done
    kill -9 $process 2>/dev/null && [ ! -e cut/predict.json ] && killed=yes
    wait $process 2>/dev/null
    [ -z "$killed" ] || break
    rm -rf cut
done
[ "$killed" ] && [ ! -e cut/predictions.csv ]
ok $? "a killed run leaves no table"
had=$(finished)
printf '0123456789abcdef 1 p\tcut in the mid' >>$partial/part-00000
expect_status 2 "${predict[@]}" --output cut --engine cpu
error_line 'output folder cut has an unfinished run with another --engine: name a new folder' \
    "options that change the result are refused with an unfinished run"
mv images/empty.png images/blank.png
expect_status 2 "${predict[@]}" --output cut --engine ref
error_line 'unfinished run with another list of images' "and so is another list of images"
mv images/blank.png images/empty.png
expect_status 0 "${predict[@]}" --output cut --engine ref --threads 2 --workers 2 --batch-size 8
like "$(out)" "images, $had of them kept from the interrupted run" \
    "the images of the killed run are kept, and a cut line is dropped"
expect_status 0 "${predict[@]}" --output plain --engine ref
diff -r plain cut >diff.log
ok $? "the files are those of a run without interruption"

# Another checkpoint, and --force.
expect_status 3 "${predict[@]}" --output more --max-bad 0
error_line 'more than 0 images cannot be used \(--max-bad\), such as images/empty.png: empty file' \
    "--max-bad limits the files that cannot be used"
quiet chex-train --data shards --output run2 --model densenet_tiny --image-size 32 --batch-size 4 --max-steps 1 \
    --engine cpu --threads 2
expect_status 2 chex-eval predict --images images --checkpoint run2/last.h5 --output more
error_line 'unfinished run with another checkpoint' "an unfinished run of another checkpoint is refused"
expect_status 0 chex-eval predict --images images --checkpoint run2/last.h5 --output more --force
like "$(out)" 'predictions.csv: [0-9]+ images in' "unless --force discards it"

# A full disk.
mkdir small
if mount -t tmpfs -o size=100k none small 2>/dev/null; then
    at_exit umount "$SCRATCH/small"
    expect_status 9 "${predict[@]}" --output small/out --sheet --heat-maps 3
    error_line 'No space left on device' "a full disk is reported"
    [ ! -e small/out/predictions.csv ]
    ok $? "no table is half written"
    mount -t tmpfs -o remount,size=32m none small
    expect_status 0 "${predict[@]}" --output small/out --sheet --heat-maps 3
    diff -r whole small/out >diff.log
    ok $? "with space, the same command completes the results"
else
    skip "cannot mount a tmpfs here (not root)" 5
fi

done_testing
