# SPDX-License-Identifier: Apache-2.0
# All commands refuse a FIFO, a device or a socket at once, if they expect a file.
source "$(dirname "$0")/lib.sh"
need timeout

chex-shard phantom --count 12 --size 32 --seed 1 --output ph --quiet || exit 1
mkfifo pipe.png pipe.csv pipe.h5 pipe.conf pipe.json
create=(chex-shard --images ph/images --labels ph/labels.csv --split none --shards 2 --size 32)
"${create[@]}" --output set --quiet || exit 1

# refuse STATUS TEXT COMMAND...: a command that waits for the FIFO's writer ends with 124.
refuse() {
    local status=$1 text=$2
    shift 2
    expect_status "$status" timeout "$CHEX_TEST_WAIT" "$@"
    error_line "$text" "$1 ${2-}: it says so"
}
fifo='not a regular file \(a FIFO; expected a file\)'

refuse 3 "pipe.csv: $fifo" "${create[@]}" --labels pipe.csv --output a
refuse 3 "pipe.csv: $fifo" chex-eval score --predictions pipe.csv
refuse 3 "/dev/zero: not a regular file \(a device" chex-eval score --predictions /dev/zero
refuse 3 "not a regular file \(a FIFO" chex-eval score --predictions <(printf 'image_id\n')
refuse 2 "pipe.conf: $fifo" "${create[@]}" --config pipe.conf --output a
refuse 3 "pipe.h5: $fifo" chex-shard verify pipe.h5
refuse 3 "pipe.h5: $fifo" chex-shard info pipe.h5
refuse 3 "pipe.h5: $fifo" chex-shard import-tfrecord pipe.h5 --output a
refuse 3 "pipe.h5: $fifo" chex-eval export --checkpoint pipe.h5 --output w.safetensors
refuse 3 "pipe.h5: $fifo" chex-eval cam --image ph/images/"$(ls ph/images | head -n 1)" \
    --checkpoint pipe.h5 --output c.png

mkdir images && cp ph/images/* images
first=$(ls images | head -n 1)
rm "images/$first" && mkfifo "images/$first"
expect_status 3 timeout "$CHEX_TEST_WAIT" "${create[@]}" --images images --output b
like "$(err)" "$first" "a FIFO as an image is refused by name"

cp -r set broken
rm broken/all/all-00000-of-00002.h5 && mkfifo broken/all/all-00000-of-00002.h5
refuse 3 "all-00000-of-00002.h5: $fifo" chex-shard verify broken
rm broken/manifest.json && mkfifo broken/manifest.json
refuse 3 "manifest.json: $fifo" chex-shard verify broken
done_testing
