# SPDX-License-Identifier: Apache-2.0
# chex-shard reads label files of other sets, uses splits that label files state, and audits
# leaks.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 24 --size 32 --output ph --quiet || exit 1
mapfile -t images < <(ls ph/images)
# image N: the N-th phantom.
image() { printf 'ph/images/%s' "${images[$1]}"; }
shards=(--size 32 --shards 1 --quiet)

# CheXpert: names repeat, folders tell patient and split.
findings="No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema"
findings+=",Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture"
findings+=",Support Devices"
mkdir chexpert
echo "Path,Sex,Age,Frontal/Lateral,AP/PA,$findings" >chexpert/train.csv
for i in {0..11}; do
    split=train
    [ "$i" -lt 9 ] || split=valid
    dir=$split/patient0000$((i / 3))/study$((i % 3))
    mkdir -p "chexpert/$dir"
    cp "$(image "$i")" "chexpert/$dir/view1_frontal.png"
    echo "CheXpert-v1.0/$dir/view1_frontal.png,Male,5$((i % 10)),Frontal,AP,1.0,,$((i % 2)).0,,,,-1.0,,,,0.0,,,1.0"
done >>chexpert/train.csv
expect_status 0 chex-shard --images chexpert --labels chexpert/train.csv --output o1 \
    --size 32 --shards 1 --not-stated zeros
like "$(err)" "train.csv: chexpert \(a header with 'Path' and 'Frontal/Lateral'\), 12 images" "the format is said"
like "$(err)" "official split: train .*, by the folders of its paths; no patient in two splits" "the log says which split was used"
like "$(err)" "not stated: 108, policy zeros" "the log gives the policy for labels that are not stated"
like "$(out)" "train +9 images" "folder train trains"
like "$(out)" "val +3 images" "folder valid validates"
expect_status 0 chex-shard info o1
like "$(out)" "Support_Devices +9 +3" "classes have their own names"
expect_status 0 chex-shard verify o1

# train.csv and valid.csv as cat concatenates them.
{ cat chexpert/train.csv; head -n 1 chexpert/train.csv; } >chexpert/both.csv
expect_status 0 chex-shard --images chexpert --labels chexpert/both.csv --output o1b "${shards[@]}" --not-stated zeros
diff -r -x manifest.json o1 o1b
ok $? "the second header is no row"

# An image that is missing is not another patient's of that name.
cp -r chexpert partial && rm partial/train/patient00000/study0/view1_frontal.png
expect_status 3 chex-shard --images partial --labels chexpert/train.csv --output o1c "${shards[@]}"
error_line "line 2: image patient00000/study0/view1_frontal.png is not under partial" "a missing one is missed"
find partial -name 'view1*' ! -path '*/patient00001/study1/*' -delete
expect_status 0 chex-shard --images partial --labels chexpert/train.csv --output o1c "${shards[@]}" --split none --max-bad 11
like "$(out)" "all +1 image in" "a single image makes a set of one"
tar -cf partial.tar partial && tar -czf partial.tgz partial
for i in tar tgz; do
    expect_status 0 chex-shard --images "partial.$i" --labels chexpert/train.csv --output "o1-$i" "${shards[@]}" --split none --max-bad 11
    diff -r -x manifest.json -x rejected.csv o1c "o1-$i"
    ok $? "the labels are read in a $i too"
done

# MIMIC-CXR: three files.
mkdir mimic
echo "subject_id,study_id,$findings" >mimic/mimic-cxr-2.0.0-chexpert.csv
echo "dicom_id,subject_id,study_id,ViewPosition" >mimic/mimic-cxr-2.0.0-metadata.csv
echo "dicom_id,study_id,subject_id,split" >mimic/mimic-cxr-2.0.0-split.csv
splits=(train train validate test)
for i in {0..7}; do
    p=$((10000000 + i / 2)) s=$((50000000 + i / 2))
    [ $((i % 2)) = 1 ] || echo "$p,$s,,,$((i / 2 % 2)).0,,,,,,,,,,," >>mimic/mimic-cxr-2.0.0-chexpert.csv
    echo "id-$i,$p,$s,PA" >>mimic/mimic-cxr-2.0.0-metadata.csv
    echo "id-$i,$s,$p,${splits[i / 2]}" >>mimic/mimic-cxr-2.0.0-split.csv
    mkdir -p "mimic/files/p10/p$p/s$s"
    cp "$(image "$i")" "mimic/files/p10/p$p/s$s/id-$i.jpg"
done
mimic=(--images mimic --labels mimic/mimic-cxr-2.0.0-chexpert.csv)
expect_status 0 chex-shard "${mimic[@]}" --output o2 --size 32 --shards 1
like "$(err)" "mimic .* 4 studies, images by their metadata, with splits, 8 images" "the log says which tables were joined"
like "$(out)" "train +4 images" "MIMIC's train"
like "$(out)" "test +2 images" "MIMIC's test"
mkdir packed
for i in chexpert metadata split; do gzip -c "mimic/mimic-cxr-2.0.0-$i.csv" >"packed/mimic-cxr-2.0.0-$i.csv.gz"; done
expect_status 0 chex-shard --images mimic --labels packed/mimic-cxr-2.0.0-chexpert.csv.gz --output o2b --size 32 --shards 1
like "$(err)" "by packed/mimic-cxr-2.0.0-split.csv.gz; no patient" "they are read compressed"
diff -r -x manifest.json o2 o2b
ok $? "both ways give the same shards"
head -c 100 packed/mimic-cxr-2.0.0-metadata.csv.gz >cut.gz && mv cut.gz packed/mimic-cxr-2.0.0-metadata.csv.gz
expect_status 3 chex-shard --images mimic --labels packed/mimic-cxr-2.0.0-chexpert.csv.gz --output o3 "${shards[@]}"
error_line "packed/mimic-cxr-2.0.0-metadata.csv.gz: gzip: the file ends in the middle of the data" "a cut one is a fault"
sed -i 's/id-7,\(.*\),test/id-7,\1,train/' mimic/mimic-cxr-2.0.0-split.csv
expect_status 3 chex-shard "${mimic[@]}" --output o3 "${shards[@]}"
error_line "1 patient is in two splits: 10000003 \(the first in the images of split train and" "a leak is refused"
[ ! -e o3 ]
ok $? "a refused command leaves no files"
expect_status 0 chex-shard "${mimic[@]}" --output o3 --size 32 --shards 1 --shared-patients drop
like "$(err)" "1 patient is in two splits: 1 of their images is left out" "dropped images of shared patients are reported"
like "$(out)" "test +1 image in" "test keeps its own"
expect_status 0 chex-shard audit o3/train o3/test
rm mimic/mimic-cxr-2.0.0-metadata.csv
expect_status 3 chex-shard "${mimic[@]}" --output o4 "${shards[@]}"
error_line "no mimic/mimic-cxr-2.0.0-metadata.csv beside it" "a side file is missing"

# A table of one's own.
{
    echo "file;who" | tr ';' ,
    for i in {0..11}; do echo "${images[$i]},$((i / 2))"; done
} >own.csv
expect_status 3 chex-shard --images ph/images --labels own.csv --output o5 "${shards[@]}"
error_line "own.csv: line 1: 'file,who' is not the first line of a known label format, expected one of: nih" "formats are listed"
sed -i '1s/$/,dx/; 2~2s/$/,Mass|Edema/; 3~2s/$/,No Finding/' own.csv
own=(--images ph/images --labels own.csv --split patient "${shards[@]}")
expect_status 0 chex-shard "${own[@]}" --columns image=file,patient=who,findings=dx --output o5
expect_status 2 chex-shard "${own[@]}" --columns image=file,doctor=who --output o6
error_line "'doctor' is no role, expected a comma-separated list of ROLE=NAME" "an unknown role"
expect_status 2 chex-shard "${own[@]}" --format nih --columns image=file --output o6
error_line "--columns is not for label format 'nih'" "columns of a fixed format"
expect_status 0 chex-shard audit own.csv own.csv --columns image=file,patient=who,findings=dx --help
expect_status 3 chex-shard audit own.csv ph/labels.csv --columns image=file,patient=who,findings=dx
error_line "12 images are in both" "audit: columns of one source, another by its header"
expect_status 3 chex-shard audit own.csv own.csv --columns image=file,patient=whom
error_line "own.csv: line 1: the header has no column 'whom'" "a missing column of a plain CSV file is named"
expect_status 3 chex-shard audit own.csv ph/labels.csv
error_line "own.csv: line 1: 'file,who,dx' is not the first line of a known label format" "a table is no list of names"

# Ids without an ending (VinDr-CXR's).
echo "image_id,rad_id,Aortic enlargement" >vindr.csv
for i in {0..5}; do echo "${images[$i]%.png},R1,1"; done >>vindr.csv
expect_status 0 chex-shard --images ph/images --labels vindr.csv --split none --output o7 "${shards[@]}"

# A leak between two lists, and what it touches.
head -n 1 ph/labels.csv >leak.csv
for i in {1..8}; do echo "0000000$((i / 2))_00$i.png,Mass,0,$((i / 2)),50,M,PA,1,1,1,1"; done >>leak.csv
printf '%s\n' 00000000_001.png 00000001_002.png 00000001_003.png 00000002_004.png >one.txt
printf '%s\n' 00000002_005.png 00000003_006.png 00000003_007.png >two.txt
expect_status 3 chex-shard audit one.txt two.txt --labels leak.csv
error_line "1 patient is in both, the first is 00000002; 0 images are in both" "the leak is found"
like "$(out)" "patients +3 +2 +1 +1" "patients"
like "$(out)" "images +4 +3 +1 +1" "images of shared patients"
like "$(out)" "Mass +4 +3 +1 +1" "positives"
expect_status 3 chex-shard audit one.txt two.txt
like "$(out)" "positives are not known of both" "lists alone have no positives"
expect_status 3 chex-shard audit one.txt two.txt --labels leak.csv --json
like "$(out | tr -d ' \n')" '"name":"Mass","positives_a":4,"positives_b":3,"shared_patient_positives_a":1' "the audit prints JSON"
echo nowhere.png >three.txt
expect_status 3 chex-shard audit three.txt two.txt --labels leak.csv
error_line "three.txt: line 1, column 1: 'nowhere.png', expected an image of leak.csv" "a name without labels"
done_testing
