#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The exchange works on a cluster whose PMIx fence does not always reach the other nodes:
# TreeWidth above the number of nodes (Slurm's default).
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --set TreeWidth=50
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"

check_exchange "TreeWidth=50"
check_notes "TreeWidth=50"
# With this fence nothing at all is synchronised across nodes.
export SLURM_PMIX_FENCE=tree
check_exchange "tree fence"
check_notes "tree fence"
done_testing
