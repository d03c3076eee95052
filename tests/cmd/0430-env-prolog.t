#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env in a prolog, which runs as root, ignores variables and planted files.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"
have cc || skip_all "no compiler for the planted library"
cat >planted.c <<'END'
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void ran(void) {
    FILE *f = fopen(getenv("PLANTED"), "w");
    if (f)
        fclose(f);
}
END
export PLANTED=$SCRATCH/ran
mkdir parts
cc -shared -fPIC -o parts/chexnet-cuda.so planted.c 2>log
ok $? "a library that leaves a file when it is loaded" || diag "$(cat log)"
cp parts/chexnet-cuda.so parts/nvml.so

# loads LABEL: the command before has loaded the library. loads_not LABEL: it has not.
loads() { [ -f ran ]; ok $? "$1"; rm -f ran; }
loads_not() { [ ! -f ran ]; ok $? "$1"; rm -f ran; }

CHEX_LIBDIR=$PWD/parts chex-env --mode login >log 2>&1
loads "outside of a prolog CHEX_LIBDIR names the folder of modules"
for mode in "--mode prolog" "--mode=prolog" "--mode health"; do
    # shellcheck disable=SC2086 # several words
    CHEX_LIBDIR=$PWD/parts CHEX_NVML=$PWD/parts/nvml.so SLURM_JOB_GPUS=0 chex-env $mode >log 2>&1
    loads_not "$mode loads nothing from CHEX_LIBDIR or CHEX_NVML"
done
for mode in health prolog; do
    CHEX_MODE=$mode CHEX_LIBDIR=$PWD/parts expect_status 0 chex-env -v
    loads_not "with CHEX_MODE=$mode nothing is loaded from CHEX_LIBDIR"
done
like "$(err)" "debug: prolog: ignored from the environment: CHEX_LIBDIR(, CHEX_CPU)?$" "--verbose names what was ignored"
echo "mode = prolog" >options
CHEX_LIBDIR=$PWD/parts expect_status 0 chex-env --config options
loads_not "nor where a file of options says prolog"
CHEX_EXPECT=/etc/shadow CHEX_CONFIG=/etc/shadow CHEX_RECORD=$PWD/made CHEX_LEVEL=2 CHEX_NOSUCH=1 \
    expect_status 0 chex-env --mode prolog -v
like "$(err)" "ignored from the environment: CHEX_[A-Z, _]*CHEX_EXPECT" "no option comes from the environment"
unlike "$(err)" "shadow|nothing was checked|is no option" "no file of the environment is opened"
[ ! -e made ]
ok $? "the prolog writes no file"
if [ "$(id -u)" = 0 ]; then
    for script in prolog_slurmd epilog_slurmd; do
        SLURM_SCRIPT_CONTEXT=$script CHEX_LIBDIR=$PWD/parts expect_status 0 chex-env --mode login
        loads_not "root in $script takes no variables in any mode"
    done
else
    skip "not root" 4
fi

# An installed command looks for modules in its own tree only.
mkdir -p scratch/lib
if cmake --install "$BUILD" --prefix "$SCRATCH/scratch/x" >log 2>&1; then
    rm -f scratch/x/lib*/chexnet/chexnet-cuda.so scratch/x/lib*/*/chexnet/chexnet-cuda.so
    cp parts/chexnet-cuda.so scratch/lib
    mkdir -p scratch/x/lib scratch/lib/chexnet
    cp parts/chexnet-cuda.so scratch/lib/chexnet
    cp parts/chexnet-cuda.so scratch/x/lib
    scratch/x/bin/chex-env --mode prolog >log 2>&1
    loads_not "an installed command takes no module from a folder beside its prefix"
else
    fail "cmake --install: $(tail -n 1 log)"
fi

# The file of --record is made anew: links that were planted in its place lead nowhere.
mkdir att
echo precious >victim
ln -s "$PWD/victim" att/good.json
chex-env --mode prolog --level 2 --timeout 20s --record att/good.json >log 2>&1
is "$(cat victim)" precious "--record writes through no planted link"
done_testing
