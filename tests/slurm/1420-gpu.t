#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks of a node choose the right GPU by bus id for each kind of request. NVML and the engine are
# the fakes of tests/fake, the GPUs those of a described node.
. "$(dirname "$0")/lib.sh"
slurm_fixture
have chex-train || skip_all "chex-train is not built"
fake=$BUILD/tests/fake
if [ ! -f "$fake/nvml.so" ] || [ ! -f "$fake/chexnet-cuda.so" ]; then
    skip_all "the stand-ins are not built"
fi
mkdir lib
ln -s "$BUILD"/lib/*.so "$fake/chexnet-cuda.so" lib/
export CHEX_NVML=$fake/nvml.so CHEX_LIBDIR=$PWD/lib FAKE_NVML=$SOURCE/tests/data/gpu/two-h200.txt
bench() { in_job "$@" chex-train --bench 1 --batch-size 1 --image-size 32 --threads 1; }
# Bus ids in the order of ranks.
taken() {
    sed -n 's/^chex-train\[r\([0-9]*\).* GPU 0000:\(..\):00.0, NVIDIA H200.*/\1 \2/p' err | sort -n |
        cut -d' ' -f2 | tr '\n' ' '
}

expect_status 0 bench -N2 --ntasks-per-node=2 --gpus-per-task=1
is "$(taken)" "1b 5d 1b 5d " "one GPU a task: each its own"
is "$(grep -c '1 more on the node, which NCCL can reach by NVLink' err)" 4 "each rank counts the other GPUs of the node"
expect_status 0 bench -N2 --ntasks-per-node=2 --gpus-per-node=2
is "$(taken)" "1b 5d 1b 5d " "all see all: the ranks agree"
is "$(grep -c 'sees 2, linked by NVLink' err)" 4 "ranks see both GPUs, linked by NVLink"
expect_status 0 bench -N2 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=none
is "$(taken)" "1b 5d 1b 5d " "--gpu-bind=none: likewise"
expect_status 0 bench -N2 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=map_gpu:1,0
is "$(taken)" "5d 1b 5d 1b " "map_gpu: as the map says, not by local rank"
expect_status 0 bench -N2 --ntasks-per-node=1 --gpus-per-node=2
is "$(taken)" "1b 1b " "one rank a node takes the first"

expect_status 4 bench -N1 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=map_gpu:1,1
like "$(cat err)" "error: ranks 0 and 1 would share GPU 0000:5d:00.0: 2 ranks of this node see 1 GPU" \
    "two ranks on one GPU are refused by name"
is "$(grep -c 'error: ranks' err)" 1 "once"
# MPS is there when its daemon's process is alive: here each rank's own shell plays it.
cat >mps.sh <<'EOF'
export CUDA_MPS_PIPE_DIRECTORY=$PWD/mps$SLURM_PROCID
mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" && echo $$ >"$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
exec chex-train --bench 1 --batch-size 1 --image-size 32 --threads 1
EOF
expect_status 0 in_job -N1 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=map_gpu:1,1 bash mps.sh
is "$(taken)" "5d 5d " "under MPS they share it"
FAKE_NVML=$SOURCE/tests/data/gpu/sick.txt expect_status 5 bench -N1 --ntasks-per-node=2 \
    --gpus-per-task=1
like "$(cat err)" "error: rank 0 on n[01]: GPU 0000:1b:00.0 of node n[01] is unhealthy: 3 uncorrected" \
    "a sick GPU is named, with its rank and node"

# A rank that cannot use its GPU does not leave the others waiting.
cat >blind.sh <<'EOF'
[ "$SLURM_PROCID" != 1 ] || export CUDA_VISIBLE_DEVICES=7
exec chex-train --bench 1 --batch-size 1 --image-size 32 --threads 1
EOF
expect_status 4 in_job -N1 --ntasks-per-node=2 --gpus-per-task=1 bash blind.sh
like "$(cat err)" "error: rank 1 on n[01]: a GPU was allotted .*'7' is none of the 2 GPUs" "the cause is that rank's"
unlike "$(err)" "did not come" "and no other rank waits until its limit"

expect_status 4 in_job -N1 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=map_gpu:1,1 chex-env -v
like "$(out)" "^gpu-visible +fail +ranks 0 and 1 of n[01] both see 0000:5d:00.0 NVIDIA H200 alone" \
    "chex-env sees it before"

# With ConstrainDevices a task's cgroup holds its own GPU alone, which then is number 0.
cat >confined.sh <<'EOF'
file=own
[ "$SLURM_LOCALID" = 0 ] || file=own-second
export FAKE_NVML=$1/$file.txt CUDA_VISIBLE_DEVICES=0
exec "${@:2}"
EOF
confined() { in_job -N2 --ntasks-per-node=2 --gpus-per-task=1 bash confined.sh "$SOURCE/tests/data/gpu" "$@"; }
expect_status 0 confined chex-train --bench 1 --batch-size 1 --image-size 32 --threads 1
is "$(taken)" "1b 5d 1b 5d " "number 0 of each task is another GPU"
is "$(grep -c 'out of reach: .*host memory, not NVLink; --gpu-bind=none shows them' err)" 4 \
    "each rank explains the cost"
expect_status 0 confined chex-env -v
like "$(out)" "^gpu-visible +pass +rank 0: 0000:1b:00.0 NVIDIA H200; 3 more see their own" "chex-env sees it"
like "$(out)" "^gpu-peer +warn +rank 0 .n0., as all others: 1 seen, 1 more on the node out of reach" \
    "each rank says that peer access is lost"
like "$(out)" "remedy: gradients of 2 ranks go through host memory, not NVLink: add --gpu-bind=none" \
    "with the remedy"
done_testing
