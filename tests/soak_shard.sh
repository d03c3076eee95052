#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills chex-shard at random moments. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=${CHEX_TEST_BUILD:-${BUILD:-$root/build/release}}/bin:$PATH
# shellcheck source=options.sh
. "$root/tests/options.sh"

usage() {
    cat <<END
usage: tests/soak_shard.sh [--kills N] [--count N] [--seed N]
Runs create and reshard over N phantom images (600) until each has been killed N times (30) with
kill -9 at random moments of its run, each time going on with --resume, and compares what comes out
with undisturbed runs, byte for byte. No finished shard may be made twice: its inode is looked at.
Exit status: 0 equal, 1 not, 2 usage. chex-shard is taken from CHEX_TEST_BUILD or build/release.
END
}

kills=30 count=600 seed=1
read_options "kills# count# seed#" "$@"
no_words
RANDOM=$seed

scratch_folder

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# Inodes of the finished shards, wherever they are by now.
finished() { find "$1" -name '*.h5' -printf '%i\n' 2>/dev/null | sort; }

# soak OUTPUT WHOLE COMMAND...: killed again and again, then left to end. A run that ends before its
# moment came starts anew. Moments lie anywhere in an undisturbed run's time, and somewhat after.
soak() {
    local output=$1 whole=$2 done_before killed=0 runs=0 began length pid lost
    shift 2
    began=$(now_ms)
    "$@" --output "$whole" -q >/dev/null || fail "the undisturbed run failed: $*"
    length=$(($(now_ms) - began))
    while [ $killed -lt "$kills" ]; do
        done_before=$(finished "$output")
        "$@" --output "$output" --resume -q >/dev/null 2>err &
        pid=$!
        # Most of a resumed run's work is done already: its moments come early.
        sleep "$(printf '0.%03d' $((RANDOM % (length / (1 + runs % 8) + 5) % 1000)))"
        if kill -9 $pid 2>/dev/null; then
            wait $pid 2>/dev/null
            [ $? -eq 137 ] && killed=$((killed + 1))
        else
            wait $pid || fail "a run failed by itself: $(cat err)"
        fi
        runs=$((runs + 1))
        if [ -e "$output/manifest.json" ]; then
            # Killed after the manifest: the next run only tidies up.
            [ ! -e "$output/.chex-shard-partial" ] || "$@" --output "$output" --resume -q 2>/dev/null
            compare "$output" "$whole"
            rm -rf "$output"
            continue
        fi
        lost=$(comm -23 <(echo "$done_before") <(finished "$output") | grep -c .)
        [ "$lost" -eq 0 ] || fail "$lost finished shards were made again or lost"
    done
    [ -e "$output/manifest.json" ] || "$@" --output "$output" --resume -q >/dev/null || fail "the last run failed: $*"
    compare "$output" "$whole"
    echo "soak: ${2-}: $killed kills in $runs runs of up to $length ms, the bytes are those of a run in one go"
}

compare() {
    chex-shard verify "$1" -q >/dev/null || fail "$1 is not sound"
    diff -r "$1" "$2" || fail "$1 differs from $2"
}

chex-shard phantom --count "$count" --size 96 --output ph -q >/dev/null || fail "no phantom images"
soak made whole chex-shard create --images ph/images --labels ph/labels.csv --split patient \
    --size 64 --shards 12 --workers 2
soak moved moved-whole chex-shard reshard whole --shards 17 --workers 2
