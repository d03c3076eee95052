#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval cam gives the probabilities of an evaluation from shards, writes a whole picture or
# none, and explains in one line what it cannot do.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

# Real radiographs, and JPEG and DICOM files that are no squares.
mkdir images
cp "$SOURCE"/datasets/nih-sample/images/0000000[1-5]_00*.png "$SOURCE"/tests/data/jpeg/grey-big.jpg images
dicom=
[ ! -f "$BUILD/lib/chexnet-dicom.so" ] || dicom=mono1-12-window.dcm
[ -z "$dicom" ] || cp "$SOURCE/tests/data/dicom/$dicom" images
{
    echo image,Mass,Nodule,Pleural_Thickening
    find images -type f -printf '%f\n' | sort | awk '{print $1 "," NR % 2 "," NR % 3 % 2 ",0"}'
} >labels.csv
quiet chex-shard --images images --labels labels.csv --format csv --size 36 --shards 1 \
    --columns image=image,labels=Mass:Nodule:Pleural_Thickening --split none --output shards
quiet chex-train --data shards --output run --model densenet_tiny --image-size 32 --batch-size 4 --max-steps 2 \
    --engine cpu --threads 2
quiet chex-eval --data shards --checkpoint run/last.h5 --output eval --allow-overlap --threads 2
net=(--checkpoint run/last.h5)
radiograph=images/00000001_000.png

# of_shards IMAGE: its probabilities in predictions.csv.
of_shards() { grep "^$1," eval/predictions.csv | cut -d, -f6-8 | tr ',' '\n'; }
of_json() { grep -o "\"$1\":[-0-9.e]*" <<<"$(out)" | cut -d: -f2; }

for image in 00000001_000.png grey-big.jpg ${dicom:+"$dicom"}; do
    expect_status 0 chex-eval cam --image "images/$image" "${net[@]}" --output "$image.png" --json
    is "$(of_json probability)" "$(of_shards "$image")" \
        "$image: the probabilities are those of the shard's row, to the last digit"
    is "$(head -c 4 "$image.png" | tail -c 3)" PNG "cam writes a PNG"
done
[ -n "$dicom" ] || skip "no DICOM module here" 3

expect_status 0 chex-eval cam --image $radiograph "${net[@]}" --output one.png
is "$(wc -l <out)" 6 "the table: all classes, and two notes"
like "$(out)" '^map: 1 x 1 position, too coarse to say where a finding is$' "the map is too coarse, which is said"
like "$(out)" '^for research, not for clinical use$' "the output is not for clinical use"
grep -qa 'not for clinical use' one.png
ok $? "the file says so too"
like "$(head -n 1 out)" '^finding +probability +logit +at peak +peak x, y \(px\)$' "the table has a head"
is "$(grep -c 'drawn$' out)" 1 "one class is drawn"
is "$(sed -n 2,4p out | sort -rnk 2 | head -n 1 | awk '{print $NF}')" drawn "the most probable one"
is "$(grep -o '>[A-Z][A-Za-z ]*</text>\|probability 0[.][0-9]*' one.svg | tr '\n' ' ')" \
    "$(awk '$NF == "drawn" {gsub("_", " ", $1); printf ">%s</text> probability %.3f ", $1, $2}' out)" \
    "one.svg names the class and its probability"
sed -n 's/.*base64,\([^"]*\)".*/\1/p' one.svg | base64 -d | cmp -s - one.png
ok $? "and contains the picture"
if have rsvg-convert; then
    rsvg-convert one.svg >drawn.png 2>rsvg.log && [ -s drawn.png ] && [ ! -s rsvg.log ]
    ok $? "another program can draw it"
else
    skip "no rsvg-convert here"
fi
like "$(err)" 'one.png: [0-9]+ x [0-9]+ px, densenet_tiny at 32 of 36 px, 1 x 1 positions' \
    "crop and stored size are the checkpoint's"
unlike "$(err)" 'warn: ' "a complete checkpoint has no warning"
grep -qa Title one.png && grep -qa 00000001_000.png one.png && ! grep -qa images/ one.png
ok $? "the file says of what it is, but no folders"

expect_status 0 chex-eval cam --image $radiograph "${net[@]}" --output again.png --threads 1
cmp -s one.png again.png && cmp -s one.svg again.svg
ok $? "another number of threads draws the same picture"
expect_status 0 chex-eval cam --image $radiograph "${net[@]}" --output two.png \
    --class ' pleural_thickening, Mass,mass' --json
is "$(grep -o '"drawn":true' out | wc -l)" 2 "classes by name, whatever the letters, each once"
expect_status 0 chex-eval cam --image $radiograph "${net[@]}" --output all.png --class all
is "$(grep -c 'drawn$' out)" 3 "all classes"
is "$(grep -o '>probability ' all.svg | wc -l) $(grep -o '<image' all.svg | wc -l)" "3 1" \
    "each has a caption in all.svg, which contains the picture once"
expect_status 0 chex-eval cam --image $radiograph "${net[@]}" --output wide.png --image-size 64 \
    --stored-size 72 --json
is "$(of_json image_size_px) $(of_json stored_size_px) $(of_json width_px) $(of_json height_px)" \
    "64 72 64 64" "a larger crop of a larger image"
like "$(out)" '"too_coarse":true' "2 x 2 positions are too coarse"
like "$(out)" '"positions_x_px":\[15\.94[0-9]*,44\.38[0-9]*\]' "positions in px of the file"
expect_status 0 chex-eval cam --image $radiograph "${net[@]}" --output ref.png --engine ref \
    --precision fp32 --json
like "$(out)" '"engine":"ref","precision":"fp32"' "cam uses the engine that was chosen"
# fp32 against the default precision of the cpu engine, which is bf16 on some processors.
paste <(of_json probability) <(of_shards 00000001_000.png) |
    awk '{d = $1 - $2; if (d < 0) d = -d; if (d < 0.001) near++} END {exit near != 3}'
ok $? "the ref engine in fp32 gives the probabilities of the cpu engine within 0.001"

expect_status 0 chex-eval export "${net[@]}" --output last.safetensors
expect_status 0 chex-eval cam --image $radiograph --checkpoint last.safetensors --output st.png
unlike "$(err)" 'warn: ' "exported parameters say it too"
like "$(err)" '32 of 36 px' "the stored size among it"

if have mpirun; then
    saved=$ASAN_OPTIONS
    export ASAN_OPTIONS=$saved:detect_leaks=0 # Open MPI's own
    expect_status 0 mpirun --allow-run-as-root --oversubscribe -n 2 chex-eval cam \
        --image $radiograph "${net[@]}" --output ranks.png
    cmp -s one.png ranks.png
    ok $? "one of two ranks draws"
    like "$(err)" 'cam is work for one process' "the other rank says that cam is work for one process"
    export ASAN_OPTIONS=$saved
else
    skip "no mpirun here" 3
fi

# refuse STATUS REGEX OPTION...: and nothing is written.
refuse() {
    local status=$1 text=$2
    shift 2
    rm -f none.png
    expect_status "$status" chex-eval cam --image $radiograph "${net[@]}" --output none.png "$@"
    error_line "$text" "refused: $*"
    [ -z "$(find . -name 'none*' -o -name '*.tmp.*')" ]
    ok $? "a refused command writes no picture"
}
refuse 2 "the network has no finding 'Nodul'; did you mean Nodule\?" --class Nodul
refuse 2 "'plural thickening'; did you mean Pleural_Thickening\?" --class 'Mass,plural thickening'
refuse 2 "the network has no finding '' \(it has Mass, " --class Mass,
refuse 2 'a crop of 64 px of an image resized to 36 px' --image-size 64
refuse 2 'alpha' --alpha 1.5
refuse 2 'ends in .png' --output none.jpg
refuse 2 'is what is read' --output $radiograph --force
refuse 2 'one.png exists: say --force' --output one.png
touch none.svg
expect_status 2 chex-eval cam --image $radiograph "${net[@]}" --output none.png
error_line 'none.svg exists: say --force' "a foreign .svg is not replaced"
rm none.svg
refuse 4 'cannot make folder labels.csv: File exists' --output labels.csv/none.png
refuse 3 'is a densenet_tiny, --model says resnet50' --model resnet50
refuse 3 'nowhere.png' --image nowhere.png
refuse 3 'labels.csv: not an image of a known kind' --image labels.csv
cp $radiograph $'odd\xff.png'
refuse 2 '--image images: a folder, expected one image' --image images
refuse 2 "--image 'odd\\\\xFF.png': the name is no UTF-8 text, as --json needs" --image $'odd\xff.png' --json
expect_status 0 chex-eval cam --image $'odd\xff.png' "${net[@]}" --output made/for/odd.png
[ -s made/for/odd.png ]
ok $? "cam makes the folder of its picture"
head -c 1000 $radiograph >cut.png
refuse 3 'cut.png: ' --image cut.png
head -c 1000000 run/last.h5 >cut.h5
refuse 3 'cut.h5' --checkpoint cut.h5
refuse 2 '--checkpoint run: a folder, expected a file; did you mean run/best.h5[?]' --checkpoint run
refuse 2 "engine 'warp'" --engine warp
cp one.png kept.png
expect_status 3 chex-eval cam --image cut.png "${net[@]}" --output kept.png --force
cmp -s one.png kept.png
ok $? "a picture is kept until the next one is complete"
expect_status 0 chex-eval cam --image $radiograph "${net[@]}" --output kept.png --force --scale 4 \
    --alpha 0.3
! cmp -s one.svg kept.svg
ok $? "--force replaces a picture"
for missing in image checkpoint output; do
    all=(--image "$radiograph" "${net[@]}" --output none.png)
    case $missing in
    image) all=("${all[@]:2}") ;;
    checkpoint) all=("${all[@]:0:2}" "${all[@]:4}") ;;
    output) all=("${all[@]:0:4}") ;;
    esac
    expect_status 2 chex-eval cam "${all[@]}"
    error_line "chex-eval cam needs --$missing" "cam says that it needs --$missing"
done

# foreign TEXT: the export with other metadata of as many bytes.
foreign() {
    python3 -c 'import struct, sys
data = open("last.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
end = data.index(b"}", 8) + 2
head = b"{" + sys.argv[1].encode()
open("foreign.safetensors", "wb").write(data[:8] + head.ljust(end - 8) + data[end:])' "$1"
}
if have python3 && ! without PYTHON; then
    foreign ''
    refuse 3 'foreign.safetensors does not name its 3 findings' --checkpoint foreign.safetensors
    foreign '"__metadata__":{"classes":"[\"Mass\",\"Nodule\",\"Scar\"]","image_size":"32"},'
    expect_status 0 chex-eval cam --image $radiograph --checkpoint foreign.safetensors --output f.png
    like "$(err)" 'warn: .*does not say at what size its training images were stored: 37 px is taken' \
        "a file that does not know its stored size"
    like "$(err)" 'warn: .*does not say how its training images were resized' "safetensors without details are warned about"
    foreign '"__metadata__":{"classes":"[\"Mass\",\"Nodule\",\"Scar\"]","resize":"box"},'
    refuse 3 'trained on images resized by box' --checkpoint foreign.safetensors
else
    skip "no python3 here" 9
fi
done_testing
