#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval deploy writes all members of an ensemble into one file with thresholds for its score,
# which predict and chex-eval apply; export writes one ONNX model of it.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
python_with h5py,numpy,xxhash || skip_all "no python3 with h5py, NumPy and xxhash here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

phantom_set 90
for s in 1 2 3; do
    quiet chex-train --output runs/$s --seed $s --data set --model densenet_tiny --image-size 32 --batch-size 8 \
        --epochs 1 --max-steps 3 --lr 1e-3 --engine cpu --threads 2
done
files=runs/1/best.h5,runs/2/best.h5,runs/3/best.h5
deploy() { chex-eval deploy --data set --threads 2 -q "$@"; }
evaluate() { chex-eval --data set --threads 2 -q "$@"; }

expect_status 0 evaluate --checkpoint $files --output listed
for mean in probability logit; do
    [ $mean = logit ] && fit=temperature columns=2,16,30,44,58,59 names=c_Atelectasis,s || fit=none columns=2,16,30,44,45 names=s
    expect_status 0 deploy --checkpoint $files --output $mean.safetensors --ensemble mean-$mean \
        --recalibrate "$fit" --distribution-images 20
    expect_status 0 "$python" "$SOURCE/tests/tools/read_deployment.py" $mean.safetensors
    like "$(out)" '^features 128 of 20 images sound' "$mean: another reader finds the digest of all members sound"
    expect_status 0 evaluate --checkpoint $mean.safetensors --output $mean --table operating
    like "$(out)" "thresholds of $mean.safetensors, chosen by youden" "$mean: the thresholds are applied"
    expect_status 0 chex-eval predict --images ph/images --checkpoint $mean.safetensors --output p-$mean \
        --precision fp32 --threads 2 -q
    is "$(head -n 1 p-$mean/predictions.csv | cut -d, -f"$columns")" \
        "p_Atelectasis,d_Atelectasis,${names}_Atelectasis,distance,flags" "$mean: columns of predict"
    expect_status 0 chex-eval export --checkpoint $mean.safetensors --output $mean.onnx
    expect_status 0 "$python" "$SOURCE/tests/tools/run_onnx.py" $mean.onnx $mean.safetensors set/test/*0-of*.h5 \
        p-$mean/predictions.csv
    like "$(out)" '^initializers [0-9]+ equal 318$' "$mean: the ONNX model has the parameters of three members"
    like "$(out)" '^difference [0-9.]+e-(0[7-9]|1.) ' "$mean: it gives the probabilities of predict"
    like "$(out)" '^decisions True other 0$' "$mean: and its decisions"
done
cmp listed/predictions.csv probability/predictions.csv && cmp listed/auroc.csv probability/auroc.csv
ok $? "the file gives the probabilities, and its members' AUROCs, of the checkpoints"
like "$(cat probability/auroc.json)" '"file": "runs/3/best.h5"' "auroc.json still names the members"
cmp -s listed/predictions.csv logit/predictions.csv
[ $? -eq 1 ]
ok $? "the mean logit is another score"
expect_status 0 chex-eval export --checkpoint runs --output all.safetensors
expect_status 0 evaluate --checkpoint all.safetensors --output exported
cmp listed/predictions.csv exported/predictions.csv
ok $? "an export of several checkpoints is the same ensemble"

expect_status 2 evaluate --checkpoint logit.safetensors --output never --ensemble mean-probability
error_line '\-\-ensemble mean-probability: logit.safetensors is an ensemble by mean-logit' \
    "thresholds are not applied to another mean"
expect_status 3 evaluate --checkpoint logit.safetensors,runs/1/best.h5 --output never
error_line 'logit.safetensors: an ensemble \(expected one network' "an ensemble is no member"
expect_status 3 chex-train --data set --output new --model densenet_tiny --image-size 32 --init all.safetensors --engine cpu
error_line "all.safetensors: " "chex-train starts from one network"
expect_status 2 chex-eval export --checkpoint all.safetensors --output copy.safetensors
error_line 'all.safetensors is safetensors already: copy it' "a copy is not exported"
"$python" - <<'END'
import json, struct
data = open("probability.safetensors", "rb").read()
length = struct.unpack("<Q", data[:8])[0]
def write(name, change, body=data[8 + length:]):
    header = json.loads(data[8:8 + length])
    part = json.loads(header["__metadata__"]["ensemble"])
    change(part, header)
    header["__metadata__"]["ensemble"] = json.dumps(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    open(name + ".safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
write("newer", lambda e, h: e.update(schema=2))
write("mean", lambda e, h: e.update(mean="median"))
write("few", lambda e, h: e.update(members=e["members"][:1]))
write("unnamed", lambda e, h: e["members"][1].pop("file"))
write("lost", lambda e, h: e["members"].pop())
write("turned", lambda e, h: e["members"].append(e["members"][0]))
write("cut", lambda e, h: None, data[8 + length:-4])
END
refused() { # FILE TEXT NAME
    expect_status 3 evaluate --checkpoint "$1.safetensors" --output never
    error_line "^chex-eval error: $1.safetensors: $2" "$3"
}
refused newer "ensemble: no description of schema 1" "a newer description is refused"
refused mean "ensemble: no description of schema 1" "an unknown mean is refused"
refused few "ensemble: no description of schema 1" "one member is no ensemble"
refused unnamed "ensemble: no description of schema 1" "a member without a name is refused"
refused lost 'the thresholds are those of other parameters' "a file without one of its members is refused"
refused turned "no tensor 'members.3.features.conv0.weight'" "so is one with a member too many"
refused cut "tensor 'chexnet.features.mean' ends at byte|tensor .* ends at byte" "a truncated file is refused"
[ ! -e never ]
ok $? "a refused file leaves no results"
done_testing
