#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard under srun makes the same bytes from compressed archives and TFRecords with 1, 2 and
# 4 ranks as one process makes from loose files. A faulty archive is one error of the whole job.
# Another number of ranks uses the spools of an interrupted job.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture

chex-shard phantom --count 240 --size 64 --output ph -q >/dev/null || exit 1
mkdir packed cut
ls ph/images >names
split -n l/3 -d names part-
for i in 0 1 2; do
    tar -C ph/images -czf packed/images_$i.tar.gz -T part-0$i
done
options=(--split patient --size 48 --shards 5 --workers 1)
create=(chex-shard --labels "$PWD/ph/labels.csv" "${options[@]}")
"${create[@]}" --images "$PWD/ph/images" --output "$PWD/alone" -q >/dev/null || exit 1

# The same images with other labels, which fit both a list and records.
awk '{ printf "%s", $1; for (i = 0; i < 14; i++) printf " %d", (NR + i) % 7 == 0; print "" }' names >list.txt
listed=(chex-shard --images "$PWD/ph/images" --labels "$PWD/list.txt")
"${listed[@]}" "${options[@]}" --output "$PWD/listed" -q >/dev/null || exit 1
split -n l/3 -d list.txt list-
for i in 0 1 2; do
    "$BUILD/tests/write_tfrecord" ph/images list-0$i train-$i.tfrecord || exit 1
done
import=(chex-shard import-tfrecord "$PWD"/train-{0,1,2}.tfrecord --label-order chexnet "${options[@]}")

archives=yes
chex-shard --version | grep -q libarchive || archives=
for n in 1 2 4; do
    nodes=$((n > 1 ? 2 : 1))
    if [ -n "$archives" ]; then
        expect_status 0 in_job -N$nodes -n$n "${create[@]}" --images "$PWD/packed" --output "$PWD/packed$n"
        diff -r alone "packed$n"
        ok $? ".tar.gz, $n ranks: the bytes of one process and loose files"
    else
        skip "this chexnet was built without libarchive" 2
    fi
    expect_status 0 in_job -N$nodes -n$n "${import[@]}" --output "$PWD/records$n"
    like "$(out)" "/records$n: 240 images in" "$n ranks: the result is said"
    is "$(grep -c ' images in ' out)" 4 "once"
    for split in train val test; do
        diff -r listed/$split "records$n/$split"
        ok $? "TFRecords, $n ranks: the $split shards of one process and loose files"
    done
    is "$(diff listed/manifest.json "records$n/manifest.json" | grep -c '^>')" 2 "the manifest differs in the format and its digest alone"
done
[ -n "$archives" ] || done_testing

cp packed/images_0.tar.gz packed/images_2.tar.gz cut
head -c 20000 packed/images_1.tar.gz >cut/images_1.tar.gz
expect_status 3 in_job -N2 -n4 "${create[@]}" --images "$PWD/cut" --output "$PWD/none"
is "$(grep -c '^chex-shard.* error: ' err)" 1 "a cut archive is one error of four ranks"
like "$(err)" 'cut/images_1.tar.gz: gzip: the file ends in the middle of the data' "the error names the file"
[ ! -e none ]
ok $? "and leaves nothing"

cp -r ph bad
truncate -s 200 bad/images/00000003_000.png
mkdir bad/packed
tar -C bad/images -czf bad/packed/images.tgz .
bad=("${create[@]}" --images "$PWD/bad/packed")
expect_status 3 in_job -N2 -n4 "${bad[@]}" --output "$PWD/kept" --resume
like "$(err)" 'images.tgz/00000003_000.png: ' "a bad image in an archive"
expect_status 0 in_job -N1 -n2 "${bad[@]}" --output "$PWD/kept" --resume --max-bad 1
like "$(err)" 'images.tgz: its images were resized by the interrupted run' "another size of job takes the spool up"
expect_status 0 "${create[@]}" --images "$PWD/bad/images" --output "$PWD/fresh" --max-bad 1
for split in train val test; do
    diff -r fresh/$split kept/$split
    ok $? "the $split shards are those of loose files"
done
done_testing
