# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# TAP functions for the scripts of tests/cmd and tests/slurm. A script begins with
#   source "$(dirname "$0")/lib.sh"
# and ends with `done_testing`. It gets:
#   $SCRATCH     an empty folder, the current one, removed at exit (kept with CHEX_TEST_KEEP=1)
#   $BUILD       the build folder; its bin/ comes first in PATH
#   $SOURCE      the source tree
#   an environment without CHEX_* (CHEX_CPU stays), SLURM_*, PMIX_*, PMI_* and OMPI_* variables
# Scripts in which the network is not the point pass `--model densenet_tiny`: a start takes a tenth of
# the time.
# A failed check returns 1 and does not stop the script; the exit status of done_testing is the verdict.

SOURCE=${CHEX_TEST_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${CHEX_TEST_BUILD:-$SOURCE/build/debug}
KEEP=${CHEX_TEST_KEEP:-}
WITHOUT=${CHEX_TEST_WITHOUT:-}
_python=${CHEX_TEST_PYTHON:-python3}
while IFS= read -r name; do
    case $name in
    CHEX_CPU | CHEX_TEST_WAIT) ;;
    CHEX_* | SLURM_* | PMIX_* | PMI_* | OMPI_*) unset "$name" ;;
    esac
done < <(compgen -e)
unset name
# Seconds that a script waits for a condition before it fails: enough where 30 processes share a core.
: "${CHEX_TEST_WAIT:=300}"
export -n CHEX_TEST_WAIT # the commands would warn of it
export LC_ALL=C TERM=dumb PATH="$BUILD/bin:$PATH"
# Only our own leaks count under the sanitizers; HDF5 and PMIx keep tables until exit.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1}"

SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/chex-test.XXXXXX") || exit 1
_began_in=$PWD
cd "$SCRATCH" || exit 1
CLEANUP=()
# at_exit COMMAND...: runs before the scratch folder goes, last one first (umount, kill).
at_exit() { CLEANUP=("$(printf '%q ' "$@")" "${CLEANUP[@]}"); }
_leave() {
    local status=$? c
    for c in "${CLEANUP[@]}"; do eval "$c"; done
    cd / && { [ -n "$KEEP" ] && echo "# kept $SCRATCH" || rm -rf "$SCRATCH"; }
    exit $status
}
trap _leave EXIT

TESTS=0 FAILED=0

# ok CONDITION-STATUS NAME: `[ -f x ]; ok $? "x is there"`.
ok() {
    TESTS=$((TESTS + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $TESTS - $2"
    else
        FAILED=$((FAILED + 1))
        echo "not ok $TESTS - $2"
        echo "# at line ${BASH_LINENO[0]} of ${BASH_SOURCE[1]##*/}, from line ${BASH_LINENO[1]:-0}"
        return 1
    fi
}
pass() { ok 0 "$1"; }
fail() { ok 1 "$1"; }
diag() { printf '%s\n' "$*" | sed 's/^/# /'; }

# is GOT WANTED NAME. Two empty texts are equal only if the call has a literal "": the output of two
# commands that failed is no result.
is() {
    [ "$1" = "$2" ] && { [ "${1// /}" ] || _call_has '""'; }
    ok $? "$3" || { diag "got:    $1"; diag "wanted: $2"; return 1; }
}
# Whether the call of `is` or `unlike` matches a regex, in its first line or one that a \ joins to it.
_call_has() {
    (cd "$_began_in" && awk -v first="${BASH_LINENO[1]}" 'NR >= first { print; if (!/\\$/) exit }' "${BASH_SOURCE[2]}") |
        grep -qE -- "$1"
}
# near A B MOST NAME: the numbers differ by MOST at most. apart A B LEAST NAME: by LEAST at least. What is
# no number is neither.
near() { _differ "$@" 1; ok $? "$4" || { diag "got: '$1' and '$2'; at most $3 apart are wanted"; return 1; }; }
apart() { _differ "$@" -1; ok $? "$4" || { diag "got: '$1' and '$2'; at least $3 apart are wanted"; return 1; }; }
_differ() {
    awk -v a="$1" -v b="$2" -v limit="$3" -v sign="$5" 'BEGIN {
        number = "^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$"
        gap = a > b ? a - b : b - a
        exit !(a ~ number && b ~ number && sign * (gap - limit) <= 0) }'
}
# like TEXT EXTENDED-REGEX NAME
like() {
    grep -qE -- "$2" <<<"$1"
    ok $? "$3" || { diag "no match for: $2"; diag "in: $1"; return 1; }
}
# unlike TEXT EXTENDED-REGEX NAME. An empty text is refused, because a command that fails prints none,
# except $(out) and $(err), whose command has the expected status.
unlike() {
    ! grep -qE -- "$2" <<<"$1" && { [ "${1//[[:space:]]/}" ] || _call_has 'unlike "\$\((out|err)\)"'; }
    ok $? "$3" || { diag "empty, or unwanted match for: $2"; diag "in: $1"; return 1; }
}

# expect_status CODE COMMAND...: runs it with output in the files `out` and `err` of the scratch
# folder and checks the exit status.
expect_status() {
    local want=$1 got
    shift
    "$@" >"$SCRATCH/out" 2>"$SCRATCH/err"
    got=$?
    [ "$got" -eq "$want" ]
    ok $? "exit $want: $(printf '%s ' "$@" | sed "s|$SCRATCH/||g" | cut -c1-150)" || {
        diag "exit status $got"
        diag "$(tail -n 12 "$SCRATCH/err")"
        return 1
    }
}
# What the last expect_status wrote.
out() { cat "$SCRATCH/out"; }
err() { cat "$SCRATCH/err"; }

# error_line REGEX NAME: stderr of the last command has exactly one error line, and it matches.
error_line() {
    local lines
    lines=$(grep -E '^chex-[a-z]+(\[[^]]*\])? error: ' "$SCRATCH/err")
    [ "$(grep -c . <<<"$lines")" -eq 1 ] && grep -qE -- "$1" <<<"$lines"
    ok $? "$2" || { diag "no match for: $1"; diag "in: $(err)"; return 1; }
}

# skip_all REASON: the whole script cannot run here.
skip_all() {
    echo "1..0 # SKIP $*"
    exit 77
}
# skip REASON [COUNT]: these checks cannot run here.
skip() {
    local i
    for ((i = 0; i < ${2:-1}; i++)); do
        TESTS=$((TESTS + 1))
        echo "ok $TESTS # SKIP $1"
    done
}
# without NAME: whether CHEX_TEST_WITHOUT (SLURM,PMIX,LMOD,PYTHON,VALGRIND) takes NAME away.
without() { [[ ,$WITHOUT, == *,"$1",* ]]; }
# require NAME: skips the script where it is taken away.
require() { ! without "$1" || skip_all "CHEX_TEST_WITHOUT names $1"; }
# need COMMAND...: skips the script where a command is missing.
need() {
    local c
    for c in "$@"; do command -v "$c" >/dev/null || skip_all "no $c here"; done
}
have() { command -v "$1" >/dev/null; }
# python_with MODULES (h5py,numpy): `python` is one that has them: CHEX_TEST_PYTHON, python3 or Debian's.
python_with() {
    without PYTHON && return 1
    for python in "$_python" /usr/bin/python3; do
        "$python" -c "import $1" 2>/dev/null && return
    done
    return 1
}
# mpi_ranks N: `ranks` is the command that starts N ranks by mpirun. False if none can start here.
mpi_ranks() {
    ranks=(mpirun --oversubscribe --bind-to none -n "$1")
    [ "$(id -u)" != 0 ] || ranks+=(--allow-run-as-root)
    have mpirun && "${ranks[@]}" true 2>/dev/null
}

# phantom_set COUNT OPTION...: draws COUNT images into ph and makes shards of them in `set`, of 32 px.
phantom_set() {
    chex-shard phantom --count "$1" --size 32 --seed 2 --output ph -q >ph.out &&
        chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
            --fractions 0.6,0.2,0.2 --output set -q "${@:2}" >set.out || fail "a set of phantoms"
}

# wait_for COMMAND...: until the command succeeds. $wait_pause: seconds between two looks.
wait_for() {
    local end=$((SECONDS + CHEX_TEST_WAIT))
    until "$@"; do
        [ $SECONDS -lt $end ] || { fail "waited $CHEX_TEST_WAIT s for: $*"; return 1; }
        sleep "${wait_pause:-0.03}"
    done
}
# wait_in_run PID COMMAND...: until the command succeeds or the process has ended. For moments that pass soon.
wait_in_run() {
    until "${@:2}" || ! kill -0 "$1" 2>/dev/null; do sleep 0.002; done
}

# usr2_set PID COMMAND SigCgt|SigIgn: waits until this process, which must have become COMMAND (the
# shell that starts it handles USR2, too), handles or ignores USR2. False: it has ended.
usr2_set() {
    local name mask
    while name=$(cat "/proc/$1/comm" 2>/dev/null) &&
        mask=$(sed -n "s/^$3:\s*//p" "/proc/$1/status" 2>/dev/null) && [ "$mask" ]; do
        [ "$name" != "$2" ] || [ $((0x$mask & 0x800)) = 0 ] || return 0
    done
    return 1
}

done_testing() {
    echo "1..$TESTS"
    [ "$FAILED" -eq 0 ] || { diag "$FAILED of $TESTS failed"; exit 1; }
    exit 0
}
