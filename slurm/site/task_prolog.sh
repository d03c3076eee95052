#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# TaskProlog of slurm.conf, for sites without the SPANK plugin. Runs as the user in each task. Does
# nothing unless the job has CHEXNET_PREFLIGHT=1 or 2: then chex-env checks the step before the
# program. If it fails, the task ends with chex-env's status and the node stays in service.
#
# Slurm prints what follows "print" and sets what follows "export".
case ${CHEXNET_PREFLIGHT-} in
1 | 2) ;;
'' | 0) exit 0 ;;
*)
    echo "print CHEXNET_PREFLIGHT: '$CHEXNET_PREFLIGHT' is no level of the preflight (0, 1 or 2)"
    exit 2
    ;;
esac
here=$(dirname "$(readlink -f "$0")")
# Both are for the program: the file for its status, and the connection to PMI, which is not open here.
unset CHEX_STATUS_FILE PMI_FD
table=$("${here%/*/*/*}/bin/chex-env" --level "$CHEXNET_PREFLIGHT")
status=$?
[ -z "$table" ] || printf '%s\n' "$table" | sed 's/^/print /'
# MPI cannot start as the second client of PMIx without this.
[ -n "${PMIX_MCA_gds-}" ] || echo "export PMIX_MCA_gds=hash"
exit $status
