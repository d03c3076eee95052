# SPDX-License-Identifier: Apache-2.0
# chex-shard holds at most 256 MiB of image files at once while it reads a compressed archive,
# however large they are together.
source "$(dirname "$0")/lib.sh"
need tar gzip
chex-shard --version | grep -q libarchive || skip_all "this chexnet was built without libarchive"

# Twelve members of 64 MiB: an image; its end mark comes before all those zeros.
image=$SOURCE/tests/data/tfrecord/images/00000007_000.png
head -c $(((64 << 20) - 512)) /dev/zero | gzip -1n >rest.gz
for i in 10 11 12 13 14 15 16 17 18 19 20 21; do
    cp "$image" ${i}_0.png
    chmod u+w ${i}_0.png
    truncate -s 64M ${i}_0.png
    tar -cf - ${i}_0.png 2>/dev/null | head -c 1024 | gzip -n >>all.tar.gz
    cat rest.gz >>all.tar.gz
    rm ${i}_0.png
    echo "${i}_0.png 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
done >list.txt
head -c 1024 /dev/zero | gzip -n >>all.tar.gz

run=("$BUILD/tests/peak_rss" peak chex-shard --labels list.txt --split none --size 16 --shards 1 --workers 6)
expect_status 0 "${run[@]}" --images all.tar.gz --output set
like "$(out)" "set: 12 images" "768 MiB of image files in a small archive"
peak=$(cat peak)
if [ "$peak" -eq 0 ]; then
    skip "a sanitizer's memory counts as ours"
else
    [ "$peak" -lt $((400 << 10)) ]
    ok $? "at most 256 MiB of them at once: peak of $((peak >> 10)) MiB"
fi
done_testing
