#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Records what chex-env reads of a node, for `chex-env --root DIR` on another machine. --help says more.
set -u

usage() {
    cat <<END
usage: record_node.sh [--list] [--host NAME] DIR
Copies the files of /sys and /proc that chex-env reads into DIR, and the lines of NVIDIA's driver (Xid) in
the kernel log. Then, on any machine: chex-env --root DIR
  --list       prints the names of the files and copies nothing
  --host NAME  records this name of the node instead of its own
The recording has the node's name, its boot id, the names of the control groups of this shell, the models of
processor and GPUs, and the files of settings in /etc as they are. It has no GUID, no serial number, no command
line, no user name, and no address except those that these settings name. Not in it: what NVIDIA's library (NVML)
answers, limits of the shell, file systems, settings of users, measurements.
The kernel log is read with dmesg, which may need root. Without it the recording has none, and chex-env says so.
Exit status: 0 recorded, 2 usage, 9 a file cannot be written.
END
}

list=no host='' dir=''
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage && exit ;;
    --list) list=yes ;;
    --host) [ $# -gt 1 ] && host=$2 && shift ;;
    -*) echo "record_node.sh: unknown option $1" >&2 && exit 2 ;;
    *) dir=$1 ;;
    esac
    shift
done
if [ $list = no ] && { [ -z "$dir" ] || [ -e "$dir/proc" ]; }; then
    echo "record_node.sh: ${dir:-no folder}: expected the name of a new folder" >&2
    exit 2
fi

# The files of the memory limit: those of the control group of this shell and of its parents.
memory_files() {
    local controllers group folder
    while IFS=: read -r _ controllers group; do
        case ,$controllers, in
        ,,) folder=/sys/fs/cgroup ;;
        *,memory,*) folder=/sys/fs/cgroup/$controllers ;;
        *) continue ;;
        esac
        while :; do
            printf '%s\n' "$folder$group"/memory.{max,limit_in_bytes}
            [ -n "${group%/}" ] || break
            group=${group%/*}
        done
    done </proc/self/cgroup
}

files() {
    printf '%s\n' /proc/cpuinfo /proc/meminfo /proc/self/cgroup /proc/1/comm /proc/sys/kernel/{hostname,random/boot_id} \
        /proc/driver/nvidia/version /proc/driver/nvidia/gpus/*/information /proc/driver/nvidia-nvswitch/devices/{*,*/information} \
        /sys/class/infiniband/*/{hca_type,device/numa_node} \
        /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer} \
        /sys/class/infiniband/*/ports/*/{counters,hw_counters}/* \
        /sys/class/net/*/{operstate,speed} /proc/net/{route,if_inet6} \
        /etc/nccl.conf /etc/openmpi/openmpi-mca-params.conf /etc/ucx/ucx.conf
    grep -lx nv-fabricmanage /proc/[0-9]*/comm 2>/dev/null
    memory_files
}

# Prints a file without addresses, serial numbers and what differs between the cores.
content() {
    case $1 in
    /proc/net/route) sed 's/\t.*/\t-/' "$1" ;;
    /proc/net/if_inet6) sed 's/.* /- - - - - /' "$1" ;;
    /proc/driver/*/information) grep Model "$1" ;;
    /proc/cpuinfo) grep -m 1 'model name' "$1" ;;
    *hostname) echo "${host:-$(cat "$1")}" ;;
    *) cat "$1" ;;
    esac
}

while IFS= read -r file; do
    [ -f "$file" ] && [ -r "$file" ] || continue
    [ $list = no ] || { echo "$file" && continue; }
    mkdir -p "$dir${file%/*}" || exit 9
    content "$file" >"$dir$file" 2>/dev/null || [ -w "$dir$file" ] || exit 9
done < <(files)
[ $list = no ] || exit 0
mkdir -p "$dir/dev" "$dir/sys/class/infiniband" || exit 9
date +%s >"$dir/recorded" || exit 9
if log=$(dmesg 2>/dev/null); then
    grep -F 'NVRM: Xid' <<<"$log" >"$dir/dev/kmsg"
fi
exit 0
