#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval predict under srun gives the files of one process with 2 and 3 ranks, from files and from
# compressed archives, and goes on with another number of ranks.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
chex-shard --version | grep -q libarchive || skip_all "this chexnet was built without libarchive"

chex-shard phantom --count 200 --size 64 --output ph -q >/dev/null || exit 1
chex-shard --images ph/images --labels ph/labels.csv --split none --size 36 --output shards -q \
    >/dev/null 2>&1 || exit 1
chex-train --data shards --output run --image-size 32 --batch-size 4 --max-steps 1 --engine cpu \
    --threads 1 -q >/dev/null 2>&1 || exit 1
mkdir mixed
for i in 0 1 2; do
    (cd ph/images && find . -name "*$i.png" | sort | tar -czf "$SCRATCH/mixed/images_$i.tar.gz" -T -)
done
cp ph/images/*[3-9].png mixed
: >mixed/empty.png
predict=(chex-eval predict --images "$PWD/mixed" --checkpoint "$PWD/run/last.h5" --engine cpu
    --threads 1 --workers 1 --batch-size 4)
"${predict[@]}" --output "$PWD/alone" --sheet --heat-maps 5 -q >/dev/null 2>&1 || exit 1

is "$(wc -l <alone/predictions.csv) $(wc -l <alone/rejected.csv)" "201 2" "one process predicts all images"
for n in 2 3; do
    expect_status 0 in_job -N2 -n$n "${predict[@]}" --output "$PWD/ranks$n" --sheet --heat-maps 5
    diff -r alone ranks$n >diff.log
    ok $? "$n ranks write the files of one process"
    is "$(grep -c 'predictions.csv: ' out)" 1 "and print the result once"
done

# An interrupted job: what three ranks have done counts for two.
in_job -N2 -n3 "${predict[@]}" --output "$PWD/cut" --sheet --heat-maps 5 --max-bad 0 >/dev/null 2>cut.err
is "$?" 3 "a rank with too many bad files ends the job"
is "$(grep -c 'chex-eval.* error: ' cut.err)" 1 "with one error"
expect_status 0 in_job -N2 -n2 "${predict[@]}" --output "$PWD/cut" --sheet --heat-maps 5
like "$(out)" ', [1-9][0-9]* of them kept from the interrupted run' "two ranks keep what three had done"
diff -r alone cut >diff.log
ok $? "and complete the same files"

# Ranks that see other files.
expect_status 3 in_job -N2 -n2 bash -c 'exec "$@" --images "$0/$SLURM_PROCID"' "$PWD/mixed" \
    chex-eval predict --checkpoint "$PWD/run/last.h5" --engine cpu --output "$PWD/other"
is "$(grep -c 'chex-eval.* error: ' err)" 1 "a folder that one rank lacks is one error"
mkdir see see/0 see/1
cp ph/images/00000001_000.png see/0
cp ph/images/00000001_000.png ph/images/00000002_000.png see/1
expect_status 3 in_job -N2 -n2 bash -c 'exec "$@" --images "$0/$SLURM_PROCID"' "$PWD/see" \
    chex-eval predict --checkpoint "$PWD/run/last.h5" --engine cpu --output "$PWD/other"
error_line 'rank 0 sees 1 files and rank 1 sees 2' "ranks that see other files are refused"
[ ! -e other ]
ok $? "and nothing is written"

done_testing
