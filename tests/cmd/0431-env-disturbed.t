#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env --level 2 blames no node while other processes keep every CPU busy.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"
[ -r /proc/stat ] && [ "$(grep -c '^cpu[0-9]' /proc/stat)" -gt 0 ] || skip_all "/proc/stat counts no CPUs"

# Ends the loops by their ids.
loops=()
end_loops() { kill "${loops[@]}" 2>/dev/null; }
at_exit end_loops
for _ in $(seq "$(nproc)") 1; do
    (while :; do :; done) &
    loops+=($!)
done

# The rows of the rates. That of cpu-share is left out: if the host of this virtual machine took time from
# it, that is a fault of the node.
rates() { awk '/^[^ ]/ { rate = $1 ~ /-rate$/ } rate' out; }

cat >want.json <<'END'
{"memory-rate": {"gb_per_s": 1e9}, "compute-rate": {"gflop_per_s": {"limit": 1e9, "spread": 0.01}},
 "step-rate": {"images_per_s": 1e9}}
END
expect_status 0 chex-env --level 2 --timeout 5m --expect want.json --record good.json
like "$(out)" "^step-rate +warn " "a rate below its limit is a warning"
like "$(out)" "^ +disturbed: " "the check says what other processes used"
like "$(out)" "^ +remedy: .* meanwhile: measure again when the node is idle" "the remedy is to measure again when the node is idle"
like "$(out)" "^cpu-share +warn " "the CPUs were shared"
unlike "$(rates)" "fault: node|^[a-z-]+-rate +fail" "the node is not blamed"
like "$(err)" "warn: --record good.json: others used the node while memory-rate, .*step-rate" "--record warns"
is "$(grep -c '"disturbed": true' good.json)" "$(grep -c '"limit":' good.json)" "every recorded limit is marked as disturbed"
expect_status 0 chex-env --mode prolog --level 2 --timeout 5m --expect want.json
unlike "$(rates)" "fault: node|^[a-z-]+-rate +fail" "a prolog blames no node while others use the CPUs"
expect_status 0 chex-env --expect good.json
like "$(err)" "warn: expectations good.json: recorded while others used the node, so the limits are weak: memory-rate, " \
    "limits that were recorded so are warned about"
done_testing
