#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard under srun makes the same bytes with 1, 2 and 4 ranks on two nodes, in create and in
# reshard. A bad image is one error of the whole job. Another number of ranks resumes an
# interrupted job.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture

chex-shard phantom --count 240 --size 64 --output ph -q >/dev/null || exit 1
create=(chex-shard --images "$PWD/ph/images" --labels "$PWD/ph/labels.csv" --split patient --size 48
    --shards 7 --workers 1)
"${create[@]}" --output "$PWD/alone" -q >/dev/null || exit 1
for n in 1 2 4; do
    nodes=$((n > 1 ? 2 : 1))
    expect_status 0 in_job -N$nodes -n$n "${create[@]}" --output "$PWD/of$n"
    like "$(out)" "/of$n: 240 images in" "$n ranks: the result is said"
    is "$(grep -c ' images in ' out)" 4 "once"
    diff -r alone "of$n"
    ok $? "$n ranks make the bytes of one process"
    expect_status 0 in_job -N$nodes -n$n chex-shard reshard "$PWD/of$n" --shards 3 --workers 1 --output "$PWD/three$n"
    diff -r three1 "three$n"
    ok $? "and reshard those of one rank"
done
expect_status 0 chex-shard verify three4
like "$(out)" "sound: 240 images in 9 shards" "all is there"

expect_status 0 in_job -N2 -n4 chex-shard verify "$PWD/alone"
is "$(grep -c ' sound: ' out)" 1 "four ranks verify once"
expect_status 0 in_job -N2 -n2 chex-shard phantom --count 20 --output "$PWD/once"
is "$(grep -c ' images of ' out)" 1 "two ranks draw once"
expect_status 0 in_job -N2 -n4 "${create[@]}" --output "$PWD/alone" --resume
is "$(grep -c 'nothing to do' out)" 1 "--resume of four ranks on the complete set"

# Other labels for the same images, on four ranks and on one.
chex-shard relabel alone --labels ph/labels.csv --not-stated zeros --output relabelled >setup.log 2>&1
expect_status 0 in_job -N2 -n4 chex-shard relabel "$PWD/alone" --labels "$PWD/ph/labels.csv" --not-stated zeros --output "$PWD/relabelled4"
is "$(grep -c ' images in ' out)" 4 "four ranks relabel once"
diff -r relabelled relabelled4
ok $? "and make the bytes of one process"
expect_status 0 in_job -N2 -n4 chex-shard relabel "$PWD/alone" --labels "$PWD/ph/labels.csv" --plan
is "$(grep -c '^finding ' out)" 1 "the plan of four ranks is printed once"
sed 2d ph/labels.csv >less.csv
expect_status 3 in_job -N2 -n4 chex-shard relabel "$PWD/alone" --labels "$PWD/less.csv" --output "$PWD/none"
is "$(grep -c '^chex-shard.* error: ' err)" 1 "a missing image is one error of four ranks"

cp -r alone part
rm part/train/train-00002-of-00007.h5
expect_status 3 in_job -N2 -n4 chex-shard reshard "$PWD/part" --output "$PWD/none"
is "$(grep -c '^chex-shard.* error: ' err)" 1 "a missing shard is one error of four ranks"
like "$(err)" 'train-00002-of-00007.h5: No such file' "the error names the file"
[ ! -e none ]
ok $? "and leaves nothing"

cp -r ph bad
truncate -s 200 bad/images/00000003_000.png
bad=("${create[@]}" --images "$PWD/bad/images")
expect_status 3 in_job -N2 -n4 "${bad[@]}" --output "$PWD/kept" --resume
is "$(grep -c '^chex-shard.* error: ' err)" 1 "a bad image is one error of four ranks"
kept=$(find kept -name '*.h5' | wc -l)
is "$kept" 20 "with --resume the 20 good shards stay"
expect_status 0 in_job -N1 -n2 "${bad[@]}" --output "$PWD/kept" --resume --max-bad 1
like "$(out)" "^$kept shards kept from the interrupted run" "two ranks take them up"
expect_status 0 "${bad[@]}" --output "$PWD/fresh" --max-bad 1
diff -r fresh kept
ok $? "the bytes are those of one process without interruption"
done_testing
