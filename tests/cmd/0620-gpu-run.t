#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run.sh continues after a program fails, hangs or is missing, and writes table and
# records however it ends. The programs are fakes.
source "$(dirname "$0")/lib.sh"
script=$SOURCE/tests/gpu/run.sh
[ -r "$script" ] || skip_all "no source tree here"
mkdir -p tools build/bin build/lib
export PATH=$SCRATCH/tools:$PATH TMPDIR=$SCRATCH
unset OUT

# program PATH: what it does comes from standard input.
program() {
    { echo '#!/bin/bash' && cat; } >"$1" && chmod +x "$1"
}
program tools/nvidia-smi <<<'echo "NVIDIA \"Test\", 9.0, 580.1, 81559 MiB"'
program tools/python3 <<'END'
case $1 in
--version) echo "Python 3" ;;
-c) [[ $2 != *metadata* ]] || echo "torch 2 " ;;
*) # torch_gpu.py --serve
    while read -r mode batch size; do
        case $mode in
        eager | channels_last | max-autotune) echo "{\"kind\": \"torch\", \"images_per_s\": 123.4}" ;;
        graph) exit 3 ;;
        esac
    done
    ;;
esac
END
program build/bin/gpu-a-good <<<'echo "= row of a test|12"'
program build/bin/gpu-b-bad <<<'echo "ok 1 - x"; echo "not ok 2 - the \"sum\" \\ is off"; exit 1'
program build/bin/gpu-c-crash <<<'echo "# now: op 3 conv0"; kill -SEGV $$'
program build/bin/gpu-d-skip <<<'echo "skipped: no CUDA device: none"; exit 77'
program build/bin/bench-kernels <<<'echo "= ceilings|1"'
program build/bin/bench-assumptions <<<'echo "= s5 assumes wgmma|ok"'
program build/bin/bench-step <<'END'
while [ $# -gt 1 ]; do [ "$1" = --json ] && echo "{\"kind\": \"step\"}" >>"$2"; shift; done
END
program build/bin/bench-train <<'END'
while [ $# -gt 1 ]; do
    case $1 in
    --engines) engine=${2##*,} ;;
    --json) echo "{\"kind\": \"train\", \"engine\": \"$engine\", \"loss\": [0.7, ${LOSS-0.6$CHEX_CUDA_GRAPHS}]}" >>"$2" ;;
    esac
    shift
done
END
run() { bash "$script" --build build --out results "$@"; }
# Every line of the results is JSON; those of kind $1.
records() {
    if have python3 && ! without PYTHON; then
        PATH=${PATH#*:} python3 -c 'import json, sys
for line in open("results/results.json"):
    r = json.loads(line)
    if r["kind"] == sys.argv[1]:
        print(*(r[k] for k in sys.argv[2:]), sep="|")' "$@"
    fi
}

expect_status 1 run --sections about,tests,ptxas,kernels,train
like "$(out)" '^device +NVIDIA "Test", 9.0, 580.1, 81559 MiB +20[0-9-]+T' "the device, and the date"
like "$(out)" '^row of a test +12$' "a program's own row"
like "$(out)" '^test b-bad +FAILED .*not ok 2 - the "sum" . is off' "a failure with its words"
like "$(out)" '^test c-crash +FAILED .* at op 3 conv0' "a crash, and what it was at"
like "$(out)" '^test d-skip +skipped .*no CUDA device' "a skip with its words"
like "$(out)" '^ptxas +skipped .*no records of nvcc' "a build from elsewhere has no records of ptxas"
like "$(out)" '^kernels: fp32 +passed' "the sections after a failure run"
like "$(out)" '^short training +passed' "the programs run to the last one"
like "$(out)" '^2 failed, 2 skipped, [0-9]+ s$' "all counted"
is "$(out | sed '1,/^== results/d' | sed '$d')" "$(cat results/table.txt)" "the table is kept"
if have python3 && ! without PYTHON; then
    is "$(records verdict name verdict | grep -E 'b-bad|c-crash|d-skip' | tr '\n' ' ')" \
        "test b-bad|FAILED test c-crash|FAILED test d-skip|skipped " "each verdict is a record"
    is "$(records verdict text | grep off)" 'not ok 2 - the "sum" \ is off' "the records have the text of a failed check"
    like "$(records about device date python)" '^NVIDIA "Test", .*\|20[0-9-]+T[0-9:]+Z\|torch 2' "the records have the machine"
else
    skip "no python3" 3
fi

# What hangs is ended when the time is over; PyTorch may die or hang.
rm build/bin/gpu-*
program build/bin/gpu-e-hang <<<'echo "# now: op 7 conv1 by 3x3"; sleep 300'
expect_status 1 run --sections tests,steps --seconds 10
like "$(out)" '^test e-hang +FAILED \(ran past its limit\) .*now: op 7 conv1' "a hang is ended, and named"
like "$(out)" '^step cuda:s4@bf16, batch 256, 224 px +skipped +0 s +no time is left' "a step without time left is skipped"
rm build/bin/gpu-*
expect_status 0 run --sections torch --seconds 60 --batches 16 --sizes 224 --rounds 2 --torch-modes eager,graph
is "$(out | grep -c '^torch eager 16 224  *123 images/s')" 2 "PyTorch in turns with the engine"
is "$(grep -c '^step cuda:s4@bf16, batch 16, 224 px  *passed' results/table.txt)" 2 "every step is in the table"
like "$(out)" '^torch graph 16 224 +no answer, given up after [01] s' "a mode that ends it is given up at once"
like "$(out)" '^torch +passed .*given up: graph$' "the summary says what PyTorch gave up"

# The first minutes: what is wanted most comes first. Graphs may change no bit. A warning is a row.
program build/bin/gpu-device <<<'echo "warn: a capture failed"'
expect_status 1 run --sections graphs
like "$(out)" '^graphs: with and without +FAILED .*losses with graphs \[0.7, 0.6\]' "losses that graphs change fail"
export LOSS=0.6
expect_status 0 bash "$script" --prebuilt build --out results --part 1 --sizes 224 --batches 16 \
    --rounds 1 --torch-modes eager,channels_last
is "$(out | sed '1,/^== results/d' | sed -nE 's/ +passed .*//p' | head -n 12 | tr '\n' ';')" \
    "smoke: device;step cuda:s4@bf16, batch 16, 224 px;shapes: losses at 128 images of 224 px;graphs: 12 steps;graphs: without;graphs: with and without;s5: what it assumes;s5: 12 steps;s5: losses at 128 images of 224 px;step cuda:s5@bf16, batch 16, 224 px;kernels: own;kernels: s5;" \
    "the step of s4 comes first, then its results, graphs, s5 and the kernels"
like "$(out)" '^s5 assumes wgmma +ok' "the first minutes have what s5 assumes, a line each"
like "$(out)" '^smoke: device +warned +a capture failed' "a warning of the engine is in the table"
like "$(out)" '^step cuda:s4@bf16, batch 16, 224 px, infer 1 +passed' "the headline has inference"
like "$(out)" '^torch channels_last 16 224 ' "the headline has PyTorch's fast modes"
expect_status 0 run --sections torch,steps,long --sizes 224 --batches 16 --rounds 1 --torch-modes eager,max-autotune
like "$(out | tr '\n' ' ')" '== results .*torch eager 16 224 .*CHEX_CUDA_DEPENDENT=0 CHEX_CUDA_SIDE=0 +passed.*torch max-autotune' \
    "dependent launches and the second stream are measured off together, long modes of PyTorch last"
rm build/bin/gpu-device

# The profiler's figures are rows; what a slow tool has not finished is no failure.
program tools/ncu <<'END'
while [ "$1" != --kernel-name ]; do shift; done
[ "$2" = conv3_product ] || exit 0
echo "==PROF== Connected"
echo '"ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value"'
row='"0","void conv3_product<1>(args, int)","(256, 1, 1)","(132, 1, 1)"'
echo "$row,\"GPU Speed Of Light Throughput\",\"DRAM Throughput\",\"%\",\"55.2\""
echo "$row,\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"1,012.5\""
END
program tools/compute-sanitizer <<<'sleep 100'
expect_status 0 run --sections profile
like "$(out)" '^profile conv3_product<1> +grid \(132, 1, 1\) +1012.5 us +DRAM 55.2 %' "a profiled launch is a row"
expect_status 77 run --sections sanitizer --seconds 10
like "$(out)" '^memcheck of steps +not finished' "a sanitizer that runs past its limit has not finished"
rm tools/ncu tools/compute-sanitizer

# A build that came from elsewhere.
(cd build && sha256sum bin/bench-step >SHA256SUMS && echo "targets 80,90" >ABOUT)
expect_status 0 bash "$script" --prebuilt build --out results --sections build,steps --sizes 224 --batches 16
like "$(out)" '^build +prebuilt +targets 80,90' "a prebuilt tree is used as it is"
echo >>build/bin/bench-step
expect_status 1 bash "$script" --prebuilt build --out results --sections build
like "$(out)" '^prebuilt +FAILED .*bench-step' "a prebuilt tree that was changed is reported"
rm build/SHA256SUMS build/ABOUT

# A signal, a driver that does not answer, options.
program build/bin/gpu-hang <<<'echo $$ >pid; exec sleep 300'
bash "$script" --build build --out results --sections tests >said.txt 2>&1 &
ended=$!
wait_for test -s pid
kill $ended
wait $ended
is $? 124 "a signal ends it"
like "$(cat said.txt)" '^all +ended by a signal' "an interrupted run writes its table"
ended() { ! kill -0 "$(cat pid)" 2>/dev/null; }
wait_for ended
ok $? "the programs that it started have ended"
like "$(cat results/table.txt)" '^row of a test +12$' "later runs append to the results"

# Killed without a warning: what came before is there.
rm pid
setsid bash "$script" --build build --out killed --sections about,tests >/dev/null 2>&1 &
ended=$!
wait_for test -s pid
kill -KILL -- -$ended
wait $ended 2>/dev/null
kill -KILL "$(cat pid)" 2>/dev/null
like "$(cat killed/table.txt)" '^device +NVIDIA' "a killed run has its rows so far"
like "$(cat killed/results.json)" '^\{.*"kind": "about".*\}$' "a killed run has its records so far"
rm build/bin/gpu-*
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    program tools/nvidia-smi <<<'echo "NVIDIA-SMI has failed because it could not reach the driver, 1"; exit 9'
    expect_status 77 run --sections about,tests,torch
    like "$(out)" '^device +none found by nvidia-smi' "a failing nvidia-smi counts as no device"
    like "$(out)" '^tests +skipped +0 s +no NVIDIA device or driver here' "tests that need a device are skipped without one"
else
    skip "there is a device here" 3
fi
expect_status 2 run --part 4
done_testing
