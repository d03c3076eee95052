#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# HealthCheckProgram of slurm.conf: drains a node that is at fault, with the reason, and resumes it
# when the fault is gone. Reasons of administrators and of other programs stay.
#
# $record holds how many GPUs the node has. The first check that finds no fault, and all GPUs that
# slurm.conf gives to the node, writes it; remove it after GPUs were taken out.
. "$(/usr/bin/dirname "$(/usr/bin/readlink -f "$0")")/node.sh"
if of_root "$record"; then
    check_node health --expect "$record"
else
    mkdir -p "${record%/*}" && of_root "${record%/*}" || exit 0
    gpus=$(node_field Gres | tr ',' '\n' | sed -n 's/^gpu:\([^:(]*:\)\{0,1\}\([0-9]*\).*/\2/p' |
        awk '{ n += $1 } END { print n + 0 }')
    echo "{\"gpu-count\": \"$gpus\"}" >"$record.gres"
    check_node health --expect "$record.gres" --record "$record"
    rm -f "$record.gres"
    [ "$status" = 0 ] || rm -f "$record"
fi
case $status in
5) drain health ;;
0)
    case $(node_field Reason) in
    "chexnet health: "*)
        log "the fault is gone; resuming"
        timeout 20 scontrol update NodeName="$node" State=RESUME
        ;;
    esac
    ;;
esac
exit 0
