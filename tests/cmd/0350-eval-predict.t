#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval predict gives new images the probabilities of an evaluation from shards, warns about
# images that are no usual radiographs, and lists files that it cannot use.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

mkdir -p images/more
cp "$SOURCE"/datasets/nih-sample/images/000000[0-2]*_00*.png images
mv images/00000001_00*.png images/more
quiet chex-shard --images images --labels "$SOURCE"/datasets/nih-sample/Data_Entry_2017.csv \
    --size 36 --shards 2 --split none --max-bad 100000 --output shards
quiet chex-train --data shards --output run --model densenet_tiny --image-size 32 --batch-size 4 --max-steps 2 \
    --engine cpu --threads 2
quiet chex-eval --data shards --checkpoint run/last.h5 --output eval --allow-overlap --threads 2 \
    --bootstrap 0
net=(--checkpoint run/last.h5)
count=$(find images -name '*.png' | wc -l)

# columns FILE NAME-PREFIX...: these columns of a table, the rows in order of their file names.
columns() {
    local file=$1
    shift
    awk -F, -v want="$*" 'NR == 1 { n = split(want, w, " ")
            for (i = 1; i <= NF; i++) for (k = 1; k <= n; k++) if (index($i, w[k]) == 1) keep[i] = 1 }
        { row = ""; for (i = 1; i <= NF; i++) if (i in keep) row = row "," $i
          sub(/.*\//, "", row); sub(/^,/, "", row); print row }' "$file" | LC_ALL=C sort
}

expect_status 0 chex-eval predict --images images "${net[@]}" --output whole --threads 2 --json
is "$(columns whole/predictions.csv image_id p_)" "$(columns eval/predictions.csv image_id p_)" \
    "probabilities are those of the shards' rows, to the last digit"
is "$(head -n 1 whole/predictions.csv | cut -d, -f1,2,15-)" "image_id,p_Atelectasis,p_Hernia,flags" \
    "predictions.csv has the classes by name, and no columns that no image fills"
is "$(sed 1d whole/predictions.csv | cut -d, -f1 | LC_ALL=C sort -c 2>&1)" "" \
    "rows are in the order of the paths below the folder"
like "$(cut -d, -f1 whole/predictions.csv | tail -n 1)" '^more/00000001_' \
    "an image id is the path below the folder"
like "$(err)" 'no feature statistics, so images that are far .* chex-eval deploy' \
    "a missing check of the distance is reported"
like "$(out)" "\"images\":$count,\"rejected\":0" "--json prints the counts"
like "$(out)" '"checkpoint_digest":"[0-9a-f]{16}"' "the digest of a checkpoint without thresholds has one part"
is "$(ls -A whole | tr '\n' ' ')" "predict.json predictions.csv rejected.csv " \
    "the folder holds the results only"

expect_status 0 chex-eval predict --images images "${net[@]}" --output other --threads 1 \
    --workers 3 --batch-size 5
diff -r whole other >diff.log
ok $? "other numbers of threads, workers and images at once give the same files"

# Members of archives, single files, and names given in several ways.
first=$(find images -maxdepth 1 -name '*.png' | LC_ALL=C sort | sed -n 1p)
second=$(find images -maxdepth 1 -name '*.png' | LC_ALL=C sort | sed -n 2p)
expect_status 0 chex-eval predict --images "$first" "$second" --images=images/more "${net[@]}" \
    --output some
is "$(sed 1d some/predictions.csv | cut -d, -f1 | head -n 2 | tr '\n' ' ')" \
    "${first##*/} ${second##*/} " "--images takes several values and may be repeated"
if chex-shard --version | grep -q libarchive; then
    tar -C images -cf images.tar . && gzip -k images.tar
    for archive in images.tar images.tar.gz; do
        expect_status 0 chex-eval predict --images $archive "${net[@]}" --output of-$archive
        is "$(columns of-$archive/predictions.csv image_id p_)" \
            "$(columns eval/predictions.csv image_id p_)" "$archive gives the same probabilities"
    done
    expect_status 0 chex-eval predict --images images.tar images.tar.gz "${net[@]}" --output both
    is "$(sed 1d both/predictions.csv | cut -d, -f1 | cut -d/ -f1 | sort | uniq -c | tr -s ' \n' ' ')" \
        " $count images.tar $count images.tar.gz " "equal ids become whole paths"
    head -c "$(($(stat -c %s images.tar) / 2))" images.tar >half.tar
    head -c "$(($(stat -c %s images.tar.gz) / 2))" images.tar.gz >half.tar.gz
    for archive in half.tar half.tar.gz; do
        expect_status 0 chex-eval predict --images $archive "${net[@]}" --output of-$archive -q
        like "$(err)" "$archive: .* after the last whole member .*: the rest of the archive is left out" \
            "$archive: a warning says that the results are not complete"
    done
    ranks=(mpirun --oversubscribe --bind-to none)
    [ "$(id -u)" != 0 ] || ranks+=(--allow-run-as-root)
    if have mpirun && "${ranks[@]}" -n 2 true 2>/dev/null; then
        expect_status 0 "${ranks[@]}" -n 2 chex-eval predict --images half.tar "${net[@]}" --output of-two -q
        is "$(err | grep -c 'the rest of the archive')" 1 "one of two processes warns"
    else
        skip "no mpirun here" 2
    fi
    # What is no file is listed, in a folder, in a plain and in a compressed archive.
    mkdir -p links/sub
    cp "$first" links/one.png && ln links/one.png links/two.png
    ln -s gone.png links/dangling.png
    ln -s ../../links links/sub/loop
    mkfifo links/pipe.png
    tar -C links -cPf links.tar one.png two.png dangling.png pipe.png ../images/"${second##*/}"
    gzip -k links.tar
    for source in links.tar links.tar.gz; do
        expect_status 0 chex-eval predict --images $source "${net[@]}" --output of-$source
        is "$(sed 1d of-$source/predictions.csv | cut -d, -f1)" one.png "$source: the file is predicted"
        is "$(tr -d '"' <of-$source/rejected.csv | sed "s|$source/||")" "image_id,reason
two.png,two.png: a link to one.png, expected a file: unpack the archive
dangling.png,dangling.png: a link to gone.png, expected a file: unpack the archive
pipe.png,pipe.png: not a regular file
../images/${second##*/},../images/${second##*/}: a path with '..', expected one within the archive" \
            "$source: each member that is not read is listed with its reason"
    done
    rm links/pipe.png
    expect_status 0 chex-eval predict --images links "${net[@]}" --output of-links/
    like "$(out)" '2 files cannot be used: of-links/rejected.csv' "a slash after --output is not repeated"
    is "$(sed 1d of-links/predictions.csv | cut -d, -f1 | tr '\n' ' ')" "one.png two.png " "hard links in a folder are files"
    is "$(tr -d '"' <of-links/rejected.csv)" "image_id,reason
dangling.png,links/dangling.png: a link to a file that does not exist
sub/loop,links/sub/loop: a folder that contains itself, or is too deep" "links of a folder that lead to no file are listed"
else
    skip "this chexnet was built without libarchive" 22
fi

# Flags and files that cannot be used.
mkdir odd
cp "$SOURCE"/tests/data/jpeg/colour-big-420.jpg odd/photo.jpg
head -c 600 "$SOURCE"/tests/data/jpeg/grey-big.jpg >odd/cut.jpg
: >odd/empty.png
echo 'Not an image, <b>at all</b>' >'odd/notes, "old".txt'
cp "$first" odd/chest.png
dicom=
[ ! -f "$BUILD/lib/chexnet-dicom.so" ] || dicom=yes
[ -z "$dicom" ] || cp "$SOURCE"/tests/data/dicom/no-pixels.dcm odd
expect_status 0 chex-eval predict --images odd "${net[@]}" --output oddities --sheet --heat-maps 2
like "$(grep ^photo.jpg, oddities/predictions.csv)" ',colour' "a colour photograph has a flag"
like "$(grep ^chest.png, oddities/predictions.csv)" ',$' "a radiograph has none"
like "$(err)" '1 image with flag colour: colour: a photograph or a screenshot' \
    "flags are counted in one line for each kind"
like "$(cat oddities/rejected.csv)" '^cut.jpg,.*libjpeg: the file ends early' \
    "a truncated JPEG is listed with its reason"
like "$(cat oddities/rejected.csv)" '^"notes, ""old"".txt",.*not an image of a known kind' \
    "and so is a file that is no image"
[ -z "$dicom" ] && skip "no DICOM module here" ||
    like "$(cat oddities/rejected.csv)" '^no-pixels.dcm,' "and a DICOM file without pixels"
like "$(out)" '[45] files cannot be used: oddities/rejected.csv' "their number is printed"
page=oddities/contact-sheet.html
is "$(grep -c '<tr><th scope="row">' $page)" "$(find odd -type f | wc -l)" \
    "the contact sheet has a row for each file"
is "$(grep -o '<th scope="col"' $page | wc -l) $(grep -o 'data:image/png;base64' $page | wc -l)" \
    "15 2" "with headings, and a thumbnail for each image"
unlike "$(cat $page)" '<script|src="?http|<b>at all' "and nothing from outside"
like "$(cat $page)" 'notes, &quot;old&quot;.txt' "names are escaped"
is "$(cd oddities/maps && ls)" 0000001-chest.png "heat maps are drawn for images among the first two"
like "$(tr -c '[:print:]' '\n' <oddities/maps/0000001-chest.png)" '^[A-Z][A-Za-z_]+ 0\.[0-9]{4}' \
    "a heat map names its finding"

# DICOM: view and UIDs, put in front of SamplesPerPixel.
if [ -n "$dicom" ]; then
    mkdir studies
    plain=$SOURCE/tests/data/dicom/mono2-12-window.dcm
    at=$(grep -obUaP '\x28\x00\x02\x00US' "$plain" | head -n 1 | cut -d: -f1)
    {
        head -c "$at" "$plain"
        printf '\x18\x00\x01\x51CS\x02\x00LL\x20\x00\x0d\x00UI\x06\x001.2.3\x00\x20\x00\x0e\x00UI\x06\x001.2.34'
        tail -c +$((at + 1)) "$plain"
    } >studies/lateral.dcm
    cp "$plain" studies/plain.dcm
    expect_status 0 chex-eval predict --images studies "${net[@]}" --output studied
    is "$(cut -d, -f1-3 studied/predictions.csv | tr '\n' ' ')" \
        "image_id,study_id,series_id lateral.dcm,1.2.3,1.2.34 plain.dcm,, " \
        "UIDs of DICOM files are columns"
    like "$(grep ^lateral.dcm studied/predictions.csv)" 'lateral' "a lateral view has a flag"
    like "$(err)" "flag lateral: lateral view, and the network's file names no lateral training images" \
        "the warning claims nothing about a training that the file does not describe"
    unlike "$(grep ^plain.dcm studied/predictions.csv)" 'lateral' "a file without a view has not"
    is "$(cut -d, -f4- studied/predictions.csv | grep -c "$(grep ^plain studied/predictions.csv | cut -d, -f4-17)")" 2 \
        "and the same probabilities"
else
    skip "no DICOM module here" 6
fi

# Faults.
mkdir none
refused() { # STATUS REGEX NAME ARGUMENTS...
    local status=$1 regex=$2 name=$3
    shift 3
    expect_status "$status" chex-eval predict "${net[@]}" --output refused "$@"
    error_line "$regex" "$name"
    [ ! -e refused ]
    ok $? "and no folder is made"
}
refused 3 '--images none: there is no file' "an empty folder is refused" --images none
refused 3 '--images nowhere: No such file' "a missing file is refused" --images nowhere
refused 3 'chest.png is there twice' "an image that is named twice is refused" --images odd odd
refused 3 'none of 1 file can be used: .*ends early' "a list without a usable image is refused" \
    --images odd/cut.jpg
refused 3 'none of 1 file can be used: odd/notes, "old".txt: not an image' \
    "and the reason is given without quotes" --images 'odd/notes, "old".txt'
refused 2 "--heat-maps: '0' is not valid" "a wrong number of heat maps is refused" --images odd \
    --heat-maps 0
refused 2 'a crop of 32 px of an image resized to 20 px' "a crop larger than the image is refused" \
    --images odd --stored-size 20
expect_status 2 chex-eval predict --images odd "${net[@]}" --output whole
error_line 'output folder whole already holds predictions.csv, rejected.csv, predict.json' \
    "results of another run are not replaced"
expect_status 0 chex-eval predict --images images "${net[@]}" --output oddities --force
is "$(ls -A oddities | tr '\n' ' ')" \
    "predict.json predictions.csv rejected.csv " \
    "unless --force is given, and then old heat maps and the old page go too"
# A run that was killed between its two steps of publishing: maps/ is still that of the run before.
mkdir -p oddities/maps oddities/.eval.ready/.replace.maps oddities/.eval.ready/maps
: >oddities/maps/old.png
: >oddities/.eval.ready/maps/new.png
mv oddities/predict.json oddities/.eval.ready
expect_status 2 chex-eval predict --images images "${net[@]}" --output oddities
is "$(ls -A oddities oddities/maps | tr '\n' ' ')" \
    "oddities: maps predict.json predictions.csv rejected.csv  oddities/maps: new.png " \
    "the next run completes the results of a run that was killed while it published them"

# Results below the images.
mkdir scans
cp "$first" scans/chest.png
expect_status 0 chex-eval predict --images scans "${net[@]}" --output scans/out --heat-maps all -q
expect_status 0 chex-eval predict --images "$PWD/scans" "${net[@]}" --output scans/out --heat-maps all -q --force
is "$(sed 1d scans/out/predictions.csv | cut -d, -f1) $(wc -l <scans/out/rejected.csv)" "chest.png 1" \
    "results of an earlier run below the images are no images"
expect_status 2 chex-eval predict --images scans "${net[@]}" --output ./scans
error_line '--images scans is the folder of --output too' "the folder of the images takes no results"

done_testing
