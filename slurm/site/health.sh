#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# HealthCheckProgram of slurm.conf: drains a node that is at fault, with the reason, and resumes it
# when the fault is gone. Reasons of administrators and of other programs stay.
#
# $record holds how many GPUs the node has. The first check that finds no fault writes it; remove it
# after GPUs were taken out.
. "$(/usr/bin/dirname "$(/usr/bin/readlink -f "$0")")/node.sh"
if of_root "$record"; then
    check_node health --expect "$record"
else
    mkdir -p "${record%/*}" && of_root "${record%/*}" || exit 0
    check_node health --record "$record"
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
