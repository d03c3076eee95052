#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The engines and their op tests on aarch64, under emulation. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
compiler=${CHEX_AARCH64_CC:-aarch64-linux-gnu-gcc}

usage() {
    cat <<END
usage: tests/aarch64.sh
Cross-compiles the engines with \$CHEX_AARCH64_CC ($compiler) into build/aarch64 and runs their op
tests under qemu-aarch64 (minutes). Nothing else of the library is built: the engines need neither
HDF5 nor PMIx. Exit status: 0 passed, 1 failed, 77 compiler or emulator missing.
END
}

skip() {
    echo "skipped: $*"
    exit 77
}

# What the engines and their tests call of the other layers; the linker takes what it needs.
sources() {
    local layer
    for layer in engine engine/ref engine/cpu model base; do
        find "$root/libcore/$layer" -maxdepth 1 -name '*.c'
    done | grep -Ev '_(amx|avx2|avx512[a-z0-9]*)\.c$' |
        grep -Ev '/(choose|checkpoint|onnx|safetensors|torch_file|weights|zip|h5|hash|opt)\.c$'
}

# compile SOURCE OBJECT
compile() {
    "$compiler" -std=c11 -O2 -Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off \
        -fno-math-errno -D_GNU_SOURCE -DCHEXNET_VERSION='"test"' -DCHEXNET_MODULE_DIR='"lib"' \
        -DCHEXNET_MODULE_SUBDIR='"lib"' -I"$root/libcore" -I"$root/tests" \
        -c "$1" -o "$2"
}

build() {
    local source object
    rm -rf "$out"
    mkdir -p "$out"
    while read -r source; do
        object=$out/$(basename "$(dirname "$source")")-$(basename "$source" .c).o
        compile "$source" "$object" || return 1
    done < <(sources)
    "${compiler%gcc}ar" rc "$out/libengines.a" "$out"/*.o
}

# run NAME [ARGUMENT...]: the verdict of one test program.
run() {
    local name=$1
    shift
    if ! compile "$root/tests/op/$name.c" "$out/$name.test.o" ||
        ! "$compiler" -static -o "$out/$name" "$out/$name.test.o" "$out/libengines.a" -lm -pthread
    then
        echo "FAILED: $name does not build"
        failed=1
        return
    fi
    if qemu-aarch64 "$out/$name" "$@" >"$out/$name.log"; then
        echo "passed: $name $* ($(grep -c '^ok' "$out/$name.log") checks)"
    else
        grep -v '^ok' "$out/$name.log"
        echo "FAILED: $name $*"
        failed=1
    fi
}

case ${1:-} in
'') ;;
-h | --help) usage && exit 0 ;;
*) usage >&2 && exit 2 ;;
esac
command -v "$compiler" >/dev/null || skip "no $compiler"
command -v qemu-aarch64 >/dev/null || skip "no qemu-aarch64"
out=$root/build/aarch64 failed=0
build || exit 1
run engine_ref
run conv_cpu
run winograd_cpu
run amx_tiles
run net_cpu resnet50 33 2 1
exit $failed
