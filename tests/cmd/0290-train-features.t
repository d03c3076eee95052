#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Features of other networks: chex-eval export --features writes them, chex-train --features and chex-eval
# --features train and evaluate a classifier on them. PyTorch's numbers are recorded by
# tests/peers/features_torch.py.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 60
data=$SOURCE/tests/data/features

# The same classifier in PyTorch: the loss of each step and epoch, and the AUROC of the test split.
expect_status 0 chex-train --data set --features "$data/features.npy" --init "$data/head.safetensors" \
    --batch-size 35 --epochs 8 --lr 0.2 --sched constant --output torch
like "$(err)" '--features .*: features-16, 238 parameters, fp32 on the host; rank 0 keeps the features of 48 images' \
    "the log says what trains and on what"
unlike "$(err)" 'augmentation: crops|GFLOP' "it mentions no image"
steps=$(sed -nE 's/.*"kind":"step".*"loss":([^,]*).*/\1/p' torch/metrics.jsonl)
epochs=$(sed -nE 's/.*"kind":"epoch".*"val_loss":([^,]*).*/\1/p' torch/metrics.jsonl)
gap=$(paste <(grep '^[1-9]' "$data/expected.tsv") <(echo "$steps") <(echo "$epochs") | awk '
    function abs(x) { return x < 0 ? -x : x }
    NF == 5 { rows++; a = abs($2 - $4); b = abs($3 - $5); if (a > most) most = a; if (b > most) most = b }
    END { print rows == 8 ? most : "missing" }')
near "$gap" 0 5e-7 "eight losses, and eight of the validation, are PyTorch's"
expect_status 0 chex-eval --data set --features "$data/features.npy" --checkpoint torch/last.h5 --output torch/eval --bootstrap 0
auroc() { sed -nE 's/^  "mean": ([^,]*).*/\1/p' "$1/auroc.json"; }
near "$(auroc torch/eval)" "$(awk '$1 == "auroc" { print $2 }' "$data/expected.tsv")" 1e-8 "the AUROC is scikit-learn's"

# Export: any number of ranks, both formats.
net=(--model densenet_tiny --image-size 32 --precision fp32 --engine cpu --threads 1)
chex-train --data set "${net[@]}" --batch-size 8 --max-steps 1 --output start -q 2>start.err
export=(chex-eval export --checkpoint start/last.h5 --data set --engine cpu --threads 1)
expect_status 0 "${export[@]}" --features f.npy
like "$(err)" 'f.npy: 128 features of each of 60 images, of densenet_tiny' "the export says what it wrote"
is "$(head -n 2 f.csv | tr '\n' ' ')$(wc -l <f.csv)" 'image_id,patient_id,split 00000004_000.png,00000004,train 61' \
    "a table has the ids, patients and splits"
mpi_ranks 3 || ranks=()
expect_status 0 "${ranks[@]}" "${export[@]}" --features three.npy --batch-size 7
cmp f.npy three.npy && cmp f.csv three.csv
ok $? "three ranks and other batches write the same bytes"
expect_status 0 "${ranks[@]}" "${export[@]}" --features f.h5 --json
like "$(out)" '"output": "f.h5"' "one rank prints the result"
like "$(h5dump -H f.h5)" 'ATTRIBUTE "weights_digest"' "the HDF5 file names the weights"
expect_status 2 "${export[@]}" --features f.h5
error_line '--features f.h5 exists: say --force to replace it' "an existing file is not replaced"
expect_status 0 "${export[@]}" --features part.npy --split val

# A classifier on exported features is that of --head-only. Python's standard library cuts the first one out.
head=(--batch-size 4 --deterministic --logical-ranks 4 --lr 1e-2 --epochs 2 --ema 0.8)
same() { h5diff "$1/last.h5" "$2/last.h5" "$3/classifier.weight" "$3/classifier.weight" >/dev/null; }
expect_status 0 chex-eval export --checkpoint start/last.h5 --output start.safetensors
from=(--init head.safetensors)
if python_with json && "$python" - <<'EOF'
import json, struct
data = open("start.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, base = json.loads(data[8:8 + size]), 8 + size
new, body = {"__metadata__": {"model": "features-128", "classes": header["__metadata__"]["classes"]}}, b""
for name in ("classifier.weight", "classifier.bias"):
    first, end = header[name]["data_offsets"]
    new[name] = dict(header[name], data_offsets=[len(body), len(body) + end - first])
    body += data[base + first:base + end]
text = json.dumps(new).encode()
text += b" " * (-len(text) % 8)
open("head.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
EOF
then
    expect_status 0 chex-train --data set "${net[@]}" "${head[@]}" --head-only --init start/last.h5 --output images
    expect_status 0 chex-train --data set --features f.npy --threads 1 "${head[@]}" "${from[@]}" --output run
    same images run /params && same images run /moment2 && same images run /ema
    ok $? "on exported features a classifier has the bits of --head-only"
else
    skip "no python here" 2
    from=()
    expect_status 0 chex-train --data set --features f.npy --threads 1 "${head[@]}" --output run
fi

# Interrupted, with other ranks, threads and formats.
mpi_ranks 4 || ranks=()
expect_status 0 "${ranks[@]}" chex-train --data set --features f.h5 "${head[@]}" "${from[@]}" --max-steps 1 --output part
expect_status 0 chex-train --data set --features f.npy --threads 2 --max-steps 0 --output part
like "$(err)" "taken from part/.*features 'f.h5' -> 'f.npy'" "a run on features goes on"
same run part /params && same run part /moment1 && same run part /moment2 && same run part /ema
ok $? "it has the bits of one process that did not stop"
expect_status 0 chex-train --prove run --features f.h5
like "$(out)" '^run: 2 of 2 repeated stretches are equal' "a proof repeats the run, with its features"
expect_status 0 chex-train --plan --data set --features f.npy --output new
like "$(out)" '^network       features-128, 14 findings, 0.00 M parameters$' "a plan needs no image size"

# Evaluation.
mpi_ranks 3 || ranks=()
expect_status 0 "${ranks[@]}" chex-eval --data set --features f.h5 --checkpoint run/last.h5 --split val --output eval --bootstrap 0
near "$(auroc eval)" "$(grep '"kind":"epoch"' run/metrics.jsonl | tail -n 1 | sed -nE 's/.*"val_auroc_mean":([^,]*).*/\1/p')" \
    1e-6 "chex-eval has the AUROC of the run's last validation"
like "$(cat eval/auroc.json)" '"features_digest": "[0-9a-f]{16}"' "the results name the features"
unlike "$(cat eval/auroc.json)" 'densenet121|"(image-size|hflip)"' "they list no option of images or networks"
unlike "$(head -n 1 eval/predictions.csv)" brightness "the brightness of unread images is unknown"
expect_status 0 chex-eval compare eval/predictions.csv eval/predictions.csv --output compared
expect_status 0 chex-eval --data set --features f.npy --checkpoint run/last.h5,part/last.h5 --split val --output both --bootstrap 0
like "$(cat both/auroc.json)" "\"member_2\": $(auroc eval)" "classifiers are an ensemble on the same features"
expect_status 2 chex-eval --data set --features f.npy --checkpoint run/last.h5,start/last.h5 --output bad
error_line 'start/last.h5 is a network for images' "an ensemble with a network for images is refused"

edit() { sed "$2" f.npy >"$1.npy" && sed "${3-}" f.csv >"$1.csv"; } # NAME SED-OF-NPY SED-OF-CSV
refused() { # REGEX COMMAND...
    expect_status 2 "${@:2}"
    error_line "$1" "its error says what is wrong: ${1:0:60}"
}
evaluate=(chex-eval --data set --output bad)
train=(chex-train --data set --output bad)
refused 'run/last.h5 is a classifier of features, which only chex-eval --features FILE can use' "${evaluate[@]}" --checkpoint run/last.h5
refused 'run/last.h5 is a classifier of features' chex-eval deploy --data set --checkpoint run/last.h5 --output bad.safetensors
refused 'start/last.h5 is a network for images; --features needs a checkpoint of chex-train --features' \
    "${evaluate[@]}" --checkpoint start/last.h5 --features f.npy
refused '--tta: no network of images runs with --features' "${evaluate[@]}" --checkpoint run/last.h5 --features f.npy --tta flip
refused '--split: expected --features FILE with it' chex-eval export --checkpoint start/last.h5 --output bad.onnx --split val
refused '--features bad.txt: expected a name that ends in .h5 or .npy' "${export[@]}" --features bad.txt
refused '--features and --image-size: only a classifier trains, on the numbers in the file' "${train[@]}" --features f.npy --image-size 32
refused '--features and 2 sets in --data: expected one set' "${train[@]}" --features f.npy --data a=set,b=set2
refused 'run/checkpoints/.*: the run was made with --features FILE: give the file again' chex-train --data set --output run --epochs 3
edit changed ''
printf '\0\0\200\77' | dd of=changed.npy bs=1 seek=128 conv=notrunc 2>/dev/null
refused 'run/checkpoints/.*: features_digest is ".*" in the checkpoint and ".*" now' \
    chex-train --data set --features changed.npy --output run --epochs 3

# Bad files: one line, status 3.
bad() { # REGEX FILE
    expect_status 3 "${train[@]}" --features "$2"
    error_line "$1" "its error says what is wrong: ${1:0:60}"
}
edit again '' '3s/^[^,]*/00000004_000.png/'
edit other '' '2s/^[^,]*/other.png/'
edit short '' '$d'
edit column '' '1s/image_id/id/'
edit whole 's/<f4/<i4/'
edit object 's/<f4/|O/'
edit fortran 's/False/True /'
edit line 's/(60, 128)/(7680,)  /'
edit nan ''
printf '\0\0\300\177' | dd of=nan.npy bs=1 seek=$((128 + 4 * 300)) conv=notrunc 2>/dev/null
edit cut ''
truncate -s -100 cut.npy
cp f.npy alone.npy
head -c 30000 f.h5 >cut.h5
bad "again.npy: 1 of 60 rows have the image id of another row, such as '00000004_000.png'" again.npy
bad "other.npy: 1 of 60 rows belong to no image of the set, such as 'other.png'" other.npy
bad "part.npy: no features of 35 of 35 images of set, such as '00000004_000.png'" part.npy
bad 'short.npy: 60 rows of features, and 59 image ids' short.npy
bad "column.csv: line 1: the header has no column 'image_id'" column.npy
for name in whole object fortran line; do
    bad "$name.npy: an array of .*, expected \(images, numbers\) of <f2, <f4 or <f8 in C order" $name.npy
done
bad "nan.npy: 1 of 60 rows hold a number that is not finite in fp32, such as '.*'" nan.npy
bad 'cut.npy: truncated or damaged: 30620 bytes for 60 rows of 128 numbers' cut.npy
bad 'alone.npy: its table of image ids: cannot open alone.csv' alone.npy
bad 'cut.h5: truncated file' cut.h5
bad 'f.csv: neither npy nor HDF5' f.csv
[ ! -e bad ]
ok $? "they are refused before anything is written"
expect_status 3 "${evaluate[@]}" --checkpoint torch/last.h5 --features f.npy
error_line 'f.npy: 128 numbers a row, and torch/last.h5 is for features-16' "features of another length are refused"

if python_with h5py,numpy; then
    "$python" - <<'EOF'
import h5py, numpy
x, ids = numpy.load("f.npy"), [line.split(",")[0] for line in open("f.csv")][1:]
numpy.save("double.npy", x.astype("f8"))
open("double.csv", "w").write("\n".join(["image_id"] + ids))
with h5py.File("half.h5", "w") as f:
    f.create_dataset("features", data=x[::-1].astype("f2"), chunks=(7, 128), compression="gzip")
    f["image_id"] = ids[::-1]  # strings of variable length
with h5py.File("fixed.h5", "w") as f:
    f["features"], f["image_id"] = x[::-1], numpy.array(ids[::-1], "S")
with h5py.File("number.h5", "w") as f:
    f["features"], f["image_id"] = x, list(range(60))
EOF
    for file in double.npy fixed.h5; do
        expect_status 0 chex-train --prove run --features $file --stretches 1
    done
    expect_status 0 chex-train --data set --features half.h5 --max-steps 1 --output half
    bad "number.h5: dataset 'image_id' is not a list of strings" number.h5
else
    skip "no h5py and numpy here" 5
fi
done_testing
