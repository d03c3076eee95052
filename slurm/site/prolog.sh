#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Prolog of slurm.conf: checks the node before a job starts on it. If the node is at fault, drains it
# and ends with 1; Slurm then gives the job other nodes. Anything else ends with 0.
. "$(/usr/bin/dirname "$(/usr/bin/readlink -f "$0")")/node.sh"
check_node prolog
[ "$status" = 5 ] || exit 0
drain prolog
exit 1
