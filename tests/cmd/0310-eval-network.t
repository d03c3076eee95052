#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval over a checkpoint and a split of shards: each image once for any number of ranks, the
# checks before the first image, export, and results of which nothing is half-written.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

quiet chex-shard phantom --count 60 --size 36 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 3 \
    --output shards
quiet chex-train --data shards --output run --image-size 32 --batch-size 4 --max-steps 1 \
    --engine cpu --threads 2

expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output one --threads 2
like "$(out)" '^mean of [0-9]+ classes ' "the table"
like "$(err)" 'engine cpu: no GPU was allotted or asked for' "the choice of the engine is said"
is "$(ls one | tr '\n' ' ')" "auroc.csv auroc.json predictions.csv report.html roc.svg " \
    "the files of --output"
like "$(head -n 1 one/predictions.csv)" '^image_id,patient_id,y_Atelectasis,.*,y_Hernia,p_Atelectasis,.*,p_Hernia$' \
    "predictions.csv has named columns"
rows=$(($(wc -l <one/predictions.csv) - 1))
is "$(tail -n +2 one/predictions.csv | cut -d, -f1 | sort -u | wc -l)" "$rows" "each image once"
like "$(err)" "split test of shards: $rows images" "all images of the split"
for key in '"checkpoint": "run/last.h5"' '"split": "test"' '"model": "densenet121"' '"tta": "none"' \
    '"image_size_px": 32' '"stored_size_px": 36' '"source_digest": "[0-9a-f]+"'; do
    like "$(cat one/auroc.json)" "$key" "provenance: $key"
done

expect_status 0 chex-eval score --predictions one/predictions.csv --json
is "$(out | grep -o '"mean":[^,]*' | head -n 1)" "$(tr -d ' ' <one/auroc.json | grep -o '"mean":[^,]*' | head -n 1)" \
    "score finds the same mean in predictions.csv"

expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output two --batch-size 5 \
    --threads 1 --workers 1
cmp -s one/predictions.csv two/predictions.csv
ok $? "the same predictions with other threads, workers and batches"
if have mpirun; then
    # Open MPI serves PMIx to what it starts, as srun does. Both leak by themselves; what is ours is
    # under the leak check in the runs by one rank.
    saved=$ASAN_OPTIONS
    export ASAN_OPTIONS=$saved:detect_leaks=0
    expect_status 0 mpirun --allow-run-as-root --oversubscribe -n 3 chex-eval --data shards \
        --checkpoint run/last.h5 --output three --threads 1
    cmp -s one/predictions.csv three/predictions.csv
    ok $? "the same predictions from 3 ranks"
    like "$(cat three/auroc.json)" '"ranks": 3' "by 3 ranks indeed"
    expect_status 2 mpirun --allow-run-as-root --oversubscribe -n 3 chex-eval --data shards \
        --checkpoint run/last.h5 --output three --threads 1
    is "$(grep -c 'three already holds predictions.csv' err)" 1 "one cause from all ranks"
    export ASAN_OPTIONS=$saved
else
    skip "no mpirun here" 5
fi

expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output flip --tta flip
! cmp -s one/predictions.csv flip/predictions.csv
ok $? "the mirror image is averaged in"
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output ten --tta tencrop
like "$(cat ten/auroc.json)" '"tta": "tencrop"' "ten crops are recorded"

expect_status 0 chex-eval export --checkpoint run/last.h5 --output last.safetensors
expect_status 2 chex-eval export --checkpoint run/last.h5 --output last.safetensors
error_line 'last.safetensors exists: say --force' "export replaces nothing unasked"
expect_status 2 chex-eval export --checkpoint run/last.h5 --output last.onnx
error_line 'FILE.safetensors' "export makes safetensors"
expect_status 0 chex-eval --data shards --checkpoint last.safetensors --image-size 32 --output st
cmp -s one/predictions.csv st/predictions.csv
ok $? "the exported parameters predict the same"
like "$(err)" 'warn: .*does not say how its training images were resized' "what cannot be checked is said"

# refuse STATUS REGEX OPTION...
refuse() {
    local status=$1 text=$2
    shift 2
    expect_status "$status" chex-eval --data shards --checkpoint run/last.h5 --output none "$@"
    error_line "$text" "refused: $*"
    [ ! -e none ]
    ok $? "and nothing is written"
}
refuse 3 'split train holds the same images.*--allow-overlap' --split train
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output train --split train \
    --allow-overlap --engine cpu
refuse 3 'no image in split all; it has train, val, test' --split all
refuse 3 'stored at 36 px, and the image size is 64: shard again with --size 64' --image-size 64
refuse 2 'no larger than the crops; say --tta flip' --tta tencrop --image-size 36
refuse 3 'is a densenet121, --model says resnet50' --model resnet50
refuse 2 "engine 'warp': expected auto, cpu, ref or cuda" --engine warp
refuse 3 'nowhere' --data nowhere
refuse 3 'nowhere.h5' --checkpoint nowhere.h5
refuse 3 'labels.csv' --checkpoint ph/labels.csv
head -c 1000000 run/last.h5 >cut.h5
refuse 3 'cut.h5' --checkpoint cut.h5
head -c 100000 last.safetensors >cut.safetensors
refuse 3 'cut.safetensors' --checkpoint cut.safetensors
mkdir nolib
export CHEX_LIBDIR=$PWD/nolib SLURM_GPUS_ON_NODE=1
refuse 4 'a GPU was allotted .SLURM_GPUS_ON_NODE. but cannot be used: chexnet-cuda.so is not installed here.*; say --engine cpu'
refuse 4 'cannot be used: chexnet-cuda.so is not installed here' --engine cuda:s1
expect_status 0 chex-eval --data shards --checkpoint run/last.h5 --output cpu --engine cpu
like "$(err)" 'engine cpu by request, though a GPU was allotted' "--engine cpu says that it is meant"
unset SLURM_GPUS_ON_NODE
refuse 4 'engine cuda: chexnet-cuda.so is not installed here' --engine cuda
unset CHEX_LIBDIR
expect_status 4 chex-eval --data shards --checkpoint run/last.h5 --output /proc/none
error_line '/proc/none' "an output that cannot be made"
done_testing
