#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Judges what ptxas said of every kernel. --help says more.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../options.sh
. "$here/../options.sh"

usage() {
    cat <<END
usage: tests/gpu/ptxas.sh [--list] [--table FILE] FOLDER|FILE.ptxas...
Reads the records of \`nvcc -Xptxas -v\` that the build leaves beside each object (*.ptxas) and fails
on a kernel that spills registers, has a stack frame, has products that ptxas has serialised (wgmma,
each waits for the one before), or goes over its line of the table
(tests/gpu/registers.txt): REGEX THREADS REGISTERS STATIC_BYTES, the first line whose regex is found
in the mangled name counts. THREADS is the largest block that the kernel is launched with; a
multiprocessor has 65536 registers, given out in eights a thread. A line of the table that no kernel
matches fails too, and so does a record without kernels.
  --list   every kernel: registers, static shared memory, target
Exit status: 0 good, 1 not, 2 usage.
END
}

list='' table=$here/registers.txt records=()
read_options "list+ table" "$@"
for word in "${words[@]}"; do
    if [ -d "$word" ]; then
        mapfile -t -O ${#records[@]} records < <(find "$word" -name '*.ptxas' | sort)
    else
        records+=("$word")
    fi
done
[ ${#records[@]} -gt 0 ] || usage_error "no records (*.ptxas)"
[ -r "$table" ] || usage_error "$table cannot be read"

awk -v list="${list:+1}" -v table="$table" '
function fail(text) {
    print "FAILED: " text
    failed++
}
function finish(regs,    i, eights, label) {
    if (kernel == "")
        return
    kernels++
    per[target]++
    most[target] = regs > most[target] ? regs : most[target]
    label = kernel " for " target
    if (frame > 0)
        fail(label ": a stack frame of " frame " bytes")
    if (spilled > 0)
        fail(label ": " spilled " bytes of spills")
    for (i = 1; i <= lines; i++)
        if (kernel ~ regex[i])
            break
    if (i > lines)
        fail(label ": no line of " table " is about it")
    else {
        used[i] = 1
        eights = int((regs + 7) / 8) * 8
        if (regs > limit[i])
            fail(label ": " regs " registers, " limit[i] " allowed (" regex[i] ")")
        else if (eights * threads[i] > 65536)
            fail(label ": " regs " registers for " threads[i] " threads: 65536 in all")
        if (shared > static[i])
            fail(label ": " shared " bytes of static shared memory, " static[i] " allowed (" regex[i] ")")
    }
    if (list)
        printf "%4d registers  %6d shared  %-9s %s\n", regs, shared, target, kernel
    kernel = ""
}
BEGIN {
    while ((getline line < table) > 0) {
        if (line ~ /^[ \t]*(#|$)/)
            continue
        if (split(line, f, /[ \t]+/) != 4 || f[2] f[3] f[4] !~ /^[0-9]+$/) {
            fail(table ": \"" line "\" is not REGEX THREADS REGISTERS STATIC_BYTES")
            continue
        }
        regex[++lines] = f[1]
        threads[lines] = f[2] + 0
        limit[lines] = f[3] + 0
        static[lines] = f[4] + 0
    }
}
FNR == 1 {
    if (kernel != "")
        fail(kernel ": the record ends before its registers")
    kernel = ""
}
/Compiling entry function/ {
    if (kernel != "")
        fail(kernel ": the record has no registers")
    split($0, q, "\047")
    kernel = q[2]
    target = q[4]
    frame = spilled = shared = 0
    next
}
/wgmma.mma_async instructions are serialized/ {
    fail(FILENAME ": " $0)
    next
}
# Of the kernel, or of a function that it calls.
/bytes stack frame/ {
    if (kernel == "" && $1 + $5 + $9 > 0)
        fail(FILENAME ": a function with a stack frame of " $1 " bytes, " $5 + $9 " of spills")
    frame = $1 > frame ? $1 : frame
    spilled += $5 + $9
    next
}
kernel != "" && /Used [0-9]+ registers/ {
    if (match($0, /[0-9]+ bytes smem/))
        shared = substr($0, RSTART, RLENGTH) + 0
    match($0, /Used [0-9]+/)
    finish(substr($0, RSTART + 5, RLENGTH - 5) + 0)
}
END {
    if (kernel != "")
        fail(kernel ": the record ends before its registers")
    if (!kernels)
        fail("no kernel in the records")
    for (i = 1; i <= lines; i++)
        if (!used[i])
            fail(table ": \"" regex[i] "\" matches no kernel")
    for (t in per)
        printf "%s: %d kernels, at most %d registers\n", t, per[t], most[t] | "sort"
    close("sort")
    exit failed > 0
}' "${records[@]}"
