#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Epilog of slurm.conf: if a job ended with an error, writes $reports/JOB-NODE.txt for a
# support request: the last log lines, the stall report and the newest checkpoint (collect.sh), and
# the state of the GPUs. Drains the node if it is at fault. Removes what the job left in /dev/shm.
#
# Root opens no file of the user: collect.sh runs with the user's rights and writes to a pipe. Only the
# first node of a job that failed asks slurmctld, once, for the names of its logs.
. "$(/usr/bin/dirname "$(/usr/bin/readlink -f "$0")")/node.sh"
case $SLURM_JOB_ID$SLURM_JOB_UID in
'' | *[!0-9]*) exit 0 ;;
esac

# as_user COMMAND...: runs a command as the job's user, for at most $collect_limit seconds, without this
# environment. The first process of its name space belongs to root; when it ends, all others in it end.
as_user() {
    name=$(id -un "$SLURM_JOB_UID" 2>/dev/null) || return 1
    # shellcheck disable=SC2016
    within "$collect_limit" env -i PATH=/usr/bin:/bin unshare --pid --fork --kill-child=KILL /bin/sh -c '"$@"; exit $?' sh \
        setpriv --reuid="$name" --regid="$(id -g "$name")" --init-groups --no-new-privs "$@" | sed '/^status [0-9]*$/d'
}

# Shared memory outlives its job, and a full /dev/shm fails every later job. A user with other processes
# here, such as another job, keeps it.
if [ "$clean_shm" = yes ] && [ "$SLURM_JOB_UID" != 0 ] &&
    [ -n "$(timeout 5 find /dev/shm -xdev -mindepth 1 -user "$SLURM_JOB_UID" -print -quit 2>/dev/null)" ] &&
    [ -z "$(find /proc -maxdepth 1 -name '[1-9]*' -user "$SLURM_JOB_UID" -print -quit 2>/dev/null)" ]; then
    as_user find /dev/shm -xdev -mindepth 1 -user "$SLURM_JOB_UID" -delete >/dev/null
    log "job $SLURM_JOB_ID: removed what its user left in /dev/shm"
fi

first=$(timeout 5 scontrol show hostnames "$SLURM_NODELIST" 2>/dev/null | head -n 1)
case $SLURM_JOB_EXIT_CODE2 in
0:0) exit 0 ;;
'') [ "$first" = "$node" ] || exit 0 ;; # an older Slurm, which does not tell: ask
esac
job=
[ "$first" != "$node" ] || job=$(timeout 20 scontrol show job "$SLURM_JOB_ID" 2>/dev/null)
# What Slurm prints of the job; its user chose the texts.
field() { printf '%s\n' "$job" | sed -n "s/^ *$1=//p" | head -n 1; }
word() { printf '%s\n' "$job" | grep -oE "(^| )$1=[^ ]*" | head -n 1 | cut -d= -f2; }
code=${SLURM_JOB_EXIT_CODE2:-$(word ExitCode)}
[ "${code:-0:0}" != 0:0 ] || exit 0
check_node health -v
[ "$status" != 5 ] || drain epilog
mkdir -p "$reports" && of_root "$reports" || {
    log "no report: $reports must belong to root and be writable by root alone"
    exit 0
}
report=$(mktemp "$reports/.report.XXXXXX") || exit 0
{
    echo "job $SLURM_JOB_ID of user $SLURM_JOB_UID on $node, $(date '+%Y-%m-%d %H:%M:%S')"
    echo "exit code $code${job:+, reason $(word Reason), restarts $(word Restarts)}"
    if [ -n "$job" ]; then
        cd / && as_user /bin/sh "$here/collect.sh" "$(field WorkDir)" "$(field StdOut)" "$(field StdErr)" |
            cat -v | head -c 131072 # the other half is for the node
    fi
    echo "== node"
    printf '%s\n' "$table" | grep -E '^(gpu-|fit|not fit)|fail|fault'
    if command -v nvidia-smi >/dev/null; then
        within 20 nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT | sed '/^status [0-9]*$/d'
    fi
    dmesg 2>/dev/null | grep 'NVRM: Xid' | tail -n 20
} | cat -v | head -c 262144 >"$report"
mv "$report" "$reports/$SLURM_JOB_ID-$node.txt"
find "$reports" -maxdepth 1 -type f \( -name '*-*.txt' -o -name '.report.*' -mmin +60 \) -printf '%T@ %p\n' |
    sort -rn | tail -n "+$((keep + 1))" | cut -d' ' -f2- | xargs -r -d '\n' rm -f --
exit 0
