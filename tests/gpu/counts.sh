#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Counts, bounds and occupancy of the CUDA engine's kernels without a GPU. --help says more.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() {
    cat <<END
usage: tests/gpu/counts.sh [--build FOLDER] [--out FOLDER] [--ptxas FOLDER] [DEVICE...]
Counts a training step of DenseNet-121 (256 images of 224 px, bf16) with the launches of each device
(A100, L40S, H100, H200, B200) on the emulated device, and prints the times that the counts allow by
the device's data sheet: a model. Takes one to two minutes of a processor for each device. It builds
gpu-counts in --build (build/counts) first.
  --out    here go DEVICE.txt and DEVICE.json, all counts of each kernel (BUILD/counts)
  --ptxas  a build of the kernels with the records of ptxas (*.ptxas): prints, for each kernel of the
           step, how many blocks fit a multiprocessor by registers, shared memory and threads
--variant s5, --size, --batch and --model are given to gpu-counts.
Exit status: 0 done, 1 failed, 2 usage.
END
}
die() { echo "counts.sh: $1" >&2 && exit 2; }

build=$root/build/counts out='' ptxas='' devices=() more=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --build | --out | --ptxas | --variant | --size | --batch | --model)
        [ $# -gt 1 ] || die "$1 needs a value"
        case $1 in
        --build) build=$2 ;;
        --out) out=$2 ;;
        --ptxas) ptxas=$2 ;;
        *) more+=("$1" "$2") ;;
        esac
        shift
        ;;
    -*) die "unknown option '$1'; try --help" ;;
    *) devices+=("$1") ;;
    esac
    shift
done
out=${out:-$build/counts}
[ ${#devices[@]} -gt 0 ] || devices=(A100 L40S H100 H200 B200)
[ -z "$ptxas" ] || [ -n "$(find "$ptxas" -name '*.ptxas' -print -quit)" ] ||
    die "$ptxas: no records of ptxas (*.ptxas)"

# occupancy COUNTS REGISTERS: one line for each kernel in both, for its launch with most shared
# memory. Registers are given to warps in units of 256, and 65,536 belong to a multiprocessor; warps
# come in fours.
occupancy() {
    awk '
    function value(name,    at) {
        if (!match($0, "\"" name "\": [0-9]+"))
            return 0
        at = RSTART + length(name) + 4
        return substr($0, at, RSTART + RLENGTH - at) + 0
    }
    function least(a, b) { return a < b ? a : b }
    FNR == NR {
        name = $0
        sub(/^ *[0-9]+ registers +[0-9]+ shared +[^ ]+ +(void )?/, "", name)
        gsub(/\(anonymous namespace\)::/, "", name)
        name = substr(name, 1, length(name) - index_back(name))
        registers[name] = $1
        fixed[name] = $3
        next
    }
    /"shared_max"/ {
        shared_max = value("shared_max")
        most = value("sm_threads") / 32
    }
    /"kernel"/ {
        match($0, /"kernel": "[^"]*"/)
        name = substr($0, RSTART + 11, RLENGTH - 12)
        threads[name] = value("threads")
        shared[name] = value("shared_bytes") > shared[name] ? value("shared_bytes") : shared[name]
    }
    END {
        for (name in threads) {
            if (!(name in registers))
                continue
            warps = int((threads[name] + 31) / 32)
            each = int((registers[name] * 32 + 255) / 256) * 256
            by_registers = int(int(65536 / each / 4) * 4 / warps)
            by_shared = int((shared_max + 1024) / (shared[name] + fixed[name] + 1024))
            by_threads = int(most / warps)
            blocks = least(by_registers, least(by_shared, by_threads))
            printf "%4d %8d %5d %7d %9d %8d %10.0f %%  %s\n", registers[name],
                shared[name] + fixed[name], threads[name], by_registers, by_shared, by_threads,
                100 * blocks * warps / most, name
        }
    }
    function index_back(text,    i) {
        for (i = length(text); i > 0 && substr(text, i, 1) != "("; i--)
            ;
        return length(text) - i + 1
    }' "$2" "$1" | sort -k7,7n -k8 |
        sed '1i regs   shared thr.  blocks by registers, shared memory, threads; occupancy; kernel'
}

cmake --preset release -B "$build" -S "$root" -DCHEX_BUILD_TESTS=ON -DCHEX_WITH_CUDA=OFF \
    -DCHEX_TEST_RACES=ON >"$build.log" 2>&1 || { cat "$build.log" && exit 1; }
cmake --build "$build" -j "$(nproc)" --target gpu-counts >"$build.log" 2>&1 ||
    { cat "$build.log" && exit 1; }
rm -f "$build.log"
mkdir -p "$out"
for device in "${devices[@]}"; do
    "$build/tests/gpu-counts" --device "$device" --json "$out/$device.json" ${more[@]+"${more[@]}"} |
        tee "$out/$device.txt"
    [ -n "$ptxas" ] || continue
    target=$(sed -n 's/.*"capability": \([0-9]*\).*/\1/p' "$out/$device.json")
    "$root/tests/gpu/ptxas.sh" --list "$ptxas" | grep -w "sm_$target" | c++filt >"$out/registers" || true
    printf '\n'
    occupancy "$out/$device.json" "$out/registers" | tee -a "$out/$device.txt"
done
