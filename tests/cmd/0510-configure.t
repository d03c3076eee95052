#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Configuring explains bad values of options, contradictions and missing parts. The installed
# programs find a library in a folder of its own.
source "$(dirname "$0")/lib.sh"
have cmake && have pkg-config || skip_all "no cmake or no pkg-config here"

# One folder, so that the compiler is looked at once.
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$BUILD/CMakeCache.txt")
configure() {
    cmake -S "$SOURCE" -B "$SCRATCH/b" -G "$generator" -DCHEX_WITH_DICOM=OFF "$@"
}
# The text of the error, on one line.
said() {
    tr '\n' ' ' <err | tr -s ' '
}

expect_status 1 configure -DCHEX_WITH_CUDA=off
like "$(said)" "CHEX_WITH_CUDA=off: expected AUTO, ON or OFF" "a value that would have meant AUTO"
PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH="" expect_status 1 configure -DCHEX_WITH_CUDA=OFF
like "$(said)" "pkg-config: hdf5 pmix hwloc .*apt-get install libhdf5-dev libpmix-dev .*PKG_CONFIG_PATH" \
    "all missing parts are reported at once, with the places to look"

if have gcc; then
    printf '#!/bin/sh\nexec gcc -U__GNUC__ -D__GNUC__=11 "$@"\n' >gcc11
    chmod +x gcc11
    CC=$SCRATCH/gcc11 expect_status 1 cmake -S "$SOURCE" -B "$SCRATCH/old" -G "$generator"
    like "$(said)" "gcc 11[.0-9]* is too old: expected 12 or later" "a compiler that is too old is refused"
else
    skip "no gcc here" 2
fi

# HDF5 in a folder that the loader does not know.
mkdir -p own/lib
ln -s "$(ldd "$BUILD/bin/chex-train" | awk '/libhdf5/ { print $3; exit }')" own/lib/libhdf5.so
cat >own/hdf5.pc <<END
Name: hdf5
Description: in a folder of its own
Version: $(pkg-config --modversion hdf5)
Libs: -L$SCRATCH/own/lib -lhdf5
Cflags: $(pkg-config --cflags hdf5)
END
PKG_CONFIG_PATH=$SCRATCH/own expect_status 0 configure -DCHEX_WITH_CUDA=OFF
like "$(grep -h NEW_RPATH b/cmd/cmake_install.cmake)" "NEW_RPATH \"(.*:)?$SCRATCH/own/lib[\":]" \
    "installed commands look for it there"

# No .pc file of HDF5, as in the Red Hat family.
mkdir pcs
for folder in $(pkg-config --variable pc_path pkg-config | tr ':' ' '); do
    [ ! -d "$folder" ] || ln -sf "$folder"/*.pc pcs/
done
rm -f pcs/hdf5.pc
ln -s "$(pkg-config --cflags-only-I hdf5 | sed 's/^-I\([^ ]*\).*/\1/')" own/include
HDF5_ROOT=$SCRATCH/own PKG_CONFIG_LIBDIR=$SCRATCH/pcs expect_status 0 configure -DCHEX_WITH_CUDA=OFF \
    '-U__pkg_config_checked_HDF5' '-UHDF5_*'
like "$(out)" "HDF5 $SCRATCH/own/lib/libhdf5.so" "without a .pc file the header and the library are looked for"

expect_status 1 configure -DCHEX_WITH_CUDA=OFF -DCHEX_WITH_CUDNN=ON
like "$(said)" "CHEX_WITH_CUDNN=ON, but CHEX_WITH_CUDA=OFF" "a part without what it is a part of"

# The SPANK plugin needs a header only.
no_slurm=(-DCHEX_WITH_CUDA=OFF -UCHEX_WITH_CUDNN -USLURM_INCLUDE
    "-DCMAKE_IGNORE_PATH=/usr/include;/usr/local/include")
expect_status 0 configure "${no_slurm[@]}"
like "$(out)" "SLURM: no .*: slurm/spank.h is missing: apt-get install libslurm-dev" \
    "the summary says why there is no SPANK plugin"
expect_status 1 configure "${no_slurm[@]}" -DCHEX_WITH_SLURM=ON
like "$(said)" "CHEX_WITH_SLURM=ON, but slurm/spank.h is missing" "a required SPANK plugin stops without the header"

# Modules that a site's chexnet needs. Only the modulefiles are installed.
expect_status 0 configure -DCHEX_WITH_SLURM=OFF "-DCHEX_MODULE_DEPENDS=cuda/12.9;openmpi"
expect_status 0 cmake --install b --component modulefiles --prefix "$SCRATCH/p"
is "$(find p -type f | wc -l)" 2 "the component modulefiles is two files"
is "$(grep -h '^depends_on' p/share/modulefiles/chexnet/*.lua | tr '\n' ' ')" \
    "depends_on([[cuda/12.9]]) depends_on([[openmpi]]) " "the Lua file depends on the site's modules"
is "$(grep -h '^module load' p/share/modulefiles-tcl/chexnet/* | tr '\n' ' ')" \
    "module load cuda/12.9 module load openmpi " "the Tcl file loads the site's modules"
lmod=/usr/share/lmod/lmod/init/bash
if [ -f $lmod ] && ! without LMOD; then
    mkdir -p site/cuda site/openmpi
    echo "setenv('CUDA_HOME', '/opt/cuda')" >site/cuda/12.9.lua
    echo "setenv('MPI_HOME', '/opt/mpi')" >site/openmpi/4.1.lua
    for folder in modulefiles modulefiles-tcl; do
        env -i HOME="$SCRATCH" PATH=/usr/bin:/bin bash -c ". $lmod; module use $SCRATCH/site p/share/$folder
            module load chexnet; echo \$CUDA_HOME \$MPI_HOME; module unload chexnet; echo \${CUDA_HOME-gone}" 2>&1
    done >needed
    is "$(tr '\n' ' ' <needed)" "/opt/cuda /opt/mpi gone /opt/cuda /opt/mpi gone " \
        "Lmod loads them before chexnet and unloads them with it"
else
    skip "no Lmod here"
fi

# Half of all objects are tests.
[ -e b/libcore ] && [ ! -e b/tests ]
ok $? "tests are not configured unless asked for"
is "$(awk -F'"' '/"name":/ { name = $4 } /"CHEX_BUILD_TESTS": "ON"/ { print name }' \
    "$SOURCE/CMakePresets.json" | tr '\n' ' ')" "debug sanitize " "only the presets for development build tests"

# A cmake that only writes down how it was called.
mkdir stub
printf '#!/bin/sh\necho "$@" >>%s/calls\nexit 1\n' "$SCRATCH" >stub/cmake
chmod +x stub/cmake
PATH=$SCRATCH/stub:$PATH expect_status 1 "$SOURCE/share/quickstart.sh" --no-install --output "$SCRATCH/q"
like "$(cat calls)" "DCHEX_WITH_CUDA=OFF" "the quickstart builds no CUDA"
like "$(out)" "without CUDA" "the quickstart says so"
like "$(err)" "cmake ended with status 1; its whole output is in .*/build/quickstart/configure.log" "a build that fails is shown"
expect_status 1 configure -DCHEX_WITH_CUDA=OFF -DCHEX_WITH_OPENJPEG=ON
like "$(said)" "CHEX_WITH_OPENJPEG=ON, but it is for DICOM images, .* -DCHEX_WITH_DICOM=ON" \
    "OpenJPEG without DICOM is a contradiction"
done_testing
