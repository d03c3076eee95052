#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# librsvg renders roc.svg, the drawings of report.html and those of the documents in colour on a
# light ground. report.html describes its data.
source "$(dirname "$0")/lib.sh"

# Two findings, one with a long name and an underscore; one with a single positive patient.
{
    echo image_id,patient_id,y_Pleural_Thickening,y_Hernia,p_Pleural_Thickening,p_Hernia
    for i in {1..60}; do
        echo "$i.png,$((i / 2)),$((i % 3 == 0)),$((i == 7)),0.$((i * 37 % 89 + 10)),0.$((i * 11 % 90 + 10))"
    done
} >p.csv
expect_status 0 chex-eval score --predictions p.csv --output results

page=$(cat results/report.html)
like "$page" 'Not for clinical use' "the report says that it is not for clinical use"
unlike "$page" 'mined from' "labels of unknown origin are not called mined"
like "$page" '<th scope="row">Pleural Thickening</th>' "an underscore is shown as a blank"
like "$page" '>patients</th>' "the report has the patients with a positive"
like "$page" '<td class="ci">too few</td>' "a finding with one positive patient is marked"
for tick in 0.4 0.6 0.8 1; do
    like "$page" ">$tick</text>" "the scale of the bars has a tick at $tick"
done
like "$page" '>share of positives [0-9.e-]*</text>' "reliability: the share of positives has a line of its own"
like "$page" '>calibration error [0-9.e-]*</text>' "reliability: the calibration error has a line of its own"
like "$page" 'max-width:760px' "a narrow page has a layout of its own"
unlike "$(cat results/roc.svg)" 'var\(|<style' "roc.svg needs no CSS"

if ! have rsvg-convert || ! have python3 || without PYTHON; then
    skip "no rsvg-convert or no python3 here" 12
    done_testing
fi

cat >pixels.py <<'PY'
"""pixels.py FILE.png: colours, the first pixel, and the share of pixels near it. The picture is laid
over white."""
import collections, struct, sys, zlib

data = open(sys.argv[1], "rb").read()
width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
assert depth == 8 and kind in (2, 6), "expected RGB or RGBA"
at, packed = 8, b""
while at < len(data):
    size, name = struct.unpack(">I4s", data[at:at + 8])
    packed += data[at + 8:at + 8 + size] if name == b"IDAT" else b""
    at += size + 12
raw, step = zlib.decompress(packed), 4 if kind == 6 else 3
before, colours = bytearray(width * step), collections.Counter()
for y in range(height):
    start = y * (width * step + 1)
    rule, row = raw[start], bytearray(raw[start + 1:start + 1 + width * step])
    for i in range(len(row)):
        a = row[i - step] if i >= step else 0
        b = before[i]
        c = before[i - step] if i >= step else 0
        p = a + b - c
        paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        row[i] = (row[i] + (0, a, b, (a + b) // 2, paeth)[rule]) & 255
    for i in range(0, len(row), step):
        alpha = row[i + 3] if step == 4 else 255
        colours[tuple(v + 255 - alpha if alpha == 255 else (v * alpha + 255 * (255 - alpha)) // 255
                      for v in row[i:i + 3])] += 1
    if y == 0:
        first = next(iter(colours))
    before = row
print(len(colours), "%02x%02x%02x" % first, " ".join("%02x%02x%02x" % c for c in colours))
PY

# rendered FILE.svg NAME COLOUR...: it renders on a light ground and has the colours. Without colours
# a small picture is enough.
rendered() {
    local file=$1 name=$2 count ground all colour missing='' small=()
    shift 2
    [ $# -gt 0 ] || small=(--width 240 --keep-aspect-ratio)
    rsvg-convert "${small[@]}" "$file" -o out.png 2>render.log
    is "$? $(cat render.log)" "0 " "$name: librsvg renders it without a complaint"
    read -r count ground all < <(python3 pixels.py out.png)
    [ "$count" -gt 3 ] && [ $((0x${ground:0:2})) -gt 200 ] && [ $((0x${ground:4:2})) -gt 200 ]
    ok $? "$name: $count colours on a light ground ($ground)"
    for colour; do
        [[ " $all " == *" $colour "* ]] || missing+=" $colour"
    done
    is "$missing" "" "$name: the colours of its lines are there"
}
rendered results/roc.svg roc.svg 0b62c4 1c2733
for document in "$SOURCE"/doc/*.svg; do
    rendered "$document" "${document##*/}"
done

# The drawings of the page: the shared curves first, as each panel refers to them.
python3 - <<'PY'
import re
page = open("results/report.html").read()
drawings = re.findall(r"<svg.*?</svg>", page, re.S)
shared = re.search(r"<defs>.*?</defs>", page, re.S).group(0)
spaces = '<svg xmlns="http://www.w3.org/2000/svg"'
for name, mark in (("bar", "<circle fill"), ("roc", "<use"), ("reliability", '<circle class="p"')):
    drawing = next(d for d in drawings if mark in d)
    drawing = drawing.replace("<svg", spaces, 1).replace("</svg>", shared + "</svg>")
    open(name + ".svg", "w").write(drawing)
PY
for drawing in bar roc reliability; do
    rendered $drawing.svg "report.html, $drawing" 0b62c4
done
done_testing
