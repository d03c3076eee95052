# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
#
# Sourced first by tests/slurm/*.t. `slurm_fixture [OPTIONS of fixture.sh start]` runs the script
# anew inside a cluster and returns there with everything that tests/cmd/lib.sh provides. The cluster has
# two nodes, or as many as CHEX_TEST_NODES or `--nodes` say:
#
#   . "$(dirname "$0")/lib.sh"
#   slurm_fixture
#   is "$(in_job -N2 hostname | sort | tr '\n' ' ')" "n0 n1 " "a job runs on both"
#   done_testing
#
# Also: SLURM_CONF is set, $fixture is the script fixture.sh, $CLUSTER the cluster's folder, $NODES the
# number of nodes. The environment holds nothing else that could matter. The test is skipped, with the
# reason, if no cluster can be made.
#
# No two scripts use a cluster at the same time. A script run by hand starts one and stops it. Under ctest,
# which sets CHEX_TEST_SHARE, a script leaves its cluster to the next script with the same options: without
# jobs, and with the files of its start. ctest's process owns these clusters, and its last test stops them.
# `slurm_fixture --own` comes before other options in a script that changes the cluster: its nodes, daemons,
# configuration or folders. A script that fails leaves no cluster either.
slurm_lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fixture=$slurm_lib/fixture.sh
# Seconds that a script waits for anything: enough for a machine with 30 processes for each core.
CHEX_TEST_WAIT=${CHEX_TEST_WAIT:-300}

# srun with a time limit and nothing on stdin.
in_job() {
    timeout -k 5 "$CHEX_TEST_WAIT" srun "$@" </dev/null
}

# Of wait_for: a look at Slurm costs a few milliseconds of the processor.
wait_pause=0.2

# phantom_shards COUNT SHARDS [OPTION...]: draws images of 32 px into ph, and makes shards of them, by
# default for training, validation and test.
phantom_shards() {
    local count=$1 shards=$2
    shift 2
    [ $# -gt 0 ] || set -- --split patient --fractions 0.6,0.2,0.2
    chex-shard phantom --count "$count" --size 32 --seed 2 --output ph -q >ph.log 2>&1 &&
        chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards "$shards" --output shards -q "$@" \
            >shards.log 2>&1 || fail "shards are made of $count phantoms"
}

# Skips the script if it cannot train on several ranks. The network is the small one of the tests.
need_training() {
    have chex-train || skip_all "chex-train is not built"
    [ -e "$BUILD/lib/chexnet-mpi.so" ] || skip_all "built without MPI"
    export CHEX_MODEL=densenet_tiny
}

# Batch jobs: the number of a new one, one value of its description, whether a line of it matches.
sbatch_id() {
    timeout "$CHEX_TEST_WAIT" sbatch --parsable "$@"
}
about() { # JOB KEY
    scontrol show job "$1" | grep -oE "(^| )$2=[^ ]*" | head -n 1 | tr -d ' '
}
job_is() { # JOB REGEX
    scontrol show job "$1" 2>/dev/null | grep -qE "$2"
}
# Waits until the job has ended or was put back into the queue; until it has ended, with starts as soon as
# they can be.
ended='JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'
settles() { # JOB
    wait_for job_is "$1" "$ended|Restarts=[1-9]"
}
finishes() { # JOB
    wait_for eval "start_soon $1; job_is $1 '$ended'"
}

# Lines of metrics.jsonl that are steps.
steps() { # RUN
    grep -hs '"kind": *"step"' "$1/metrics.jsonl" | grep -c .
}

# The processes of a program in this cluster, of one rank or all.
processes() { # PROGRAM [RANK]
    local pid
    for pid in $(pgrep -x "$1"); do
        grep -qszxF "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" || continue
        [ $# = 1 ] || grep -qszxF "SLURM_PROCID=$2" "/proc/$pid/environ" || continue
        echo "$pid"
    done
}
signal_ranks() { # SIGNAL RANK...: of chex-train
    local rank
    for rank in "${@:2}"; do
        # shellcheck disable=SC2046
        kill "-$1" $(processes chex-train "$rank")
    done
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
        CHEX_TEST_FAULTS CHEX_TEST_SEED CHEX_TEST_WAIT ASAN_OPTIONS UBSAN_OPTIONS \
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

# Locks an idle shared cluster with these options, if there is one. Descriptor 9 has the lock until this
# shell ends. A script that was killed has not taken its mark away: its cluster ends.
slurm_take() { # OPTION...
    local file dir
    for file in "$slurm_tmp"/cx*/shared; do
        dir=${file%/*}
        [ "$(cat "$file" 2>/dev/null)" = "$PPID $*" ] && { exec 9<"$file"; } 2>/dev/null && flock -n 9 &&
            [ -f "$dir/slurm.conf" ] || continue
        slurm_dir=$dir
        [ -e "$dir/in-use" ] || return 0
        slurm_stop >/dev/null
    done
    slurm_dir=
    return 1
}

slurm_start() { # OPTION...
    local port owner=$$
    port=$(slurm_claim) || {
        echo "Bail out! no free ports or $slurm_tmp cannot be written"
        exit 1
    }
    slurm_dir=$slurm_tmp/cx$port
    [ -z "$slurm_shared" ] || owner=$PPID
    bash "$fixture" start "$slurm_dir" "$port" --owner "$owner" "$@" || {
        echo "Bail out! the cluster does not start"
        exit 1
    }
    [ -z "$slurm_shared" ] || {
        exec 9>"$slurm_dir/shared" && flock 9 && echo "$PPID $*" >"$slurm_dir/shared"
    }
}

# The processes that the script left, and then the cluster. False if there is any.
slurm_stop() {
    local found status=0 tries
    [ ! -f "$slurm_dir/slurm.conf" ] || bash "$fixture" stop "$slurm_dir" || status=1
    # slurmctld's slurmscriptd ends by itself, a moment after it.
    for ((tries = 0; tries < 100; tries++)); do
        found=$(bash "$fixture" left "$slurm_dir") && break
        sleep 0.1
    done
    slurm_remain "$found" || status=1
    if ! rm -rf "$slurm_dir" || [ -e "$slurm_dir" ]; then
        echo "not ok - $slurm_dir remains"
        status=1
    fi
    return $status
}

slurm_remain() { # PROCESSES: reports and ends them
    [ "$1" ] || return 0
    echo "not ok - processes remain"
    # shellcheck disable=SC2001,SC2046
    sed 's/^/# /' <<<"$1"
    # shellcheck disable=SC2046
    kill -9 $(cut -d' ' -f1 <<<"$1") 2>/dev/null
    return 1
}

# Leaves the cluster to the next script. False: it must be stopped.
slurm_leave() {
    local reason
    reason=$(bash "$fixture" reset "$slurm_dir" 2>&1) || {
        echo "# no other test uses this cluster: $reason"
        return 1
    }
    rm -rf "$slurm_dir/scratch" "$slurm_dir/in-use"
}

slurm_end() { # status
    local status=$1
    trap - EXIT
    if [ -n "$slurm_inner" ]; then
        kill -9 -- "-$slurm_inner"
        wait "$slurm_inner"
    fi 2>/dev/null
    [ -n "$slurm_dir" ] || exit "$status"
    if [ "$status" != 0 ] && [ "$status" != 77 ]; then
        [ ! -f "$slurm_dir/slurm.conf" ] || bash "$fixture" report "$slurm_dir"
        slurm_shared=
    fi
    if [ -n "$slurm_shared" ] && slurm_leave; then
        slurm_remain "$(bash "$fixture" left "$slurm_dir" jobs)" || status=1
    else
        slurm_stop || status=1
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
        local conf=$SLURM_CONF wait=$CHEX_TEST_WAIT # which the scrubbing takes away
        # shellcheck source=../cmd/lib.sh
        . "$slurm_lib/../cmd/lib.sh"
        # The nodes may share their addresses. Open MPI 5.0 finds no route from an IPv6 address to itself.
        CHEX_TEST_WAIT=$wait
        export SLURM_CONF=$conf OMPI_MCA_btl_tcp_disable_family=6
        NODES=$(sinfo -hN -o %N | sort -u | wc -l)
        return 0
    fi
    [[ ,${CHEX_TEST_WITHOUT-}, != *,SLURM,* ]] || slurm_skip "CHEX_TEST_WITHOUT names SLURM"
    local reason script environment status
    reason=$(bash "$fixture" check) || slurm_skip "no Slurm cluster here: $reason"
    slurm_tmp=${TMPDIR:-/tmp} slurm_inner='' slurm_dir='' slurm_shared=${CHEX_TEST_SHARE-}
    [ ${#slurm_tmp} -le 40 ] && [[ $slurm_tmp = /* ]] || slurm_tmp=/tmp
    [ "${1-}" != --own ] || {
        slurm_shared=''
        shift
    }
    set -- --nodes "${CHEX_TEST_NODES:-2}" "$@"
    script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
    trap 'slurm_end 1' EXIT
    trap 'slurm_end 143' TERM
    trap 'slurm_end 130' INT
    trap 'slurm_end 129' HUP
    { [ -n "$slurm_shared" ] && slurm_take "$@"; } || slurm_start "$@"
    : >"$slurm_dir/in-use"
    mkdir -m 1777 "$slurm_dir/scratch"
    mapfile -d '' environment < <(slurm_environment)
    # A group of its own, so that all of it can be ended; in the background, so that a signal to
    # this shell is served at once.
    setsid bash "$fixture" enter "$slurm_dir" env -i "${environment[@]}" "SLURM_CONF=$slurm_dir/slurm.conf" \
        "CHEX_TEST_CLUSTER=$slurm_dir" bash "$script" 9>&- &
    slurm_inner=$!
    wait $slurm_inner
    status=$?
    slurm_inner=
    slurm_end $status
}
