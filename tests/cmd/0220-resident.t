#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --resident makes the same parameters on an emulated GPU if stored images stay there,
# go there with every batch, or are augmented on the CPU.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff chex-train chex-eval chex-shard
export CHEX_LIBDIR=$BUILD/tests/emulated
[ -f "$CHEX_LIBDIR/chexnet-cuda.so" ] || skip_all "no emulated device in this build"

chex-shard phantom --count 12 --size 40 --seed 1 --output ph -q >/dev/null || fail "phantom"
chex-shard create --images ph/images --labels ph/labels.csv --size 40 --shards 2 --split patient \
    --seed 1 --output shards -q || fail "shards"
# Eight images or so in batches of 3: rows that the first epoch leaves over come in the second.
common=(chex-train --data shards --image-size 32 --batch-size 3 --threads 1 --lr 1e-3 --seed 5
    --epochs 2 --max-steps 3 --rotate 20 --contrast 0.3 --antialias --precision fp32)
same() { # FILE FILE NAME
    h5diff "$1" "$2" /params /params
    ok $? "$3"
}

expect_status 0 "${common[@]}" --engine cuda:s0 --output auto
like "$(err)" 'of rows stay in GPU memory from their first batch on' "auto: what is done is said"
unlike "$(err)" 'of rows (kept in memory|read as needed)' "resident rows are not reported as cached in the node's memory"
like "$(err)" "contrast 0.3 \(the engine's kernels\)" "the log names the engine's kernels, not those of the CPU"
expect_status 0 "${common[@]}" --engine cuda:s0 --resident never --output never
like "$(err)" 'given stored rows with every batch \(--resident never\)' "never: that is said"
like "$(err)" 'of rows kept in memory' "--cache works without resident rows"
same auto/last.h5 never/last.h5 "--resident changes no bit"
expect_status 2 "${common[@]}" --resident always --output x
error_line "resident: 'always' is not valid: expected one of auto, never" "a wrong value lists the possible ones"

# Too little of the emulated device's memory for rows that stay; then for any rows.
expect_status 0 env EMULATED_BYTES=1370000000 "${common[@]}" --max-steps 1 --engine cuda:s0 \
    --output small
like "$(err)" 'of rows are uploaded batch by batch: 0 .* of GPU memory is left' "little memory: that is said"
done_testing
