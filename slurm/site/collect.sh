#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Run by epilog.sh with the rights of the job's user: prints what the job left in the files named by
# Slurm. The batch scripts of chexnet write "results in FOLDER" into the log, which leads to the
# checkpoints.
#   collect.sh WORKDIR STDOUT STDERR
cd -- "${1:-/}" 2>/dev/null || exit 0
for log in "$2" "$3"; do
    [ -f "$log" ] && [ "$log" != "${seen-}" ] || continue
    seen=$log
    echo "== last lines of $log"
    tail -n 60 -- "$log"
    echo "== stall report"
    grep -aE 'stall|did not come|is lost' -- "$log" | tail -n 30
    run=$(grep -a '^results in ' -- "$log" | tail -n 1 | cut -c12-)
    [ -n "$run" ] && [ -d "$run/checkpoints" ] || continue
    echo "== newest checkpoint"
    find "$run/checkpoints" -maxdepth 1 -type f -name 'step-*.h5' -printf '%f %s bytes, %t\n' | sort | tail -n 1
done
