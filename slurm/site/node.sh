# shellcheck shell=sh disable=SC2034
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by prolog.sh, epilog.sh and health.sh, which slurmd runs as root on a node.
#
# - The script starts again with an environment of a few variables that Slurm itself sets. So no
#   variable of a job or of a shell chooses programs, libraries or files. PATH is fixed.
# - Settings come from PREFIX/etc/chexnet/site.conf or /etc/chexnet/site.conf, which must belong to
#   root. site.conf.sample lists them.
# - Only a fault that chex-env gives to the node drains the node, whatever ends chex-env.
# - No script waits longer than its own time limits, which root's processes keep.
if [ "${CHEXNET_STARTED-}" != $$ ]; then
    exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin CHEXNET_STARTED=$$ \
        SLURM_CONF="${SLURM_CONF-}" SLURMD_NODENAME="${SLURMD_NODENAME-}" \
        SLURM_SCRIPT_CONTEXT="${SLURM_SCRIPT_CONTEXT-}" SLURM_JOB_ID="${SLURM_JOB_ID-}" \
        SLURM_JOB_UID="${SLURM_JOB_UID-}" SLURM_JOB_GPUS="${SLURM_JOB_GPUS-}" \
        SLURM_JOB_EXIT_CODE2="${SLURM_JOB_EXIT_CODE2-}" SLURM_NODELIST="${SLURM_NODELIST-}" /bin/sh "$0"
fi
umask 077
[ -n "$SLURM_CONF" ] || unset SLURM_CONF
here=$(dirname "$(readlink -f "$0")")
prefix=${here%/*/*/*}
node=${SLURMD_NODENAME:-$(hostname -s)}
record=/var/lib/chexnet/node.json reports=/var/log/chexnet keep=200 limit=60 collect_limit=20 clean_shm=yes

log() { logger -t "chexnet-$(basename "$0" .sh)" -- "$*" 2>/dev/null || echo "$*" >&2; }

# True if PATH belongs to root and only root can write it.
of_root() {
    [ ! -L "$1" ] && case $(stat -c '%u %A' "$1" 2>/dev/null) in
    0\ ?????w* | 0\ ????????w*) false ;;
    0\ *) true ;;
    *) false ;;
    esac
}

for site in "$prefix/etc/chexnet/site.conf" /etc/chexnet/site.conf; do
    [ -e "$site" ] || continue
    if of_root "$site"; then
        # shellcheck disable=SC1090
        . "$site"
    else
        log "$site is ignored: expected a file of root that others cannot write"
    fi
    break
done

# within SECONDS COMMAND...: prints the output of COMMAND, at most 256 KiB, then a line "status N".
# COMMAND is killed after SECONDS. The reader has a limit of its own: it waits neither for a process that
# outlives its kill (a hung file system) nor for one that keeps the pipe open.
within() {
    { { timeout -k 5 "$@" </dev/null 2>&1; echo "status $?"; } & } | timeout $(($1 + 10)) cat |
        head -c 262144
}

# check_node MODE [OPTION...]: sets $table, and $status: 0, 5 if the node is at fault, or empty if
# nothing is known. A chex-env that was killed counts as far as its table had come.
check_node() {
    table=$(within "$limit" "$prefix/bin/chex-env" --mode "$@")
    status=$(printf '%s\n' "$table" | sed -n '$s/^status //p')
    table=$(printf '%s\n' "$table" | sed '${/^status [0-9]*$/d;}')
    if [ -n "$(reason)" ]; then
        status=5
    elif [ "$status" != 0 ]; then
        log "chex-env ended with ${status:-no status}, so nothing was checked:" \
            "$(printf '%s\n' "$table" | tail -n 1)"
        status=
    fi
}

# The first fault of the node in $table: CHECK: found F; expected E.
reason() {
    printf '%s\n' "$table" | awk '
        $2 == "fail" { name = $1; found = $0; sub(/^[^ ]+ +fail +/, "", found); sub(/^found /, "", found) }
        $2 ~ /^(pass|warn|skip)$/ { name = "" }
        name && $1 == "expected:" { expected = $0; sub(/^ *expected: /, "", expected) }
        name && $1 " " $2 == "fault: node" {
            print substr(name ": found " found "; expected " expected, 1, 240)
            exit
        }'
}

node_field() { timeout 20 scontrol show node "$node" 2>/dev/null | sed -n "s/^ *$1=\(.*\)/\1/p"; }

# drain WHO: drains this node with the reason. A node that is drained keeps the reason that it has.
drain() {
    case $(node_field State) in
    *DRAIN*) log "already drained; $(reason)" ;;
    *)
        log "draining: $(reason)"
        timeout 20 scontrol update NodeName="$node" State=DRAIN Reason="chexnet $1: $(reason)"
        ;;
    esac
}
