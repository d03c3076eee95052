# shellcheck shell=sh disable=SC2034
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by prolog.sh, epilog.sh and health.sh, which slurmd runs as root on a node.
#
# - The script starts again with an environment of a few variables that Slurm itself sets. So no
#   variable of a job or of a shell chooses programs, libraries or files. PATH is fixed.
# - Settings come from PREFIX/etc/chexnet/site.conf or /etc/chexnet/site.conf, which must belong to
#   root. site.conf.sample lists them.
# - Only a fault that chex-env gives to the node (status 5) drains the node.
if [ "${CHEXNET_STARTED-}" != $$ ]; then
    exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin CHEXNET_STARTED=$$ \
        SLURM_CONF="${SLURM_CONF-}" SLURMD_NODENAME="${SLURMD_NODENAME-}" \
        SLURM_SCRIPT_CONTEXT="${SLURM_SCRIPT_CONTEXT-}" SLURM_JOB_ID="${SLURM_JOB_ID-}" \
        SLURM_JOB_UID="${SLURM_JOB_UID-}" SLURM_JOB_GPUS="${SLURM_JOB_GPUS-}" /bin/sh "$0"
fi
umask 077
[ -n "$SLURM_CONF" ] || unset SLURM_CONF
here=$(dirname "$(readlink -f "$0")")
prefix=${here%/*/*/*}
node=${SLURMD_NODENAME:-$(hostname -s)}
record=/var/lib/chexnet/node.json reports=/var/log/chexnet limit=60

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

# check_node MODE [OPTION...]: sets $table and $status. 5: the node is at fault.
check_node() {
    table=$(timeout -k 5 "$limit" "$prefix/bin/chex-env" --mode "$@" 2>&1)
    status=$?
    case $status in
    0 | 5) ;;
    124 | 137)
        table="chex-env fail found no end after $limit s
    expected: an end
    fault: node"
        status=5
        ;;
    *) log "chex-env ended with $status, so nothing was checked: $(printf %s "$table" | tail -n 1)" ;;
    esac
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
