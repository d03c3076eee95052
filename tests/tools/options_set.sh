# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# options_set IMAGES: the data of tests/cmd/0255-train-matrix.t and of its recorder in the current
# folder: sets a (16 training images) and b (8), 8 images each to validate, and start.h5, whose
# parameters every run starts from. Three findings with positive, negative, uncertain and not stated
# labels; Mass is stated for half of the images.
options_set() {
    local images=() effusion=(1 0 0 1 -1 0 "") mass=(1 "" 0 -1) nodule=(0 -1 1 0 1) name part i
    mapfile -t images < <(cd "$1" && ls)
    for ((i = 0; i < 40; i++)); do
        name=a
        ((i < 24)) || name=b
        part=train
        ((i < 16 || (i >= 24 && i < 32))) || part='val'
        [ -f $name.csv ] || echo "Image,Patient,Effusion,Mass,Nodule" >$name.csv
        echo "${images[i]},$i,${effusion[i % 7]},${mass[i % 4]},${nodule[i % 5]}" >>$name.csv
        echo "${images[i]}" >>$name-$part.txt
    done
    for name in a b; do
        chex-shard --images "$1" --labels $name.csv --size 32 --shards 1 --output $name -q \
            --train-list $name-train.txt --val-list $name-val.txt || return
    done
    chex-train --data a --model densenet_tiny --image-size 32 --batch-size 8 --max-steps 1 --lr 0 --seed 1 \
        --engine cpu --threads 1 --precision fp32-strict -q --output start && cp start/last.h5 start.h5
}
