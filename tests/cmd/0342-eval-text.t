#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Text of files from elsewhere sends no control character to the terminal or into a table, and
# makes no formula in a cell.
source "$(dirname "$0")/lib.sh"
ESC=$'\033'
# clean FILE... : no control character but line feeds.
clean() { ! LC_ALL=C grep -qa $'[\001-\010\013-\037\177]' "$@"; }

cat >p.csv <<'END'
image_id,patient_id,y_Hernia,p_Hernia
a.png,1,1,0.8
b.png,1,0,0.5
c.png,2,1,0.5
END
sed "1s/Hernia/Her${ESC}[2Jnia/g" p.csv >esc.csv
expect_status 3 chex-eval score --predictions esc.csv --output out.d
error_line "esc.csv line 1: column 'p_Her.x1B\[2Jnia': the name of a finding has control characters" \
    "a class name with an escape sequence is refused"
clean err out && [ ! -e out.d ]
ok $? "an escape sequence is not printed raw"
sed $'1s/Hernia/Her\377nia/g' p.csv >bytes.csv
expect_status 3 chex-eval score --predictions bytes.csv
error_line "bytes.csv: line 1: finding 'Her.xFFnia': byte 0xFF, as in Windows-1252" "a class name that is not UTF-8 is refused"
sed '1s/Hernia/Émphysème/g' p.csv >umlaut.csv
expect_status 0 chex-eval score --predictions umlaut.csv --bootstrap 0 --compare none
like "$(out)" '^Émphysème ' "letters of other languages stay"
printf 'class,us\nHernia,0.8\n@source,we%s[31m\n' "$ESC" >compare.csv
expect_status 3 chex-eval score --predictions p.csv --compare compare.csv
error_line "compare.csv line 3: 'we.x1B\[31m' has control characters" "a class name with control characters in a table to compare with is refused"
cp p.csv "x${ESC}[1m.csv"
expect_status 0 chex-eval score --predictions "x${ESC}[1m.csv" --bootstrap 0 --output named
clean err out named/*
ok $? "the name of a file is not written raw"

# Formula cells.
sed '1s/Hernia/=1+1/g' p.csv >formula.csv
expect_status 0 chex-eval score --predictions formula.csv --bootstrap 0 --compare none --output formula
like "$(sed -n 2p formula/auroc.csv)" "^\"'=1\+1\",2," "a class whose name is a formula is written as text"
expect_status 0 chex-eval score --predictions formula.csv --bootstrap 0 --compare formula/auroc.csv
like "$(out)" '^=1[+]1 +2 .* 0[.]7500 .* 0[.]7500$' "a class whose name begins with = is found by its name"

[ -x "$BUILD/bin/chex-train" ] || { done_testing; }
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
quiet chex-shard phantom --count 16 --size 36 --seed 3 --output ph
for i in ph/images/*; do mv "$i" "ph/images/=${i##*/}"; done
sed -i '2,$s/^/=/' ph/labels.csv
quiet chex-shard --images ph/images --labels ph/labels.csv --split none --size 36 --shards 1 --output shards
quiet chex-train --data shards --output run --model densenet_tiny --image-size 32 --batch-size 8 --max-steps 1 \
    --engine cpu --threads 2
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --allow-overlap --engine cpu --output eval
is "$(tail -n +2 eval/predictions.csv | grep -vc "^\"'=")" 0 "image ids that are formulas are written as text"
expect_status 0 chex-eval score --predictions eval/predictions.csv --json
is "$(out | grep -o '"mean":[^,]*' | head -n 1)" \
    "$(tr -d ' ' <eval/auroc.json | grep -o '"mean":[^,]*' | head -n 1)" "a table with escaped cells is read back"

# Attributes of a shard and names in a checkpoint, as a stranger's file may have them.
if python_with h5py; then
    shard=$(echo shards/all/*.h5)
    cp "$shard" hostile.h5
    "$python" -c 'import h5py, numpy as np
with h5py.File("hostile.h5", "r+") as f:
    old = f.attrs["classes"]
    f.attrs["tool_version"] = "chexnet \x1b]0;owned\x07"
    names = [n if isinstance(n, bytes) else n.encode() for n in old]
    f.attrs["classes"] = np.array([b"Her\x1b[2Jnia"] + names[1:])'
    "$python" "$SOURCE/tests/tools/checksum_record.py" hostile.h5
    chex-shard info hostile.h5 >out 2>err
    clean out err
    ok $? "chex-shard info prints no escape sequence of a shard"
    chex-shard info hostile.h5 --json >out 2>err
    clean out err
    ok $? "JSON has no control character either"
    cp -r shards copy
    sed -i 's/"label_format": *"[^"]*"/"label_format": "n\\u001b[2Jih"/; s/"tool_version": *"[^"]*"/"tool_version": "\\u001b[1m"/' copy/manifest.json
    chex-shard info copy >out 2>err
    clean out err && grep -q 'labels n.x1B\[2Jih' out
    ok $? "a manifest with control characters is not printed raw" || diag "$(out; err)"
    quiet chex-eval export --checkpoint run/last.h5 --output best.safetensors
    "$python" - <<'END'
import json, struct
data = open("best.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
head = json.loads(data[8:8 + n])
about = head["__metadata__"]
def write(name):
    text = json.dumps(head).encode()
    open(name, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
about["classes"] = json.dumps(["Her\x1b[2Jnia"] + json.loads(about["classes"])[1:])
write("classes.safetensors")
about["model"] = "\x1b[31mvit"
write("model.safetensors")
END
    expect_status 3 chex-eval --data shards --checkpoint classes.safetensors --output none --allow-overlap
    error_line "classes.safetensors: the name of finding 1, 'Her.x1B\[2Jnia', has control characters" "a network's class"
    expect_status 3 chex-eval cam --image "$(echo ph/images/*01_000.png)" --checkpoint classes.safetensors --output cam.png
    error_line "the name of finding 1, 'Her.x1B\[2Jnia', has control characters" "cam refuses a class name with control characters"
    expect_status 3 chex-eval --data shards --checkpoint model.safetensors --output none --allow-overlap
    error_line "it says that it is a '.x1B\[31mvit'" "a network name with control characters is refused"
    clean err
    ok $? "the class name is not printed raw"
else
    skip "no python3 with h5py here" 10
fi
done_testing
