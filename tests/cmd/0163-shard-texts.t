# SPDX-License-Identifier: Apache-2.0
# chex-shard refuses some texts of label files and images, and makes others printable.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 12 --size 32 --output ph --quiet || exit 1
mapfile -t images < <(ls ph/images)
make=(chex-shard --images ph/images --split none --size 32 --shards 1 --output o --quiet)
# table HEADER EXTRA: a table whose fourth image has EXTRA as patient.
table() {
    echo "$1"
    for i in {0..11}; do
        [ "$i" = 3 ] && echo "${images[$i]},$2,$((i % 2))" || echo "${images[$i]},p$i,$((i % 2))"
    done
}

# Encodings and kinds of files.
table image,patient,Mass p3 >plain.csv
for encoding in UTF-16 UTF-16BE UTF-16LE UTF-32 UTF-32BE UTF-32LE; do
    iconv -f UTF-8 -t $encoding plain.csv >wide.csv
    expect_status 3 "${make[@]}" --labels wide.csv
    error_line "wide.csv: ${encoding:0:6}, expected UTF-8: convert the file with iconv -f $encoding -t UTF-8" "$encoding is recognised"
done
{ printf '\376\377'; iconv -f UTF-8 -t UTF-16BE plain.csv; } >wide.csv
expect_status 3 "${make[@]}" --labels wide.csv
error_line "wide.csv: UTF-16, expected UTF-8" "UTF-16 BE with a byte order mark"
expect_status 3 "${make[@]}" --labels "ph/images/${images[0]}"
error_line "a PNG image, expected CSV" "an image is no label file"

# Long and unprintable patient ids.
printf -v id '%60000s' ''
table image,patient,Mass "${id// /p}" >long.csv
expect_status 3 "${make[@]}" --labels long.csv
error_line "long.csv: line 5: a patient id of 60000 bytes \(ppp.*\.\.\.\), expected 4095 at most" "a long patient id is refused at its line"
table image,patient,Mass "${id:0:4095}" | tr ' ' p >longest.csv
expect_status 0 "${make[@]}" --labels longest.csv
expect_status 0 chex-shard verify o
rm -r o
table image,patient,Mass $'p\033[31m' >escape.csv
expect_status 3 "${make[@]}" --labels escape.csv
error_line "escape.csv: line 5: patient 'p\\\\x1B\[31m', expected an id without control" "a patient id with an escape sequence is refused"
unlike "$(err)" $'\033' "an escape character is not printed"

# Hidden files.
mkdir dots
for i in {0..3}; do cp "ph/images/${images[$i]}" "dots/.${images[$i]}"; done
{
    echo image,Mass
    for i in {0..3}; do echo ".${images[$i]},$((i % 2))"; done
} >dots.csv
cp "ph/images/${images[5]}" dots
echo "${images[5]},1" >>dots.csv
expect_status 3 "${make[@]}" --images dots --labels dots.csv
like "$(err)" "line 2: image .${images[0]} is not under dots: files and folders whose names begin with a dot are skipped" "hidden files are named so"

# Names of findings.
for name in '=1+1' +A -A @A $'A\033[m'; do
    table "image,patient,$name" p3 >names.csv
    expect_status 3 "${make[@]}" --labels names.csv
    error_line "names.csv: line 1: '.*' cannot be the name of a finding: it (begins with = \+ - or @, as a formula does|has a control character)" "$name is no name of a finding"
done
unlike "$(err)" $'\033' "an escape sequence is not printed"

# rejected.csv: names that would be formulas, and texts of image files.
mkdir odd
cp ph/images/* odd
mv "odd/${images[0]}" 'odd/=cmd.png'
head -c 100 "ph/images/${images[1]}" >'odd/=cmd.png'
if [ -f "$BUILD/lib/chexnet-dicom.so" ]; then
    sed 's/RGB /R\x1b\x9b /' "$SOURCE/tests/data/dicom/no-rgb.dcm" >"odd/${images[1]}"
fi
{
    echo "image,patient,Mass"
    echo "=cmd.png,p0,1"
    for i in {1..11}; do echo "${images[$i]},p$i,$((i % 2))"; done
} >odd.csv
expect_status 0 "${make[@]}" --images odd --labels odd.csv --max-bad 2
like "$(cat o/rejected.csv)" "^\"'=cmd.png\",\"" "a name that would be a formula gets an apostrophe"
LC_ALL=C grep -qP '[\x00-\x09\x0b-\x1f\x7f-\xff]' o/rejected.csv "$SCRATCH/err"
[ $? -eq 1 ]
ok $? "no control character reaches rejected.csv or the terminal"
expect_status 0 chex-shard verify o
done_testing
