# SPDX-License-Identifier: Apache-2.0
# chex-eval export writes ONNX models that compute what chex-eval does. A reader of Protocol Buffers
# in plain Python looks at each part of the file. tests/peers/compare_weights.sh uses ONNX Runtime.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

quiet chex-shard phantom --count 40 --size 44 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 44 --shards 1 \
    --output shards
python_with h5py,numpy || python=
for model in densenet_tiny resnet18 resnet50; do
    quiet chex-train --data shards --model $model --image-size 40 --batch-size 4 --max-steps 1 \
        --engine cpu --threads 2 --output "run-$model"
    checkpoint=run-$model/last.h5
    expect_status 0 chex-eval export --checkpoint "$checkpoint" --output "$model.onnx"
    unlike "$(err)" 'warn: ' "$model: the checkpoint says the image size"
    if [ "$python" ]; then
        quiet chex-eval export --checkpoint "$checkpoint" --output "$model.safetensors"
        quiet chex-eval --data shards --checkpoint "$checkpoint" --engine cpu --precision fp32 \
            --output "eval-$model"
        expect_status 0 "$python" "$SOURCE/tests/tools/run_onnx.py" "$model.onnx" \
            "$model.safetensors" shards/test/*.h5 "eval-$model/predictions.csv"
        like "$(out)" '^ir 8 opset 17 chexnet$' "$model: versions and producer"
        like "$(out)" "^input image 2 \['batch', 1, 40, 40\]$" "$model: the input is a u8 image"
        like "$(out)" "^output logits 1 \['batch', 14\]$" "$model: logits"
        like "$(out)" "^output probabilities 1 \['batch', 14\]$" "$model: probabilities"
        like "$(out)" '^metadata classes \["Atelectasis",.*"Hernia"\]$' "$model: names of the outputs"
        like "$(out)" '^metadata image_size 40$' "$model: the size of the crop"
        like "$(out)" '^metadata stored_size 44$' "$model: the size of the resize"
        like "$(out)" '^metadata source_digest [0-9a-f]+$' "$model: the data of the training"
        like "$(out)" '^difference .* small$' "$model: its nodes in numpy give chex-eval's probabilities"
    else
        skip "no python3 with h5py and numpy here" 10
    fi
    case $model in
    densenet_tiny) want="initializers 109 equal 106|'BatchNormalization': 21, .*'Concat': 8, 'Conv': 20," ;;
    resnet18) want="initializers 105 equal 102|'Add': 8, 'BatchNormalization': 20, .*'Conv': 20," ;;
    resnet50) want="initializers 270 equal 267|'Add': 16, 'BatchNormalization': 53, .*'Conv': 53," ;;
    esac
    if [ "$python" ]; then
        like "$(out)" "^${want%%|*}$" "$model: parameters equal those of the safetensors file"
        like "$(out)" "^nodes .*${want#*|}" "$model: the nodes are those of the network"
    else
        skip "no python3 with h5py and numpy here" 2
    fi
done

# A recalibration of known numbers and thresholds between the predictions, in a deployment file.
quiet chex-eval deploy --data shards --checkpoint run-densenet_tiny/last.h5 --threads 2 --recalibrate platt \
    --distribution-images 0 --output made.safetensors --quiet
if [ "$python" ]; then
    "$python" - <<'END'
import csv, json, math, struct
data = open("made.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
d = json.loads(header["__metadata__"]["deployment"])
rows = list(csv.DictReader(open("eval-densenet_tiny/predictions.csv")))
for i, name in enumerate(d["thresholds"]):
    p = sorted(float(row["p_" + name]) for row in rows)
    p = (p[len(p) // 2 - 1] + p[len(p) // 2]) / 2
    d["calibration"][name] = {"slope": 0.5 + i / 4, "intercept": 1 - i / 8}
    d["thresholds"][name] = 1 / (1 + math.exp(-((0.5 + i / 4) * math.log(p / (1 - p)) + 1 - i / 8)))
header["__metadata__"]["deployment"] = json.dumps(d)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("deployed.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + length:])
END
    quiet chex-eval predict --images ph/images --checkpoint deployed.safetensors --engine cpu \
        --precision fp32 --threads 2 --output predicted
    expect_status 0 chex-eval export --checkpoint deployed.safetensors --output deployed.onnx
    expect_status 0 "$python" "$SOURCE/tests/tools/run_onnx.py" deployed.onnx deployed.safetensors \
        shards/test/*.h5 predicted/predictions.csv
    like "$(out)" '^decisions True other 0$' "an ONNX model of a deployment file decides as predict does"
    like "$(out)" '^difference .* small$' "its probabilities are the recalibrated ones"
    like "$(out)" '^metadata output one logit for each of classes, and its recalibrated probability' "its metadata says so"
    like "$(out)" "^initializers 111 equal 106" "the parameters are unchanged"
else
    skip "no python3 with h5py and numpy here" 6
fi

expect_status 0 chex-eval export --checkpoint run-densenet_tiny/last.h5 --output again.onnx --json
like "$(out)" '"output": "again.onnx"' "export --json prints an object with the new file"
cmp -s densenet_tiny.onnx again.onnx
ok $? "two exports are equal, byte for byte"
expect_status 0 chex-eval export --checkpoint run-densenet_tiny/last.h5 --output other.onnx --image-size 224
expect_status 2 chex-eval export --checkpoint run-densenet_tiny/last.h5 --output other.onnx
error_line 'other.onnx exists: say --force' "export replaces nothing unasked"
expect_status 2 chex-eval export --checkpoint run-densenet_tiny/last.h5 --output small.onnx --image-size 20
error_line '\-\-image-size 20: densenet_tiny takes 32 to 4096 px' "a size that the network does not take"
expect_status 2 chex-eval export --checkpoint run-densenet_tiny/last.h5 --output last.pb
error_line 'last.pb: expected the name of a file that ends in .safetensors or .onnx' "another format"
expect_status 2 chex-eval export --checkpoint densenet_tiny.onnx --output densenet_tiny.onnx --force
error_line 'densenet_tiny.onnx is what is read' "a file is not written over itself"
quiet chex-eval export --checkpoint run-densenet_tiny/last.h5 --output plain.safetensors
expect_status 2 chex-eval export --checkpoint plain.safetensors --output copy.safetensors
error_line 'plain.safetensors is safetensors already: copy it' "safetensors are not exported to safetensors"
expect_status 0 chex-eval export --checkpoint plain.safetensors --output plain.onnx
cmp -s densenet_tiny.onnx plain.onnx
ok $? "a safetensors file gives the ONNX model of its checkpoint"
expect_status 3 chex-eval export --checkpoint densenet_tiny.onnx --output none.onnx
error_line 'densenet_tiny.onnx: not a safetensors file: it is an ONNX model; expected' "ONNX is not read"
expect_status 4 chex-eval export --checkpoint run-densenet_tiny/last.h5 --output /proc/none/x.onnx
[ ! -e small.onnx ] && [ ! -e last.pb ] && [ ! -e none.onnx ]
ok $? "a refused export writes nothing"
done_testing
