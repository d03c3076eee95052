# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
#
# Sourced first by tests/slurm/*.t. `slurm_fixture [OPTIONS of fixture.sh start]` runs the script
# anew inside a fresh cluster, whose end it sees to, and returns there with everything that
# tests/cmd/lib.sh provides. The cluster has two nodes, or as many as CHEX_TEST_NODES or `--nodes` say:
#
#   . "$(dirname "$0")/lib.sh"
#   slurm_fixture
#   is "$(in_job -N2 hostname | sort | tr '\n' ' ')" "n0 n1 " "a job runs on both"
#   done_testing
#
# Also: SLURM_CONF is set, $fixture is the script fixture.sh, $CLUSTER the cluster's folder, $NODES the
# number of nodes. The environment holds nothing else that could matter. The test is skipped, with the
# reason, if no cluster can be made.
slurm_lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fixture=$slurm_lib/fixture.sh

# srun with a time limit and nothing on stdin. CHEX_SRUN_LIMIT: seconds.
in_job() {
    timeout -k 5 "${CHEX_SRUN_LIMIT:-120}" srun "$@" </dev/null
}

# A job that was put back into the queue waits until the credentials of its last start have expired: two
# minutes. `start_soon JOB` lets it start now. Its nodes refuse credentials of the second in which its last
# start ended.
start_soon() {
    scontrol show job "$1" | grep -q 'Reason=BeginTime' || return 0
    sleep 1.1
    scontrol update JobId="$1" StartTime=now
}

# Variables that say how to test, not what to test; all else is removed, above all SLURM_*,
# PMIX_* and OMPI_* of a job around the tests.
slurm_environment() {
    local name
    printf '%s\0' "PATH=$PATH:/usr/sbin:/sbin" HOME=/root LANG=C.UTF-8 "TMPDIR=$slurm_dir/scratch"
    for name in CHEX_CPU CHEX_TEST_BUILD CHEX_TEST_SOURCE CHEX_TEST_WITHOUT CHEX_TEST_KEEP CHEX_TEST_NODES \
        CHEX_TEST_FAULTS CHEX_TEST_SEED ASAN_OPTIONS UBSAN_OPTIONS \
        LSAN_OPTIONS; do
        [ -z "${!name-}" ] || printf '%s\0' "$name=${!name}"
    done
}

# Takes 17 ports, for up to 16 nodes, and a short folder of the same number. mkdir is the lock between
# tests that run side by side; ports lie below the range from which the kernel gives them out.
slurm_claim() {
    local tries port p
    for ((tries = 0; tries < 200; tries++)); do
        port=$((20000 + 20 * (RANDOM % 500)))
        mkdir "$slurm_tmp/cx$port" 2>/dev/null || continue
        for ((p = port; p < port + 17; p++)); do
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
    local status=$1 found tries
    trap - EXIT
    if [ -n "$slurm_inner" ]; then
        kill -9 -- "-$slurm_inner"
        wait "$slurm_inner"
    fi 2>/dev/null
    if [ "$status" != 0 ] && [ "$status" != 77 ] && [ -f "$slurm_dir/slurm.conf" ]; then
        bash "$fixture" report "$slurm_dir"
    fi
    [ ! -f "$slurm_dir/slurm.conf" ] || bash "$fixture" stop "$slurm_dir" || status=1
    # slurmctld's slurmscriptd ends by itself, a moment after it.
    for ((tries = 0; tries < 20; tries++)); do
        found=$(bash "$fixture" left "$slurm_dir") && break
        sleep 0.5
    done
    if [ "$found" ]; then
        echo "not ok - processes remain"
        # shellcheck disable=SC2001
        sed 's/^/# /' <<<"$found"
        # shellcheck disable=SC2046
        kill -9 $(cut -d' ' -f1 <<<"$found") 2>/dev/null
        status=1
    fi
    if ! rm -rf "$slurm_dir" || [ -e "$slurm_dir" ]; then
        echo "not ok - $slurm_dir remains"
        status=1
    fi
    exit "$status"
}

slurm_skip() {
    echo "1..0 # SKIP $*"
    exit 77
}

slurm_fixture() {
    if [ -n "${CHEX_TEST_CLUSTER-}" ]; then
        CLUSTER=$CHEX_TEST_CLUSTER
        local conf=$SLURM_CONF # which the scrubbing takes away
        # shellcheck source=../cmd/lib.sh
        . "$slurm_lib/../cmd/lib.sh"
        # The nodes may share their addresses. Open MPI 5.0 finds no route from an IPv6 address to itself.
        export SLURM_CONF=$conf OMPI_MCA_btl_tcp_disable_family=6
        NODES=$(sinfo -hN -o %N | sort -u | wc -l)
        return 0
    fi
    [[ ,${CHEX_TEST_WITHOUT-}, != *,SLURM,* ]] || slurm_skip "CHEX_TEST_WITHOUT names SLURM"
    local reason port script environment status
    reason=$(bash "$fixture" check) || slurm_skip "no Slurm cluster here: $reason"
    slurm_tmp=${TMPDIR:-/tmp}
    [ ${#slurm_tmp} -le 40 ] && [[ $slurm_tmp = /* ]] || slurm_tmp=/tmp
    script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
    port=$(slurm_claim) || {
        echo "Bail out! no free ports or $slurm_tmp cannot be written"
        exit 1
    }
    slurm_dir=$slurm_tmp/cx$port slurm_inner=
    trap 'slurm_end 1' EXIT
    trap 'slurm_end 143' TERM
    trap 'slurm_end 130' INT
    trap 'slurm_end 129' HUP
    bash "$fixture" start "$slurm_dir" "$port" --owner $$ --nodes "${CHEX_TEST_NODES:-2}" "$@" || {
        echo "Bail out! the cluster does not start"
        exit 1
    }
    mkdir -m 1777 "$slurm_dir/scratch"
    mapfile -d '' environment < <(slurm_environment)
    # A group of its own, so that all of it can be ended; in the background, so that a signal to
    # this shell is served at once.
    setsid bash "$fixture" enter "$slurm_dir" env -i "${environment[@]}" "SLURM_CONF=$slurm_dir/slurm.conf" \
        "CHEX_TEST_CLUSTER=$slurm_dir" bash "$script" &
    slurm_inner=$!
    wait $slurm_inner
    status=$?
    slurm_inner=
    slurm_end $status
}
