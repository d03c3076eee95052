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
  names     no two source files have the same name, and no two headers of libcore define the same one
  commands  each command that a script calls is in a package that share/packages.sh installs for it
  changed   each path and each pattern of tests/changed.txt matches something
  examples  the diffs of doc/add fit the tree, and what they make of libcore and cmd compiles
  format    clang-format would change nothing
  analyser  cppcheck finds nothing
The files are those of libcore, cmd and slurm; for commands: every shell script. --root names another tree of the same layout.
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
    # All headers in one file, except those of CUDA and those that are included many times.
    (
        cd "$root/libcore" || exit
        read -ra flags < <(pkg-config --silence-errors --cflags hdf5 libpng jansson)
        find . -name '*.h' ! -path '*/cuda/*' ! -name '*.inc.h' | sort | sed 's/.*/#include "&"/' |
            "${CC:-cc}" -D_GNU_SOURCE -I. "${flags[@]}" -fsyntax-only -xc - 2>&1 |
            sed -nE 's|^\./||; /redefin|redeclar|conflicting types|wrong kind of tag/s/ (error|warning):/ defined twice:/p'
    )
}

# A Debian package and those of its commands that scripts call. essential: in every Debian, or a part of
# what gcc or cmake needs. by-hand: only in scripts that are run by hand and that say what they miss.
packages_of_commands() {
    cat <<'END'
essential apt-get awk base64 basename bash cat chmod chown cksum cmp comm cp cut dash date dd df diff dirname
essential dmesg dpkg dpkg-deb dpkg-query env find flock grep gunzip gzip head hostname iconv id ldd ln logger ls
essential lscpu md5sum mkdir mkfifo mknod mktemp mount mountpoint mv nice nproc nsenter od paste perl readlink
essential realpath rm rmdir sed seq setpriv setsid sh du sha256sum sleep sort split stat tac tail tar taskset tee
essential timeout touch tr truncate umount uname uniq unshare wc xargs yes
gcc c++filt cc gcc nm objdump readelf strip
cmake cmake cpack ctest
ninja-build ninja
pkg-config pkg-config
by-hand bc busybox chromium compute-sanitizer cuda-gdb debootstrap ncu nvcc nvidia-smi qemu-aarch64
by-hand sudo xorrisofs xz
clang clang
dpkg-dev dpkg-shlibdeps
hdf5-tools h5diff h5dump h5ls
iproute2 ip
libopenjp2-tools opj_compress
librsvg2-bin rsvg-convert
libxml2-utils xmllint
lmod module
man-db man
openmpi-bin mpirun
mpich mpiexec.hydra
procps pgrep pkill ps
rpm rpm rpmbuild
slurm-client salloc sbatch scancel scontrol sdiag sinfo squeue srun
tcl tclsh
xxhash xxh128sum
END
}

# Packages of share/packages.sh that have one command of the same name, such as git, are not in the table.
check_commands() {
    (
        cd "$root" || exit
        # shellcheck source=../share/packages.sh
        . share/packages.sh || { echo "share/packages.sh: cannot be read" && exit; }
        find tests share slurm cmake .ci datasets \( -name '*.sh' -o -name '*.t' -o -name '*.bash' \
            -o -name '*.sbatch' -o -path .ci/run \) -type f 2>/dev/null | sort |
            xargs awk -f "$here/tools/shell_commands.awk" |
            awk -v shell="$(compgen -bk | tr '\n' ' ')" -v table="$(packages_of_commands)" \
                -v build="${packages_build//$'\n'/ }" -v test="${packages_test//$'\n'/ }" '
                function member(package, list) { return index(" " list " ", " " package " ") }
                BEGIN {
                    for (i = split(shell, name, " "); i; i--) known[name[i]] = 1
                    for (i = split(build " " test, name, " "); i; i--) package[name[i]] = name[i]
                    rows = split(table, row, "\n")
                    for (i = 1; i <= rows; i++) {
                        n = split(row[i], name, " ")
                        for (k = 2; k <= n; k++) package[name[k]] = name[1]
                    }
                }
                sub(/\(\)$/, "") { known[$2] = 1; next }
                $2 !~ /^chex-/ { at[++calls] = $1; call[calls] = $2 }
                END {
                    for (i = 1; i <= calls; i++) {
                        if (call[i] in known) continue
                        p = package[call[i]]
                        lists = at[i] ~ /^(share|cmake)\// ? build : at[i] ~ /^slurm\// ? "slurm-client" : build " " test
                        if (!p)
                            print at[i] ": " call[i] ": in no known package: add it to tests/check_tree.sh"
                        else if (p != "essential" && !member(p, lists) && !(p == "by-hand" && at[i] !~ /\.t:/))
                            print at[i] ": " call[i] ": the package " p " is not one that the script may use (" \
                                "share/packages.sh)"
                    }
                }'
    )
}

# Each branch of a regular expression of tests/changed.txt matches a test. A group ends its branch.
check_changed() {
    local names prefix regex branch
    cd "$root" || return
    names=$(find tests/{unit,op,gpu,gpu-dnn,fuzz,cmd,slurm} -maxdepth 1 -name '*.[ct]*' 2>/dev/null |
        sed -E 's|^tests/([^/]*)/([^.]*).*|\1-\2|')
    grep -v '^#' tests/changed.txt | while read -r prefix regex; do
        compgen -G "$prefix*" >/dev/null || echo "tests/changed.txt: no path begins with $prefix"
        [ "$regex" != - ] || continue
        sed -E ':a; s/(^|\|)([^|()]*)\(([^|()]*)\|/\1\2(\3)|\2(/; ta; s/[()]//g; s/\|/\n/g' <<<"$regex" |
            while read -r branch; do
                grep -qE -- "$branch" <<<"$names" || echo "tests/changed.txt: $prefix: $branch matches no test"
            done
    done
}

# The files that the diff of PAGE makes of this tree, in folder TO. Prints the hunks that do not fit.
apply_example() { # PAGE TO
    awk -v page="${1#"$root/"}" -v from="$root/" -v to="$2/" '
        function whole(name,    all, line) {
            while ((getline line <name) > 0) all = all line "\n"
            close(name)
            return "\n" all
        }
        function apply(    at, rest) {
            if (before after == "") return
            if (!(file in text)) text[file] = whole(from file)
            at = index(text[file], "\n" before)
            rest = substr(text[file], at + length(before))
            if (!at || (before == "" ? rest != "\n" : index(rest, "\n" before)))
                print page ": a hunk of " file " is not once in it: " substr(before, 1, index(before, "\n") - 1)
            else
                text[file] = substr(text[file], 1, at) after substr(rest, 2)
            before = after = ""
        }
        /^```/ { apply(); inside = /^```diff/; next }
        !inside { next }
        /^\+\+\+ / { apply(); file = substr($0, 5); next }
        /^@@/ { apply(); next }
        !/^\+/ { before = before substr($0, 2) "\n" }
        !/^-/ { after = after substr($0, 2) "\n" }
        END {
            for (file in text) {
                folder = to file
                sub(/[^\/]*$/, "", folder)
                system("mkdir -p " folder)
                printf "%s", substr(text[file], 2) >(to file)
            }
        }' "$1"
}

# The examples of doc/add fit the tree, and their files of libcore and cmd compile. A header of a library
# that is not installed is no fault.
check_examples() {
    local made page file flags
    made=$(mktemp -d) || return
    read -ra flags < <(pkg-config --silence-errors --cflags hdf5 libpng jansson)
    for page in "$root"/doc/add/*.md; do
        apply_example "$page" "$made"
        (cd "$made" && find libcore cmd -name '*.c' 2>/dev/null | sort) | while read -r file; do
            (
                cd "$root" || exit
                "${CC:-cc}" -std=c11 -D_GNU_SOURCE -DCHEXNET_VERSION='""' "${flags[@]}" -Wall -fsyntax-only \
                    -iquote"$made/libcore" -iquotelibcore -iquote"$made/cmd" -iquotecmd -iquote"${file%/*}" \
                    "$made/$file" 2>&1 </dev/null | sed -nE "s|^$made/|${page#"$root/"}: |; /fatal error: [a-z0-9_]*\.h:/d; / (error|warning): /p"
            )
        done
        rm -rf "${made:?}"/*
    done
    rm -rf "$made"
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
    heads | layers | names | commands | changed | examples) checks+=("$1") ;;
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
    commands) check_commands ;;
    changed) (check_changed) ;;
    examples) check_examples ;;
    format) check_format ;;
    analyser) check_analyser ;;
    esac
done)
[ -n "$faults" ] || exit 0
printf '%s\n' "$faults"
exit 1
