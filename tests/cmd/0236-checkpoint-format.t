#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A checkpoint can be read, checked and written by the rules of doc/checkpoint-format.md alone.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
python_with h5py,xxhash || skip_all "no python3 with h5py and xxhash here"
[ -x "$BUILD/tests/dump_batches" ] || skip_all "$BUILD/tests/dump_batches is not built"

# Every row has other labels, so that a sample names its row.
chex-shard phantom --count 64 --size 32 --output ph --quiet >/dev/null || exit 1
echo image,patient,Mass,Edema,Nodule,Hernia,Fibrosis,Effusion >labels.csv
i=0
for file in ph/images/*.png; do
    printf '%s,P%d,%d,%d,%d,%d,%d,%d\n' "${file##*/}" $i $((i & 1)) $((i >> 1 & 1)) $((i >> 2 & 1)) \
        $((i >> 3 & 1)) $((i >> 4 & 1)) $((i >> 5 & 1)) >>labels.csv
    i=$((i + 1))
done
chex-shard --images ph/images --labels labels.csv --split patient --size 32 --shards 3 \
    --output shards --quiet >/dev/null 2>&1 || exit 1
train() { # OUTPUT OPTION...
    chex-train --data shards --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --precision fp32 --threads 1 \
        --seed 7 --quiet --output "$@" 2>err
}
reader() { "$python" "$SOURCE/tests/tools/read_checkpoint.py" "$@"; }

train run --max-steps 13 || { cat err; exit 1; }
expect_status 0 reader run/last.h5 copy copy.h5
like "$(out)" "^densenet_tiny, 6 classes, 32 px, step 13, adam, params moment1 moment2, 106 datasets each$" \
    "an independent reader finds every value of a checkpoint by the page's rules"
expect_status 0 reader run/last.h5 digest
is "$(out | tail -n 1)" "$(tail -n 1 run/checkpoints.jsonl | grep -oE '"digest":"[0-9a-f]+"' | cut -d'"' -f4)" \
    "checkpoints.jsonl has the digest of the state by the rules of the page"
for network in "resnet50 267" "densenet121 606"; do
    train "${network% *}" --model "${network% *}" --opt sgd --max-steps 1 || { cat err; exit 1; }
    expect_status 0 reader "${network% *}/best.h5"
    like "$(out)" "^${network% *}, .* step 1, sgd, params moment1, ${network#* } datasets" \
        "a checkpoint of SGD has one moment, and ${network% *} the names of the page"
done

"$BUILD/tests/dump_batches" shards 32 4 30 7 batches || exit 1
expect_status 0 reader run/last.h5 order shards batches
like "$(out)" "^120 samples of 3 epochs are in the order of the page" \
    "the page gives the order of the samples in several epochs"

expect_status 0 reader copy.h5
expect_status 0 chex-eval export --checkpoint run/last.h5 --output run.safetensors
expect_status 0 chex-eval export --checkpoint copy.h5 --output copy.safetensors
cmp run.safetensors copy.safetensors
ok $? "chex-eval reads the same parameters from a file that another program wrote by the page"
train run --max-steps 15 || cat err
train resumed --max-steps 15 --resume copy.h5 || cat err
chex-eval export --checkpoint run/last.h5 --output run.safetensors --force --quiet
chex-eval export --checkpoint resumed/last.h5 --output resumed.safetensors --quiet
cmp run.safetensors resumed.safetensors
ok $? "a run that resumes from that file ends with the same weights"

# ---- broken files: the reader and chexnet agree ----
both() { # STATUS-OF-CHEXNET NAME
    expect_status "$1" chex-eval export --checkpoint broken.h5 --output x.safetensors --force
    expect_status $(($1 != 0)) reader broken.h5
    like "$(out)" "$2" "$3"
}
change() { "$python" -c "import h5py, numpy, sys
with h5py.File('broken.h5', 'r+') as f: $1"; }
record() { "$python" "$SOURCE/tests/tools/checksum_record.py" broken.h5; }
cp copy.h5 broken.h5
printf 'x' | dd of=broken.h5 bs=1 seek=100000 conv=notrunc status=none
both 3 "the checksum record does not match" "a changed byte breaks the checksum record"
cp copy.h5 broken.h5
change "f.attrs['other'] = 1; f.create_group('extra')"
both 3 "no checksum record" "a file that was changed through HDF5 has no checksum record and is refused"
expect_status 3 chex-eval export --checkpoint broken.h5 --output x.safetensors --force
error_line 'no checksum record at its end: .*doc/shard-format.md' "the error says how to make the file whole"
record
both 0 "106 datasets each$" "a file with unknown parts and a new record is valid"
change "f['params/classifier.bias'][0] += 1"
record
both 3 "/params/classifier.bias does not match its xxh3" "a changed parameter does not match its xxh3"
cp copy.h5 broken.h5
change "del f['params/features.norm0.weight']"
record
both 3 "no dataset /params/features.norm0.weight" "a missing parameter is an error"
cp copy.h5 broken.h5
change "f.attrs.modify('version', numpy.int64(2))"
record
both 3 "another version" "another version is refused"
cp copy.h5 broken.h5
change "f.attrs.modify('meta_xxh3', numpy.uint64(2))"
record
both 3 "meta does not match meta_xxh3" "a changed meta is an error"
done_testing
