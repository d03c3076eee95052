#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard and chex-train refuse broken shards (tests/data/broken, one fault each) and sets
# whose files and manifest disagree, each with its own message.
source "$(dirname "$0")/lib.sh"

broken=$SOURCE/tests/data/broken

# manifest ROWS PATIENTS DIGEST: of a set whose only shard is train/x.h5 with the classes of good.h5.
# `members` and the manifest's own digest are made up; only verify compares them.
manifest() {
    cat <<END
{"schema": "chexnet-manifest", "version": 1, "tool_version": "t", "classes": ["Mass", "Edema"],
 "size": 16, "resize": "pillow-bilinear", "label_format": "nih", "uncertain": "keep",
 "split_mode": "patient", "seed": 3, "source_digest": "d", "labels_digest": "d", "rejected": 0, "splits": {"train":
 {"rows": $1, "patients": $2, "positives": {"Mass": 1, "Edema": 1}, "uncertain": {"Mass": 0,
 "Edema": 1}, "members": "0123456789abcdef", "shards": [{"file": "train/x.h5", "rows": $1, "digest": "$3"}]}},
 "digest": "d"}
END
}
digest_of() { chex-shard info "$1" --json | sed -nE 's/.*"digest": "([0-9a-f]{16})".*/\1/p'; }

mkdir -p set/train
manifest 3 2 "$(digest_of "$broken/good.h5")" >set/manifest.json
cp "$broken/good.h5" set/train/x.h5
expect_status 0 chex-shard verify "$broken/good.h5"
like "$(out)" "sound: 3 images in 1 shard|sound: 3 images" "the shard that all are made from is sound"
expect_status 0 chex-shard verify "$broken/foreign.h5"
is "$(grep -c 'read through HDF5, one thread at a time' err)" 1 "a chunked, compressed one is too, and said to be slow once"

while IFS=$'\t' read -r file kind text; do
    chex-shard verify "$broken/$file" >out 2>err
    is "$? $(grep -c ' error: ' err)" "3 1" "verify $file is one error"
    grep ' error: ' err | grep -qF -- "$text"
    ok $? "the error says: $text" || diag "$(cat err)"
    [ "$kind" = open ] || continue
    cp "$broken/$file" set/train/x.h5
    chex-train --data set --output run --image-size 32 --batch-size 1 >out 2>err
    is "$? $(grep -c ' error: ' err)" "3 1" "chex-train refuses $file"
    grep ' error: ' err | grep -qF -- "$text"
    ok $? "chex-train uses the same words" || diag "$(cat err)"
    [ ! -e run/config.json ]
    ok $? "before it begins a run"
done <"$broken/cases.tsv"

# Sets. `refuse REGEX`: both commands do, and the text matches.
chex-shard phantom --count 60 --size 32 --output ph -q >/dev/null || exit 1
make=(chex-shard --images ph/images --labels ph/labels.csv --split patient --shards 3 -q)
"${make[@]}" --size 32 --output whole >/dev/null || exit 1
"${make[@]}" --size 40 --output wide >/dev/null || exit 1
a=train/train-00000-of-00003.h5 b=train/train-00001-of-00003.h5
fresh() { rm -rf s run && cp -r whole s; }
refuse() {
    expect_status 3 chex-shard verify s
    error_line "$1" "verify: $2"
    expect_status 3 chex-train --data s --output run --image-size 32 --batch-size 4
    error_line "$1" "chex-train: $2"
}
edit() { sed -i "$1" s/manifest.json; }

fresh && rm s/$b && refuse "$b: No such file" "a missing shard"
fresh && cp s/$a s/$b && refuse "$b: .*the manifest says" "a shard copied over another"
fresh && cp wide/$b s/$b && refuse "$b: images of 40 px, the manifest says 32" "a shard of another size"
fresh && cp s/val/val-00000-of-00003.h5 s/$b && refuse "$b: .*the manifest says" "a shard of another split"
fresh && edit "s|$b|$a|" && refuse "$a is listed twice" "one shard in two places"
fresh && edit 's/"Hernia"/"Fracture"/' && refuse "finding 13 is 'Hernia', the manifest says 'Fracture'" "another class"
fresh && edit 's/"size": 32/"size": 33/' && refuse "images of 32 px, the manifest says 33" "another size"
fresh && edit 's/pillow-bilinear/area/' && refuse "resized by 'pillow-bilinear', the manifest says 'area'" "another kernel"
fresh && edit '0,/"digest": "./s//"digest": "g/' && refuse "'digest' is not 16 hex digits" "a digest that is none"
fresh && edit '0,/"digest": "[0-9a-f]*"/s//"digest": "0123456789abcdef"/' && refuse "says 0123456789abcdef: changed since the set was made" "another digest"
fresh && edit '0,/"rows": [0-9]*/s//"rows": 7/' && refuse "manifest.json: splits.*: rows is 7, but its shards have" "rows that do not add up"
fresh && edit "s|$b|../$b|" && refuse "file '../$b' is not inside the folder" "a file outside"
fresh && edit 's/"train": {/"tain": {/' && refuse "split 'tain': expected" "an unknown split"
fresh && edit 's/"version": 1/"version": 9/' && refuse "version 9, this program reads version 1" "a later manifest"
fresh && : >s/manifest.json && refuse "manifest.json line 1 column 0: " "an empty manifest"
fresh && rm s/manifest.json && refuse "no manifest.json: not a set of shards, or an unfinished one" "no manifest"

# What verify alone counts.
fresh && edit '0,/"patients": [0-9]*/s//"patients": 1/'
expect_status 3 chex-shard verify s
error_line "patients, the manifest says 1" "verify counts the patients"
fresh && edit '0,/"Effusion": [0-9]*/s//"Effusion": 60/'
expect_status 3 chex-shard verify s
error_line "of Effusion, the manifest says 60 and" "verify compares the positives with the manifest"
fresh && edit '0,/"members": "[0-9a-f]*/s//"members": "0123456789abcdef/'
expect_status 3 chex-shard verify s
error_line "split train holds other images than the manifest says" "verify compares the images of a split with the manifest"
fresh && edit 's/"members": "/&x/' && refuse "splits.train: 'members' is not 16 hex digits" "members that are none"

# Every bad shard is named, not the first alone.
fresh && rm s/$b && truncate -s 2000 s/val/val-00000-of-00003.h5
expect_status 3 chex-shard verify s
error_line "2 faults; the first: .*$b: No such file" "two bad shards are two faults"
like "$(err)" "warn: .*$b: No such file" "the missing one is named"
like "$(err)" "warn: s/val/val-00000-of-00003.h5: .*truncated" "verify names the truncated shard"
expect_status 3 chex-shard verify s --json
like "$(out)" '"sound": false' "--json says that the set is not sound"
is "$(grep -oE '"file": "[^"]*"' out | paste -sd' ')" \
    "\"file\": \"s/$b\" \"file\": \"s/val/val-00000-of-00003.h5\"" "the JSON of verify lists the damaged files"
like "$(out)" '"shards": 7,' "the other shards were read"

# Damage that only reading meets.
fresh
size=$(stat -c %s s/$a)
printf '\1\2\3\4\5\6\7\10' | dd of=s/$a bs=1 seek=$((size / 2)) conv=notrunc status=none
if chex-shard info s/$a >out 2>err; then
    # A run that fails by itself leaves its collective as it is: the others may stand in it.
    ASAN_OPTIONS=detect_leaks=0 refuse "$a: row [0-9]+ .*pixels do not match their checksum" "damaged pixels"
else
    skip "the middle of the file is no pixel" 4
fi
done_testing
