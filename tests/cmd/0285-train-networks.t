#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The networks of --model: the largest have plans, a ResNet-18 and a DenseNet with a growth of 48 train
# with equal bits on several processes, and their files are known by their parameters. Predictions
# are compared with torchvision's by tests/peers/compare_weights.sh.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

phantom_set 40
common=(--data set --image-size 32 --batch-size 2 --engine cpu --precision fp32 --opt sgd --seed 3 --quiet)
equal() { for group in params moment1; do h5diff "$1/last.h5" "$2/last.h5" /$group /$group || return 1; done >/dev/null; }
models=$(chex-train --help | tr -d '\n' | sed 's/.*--model NAME *network (\([^)]*\)).*/\1/; s/, */ /g')
is "$(echo "$models" | wc -w)" 9 "help lists the networks"
for model in densenet161 resnet152; do
    expect_status 0 chex-train --plan "${common[@]}" --model "$model" --output none --json
    like "$(out)" "\"model\": \"$model\"" "$model has a plan"
done
expect_status 2 chex-train "${common[@]}" --model vgg16 --output none
error_line "'vgg16' is not valid: expected one of densenet121, .*, resnet152" "an unknown network is refused"

python_with h5py,xxhash || python=
for model in "resnet18 102" "densenet_tiny48 106"; do
    run=("${common[@]}" --model "${model% *}" --max-steps 1 --logical-ranks 2 --deterministic --threads 1)
    expect_status 0 chex-train "${run[@]}" --output "${model% *}"
    if mpi_ranks 2; then
        expect_status 0 "${ranks[@]}" chex-train "${run[@]}" --output two
        equal "${model% *}" two
        ok $? "${model% *}: 2 processes give the bits of 1"
        rm -rf two
    else
        skip "no mpirun here" 2
    fi
    [ "$python" ] || { skip "no python3 with h5py here" 2; continue; }
    expect_status 0 "$python" "$SOURCE/tests/tools/read_checkpoint.py" "${model% *}/last.h5"
    like "$(out)" "^${model% *}, .* ${model#* } datasets" "${model% *}: the parameters are those of doc/checkpoint-format.md"
done

# A file without a name is known by the shapes of its parameters.
expect_status 0 chex-eval export --checkpoint resnet18/last.h5 --output r18.safetensors
expect_status 0 chex-eval --data set --checkpoint resnet18/last.h5 --engine cpu --output of-h5 --bootstrap 0 --quiet
if have python3 && ! without PYTHON; then
    python3 "$SOURCE/tests/tools/write_torch.py" r18.safetensors r18.pth zip
    expect_status 0 chex-eval --data set --checkpoint r18.pth --engine cpu --image-size 32 --output of-pth --bootstrap 0 --quiet
    cmp of-h5/predictions.csv of-pth/predictions.csv
    ok $? "a PyTorch file of a ResNet-18 predicts what its checkpoint does"
    expect_status 0 chex-train "${common[@]}" --model resnet18 --max-steps 1 --init r18.pth --output started
    expect_status 3 chex-train "${common[@]}" --model resnet34 --init r18.pth --output none
    error_line "r18.pth is a resnet18, --model says resnet34" "it starts no ResNet-34"
else
    skip "no python3 here" 5
fi
[ ! -e none ]
ok $? "a refused run creates nothing"
done_testing
