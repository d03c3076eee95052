#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the form of the source tree. --help says more.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")

usage() {
    cat <<END
usage: tests/check_tree.sh [--root FOLDER] CHECK...
Prints one line for each fault and exits with 1 if there is any. The checks:
  heads     every source file opens with the licence line and a paragraph that says what it is for
  layers    a folder of libcore includes only folders before it in the list of libcore/CMakeLists.txt
  names     no two source files have the same name
  format    clang-format would change nothing
  analyser  cppcheck finds nothing
The files are those of libcore, cmd and slurm. --root names another tree of the same layout.
Exit status: 0 no fault, 1 faults, 2 usage, 4 a program is missing.
END
}

sources() { # endings...
    local pattern='' ending
    for ending; do pattern="$pattern -o -name *.$ending"; done
    (
        cd "$root" || exit
        set -f
        # shellcheck disable=SC2086
        find libcore cmd slurm -type f \( ${pattern# -o } \) 2>/dev/null | sort
    )
}

check_heads() {
    local file
    sources c h cu cuh cpp | while read -r file; do
        awk -v file="$file" '
            NR == 1 && $0 != "/* SPDX-License-Identifier: Apache-2.0" { exit }
            NR == 2 && $0 != " *" { exit }
            NR > 2 && /\*\/$/ { text = text $0; done = 1; exit }
            NR > 2 { text = text $0 }
            END {
                gsub(/[ *\/]/, "", text)
                if (!done || length(text) < 20)
                    print file ":1: no head: expected the licence line, a line with *, and a" \
                        " paragraph that says what the file is for"
            }' "$root/$file"
    done
}

check_layers() {
    local layers
    layers=$(tr '\n' ' ' <"$root/libcore/CMakeLists.txt" |
        sed -n 's/.*set(layers \([^)]*\)).*/\1/p' | tr -s ' \n' '\n' | grep -v /)
    [ -n "$layers" ] || { echo "libcore/CMakeLists.txt: no list of layers" && return; }
    (cd "$root" && grep -rnoE '^#include "[a-z_]+/[^"]*"' libcore) |
        awk -F: -v layers="$layers" '
            BEGIN { n = split(layers, l, "\n"); for (i = 1; i <= n; i++) rank[l[i]] = i }
            {
                split($1, path, "/"); split($3, include, "\""); split(include[2], target, "/")
                if (!(target[1] in rank))
                    print $1 ":" $2 ": includes " include[2] ", which is in no layer"
                else if (rank[target[1]] > rank[path[2]])
                    print $1 ":" $2 ": layer " path[2] " includes " include[2] \
                        ", which is in a layer above it"
            }'
}

check_names() {
    sources c h cu cuh cpp | awk -F/ '
        { at[$NF] = at[$NF] " " $0; count[$NF]++ }
        END { for (name in count) if (count[name] > 1) print name ": more than one file:" at[name] }'
}

check_format() {
    (cd "$root" && sources c h cu cuh | xargs clang-format --dry-run 2>&1 | grep 'warning:')
}

check_analyser() {
    (
        cd "$root" || exit
        sources c | xargs cppcheck -j "$(nproc)" --quiet --std=c11 --language=c \
            --enable=warning,performance,portability --library="$here/cppcheck.cfg" -Ilibcore \
            --suppressions-list="$here/cppcheck.suppress" \
            --template='{file}:{line}: {severity} [{id}] {message}' 2>&1
    )
}

needs() {
    command -v "$1" >/dev/null || { echo "tests/check_tree.sh: no $1; install it" >&2 && exit 4; }
}

checks=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --root)
        [ -d "${2-}/libcore" ] || { echo "tests/check_tree.sh: --root '${2-}': no libcore" >&2 && exit 2; }
        root=$(cd "$2" && pwd)
        shift
        ;;
    heads | layers | names) checks+=("$1") ;;
    format) needs clang-format && checks+=("$1") ;;
    analyser) needs cppcheck && checks+=("$1") ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done
[ ${#checks[@]} -gt 0 ] || { usage >&2 && exit 2; }
faults=$(for check in "${checks[@]}"; do
    case $check in
    heads) check_heads ;;
    layers) check_layers ;;
    names) check_names ;;
    format) check_format ;;
    analyser) check_analyser ;;
    esac
done)
[ -n "$faults" ] || exit 0
printf '%s\n' "$faults"
exit 1
