#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval deploy writes a file that a reader made from doc/deployment.md alone understands, whose
# thresholds chex-eval applies unchanged, and which is refused with other parameters.
# CHEX_TEST_PYTHON: a python with NumPy and xxhash.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
python_with numpy,xxhash || skip_all "no python3 with NumPy and xxhash here"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

quiet chex-shard phantom --count 90 --size 36 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 2 \
    --output shards
quiet chex-train --data shards --output run --model densenet_tiny --image-size 32 --batch-size 4 --max-steps 1 \
    --engine cpu --threads 2
deploy() { chex-eval deploy --data shards --checkpoint run/last.h5 --threads 2 --quiet "$@"; }

expect_status 0 deploy --output d.safetensors --recalibrate platt --threshold sensitivity=0.9 \
    --distribution-images 20
like "$(out)" '^finding .*threshold .*sensitivity' "the decisions on the validation images are printed"
like "$(err)" 'warn: finding .* gets no threshold: no positive image in split val' \
    "a finding without positive validation images is named"
expect_status 0 "$python" "$SOURCE/tests/tools/read_deployment.py" d.safetensors
like "$(out)" '^rule sensitivity=0.9 recalibration platt' "another reader finds rule and recalibration"
like "$(out)" '^views unknown=0 PA=[1-9][0-9]* AP=[1-9][0-9]* lateral=0' "the views of the training images"
like "$(out)" '^features 128 of 20 images sound' "and the statistics of their features"

expect_status 0 chex-eval --data shards --checkpoint d.safetensors --output results --threads 2 --table operating
like "$(out)" 'thresholds of d.safetensors, chosen by sensitivity=0.9' "the frozen thresholds are applied"
like "$(cat results/auroc.json)" '"source": "deployed"' "auroc.json names them as deployed"
"$python" "$SOURCE/tests/tools/read_deployment.py" d.safetensors results/predictions.csv >theirs
"$python" -c 'import json
for k in json.load(open("results/auroc.json"))["classes"]:
    print(k["name"], *(k["operating"][n] or 0 for n in ("tp", "fp", "tn", "fn")))' >ours
cmp theirs ours
ok $? "another reader of the file makes the same decisions on the test images"
awk '/^```python/ {on = 1; next} /^```/ {on = 0} on' "$SOURCE/doc/deployment.md" >page.py
"$python" -c 'import csv
from page import *
d = read_deployment("d.safetensors")
for name in d["thresholds"]:
    n = {(c, y): 0 for c in (True, False, None) for y in "01"}
    for row in csv.DictReader(open("results/predictions.csv")):
        n[decide(d, name, float(row["p_" + name])), row["y_" + name]] += 1
    print(name, n[True, "1"], n[True, "0"], n[False, "0"], n[False, "1"])' >page
cmp page ours
ok $? "so do the lines of Python in doc/deployment.md"
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output plain --threads 2 --quiet
cmp -s plain/predictions.csv results/predictions.csv
ok $? "the probabilities are those of the checkpoint"
expect_status 0 chex-eval score --predictions plain/predictions.csv --threshold d.safetensors --output again
decisions() { "$python" -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1])): print(*(row[k] for k in ("class", "threshold", "tp", "fp", "tn", "fn")))' "$1"; }
is "$(decisions again/figures.csv)" "$(decisions results/figures.csv)" \
    "score takes the thresholds of the file, and decides alike from predictions.csv"
expect_status 0 chex-eval --data shards --checkpoint d.safetensors --split val --output val --threads 2 --quiet
expect_status 0 chex-eval score --predictions val/predictions.csv --threshold d.safetensors --output valagain --quiet
is "$(decisions valagain/figures.csv)" "$(decisions val/figures.csv)" \
    "also on the validation images; some of them are at their threshold"
chex-eval --data shards --checkpoint d.safetensors --split val --output val --threads 2 --force >out 2>err
like "$(err)" 'warn: d.safetensors: its thresholds were chosen on these images \(split val of shards\)' \
    "a warning says that thresholds were chosen on the images of the evaluation"

expect_status 0 chex-eval --data shards --checkpoint d.safetensors --output flip --threads 2 --tta flip \
    --image-size 36 --quiet
like "$(err)" 'thresholds were chosen at 32 px, and the images are evaluated at 36 px' \
    "another image size than that of the thresholds is reported"
like "$(err)" 'thresholds were chosen without --tta' "so is test-time augmentation"

expect_status 0 deploy --output j.safetensors --distribution-images 0 --json
cp out deployment.json
like "$(cat deployment.json)" '"rule":"youden","recalibration":"none","thresholds":\{' "--json prints the deployment"
expect_status 0 chex-eval score --predictions plain/predictions.csv --threshold deployment.json --quiet
for number in float32 float64; do # nine digits of a score are less or more than the score in fp32
    "$python" - $number <<'END'
import csv, json, sys
import numpy
d, rows = json.load(open("deployment.json")), list(csv.DictReader(open("plain/predictions.csv")))
for i, name in enumerate(d["thresholds"]):
    d["thresholds"][name] = float(getattr(numpy, sys.argv[1])(rows[i % len(rows)]["p_" + name]))
json.dump(d, open("at.json", "w"))
END
    expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --threshold at.json --output at --threads 2 \
        --quiet --force --bootstrap 0
    expect_status 0 chex-eval score --predictions at/predictions.csv --threshold at.json --output at2 --quiet --force
    is "$(decisions at2/figures.csv)" "$(decisions at/figures.csv)" \
        "score decides as the evaluation at a threshold that equals a score in $number"
done
if have mpirun; then
    expect_status 0 mpirun --oversubscribe --allow-run-as-root -n 2 chex-eval deploy --data shards \
        --checkpoint run/last.h5 --threads 1 --quiet --output two.safetensors --recalibrate platt \
        --threshold sensitivity=0.9 --distribution-images 20
    "$python" - <<'END'
import json, struct
def parts(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    deployment = json.loads(json.loads(data[8:8 + length])["__metadata__"]["deployment"])
    deployment["provenance"].pop("ranks")
    deployment["provenance"].pop("loss")
    return deployment, data[8 + length:]
assert parts("d.safetensors") == parts("two.safetensors")
END
    ok $? "two ranks write the same thresholds and statistics"
fi

# Damaged and foreign files.
"$python" - <<'END'
import json, struct
data = open("d.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + length]), data[8 + length:]
def write(name, change):
    copy = json.loads(json.dumps(header))
    part = change(json.loads(copy["__metadata__"]["deployment"]))
    copy["__metadata__"]["deployment"] = part if isinstance(part, str) else json.dumps(part)
    text = json.dumps(copy).encode()
    text += b" " * (-len(text) % 8)
    open(name + ".safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
at = header["classifier.bias"]["data_offsets"][0]
body = body[:at] + struct.pack("<f", 0.5) + body[at + 4:]
write("other", lambda d: d)
body = data[8 + length:]
write("foreign", lambda d: {**d, "parameters_digest": "0" * 16})
write("newer", lambda d: {**d, "schema": 2})
write("text", lambda d: "{")
write("lost", lambda d: {**d, "thresholds": {}})
write("slope", lambda d: {**d, "calibration": {"Hernia": {"slope": -1, "intercept": 0}}})
write("features", lambda d: {**d, "features": {"rows": 1}})
END
refused() { # FILE TEXT NAME
    expect_status 3 chex-eval --data shards --checkpoint "$1.safetensors" --output never --threads 2
    error_line "$2" "$3"
    [ ! -e never ]
    ok $? "and nothing is written"
}
refused other 'the thresholds are those of other parameters' "thresholds of other parameters are refused"
refused newer 'a schema other than 1' "a newer schema is refused"
refused text 'it is no JSON object' "a damaged part is refused"
refused lost 'no threshold for finding Atelectasis' "a part without thresholds is refused"
refused slope 'calibration of finding Hernia' "a falling calibration is refused"
refused features 'feature statistics' "damaged statistics are refused"
expect_status 3 chex-eval --data shards --checkpoint d.safetensors --output never --threads 2 \
    --threshold foreign.safetensors
error_line 'foreign.safetensors: its thresholds are those of other parameters than d.safetensors' \
    "--threshold of another network is refused"

expect_status 2 deploy --output d.safetensors
error_line 'd.safetensors exists: say --force' "an existing file is kept"
expect_status 2 deploy --output d.h5
error_line 'expected a name that ends in .safetensors' "the name must end in .safetensors"
expect_status 2 deploy --output new.safetensors --threshold 0.5
error_line "threshold rule '0.5' is unknown" "a number is no rule"
expect_status 3 deploy --output new.safetensors --split train
error_line 'was trained on split train of this data' "training images are no validation images"
expect_status 0 deploy --output test.safetensors --split test --distribution-images 0
like "$(err)" 'warn: thresholds are chosen on the test split' "the test split gives a warning"
quiet chex-shard --images ph/images --labels ph/labels.csv --split none --size 36 --output all
expect_status 3 chex-eval deploy --data all --checkpoint run/last.h5 --output new.safetensors --split val
error_line 'no image in split val; it has all' "a set without validation split is refused"
[ ! -e new.safetensors ]
ok $? "a refused deployment writes no file"
done_testing
