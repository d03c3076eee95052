#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The old and the new input pipeline are compared on 1, 2 and 4 ranks, as in the article but
# smaller, and drawn from what the runs wrote. --stage works on two nodes.
# shellcheck source=tests/slurm/lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture
need_training

chex-shard phantom --count 800 --size 64 --seed 2 --output ph -q >/dev/null
chex-shard --images ph/images --labels ph/labels.csv --size 64 --shards 4 --split none --output shards -q

run() { # NAME RANKS chex-train arguments
    local name=$1 n=$2 nodes=(-N2)
    shift 2
    [ "$n" -gt 1 ] || nodes=(-N1)
    nodes+=(--ntasks-per-node=$(((n + 1) / 2)))
    in_job "${nodes[@]}" -n"$n" --cpu-bind=none chex-train --data shards --image-size 56 \
        --batch-size 16 "$@" >"$name.json" 2>"$name.err"
    status=$?
    [ $status = 0 ] || diag "$(tail -n 5 "$name.err")"
}
value() { sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" "$1"; }

for n in 1 2 4; do
    for pipeline in old new; do
        run $pipeline-$n $n --bench-input 800 --pipeline $pipeline --json
        is $status 0 "$pipeline, $n ranks"
        is "$(value $pipeline-$n.json ranks)" $n "one result for $n ranks"
        echo "# $pipeline, $n ranks: $(value $pipeline-$n.json images_per_s_median) images/s," \
            "stall share $(value $pipeline-$n.json stall_share)"
    done
done
is "$(value new-4.json shuffle_width)" 200 "new, 4 ranks: each shuffles its quarter"
like "$(cat old-4.json)" '"workers": 1,' "old: one reader"

"$SOURCE/tests/peers/plot_pipelines.sh" pipelines.svg old-?.json new-?.json
ok $? "a plot of them"
is "$(grep -c '<rect class="old"' pipelines.svg) $(grep -c '<rect class="new"' pipelines.svg)" "3 3" \
    "with a bar for each"
mkdir -p "$BUILD/tests/pipelines" && cp ./*-?.json pipelines.svg "$BUILD/tests/pipelines/"
echo "# kept in $BUILD/tests/pipelines"

# Each node has a copy of what its own ranks need, made by one of them.
mkdir local
common=(--engine cpu --threads 1 --seed 3 --lr 1e-3 --max-steps 4)
run plain 4 "${common[@]}" --output plain
run staged 4 "${common[@]}" --stage local --output staged
is $status 0 "--stage on two nodes"
like "$(cat staged.err)" 'staging 2 shards' "the first node copies the two shards of its two ranks"
h5diff plain/last.h5 staged/last.h5 /params /params
ok $? "both give the same bits"
is "$(ls local)" "" "nothing remains"
run nowhere 4 "${common[@]}" --stage nowhere --output nowhere
is $status 4 "no such folder: exit 4 on all"
done_testing
