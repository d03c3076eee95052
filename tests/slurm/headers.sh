#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the SPANK plugin, chexnet-slurm.so and chexnet-slurm-step with the headers of each release of Slurm in a clone
# of its repository, and prints a table: release, number of the interface of libslurm, result. Compiles
# only: nothing is linked with, or run under, these releases.
set -u
usage="usage: headers.sh GIT_DIR [TAG...]     a clone of github.com/SchedMD/slurm; tags such as slurm-23-11-0-1"
repo=${1:?$usage}
shift
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
show() { git --git-dir="$repo" show "$1"; }
# The newest tag of each release from 20.11 on.
[ $# -gt 0 ] || mapfile -t tags < <(git --git-dir="$repo" tag | grep -E '^slurm-2[0-9]-[0-9]+-[0-9]+-[0-9]+$' |
    sort -t- -k2,2n -k3,3n -k4,4n -k5,5n | awk -F- '{ last[$2 "-" $3] = $0; if (!($2 "-" $3 in at)) { at[$2 "-" $3] = ++n; key[n] = $2 "-" $3 } }
        END { for (i = 1; i <= n; i++) print last[key[i]] }')
[ $# = 0 ] || tags=("$@")
[ ${#tags[@]} -gt 0 ] || { echo "$repo: no tags of releases" >&2 && exit 1; }

compile() { # SOURCE [OPTION...]
    "${CC:-cc}" -std=c11 -D_GNU_SOURCE -fsyntax-only -Wall -Wextra -Werror -Wno-write-strings \
        -Wno-missing-field-initializers -isystem "$work" -I"$source/libcore" "$@" >"$work/log" 2>&1 && return
    grep -m 1 -o 'error: .*' "$work/log"
    return 1
}
failed=0
printf '%-20s %-9s %-28s %s\n' release libslurm spank_chexnet.so chexnet-slurm.so
for tag in "${tags[@]}"; do
    rm -rf "$work/slurm" && mkdir "$work/slurm"
    for file in slurm.h slurm_errno.h spank.h; do
        show "$tag:slurm/$file" >"$work/slurm/$file" 2>/dev/null ||
            show "$tag:slurm/$file.in" >"$work/slurm/$file" 2>/dev/null
    done
    meta() { show "$tag:META" | awk -v key="$1:" '$1 == key { print $2 }'; }
    IFS=. read -r major minor micro <<<"$(meta Version)"
    api=$(($(meta API_CURRENT) - $(meta API_AGE)))
    printf '#define SLURM_VERSION_NUMBER 0x%02x%02x%02x\n' "$((10#$major))" "$((10#$minor))" "$((10#${micro%%-*}))" \
        >"$work/slurm/slurm_version.h"
    cat >>"$work/slurm/slurm_version.h" <<'END'
#define SLURM_VERSION_MAJOR(a) (((a) >> 16) & 0xff)
#define SLURM_VERSION_MINOR(a) (((a) >> 8) & 0xff)
#define SLURM_VERSION_MICRO(a) ((a) & 0xff)
#define SLURM_VERSION_NUM(a, b, c) (((a) << 16) + ((b) << 8) + (c))
END
    plugin=$(compile "$source/slurm/spank/spank_chexnet.c" -DCHEXNET_PREFIX='"/usr"' \
        -DCHEXNET_MODULE_SUBDIR='"lib/chexnet"') && plugin=compiles || failed=1
    module=$(compile "$source/slurm/library/slurm_library.c" -DCHEX_SLURM_API="$api" \
        -DCHEXNET_VERSION='"0"' && compile "$source/slurm/library/step_nodes.c") && module=compiles || failed=1
    printf '%-20s %-9s %-28s %s\n' "$tag" "$api" "$plugin" "$module"
done
exit $failed
