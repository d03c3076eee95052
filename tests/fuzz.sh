#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the fuzz targets. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
    cat <<END
usage: tests/fuzz.sh [--seconds N] [--jobs N] [--seed N] [TARGET...]
Builds the targets of tests/fuzz with clang's libFuzzer, address and undefined-behaviour sanitizers
in build/ci-sanitize and runs each for N seconds (600), --jobs of them at a time ($(nproc)).
--seed N draws the same inputs each time, until the time is over; without it they are new ones.
A crash leaves its input in build/ci-sanitize/found; what is mended goes to tests/fuzz/corpus/TARGET.
Exit status: 0 nothing found, 1 something was, 2 usage.
END
}

die() {
    echo "tests/fuzz.sh: $*" >&2
    exit 2
}

# fuzz TARGET: its verdict on one line, with inputs tried and features seen.
fuzz() {
    local target=$1 log=$build/$1.log scratch=$build/corpus-$1 began=$SECONDS status words=()
    [ ! -f "$root/tests/fuzz/$target.dict" ] || words=(-dict="$root/tests/fuzz/$target.dict")
    mkdir -p "$scratch" "$build/found"
    "$build/tests/fuzz-$target" -seed="$seed" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
        -max_len=65536 -artifact_prefix="$build/found/$target-" -print_final_stats=1 \
        "${words[@]}" "$scratch" "$root/tests/fuzz/corpus/$target" >"$log" 2>&1
    status=$?
    if [ $status = 0 ]; then
        echo "passed: fuzz $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
            "inputs in $((SECONDS - began)) s, nothing found"
    else
        tail -n 40 "$log"
        echo "FAILED: fuzz $target: see build/ci-sanitize/found"
    fi
    return $status
}

seconds=600 jobs=$(nproc) seed=0 targets=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --seconds | --jobs | --seed)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die "$1 '${2-}': expected a number"
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    -*) die "unknown option '$1'; try --help" ;;
    *) targets+=("$1") ;;
    esac
    shift
done

cd "$root" || exit 1
if [ ${#targets[@]} = 0 ]; then
    for source in tests/fuzz/*.c; do
        source=$(basename "$source" .c)
        [ "$source" = replay ] || targets+=("$source")
    done
fi
for target in "${targets[@]}"; do
    [ -f "tests/fuzz/$target.c" ] || die "no target '$target' in tests/fuzz"
done
build=$root/build/ci-sanitize
mkdir -p "$build"
if ! { cmake --preset sanitize -B "$build" && cmake --build "$build" -j "$jobs" \
    --target "${targets[@]/#/fuzz-}"; } \
    >"$build/build.log" 2>&1; then
    tail -n 40 "$build/build.log"
    echo "FAILED: fuzz: build"
    exit 1
fi
found=0
for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n || found=1
    done
    fuzz "$target" &
done
while [ -n "$(jobs -p)" ]; do
    wait -n || found=1
done
exit $found
