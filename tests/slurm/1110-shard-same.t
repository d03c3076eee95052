#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard under srun names the rank and node that reads other labels or images than rank 0,
# before it converts an image. Names that repeat from folder to folder are one set for all ranks.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture

chex-shard phantom --count 40 --size 32 --output ph -q >/dev/null || exit 1
cp -r ph stale
sed -i '5s/PA/AP/; 5t; 6d' stale/labels.csv
run=(--split none --size 32 --shards 4 --workers 1 --output "$PWD/o")
# Each rank finds its own folder at the path `seen`, as on two nodes with copies of their own.
of_rank() { # LABELS IMAGES: of rank 1
    in_job -N2 -n2 bash -c 'd=$PWD/$SLURM_PROCID; rm -rf "$d"; mkdir "$d"
        if [ "$SLURM_PROCID" = 1 ]; then ln -s "$1" "$d/labels"; ln -s "$2" "$d/images"
        else ln -s "$PWD/ph/labels.csv" "$d/labels"; ln -s "$PWD/ph/images" "$d/images"; fi
        shift 2; exec chex-shard --images "$d/images" --labels "$d/labels" "$@"' _ "$@" "${run[@]}"
}
expect_status 3 of_rank "$PWD/stale/labels.csv" "$PWD/ph/images"
is "$(grep -c '^chex-shard.* error: ' err)" 1 "one error of two ranks"
like "$(err)" "rank 1 on [a-z0-9-]+: the rows of .*/labels differ from those of rank 0 on " "other labels"
touch -d '2020-01-01' stale/images/00000003_000.png
expect_status 3 of_rank "$PWD/ph/labels.csv" "$PWD/stale/images"
like "$(err)" "rank 1 on [a-z0-9-]+: the images below .*/images .* differ from those of rank 0 on " "other images"
[ ! -e o ]
ok $? "nothing is written"
expect_status 0 of_rank "$PWD/ph/labels.csv" "$PWD/ph/images"

mkdir export && i=0
echo image,patient,Effusion >paths.csv
for file in ph/images/*.png; do
    folder=p$((i / 4))/s
    mkdir -p export/$folder && cp "$file" export/$folder/$((i % 4)).png
    echo "$folder/$((i % 4)).png,$((i / 4)),$((i % 2))" >>paths.csv
    i=$((i + 1))
done
paths=(chex-shard --images "$PWD/export" --labels "$PWD/paths.csv" --split patient --size 32 --shards 3 --workers 1)
"${paths[@]}" --output alone -q >/dev/null || exit 1
expect_status 0 in_job -N2 -n4 "${paths[@]}" --output "$PWD/four"
diff -r alone four
ok $? "four ranks make the bytes of one process where names repeat"
done_testing
