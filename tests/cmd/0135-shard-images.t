# SPDX-License-Identifier: Apache-2.0
# chex-shard makes sets of JPEG and DICOM files, and says what to do if the DICOM module is
# missing.
source "$(dirname "$0")/lib.sh"

data=$SOURCE/tests/data
flags="0 1 0 0 0 0 0 0 0 0 0 0 0 0"
# add FOLDER FILE...: copies them there under names of the lists, and one line of labels for each.
add() {
    local folder=$1 n file name
    shift
    mkdir -p "$folder"
    for file; do
        n=$(find "$folder" -type f | wc -l)
        name=$(printf '%08d_000.%s' $((n + 1)) "${file##*.}")
        cp "$data/$file" "$folder/$name"
        echo "$name $flags" >>"$folder.txt"
    done
}
shard() { chex-shard --images "$1" --labels "$1.txt" --split none --size 16 --shards 2 "${@:2}"; }

add jpeg jpeg/grey.jpg jpeg/grey-big.jpg jpeg/grey-progressive.jpg jpeg/colour-420.jpg \
    jpeg/colour-big-420.jpg png/grey-8.png
expect_status 0 shard jpeg --output a --workers 1
like "$(out)" "a: 6 images in" "JPEG and PNG in one set"
expect_status 0 shard jpeg --output b --workers 2
diff -r a b
ok $? "one worker and two make the same bytes"
expect_status 0 chex-shard verify a

add mixed jpeg/grey.jpg jpeg/cmyk.jpg jpeg/colour-444.jpg
expect_status 3 shard mixed --output c
error_line "mixed/00000002_000.jpg: libjpeg: 4 components \(CMYK or YCCK\)" "CMYK is a bad image"
expect_status 0 shard mixed --output c --max-bad 1
like "$(out)" "1 image left out" "a bad image may be left out"

# A grey PNG of 16 bits gets a window.
add deep png/grey-16-hot.png jpeg/grey.jpg
expect_status 0 shard deep --output k
like "$(cat k/manifest.json)" '"png16": "0.1 % to 99.9 %"' "the manifest has the window of PNG files of 16 bits"
expect_status 0 chex-shard reshard k --output k1 --shards 1
like "$(cat k1/manifest.json)" '"png16": "0.1 % to 99.9 %"' "resharding keeps it"

add dicom dicom/mono2-12-window.dcm dicom/mono1-16.dcm jpeg/grey.jpg
expect_status 4 env CHEX_LIBDIR=/nonexistent chex-shard --images dicom --labels dicom.txt \
    --split none --size 16 --output d --max-bad 3
error_line "0000000[12]_000.dcm is DICOM: module chexnet-dicom.so: .*CHEX_WITH_DICOM=ON" \
    "DICOM without the module is no bad image: the remedy is said"
[ ! -e d/manifest.json ]
ok $? "no set is written"
if [ -f "$BUILD/lib/chexnet-dicom.so" ]; then
    expect_status 0 shard dicom --output d --workers 2 --force
    like "$(out)" "d: 3 images in" "DICOM and JPEG in one set"
    expect_status 0 chex-shard verify d
    add dicom dicom/no-rgb.dcm
    expect_status 3 shard dicom --output e
    error_line "00000004_000.dcm: PhotometricInterpretation is 'RGB'" "a bad DICOM is a bad image"
else
    skip "no module chexnet-dicom.so" 5
fi
done_testing
