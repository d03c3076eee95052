#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks on a machine without Slurm: mpirun, prterun and mpiexec.hydra start them, and a rank that cannot
# reach the others is refused.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"
export NO_COLOR=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

# starts METHOD REASON COMMAND...: as two ranks.
starts() {
    expect_status 0 "${@:3}" chex-env -v
    like "$(out)" "^launch +pass +$1$2, 2 ranks on 1 node$" "$3 starts two ranks by $1"
    like "$(out)" "^rank 1/2, .*, local 1/2, " "$3: the ranks are on one node"
}
for launcher in mpirun prterun; do
    if have $launcher; then
        starts pmix "" $launcher --oversubscribe --bind-to none -n 2
    else
        skip "no $launcher" 4
    fi
done

have mpiexec.hydra || { skip "no mpiexec.hydra" && done_testing; }
starts pmi2 " \(PMI_FD is set; PMIX_NAMESPACE is not set\)" mpiexec.hydra -n 2
expect_status 7 mpiexec.hydra -n 3 "$BUILD/tests/launch_probe" exchange missing=1 timeout_ms=1500
like "$(err)" "error: rank 1 \\(.*\\) of 3 did not come to exchange card within 1\\.5 s" \
    "a rank that hangs is named, and the job ends with status 7"
expect_status 4 mpiexec.hydra -n 2 sh -c 'PMI_FD=99 exec chex-env'
like "$(out)" "^launch +fail +PMI_FD=99: no open socket, so rank [01] of 2 cannot reach the others" \
    "ranks without the launcher's socket are refused, not started alone"
expect_status 4 mpiexec.hydra -n 2 sh -c 'chex-env >first 2>&1; exec chex-env'
like "$(out)" "^launch +fail +start: the PMI server of this node is gone: " "so is a second command under one mpiexec"
done_testing
