# shellcheck shell=bash disable=SC2034,SC2317
# SPDX-License-Identifier: Apache-2.0
#
# Sourced first by tests/slurm/*.t. `slurm_fixture [OPTIONS of fixture.sh start]` runs the script
# anew inside a fresh two-node cluster, whose end it sees to, and returns there:
#
#   . "$(dirname "$0")/lib.sh"
#   slurm_fixture
#   ok "two hosts" in_job -N2 hostname
#   done_testing
#
# Inside: SLURM_CONF is set, $scratch is an empty folder, $fixture the script fixture.sh and
# $CHEX_FIXTURE_DIR its folder; $bin is the folder of the commands. The environment holds nothing
# else that could matter. The test is skipped, with the reason, where no cluster can be had.
set -u
slurm_lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fixture=$slurm_lib/fixture.sh
source_dir=${CHEX_TEST_SOURCE:-$(cd "$slurm_lib/../.." && pwd)}
build_dir=${CHEX_TEST_BUILD:-$source_dir/build/release}
bin=$build_dir/bin
export CHEX_TEST_SOURCE=$source_dir CHEX_TEST_BUILD=$build_dir

tap_count=0 tap_failed=0

skip_all() {
    echo "1..0 # SKIP $*"
    exit 77
}

# Whether the user took a prerequisite away: CHEX_TEST_WITHOUT=SLURM,PMIX
without() {
    [[ ,${CHEX_TEST_WITHOUT-}, = *,"$1",* ]]
}

# ok TEXT COMMAND...: one check, passed where the command succeeds.
ok() {
    local text=$1
    shift
    tap_count=$((tap_count + 1))
    if "$@"; then
        echo "ok $tap_count - $text"
    else
        echo "not ok $tap_count - $text"
        printf '# failed:'
        printf ' %q' "$@"
        echo
        tap_failed=$((tap_failed + 1))
        return 1
    fi
}

# is TEXT FOUND EXPECTED
is() {
    ok "$1" test "$2" = "$3" || printf '# found:    %q\n# expected: %q\n' "$2" "$3"
}

# like TEXT FOUND REGEX (bash's =~)
like() {
    tap_match() { [[ $1 =~ $2 ]]; }
    ok "$1" tap_match "$2" "$3" || printf '# expected to match: %s\n' "$3"
}

diag_file() {
    sed 's/^/# /' "$@"
}

done_testing() {
    echo "1..$tap_count"
    [ $tap_failed = 0 ] || echo "# $tap_failed of $tap_count failed"
    exit $((tap_failed > 0))
}

# srun with a time limit and nothing on stdin. CHEX_SRUN_LIMIT: seconds.
in_job() {
    timeout -k 5 "${CHEX_SRUN_LIMIT:-60}" srun "$@" </dev/null
}

# Variables that say how to test, not what to test; all else is left behind, above all SLURM_*,
# PMIX_* and OMPI_* of a job around the tests.
slurm_environment() {
    local name
    printf '%s\0' "PATH=$PATH:/usr/sbin:/sbin" HOME=/root LANG=C.UTF-8 "TMPDIR=$slurm_tmp"
    for name in CHEX_TEST_BUILD CHEX_TEST_SOURCE CHEX_TEST_WITHOUT ASAN_OPTIONS UBSAN_OPTIONS \
        LSAN_OPTIONS; do
        [ -z "${!name-}" ] || printf '%s\0' "$name=${!name}"
    done
}

# Takes three ports and a short folder of the same number. mkdir is the lock between tests that run
# side by side; ports lie below the range from which the kernel gives them out.
slurm_claim() {
    local tries port p
    for ((tries = 0; tries < 200; tries++)); do
        port=$((20000 + 4 * (RANDOM % 2500)))
        mkdir "$slurm_tmp/cx$port" 2>/dev/null || continue
        for p in $port $((port + 1)) $((port + 2)); do
            if (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then
                rmdir "$slurm_tmp/cx$port"
                continue 2
            fi
        done
        echo "$port"
        return 0
    done
    return 1
}

slurm_end() { # status
    local status=$1 found
    trap - EXIT
    [ ! -f "$slurm_dir/c/slurm.conf" ] || bash "$fixture" stop "$slurm_dir/c" || status=1
    if ! found=$(bash "$fixture" left "$slurm_dir/c"); then
        echo "not ok - processes were left behind"
        # shellcheck disable=SC2001
        sed 's/^/# /' <<<"$found"
        # shellcheck disable=SC2046
        kill -9 $(cut -d' ' -f1 <<<"$found") 2>/dev/null
        status=1
    fi
    if [ -n "${CHEX_TEST_KEEP-}" ]; then
        echo "# kept: $slurm_dir"
    elif ! rm -rf "$slurm_dir" || [ -e "$slurm_dir" ]; then
        echo "not ok - $slurm_dir was left behind"
        status=1
    fi
    exit "$status"
}

slurm_fixture() {
    if [ -n "${CHEX_FIXTURE_DIR-}" ]; then
        scratch=${CHEX_FIXTURE_DIR%/c}/s
        cd "$scratch" || exit 1
        return 0
    fi
    ! without SLURM || skip_all "CHEX_TEST_WITHOUT names SLURM"
    local reason port script environment
    reason=$(bash "$fixture" check) || skip_all "no Slurm cluster here: $reason"
    slurm_tmp=${TMPDIR:-/tmp}
    [ ${#slurm_tmp} -le 40 ] && [[ $slurm_tmp = /* ]] || slurm_tmp=/tmp
    script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
    port=$(slurm_claim) || {
        echo "Bail out! no free ports or $slurm_tmp cannot be written"
        exit 1
    }
    slurm_dir=$slurm_tmp/cx$port
    trap 'slurm_end 1' EXIT
    trap 'slurm_end 143' TERM
    trap 'slurm_end 130' INT
    trap 'slurm_end 129' HUP
    chmod 755 "$slurm_dir"
    mkdir -m 1777 "$slurm_dir/s"
    bash "$fixture" start "$slurm_dir/c" "$port" --owner $$ "$@" || {
        echo "Bail out! the cluster does not start"
        slurm_end 1
    }
    mapfile -d '' environment < <(slurm_environment)
    # In the background, so that a signal to this shell is served at once.
    env -i "${environment[@]}" "SLURM_CONF=$slurm_dir/c/slurm.conf" \
        "CHEX_FIXTURE_DIR=$slurm_dir/c" bash "$script" &
    wait $!
    slurm_end $?
}
