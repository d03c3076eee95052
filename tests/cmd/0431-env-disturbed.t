#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env --level 2 blames no node while other processes keep the CPU busy.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"
[ -r /proc/stat ] && [ "$(grep -c '^cpu[0-9]' /proc/stat)" -gt 0 ] || skip_all "/proc/stat counts no CPUs"

# One CPU is enough, and cheaper.
need taskset
taskset -cp "$(sed -n 's/^Cpus_allowed_list:\s*\([0-9]*\).*/\1/p' /proc/self/status)" $$ >/dev/null ||
    skip_all "no process can be bound here"

(while :; do :; done) &
loop=$!
at_exit eval "kill $loop 2>/dev/null"

# The rows of the rates of the node. That of cpu-share is left out: if the host of this virtual machine
# took time from it, that is a fault of the node.
rates() { awk '/^[^ ]/ { rate = $1 ~ /-rate$/ && $1 != "data-rate" } rate' out; }

cat >want.json <<'END'
{"memory-rate": {"gb_per_s": 1e9}, "compute-rate": {"gflop_per_s": {"limit": 1e9, "spread": 0.01}},
 "step-rate": {"images_per_s": 1e9}}
END
expect_status 4 chex-env --level 2 --timeout 5m --expect want.json --record good.json --data nosuch
like "$(out)" "^data-rate +fail +.*nosuch" "a folder without shards is reported"
like "$(out)" "remedy: pass the folder that chex-shard wrote with --data" "a missing or wrong folder of shards has a remedy"
like "$(out)" "^step-rate +warn " "a rate below its limit is a warning"
like "$(out)" "^ +disturbed: " "the check says what other processes used"
like "$(out)" "^ +remedy: .* meanwhile: measure again when the node is idle" "the remedy is to measure again when the node is idle"
like "$(out)" "^cpu-share +warn " "the CPUs were shared"
unlike "$(rates)" "fault: node|^[a-z-]+-rate +fail" "the node is not blamed"
like "$(err)" "warn: --record good.json: others used the node while memory-rate, .*step-rate" "--record warns"
is "$(grep -c '"disturbed": true' good.json)" "$(grep -c '"limit":' good.json)" "every recorded limit is marked as disturbed"
expect_status 0 chex-env --mode prolog --level 2 --timeout 5m --expect want.json
unlike "$(rates)" "fault: node|^[a-z-]+-rate +fail" "a prolog blames no node while others use the CPUs"
kill $loop
expect_status 0 chex-env --expect good.json
like "$(err)" "warn: expectations good.json: recorded while others used the node, so the limits are weak: memory-rate, " \
    "limits that were recorded so are warned about"
done_testing
