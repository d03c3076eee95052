# SPDX-License-Identifier: Apache-2.0
# chex-shard answers every kind of bad input and bad option with one error line and the right exit
# status, and leaves nothing under a final name.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 40 --size 32 --output ph --quiet || exit 1
good=(--images ph/images --labels ph/labels.csv --split patient --size 32 --shards 2 --output o)

# refuse STATUS REGEX ARGUMENT...: fails so, and o is not there.
refuse() {
    local status=$1 regex=$2
    shift 2
    expect_status "$status" chex-shard "$@"
    error_line "$regex" "says: $regex"
    [ ! -e o ]
    ok $? "no output folder"
}

# The command line.
refuse 2 "unknown subcommand 'resharding': expected create, info.*; did you mean reshard[?]" resharding
refuse 2 "unknown option '--picture'" "${good[@]}" --picture x
refuse 2 "unexpected word 'x'" create "${good[@]}" x
refuse 2 "--images DIR is required" --labels ph/labels.csv --output o
refuse 2 "--labels FILE is required" --images ph/images --output o
refuse 2 "--output DIR is required" --images ph/images --labels ph/labels.csv
refuse 2 "--size: '5' is not valid: expected an integer from 16 to" "${good[@]}" --size 5
refuse 2 "--size: '64px' is not valid" "${good[@]}" --size 64px
refuse 2 "--shards: '0' is not valid" "${good[@]}" --shards 0
refuse 2 "--max-bad: '-1' is not valid" "${good[@]}" --max-bad -1
refuse 2 "--workers: 'all' is not valid" "${good[@]}" --workers all
refuse 2 "--seed: '-5' is not valid" "${good[@]}" --seed -5
refuse 2 "--format: 'dicom' is not valid: expected one of auto, nih, list, chexpert, mimic, vindr, padchest, csv" "${good[@]}" --format dicom
refuse 2 "--split: 'random' is not valid: expected one of official, patient, none" "${good[@]}" --split random
refuse 2 "--uncertain: 'maybe' is not valid: expected one of keep, ignore, zeros, ones" "${good[@]}" --uncertain maybe
refuse 2 "lateralis" "${good[@]}" --views PA,lateralis
refuse 2 "0\.5,0\.5" "${good[@]}" --fractions 0.5,0.5
refuse 2 "--fractions 1,1,1: the sum is 3, expected 1" "${good[@]}" --fractions 1,1,1
refuse 2 "--train-list, --val-list and --test-list need --split official" "${good[@]}" --test-list ph/labels.csv
refuse 2 "config file: cannot open none.conf" "${good[@]}" --config none.conf
for sub in info verify; do
    expect_status 2 chex-shard $sub
    error_line "takes one folder or file" "$sub needs a word"
    expect_status 3 chex-shard $sub nowhere
    error_line "nowhere: no such folder" "$sub of nothing"
done
expect_status 2 chex-shard audit ph
error_line "1 side, expected two, or --near BITS" "audit needs two sets, or --near"
expect_status 3 chex-shard audit ph/labels.csv nowhere
error_line "nowhere: no such file or folder" "audit of nothing"
expect_status 2 chex-shard phantom --output x
error_line "--count N is required" "phantom needs a count"
expect_status 2 chex-shard phantom --count 3 --size 8 --output x
error_line "--size: '8' is not valid" "phantom of 8 px"

# Labels and images.
refuse 3 "cannot open none.csv" "${good[@]}" --labels none.csv
refuse 3 "cannot read image folder none: No such file" "${good[@]}" --images none
mkdir empty
refuse 3 "none of the 40 images of ph/labels.csv \(00000001_000.png\) is under empty, which holds 0 files" \
    "${good[@]}" --images empty --max-bad 40
sed 's/\.png/.PNG/' ph/labels.csv >case.csv
refuse 3 "of case.csv \(00000001_000.PNG\) is under ph/images, which holds 40 files \(ph/images/[0-9_]*.png\): is it" \
    "${good[@]}" --labels case.csv --max-bad 40
sed '5s/,[^,]*,/,Broken_Heart,/' ph/labels.csv >unknown.csv
refuse 3 "unknown.csv: line 5, column 2 .*Broken_Heart" "${good[@]}" --labels unknown.csv
head -c 500 /dev/urandom >noise.csv
refuse 3 "noise.csv" "${good[@]}" --labels noise.csv
: >nothing.csv
refuse 3 "nothing.csv" "${good[@]}" --labels nothing.csv
head -n 1 ph/labels.csv >header.csv
refuse 3 "header.csv" "${good[@]}" --labels header.csv
refuse 3 "no image has a view that --views keeps; the views are PA" "${good[@]}" --views lateral
head -n 2 ph/labels.csv >single.csv
refuse 3 "empty|stays|split" "${good[@]}" --labels single.csv
refuse 3 "list" --images ph/images --labels ph/labels.csv --output o --split official

# A folder that this user may not read, such as a disk's lost+found.
cp -r ph closed && mkdir closed/images/lost+found && chmod 000 closed/images/lost+found
user=()
[ "$(id -u)" != 0 ] || user=(setpriv "--bounding-set=-dac_override,-dac_read_search")
if "${user[@]}" true 2>/dev/null && ! "${user[@]}" ls closed/images/lost+found 2>/dev/null; then
    expect_status 0 "${user[@]}" chex-shard "${good[@]}" --images closed/images
    like "$(err)" "warn: cannot read image folder closed/images/lost.found: Permission denied: images in it count as missing" "it is named and left out"
    like "$(err)" "nih .*, 40 images of [0-9]+ patients" "the log says how many patients there are"
    rm -r o
else
    skip "every folder is open to this user" 3
fi
chmod 755 closed/images/lost+found

second=$(sed -n 3p ph/labels.csv | cut -d, -f1)
cp -r ph missing && rm "missing/images/$second"
missing=("${good[@]}" --images missing/images --labels missing/labels.csv)
refuse 3 "missing/labels.csv: line 3: image $second is not under missing/images \(--max-bad is 0\)" "${missing[@]}"
expect_status 0 chex-shard "${missing[@]}" --max-bad 1
like "$(cat o/rejected.csv)" "^$second,\".*: line 3: image $second is not under" "rejected.csv has it"
like "$(out)" "1 image left out" "the result counts images that were left out"
expect_status 0 chex-shard verify o
like "$(out)" "sound: 39 images" "the rest is there"
rm -r o

cp -r ph broken
head -c 200 "ph/images/$second" >"broken/images/$second"
third=$(sed -n 4p ph/labels.csv | cut -d, -f1)
printf 'not a picture, "at all"' >"broken/images/$third"
broken=("${good[@]}" --images broken/images)
refuse 3 "2 images cannot be used \(--max-bad is 0\): broken/images/$second: " "${broken[@]}"
like "$(err)" "warn: broken/images/$third: " "the other one is named too"
refuse 3 "2 images cannot be used \(--max-bad is 1\).*; o.rejected.csv lists them all" "${broken[@]}" --max-bad 1
is "$(tail -n +2 o.rejected.csv | cut -d, -f1 | paste -sd' ')" "$second $third" "the list is next to the output folder"
expect_status 0 chex-shard "${broken[@]}" --max-bad 2 --workers 2
is "$(tail -n +2 o/rejected.csv | cut -d, -f1 | paste -sd' ')" "$second $third" "rejected.csv names both"
expect_status 0 chex-shard "${broken[@]}" --max-bad 5 --workers 1 --output o2
diff -r o o2
ok $? "one worker and two make the same bytes, with images left out"
[ ! -e o.rejected.csv ]
ok $? "the rejected list of the failed run is gone"
rm -r o o2

# Missing images do not hide broken ones: one run names all of them.
fourth=$(sed -n 5p ph/labels.csv | cut -d, -f1)
cp -r broken both && rm "both/images/$fourth"
both=("${good[@]}" --images both/images)
refuse 3 "3 images cannot be used \(--max-bad is 0\): .*; o.rejected.csv lists them all" "${both[@]}"
is "$(tail -n +2 o.rejected.csv | cut -d, -f1 | paste -sd' ')" "$second $third $fourth" "missing and broken, in the table's order"
like "$(cat o.rejected.csv)" "^$third,\".*not an image" "the rejected list gives the reasons"
expect_status 3 chex-shard "${both[@]}" --resume
kept=$(find o -name '*.h5' | wc -l)
[ "$kept" -ge 1 ]
ok $? "with --resume the $kept sound shards stay"
expect_status 0 chex-shard "${both[@]}" --resume --max-bad 3
[ ! -e o.rejected.csv ]
ok $? "the list goes with the set that is made"
rm -r o
mkdir there && cd there || exit 1
expect_status 3 chex-shard --images ../both/images --labels ../ph/labels.csv --split patient --size 32 --output .
is "$(ls -A)" "" "--output . does not get its list inside"
cd .. && [ -s there.rejected.csv ]
ok $? "the rejected list is next to the output folder"
# An unfinished copy is not read to its end.
mkdir few && cp broken/images/00000001_* broken/images/00000002_* few
present=$(find few -type f | wc -l)
refuse 3 "at least $((40 - present)) images cannot be used .*; o.rejected.csv lists those found" "${good[@]}" --images few
unlike "$(cat o.rejected.csv)" "not an image" "most are missing: the others are not looked at"
rm o.rejected.csv

# Names that are no UTF-8.
table=(--images ph/images --split none --size 32 --output o)
printf 'image,patient,Mass\n%s,1,1\nc\377.png,2,0\n' "$second" >latin.csv
refuse 3 "latin.csv: line 3: image 'c\\\\xFF.png': byte 0xFF, as in Windows-1252 or Latin-1, expected UTF-8: convert .* must be UTF-8, too" "${table[@]}" --labels latin.csv
printf 'image,patient,Mass\n%s,M\374ller,0\n' "$second" >latin.csv
refuse 3 "latin.csv: line 2: patient 'M\\\\xFCller': byte 0xFC, .* iconv -f WINDOWS-1252 -t UTF-8" "${table[@]}" --labels latin.csv
printf 'image,patient,Caf\351\n%s,1,0\n' "$second" >latin.csv
refuse 3 "latin.csv: line 1: finding 'Caf\\\\xE9': byte 0xE9" "${table[@]}" --labels latin.csv --columns "$(printf 'labels=Caf\351')"
# A result that is JSON cannot name such a folder, and it is said before the work.
refuse 2 "--output 'o\\\\xFF': the name is no UTF-8 text, as --json needs" "${table[@]}" --labels ph/labels.csv --output $'o\377' --json
[ ! -e $'o\377' ]
ok $? "a refused command makes nothing"
refuse 2 "DIR 'o\\\\xFF': the name is no UTF-8 text" verify $'o\377' --json
refuse 2 "--output 'o\\\\xFF': the name is no UTF-8 text" phantom --count 1 --output $'o\377' --json

mkdir -p twice/1 twice/2 && cp ph/images/* twice/1 && cp "ph/images/$second" twice/2
refuse 3 "ph/labels.csv: line 3: image $second matches two files: twice/1/$second, twice/2/$second" "${good[@]}" --images twice

# Output that is there already.
expect_status 0 chex-shard "${good[@]}" --quiet
sum=$(cat o/manifest.json o/*/*.h5 | md5sum)
expect_status 2 chex-shard "${good[@]}"
error_line "output o holds a set of shards already; --force replaces it" "a set is not overwritten"
expect_status 3 chex-shard "${good[@]}" --force --images broken/images
is "$(cat o/manifest.json o/*/*.h5 | md5sum)" "$sum" "--force that fails leaves the old set whole"
is "$(ls -A o | paste -sd' ')" "manifest.json rejected.csv test train val" "the set has no other files"
echo mine >o/train/notes.txt
expect_status 0 chex-shard "${good[@]}" --force --shards 3
like "$(err)" "--force: when the new set is complete, o loses 6 shards of 40 images" "--force shows what goes"
is "$(ls o/train | paste -sd' ')" \
    "notes.txt train-00000-of-00003.h5 train-00001-of-00003.h5 train-00002-of-00003.h5" \
    "the old shards are gone, a stranger's file is not"
expect_status 0 chex-shard verify o
mkdir -p other && echo x >other/file
expect_status 2 chex-shard "${good[@]}" --output other
error_line "output folder other exists, is not empty and is no set" "a stranger's folder"
expect_status 2 chex-shard "${good[@]}" --output other --force
error_line "--force does not touch it" "--force does not touch a folder of other files"
is "$(cat other/file)" x "it is as it was"
expect_status 2 chex-shard "${good[@]}" --output ph/labels.csv
error_line "exists and is not a folder" "a file for an output"
mkdir fresh
expect_status 0 chex-shard "${good[@]}" --output fresh --quiet
expect_status 4 chex-shard "${good[@]}" --output ph/labels.csv/o
error_line "ph/labels.csv/o: Not a directory" "a folder that cannot be made"

# Damaged sets.
if have h5dump; then
    shard=fresh/val/val-00000-of-00002.h5
    at=$(h5dump -p -H -d image $shard | sed -nE 's/.*OFFSET ([0-9]+).*/\1/p')
    id=$(h5dump -d image_id $shard | grep -oE '[0-9_]+\.png' | sed -n 2p)
    cp $shard keep.h5
    printf '\377\0\377\0' | dd of=$shard bs=1 seek=$((at + 1024 + 100)) conv=notrunc status=none
    expect_status 3 chex-shard verify fresh
    error_line "$shard: row 1 \($id\): pixels do not match their checksum" "verify names file, row and image"
    expect_status 3 chex-shard verify $shard
    cp keep.h5 $shard
else
    skip "no h5dump here" 3
fi
truncate -s 3000 fresh/train/train-00001-of-00002.h5
expect_status 3 chex-shard verify fresh
error_line "fresh/train/train-00001-of-00002.h5: .*truncated" "a truncated shard"
rm fresh/train/train-00001-of-00002.h5
expect_status 3 chex-shard verify fresh
error_line "train-00001-of-00002.h5: No such file" "a missing shard"
sed -i 's/"version": 1/"version": 2/' fresh/manifest.json
expect_status 3 chex-shard info fresh
error_line "manifest.json: version 2, this program reads version 1" "a future manifest"

# Resharding.
expect_status 2 chex-shard reshard
error_line "takes one folder or file|--output DIR is required" "reshard needs a word"
expect_status 2 chex-shard reshard o
error_line "--output DIR is required" "--output is required"
expect_status 2 chex-shard reshard o --output o --force
error_line "output o is the input: give a new folder" "reshard never onto its input"
expect_status 3 chex-shard reshard nowhere --output r
error_line "nowhere: no such folder" "reshard of nothing"
expect_status 2 chex-shard reshard o --output other --force
error_line "exists, is not empty and is no set" "a stranger's folder"
expect_status 0 chex-shard reshard o --output r --shards 2 --quiet
expect_status 2 chex-shard reshard o --output r --shards 3
error_line "output r holds a set of shards already; --force replaces it" "a set is not overwritten"
expect_status 0 chex-shard reshard o --output r --shards 3 --force
like "$(err)" "--force: when the new set is complete, r loses 6 shards of 40 images" "--force says which set it will replace"
diff -r o r -x notes.txt
ok $? "the rows are those of the input"
sum=$(cat r/manifest.json r/*/*.h5 | md5sum)
cp -r o hurt
half=$(($(stat -c %s hurt/train/train-00001-of-00003.h5) / 2))
printf 'damaged' | dd of=hurt/train/train-00001-of-00003.h5 bs=1 seek=$half conv=notrunc status=none
expect_status 3 chex-shard reshard hurt --output r --shards 1 --force
error_line "hurt/train/train-00001-of-00003.h5: row [0-9]+ .* do not match their checksum" "damage is not passed on"
is "$(cat r/manifest.json r/*/*.h5 | md5sum)" "$sum" "a failed reshard keeps the old set"
is "$(ls -A r | paste -sd' ')" "manifest.json rejected.csv test train val" "the replaced set has no other files"
expect_status 3 chex-shard verify r/train/
error_line "r/train/: no manifest.json: this is a part of a set of shards, expected the folder above it" "a split alone"
rm fresh/manifest.json
expect_status 3 chex-shard info fresh
error_line "fresh: no manifest.json" "a folder without manifest"
expect_status 9 sh -c 'chex-shard info o >/dev/full'
error_line "cannot write to standard output" "a full disk under stdout"

# A set may have more shards than files may be open: the soft limit is raised, and where the hard
# one is too low nothing is wrong with the data.
chex-shard --images ph/images --labels ph/labels.csv --split none --size 32 --shards 40 \
    --output many --quiet >/dev/null || exit 1
limited() { # OPTION OF ulimit, COMMAND...
    (
        # shellcheck disable=SC3045 # bash has -S
        ulimit "$1" 24 && shift && exec "$@"
    )
}
expect_status 0 limited -Sn chex-shard verify many
expect_status 4 limited -n chex-shard verify many
error_line "many: 40 files are open at a time, but a process may open 24 files: .*ulimit -Hn" \
    "the limit is named, and no shard is blamed"

# Scripts cannot trust the status of srun.
CHEX_STATUS_FILE=said expect_status 0 chex-shard info many
is "$(cat said) $(err)" "0 " "rank 0 leaves its status in the file that CHEX_STATUS_FILE names"
CHEX_STATUS_FILE=said expect_status 3 chex-shard info absent
is "$(cat said)" 3 "so it does if it fails"
rm said
SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 CHEX_STATUS_FILE=said expect_status 0 chex-shard info many
[ ! -e said ]
ok $? "the other ranks leave none"
CHEX_STATUS_FILE=absent/said expect_status 4 chex-shard info many
error_line "CHEX_STATUS_FILE: .*absent/said" "without that file a success is none"
done_testing
