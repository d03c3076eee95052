#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env --metrics and --history: a file for node_exporter and a line for each run.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"

# valid FILE: by promtool, where it is installed. tests/unit/metrics.c has a reader of the format.
valid() {
    local tool=promtool
    ! have $tool || $tool check metrics <"$1" >log 2>&1
    ok $? "promtool accepts $1" || diag "$(cat log)"
}
value() { sed -n "s/^$1{[^}]*} //p" "$2"; }

(umask 077 && expect_status 0 chex-env --metrics new/env.prom --history new/env.jsonl)
valid new/env.prom
is "$(stat -c %a new/env.prom) $(stat -c %a new/env.jsonl)" "644 600" "node_exporter can read the metrics whatever the umask"
is "$(ls new)" "env.jsonl
env.prom" "no other file remains in the folder"
is "$(value chexnet_env_exit_status new/env.prom)" 0 "the metrics have the exit status"
near "$(value chexnet_env_run_timestamp_seconds new/env.prom)" "$(date +%s)" 300 "the metrics have the time of the run"
like "$(cat new/env.prom)" '^chexnet_env_check_verdict\{host="[^"]+",check="hdf5"\} 0$' "a check that passes is 0"

echo '{"hdf5": "0.0.0"}' >want.json
expect_status 5 chex-env --expect want.json --metrics new/env.prom --history new/env.jsonl
is "$(value chexnet_env_exit_status new/env.prom)" 5 "a run that fails replaces the metrics"
like "$(cat new/env.prom)" 'check="hdf5"\} 3$' "a check that fails is 3"
is "$(wc -l <new/env.jsonl)" 2 "the history has a line for each run"
like "$(tail -n 1 new/env.jsonl)" '^\{"schema":1,.*"exit_status":5,"checks":\[\{"name":"hdf5",.*"verdict":"fail",[^]]*\],.*"time_unix_s":[0-9.]+,"host":"[^"]+"' \
    "the line has the checks that fail, and the time"

mkdir folder
expect_status 4 chex-env --metrics folder
error_line 'cannot create folder: it is a folder' "a folder is refused for the metrics"
is "$(out)" "" "the refusal comes before the checks"
expect_status 4 chex-env --history want.json/x
error_line 'want.json' "a history that cannot be written is refused"
expect_status 0 chex-env --mode health --metrics want.json/env.prom
like "$(err)" "warn: .*want.json" "metrics that cannot be written drain no node"
if [ -f "$BUILD/tests/fake/nvml.so" ]; then
    mkdir driver
    ln -s "$BUILD/tests/fake/nvml.so" driver/libnvidia-ml.so.1
    FAKE_NVML=$SOURCE/tests/data/gpu/sick.txt LD_LIBRARY_PATH=$PWD/driver \
        expect_status 5 chex-env --mode health --metrics new/env.prom
    like "$(cat new/env.prom)" 'check="gpu-health"\} 3$' "the health check of a sick GPU fails in the metrics"
else
    skip "the stand-in of NVML is not built" 2
fi
done_testing
