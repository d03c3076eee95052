#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Counts the instructions in the loops of kernels. --help says more.
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() {
    cat <<END
usage: tests/gpu/loops.sh [--target sm_90] [--least N] FILE.cu [REGEX]
Compiles a file of libcore/engine/cuda for one target and lists, of every kernel whose name matches
REGEX (awk's), the loops of at least N (20) instructions with what they hold of each kind, without
what lies in loops within them. On a scheduler an instruction takes a clock, so the counts, times
the trips, say whether a kernel is bound by its instructions before a device says how fast it is;
code on all paths counts, though only one is executed.
  mma       products on tensor cores       ldsm   ldmatrix
  shared    loads and stores               global loads, stores and asynchronous copies
  fp32 fp64 arithmetic and comparisons     cvt    conversions and packing
  r2ur      values moved to uniform registers, which a product waits for
  shfl      shuffles                       other  integers, addresses, moves, branches
nvcc is taken from PATH, nvdisasm from there, from beside nvcc, or as NVDISASM=FILE says.
Exit status: 0 done, 2 usage, 4 no nvcc or no nvdisasm.
END
}
say() { echo "loops.sh: $1" >&2; }

target=sm_90 least=20 words=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --target | --least)
        [ $# -gt 1 ] || { say "$1 needs a value" && exit 2; }
        [ "$1" = --least ] && least=$2 || target=$2
        shift
        ;;
    -*) say "unknown option '$1'; try --help" && exit 2 ;;
    *) words+=("$1") ;;
    esac
    shift
done
[ ${#words[@]} = 1 ] || [ ${#words[@]} = 2 ] || { say "one file, and a regex at most; try --help" && exit 2; }
[ -r "${words[0]}" ] || { say "${words[0]} cannot be read" && exit 2; }
nvcc=$(command -v nvcc) || { say "there is no nvcc: install CUDA's toolkit, or add its bin to PATH" && exit 4; }
nvdisasm=${NVDISASM:-$(command -v nvdisasm || echo "$(dirname "$(readlink -f "$nvcc")")/nvdisasm")}
[ -x "$nvdisasm" ] || { say "there is no nvdisasm: install cuda-nvdisasm, or NVDISASM=FILE" && exit 4; }

code=$(mktemp)
trap 'rm -f "$code"' EXIT
"$nvcc" "-arch=$target" -cubin -O3 -std=c++17 -fmad=false -I "$root/libcore" -o "$code" "${words[0]}"
"$nvdisasm" -c "$code" | sed 's/^\.text\.\(.*\):$/kernel \1/' | c++filt | awk -v regex="${words[1]-}" -v least="$least" '
function kind(op) {
    sub(/^@!?U?P[0-9T]+ +/, "", op)
    sub(/[ .].*/, "", op)
    if (op ~ /MMA$/) return "mma"
    if (op == "LDSM") return "ldsm"
    if (op ~ /^(LDS|STS|ATOMS)$/) return "shared"
    if (op ~ /^(LDG|STG|LDGSTS|LD|ST|RED|ATOMG)$/) return "global"
    if (op ~ /^(F2F|F2FP|F2I|I2F|I2FP|PRMT|HADD2)$/) return "cvt"
    if (op ~ /^(FADD|FMUL|FFMA|FSETP|FSEL|FMNMX|FSET|MUFU|FCHK)$/) return "fp32"
    if (op ~ /^D(ADD|MUL|FMA|SETP)$/) return "fp64"
    if (op == "R2UR") return "r2ur"
    return op == "SHFL" ? "shfl" : "other"
}
# Instructions from..to without those of loops inside.
function list(loop,    i, j, inside, depth, own, text, n) {
    split("", own)
    for (i = 1; i <= loops; i++)
        depth += first[i] <= first[loop] && last[loop] <= last[i]
    for (i = first[loop]; i <= last[loop]; i++) {
        inside = 0
        for (j = 1; j <= loops && !inside; j++)
            inside = j != loop && first[loop] <= first[j] && last[j] <= last[loop] &&
                     first[j] <= i && i <= last[j]
        if (!inside) {
            own[kind(op[i])]++
            n++
        }
    }
    if (n < least)
        return
    text = sprintf("  loop of %4d, depth %d:", n, depth)
    for (i = 1; i <= kinds; i++)
        if (own[name[i]])
            text = text sprintf("  %s %d", name[i], own[name[i]])
    print text
}
function finish(    i, j, from, header) {
    if (kernel == "" || kernel !~ regex)
        return
    printf "%s: %d instructions\n", kernel, count
    loops = 0
    split("", header)
    for (i = 1; i <= count; i++)
        if (op[i] ~ /BRA/ && match(op[i], /\.L_[A-Za-z0-9_]+/)) {
            from = label[substr(op[i], RSTART, RLENGTH)]
            if (!from || from > i)
                continue
            if (!(from in header)) {
                header[from] = ++loops
                first[loops] = from
            }
            last[header[from]] = i
        }
    for (i = 1; i <= loops; i++)
        list(i)
}
BEGIN { kinds = split("mma r2ur ldsm shared global fp32 fp64 cvt shfl other", name, " ") }
/^kernel / {
    finish()
    kernel = substr($0, 8)
    count = 0
    split("", label)
    next
}
/^\.L_/ { label[substr($1, 1, length($1) - 1)] = count + 1; next }
/^[ \t]*\/\*[0-9a-f]+\*\// {
    line = $0
    sub(/^[ \t]*\/\*[0-9a-f]+\*\/[ \t]*/, "", line)
    op[++count] = line
}
END { finish() }'
