#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# srun --mpi=pmi2: ranks find each other, name those that are lost, and end with their own status.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
srun --mpi=list 2>&1 | grep -q pmi2 || skip_all "this Slurm has no plugin pmi2"
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"
four=(--mpi=pmi2 "${four[@]}")

check_exchange pmi2
check_notes pmi2

job "${four[@]}" sh -c "$probe exchange rounds=1 && $probe exchange rounds=1"
is "$rc $(grep -c "$good" out)" "4 4" "the second program of a step is refused with status 4"
like "$(cat err)" "start: the PMI server of this node is gone: .*\(start each chexnet command with its own srun\)" \
    "and the cure is named"
job --mpi=pmi2 -n1 sh -c "srun --mpi=none --overlap -n1 $probe info"
all "a step without PMI inside one with it" 1 '"method": "slurm"'

# lost COMMAND: rank 2 does that, and never comes.
lost() { job "${four[@]}" sh -c "[ \$SLURM_PROCID != 2 ] || $1; exec $probe exchange rounds=1 timeout_ms=1500"; }
lost 'exit 0'
is $rc 7 "a rank has ended early: status 7"
like "$(cat err)" 'error: rank 2 \(n1\) of 4 did not come to exchange card' "its node is named, though it never started"
lost 'kill -9 $$'
is "$((rc != 0))" 1 "a rank was killed: srun returns no 0"
like "$(cat err)" 'error: rank 2 \(n1\) of 4 did not come to exchange card' "its node is named"
like "$(cat err)" "srun: error: n0: tasks? 0.*: Exited with exit code 7" "the others end with status 7"
lost 'kill -STOP $$'
is $rc 7 "a rank was stopped: status 7"

have chex-env || skip_all "chex-env is not built"
expect_status 0 in_job "${four[@]}" chex-env -v
like "$(out)" "^launch +pass +pmi2 \(srun --mpi=pmi2; PMIX_NAMESPACE is not set\), 4 ranks on 2 nodes, job [0-9]+" \
    "chex-env says which method is in use and why"
like "$(out)" "^rank 3/4, n1, local 1/2" "ranks know their nodes"
expect_status 0 in_job --mpi=none -n1 chex-env -v
like "$(out)" "^launch +pass +slurm \(a task of srun; neither PMIX_NAMESPACE nor PMI_FD is of this step\), 1 rank" \
    "so for a task without PMI"

have chex-shard || skip_all "chex-shard is not built"
chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q >/dev/null || exit 1
for mpi in pmix pmi2; do
    in_job --mpi=$mpi "${four[@]:1}" chex-shard --images ph/images --labels ph/labels.csv --split patient --size 32 \
        --shards 4 --workers 1 --output $mpi -q >$mpi.log 2>&1 || fail "shards by $mpi: $(cat $mpi.log)"
done
is "$(cd pmi2 && sha256sum ./*/*.h5)" "$(cd pmix && sha256sum ./*/*.h5)" "shards have the same bytes as with PMIx"
done_testing
