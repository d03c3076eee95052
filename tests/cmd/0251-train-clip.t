#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --clip-norm: the same bits for any number of threads and processes, and the norms in the metrics.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
new=(--data set --model densenet_tiny --image-size 32 --batch-size 4 --deterministic --logical-ranks 2 --epochs 1
    --opt sgd --lr 1e-3)
same() { h5diff "$1/last.h5" "$2/last.h5" /params /params >/dev/null; }                 # RUN RUN
norms() { grep '"kind":"epoch"' "$1/metrics.jsonl" | grep -o '"grad_norm_[^,]*' | tr '\n' ' '; } # RUN

expect_status 0 chex-train "${new[@]}" --engine cpu --threads 1 --output free
is "$(norms free)" '"grad_norm_mean":null "grad_norm_largest":null ' "without the option the norms are null"
expect_status 0 chex-train "${new[@]}" --engine cpu --threads 1 --output wide --clip-norm 1e6
like "$(norms wide)" '^"grad_norm_mean":[0-9.]+ "grad_norm_largest":[0-9.]+ $' "metrics.jsonl has the mean and the largest norm of an epoch"
same free wide
ok $? "a limit that no gradient reaches changes no bit"
expect_status 0 chex-train "${new[@]}" --engine cpu --threads 1 --output clipped --clip-norm 0.1
! same free clipped
ok $? "a limit that gradients exceed changes the parameters"
expect_status 0 chex-train "${new[@]}" --engine cpu --threads 2 --output threads --clip-norm 0.1
same clipped threads && [ "$(norms clipped)" = "$(norms threads)" ]
ok $? "two threads have the bits and the norms of one"
expect_status 0 chex-train "${new[@]}" --engine cpu --threads 1 --output parts --clip-norm 0.1 --max-steps 2
expect_status 0 chex-train --data set --engine cpu --threads 1 --output parts --max-steps 0
like "$(err)" "taken from parts/.*clip-norm '0.1'" "a resumed run takes the limit over"
same clipped parts
ok $? "a resumed run has the bits of one that did not stop"
for x in -1 nan much; do
    expect_status 2 chex-train "${new[@]}" --output bad --clip-norm "$x"
done
[ ! -e bad ]
ok $? "a limit that is no norm is refused before anything is written"
done_testing
