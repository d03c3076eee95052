# SPDX-License-Identifier: Apache-2.0
# Parameters of other programs: chex-train --init and chex-eval --checkpoint take checkpoints,
# safetensors and PyTorch files, whatever their names. tests/peers/compare_weights.sh does the same
# with PyTorch itself.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
require PYTHON
need python3
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
torch() { quiet python3 "$SOURCE/tests/tools/write_torch.py" "$@"; }

quiet chex-shard phantom --count 40 --size 36 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 1 \
    --output shards
short=(--data shards --image-size 32 --batch-size 4 --max-steps 1 --engine cpu --threads 2)
train=(chex-train "${short[@]}" --model densenet_tiny)
quiet "${train[@]}" --output run
quiet chex-eval export --checkpoint run/last.h5 --output last.safetensors
eval=(chex-eval --data shards --engine cpu --threads 2 --image-size 32)
quiet "${eval[@]}" --checkpoint run/last.h5 --output from-h5

# The same parameters in each format predict the same, under names that say nothing.
torch last.safetensors a.pth zip
torch last.safetensors b.weights legacy
torch last.safetensors c.pth.tar legacy arnoweng
cp run/last.h5 d.bin
cp last.safetensors e.pth
for file in a.pth b.weights c.pth.tar d.bin e.pth; do
    expect_status 0 "${eval[@]}" --checkpoint $file --output "from-$file"
    cmp -s from-h5/predictions.csv "from-$file/predictions.csv"
    ok $? "the parameters in $file predict what those of the checkpoint do"
done
quiet chex-train "${short[@]}" --output whole
quiet chex-eval export --checkpoint whole/last.h5 --output whole.safetensors
torch whole.safetensors whole.tar legacy arnoweng
quiet "${eval[@]}" --checkpoint whole/last.h5 --output of-whole
quiet "${eval[@]}" --checkpoint whole.tar --output of-whole-tar
cmp -s of-whole/predictions.csv of-whole-tar/predictions.csv
ok $? "so do those of a DenseNet-121 under arnoweng's names"
expect_status 0 "${eval[@]}" --checkpoint c.pth.tar --output again --force
like "$(err)" "warn: c.pth.tar does not name its findings: it is assumed that they are those of shards" \
    "a warning says that the file does not name its findings"
unlike "$(err)" "are not parameters" "all tensors of arnoweng's names are known"

expect_status 0 "${train[@]}" --init run/last.h5 --output from-checkpoint
like "$(err)" "parameters from run/last.h5; the head is the file's" "--init takes a checkpoint"
for file in last.safetensors a.pth c.pth.tar; do
    expect_status 0 "${train[@]}" --init $file --output "train-$file"
    is "$(grep '"kind":"step"' "train-$file/metrics.jsonl" | grep -o '"loss":[^,]*')" \
        "$(grep '"kind":"step"' from-checkpoint/metrics.jsonl | grep -o '"loss":[^,]*')" \
        "a run that starts from $file has the loss of one that starts from the checkpoint"
done
expect_status 3 chex-train "${short[@]}" --init a.pth --model resnet50 --output none
error_line 'a.pth is a densenet_tiny, --model says resnet50' "the network is known by its names"

# One input channel: torchxrayvision's modules.
torch last.safetensors xrv.pt legacy xrv
expect_status 0 "${eval[@]}" --checkpoint xrv.pt --output xrv
like "$(err)" "warn: xrv.pt: 'features.conv0.weight' has one input channel. It is read as torchxrayvision's" \
    "a warning says how one input channel is read"
expect_status 0 "${train[@]}" --init xrv.pt --output train-xrv
is "$(err | grep -c 'has one input channel')" 1 "--init warns of it once"

# Names of the outputs.
names=Atelectasis,Cardiomegaly,Effusion,Infiltration,Mass,Nodule,Pneumonia,Pneumothorax,Consolidation,Edema,Emphysema,Fibrosis,Pleural_Thickening,Hernia
expect_status 3 chex-eval export --checkpoint a.pth --output none.safetensors
error_line 'a.pth does not name its 14 findings: name them in the order of its outputs by --classes LIST' \
    "an export needs the names of the outputs"
expect_status 0 chex-eval export --checkpoint a.pth --output named.safetensors --classes $names
cmp -s <(tail -c 100000 named.safetensors) <(tail -c 100000 last.safetensors)
ok $? "a PyTorch file is converted to safetensors"
expect_status 0 "${eval[@]}" --checkpoint named.safetensors --output from-named
cmp -s from-h5/predictions.csv from-named/predictions.csv
ok $? "it predicts the same"
expect_status 0 "${eval[@]}" --checkpoint a.pth --output from-classes --classes $names
unlike "$(err)" "does not name its findings" "--classes names the outputs"
cmp -s from-h5/predictions.csv from-classes/predictions.csv
ok $? "outputs in the order of the data stay as they are"
turned=$(tr , '\n' <<<"$names" | tac | paste -sd ,)
expect_status 0 "${eval[@]}" --checkpoint a.pth --output from-turned --classes "$turned"
is "$(sed -n 2p from-turned/predictions.csv | cut -d, -f17-30)" \
    "$(sed -n 2p from-h5/predictions.csv | cut -d, -f17-30)" \
    "--classes changes no probability"
is "$(head -n 1 from-turned/predictions.csv | cut -d, -f17-30)" "p_${turned//,/,p_}" \
    "the columns have the names in the order of --classes"
expect_status 0 "${eval[@]}" --checkpoint a.pth --output lump --classes "${names/Mass/Lump}"
like "$(err)" 'does not state these findings of the network, which have no AUROC: Lump' \
    "a finding that only the network has is named"
like "$(err)" 'states findings that the network does not have, which are left out: Mass' \
    "a finding that only the data has is named"
expect_status 3 "${eval[@]}" --checkpoint a.pth --output none --classes A,B
error_line 'a.pth: its head is one of 14 findings, not of 2, which --classes names' "too few names"
expect_status 2 "${eval[@]}" --checkpoint a.pth --output none --classes A,,B
error_line '\-\-classes: name 2 is empty' "an empty name"
expect_status 2 "${eval[@]}" --checkpoint a.pth --output none --classes A,B,A
error_line "\-\-classes: name 3 is 'A' again" "a name that is given twice"
expect_status 2 "${eval[@]}" --checkpoint run/last.h5 --output none --classes A,B
error_line '\-\-classes: run/last.h5 names its 14 findings itself' "a checkpoint names its findings itself"

# Bad files.
torch last.safetensors two.pth zip two
head -c 20000 a.pth >cut.pth
head -c 20000 b.weights >cut.weights
python3 -c 'import sys
data = bytearray(open("a.pth", "rb").read())
data[len(data) // 2] ^= 1
open("flip.pth", "wb").write(data)'
python3 -m zipfile -c folder.zip ph/labels.csv
python3 -c 'import zipfile
with zipfile.ZipFile("small.pth", "w", zipfile.ZIP_DEFLATED) as z: z.writestr("archive/data.pkl", b"0" * 100000)'
python3 -c 'import pickle; pickle.dump({"a": 1}, open("any.pkl", "wb"), 2)'
cat >evil.py <<'END'
import os, pickle
class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)
open("evil.pth", "wb").write(b"".join(pickle.dumps(x, 2) for x in (
    0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, {"state_dict": Evil()}, [])))
END
python3 evil.py
while IFS='|' read -r file text; do
    expect_status 3 "${train[@]}" --init "$file" --output none
    error_line "$text" "--init $file"
    expect_status 3 "${eval[@]}" --checkpoint "$file" --output none
    error_line "$text" "--checkpoint $file"
done <<'END'
two.pth|two.pth: 2 state dictionaries \(model, ema.shadow\), expected one: save the right one
cut.pth|cut.pth: damaged zip archive: no end record \(truncated\?\)
cut.weights|cut.weights: .*truncated
flip.pth|flip.pth: member 'archive/data/[0-9]+': damaged: its bytes do not match its CRC-32
folder.zip|folder.zip: a zip archive without data.pkl: not a file of torch.save
small.pth|small.pth: member 'archive/data.pkl': compressed or encrypted
any.pkl|any.pkl: a pickle, but not a file of torch.save
evil.pth|evil.pth: no state dictionary
END
[ ! -e executed ]
ok $? "no code of a pickle is executed"
[ ! -e none ]
ok $? "nothing is written"
done_testing
