#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env describes GPUs, with a fake of NVIDIA's management library and described nodes. The
# commands choose the right GPU, with a module that computes on the processor.
source "$(dirname "$0")/lib.sh"
fake=$BUILD/tests/fake
if [ ! -f "$fake/nvml.so" ] || [ ! -f "$fake/chexnet-cuda.so" ]; then
    skip_all "the stand-ins are not built"
fi
export CHEX_NVML=$fake/nvml.so CHEX_LIBDIR=$fake
unset CUDA_VISIBLE_DEVICES
node() { export FAKE_NVML=$SOURCE/tests/data/gpu/$1.txt; }
# The prolog takes no CHEX_NVML: the loader finds this one, or one that is no library.
mkdir driver no-driver
ln -s "$fake/nvml.so" driver/libnvidia-ml.so.1
: >no-driver/libnvidia-ml.so.1

# Without a wish for a GPU nothing is blamed on anybody.
CHEX_NVML=/nonexistent/nvml.so expect_status 0 chex-env -v
like "$(out)" "^gpu-driver +skip +none, and no GPU was allotted" "no driver, and none is needed"
is "$(out | grep -cE '^gpu-(visible|health|busy|memory|peer) +skip ')" 5 "the rest is skipped"
unlike "$(err)" "CHEX_(NVML|FAKE_NVML)" "the variables are known ones"
node two-h200
expect_status 0 chex-env -v
like "$(out)" "^gpu-driver +pass +580.65.06, for CUDA 13.0" "the GPU driver and its CUDA version are reported"
like "$(out)" "^gpu-health +pass +2 healthy" "the health of GPUs is checked on a machine without Slurm"
expect_status 0 env SLURM_JOB_ID=5 chex-env -v
like "$(out)" "^gpu-health +skip +no GPU was allotted" "in a job without GPUs the GPUs of others are not checked"
node sick
expect_status 0 chex-env -v
like "$(out)" "^gpu-health +warn +GPU 0000:1b:00.0: 3 uncorrected" "a sick GPU that was not requested only warns"
LD_LIBRARY_PATH=driver expect_status 0 chex-env -v --mode prolog
like "$(out)" "^gpu-health +warn" "a sick GPU does not drain the node in the prolog"
node mismatch
expect_status 0 chex-env -v --mode login
like "$(out)" "^gpu-driver +warn .*two versions" "a broken driver only warns"
node two-h200

# A health check, outside of jobs: all GPUs of the node count.
export LD_LIBRARY_PATH=$PWD/driver
expect_status 0 chex-env -v --mode health
like "$(out)" "^gpu-count +pass +2$" "a sound node passes the health check"
expect_status 0 chex-env --mode health --record node.json
like "$(tr -d ' \n' <node.json)" '^\{"gpu-count":"2"[,}]' "the health check records the number of GPUs"
for fault in sick lost mismatch unloaded; do
    node $fault
    expect_status 5 chex-env --mode health
    like "$(out)" "^gpu-(health|driver) +fail " "the health check fails with GPUs of kind $fault"
done
node own
expect_status 5 chex-env --mode health --expect node.json
like "$(out)" "^gpu-count +fail +1$" "fewer GPUs than recorded fail"
like "$(out)" "expected: 2 or more \(from node.json\)" "the recorded number is named"
like "$(out)" "fault: node" "a GPU that is gone is the node's fault"
node sixteen-b200
expect_status 0 chex-env --mode health --expect node.json
LD_LIBRARY_PATH=$PWD/no-driver expect_status 5 chex-env --mode health --expect node.json
like "$(out)" "^gpu-count +fail +0$" "a driver that is gone leaves no GPU"
LD_LIBRARY_PATH=$PWD/no-driver expect_status 0 chex-env --mode health
like "$(out)" "^fit to train" "a node without a driver and without a record has no GPUs"
unset LD_LIBRARY_PATH
node two-h200

# Two GPUs for one rank.
export SLURM_GPUS_ON_NODE=2
expect_status 0 env CUDA_VISIBLE_DEVICES=0,1 chex-env -v
like "$(out)" "^gpu-visible +pass +0000:1b:00.0 NVIDIA H200, 0000:5d:00.0 NVIDIA H200" "both seen"
like "$(out)" "^gpu-health +pass +2 healthy" "both well"
like "$(out)" "^gpu-busy +pass +none" "no other process uses the GPUs"
like "$(out)" "^gpu-memory +pass +140 GiB, 4.0 MiB of it in use, GPU 0000:1b:00.0" "memory"
like "$(out)" "^gpu-peer +pass +2 GPUs, 1 of 1 pairs by NVLink" "peers"
like "$(out)" "^gpu +pass " "the check gpu passes"
like "$(out)" "^engine-auto +pass +cuda: " "engine-auto chooses cuda"
expect_status 0 env CUDA_VISIBLE_DEVICES=1 chex-env -v
like "$(out)" "^gpu-visible +pass +0000:5d:00.0 NVIDIA H200$" "one of two"
like "$(out)" "^gpu-peer +pass +1 seen, 1 more on the node hidden from CUDA, not from NCCL" "a peer"
node own
expect_status 0 env CUDA_VISIBLE_DEVICES=0 chex-env -v
like "$(out)" "^gpu-peer +pass +1 seen, 1 more on the node out of reach" "a GPU hidden by a cgroup is reported"
node no-links
expect_status 0 env CUDA_VISIBLE_DEVICES=0,1 chex-env -v
like "$(out)" "^gpu-peer +pass +2 GPUs, 0 of 1 pairs by NVLink" "GPUs without NVLink are reported"

# A node of 16, all seen, by UUID: a list of 656 bytes.
node sixteen-b200
uuids=$(sed -n 's/^gpu [^ ]* \([^ ]*\) .*/\1/p' "$FAKE_NVML" | paste -sd,)
expect_status 0 env SLURM_GPUS_ON_NODE=16 CUDA_VISIBLE_DEVICES="$uuids" chex-env -v
like "$(out)" "^gpu-visible +pass +0000:10:00.0 NVIDIA B200, .* 0000:80:00.0 NVIDIA B200, " "16 GPUs are seen"
like "$(out)" "^gpu-health +pass +16 healthy" "16 are well"
like "$(out)" "^gpu-peer +pass +16 GPUs, [0-9]+ of 120 pairs by NVLink" "120 pairs"
like "$(out)" "^gpu +pass +all, CUDA_VISIBLE_DEVICES GPU-0000c0de" "the check gpu passes for all visible GPUs"
expect_status 0 env SLURM_GPUS_ON_NODE=16 CUDA_VISIBLE_DEVICES="$uuids" chex-env --json
like "$(out)" "\"cuda_visible_devices\": \"$uuids\"" "the list is whole"
unlike "$(err)" "warn" "nothing is warned about"

# What the user can mend.
node two-h200
expect_status 4 env CUDA_VISIBLE_DEVICES=0,5 chex-env -v
like "$(out)" "^gpu-visible +fail +CUDA_VISIBLE_DEVICES 0,5: '5' is none of the 2 GPUs" "an index too far"
like "$(out)" "remedy: leave CUDA_VISIBLE_DEVICES to Slurm" "the failure has a remedy"
expect_status 4 env CUDA_VISIBLE_DEVICES=-1 chex-env -v
like "$(out)" "^gpu-visible +fail +none \(CUDA_VISIBLE_DEVICES -1\), of 2" "allotted, but hidden"
CHEX_NVML=/nonexistent/nvml.so expect_status 4 chex-env -v
like "$(out)" "^gpu-driver +fail +no NVIDIA driver is to be found.*--nv" "allotted, without a driver"
like "$(out)" "^gpu-health +skip +not known without a driver" "blamed once"
node old-driver
expect_status 4 env CUDA_VISIBLE_DEVICES=0 chex-env -v
like "$(out)" "^gpu-driver +fail +535.129.03, for CUDA 12.2" "a driver that is too old"
like "$(out)" "expected: one for CUDA 13.0 or newer" "both versions are named"
node mig
expect_status 0 env CUDA_VISIBLE_DEVICES=MIG-77 chex-env -v
like "$(out)" "^gpu-peer +warn" "a part of a GPU has no peers"

# What the node must answer for.
node sick
expect_status 5 env CUDA_VISIBLE_DEVICES=0,1 chex-env -v
like "$(out)" "^gpu-health +fail +GPU 0000:1b:00.0: 3 uncorrected memory errors" "memory errors"
expect_status 0 env CUDA_VISIBLE_DEVICES=1 chex-env -v
like "$(out)" "^gpu-health +warn +GPU 0000:5d:00.0: it is slowed down by heat" "heat is a warning"
LD_LIBRARY_PATH=driver expect_status 5 env SLURM_JOB_GPUS=0 chex-env -v --mode prolog
like "$(out)" "^gpu-health +fail" "the prolog sees it"
sed 's/^rows 0 0/rows 1 0/' "$SOURCE/tests/data/gpu/two-h200.txt" >pending.txt
FAKE_NVML=$PWD/pending.txt expect_status 0 env CUDA_VISIBLE_DEVICES=0 chex-env -v
like "$(out)" "^gpu-health +warn +GPU 0000:1b:00.0: a memory repair waits for a reset" "a pending row remapping is a warning"
node lost
expect_status 5 chex-env -v
like "$(out)" "^gpu-health +fail +GPU number 1: it has fallen off the bus" "a GPU that is gone"
node mismatch
expect_status 5 chex-env -v
like "$(out)" "^gpu-driver +fail .*two versions: the node needs a reboot" "a driver in two versions"
LD_LIBRARY_PATH=no-driver expect_status 5 env SLURM_JOB_GPUS=0 chex-env -v --mode prolog
like "$(out)" "^gpu-driver +fail +no NVIDIA driver" "in a prolog a missing driver is the node's fault"
LD_LIBRARY_PATH=no-driver expect_status 0 env CUDA_VISIBLE_DEVICES=7 chex-env -v --mode prolog
like "$(out)" "^gpu-driver +skip" "unless the job has no GPU"
node busy
expect_status 0 env CUDA_VISIBLE_DEVICES=0 chex-env -v
like "$(out)" "^gpu-busy +warn +1 on GPU 0000:1b:00.0: process 999999999 \(not visible" "a process of an earlier job is reported"
like "$(out)" "fault: node" "the fault is the node's"
like "$(out)" "^gpu-memory +warn +140 GiB, 40.0 GiB of it in use" "memory that another process holds is reported"

# Level 2 measures the GPU that training would take.
node two-h200
expect_status 0 env CUDA_VISIBLE_DEVICES=1 chex-env -v --level 2 --timeout 5m
like "$(out)" "^gpu-copy +pass +55 GB/s to it, 54 GB/s from it, NVIDIA H200 0000:5d:00.0, PCIe 5 x16$" \
    "copies and the link"
like "$(out)" "^gpu-memory-rate +pass +4100 GB/s of 4917$" "the rate of GPU memory is measured"
like "$(out)" "^gpu-step-rate +pass .* images/s of 96 px, cuda " "a step"
like "$(out)" "^gpu-step-bits +pass +cuda [a-z0-9]+, [a-z0-9]+ on NVIDIA H200: [0-9a-f]{16}$" "the bits of a step are reported"
like "$(out)" "^gpu-after +pass +healthy, 33 C$" "gpu-after reports health and temperature"
node narrow
expect_status 0 env CUDA_VISIBLE_DEVICES=0 chex-env -v --level 2 --timeout 5m
like "$(out)" "^gpu-copy +warn +.*PCIe 1 x8" "a link that is narrower than it could be"
like "$(out)" "remedy: its link could be PCIe 5 x16" "the remedy names the link of the GPU"

# The commands take the GPU by its bus id.
node two-h200
bench() { chex-train --bench 1 --model densenet_tiny --batch-size 1 --image-size 32 --engine "$@"; }
expect_status 0 env CUDA_VISIBLE_DEVICES=1 chex-train --bench 1 --model densenet_tiny --batch-size 1 --image-size 32
like "$(err)" "engine cuda: 1 of NVIDIA H200" "auto takes cuda"
like "$(err)" "GPU 0000:5d:00.0, NVIDIA H200, capability 9.0, 1 more on the node, which NCCL can reach by NVLink$" \
    "one line says which GPU"
like "$(err)" "test engine on 0000:5d:00.0" "the engine gets the chosen GPU"
expect_status 0 bench cuda:s1
like "$(err)" "sees 2, linked by NVLink" "all of the node's GPUs are seen"
expect_status 2 bench cuda:s9
error_line "cuda:s9" "an unknown stage"
chex-shard phantom --count 24 --size 36 --seed 3 --output ph >log 2>&1 &&
    chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 1 \
        --output shards >>log 2>&1
ok $? "a small set" || diag "$(cat log)"
expect_status 0 env CUDA_VISIBLE_DEVICES=1 chex-train --data shards --output run --model densenet_tiny \
    --image-size 32 --batch-size 4 --max-steps 1
like "$(err)" "test engine on 0000:5d:00.0" "training takes the same way"
like "$(cat run/ranks.json)" '"gpu_pci_bus_id": "0000:5d:00.0"' "ranks.json has the bus id of the GPU"
expect_status 0 env CUDA_VISIBLE_DEVICES=1 chex-eval --data shards --checkpoint run/last.h5 --output eval
like "$(err)" "test engine on 0000:5d:00.0" "chex-eval uses the same GPU"
expect_status 0 chex-train --data shards --output run-cpu --model densenet_tiny --image-size 32 --batch-size 4 \
    --max-steps 1 --engine cpu
like "$(cat run-cpu/ranks.json)" '"gpu_pci_bus_id": ""' "the cpu engine has none"
node own-second
expect_status 0 env CUDA_VISIBLE_DEVICES=0 chex-train --bench 1 --model densenet_tiny --batch-size 1 --image-size 32
like "$(err)" "GPU 0000:5d:00.0, .*1 more on the node out of reach: .*host memory, not NVLink; --gpu-bind=none shows" \
    "the note explains the cost of a cgroup"
node sick
expect_status 5 env CUDA_VISIBLE_DEVICES=0 chex-train --bench 1 --model densenet_tiny --batch-size 1 --image-size 32
error_line "GPU 0000:1b:00.0 of node .* is unhealthy: 3 uncorrected memory errors.*--exclude=" "a sick GPU"
node two-h200
expect_status 4 env CUDA_VISIBLE_DEVICES=4 chex-train --bench 1
error_line "a GPU was allotted .* but cannot be used: CUDA_VISIBLE_DEVICES 4: '4' is none" "no such GPU"
mkdir other
cp "$fake/nvml.so" other/chexnet-cuda.so
CHEX_LIBDIR=$PWD/other expect_status 4 bench cuda
error_line "the CUDA engine cannot be loaded: module .*chexnet-cuda.so is of version unknown" "a foreign module"
CHEX_LIBDIR=$PWD expect_status 4 bench cuda
error_line "chexnet-cuda.so is not installed here: build chexnet with CHEX_WITH_CUDA=ON" "without a CUDA module the error says how to build it"
done_testing
