# SPDX-License-Identifier: Apache-2.0
# chex-shard creates, describes, verifies and audits sets of good input, and draws phantoms.
source "$(dirname "$0")/lib.sh"

expect_status 0 chex-shard --help
for option in images labels output format size shards split train-list val-list test-list \
    fractions views uncertain not-stated columns shared-patients max-bad workers seed force resume help version quiet verbose \
    log-level json config print-config; do
    grep -qE -- "^ +(-., )?--$option( |\$)" out
    ok $? "--help shows --$option"
done
like "$(out)" "Examples" "--help has examples"
for sub in create info verify audit reshard relabel import-tfrecord phantom; do
    expect_status 0 chex-shard $sub --help
    like "$(out)" "usage: chex-shard" "$sub --help"
done
expect_status 0 chex-shard --version
like "$(out)" "^chex-shard [0-9.]+" "--version names the version"
like "$(out)" "HDF5 [0-9.]+.*libpng" "--version names the libraries"

expect_status 0 chex-shard phantom --count 120 --size 64 --seed 4 --output ph
is "$(find ph/images -name '*.png' | wc -l)" 120 "phantom writes its images"
is "$(wc -l <ph/labels.csv)" 121 "the phantom's labels have one line for each image"
expect_status 0 chex-shard phantom --count 120 --size 64 --seed 4 --output ph2 -j 1 --quiet
diff -r ph ph2 >/dev/null
ok $? "phantom: the same seed gives the same files on one thread"
is "$(err)" "" "--quiet is quiet"

common=(--images ph/images --labels ph/labels.csv --split patient --size 48 --shards 4)
expect_status 0 chex-shard "${common[@]}" --output a --workers 1
like "$(out)" "a: 120 images in" "the result is said on stdout"
expect_status 0 chex-shard create "${common[@]}" --output b --workers 2 --json
like "$(out)" '"schema": "chexnet-shard-create"' "--json prints an object"
diff -r a b
ok $? "one worker and two make the same bytes"
for cpu in generic sse41 avx2; do
    rm -rf c
    CHEX_CPU=$cpu expect_status 0 chex-shard "${common[@]}" --output c --quiet
    diff -r a c
    ok $? "CHEX_CPU=$cpu makes the same bytes"
done
CHEX_CPU=mmx expect_status 2 chex-shard info a
error_line "CHEX_CPU is 'mmx': expected generic, sse41, avx2, avx512, avx512bf16 or amx" "CHEX_CPU must be one of its values"
rm -rf c
expect_status 0 chex-shard "${common[@]}" --output c --seed 2 --quiet
cmp -s a/manifest.json c/manifest.json
[ $? -ne 0 ]
ok $? "another seed makes another set"
is "$(find a -name '*.h5' | sort | sed -n '1p;$p' | paste -sd' ')" \
    "a/test/test-00000-of-00004.h5 a/val/val-00003-of-00004.h5" "files have their names"
is "$(cat a/rejected.csv)" "image,reason" "rejected.csv has only its header"
is "$(ls -A a | paste -sd' ')" "manifest.json rejected.csv test train val" "nothing else is left"

expect_status 0 chex-shard info a
like "$(out)" "images +[0-9]+ +[0-9]+ +[0-9]+" "info has a table"
expect_status 0 chex-shard info a --json
like "$(out)" '"schema": "chexnet-shard-info"' "info --json"
expect_status 0 chex-shard info a/val/val-00000-of-00004.h5
like "$(out)" "of split val, 48 x 48 px, pillow-bilinear" "info of one shard"
{
    echo image,Mass,A_finding_with_a_name_of_its_own_kind
    find ph/images -name '*.png' -printf '%f,1,-1\n' | sort | head -n 9
} >own.csv
chex-shard --images ph/images --labels own.csv --columns labels=Mass:A_finding_with_a_name_of_its_own_kind \
    --split none --size 32 --shards 1 --output own -q >/dev/null || fail "a table of one's own"
expect_status 0 chex-shard info own
like "$(out)" "^images {42}9$" "info: columns are as wide as the longest name"
like "$(out)" "^  A_finding_with_a_name_of_its_own_kind {9}0$" "info counts the positives of a finding with a long name"
like "$(out)" "^  A_finding_with_a_name_of_its_own_kind {9}9$" "info counts uncertain labels of a finding with a long name"
expect_status 0 chex-shard info own/all/all-00000-of-00001.h5
like "$(out)" "^  A_finding_with_a_name_of_its_own_kind {9}0 {9}9$" "info of a shard has both too"
expect_status 3 chex-shard audit own own
like "$(out)" "^images {40}9 {9}9 " "audit: columns are as wide as the longest name"
sed -i '1s/Mass/Schr\xc3\xa4gverlauf/' own.csv
chex-shard --images ph/images --labels own.csv --columns labels=Schrägverlauf --split none --size 32 \
    --shards 1 --output accents -q >/dev/null || fail "a name with an accent"
expect_status 0 chex-shard info accents
like "$(out)" "^images {23}9$" "info: columns count characters"
like "$(out)" "^  Schrägverlauf {14}9$" "columns are padded by characters, not by bytes"
expect_status 0 chex-shard info a
like "$(out)" "^uncertain: none" "info says that there are no uncertain labels"
expect_status 0 chex-shard info a/val/val-00000-of-00004.h5 --json
like "$(out)" '"kind": "shard"' "info of one shard --json"
expect_status 0 chex-shard verify a
like "$(out)" "sound: 120 images in 12 shards" "verify reads all"
expect_status 0 chex-shard verify a/train/train-00001-of-00004.h5 --json
like "$(out)" '"sound": true' "verify of one shard --json"
# Work for one process, started by a launcher twice.
for sub in "info a" "verify a" "audit a/train a/test" "phantom --count 1 --output none"; do
    # shellcheck disable=SC2086
    SLURM_PROCID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 expect_status 0 chex-shard $sub
    is "$(out)" "" "rank 1 has nothing to do in ${sub%% *}"
    like "$(err)" "warn: ${sub%% *} is work for one process: rank 0 does it" "a command for one process says that rank 0 does it"
done
[ ! -e none ]
ok $? "verify writes nothing"
SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 expect_status 0 chex-shard verify a
like "$(out)" "sound: 120 images" "rank 0 does it"
expect_status 0 chex-shard audit a/train a/test
like "$(out)" "patients +[0-9]+ +[0-9]+ +0 +0" "no patient is in train and test"
like "$(out)" "Edema +[0-9]+ +[0-9]+ +0 +0" "a class without images has no positives"
expect_status 3 chex-shard audit a ph/labels.csv
error_line "patients are in both, the first is 00000001" "audit finds shared patients"
expect_status 3 chex-shard audit a b --json
like "$(out)" '"shared_images": 120' "audit --json counts"
like "$(out)" '"shared_patient_positives_b": [0-9]+' "positives too"

expect_status 0 chex-shard "${common[@]}" --split none --output none --quiet
is "$(ls none)" "$(printf 'all\nmanifest.json\nrejected.csv')" "--split none makes all/"
is "$(ls none/all | head -n 1)" "all-00000-of-00004.h5" "shards without splits are named all"
expect_status 0 chex-shard "${common[@]}" --split none --views PA --output pa --quiet
n=$(cut -d, -f7 ph/labels.csv | grep -c PA)
expect_status 0 chex-shard verify pa
like "$(out)" "sound: $n images" "--views PA keeps the $n PA images"

# Another number of shards.
differ() { # SET SET: shards that differ in more than source_digest (32) and two checksums (16)
    local shard
    (cd "$1" && find . -name '*.h5') | while read -r shard; do
        [ "$(stat -c %s "$1/$shard")" = "$(stat -c %s "$2/$shard")" ] &&
            [ "$(cmp -l "$1/$shard" "$2/$shard" | wc -l)" -le 48 ] || echo "$shard"
    done
}
for n in 1 3 4 7 50; do
    expect_status 0 chex-shard "${common[@]}" --shards $n --output of$n --quiet
    expect_status 0 chex-shard reshard a --shards $n --output from$n --workers 2
    like "$(out)" "from$n: 120 images in" "the result is said"
    cmp of$n/manifest.json from$n/manifest.json
    ok $? "4 shards to $n: the manifest of create --shards $n"
    is "$(differ of$n from$n)" "" "resharded shards are equal except for source_digest"
done
diff -r a from4
ok $? "4 to 4: the very same"
diff -r of1 from1
ok $? "whole shards put together: the very same"
expect_status 0 chex-shard verify from7
expect_status 0 chex-shard reshard from50 --shards 4 --output back --workers 1 --json
like "$(out)" '"schema": "chexnet-shard-reshard"' "reshard --json"
is "$(differ a back)" "" "resharding back gives the first shards"

# Another reader.
if have h5dump; then
    shard=a/train/train-00000-of-00004.h5
    rows=$(h5dump -H -d label $shard | sed -nE 's/.*SIMPLE \{ \( ([0-9]+), 14 \).*/\1/p')
    like "$(h5dump -H -d image $shard)" "H5T_STD_U8LE|DATASPACE +SIMPLE \{ \( $rows, 48, 48 \)" \
        "h5dump: image u8 [n, 48, 48]"
    like "$(h5dump -p -H -d image $shard)" "CONTIGUOUS" "h5dump: image is contiguous"
    like "$(h5dump -H -d label $shard)" "H5T_STD_I8LE" "h5dump: label i8"
    like "$(h5dump -H -d checksum $shard)" "H5T_STD_U64LE" "h5dump: checksum u64"
    like "$(h5dump -a format $shard)" '"chexnet-shard"' "h5dump: format"
    like "$(h5dump -a version $shard)" '\(0\): 1$' "h5dump: version"
    like "$(h5dump -a classes $shard | paste -sd' ')" '"Atelectasis", "Cardiomegaly"' \
        "h5dump: classes in order"
    ids=$(for f in a/*/*.h5; do
        h5dump -d image_id "$f" | grep -oE '"[0-9_]+\.png' | tr -d '"'
    done | sort)
    is "$ids" "$(ls ph/images)" "h5dump: every image is in one shard"
    least=$(for f in a/train/*.h5; do
        h5dump -H -d sex "$f" | sed -nE 's/.*SIMPLE \{ \( ([0-9]+) \).*/\1/p'
    done | sort -nu)
    [ "$(wc -l <<<"$least")" -eq 1 ] || [ $(($(tail -n 1 <<<"$least") - $(head -n 1 <<<"$least"))) -eq 1 ]
    ok $? "shards differ by one row at most"
else
    skip "no h5dump here" 9
fi

# The real sample.
sample=$SOURCE/datasets/nih-sample
if [ -f "$sample/Data_Entry_2017.csv" ]; then
    expect_status 0 chex-shard --images "$sample/images" --labels "$sample/Data_Entry_2017.csv" \
        --size 64 --shards 8 --split patient --output nih
    like "$(out)" "nih: 1000 images" "1,000 real radiographs"
    expect_status 0 chex-shard verify nih
    expect_status 0 chex-shard audit nih/train nih/test
    if have h5dump; then
        like "$(h5dump -d patient_id nih/test/test-00000-of-00008.h5)" '"000[0-9]{5}"' \
            "patient ids are the NIH's"
    else
        skip "no h5dump here"
    fi
else
    skip "no bundled sample here" 5
fi
done_testing
