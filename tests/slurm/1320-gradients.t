#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Gradients of emulated GPUs over an emulated NCCL, set up by the real launcher, have the bits of
# the CPU's tree on any number of ranks. The roll call names a rank that stalls or dies.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"
program=$BUILD/tests/gpu-reduce
[ -x "$program" ] || skip_all "built without the emulated GPU: no C++ compiler, or CHEX_TEST_GPU=OFF"

for n in 1 2 4; do
    job -N2 -n$n "$program" none
    all "$n ranks" $n "rank [0-9] of $n: the bits of the CPU's tree"
done

job -N2 -n3 --distribution=cyclic "$program" stalls
is "$((rc != 0))" 1 "a rank stalls: the job ends badly"
like "$(cat out)" 'rank [01] of 3: rank [01] on n[0-9]*, reducing gradients: .*did not end within' "the error names the message that waits"
like "$(cat out)" 'rank 2 \(n[0-9]+\) of 3 did not come to exchange rollcall' "and the rank that is missing"

job -N2 -n3 --distribution=cyclic "$program" dies
is "$((rc != 0))" 1 "a rank dies: the job ends badly"
like "$(cat out)" 'rank 1 \(n[0-9]+\) of 3 did not come to exchange rollcall' "and it is named"
done_testing
