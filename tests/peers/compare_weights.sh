#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Parameter files of PyTorch in chex-eval, against PyTorch itself; and ONNX models of chex-eval in
# ONNX Runtime. Prints the greatest difference of probabilities for each file.
#
# usage: tests/peers/compare_weights.sh PYTHON [BUILD [NAME...]]
# PYTHON needs torch, torchvision, h5py, onnx, onnxruntime. BUILD: build/release. NAME: these files of
# make_torch_files.py only, such as resnet18.
set -eu
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
python=$1 bin=$(cd "${2:-$here/../../build/release}" && pwd)/bin
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
side=64
"$bin/chex-shard" phantom --count 60 --size 72 --seed 3 --output ph --quiet
"$bin/chex-shard" --images ph/images --labels ph/labels.csv --split patient --size 72 --shards 1 \
    --output shards --quiet 2>/dev/null
mkdir files
"$python" "$here/make_torch_files.py" shards $side files "${@:3}"
# Probabilities differ by the rounding of sums of fp32: a few units in the sixth place. The files of
# one channel are looser by the cancellation of three weights (tensor_set.c). The seven networks
# besides DenseNet-121 and ResNet-50 are compared with PyTorch in float64.
for file in files/*.pth; do
    name=$(basename "$file" .pth) bound=5e-5
    case $name in densenet* | resnet1* | resnet34) bound=1e-6 ;; esac
    "$bin/chex-eval" --data shards --checkpoint "$file" --output "eval-$name" --image-size $side \
        --engine cpu --precision fp32 --quiet >/dev/null 2>log || { cat log; exit 1; }
    "$python" "$here/compare_probabilities.py" "files/$name.csv" "eval-$name/predictions.csv" "$name" "$bound"
done
for name in zip densenet161 resnet18 resnet50; do
    [ -e "files/$name.pth" ] || continue
    "$bin/chex-eval" export --checkpoint "files/$name.pth" --output "$name.onnx" --image-size $side \
        --classes A,B,C,D,E,F,G,H,I,J,K,L,M,N --quiet
    "$python" "$here/run_onnx.py" "$name.onnx" shards "$name-onnx.csv"
    "$python" "$here/compare_probabilities.py" "$name-onnx.csv" "eval-$name/predictions.csv" \
        "$name.onnx"
done
