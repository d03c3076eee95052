#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks of chex-eval with other options than rank 0 are refused before the first image, by all ranks.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
need_training
phantom_shards 40 2
chex-train --data shards --output run --engine cpu --threads 1 --image-size 32 --batch-size 4 \
    --max-steps 1 --epochs 1 -q >/dev/null 2>&1

# Rank 1 has the options of MORE, too.
cat >odd.sh <<END
[ "\$SLURM_PROCID" != 1 ] || set -- "\$@" \$MORE
exec chex-eval --data shards --checkpoint run/last.h5 --output results --engine cpu --bootstrap 0 "\$@"
END
evaluate() { MORE=$1 in_job -N2 -n2 bash odd.sh; }
for more in "--split val" "--tta flip" "--image-size 30" "--batch-size 3" "--model resnet50" "--interval bootstrap" \
    "--seed 2" "--cluster image" "--allow-overlap"; do
    expect_status 2 evaluate "$more"
    like "$(err)" "error: rank 1 on n1: ${more%% *} is '[^']*' here and '[^']*' on rank 0: give all ranks the same" \
        "rank 1 alone with $more is refused by name"
done
[ ! -e results ]
ok $? "a refused evaluation leaves no results"
expect_status 0 evaluate "--threads 1 --workers 1"
[ -s results/auroc.json ]
ok $? "options of a rank may differ"
done_testing
