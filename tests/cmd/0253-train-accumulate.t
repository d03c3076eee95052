#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --accumulate N is --logical-ranks of N times the processes.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
here=(--data set --engine cpu --threads 1)
new=("${here[@]}" --model densenet_tiny --image-size 32 --batch-size 4 --deterministic)
same() { h5diff "$1/last.h5" "$2/last.h5" /params /params >/dev/null; } # RUN RUN

expect_status 0 chex-train "${new[@]}" --max-steps 3 --output ranks --logical-ranks 3
expect_status 0 chex-train "${new[@]}" --max-steps 3 --output batches --accumulate 3
like "$(err)" 'batch 4 x 3 logical ranks = 12 images a step' "one process has N logical ranks"
same ranks batches
ok $? "the bits are those of --logical-ranks"
like "$(cat batches/config.json)" '"accumulate": "3"' "config.json has the option"
expect_status 0 chex-train "${new[@]}" --max-steps 2 --output again --accumulate 3
cp -r again once
expect_status 0 chex-train "${here[@]}" --max-steps 3 --output again
same ranks again
ok $? "a resumed run keeps the logical ranks without the option"
expect_status 0 chex-train "${here[@]}" --max-steps 3 --output once --accumulate 3
same ranks once
ok $? "the option may be given again"
expect_status 2 chex-train "${here[@]}" --max-steps 4 --output once --accumulate 2
error_line 'logical_ranks is 3 in the checkpoint and 2 now' "another number is refused"
expect_status 0 chex-train "${new[@]}" --max-steps 2 --output named --logical-ranks 3
expect_status 0 chex-train "${here[@]}" --max-steps 3 --output named --accumulate 3
same ranks named
ok $? "a run with --logical-ranks goes on with the same number by --accumulate"

if mpi_ranks 2; then
    expect_status 0 "${ranks[@]}" chex-train "${new[@]}" --max-steps 3 --output two --accumulate 1
    like "$(err)" 'batch 4 x 2 logical ranks = 8 images a step' "two processes have 2 N logical ranks"
    expect_status 0 chex-train "${new[@]}" --max-steps 3 --output one --accumulate 2
    same one two
    ok $? "one process that accumulates twice as much has the same bits"
else
    skip "no mpirun here" 4
fi

expect_status 2 chex-train "${new[@]}" --output bad --accumulate 2 --logical-ranks 2
error_line '--accumulate and --logical-ranks: expected one of them' "both together are refused"
CHEX_LOGICAL_RANKS=2 expect_status 2 chex-train "${new[@]}" --output bad --accumulate 2
error_line '--accumulate and --logical-ranks' "also if one comes from the environment"
for n in -1 1.5 x 65537; do
    expect_status 2 chex-train "${new[@]}" --output bad --accumulate "$n"
done
[ ! -e bad ]
ok $? "a refused run writes nothing"
done_testing
