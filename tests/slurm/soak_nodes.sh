#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests of this folder with more nodes than they have by default: the README's lines and the
# jobs over all nodes. Takes a minute or two with 8 nodes.
set -u
usage="usage: soak_nodes.sh [--nodes N] [TEST...]     2 to 16 nodes, 8 if not given; TEST: a file of tests/slurm"
here=$(cd "$(dirname "$0")" && pwd)
export CHEX_TEST_NODES=8
if [ "${1-}" = --nodes ]; then
    CHEX_TEST_NODES=${2:?$usage}
    shift 2
fi
[[ ${1-} != -* ]] || { echo "$usage" && exit 2; }
[ $# -gt 0 ] || set -- "$here/1500-readme.t" "$here/1660-nodes.t"
failed=0
for script; do
    echo "# ${script##*/}, $CHEX_TEST_NODES nodes"
    bash "$script" || failed=1
done
exit $failed
