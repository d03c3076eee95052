#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Without PMIx (srun --mpi=none) the ranks find each other through a folder of the step, give the
# same results as with PMIx, and leave nothing.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"
export SLURM_MPI_TYPE=none

check_exchange "--mpi=none"
check_notes "--mpi=none"
job "${four[@]}" "$probe" info
all "rank, size and node come from Slurm's variables" 4 \
    '"method": "slurm".*"size": 4.*"local_size": 2.*"nodes": 2.*"job": true'
for r in 0 1 2 3; do
    grep -q "\"rank\": $r, .*\"local_rank\": $((r % 2)),.*\"node\": $((r / 2)),.*\"host\": \"n$((r / 2))\"" out
    ok $? "rank $r is where srun started it"
done
job -N2 -n3 -m cyclic "$probe" exchange rounds=1
all "nodes with different numbers of tasks, cyclic" 3 "$good"
job "${four[@]}" sh -c "$probe exchange rounds=1; $probe exchange rounds=1"
all "two programs of one step" 8 "$good"
job "${four[@]}" "$probe" exchange rounds=1 odd=3
is "$rc" 1 "ranks that differ in what they exchange: status 1"
like "$(cat err)" 'exchange card: rank 3 gave 208 bytes, expected 216' "the error has the number of bytes"

# Two steps of one job at once, and their requests to slurmctld.
cat >two.sh <<END
#!/bin/bash
for k in 1 2; do
    srun --exact -N2 -n2 --mem=0 $probe exchange rounds=20 >two.\$k &
done
wait
END
timeout "$CHEX_TEST_WAIT" sbatch --wait -N2 -n4 -o two.out two.sh >/dev/null
is "$(cat two.1 two.2 | grep -c "$good")" 4 "two steps of one job do not disturb each other" || diag "$(cat two.out)"

chex-shard phantom --count 60 --size 32 --output ph -q >ph.log 2>&1 || exit 1
make=(chex-shard --images "$PWD/ph/images" --labels "$PWD/ph/labels.csv" --split patient --size 32
    --shards 4 --workers 1)
expect_status 0 in_job --mpi=pmix "${four[@]}" "${make[@]}" --output "$PWD/by-pmix"
for n in 2 4; do
    expect_status 0 in_job -N2 -n$n "${make[@]}" --output "$PWD/by-none$n"
    diff -r by-pmix by-none$n
    ok $? "$n ranks make the shards of PMIx, byte for byte"
done
expect_status 0 in_job "${four[@]}" chex-env -v
like "$(out)" "^launch +pass .*slurm.*, 4 ranks on 2 nodes" "chex-env names the method"
expect_status 2 in_job "${four[@]}" chex-shard verify
is "$(grep -c '^chex-shard.* error: ' err)" 1 "an error that all ranks have is printed once" || diag "$(err)"
is "$(find . -name '.chexnet-*')" "" "no folder of a step remains"
done_testing
