#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard keeps images apart whose file names repeat from folder to folder, in all sources of
# images and labels, and follows links in the image folder.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 12 --size 32 --output ph --quiet >/dev/null || exit 1
# Four patients with three images each: the names 1.png to 3.png repeat, the name own.png does not.
mapfile -t pictures < <(find ph/images -name '*.png' | sort)
mkdir export
echo image,patient,Effusion >stated.csv
for i in {0..11}; do
    folder=$(printf 'p%d' $((i / 3))) name=$((i % 3 + 1)).png
    [ "$i" -lt 11 ] || name=own.png
    mkdir -p "export/$folder/s"
    cp "${pictures[i]}" "export/$folder/s/$name"
    echo "$folder/s/$name,Q$((i / 3)),$((i % 2))" >>stated.csv
done
run=(chex-shard --images export --split none --size 32 --shards 2)
# same_images A B COUNT NAME: how many images two sources share, by id.
same_images() {
    chex-shard audit "$1" "$2" --json >audit.json 2>audit.err
    like "$(cat audit.json audit.err)" "\"shared_images\": $3\b" "$4"
}
refuse() { # STATUS REGEX ARGUMENT...
    local status=$1 what=$2
    shift 2
    expect_status "$status" "$@"
    error_line "$what" "the error says: ${what:0:70}"
}

# ---- ids ----
expect_status 0 "${run[@]}" --labels stated.csv --output o
unlike "$(err)" " warn: " "patients that are stated are taken"
expect_status 0 chex-shard verify o
same_images o stated.csv 12 "the set has the ids of the label file"
printf 'p0/s/1.png\nown.png\n' >two.txt
chex-shard audit two.txt o --labels stated.csv --json >audit.json 2>/dev/null
like "$(cat audit.json)" '"shared_images": 2' "a path and a name that is unique are found by a list"
expect_status 0 chex-shard reshard o --shards 3 --output o3
same_images o o3 12 "reshard keeps the ids"
expect_status 0 "${run[@]}" --labels stated.csv --output o --resume
like "$(out)" "nothing to do" "--resume knows the images again"
sed 's|^p|./export//p|' stated.csv >prefix.csv
expect_status 0 "${run[@]}" --labels prefix.csv --output prefixed
sed -E 's|\.png||' stated.csv >stems.csv
expect_status 0 "${run[@]}" --labels stems.csv --output stems
same_images stems stems.csv 12 "names without endings repeat as well"
h5sum() { cat "$1"/all/*.h5 | md5sum; }
# Names that do not repeat keep their ids and bytes.
grep -E '^image|p0/' stated.csv >unique.csv
expect_status 0 "${run[@]}" --labels unique.csv --output unique
sed 's|p0/s/||' unique.csv >names.csv
expect_status 0 chex-shard --images export/p0 --split none --size 32 --shards 2 --labels names.csv --output names
is "$(h5sum unique)" "$(h5sum names)" "names that do not repeat are the ids, whatever the folders"

# ---- sources ----
tar -C export -cf plain.tar p0 p1
tar -C export -czf packed.tgz p2 p3
mkdir archives && mv plain.tar packed.tgz archives
expect_status 0 "${run[@]}" --images archives --labels stated.csv --output tar
is "$(h5sum tar)" "$(h5sum o)" "members of several archives, plain and compressed, are found by their paths"
mkdir mixed && cp -r export/p0 export/p2 mixed && cp archives/* mixed
expect_status 0 "${run[@]}" --images mixed --labels stated.csv --output mix
is "$(h5sum mix)" "$(h5sum o)" "files of their own and members together"
sed 1d stated.csv | awk -F, '{printf "%s", $1; for (i = 0; i < 14; i++) printf " %d", i == 2 && $3; print ""}' >list.txt
expect_status 0 "${run[@]}" --labels list.txt --output list
like "$(err)" "warn: .*the patients of 12 images are taken from the first folders in which their paths differ" \
    "patients of a list come from the folders, which is said"
like "$(chex-shard info list)" "4 patients|patients +4" "one patient a folder"
same_images list o 12 "a list gives the same ids"
if [ -x "$BUILD/tests/write_tfrecord" ]; then
    "$BUILD/tests/write_tfrecord" export list.txt records || exit 1
    expect_status 0 chex-shard import-tfrecord records --label-order chexnet --split none --size 32 \
        --shards 2 --output records.set
    is "$(h5sum records.set)" "$(h5sum list)" "TFRecords with paths for names"
else
    skip "no write_tfrecord here" 2
fi

# ---- lists ----
grep -hE '^p[01]/' stated.csv | cut -d, -f1 >train.txt
grep -hE '^p2/' stated.csv | cut -d, -f1 >val.txt
grep -hE '^p3/' stated.csv | cut -d, -f1 | sed 's|^|export/|' >test.txt
lists=(--split official --train-list train.txt --val-list val.txt --test-list test.txt)
expect_status 0 "${run[@]}" --labels stated.csv "${lists[@]}" --output split
like "$(out)" "^train +6 images" "lists name images by their paths"
like "$(out)" "^test +3 images" "paths with further folders above are found"
echo 1.png >val.txt
refuse 3 "val.txt: line 1: '1.png' names several images, such as p[0-9]/s/1.png and p[0-9]/s/1.png, expected one" \
    "${run[@]}" --labels stated.csv "${lists[@]}" --output none
echo p9/s/1.png >test.txt
refuse 3 "test.txt: none of its 1 image" "${run[@]}" --labels stated.csv --split official \
    --train-list train.txt --test-list test.txt --output none

# ---- refusals ----
printf 'image,Effusion\n1.png,1\nown.png,0\n' >short.csv
refuse 3 "short.csv: line 2: image 1.png matches two files: export/p0/s/1.png, export/p[12]/s/1.png" \
    "${run[@]}" --labels short.csv --output none
(cat stated.csv; echo ./p1/s/2.png,Q1,0) >again.csv
refuse 3 "again.csv: line 14, column 1: image 'p1/s/2.png' is on line 6 already" \
    "${run[@]}" --labels again.csv --output none
(cat stated.csv; echo export/p1/s/2.png,Q1,0) >same.csv
refuse 3 "same.csv: line 14: image export/p1/s/2.png is the same file .export/p1/s/2.png. as image p1/s/2.png of line 6" \
    "${run[@]}" --labels same.csv --output none
mkdir less && cp -r export/p0 export/p1 export/p2 less
expect_status 3 "${run[@]}" --images less --labels stated.csv --output none
like "$(err)" "line 11: image p3/s/1.png is not under less" "a file of the same name in another folder is another image"
mkdir export/x && cp -r export/p0 export/x/p0
expect_status 0 "${run[@]}" --labels stated.csv --output deeper
is "$(h5sum deeper)" "$(h5sum o)" "the path below the image folder goes before a longer one"
rm -rf export/x

# ---- training and evaluation ----
expect_status 0 chex-train --data split --output run --model densenet_tiny --image-size 32 --batch-size 2 --max-steps 1 --engine cpu --quiet
expect_status 0 chex-eval --data split --checkpoint run/last.h5 --output eval --engine cpu --quiet
is "$(sed 1d eval/predictions.csv | cut -d, -f1 | sort | paste -sd' ')" "own.png p3/s/1.png p3/s/2.png" \
    "predictions.csv has the ids"

# ---- links ----
for i in 1 2 3; do ln -s .. export/p1/s/loop$i; done
ln -s "$PWD/export/p2" export/linked
expect_status 0 timeout "$CHEX_TEST_WAIT" "${run[@]}" --labels stated.csv --output loops
is "$(h5sum loops)" "$(h5sum o)" "links to a folder above are not followed"
is "$(grep -c 'warn: .*/loop. is the folder above it, export/p1: not followed; folders that were not followed: 3' err)" 1 \
    "which is said once, with their number"
deep=deep
for i in {1..40}; do deep+=/$i; done
mkdir -p "$deep" && cp "${pictures[0]}" "$deep/1.png"
printf 'image,Effusion\n1.png,1\n' >one.csv
expect_status 0 "${run[@]}" --images deep --labels one.csv --output deepest
like "$(out)" "^all +1 image" "an image 40 folders deep is found"
done_testing
