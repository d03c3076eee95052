#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The digests and the order of rows of a set are those that doc/shard-format.md describes. chex-
# shard verify compares the label file with its digest.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 30 --size 32 --output ph --quiet >/dev/null || exit 1
mkdir -p images/a images/b
echo image,patient,view,age,sex,Effusion,Mass >labels.csv
i=0
for file in ph/images/*.png; do
    name=$([ $((i % 3)) = 0 ] && echo "$i.png" || echo "$((i / 3 * 3 + 1)).png")
    folder=$([ $((i % 3)) = 2 ] && echo b || echo a)
    cp "$file" "images/$folder/$name"
    printf '%s/%s,P%d,%s,%d,%s,%d,%s\n' "$folder" "$name" $((i / 3)) PA $((20 + i)) M $((i % 2)) -1 >>labels.csv
    i=$((i + 1))
done
# Names that do not repeat are ids by themselves: the script looks for files by their ids.
for file in images/a/*.png; do [ -e "images/b/${file##*/}" ] || ln "$file" images/; done
mkdir tree && cp -r images/a images/b tree
expect_status 0 chex-shard --images tree --labels labels.csv --split patient --size 32 --shards 3 --output o
if ! python_with h5py,xxhash; then
    skip "no python3 with h5py and xxhash here" 4
else
    expect_status 0 "$python" "$SOURCE/tests/tools/shard_digests.py" o labels.csv images
    like "$(out)" "^9 shards: every digest is equal, and so is the order" \
        "the rules of the page give every digest of a set and the order of its rows"
    sed '2s/P/Q/' labels.csv >changed.csv
    expect_status 1 "$python" "$SOURCE/tests/tools/shard_digests.py" o changed.csv images
    like "$(out)" "^labels_digest: [0-9a-f]{32}, the set says [0-9a-f]{32}" "another label file is noticed"
fi

# ---- verify and the label file ----
expect_status 0 chex-shard verify o
like "$(out)" "^labels: not compared: give the label file with --labels" "verify says that labels were not compared"
expect_status 0 chex-shard verify o --labels labels.csv
like "$(out)" "^labels: labels.csv is the label file that the set was made from" "the label file is the set's"
unlike "$(out)" "source_digest" "verify does not complain about source_digest"
expect_status 0 chex-shard verify o --labels labels.csv --json
like "$(out)" '"labels": "same"' "the JSON says that the labels are the same"
sed '2s/,0,/,1,/; 2t; 3s/,1,/,0,/' labels.csv >other.csv
expect_status 3 chex-shard verify o --labels other.csv
error_line "other.csv: not the label file that the set was made from \(digest [0-9a-f]{32}; the manifest says [0-9a-f]{32}\)" \
    "a changed label file is a fault"
expect_status 2 chex-shard verify o/train/train-00000-of-00003.h5 --labels labels.csv
error_line "is one shard, expected the folder of a set" "labels belong to a set"
expect_status 0 chex-shard reshard o --shards 2 --output r
expect_status 0 chex-shard verify r --labels labels.csv
like "$(out)" "^labels: labels.csv is the label file" "a resharded set keeps the digest of its labels"
like "$(out)" "^source_digest: not compared: the set was resharded" "verify says that a resharded set's source was not compared"
done_testing
