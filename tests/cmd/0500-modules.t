#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed tree works through `module load`: Lmod with both files, Environment Modules with
# the Tcl one (MODULECMD may name a modulecmd.tcl that is only unpacked).
source "$(dirname "$0")/lib.sh"
prefix=$SCRATCH/opt
version=$(sed -n 's/^project(chexnet VERSION \([0-9.]*\).*/\1/p' "$SOURCE/CMakeLists.txt")
expect_status 0 cmake --install "$BUILD" --prefix "$prefix"
lua=$prefix/share/modulefiles tcl=$prefix/share/modulefiles-tcl
[ -f "$lua/chexnet/$version.lua" ] && [ -f "$tcl/chexnet/$version" ]
ok $? "both modulefiles carry the version $version"
unlike "$(cat "$lua/chexnet/$version.lua" "$tcl/chexnet/$version")" '@[A-Z]+@' "modulefiles have no placeholder left"
is "$(head -c 11 "$tcl/chexnet/$version")" "#%Module1.0" "the Tcl file has its magic cookie"
expect_status 0 "$prefix/bin/chex-env" -v --mode login
like "$(out)" "modules +(pass|warn) +mpi (loads|not installed)" "the installed command finds its parts"

cmp "$SOURCE/LICENSE" "$prefix/share/doc/chexnet/LICENSE" &&
    cmp "$SOURCE/README.md" "$prefix/share/doc/chexnet/README.md"
ok $? "the licence and the README are installed"
(cd "$prefix/share/doc/chexnet" && grep -oE '\]\(doc/[^)#]+' README.md | cut -c3- | xargs ls) >/dev/null
ok $? "the links of the installed README lead to the installed pages"

# A modulefile that was left by another version in the same prefix.
touch "$lua/chexnet/0.0.1.lua"
expect_status 0 cmake --install "$BUILD" --prefix "$prefix"
like "$(tr -s '\n ' ' ' <err)" "chexnet/0\.0\.1\.lua: loads $version now" "a modulefile of another version is warned about"
unlike "$(err)" "modulefiles-tcl|$version\.lua:" "modulefiles of this version are not warned about"
rm "$lua/chexnet/0.0.1.lua"

# in_shell TEXT: runs it in a shell without the build's folder in PATH.
in_shell() {
    env -i HOME="$SCRATCH" PATH=/usr/local/bin:/usr/bin:/bin MANPATH= LMOD_CACHED_LOADS=no \
        "${@:2}" bash -c "$1" 2>&1
}

# Each of these: INIT FOLDER LABEL.
data_dirs() {
    local init=$1 use="module use $2" label=$3 text
    text="$init; $use; module load chexnet; echo \"\$XDG_DATA_DIRS\"; module unload chexnet
        echo \"\${XDG_DATA_DIRS-unset}\""
    is "$(in_shell "$text" | tail -n 2 | tr '\n' ' ')" \
        "$prefix/share:/usr/local/share:/usr/share unset " \
        "$label: XDG_DATA_DIRS keeps the system's folders, unload removes it"
    is "$(in_shell "$text" XDG_DATA_DIRS=/a:/usr/share | tail -n 2 | tr '\n' ' ')" \
        "$prefix/share:/a:/usr/share /a:/usr/share " \
        "$label: a user's XDG_DATA_DIRS is extended, unload restores it"
}
mpi_type() {
    local init=$1 use="module use $2" label=$3 text
    text="$init; $use; module load chexnet; echo \$SLURM_MPI_TYPE; module unload chexnet
        echo \${SLURM_MPI_TYPE-unset}"
    is "$(in_shell "$text" | tail -n 2 | tr '\n' ' ')" "pmix unset " \
        "$label: srun uses PMIx while the module is loaded"
    is "$(in_shell "$text" SLURM_MPI_TYPE=pmix_v4 | tail -n 2 | tr '\n' ' ')" "pmix_v4 pmix_v4 " \
        "$label: a user's SLURM_MPI_TYPE stays"
}
# As a TAB would: bash-completion finds the file, and the function offers options.
completion() {
    local init=$1 use="module use $2" label=$3 script=/usr/share/bash-completion/bash_completion
    [ -f $script ] || { skip "no bash-completion here"; return; }
    is "$(in_shell ". $script; $init; $use; module load chexnet; _completion_loader chex-env
        COMP_WORDS=(chex-env --mo) COMP_CWORD=1 COMP_LINE='chex-env --mo' COMP_POINT=13
        \$(complete -p chex-env | sed 's/.*-F \([^ ]*\) .*/\1/') chex-env --mo chex-env
        echo \${COMPREPLY[*]}" | tail -n 1)" "--mode" "$label: TAB completes an option"
}

# try INIT FOLDER LABEL: load, use, unload, unknown version.
try() {
    local init=$1 use="module use $2" label=$3 got
    got=$(in_shell "$init; $use; module load chexnet || exit 1
        command -v chex-env; chex-env --version; man -w chex-env; echo root=\$CHEXNET_ROOT")
    like "$got" "^$prefix/bin/chex-env$" "$label: load finds the command"
    like "$got" "^chex-env .*$version" "$label: which runs"
    if have man; then
        like "$got" "^$prefix/share/man/man1/chex-env\.1" "$label: and its manual page"
    else
        skip "no man here"
    fi
    like "$got" "^root=$prefix$" "$label: CHEXNET_ROOT is the prefix"
    got=$(in_shell "$init; $use; module load chexnet/$version; module unload chexnet
        echo path=\$PATH root=\${CHEXNET_ROOT-gone} man=\$MANPATH; command -v chex-env || echo no command")
    like "$got" "^no command$" "$label: unload takes the command away"
    like "$got" "root=gone" "$label: and the variable"
    unlike "$got" "$prefix" "$label: and every path"
    data_dirs "$@"
    mpi_type "$@"
    completion "$@"
    # As sites do that keep all modulefiles in one folder.
    mkdir -p "copy/${use##*/}"
    cp -r "${use#module use }/chexnet" "copy/${use##*/}/"
    like "$(in_shell "$init; module use $SCRATCH/copy/${use##*/}; module load chexnet; command -v chex-env")" \
        "^$prefix/bin/chex-env$" "$label: a copy of the modulefile loads the tree that it was installed with"
    got=$(in_shell "$init; $use; module load chexnet/99.9 && echo loaded; command -v chex-env")
    unlike "$got" "^loaded$|^/.*chex-env$" "$label: an unknown version loads nothing"
    like "$got" "99\.9" "$label: and is named"
}

# Two trees in MODULEPATH. The second has another version, and a name of its own as some sites give it.
second=$SCRATCH/second
cp -r "$prefix" "$second"
for folder in modulefiles/chexnet/$version.lua modulefiles-tcl/chexnet/$version; do
    mv "$second/share/$folder" "$second/share/${folder/$version/9.1.0}"
done
# swap INIT FOLDER LABEL
swap() {
    local init=$1 folder=${2#"$prefix"} label=$3 both
    both="$init; module use $2 $second$folder; module load chexnet/$version"
    like "$(in_shell "$both; module swap chexnet chexnet/9.1.0; command -v chex-env; echo \$CHEXNET_ROOT")" \
        "^$second/bin/chex-env$" "$label: swap changes the tree"
    is "$(in_shell "$both; module swap chexnet chexnet/9.1.0; echo \$PATH \$MANPATH \$CHEXNET_ROOT" |
        grep -c "$prefix/")" 0 "$label: swap leaves nothing of the first tree"
    in_shell "$both; module load chexnet/9.1.0; echo \$PATH" | tail -n 1 | tr ':' '\n' |
        grep -cE "^($prefix|$second)/bin$" >loaded
    is "$(cat loaded)" 1 "$label: two versions are never loaded together"
    like "$(in_shell "$both; module whatis chexnet/$version")" "Engines: CPU" "$label: whatis names the engines"
    like "$(in_shell "$both; module help chexnet/$version")" "chex-train" "$label: help names the commands"
    like "$(in_shell "$both; module avail chexnet" | tr '\n' ' ')" "chexnet/($version.*/9\.1\.0|9\.1\.0.*/$version)" \
        "$label: avail lists both versions"
}

lmod=/usr/share/lmod/lmod/init/bash
if [ -f $lmod ] && ! without LMOD; then
    try ". $lmod" "$lua" "Lmod, Lua"
    try ". $lmod" "$tcl" "Lmod, Tcl"
    swap ". $lmod" "$lua" "Lmod, Lua"
    swap ". $lmod" "$tcl" "Lmod, Tcl"
    got=$(in_shell ". $lmod; module use $lua $second/share/modulefiles; module spider chexnet
        module spider chexnet/$version")
    like "$(tr '\n' ' ' <<<"$got")" "chexnet/$version.*chexnet/9\.1\.0.*CheXNet training.*srun chex-shard" \
        "spider lists the versions and describes one"
    # A hierarchy: a site's module of CUDA adds the modulefiles of the CUDA build.
    mkdir -p site/cuda
    cp -r "$prefix" gpu
    echo "prepend_path('MODULEPATH', '$SCRATCH/gpu/share/modulefiles')" >site/cuda/12.9.lua
    is "$(in_shell ". $lmod; module use $lua $SCRATCH/site; module -q load chexnet; command -v chex-env
        module -q load cuda; command -v chex-env; module -q unload cuda; command -v chex-env" | grep '^/')" \
        "$prefix/bin/chex-env
$SCRATCH/gpu/bin/chex-env
$prefix/bin/chex-env" "hierarchy: loading cuda changes to the CUDA build, unloading it changes back"
    mkdir -p own/chexnet-cuda
    cp "$lua/chexnet/$version.lua" own/chexnet-cuda/
    like "$(in_shell ". $lmod; module use $lua $SCRATCH/own; module load chexnet; module load chexnet-cuda
        module list" | tr '\n' ' ')" "replac|same family" "a build with a name of its own replaces the loaded one"
    like "$(in_shell ". $lmod; module use $lua; module whatis chexnet; module help chexnet")" \
        "Version: $version" "whatis and help"
    if have dash; then
        got=$(env -i HOME="$SCRATCH" PATH=/usr/bin:/bin dash -c \
            ". /usr/share/lmod/lmod/init/sh; module use $lua; module load chexnet; command -v chex-env" 2>&1)
        is "$got" "$prefix/bin/chex-env" "a plain POSIX shell, too"
    fi
else
    skip "no Lmod here" 47
fi

modulecmd=${MODULECMD:-}
for candidate in "$modulecmd" /usr/lib/x86_64-linux-gnu/modulecmd.tcl /usr/lib/*/modulecmd.tcl; do
    [ -f "$candidate" ] && modulecmd=$candidate && break
done
if [ -n "$modulecmd" ] && have tclsh; then
    try "module() { eval \"\$(tclsh $modulecmd bash \"\$@\")\"; }" "$tcl" "Environment Modules, Tcl"
    swap "module() { eval \"\$(tclsh $modulecmd bash \"\$@\")\"; }" "$tcl" "Environment Modules, Tcl"
else
    skip "no Environment Modules here" 21
fi
done_testing
