#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Training on two emulated GPUs with an emulated NCCL ends with the bits of one rank, also with
# measured kernels. An emulated GPU needs ten seconds for an image, so there are few.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
[ -e "$BUILD/tests/emulated/chexnet-cuda.so" ] || skip_all "built without the emulated GPU: no C++ compiler, or CHEX_TEST_GPU=OFF"
need_training

mkdir lib
ln -s "$BUILD/tests/emulated/chexnet-cuda.so" "$BUILD/lib/chexnet-mpi.so" lib/
export CHEX_LIBDIR=$PWD/lib CHEX_NCCL=$BUILD/tests/libnccl-emulated.so
# Streams that run late show a wait that is missing.
export EMULATED_STREAMS=late

chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 4 --split patient \
    --fractions 0.85,0.1,0.05 --output shards -q
common=(--data shards --image-size 32 --batch-size 1 --lr 1e-3 --seed 3 --engine cuda
    --logical-ranks 2 --max-steps 2 -q)

# One rank measures a few kernels. Of the two ranks only rank 0 has the cache with them.
CHEX_CUDA_MEASURE=0.2 CHEX_CACHE_DIR=$PWD/cache \
    chex-train "${common[@]}" --deterministic --output r1 2>err || diag "$(tail -n 5 err)"
# shellcheck disable=SC2016
CHEX_CUDA_MEASURE=1e-9 in_job -N2 -n2 --cpu-bind=none bash -c \
    'export CHEX_CACHE_DIR=; [ "$SLURM_PROCID" != 0 ] || CHEX_CACHE_DIR=$0; exec chex-train "$@"' \
    "$PWD/cache" "${common[@]}" --deterministic --output r2 2>err
is $? 0 "2 steps on 2 ranks"
h5diff r1/last.h5 r2/last.h5 /params /params
ok $? "the parameters of one, to the last bit"
h5diff r1/last.h5 r2/last.h5 /moment2 /moment2
ok $? "the moments are equal too"
is "$(grep -a -o '"cuda_choices":[^]]*' r2/last.h5 | head -n 1)" \
    "$(grep -a -o '"cuda_choices":[^]]*' r1/last.h5 | head -n 1)" "both runs have the same kernels"
done_testing
