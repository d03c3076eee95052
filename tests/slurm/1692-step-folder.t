#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Without PMIx: a rank that dies or hangs ends the step, and the text names it. A folder that cannot be
# used is refused with the remedy. What an earlier step left is not taken for a value.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154,SC2016
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"
export SLURM_MPI_TYPE=none

# with_rank SIGNAL RANK TIMEOUT_MS: a rank gets a signal while the others wait for it.
with_rank() {
    job "${four[@]}" "$probe" exchange missing="$2" timeout_ms="$3" &
    wait_for eval '[ "$(grep -lsF .card .chexnet-*/[0-3] | wc -l)" = 3 ]'
    # shellcheck disable=SC2046
    kill "-$1" $(processes launch_probe "$2")
    wait $!
}
with_rank KILL 3 60000
like "$(cat err)" 'error: rank 3 \(n1\) of 4 has ended' "a killed rank is named with its node"
like "$(cat err)" '(rank|task)s? [0-9,-]*: Exited with exit code 7' "the others end with status 7"
with_rank KILL 0 60000
like "$(cat err)" 'error: rank 0 \(n0\) of 4 has ended' "so does a killed rank 0"
is "$(find . -name '.chexnet-*')" "" "the others remove the folder"
with_rank STOP 2 1500
like "$(cat err)" 'rank 2 \(n1\) of 4 did not come to exchange card within 1\.5 s' "a stopped rank is named"
left=$(find . -name '.chexnet-*')
is "$(processes launch_probe | wc -l) $(find "$left" -name 2 | wc -l)" "0 1" \
    "Slurm ends a stopped rank; the folder of the killed step remains"

# The first task does what $1 says before the others start.
after() { # COMMAND [OPTION...]
    job "${four[@]}" "${@:2}" sh -c 'd=.chexnet-$SLURM_JOB_ID.$SLURM_STEP_ID.0
        if [ $SLURM_PROCID = 0 ]; then eval "$1"; else sleep 1; fi
        exec "$2" exchange rounds=2' _ "$1" "$probe"
}
after "mkdir -m 700 \$d && cp $left/* \$d"
all "files of an earlier step under the same names do no harm" 4 "$good"
after 'mkdir $d && chown 1234 $d'
is "$rc" 4 "a folder of another user is refused with status 4"
like "$(cat err)" 'folder .*/.chexnet-[0-9.]+: belongs to another user.* set CHEX_STEP_DIR' "the text names folder and remedy"
rm -rf .chexnet-*
after 'mkdir -m 755 $d'
is "$rc $(grep -c 'or others can enter it' err)" "4 4" "so is one that others can enter"
rm -rf .chexnet-*
after 'mkdir -m 700 real && ln -s real $d'
is "$rc $(grep -c 'Not a directory\|symbolic link' err)" "4 4" "a link is not followed"
rm -rf .chexnet-* real
CHEX_STEP_DIR=/sys job "${four[@]}" "$probe" info
is "$rc $(grep -c 'folder /sys/.chexnet-.*: .* set CHEX_STEP_DIR .* or use srun --mpi=pmix' err)" "4 4" \
    "a folder that cannot be written is refused"
mkdir elsewhere
CHEX_STEP_DIR=elsewhere job "${four[@]}" sh -c "ls -A; exec $probe exchange"
is "$rc $(grep -c chexnet- out)" "0 0" "CHEX_STEP_DIR names another place"

# /dev/shm is of each node alone.
CHEX_STEP_DIR=/dev/shm expect_status 4 in_job "${four[@]}" chex-env --timeout 1s
like "$(err)" 'rank 2 \(n1\), 3 \(n1\) of 4 did not come .*; no rank of another node is in folder /dev/shm/' \
    "a folder of each node's own is recognised" || diag "$(err)"
like "$(err)" 'set CHEX_STEP_DIR to a folder that all nodes share, or use srun --mpi=pmix' "the text names the remedy"
unlike "$(err)" 'r1/4' "rank 0 speaks for its node"
done_testing
