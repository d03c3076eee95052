#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A throw-away Slurm cluster of two or more nodes, n0, n1, ..., on this machine: own configuration, own
# munge key, own ports. Each node runs in its own pid, mount and host name space, so that it has its own
# /tmp/... spool, its own /dev/shm, and dies as a whole. Each has two pretended GPUs (character
# devices without a driver).
#
# With `--network own` each node has its own network name space and address, 10.203.0.10 and up. Pairs of
# virtual Ethernet devices join them to a bridge in the name space of the controller. Nothing of it is seen
# outside: `enter` runs a command in the controller's name space, and all of it ends with the processes.
set -u

usage() {
    cat <<'END'
usage: fixture.sh check                      0, or 77 and one line that says why it cannot run here
       fixture.sh start DIR PORT [OPTION...] starts the cluster with all its files in DIR (new or
                                             empty) and ports PORT to PORT+N of 127.0.0.1
       fixture.sh stop DIR                   ends everything and removes DIR
       fixture.sh reset DIR                  ends all jobs and removes their files; 1 and the reason if the
                                             cluster is not as at its start
       fixture.sh end                        stops the clusters whose owner is the calling process
       fixture.sh enter DIR COMMAND...       runs COMMAND in the controller's network
       fixture.sh kill-node DIR NODE         NODE, such as n1, loses power
       fixture.sh start-node DIR NODE        and comes back
       fixture.sh report DIR                 nodes that cannot be used, why, and the errors in the
                                             daemons' logs, as comments of TAP
       fixture.sh left DIR [jobs]            lists processes of the cluster in DIR, or of its jobs alone;
                                             0 where none is
options of start:
  --nodes N          2 to 16 nodes; 2 if not given
  --set KEY=VALUE    a line of slurm.conf, in place of the fixture's own line of that KEY
  --fragment FILE    lines to append to slurm.conf
  --plugin FILE      a required SPANK plugin; every user can read the copy in the cluster's folder
  --disk SIZE        a file system of SIZE, such as 100m, in DIR/disk, for all nodes
  --network own      a network for each node, and Slurm's default TreeWidth
  --spool SIZE       a file system of SIZE for the spool folder of each node, DIR/spool.NODE
  --owner PID        stop, and end what else has its SLURM_CONF, when that process is gone
Then: export SLURM_CONF=DIR/slurm.conf
END
}

fail() {
    echo "fixture: $*" >&2
    exit 1
}

impossible() {
    echo "$*"
    exit 77
}

check() {
    local tool missing='' probe
    PATH=$PATH:/usr/sbin:/sbin
    for tool in slurmctld slurmd munged srun sinfo scancel unshare nsenter setsid mknod; do
        command -v "$tool" >/dev/null || missing="$missing $tool"
    done
    [ -z "$missing" ] || impossible "not installed:$missing (Debian: slurm-wlm munge util-linux)"
    [ "$(id -u)" = 0 ] || impossible "needs root, to make namespaces for the nodes"
    mountpoint -q / || impossible "/ is not a mount point (a chroot), so nodes cannot have mounts of$(
        ) their own: bind it on itself and pivot_root into it, as tests/debian_root.sh does"
    unshare -m -u -p -f --mount-proc --propagation private sh -c \
        'hostname n0 && mount -t tmpfs tmpfs /dev/shm' >/dev/null 2>&1 ||
        impossible "this container may not make namespaces (unshare fails)"
    [ "${1-}" != own ] || unshare -n sh -c 'ip link add b0 type bridge && ip link add v0 type veth peer name v1' \
        >/dev/null 2>&1 || impossible "no network can be made here (needs ip of iproute2, bridge and veth)"
    probe=$(mktemp -d) || impossible "no temporary folder can be made"
    mknod "$probe/dev" c 1 3 2>/dev/null || {
        rm -rf "$probe"
        impossible "this container may not make device files (mknod fails)"
    }
    rm -rf "$probe"
}

# A zombie counts as gone: process 1 of a container may be slow to collect it.
alive() {
    local stat
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    [[ $stat != *") Z "* ]]
}

# Waits until none of the given processes exists.
await_end() {
    local pid end=$((SECONDS + limit))
    while [ $SECONDS -lt $end ]; do
        for pid; do
            if alive "$pid"; then
                sleep 0.05
                continue 2
            fi
        done
        return 0
    done
    return 1
}

# Runs shell text as process 1 of new namespaces. Killing the recorded process ends all of them:
# the kernel kills what is left in a pid namespace whose first process is gone.
contain() { # name, text
    # shellcheck disable=SC2086
    setsid unshare $own_network -m -u -p -f --mount-proc --propagation private --kill-child=KILL \
        bash -c "$2" >>"$dir/log/$1.out" 2>&1 </dev/null &
    echo $! >"$dir/$1.pid"
}

enter() { # DIR COMMAND...
    nsenter -n -t "$(cat "$1/ctl.pid")" "${@:2}"
}

# Gives the node's name space the device eth0. A node that comes back finds the device of its earlier life
# until the kernel has removed it.
connect_node() { # NAME
    local pid i=${1#n} tries
    [ -n "$own_network" ] || return 0
    pid=$(cat "$dir/$1.pid")
    for ((tries = 0; tries < 400; tries++)); do
        [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink "/proc/$$/ns/net")" ] ||
            ! enter "$dir" ip link add "v$i" type veth peer name eth0 netns "$pid" 2>/dev/null || break
        sleep 0.05
    done
    enter "$dir" ip link set "v$i" master bridge up && nsenter -n -t "$pid" sh -c "ip link set lo up &&
        ip addr add 10.203.0.$((i + 10))/24 dev eth0 && ip link set eth0 up"
}

# slurmd gets "spool" and "tmp" for all nodes (the PMIx plugin does not expand %n); each sees
# its own folder there. Without an own /dev/shm and host name Open MPI takes the ranks of all
# nodes for neighbours that share memory.
# slurmd 22.05 aborts now and then ("tcache_thread_shutdown(): unaligned tcache chunk detected") when a
# thread ends that has just launched a task. Like systemd on a real node, the loop starts it again; the
# daemons of the steps, and so the jobs, live on.
launch_node() {
    contain "$1" "
        hostname $1 || exit 1
        mount --bind '$dir/spool.$1' '$dir/spool' && mount --bind '$dir/tmp.$1' '$dir/tmp' || exit 1
        mount -t tmpfs -o size=512m,mode=1777 tmpfs /dev/shm || exit 1
        cd '$dir/tmp' || exit 1 # for its core files
        until [ -z '$own_network' ] || ip addr show eth0 2>/dev/null | grep -q ' inet '; do sleep 0.02; done
        while slurmd -D -N $1; status=\$?; [ \$status -gt 128 ]; do
            echo \"slurmd of $1 was ended by signal \$((status - 128)) and is started again\"
        done"
    connect_node "$1"
}

launch_controller() {
    contain ctl "
        [ -z '$own_network' ] || { ip link set lo up && ip link add bridge type bridge &&
            ip addr add 10.203.0.1/24 dev bridge && ip link set bridge up; } || exit 1
        munged --foreground --force --num-threads=2 --group-update-time=-1 \
            --socket='$dir/munge/socket' --key-file='$dir/munge/key' --pid-file='$dir/munge/pid' \
            --seed-file='$dir/munge/seed' --log-file='$dir/munge/log' &
        until [ -S '$dir/munge/socket' ]; do sleep 0.02; done
        slurmctld -D -c &
        wait"
}

# TreeWidth=2 makes PMIx's tree collective cross nodes; with the default of 50 it does not on a few.
# The limits allow for a machine that is slow or pauses for some seconds. Above all those for messages,
# silent nodes (SlurmdTimeout) and credentials, which end a launch, are never shorter than Slurm's own.
# PMIx is the default where this Slurm has its plugin: Debian's 26.05 has PMI-2 only.
configuration() {
    local here mpi=pmi2 last=$((nodes - 1)) node='CPUs=8 SocketsPerBoard=2 CoresPerSocket=4 RealMemory=4000 Gres=gpu:2'
    here=$(hostname -s)
    ! compgen -G '/usr/lib/*/slurm*/mpi_pmix*.so' >/dev/null || mpi=pmix
    local controller=127.0.0.1 address=127.0.0.1 width=TreeWidth=2
    [ -z "$own_network" ] || controller=10.203.0.1 address="10.203.0.[10-$((10 + last))]" width=
    cat <<END
ClusterName=fixture$port
SlurmctldHost=$here($controller)
SlurmctldPort=$port
SlurmUser=root
AuthInfo=socket=$dir/munge/socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
TmpFS=$dir/tmp
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd.%n
PlugStackConfig=$dir/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=100000
SlurmdParameters=config_overrides
MpiDefault=$mpi
$width
GresTypes=gpu
ReturnToService=2
MessageTimeout=60
MinJobAge=7200
BatchStartTimeout=120
UnkillableStepTimeout=300
NodeName=n[0-$last] NodeHostname=$here NodeAddr=$address Port=[$((port + 1))-$((port + nodes))] $node
PartitionName=main Nodes=n[0-$last] Default=YES State=UP
END
}

write_files() {
    local i line
    mkdir "$dir"/{state,spool,tmp,log,munge,dev} || return 1
    chmod 755 "$dir" "$dir/munge" || return 1
    for ((i = 0; i < nodes; i++)); do
        mkdir "$dir/spool.n$i" && mkdir -m 1777 "$dir/tmp.n$i" || return 1
        mknod -m 666 "$dir/dev/nvidia$((2 * i))" c 1 3 || return 1
        mknod -m 666 "$dir/dev/nvidia$((2 * i + 1))" c 1 3 || return 1
        echo "NodeName=n$i Name=gpu File=$dir/dev/nvidia[$((2 * i))-$((2 * i + 1))]" >>"$dir/gres.conf"
    done
    : >"$dir/plugstack.conf"
    for line in "${plugins[@]}"; do
        cp "$line" "$dir/" || return 1
        echo "required $dir/${line##*/}" >>"$dir/plugstack.conf"
    done
    configuration >"$dir/slurm.conf"
    for line in "${settings[@]}"; do
        sed -i "/^${line%%=*}=/d" "$dir/slurm.conf"
        printf '%s\n' "$line" >>"$dir/slurm.conf"
    done
    [ -z "$fragment" ] || cat "$fragment" >>"$dir/slurm.conf" || return 1
    configuration_digest >"$dir/digest"
    head -c 128 /dev/urandom >"$dir/munge/key" && chmod 400 "$dir/munge/key"
}

# A daemon that keeps a caller's descriptor open keeps its locks and pipes, too.
close_descriptors() {
    local fd
    for fd in /proc/self/fd/*; do
        fd=${fd##*/}
        if [ "$fd" -gt 2 ] && [ "$fd" != 255 ]; then
            eval "exec $fd>&-"
        fi
    done
}

daemons_live() {
    local file
    for file in "$dir"/n*.pid "$dir/ctl.pid"; do
        alive "$(cat "$file")" || return 1
    done
}

idle_nodes() {
    SLURM_CONF=$dir/slurm.conf enter "$dir" timeout 20 sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l
}

start() {
    dir=${1-} port=${2-} fragment='' owner=''
    settings=() plugins=() nodes=2 disk='' spool='' own_network=''
    [[ $dir = /* && $port =~ ^[0-9]+$ ]] || fail "start needs an absolute DIR and a PORT"
    [ ${#dir} -le 60 ] || fail "$dir: ${#dir} characters; socket names allow 60"
    shift 2
    while [ $# -gt 0 ]; do
        [ $# -gt 1 ] || fail "$1 needs a value"
        case $1 in
        --set) settings+=("$2") ;;
        --nodes) nodes=$2 ;;
        --fragment) fragment=$2 ;;
        --plugin) plugins+=("$2") ;;
        --disk) disk=$2 ;;
        --network)
            [ "$2" = own ] || fail "--network $2: expected own"
            own_network=-n
            ;;
        --spool) spool=$2 ;;
        --owner) owner=$2 ;;
        *) fail "unknown option $1" ;;
        esac
        shift 2
    done
    [[ $nodes =~ ^([2-9]|1[0-6])$ ]] || fail "--nodes $nodes: expected 2 to 16"
    local reason tries i end
    reason=$(check ${own_network:+own}) || impossible "$reason"
    if ! mkdir -p "$dir" || [ -n "$(ls -A "$dir")" ]; then
        fail "$dir is not a new or empty folder"
    fi
    close_descriptors
    write_files || fail "cannot write the files in $dir"
    # Before the nodes start: what is mounted later is not seen in their name spaces.
    [ -z "$disk" ] || { mkdir "$dir/disk" && mount -t tmpfs -o "size=$disk" tmpfs "$dir/disk"; } ||
        fail "cannot mount $dir/disk"
    for ((i = 0; i < nodes; i++)); do
        [ -z "$spool" ] || mount -t tmpfs -o "size=$spool" tmpfs "$dir/spool.n$i" || fail "cannot mount $dir/spool.n$i"
    done
    export SLURM_CONF=$dir/slurm.conf CHEX_DAEMON=1
    launch_controller
    for ((tries = 0; tries < 2000; tries++)); do
        [ ! -S "$dir/munge/socket" ] || break
        sleep 0.02
    done
    for ((i = 0; i < nodes; i++)); do
        launch_node "n$i"
    done
    if [ -n "$owner" ]; then
        env -u SLURM_CONF setsid bash "$0" guard "$dir" "$owner" >/dev/null 2>&1 </dev/null &
        echo $! >"$dir/guard.pid"
        echo "$owner" >"$dir/owner"
    fi
    end=$((SECONDS + limit))
    while [ $SECONDS -lt $end ] && [ -d "$dir" ] && daemons_live; do
        [ "$(idle_nodes)" != "$nodes" ] || return 0
        sleep 0.05
    done
    [ -d "$dir" ] || fail "$dir is gone"
    tail -n 8 "$dir"/log/* >&2
    stop "$dir"
    fail "a daemon ended, or the nodes were not idle after $limit s; the end of the logs is above"
}

# Processes that carry this cluster's SLURM_CONF, without this one and its parents; with `jobs`: also without
# the daemons.
left() { # DIR [jobs]
    local environ pid found=1 self=" $$ $BASHPID $PPID " daemon=CHEX_DAEMON=1
    while read -r environ; do
        pid=${environ//[!0-9]/}
        [[ $self != *" $pid "* ]] && alive "$pid" || continue
        [ "${2-}" != jobs ] || ! grep -qzxF "$daemon" "$environ" 2>/dev/null || continue
        echo "$pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")"
        found=0
    done < <(grep -lzxF "SLURM_CONF=$1/slurm.conf" /proc/[0-9]*/environ 2>/dev/null)
    [ $found = 1 ]
}

# slurmctld's slurmscriptd ends by itself, a moment after it.
await_nothing() { # DIR
    local end=$((SECONDS + 20))
    until left "$1" >/dev/null; do
        [ $SECONDS -le $end ] || return 1
        sleep 0.1
    done
}

# No SLURM_CONF of this shell's own: `left` would list it.
asked() { SLURM_CONF=$dir/slurm.conf enter "$dir" timeout 5 "$@" 2>/dev/null; }

# Cancels all jobs and waits until none is left.
cancel_jobs() { # SECONDS
    local end=$((SECONDS + $1))
    asked scancel --state=PENDING -u root
    asked squeue -h -o %A | asked xargs -r scancel
    while [ -n "$(asked squeue -h)" ]; do
        [ $SECONDS -le $end ] || return 1
        sleep 0.05
    done
}

# Makes a cluster as it was at its start, for the next test. False, with the reason: it must be stopped.
reset() {
    dir=${1-}
    [ -f "$dir/slurm.conf" ] || fail "no cluster in '$dir'"
    local i end=$((SECONDS + limit)) pid
    nodes=$(find "$dir" -maxdepth 1 -name 'spool.n*' | wc -l)
    cancel_jobs "$limit" || fail "jobs remain"
    until [ "$(idle_nodes)" = "$nodes" ]; do
        [ $SECONDS -le $end ] || fail "nodes are not idle"
        sleep 0.05
    done
    configuration_digest | cmp -s - "$dir/digest" || fail "the configuration was changed"
    for ((i = 0; i < nodes; i++)); do
        pid=$(cat "$dir/n$i.pid")
        nsenter -m -t "$(pgrep -P "$pid" | head -n 1)" find /dev/shm "$dir/tmp" -mindepth 1 -delete ||
            fail "files of n$i remain"
    done
}

configuration_digest() {
    cat "$dir"/*.conf | sha256sum
}

# Jobs first, so that waiting srun commands end by themselves; then all at once: a controller that
# outlives its nodes spends seconds on calling them.
stop() {
    dir=${1-}
    [ -f "$dir/slurm.conf" ] || fail "no cluster in '$dir'"
    local pids=() file status=0
    if [ "$(cat "$dir/guard.pid" 2>/dev/null)" != $$ ] && [ -f "$dir/guard.pid" ]; then
        kill -9 -- "-$(cat "$dir/guard.pid")" 2>/dev/null
    fi
    cancel_jobs 1
    for file in "$dir"/n*.pid "$dir/ctl.pid"; do
        [ ! -f "$file" ] || pids+=("$(cat "$file")")
    done
    [ ${#pids[@]} = 0 ] || kill -9 "${pids[@]}" 2>/dev/null
    await_end "${pids[@]}" || status=1
    for file in "$dir"/disk "$dir"/spool.n*; do
        ! mountpoint -q "$file" || umount --lazy "$file"
    done
    rm -rf "$dir" || status=1
    return $status
}

end_all() {
    local file status=0
    for file in $(printf '%s\n' /tmp/cx*/owner "${TMPDIR:-/tmp}"/cx*/owner | sort -u); do
        [ "$(cat "$file" 2>/dev/null)" = "$PPID" ] || continue
        dir=${file%/*}
        stop "$dir" && await_nothing "$dir" || status=1
    done
    [ $status = 0 ] || printf 'not '
    echo "ok 1 - the shared clusters end, and no process of theirs is left"
    echo 1..1
    exit $status
}

# The owner may be killed with no chance to clean up (a test's time limit).
guard() {
    local pid tries
    while alive "$2"; do
        sleep 0.5
    done
    # This process itself has no SLURM_CONF, so it is not among them. Several rounds, because what
    # is still alive may start more.
    for ((tries = 0; tries < 5; tries++)); do
        left "$1" | while read -r pid _; do
            kill -9 "$pid" 2>/dev/null
        done
        ! left "$1" >/dev/null || break
    done
    [ ! -f "$1/slurm.conf" ] || stop "$1"
}

node_of() {
    dir=${1-}
    [ -f "$dir/slurm.conf" ] || fail "no cluster in '$dir'"
    [ -f "$dir/${2-}.pid" ] && [[ $2 = n* ]] || fail "node '${2-}': expected n0, n1, ..."
}

kill_node() {
    node_of "$@"
    local pid
    pid=$(cat "$dir/$2.pid")
    kill -9 "$pid" 2>/dev/null
    await_end "$pid" || fail "node $2 does not end"
}

start_node() {
    node_of "$@"
    close_descriptors
    export SLURM_CONF=$dir/slurm.conf CHEX_DAEMON=1
    own_network=
    ! grep -q '10\.203\.' "$dir/slurm.conf" || own_network=-n
    launch_node "$2"
}

# For a test that failed: why a node is down or drained is in slurmctld alone.
report() {
    dir=${1-}
    [ -f "$dir/slurm.conf" ] || fail "no cluster in '$dir'"
    {
        SLURM_CONF=$dir/slurm.conf enter "$dir" timeout 10 sinfo -hNo '%N %T: %E'
        SLURM_CONF=$dir/slurm.conf enter "$dir" timeout 10 squeue -ho 'job %A %T %r'
        grep -hE 'error:|fatal:|DOWN|not responding|[Rr]equeu|drain' "$dir"/log/slurmctld | tail -n 40
        tail -qn 200 "$dir"/log/slurmd.* | grep -hE 'error:|fatal:' | tail -n 20
        grep -h 'is started again' "$dir"/log/*.out
        tail -qn 5 "$dir"/log/*.out
    } 2>&1 | sed 's/^/# /'
}

PATH=$PATH:/usr/sbin:/sbin
limit=${CHEX_TEST_WAIT:-300} # seconds
command=${1-}
[ $# = 0 ] || shift
case $command in
check) check "$@" ;;
enter) enter "$@" ;;
start) start "$@" ;;
stop) stop "$@" ;;
reset) reset "$@" ;;
end) end_all ;;
guard) guard "$@" ;;
report) report "$@" ;;
left) left "${1:?left needs a DIR}" "${2-}" ;;
kill-node) kill_node "$@" ;;
start-node) start_node "$@" ;;
-h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
