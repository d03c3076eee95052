#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard audit --near finds images that are in two splits or in two sets.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

# 60 radiographs in one set, and 20 of them in another, under other names.
mkdir first second
sample=$SOURCE/datasets/nih-sample
mapfile -t images < <(cut -d, -f1 "$sample/Data_Entry_2017.csv" | sed -n '2,61p')
echo image,patient,Mass >first.csv
echo image,patient,Mass >second.csv
for i in {0..59}; do
    cp "$sample/images/${images[i]}" first/
    echo "${images[i]},${images[i]%_*},$((i % 2))" >>first.csv
    [ "$i" -lt 20 ] || continue
    cp "$sample/images/${images[i]}" "second/other$i.png"
    echo "other$i.png,p$i,$((i % 2))" >>second.csv
done
chex-shard --images first --labels first.csv --split patient --size 64 --shards 2 --output a >setup.log 2>&1 || exit 1
chex-shard --images second --labels second.csv --split none --size 64 --shards 1 --output b >setup.log 2>&1 || exit 1
chex-shard --images second --labels second.csv --split none --size 48 --shards 1 --output small >setup.log 2>&1 || exit 1

expect_status 0 chex-shard audit a --near 4
like "$(out)" '^60 images compared up to 4 of 64 bits: 0 pairs, 0 with equal pixels' "radiographs of different patients are not near"
expect_status 3 chex-shard audit a b --near 4
is "$(grep -c '^same pixels: a [a-z]* 0.*png, b all other[0-9]*\.png$' out)" 20 "equal pixels are named with set, split and image"
error_line '20 pairs of images in two splits or sets, 20 with equal pixels; the first is 0.*png \(a [a-z]*\) and other.*png \(b all\)' "the error names the first pair"
expect_status 3 chex-shard audit a small --near 4 --json
is "$(tr -d ' \n' <out | grep -o '"same_pixels":false}' | wc -l)" 20 "the same images in another size are near"
like "$(tr -d ' \n' <out)" '"near_bits":4,"images":80,.*"pairs_complete":true' "the result as JSON"
expect_status 3 chex-shard audit a b small --near 0 --workers 1
like "$(out)" '^100 images compared up to 0' "three sets are compared"

# One patient under two names, in train and in test.
echo image,patient,split,Mass >leak.csv
for i in {0..19}; do
    echo "other$i.png,p$i,train,$((i % 2))" >>leak.csv
    cp "second/other$i.png" "second/again$i.png"
    [ "$i" -ge 5 ] || echo "again$i.png,q$i,test,$((i % 2))" >>leak.csv
done
chex-shard --images second --labels leak.csv --size 64 --shards 1 --output leak >setup.log 2>&1 || { cat setup.log; exit 1; }
expect_status 3 chex-shard audit leak --near 4
like "$(out)" '^same pixels: leak train other[0-4].png, leak test again[0-4].png$' "a leak between the splits of one set is found"
expect_status 0 chex-shard audit leak/train leak/test
expect_status 2 chex-shard audit leak
error_line '1 side, expected two, or --near BITS' "one side needs --near"
expect_status 2 chex-shard audit a b small
expect_status 2 chex-shard audit a a --near 4
error_line 'a and a are the same set' "a set is given once"
expect_status 2 chex-shard audit a --near 12
expect_status 2 chex-shard audit a --near 4 --labels first.csv
expect_status 3 chex-shard audit a/train --near 4
expect_status 3 chex-shard audit first --near 4
printf x | dd of=a/train/train-00000-of-00002.h5 bs=1 seek=9000 conv=notrunc 2>/dev/null
expect_status 3 chex-shard audit a --near 4
like "$(err)" 'train-00000-of-00002.h5' "a damaged shard is named"
done_testing
