#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The results of chex-eval appear together. A full disk or a kill leaves none of them, or the
# earlier set.
source "$(dirname "$0")/lib.sh"

cat >p.csv <<'END'
image_id,patient_id,y_Hernia,y_Mass,p_Hernia,p_Mass
a.png,1,1,0,0.8,0.1
b.png,1,0,0,0.5,0.2
c.png,2,1,0,0.5,0.3
d.png,3,0,-1,0.1,0.9
END
ALL="auroc.csv auroc.json curves.csv figures.csv report.html roc.svg shortcuts.csv subgroups.csv "
names() { ls -A "$1" | tr '\n' ' '; }
score() { chex-eval score --predictions p.csv --bootstrap 0 "$@"; }
# limited KILOBYTES COMMAND...: no file may grow beyond that, as on a full disk.
limited() { (trap '' XFSZ; ulimit -f "$1"; shift; "$@"); }

expect_status 0 score --output old
is "$(names old)" "$ALL" "the files, and nothing else"
cp -r old before

# ---- no space ----
kilobytes=$(($(stat -c %s old/report.html) / 1024))
expect_status 4 limited "$kilobytes" score --output new
error_line 'cannot write new/report\.html: File too large' "the error names the result that did not fit"
[ ! -e new ]
ok $? "no result is left, nor the folder that was made for them"
mkdir there && touch there/notes.txt
expect_status 4 limited "$kilobytes" score --output there
is "$(names there)" "notes.txt " "other files stay"
expect_status 4 limited "$kilobytes" score --output old --force --seed 2
diff -r before old
ok $? "an older set of results stays whole"
mkdir small
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=16k tmpfs small 2>/dev/null; then
    at_exit umount small
    expect_status 9 score --output small
    error_line 'cannot (write|create) small/.*No space left on device' "a full disk is status 9"
    is "$(names small)" "" "a full disk leaves no file"
else
    skip "cannot mount a tmpfs here" 3
fi

# ---- what a killed run leaves ----
mkdir -p killed/.eval.tmp.abc123
echo half >killed/.eval.tmp.abc123/auroc.json.tmp.17
echo half >killed/.eval.tmp.abc123/auroc.csv
expect_status 0 score --output killed
is "$(names killed)" "$ALL" "unfinished files of a killed run are no results, and are removed"
# Killed after the set was complete, while its files moved into their places.
mkdir -p moved/.eval.ready
cp before/{auroc.csv,curves.csv} moved
cp before/{auroc.json,figures.csv,report.html,roc.svg,shortcuts.csv,subgroups.csv} moved/.eval.ready
expect_status 2 score --output moved
error_line 'moved already holds auroc.json, auroc.csv, .*, report.html' "a complete set is moved by the next run"
diff -r before moved
ok $? "all files of the set are there"
mkdir -p again/.eval.ready
cp before/* again/.eval.ready
expect_status 0 score --output again --force
is "$(names again)" "$ALL" "--force replaces all results"

mkdir -p taken/roc.svg
expect_status 4 score --output taken --force
error_line 'cannot create taken/roc.svg: it is a folder' "a folder in the place of a result is found before the work"
is "$(names taken)" "roc.svg " "a refused evaluation writes nothing"

# ---- single files: export and cam ----
[ -x "$BUILD/bin/chex-train" ] || done_testing
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
quiet chex-shard phantom --count 16 --size 32 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split none --size 32 --shards 1 --output shards
quiet chex-train --data shards --output run --model densenet_tiny --image-size 32 --batch-size 8 --max-steps 1 \
    --engine cpu --threads 1
mkdir single
for name in net.safetensors cam.png cam.svg; do echo half >single/$name.tmp.k3x09qwz; done
touch single/other.png.tmp.k3x09qwz
image=ph/images/$(ls ph/images | head -n 1)
expect_status 0 chex-eval export --checkpoint run/last.h5 --output single/net.safetensors
expect_status 0 chex-eval cam --image "$image" --checkpoint run/last.h5 --engine cpu --output single/cam.png
is "$(names single)" "cam.png cam.svg net.safetensors other.png.tmp.k3x09qwz " \
    "what a killed export or cam left of the same file is removed, and no lock is left"
expect_status 0 chex-eval export --checkpoint run/last.h5 --output made/for/net.safetensors
is "$(names made/for)" "net.safetensors " "export makes the folder of its file"
expect_status 4 chex-eval export --checkpoint nowhere.h5 --output run/last.h5/net.safetensors
error_line 'cannot make folder run/last.h5' "a results folder that is a file is found before the work"
done_testing
