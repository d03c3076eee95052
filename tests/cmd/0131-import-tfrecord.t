# SPDX-License-Identifier: Apache-2.0
# chex-shard import-tfrecord makes the shards of the same images from records that TensorFlow
# wrote. Every error names file, record and byte.
source "$(dirname "$0")/lib.sh"

data=$SOURCE/tests/data/tfrecord
common=(--split none --size 16 --shards 2)
expect_status 0 chex-shard --images "$data/images" --labels "$data/list.txt" "${common[@]}" --output whole
for file in dell float; do
    expect_status 0 chex-shard import-tfrecord "$data/$file.tfrecord" "${common[@]}" --output $file
    like "$(err)" "1 TFRecord files, labels in Dell's order, 3 images" "$file: the order is said"
    diff -r whole/all $file/all
    ok $? "$file: the shards of the same images and labels"
    is "$(diff whole/manifest.json $file/manifest.json | grep '^>' | grep -v '"digest"')" \
        '>  "label_format": "tfrecord",' "$file: the manifest differs in the format and its digest alone"
done
expect_status 0 chex-shard verify dell
expect_status 0 chex-shard import-tfrecord "$data/dell.tfrecord" "${common[@]}" --label-order chexnet \
    --output chexnet --json
like "$(out)" '"schema": "chexnet-shard-import-tfrecord"' "--json"
cmp -s whole/manifest.json chexnet/manifest.json
[ $? -ne 0 ]
ok $? "another order is other labels"
order=Cardiomegaly,Emphysema,Effusion,Hernia,Nodule,Pneumothorax,Atelectasis,Pleural_Thickening,Mass,Edema,Consolidation,Infiltration,Fibrosis
expect_status 0 chex-shard import-tfrecord "$data/dell.tfrecord" "${common[@]}" \
    --label-order "$order,Pneumonia" --output named --quiet
diff -r dell named
ok $? "--label-order with names"
expect_status 2 chex-shard import-tfrecord "$data/dell.tfrecord" --label-order "$order" --output o
error_line "13 names, expected 14" "too few names are refused"
expect_status 2 chex-shard import-tfrecord "$data/dell.tfrecord" --label-order "$order,Mass" --output o
error_line "Mass is there twice" "a name twice"
expect_status 2 chex-shard import-tfrecord "$data/dell.tfrecord" --label-order google --output o
error_line "'google', expected dell, chexnet or these 14" "an unknown order"
expect_status 2 chex-shard import-tfrecord --output o
error_line "takes one or more TFRecord files" "no file"
expect_status 2 chex-shard import-tfrecord "$data/dell.tfrecord" --split none --test-list x --output o
error_line "need --split official" "lists need --split official"
expect_status 3 chex-shard import-tfrecord none.tfrecord --output o
error_line "cannot open none.tfrecord" "no such file"
expect_status 3 chex-shard import-tfrecord "$data/dell.tfrecord" "$data/float.tfrecord" --output o
error_line "float.tfrecord: record 1: image '00000007_000.png' is record 1 of .*dell.tfrecord already" \
    "an image twice"

# spoil OFFSET: one changed byte.
spoil() {
    cp "$data/dell.tfrecord" bad
    chmod u+w bad
    printf '\x5a' | dd of=bad bs=1 seek="$1" conv=notrunc 2>/dev/null
}
first=$((12 + $(od -An -tu8 -N8 "$data/dell.tfrecord") + 4))
spoil 1
expect_status 3 chex-shard import-tfrecord bad --output o
error_line "bad: record 1 at byte 0: the checksum of its length is wrong" "a changed length"
spoil $((first + 100))
expect_status 3 chex-shard import-tfrecord bad --output o
error_line "bad: record 2 at byte $first: the checksum of its data is wrong" "changed data"
head -c $((first + 50)) "$data/dell.tfrecord" >bad
expect_status 3 chex-shard import-tfrecord bad --output o
error_line "bad: record 2 at byte $first: the file ends in the middle of it" "a cut record"
head -c $((first + 5)) "$data/dell.tfrecord" >bad
expect_status 3 chex-shard import-tfrecord bad --output o
error_line "bad: record 2 at byte $first: the file ends in the record's head" "a cut head"
gzip -nc "$data/dell.tfrecord" >bad
expect_status 3 chex-shard import-tfrecord bad --output o
error_line "this is a gzip file, expected TFRecords without compression" "a compressed file"
: >bad
expect_status 3 chex-shard import-tfrecord bad --output o
error_line "bad: no records" "an empty file"
[ ! -e o ]
ok $? "refused commands leave nothing"
done_testing
