#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes the archive that travels to a machine with a GPU. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=../options.sh
. "$root/tests/options.sh"
max_bytes=20000000

usage() {
    cat <<END
usage: tests/gpu/pack.sh [OPTION...]
Makes chexnet-gpu.tar.xz: one folder chexnet-gpu with what tests/gpu/run.sh needs, for a machine that
has a GPU and its driver, and nothing else that it could fetch from:
  prebuilt/  bin/ and lib/ of the build, stripped, with nvcc's records; ABOUT and SHA256SUMS
  the rest   the source of the engine alone, its tests and the PyTorch peer: builds where nvcc is
There:
  tar xf chexnet-gpu.tar.xz        (or: python3 -m tarfile -e chexnet-gpu.tar.xz)
  chexnet-gpu/tests/gpu/run.sh --prebuilt chexnet-gpu/prebuilt --part 1
  --build DIR        a build that is there: DIR/bin and DIR/lib. Without it build/gpu is brought up
                     to date by tests/gpu/run.sh --sections build, which needs nvcc
  --architectures L  targets of that build (90: H100 and H200; 80,86,90,100,120 take longer)
  --output FILE      the archive (build/chexnet-gpu.tar.xz)
Exit status: 0 good, 1 not, or larger than $((max_bytes / 1000000)) MB; 2 usage.
END
}

die() {
    echo "tests/gpu/pack.sh: $1" >&2
    exit 1
}

build='' architectures=90 output=$root/build/chexnet-gpu.tar.xz
read_options "build architectures output" "$@"
no_words

if [ -z "$build" ]; then
    build=$root/build/gpu
    results=$(mktemp -d) || exit 1
    "$root/tests/gpu/run.sh" --sections build --seconds 3600 --build "$build" --out "$results" \
        --architectures "$architectures"
    status=$?
    rm -rf "$results"
    [ $status = 0 ] || die "the build failed, or took more than an hour; the next one continues where it ended"
fi
[ -x "$build/bin/bench-step" ] || die "--build '$build': there is no bin/bench-step"
[ -f "$build/lib/chexnet-cuda.so" ] || die "--build '$build': there is no lib/chexnet-cuda.so"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
tree=$work/chexnet-gpu
mkdir -p "$tree/prebuilt/bin" "$tree/prebuilt/lib" || exit 1

# The tree keeps its layout: tests/gpu/CMakeLists.txt finds the rest from its own place.
(cd "$root" && find CMakeLists.txt LICENSE cmake libcore tests/gpu tests/gpu-dnn tests/op/*.h \
    tests/*.h tests/options.sh tests/peers/torch_gpu.py doc/gpu-day.md -type f ! -name '*.o' ! -path '*/__pycache__/*' \
    -print0 | tar c --null -T -) | tar x -C "$tree" || die "the sources were not copied"

cp "$build"/bin/* "$tree/prebuilt/bin" && cp "$build"/lib/chexnet-cuda.so "$tree/prebuilt/lib" ||
    die "the build was not copied"
strip "$tree"/prebuilt/bin/* "$tree"/prebuilt/lib/* || die "strip failed"
find "$build" -name '*.ptxas' -exec cp {} "$tree/prebuilt" \;
targets=$(sed -n 's/^CHEX_CUDA_ARCHITECTURES:[A-Z]*=//p' "$build/CMakeCache.txt" 2>/dev/null)
{
    echo "commit $(git -C "$root" describe --always --dirty 2>/dev/null || echo none)"
    echo "made $(date -u +%Y-%m-%dT%H:%MZ)"
    echo "targets ${targets//;/,}"
    echo "needs $(objdump -T "$tree"/prebuilt/bin/* "$tree"/prebuilt/lib/* 2>/dev/null |
        grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)"
} >"$tree/prebuilt/ABOUT"
(cd "$tree/prebuilt" && find bin lib -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS) ||
    die "no sums"

# Every program holds the same kernels: a window as large as all of them sees that.
mkdir -p "$(dirname "$output")" &&
    tar c -C "$work" --sort=name --owner=0 --group=0 chexnet-gpu | xz -T1 -9 >"$output.part" &&
    mv "$output.part" "$output" || die "the archive was not written"
bytes=$(stat -c %s "$output")
echo "$output: $((bytes / 1000)) kB, $(find "$tree" -type f | wc -l) files, $(tr '\n' ' ' <"$tree/prebuilt/ABOUT")"
[ "$bytes" -le $max_bytes ] || die "$output has $bytes bytes (expected at most $max_bytes)"
