# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: Apache-2.0
#
# Sourced after lib.sh by the tests of the launch layer.
probe=$BUILD/tests/launch_probe
four=(-N2 -n4 --ntasks-per-node=2)
# PMIx and MPI keep memory until the process ends; ours is checked by the unit tests.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

# Runs a job: its stdout sorted to out, stderr to err, its status to rc.
job() {
    in_job "$@" >out.raw 2>err
    rc=$?
    sort out.raw >out
}

# all TEXT COUNT PATTERN: the job ended well and printed COUNT lines, each with PATTERN.
all() {
    is "$rc $(wc -l <out) $(grep -c "$3" out)" "0 $2 $2" "$1"
    [ "$rc" = 0 ] || diag "$(cat out err)"
}

good='"right": true, "synchronised": true'

# The exchange, whatever the fence below it is worth.
check_exchange() { # what
    job "${four[@]}" "$probe" exchange rounds=5
    all "$1: five exchanges" 4 "$good"
    job "${four[@]}" "$probe" exchange late=2 late_ms=400
    all "$1: a late rank is waited for" 4 "$good"
    job "${four[@]}" "$probe" exchange late=0 late_ms=400
    all "$1: so is a late rank 0" 4 "$good"
    job "${four[@]}" "$probe" exchange missing=2 timeout_ms=1500
    is $rc 7 "$1: without one rank the exit status is 7"
    like "$(cat err)" 'error: rank 2 \(n1\) of 4 did not come to exchange card within 1\.5 s' "$1: the missing rank and its host are named"
}

# Notes: of all others but rank 1, which leaves none, and rank 3's second, which has another length.
check_notes() { # what
    job "${four[@]}" "$probe" notes missing=1 odd=3 timeout_ms=1500
    all "$1: notes come as they were left" 4 '"right": true.*"last_host": "n1"'
    is "$(sed 's/.*"came": "\([^"]*\)".*/\1/' out | tr '\n' ',')" "0011 0010,1011 1010,1001 1000,1010 1010," \
        "$1: those that were left, and no others"
}
