#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A bad option is found before the work that it would waste: before labels and images are read,
# shards are staged, or a network is evaluated.
source "$(dirname "$0")/lib.sh"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
quiet chex-shard phantom --count 60 --size 36 --seed 3 --output ph
create=(chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 1)
quiet "${create[@]}" --output shards
touch file
mkdir foreign && touch foreign/notes.txt

# before TEXT STATUS REGEX COMMAND...: refused, and TEXT was not reached.
before() {
    local work=$1 status=$2 text=$3
    shift 3
    expect_status "$status" "$@"
    error_line "$text" "the error names the bad option"
    unlike "$(err)" "$work" "before '$work'"
}
for output in file foreign; do
    before 'images of .* patients' 2 "output.* $output exists" "${create[@]}" --output $output
    before 'images in .* shards' 2 "output.* $output exists" chex-shard reshard shards --shards 2 --output $output
    before 'TFRecord files' 2 "output.* $output exists" chex-shard import-tfrecord \
        "$SOURCE/tests/data/tfrecord/dell.tfrecord" --output $output
done
[ -x "$BUILD/bin/chex-train" ] || done_testing
mkdir staged
train=(chex-train --data shards --model densenet_tiny --image-size 32 --batch-size 4 --max-steps 1 --engine cpu
    --threads 1 --stage staged)
before staging 3 'cannot open nowhere' "${train[@]}" --output run --init nowhere
before staging 3 'file: 0 bytes are too few for a safetensors file' "${train[@]}" --output run --init file
before staging 2 '--output file is a file, expected a folder' "${train[@]}" --output file
before staging 4 'cannot create shards: it is a folder' "${train[@]}" --output run --timeline shards
before staging 3 'cannot open nowhere' "${train[@]}" --output run --resume nowhere
before staging 2 "engine 'warp': expected" "${train[@]}" --output run --engine warp
[ ! -e run ]
ok $? "a run that cannot begin makes no folder"
mkdir readonly
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o ro tmpfs readonly 2>/dev/null; then
    at_exit umount readonly
    before staging 4 'readonly' "${train[@]}" --output readonly/run
    before 'images of .* patients' 4 'readonly' "${create[@]}" --output readonly/shards
else
    skip "cannot mount a tmpfs here" 6
fi
done_testing
