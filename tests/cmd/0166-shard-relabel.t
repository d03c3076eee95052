#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard relabel gives a set other labels without its images.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 60 --size 32 --output ph --quiet >setup.log || exit 1
make=(--images ph/images --size 32 --shards 3 --split patient --quiet)
{
    echo "image,patient,view,Effusion,Mass,COVID"
    awk -F, 'NR > 1 {print $1 "," $4 ",PA," NR % 2 "," (NR % 3 == 0) "," (NR % 7 == 0)}' ph/labels.csv
} >old.csv
{
    echo "image,patient,view,Effusion,Nodule,Mass"
    awk -F, 'NR > 1 {print $1 "," $4 ",PA," (NR % 5 ? NR % 2 : -1) "," (NR % 4 == 0) "," (NR % 3 == 0)}' ph/labels.csv
} >new.csv
chex-shard "${make[@]}" --labels old.csv --output old >setup.log 2>&1 || exit 1
chex-shard "${make[@]}" --labels new.csv --output made --uncertain ones >setup.log 2>&1 || exit 1
same() { diff -r "$1" "$2" >diff.txt 2>&1; }

expect_status 0 chex-shard relabel old --labels new.csv --uncertain ones --plan
like "$(out)" '^Mass +0 +20 +40 +0 +0$' "the plan shows findings that stay"
like "$(out)" '^Effusion +[1-9][0-9]* +30 -> [0-9]+ ' "the plan shows numbers before and after"
like "$(out)" '^Nodule +60 +0 -> 15 .*60 -> 0  new$' "the plan shows new findings"
like "$(out)" '^COVID +60 .*0 -> 60  not in the label file$' "the plan shows findings that go"
[ ! -e relabelled ]
ok $? "the plan writes nothing"
expect_status 0 chex-shard relabel old --labels new.csv --uncertain ones --plan --json
like "$(out | tr -d ' \n')" '"images_changed":60,' "the plan as JSON"

expect_status 0 chex-shard relabel old --labels new.csv --uncertain ones --output relabelled
like "$(out)" 'relabelled: [0-9]+ MB/s' "the rate is reported"
same made relabelled
ok $? "relabelling gives the bytes that create gives with the new labels" || diag "$(head diff.txt)"
expect_status 0 chex-shard verify relabelled --labels new.csv
like "$(out)" 'is the label file that the set was made from' "verify knows the new label file"
expect_status 0 chex-shard relabel old --labels new.csv --uncertain ones --output relabelled --resume
like "$(out)" 'nothing to do' "--resume knows the complete set"
expect_status 0 chex-shard relabel relabelled --labels old.csv --output back --workers 1
same old back
ok $? "relabelling back gives the first set"

# One odd cell must not remove a finding from the set.
sed '17s/.$/n\/a/' old.csv >odd.csv
expect_status 3 chex-shard relabel old --labels odd.csv --plan
error_line "odd.csv: line 17, column 6 \(COVID\): 'n/a', expected 1, 0, -1 or nothing \(NA\) as in 59 other rows; if the column is no finding" "one odd cell in a finding is refused with its line"
sed '17s/.$/NA/' old.csv >missing.csv
expect_status 0 chex-shard relabel old --labels missing.csv --plan
like "$(out)" '^COVID .*0 -> 1' "NA is a label that is not stated"

# Other facts in the label file, fewer and more images.
awk -F, 'NR == 1 {print "image,patient,Effusion"; next} NR > 5 {print $1 ",p" NR "," NR % 2} END {print "more.png,x,1"}' old.csv >less.csv
expect_status 3 chex-shard relabel old --labels less.csv --output less
error_line 'less.csv: 4 of the 60 images of old are not in it \(.*, .*\): add them, or leave them out with --missing drop' "missing images are refused by name"
[ ! -e less ]
ok $? "a refused run leaves no folder"
expect_status 3 chex-shard relabel old --labels less.csv --plan
like "$(out)" '^images: 60 of the set, .* 4 missing in the label file; 1 only there$' "the plan counts missing images"
expect_status 0 chex-shard relabel old --labels less.csv --output less --missing drop --json
like "$(out | tr -d ' \n')" '"images_missing":4,.*"images_unused":1,"other_patients":56' "dropped images are counted"
like "$(err)" '56 images have another patient than in old; the set keeps its patients' "other patients are reported"
expect_status 0 chex-shard verify less --labels less.csv
is "$(chex-shard info less --json | tr -d ' \n' | grep -oE '"rows":[0-9]+,"patients"' | tr -dc '0-9\n' | awk '{n += $1} END {print n}')" 56 "the others are there"

cp -r old torn && printf 'x' | dd of=torn/val/val-00000-of-00003.h5 bs=1 seek=5000 conv=notrunc 2>/dev/null
expect_status 3 chex-shard relabel torn --labels new.csv --output fromtorn
like "$(err)" 'val-00000-of-00003.h5: .*checksum' "damaged shards are not copied"
[ ! -e fromtorn ]
ok $? "a failed run leaves nothing half written"

# Wrong calls.
expect_status 2 chex-shard relabel old --labels new.csv
error_line '--output: not given, expected the folder of the new set' "no output"
expect_status 2 chex-shard relabel old --labels new.csv --output old
error_line 'output old is the input' "the set itself is no output"
expect_status 2 chex-shard relabel old --labels ph --output x
error_line '--labels ph: a folder, expected a label file' "a folder is no label file"
expect_status 3 chex-shard relabel ph --labels new.csv --output x
expect_status 3 chex-shard relabel old --labels none.csv --output x
sed 's/^0/9/' new.csv >other.csv
expect_status 3 chex-shard relabel old --labels other.csv --output x --missing drop
error_line 'other.csv: none of the 60 images of old \(.*\) is in it; its first image is 9.*: is it the label file of another data set' "another data set is recognised"
expect_status 2 chex-shard relabel old --labels new.csv --output relabelled
error_line 'relabelled' "an existing set is not replaced"
expect_status 0 chex-shard relabel old --labels old.csv --output relabelled --force --quiet
same old relabelled
ok $? "--force replaces it"
done_testing
