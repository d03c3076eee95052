#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README's lines for a cluster work from a login shell as they are. Slurm has its own default
# of MpiDefault (none); the module makes srun use PMIx. Variables CHEX_* make the job small. NVML
# and the engine are the fakes of tests/fake. With CHEX_TEST_NODES the lines use as many nodes.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# Four tasks of one core each do not fit the cores of a small machine: no binding.
slurm_fixture --set MpiDefault=none --set TaskPlugin=task/none
require LMOD
lmod=/usr/share/lmod/lmod/init/bash
[ -f $lmod ] || skip_all "no Lmod here"
need_training
fake=$BUILD/tests/fake
if [ ! -f "$fake/nvml.so" ] || [ ! -f "$fake/chexnet-cuda.so" ]; then
    skip_all "the stand-ins are not built"
fi

# The first block of code after the heading.
sed -n '/^## Four lines on a cluster/,/^## /p' "$SOURCE/README.md" |
    sed -n '/^```/,/^```/{/^```/!p;}' >lines
is "$(grep -c . lines)" 5 "the README has a module load and four commands"
tasks=4
if [ "$NODES" != 2 ]; then
    tasks=$((NODES > 4 ? NODES : 4))
    sed -i "s/-N2 /-N$NODES /; s/-n4 /-N$NODES -n$tasks /" lines
fi

# The data under the names that the README uses; even patients are for the test.
chex-shard phantom --count 120 --size 32 --seed 2 --output ph -q >/dev/null || exit 1
mkdir data
mv ph/images data/images
mv ph/labels.csv data/Data_Entry_2017.csv
awk -F, 'NR > 1 { print $1 >($4 % 2 ? "data/train_val_list.txt" : "data/test_list.txt") }' \
    data/Data_Entry_2017.csv

cmake --install "$BUILD" --prefix "$SCRATCH/opt" >/dev/null || exit 1
mkdir lib
ln -s "$BUILD"/lib/*.so "$fake/chexnet-cuda.so" lib/
PATH=${PATH#"$BUILD/bin:"} # the module's commands, not those of the build folder
export CHEX_NVML=$fake/nvml.so CHEX_LIBDIR=$PWD/lib FAKE_NVML=$SOURCE/tests/data/gpu/two-h200.txt
export CHEX_SIZE=32 CHEX_SHARDS=4 CHEX_IMAGE_SIZE=32 CHEX_BATCH_SIZE=4 CHEX_EPOCHS=1 \
    CHEX_MAX_STEPS=2 CHEX_THREADS=1 CHEX_BOOTSTRAP=20

cd data || exit 1
# shellcheck disable=SC1090
. $lmod
module use "$SCRATCH/opt/share/modulefiles"
while read -r line <&3; do
    if [[ $line = module* ]]; then
        eval "$line"
        is "$(command -v chex-train)" "$SCRATCH/opt/bin/chex-train" "$line"
        continue
    fi
    eval "timeout -k 5 $CHEX_TEST_WAIT $line" >../out 2>../err </dev/null
    status=$?
    is $status 0 "$line" || diag "$(tail -n 8 ../err)"
done 3<../lines
is "$(grep -oE '"(host|gpu_pci_bus_id)": "[^"]*"' run/ranks.json | paste - - | sort -u | wc -l)" $tasks \
    "each of the $tasks ranks trained on a GPU of its own"
[ -s run/eval/auroc.json ]
ok $? "the last line leaves the AUROC table"
done_testing
