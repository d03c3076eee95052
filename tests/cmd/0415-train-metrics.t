#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --metrics, and the energy of a run in all places that have it.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
train=(chex-train --data set --model densenet_tiny --image-size 32 --batch-size 8 --threads 1)
valid() {
    local tool=promtool
    ! have $tool || $tool check metrics <"$1" >log 2>&1
    ok $? "promtool accepts $1" || diag "$(cat log)"
}
value() { sed -n "s/^chexnet_train_$1{[^}]*} //p" "$2"; }
# Without RAPL, which a root of bare metal could read, the energy of nodes is unknown.
expect_status 0 "${train[@]}" --engine cpu --epochs 2 --output run --metrics new/run.prom --json
valid new/run.prom
is "$(value exit_status new/run.prom) $(value step new/run.prom) $(value planned_steps new/run.prom)" "0 6 6" "at the end the metrics have exit status and steps"
near "$(value last_checkpoint_timestamp_seconds new/run.prom)" "$(stat -c %Y run/last.h5)" 2 "the metrics have the time of the newest checkpoint"
near "$(value loss new/run.prom)" "$(sed -n 's/.*"step":6,"loss":\([0-9.]*\),.*"step_ms".*/\1/p' run/metrics.jsonl)" 1e-6 \
    "the metrics have the loss of the last step"
like "$(cat new/run.prom)" '^chexnet_train_loss\{host="[^"]+",run="run"\} ' "the metrics name host and run"

# A run that is going on, and loses the folder of its metrics.
"${train[@]}" --engine cpu --epochs 100000 --output long --metrics lost/long.prom -q 2>err &
pid=$!
wait_for [ -e lost/long.prom ]
is "$(value exit_status lost/long.prom)" -1 "the metrics say that the run is going on"
like "$(value images_per_second lost/long.prom)" '^[0-9.e+]+$' "the metrics have the speed"
rm -r lost
wait_for grep -qs '"step":3,' long/metrics.jsonl
kill -TERM $pid
wait $pid
is $? 6 "a run whose metrics cannot be written goes on"
is "$(grep -c 'warn: --metrics: .*lost/long.prom.*; the run goes on without it' err)" 1 "it warns once"
expect_status 4 "${train[@]}" --engine cpu --max-steps 1 --output x --metrics new
error_line 'cannot create new: it is a folder' "a folder is refused for the metrics"
[ ! -e x ]
ok $? "the refusal leaves no run"

# Energy of a GPU that draws 100 W, by the stand-in of NVML.
fake=$BUILD/tests/fake
if [ -f "$fake/nvml.so" ] && [ -f "$fake/chexnet-cuda.so" ]; then
    sed '/^gpu /a energy 7000000' "$SOURCE/tests/data/gpu/own.txt" >gpu.txt
    export CHEX_NVML=$fake/nvml.so CHEX_LIBDIR=$fake FAKE_NVML=$PWD/gpu.txt
    expect_status 0 "${train[@]}" --engine cuda --epochs 2 --output gpu --metrics new/gpu.prom --json
    joules=$(value gpu_energy_joules new/gpu.prom)
    like "$joules" '^[0-9]+(\.[0-9]+)?$' "the metrics have the energy of the GPUs"
    like "$(err)" '  energy of 1 GPU: [0-9.e-]+ kWh$' "the end of the run states its energy"
    for file in out gpu/provenance.json; do
        near "$(tr -d ' \n' <$file | sed 's/.*"energy":{"gpu_joules":\([0-9.]*\),"gpus":1,.*/\1/')" "$joules" 1e-3 "$file has the energy"
    done
    expect_status 0 chex-eval --data set --checkpoint gpu/best.h5 --engine cpu --bootstrap 0 --output eval -q
    expect_status 0 chex-eval card --evaluation eval --output card.md
    near "$(sed -n 's/^| training gpu joules | \(.*\) |$/\1/p' card.md)" "$joules" 0.01 "the card has the energy of the training"
    expect_status 0 "${train[@]}" --engine cuda --epochs 3 --output gpu
    is "$(grep -c '"gpu_joules"' gpu/provenance.json)" 2 "each start has its energy"
    sed '/^gpu /a energy 7000000' "$SOURCE/tests/data/gpu/two-h200.txt" >two.txt
    mkdir lib
    ln -s "$fake/chexnet-cuda.so" "$BUILD/lib/chexnet-mpi.so" lib/
    if [ -e lib/chexnet-mpi.so ] && mpi_ranks 2; then
        FAKE_NVML=$PWD/two.txt CHEX_LIBDIR=$PWD/lib expect_status 0 "${ranks[@]}" "${train[@]}" --engine cuda --max-steps 2 --output two --json
        like "$(out)" '"energy":\{"gpu_joules":[0-9.]+,"gpus":2,.*"nodes":1\}' "the GPUs of all ranks are summed"
    else
        skip "no mpirun here" 2
    fi
    sed -i 's/^mig 0/mig 1/' gpu.txt
    expect_status 0 "${train[@]}" --engine cuda --max-steps 1 --output part --json
    like "$(out)" '"energy":(null|\{"gpu_joules":null)' "a part of a GPU has no energy of its own"
else
    skip "the stand-ins are not built" 14
fi

# Energy of a node, by counters in place of those of the kernel.
rapl=/sys/class/powercap/intel-rapl:0
# shellcheck disable=SC2016
if unshare -m bash -c 'mount -t tmpfs none /sys/class && mkdir -p "$0" && echo package-0 >"$0/name" &&
    echo 262143328850 >"$0/max_energy_range_uj" && echo 262143328849 >"$0/energy_uj" && "$@" &
    pid=$!
    for ((uj = 0; 1; uj += 250000)); do
        sleep 0.02
        kill -0 $pid 2>/dev/null || break
        echo $uj >"$0/energy_uj"
    done
    wait $pid' $rapl "${train[@]}" --engine cpu --epochs 2 --output node --json >out 2>err; then
    like "$(err)" '  energy of the processors and memory of 1 whole node: [0-9.e-]+ kWh$' "the end of the run states the energy of the node"
    like "$(out)" '"energy":\{"gpu_joules":null,"gpus":0,"node_joules":[0-9.]+,"nodes":1\}' "a counter that wraps around is summed"
else
    skip "no rights for a mount" 2
fi
done_testing
