#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Epilog of slurm.conf: if a job ended with an error, writes $reports/JOB-NODE.txt for a
# support request: the last log lines, the stall report and the newest checkpoint (collect.sh), and
# the state of the GPUs. Drains the node if it is at fault.
#
# Root opens no file of the user: collect.sh runs with the user's rights and writes to a pipe.
. "$(/usr/bin/dirname "$(/usr/bin/readlink -f "$0")")/node.sh"
case $SLURM_JOB_ID$SLURM_JOB_UID in
'' | *[!0-9]*) exit 0 ;;
esac
job=$(timeout 20 scontrol show job "$SLURM_JOB_ID" 2>/dev/null)
# What Slurm prints of the job; its user chose the texts.
field() { printf '%s\n' "$job" | sed -n "s/^ *$1=//p" | head -n 1; }
word() { printf '%s\n' "$job" | grep -oE "(^| )$1=[^ ]*" | head -n 1 | cut -d= -f2; }
case $(word ExitCode) in
'' | 0:0) exit 0 ;;
esac
check_node health -v
[ "$status" != 5 ] || drain epilog
mkdir -p "$reports" && of_root "$reports" || {
    log "no report: $reports must belong to root and be writable by root alone"
    exit 0
}

# Runs a command as the job's user, with nothing of this environment.
as_user() {
    name=$(id -un "$SLURM_JOB_UID" 2>/dev/null) || return 1
    env -i PATH=/usr/bin:/bin setpriv --reuid="$name" --regid="$(id -g "$name")" --init-groups \
        --no-new-privs timeout -k 5 20 "$@" </dev/null 2>&1
}
report=$(mktemp "$reports/.report.XXXXXX") || exit 0
{
    echo "job $SLURM_JOB_ID of user $SLURM_JOB_UID on $node, $(date '+%Y-%m-%d %H:%M:%S')"
    echo "exit code $(word ExitCode), reason $(word Reason), restarts $(word Restarts)"
    if [ "$(word BatchHost)" = "$node" ]; then
        cd / && as_user /bin/sh "$here/collect.sh" "$(field WorkDir)" "$(field StdOut)" "$(field StdErr)"
    fi
    echo "== node"
    printf '%s\n' "$table" | grep -E '^(gpu-|fit|not fit)|fail|fault'
    if command -v nvidia-smi >/dev/null; then
        timeout 20 nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT 2>&1
    fi
    dmesg 2>/dev/null | grep 'NVRM: Xid' | tail -n 20
} | head -c 262144 | cat -v >"$report"
mv "$report" "$reports/$SLURM_JOB_ID-$node.txt"
exit 0
