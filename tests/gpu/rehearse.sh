#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Rehearses a day on a GPU on the emulated device. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=../options.sh
. "$root/tests/options.sh"

usage() {
    cat <<END
usage: tests/gpu/rehearse.sh [--build DIR] [--nvcc]
Packs the tests on the emulated device as tests/gpu/pack.sh packs those of a GPU, unpacks the archive
in an empty folder, and runs tests/gpu/run.sh --prebuilt there: the three parts of ten minutes, each
under timeout 600, on the smallest shapes; then each section once more, ended by a signal in its
middle. nvidia-smi, PyTorch, ncu and compute-sanitizer are replaced by scripts. Takes some minutes.
  --build DIR  build folder with the emulated device (build/dev): targets chexnet-cuda-emulated,
               gpu-bench-step, gpu-bench-train, gpu-bench-kernels and the tests gpu-*
  --nvcc       also packs the source, builds it there by nvcc for 9.0, and compares the compiler's
               options of a kernel with those of the preset release
Exit status: 0 good, 1 not, 2 usage.
END
}

build=$root/build/dev nvcc=''
read_options "build nvcc+" "$@"
no_words
[ -x "$build/tests/gpu-bench-step" ] ||
    usage_error "--build '$build': there is no tests/gpu-bench-step"
build=$(cd "$build" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
check() { # STATUS TEXT
    if [ "$1" = 0 ]; then
        echo "passed: $2"
    else
        echo "FAILED: $2"
        failed=$((failed + 1))
    fi
}
program() {
    mkdir -p "$(dirname "$1")" && { echo '#!/bin/bash' && cat; } >"$1" && chmod +x "$1"
}

# ---- what the machine has ----
program "$work/tools/nvidia-smi" <<<'echo "emulated GPU, 9.0, 580.1, 81559 MiB"'
# Runs what it watches.
program "$work/tools/compute-sanitizer" <<<'while [ "${1#--}" != "$1" ]; do shift 2; done; exec "$@"'
program "$work/tools/ncu" <<'END'
while [ "$1" != --launch-count ]; do [ "$1" != --kernel-name ] || kernel=$2; shift; done
shift 2
"$@" || exit
echo '"ID","Kernel Name","Block Size","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value"'
echo "\"0\",\"$kernel(int)\",\"(256, 1, 1)\",\"(132, 1, 1)\",\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"12.5\""
END
program "$work/tools/python3" <<'END'
case $1 in
--version) echo "Python 3" ;;
-c) [[ $2 != *metadata* ]] || echo "torch 2 " ;;
*) while read -r mode batch size; do
        echo "{\"kind\": \"torch\", \"mode\": \"$mode\", \"images_per_s\": 99.5, \"step_ms\": 10.1, \"device_ms\": 9.9}"
    done ;;
esac
END

# ---- the archive ----
mkdir -p "$work/emulated/bin" "$work/emulated/lib" "$work/empty"
for file in "$build"/tests/gpu-*; do
    name=${file##*/}
    case $name in
    gpu-bench-*) cp "$file" "$work/emulated/bin/${name#gpu-}" ;;
    gpu-dnn-algos) cp "$file" "$work/emulated/bin/gpu-dnn_algos" ;;
    gpu-dnn* | gpu-races-* | gpu-emulated | gpu-hopper | gpu-reduce | gpu-wgmma) ;; # no programs of a real device
    *) cp "$file" "$work/emulated/bin" ;;
    esac
done
cp "$build/tests/emulated/chexnet-cuda.so" "$work/emulated/lib"
"$root/tests/gpu/pack.sh" --build "$work/emulated" --output "$work/chexnet-gpu.tar.xz"
check $? "the archive is made"
tar xf "$work/chexnet-gpu.tar.xz" -C "$work/empty"
check $? "the archive unpacks"
cd "$work/empty" || exit 1
run() { PATH=$work/tools:$PATH chexnet-gpu/tests/gpu/run.sh --prebuilt chexnet-gpu/prebuilt --rehearse "$@"; }

# valid FILE: every line of it is JSON.
valid() {
    PATH=${PATH#"$work/tools:"} python3 -c 'import json, sys
for line in open(sys.argv[1]):
    json.loads(line)' "$1"
}

for part in 1 2 3; do
    since=$SECONDS
    export -f run && export work
    timeout -k 5 600 bash -c "run --part $part --out out-$part" >"part-$part.txt" 2>&1
    status=$?
    sed '1,/^== results/d' "part-$part.txt"
    [ $status = 0 ] || [ $status = 77 ]
    check $? "part $part in $((SECONDS - since)) s (exit status $status)"
    valid "out-$part/results.json"
    check $? "part $part: every line of the results is JSON"
done
grep -q '^graphs: with and without .*passed' out-1/table.txt
check $? "s4 with and without graphs: the same losses"

# Each section, ended as soon as its first program runs.
program "$work/hang" <<<'touch "$HERE"; exec sleep 100'
export HERE=$work/begun
for section in smoke shapes graphs s5 kernels tests headline train torch steps profile sanitizer stages dnn long; do
    rm -rf broken "$HERE" && cp -r chexnet-gpu/prebuilt broken && rm -f broken/SHA256SUMS
    for file in broken/bin/*; do cp "$work/hang" "$file"; done
    PATH=$work/tools:$PATH chexnet-gpu/tests/gpu/run.sh --prebuilt broken --rehearse --out "cut-$section" \
        --sections "about,$section" >"cut-$section.txt" 2>&1 &
    pid=$!
    for _ in {1..100}; do [ -e "$HERE" ] && break || sleep 0.1; done
    kill $pid
    wait $pid
    [ $? = 124 ] && grep -q '^device .*emulated GPU' "cut-$section/table.txt" &&
        grep -q '^all .*ended by a signal' "cut-$section/table.txt" && valid "cut-$section/results.json"
    check $? "$section ended by a signal keeps table and results"
done

# flags FOLDER: the options of conv_1x1.cu without paths.
flags() {
    grep -o '"command": "[^"]*conv_1x1\.cu[^"]*"' "$1/compile_commands.json" | tr ' ' '\n' |
        grep -E '^-' | grep -vE '^-(o|c|I|isystem|MD|MT|MF|x|forward)|-DCHEXNET_(MODULE|VERSION|COMPILER)' | sort -u
}
if [ -n "$nvcc" ]; then
    chexnet-gpu/tests/gpu/run.sh --sections build,ptxas --seconds 1800 --architectures 90 --out out-build
    check $? "the source of the archive builds where it is unpacked"
    [ -x chexnet-gpu/build/gpu/bin/bench-step ]
    check $? "the build has bench-step"
    cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON chexnet-gpu/build/gpu >/dev/null &&
        (cd "$root" && cmake --preset release -B "$work/product" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
            -DCHEX_CUDA_ARCHITECTURES=90 >/dev/null)
    check $? "both builds configure"
    flags chexnet-gpu/build/gpu >flags-here
    flags "$work/product" >flags-product
    [ -s flags-here ] && diff flags-here flags-product
    check $? "a kernel is compiled with the options of the preset release"
fi
echo "$failed failed"
[ $failed = 0 ]
