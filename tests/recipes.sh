#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Long: the archive of the source is built without git, and by each recipe made for it. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=debian_root.sh
. "$root/tests/debian_root.sh"
# shellcheck source=options.sh
. "$root/tests/options.sh"

usage() {
    cat <<'END'
usage: tests/recipes.sh [--dir DIR] [RECIPE...]
Makes the archive of this commit and builds it without git, and by these recipes:
  easybuild  by `eb`: its checks of style and checksums, the dependencies of the toolchain, and a build
             with the libraries of this system (Python package easybuild; Lmod)
  spack      by `spack` with its configuration: its audit, the dependencies, and a build
  apptainer  by `apptainer`; without it the commands of the recipe run in a bare Debian 12 (root,
             debootstrap)
A recipe whose tool is missing is skipped. All by default; each takes minutes.
  --dir DIR  where the archive and the builds stay (a temporary folder, removed at the end)
  --help
Exit status: 0 nothing failed, 1 something did, 2 usage.
END
}

dir=''
read_options "dir" "$@"
for word in "${words[@]}"; do
    [[ $word =~ ^(easybuild|spack|apptainer)$ ]] || usage_error "unknown recipe '$word'"
done
[ ${#words[@]} -gt 0 ] || words=(easybuild spack apptainer)
PATH=$PATH:/usr/sbin:/sbin
[ "$dir" ] || { dir=$(mktemp -d "${TMPDIR:-/var/tmp}/chex-recipes.XXXXXX") && trap 'rm -rf --one-file-system "$dir"' EXIT; }
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || exit 1

failed=0
try() { # LABEL COMMAND...
    local began=$SECONDS status=0
    "${@:2}" >"$dir/log" 2>&1 || status=$?
    [ $status = 0 ] || { failed=1 && tail -n 40 "$dir/log"; }
    echo "$([ $status = 0 ] && echo passed || echo FAILED): $1 ($((SECONDS - began)) s)"
    return $status
}

archive() {
    cmake -S "$root" --preset release -B "$dir/build" -DCHEX_WITH_CUDA=OFF &&
        cpack --config "$dir/build/CPackSourceConfig.cmake" -G TGZ -B "$dir/archive"
}

# git is a command that fails.
plain() (
    mkdir -p "$dir/plain/bin" && tar -xzf "$dir"/archive/chexnet-*.tar.gz -C "$dir/plain" --strip-components=1 &&
        ln -sf "$(command -v false)" "$dir/plain/bin/git" && cd "$dir/plain" &&
        PATH=$PWD/bin:$PATH cmake --preset release -DCHEX_WITH_CUDA=OFF &&
        PATH=$PWD/bin:$PATH cmake --build build/release -j 2 &&
        cmake --install build/release --prefix "$dir/installed" && "$dir/installed/bin/chex-env" -q --mode login
)

by_easybuild() {
    local recipe options=(--prefix="$dir/eb" --allow-use-as-root-and-accept-consequences)
    recipe=$(echo "$dir"/archive/recipes/easybuild/*.eb)
    try "EasyBuild: style and checksums" eb --check-contrib "$recipe" "${options[@]}" &&
        try "EasyBuild: dependencies" eb --dry-run --robot "$recipe" "${options[@]}" &&
        try "EasyBuild: build" eb "$recipe" --try-toolchain=system,system --disable-map-toolchains --parallel=2 \
            --filter-deps="$(sed -n "s/^    ('\([A-Za-z0-9-]*\)'.*/\1/p" "$recipe" | paste -sd,)" "${options[@]}"
}

by_spack() {
    local repo=$dir/archive/recipes/spack/spack_repo/chexnet
    local with=(spack -c "repos:chexnet:$repo")
    try "Spack: audit" "${with[@]}" audit packages chexnet && try "Spack: dependencies" "${with[@]}" spec chexnet &&
        try "Spack: build" "${with[@]}" install chexnet
}

by_apptainer() {
    cd "$dir/archive" && try Apptainer apptainer build chexnet.sif recipes/apptainer/chexnet.def
}

# The commands of %post in stage $1, without the indentation.
post() {
    awk -v stage="$1" '/^[A-Z][a-z]*:/ { post = 0 } /^Stage:/ { on = $2 == stage }
        /^%/ { post = on && $1 == "%post"; next } post' \
        "$dir/archive/recipes/apptainer/chexnet.def"
}
bare() { # STAGE
    local stage=$dir/stage-$1/root
    mkdir -p "$dir/stage-$1" && debian_root_make "$stage" bookworm || return
    if [ "$1" = build ]; then
        mkdir "$stage/src" && cp "$dir"/archive/chexnet-*.tar.gz "$stage/src/" &&
            debian_root_run "$stage" "set -e; $(post build)"
    else
        cp -r "$dir/stage-build/root/packages" "$stage/packages" &&
            debian_root_run "$stage" "set -e; $(post final); chex-env -q --mode login; chex-train --version"
    fi
}

try "the archive" archive && try "a build without git" plain || exit 1
for recipe in "${words[@]}"; do
    tool=${recipe/easybuild/eb}
    if command -v "$tool" >/dev/null; then
        "by_$recipe"
    elif [ "$recipe" = apptainer ] && why=$(debian_root_needs); then
        try "Apptainer's first stage in a bare Debian" bare build &&
            try "Apptainer's second stage in a bare Debian" bare final
    else
        echo "skipped: $recipe: no $tool here${why:+, and it $why}"
    fi
done
exit $failed
