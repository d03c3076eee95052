#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval counts each image of a split once for any number of ranks, checks everything before
# the first image, exports networks, and writes whole results only.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

quiet chex-shard phantom --count 60 --size 36 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 3 \
    --output shards
quiet chex-train --data shards --output run --image-size 32 --batch-size 4 --max-steps 1 \
    --engine cpu --threads 2

expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output one --threads 2
like "$(out)" '^mean of [0-9]+ findings ' "the table"
like "$(err)" 'engine cpu: no GPU was allotted or asked for' "the choice of the engine is said"
is "$(ls one | tr '\n' ' ')" "auroc.csv auroc.json curves.csv figures.csv predictions.csv report.html roc.svg shortcuts.csv subgroups.csv " \
    "the files of --output"
like "$(head -n 1 one/predictions.csv)" '^image_id,patient_id,y_Atelectasis,.*,y_Hernia,p_Atelectasis,.*,p_Hernia,view,age_years,sex,' \
    "predictions.csv has named columns"
rows=$(($(wc -l <one/predictions.csv) - 1))
is "$(tail -n +2 one/predictions.csv | cut -d, -f1 | sort -u | wc -l)" "$rows" "each image once"
like "$(err)" "split test of shards: $rows images" "all images of the split"
for key in '"checkpoint": "run/last.h5"' '"split": "test"' '"model": "densenet121"' '"tta": "none"' \
    '"image_size_px": 32' '"stored_size_px": 36' '"label_format": "nih"' '"source_digest": "[0-9a-f]+"'; do
    like "$(cat one/auroc.json)" "$key" "provenance: $key"
done
like "$(cat one/report.html)" "labels of the NIH's set were mined" "the report knows the labels of the NIH"

expect_status 0 chex-eval score --predictions one/predictions.csv --json
is "$(out | grep -o '"mean":[^,]*' | head -n 1)" "$(tr -d ' ' <one/auroc.json | grep -o '"mean":[^,]*' | head -n 1)" \
    "score finds the same mean in predictions.csv"

expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output two --batch-size 5 \
    --threads 1 --workers 1
cmp -s one/predictions.csv two/predictions.csv
ok $? "other threads, workers and batches give the same predictions"
if have mpirun; then
    # Open MPI serves PMIx to what it starts, as srun does. Both leak by themselves; what is ours is
    # under the leak check in the runs by one rank.
    saved=$ASAN_OPTIONS
    export ASAN_OPTIONS=$saved:detect_leaks=0
    expect_status 0 mpirun --allow-run-as-root --oversubscribe -n 3 chex-eval --data shards \
        --checkpoint run/last.h5 --output three --threads 1
    cmp -s one/predictions.csv three/predictions.csv
    ok $? "3 ranks give the same predictions"
    like "$(cat three/auroc.json)" '"ranks": 3' "the results say that there were 3 ranks"
    expect_status 2 mpirun --allow-run-as-root --oversubscribe -n 3 chex-eval --data shards \
        --checkpoint run/last.h5 --output three --threads 1
    is "$(grep -c 'three already holds predictions.csv' err)" 1 "one cause from all ranks"
    expect_status 0 mpirun --allow-run-as-root --oversubscribe -n 3 chex-eval export \
        --checkpoint run/last.h5 --output ranks.safetensors
    is "$(grep -c 'parameters of densenet121' err)" 1 "export by one of 3 ranks"
    expect_status 0 mpirun --allow-run-as-root --oversubscribe -n 3 chex-eval score \
        --predictions three/predictions.csv --output scored
    is "$(grep -c '^mean of' out)" 1 "score prints one line of the mean"
    export ASAN_OPTIONS=$saved
else
    skip "no mpirun here" 9
fi

expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output flip --tta flip
! cmp -s one/predictions.csv flip/predictions.csv
ok $? "the mirror image is averaged in"
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output ten --tta tencrop
like "$(cat ten/auroc.json)" '"tta": "tencrop"' "ten crops are recorded"

expect_status 0 chex-eval export --checkpoint run/last.h5 --output last.safetensors
expect_status 2 chex-eval export --checkpoint run/last.h5 --output last.safetensors
error_line 'last.safetensors exists: say --force' "export replaces nothing unasked"
expect_status 2 chex-eval export --checkpoint run/last.h5 --output last.pth
error_line 'last.pth: expected the name of a file that ends in .safetensors or .onnx' "export makes no PyTorch files"
expect_status 0 chex-eval --data shards --checkpoint last.safetensors --output st
cmp -s one/predictions.csv st/predictions.csv
ok $? "the exported parameters predict the same, at the size that they were trained at"
unlike "$(err)" 'warn: ' "the export says all that a checkpoint says"
expect_status 3 chex-eval --data shards --checkpoint last.safetensors --output none --split train
error_line 'split train holds the same images' "the split that trained it too"
expect_status 3 chex-eval --data shards --checkpoint last.safetensors --output none --model resnet50
error_line 'last.safetensors is a densenet121, --model says resnet50' "--model must be that of the checkpoint"
# foreign FILE TEXT: the export with other metadata of as many bytes, as strangers may write it.
foreign() {
    python3 -c 'import struct, sys
data = open("last.safetensors", "rb").read()
n, = struct.unpack("<Q", data[:8])
end = data.index(b"}", 8) + 2
head = b"{" + sys.argv[2].encode()
open(sys.argv[1], "wb").write(data[:8] + head.ljust(end - 8) + data[end:])' "$1" "$2"
}
if have python3 && ! without PYTHON; then
    foreign plain.safetensors ''
    expect_status 0 chex-eval --data shards --checkpoint plain.safetensors --output plain
    like "$(err)" 'warn: .*does not say how its training images were resized' "a file that does not say how its images were resized is warned about"
    like "$(err)" 'densenet121 at 36 px' "224 px, or what is stored where that is smaller"
    foreign odd.safetensors '"__metadata__":{"classes":"14","image_size":"32"},'
    expect_status 0 chex-eval --data shards --checkpoint odd.safetensors --output odd
    like "$(err)" "odd.safetensors: metadata 'classes' has an invalid value '14'" "foreign metadata"
    foreign vit.safetensors '"__metadata__":{"model":"vit"},'
    expect_status 3 chex-eval --data shards --checkpoint vit.safetensors --output none
    error_line "vit.safetensors: it says that it is a 'vit'" "a network of others"
else
    skip "no python3 here" 8
fi

# Two findings in one order and in the other.
awk -F, 'NR == 1 {print "image,A,B"} NR > 1 {print $1 "," ($2 ~ /Mass/) "," ($2 ~ /Edema/)}' \
    ph/labels.csv >ab.csv
for labels in A:B B:A; do
    quiet chex-shard --images ph/images --labels ab.csv --format csv --size 32 --shards 1 \
        --columns "image=image,labels=$labels" --split none --output "shards-$labels"
done
short=(--model densenet_tiny --batch-size 4 --max-steps 1 --engine cpu --threads 2 --image-size 32)
quiet chex-train --data shards-A:B "${short[@]}" --output run-ab
quiet chex-eval export --checkpoint run-ab/last.h5 --output ab.safetensors
for file in run-ab/last.h5 ab.safetensors; do
    expect_status 0 chex-eval --data shards-A:B --checkpoint $file --output "own-${file##*.}" --allow-overlap
    expect_status 0 chex-eval --data shards-B:A --checkpoint $file --output "other-${file##*.}" --allow-overlap
    cmp -s "own-${file##*.}/predictions.csv" "other-${file##*.}/predictions.csv"
    ok $? "findings in another order are matched by name: $file"
done
expect_status 0 chex-train --data shards-A:B "${short[@]}" --init ab.safetensors --output ab-ab
like "$(err)" "ab.safetensors; the head is the file's" "--init: a head for our classes is taken"
expect_status 0 chex-train --data shards-B:A "${short[@]}" --init ab.safetensors --output ab-ba
like "$(err)" "the head is new, because the file's is for other findings or another order of them" \
    "one for as many others is not"

# A set that was made without splits, and all splits of one that has them.
expect_status 3 chex-eval --data shards-A:B --checkpoint ab.safetensors --output none
error_line 'split all holds the same images.*--allow-overlap' "a set without splits is refused, because it was trained on"
expect_status 0 chex-eval --data shards-A:B --checkpoint ab.safetensors --output unsplit --allow-overlap
like "$(err)" 'shards-A:B was made without splits: all of it is evaluated' "a warning says that a set without splits is evaluated whole"
like "$(err)" 'split all of shards-A:B: 60 images' "all of it"
expect_status 3 chex-eval --data shards-A:B --checkpoint ab.safetensors --output none --split test
error_line 'no image in split test; it has all: choose with --split' "a split that was asked for"
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output all --split all \
    --allow-overlap --engine cpu
is "$(tail -n +2 all/predictions.csv | cut -d, -f1 | sort -u | wc -l)" 60 "all splits, each image once"
is "$(grep -cxFf one/predictions.csv all/predictions.csv)" "$((rows + 1))" \
    "the rows of test are those of test alone"

# One evaluation at a time in a folder: another one's results would replace these in silence.
chex-eval --data shards --checkpoint run/last.h5 --output busy --interval bootstrap \
    --bootstrap 1000000 -q >/dev/null &
pid=$!
for _ in $(seq 1200); do
    [ ! -s busy/.eval.lock ] || break
    sleep 0.05
done
expect_status 4 chex-eval --data shards --checkpoint run/last.h5 --output busy
error_line "busy is in use by process $pid on .*: wait for that run to end, or name a new folder" "two at once"
kill -KILL $pid
wait $pid 2>/dev/null
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output busy
is "$(find busy -name '.*.lock')" "" "the lock of a killed evaluation does not remain"

# refuse STATUS REGEX OPTION...
refuse() {
    local status=$1 text=$2
    shift 2
    expect_status "$status" chex-eval --data shards --checkpoint run/last.h5 --output none "$@"
    error_line "$text" "refused: $*"
    [ ! -e none ]
    ok $? "nothing is written"
}
refuse 2 "--checkpoint 'odd.xFF.h5': the name is no UTF-8 text, as auroc.json needs" --checkpoint $'odd\377.h5'
refuse 3 'split train holds the same images.*--allow-overlap' --split train
# What --compare names is read before the first image.
refuse 2 'compare published:foo: no such column, expected one of wang2017' --compare published:foo
unlike "$(err)" 'split test of shards' "before the work"
refuse 3 'compare nowhere.csv: no such file; expected a table of AUROCs' --compare nowhere.csv
refuse 3 'ab.csv: expected a header that begins with class' --compare ab.csv
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output train --split train \
    --allow-overlap --engine cpu
like "$(err)" 'run/last.h5 was trained on split train of this data' "an evaluation of training images is warned about"
like "$(cat train/auroc.json)" '"overlap_with_training": "yes"' "auroc.json records the overlap with the training images"
like "$(cat one/auroc.json)" '"overlap_with_training": "none"' "those of the test split are clean"
refuse 3 'split all holds the same images.*--allow-overlap' --split all

# The same images, split by another seed: its test split was mostly trained on.
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 3 \
    --seed 2 --output otherwise
refuse 3 'trained on split train of another set of these images, and split test of otherwise may' \
    --data otherwise
refuse 3 'trained on split train of another set of these images, and split test of otherwise may' \
    --data otherwise --checkpoint last.safetensors
quiet chex-shard reshard shards --output resharded --shards 2
expect_status 0 chex-eval --data resharded --checkpoint run/last.h5 --output resharded/eval
like "$(cat resharded/eval/auroc.json)" '"overlap_with_training": "none"' "another number of shards is the same"
refuse 3 'stored at 36 px, and the image size is 64: create the shards again with --size 64' --image-size 64
refuse 2 'no larger than the crops; use --tta flip' --tta tencrop --image-size 36
refuse 3 'is a densenet121, --model says resnet50' --model resnet50
refuse 2 "engine 'warp': expected auto, cpu, ref or cuda" --engine warp
refuse 3 'nowhere' --data nowhere
refuse 3 'nowhere.h5' --checkpoint nowhere.h5
refuse 3 'labels.csv' --checkpoint ph/labels.csv
# Names of the wrong kind: what was expected.
refuse 2 '--checkpoint run: a folder, expected a file; did you mean run/best.h5[?]' --checkpoint run
refuse 2 '--checkpoint ph: a folder, expected a file such as best.h5' --checkpoint ph
refuse 3 'ph/images: no manifest.json: these are images, expected a set of shards' --data ph/images
refuse 3 'ph: no manifest.json: these are images, expected a set of shards' --data ph
refuse 3 'run: no manifest.json: this is the output of chex-train' --data run
refuse 3 'shards/manifest.json: a file, expected the folder of a set of shards' --data shards/manifest.json
refuse 3 'shards/test: .*expected the folder above it' --data shards/test
refuse 3 'is .chexnet-shard., expected .chexnet-checkpoint.' --checkpoint "$(ls shards/test/*.h5 | head -n 1)"
refuse 2 "'tset' is not valid: expected one of train, val, test, all, fold; did you mean test" --split tset
refuse 2 "unexpected word 'shards': chex-eval takes options only; try 'chex-eval --help'" shards
head -c 1000000 run/last.h5 >cut.h5
refuse 3 'cut.h5' --checkpoint cut.h5
head -c 100000 last.safetensors >cut.safetensors
refuse 3 'cut.safetensors' --checkpoint cut.safetensors
mkdir nolib
export CHEX_LIBDIR=$PWD/nolib SLURM_GPUS_ON_NODE=1
refuse 4 'a GPU was allotted .SLURM_GPUS_ON_NODE. but cannot be used: chexnet-cuda.so is not installed here.*; pass --engine cpu'
refuse 4 'cannot be used: chexnet-cuda.so is not installed here' --engine cuda:s1
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output cpu --engine cpu
like "$(err)" 'engine cpu by request, though a GPU was allotted' "--engine cpu says that it is meant"
unset SLURM_GPUS_ON_NODE
refuse 4 'engine cuda: chexnet-cuda.so is not installed here' --engine cuda
unset CHEX_LIBDIR
expect_status 4 chex-eval --data shards --checkpoint run/last.h5 --output /proc/none
error_line '/proc/none' "an output that cannot be made"
unlike "$(err)" 'split test of shards' "a wrong network is found before the work"
mkdir readonly
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o ro tmpfs readonly 2>/dev/null; then
    at_exit umount readonly
    expect_status 4 chex-eval --data shards --checkpoint run/last.h5 --output readonly
    error_line 'readonly: nothing can be written into it: Read-only' "a read-only folder is found before the work"
    unlike "$(err)" 'split test of shards' "after the work"
else
    skip "cannot mount a tmpfs here" 3
fi
done_testing
