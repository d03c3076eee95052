#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The two-node cluster of the other tests in this folder works.
# shellcheck disable=SC2016
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TreeWidth=50

is "$(sinfo -h -N -t idle -o %N | sort -u | tr '\n' ' ')" "n0 n1 " "two nodes are idle"
is "$(grep TreeWidth "$SLURM_CONF")" TreeWidth=50 "a setting replaces the fixture's own"

in_job -N2 hostname >hosts
is "$(sort hosts | tr '\n' ' ')" "n0 n1 " "a job runs on both, each with its host name"

in_job -N2 --ntasks-per-node=2 --gpus-per-task=1 \
    sh -c 'echo "$SLURM_PROCID $CUDA_VISIBLE_DEVICES $PMIX_RANK $SLURM_GPUS_ON_NODE"' >gpus
is "$(sort gpus | tr '\n' ,)" "0 0 0 2,1 1 1 2,2 0 2 2,3 1 3 2," \
    "each task is given one of the node's two GPUs, and PMIx serves it"

in_job -N2 sh -c 'echo x >/dev/shm/mine-$(hostname); ls /dev/shm' >shm
is "$(sort shm | tr '\n' ' ')" "mine-n0 mine-n1 " "shared memory is the node's own"

unlike "$(env)" '^(OMPI_[^M]|PMIX|SLURM_JOB)' "the environment comes from the fixture alone"

# A daemon that crashes, as slurmd does now and then, is started again; the job goes on.
in_job -N2 sh -c ': >up-$SLURM_PROCID; until [ -e crashed ]; do sleep 0.05; done; hostname' >hosts &
job=$!
for _ in $(seq 600); do
    [ ! -e up-0 ] || [ ! -e up-1 ] || break
    sleep 0.05
done
for pid in $(pgrep -x slurmd); do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxF "SLURM_CONF=$SLURM_CONF" || kill -ABRT "$pid"
done
for _ in $(seq 600); do
    [ "$(cat "$CLUSTER"/log/n?.out | grep -c 'is started again')" != 2 ] || break
    sleep 0.05
done
touch crashed
wait $job
is "$? $(sort hosts | tr '\n' ' ')" "0 n0 n1 " "a job survives a crash of both nodes' daemons"
is "$(in_job -N2 hostname | sort | tr '\n' ' ')" "n0 n1 " "and the next job runs on both"

# A second cluster beside this one, stopped while a job runs. Its ports are of this one's claim.
second=$SCRATCH/2
port=$(($(sed -n 's/^SlurmctldPort=//p' "$SLURM_CONF") + 10))
bash "$fixture" start "$second" $port --owner $$
ok $? "a second cluster starts beside it"
bash "$fixture" kill-node "$second" n1
ok $? "a node dies"
bash "$fixture" start-node "$second" n1
ok $? "and comes back"
is "$(SLURM_CONF=$second/slurm.conf in_job -w n1 hostname)" n1 "and runs a job"
SLURM_CONF=$second/slurm.conf srun -N2 sleep 300 >/dev/null 2>&1 </dev/null &
waiting=$!
for _ in $(seq 600); do
    [ "$(SLURM_CONF=$second/slurm.conf squeue -h -t R | wc -l)" = 1 ] && break
    sleep 0.1
done
like "$(bash "$fixture" left "$second")" "^[0-9]+ slurmctld " "it lists its processes"
bash "$fixture" stop "$second"
ok $? "stop succeeds while a job runs"
wait $waiting
is "$(bash "$fixture" left "$second")" "" "no process is left"
[ ! -e "$second" ]
ok $? "no folder is left"
is "$(in_job -N1 echo here)" here "the first one still answers"

# A cluster whose owner is killed without a chance to clean up.
sleep 300 &
owner=$!
bash "$fixture" start "$second" $port --owner $owner
ok $? "a third cluster, with an owner"
kill -9 $owner
wait $owner 2>/dev/null
for _ in $(seq 600); do
    [ -e "$second" ] || break
    sleep 0.1
done
[ ! -e "$second" ] && bash "$fixture" left "$second"
ok $? "it ends with its owner"

expect_status 1 bash "$fixture" stop "$SCRATCH/none"
like "$(err)" "no cluster in '$SCRATCH/none'" "a missing folder is refused by name"
expect_status 2 bash "$fixture" fly
mkdir tools
for tool in bash id mktemp dirname; do
    ln -s "$(command -v $tool)" tools/
done
expect_status 77 env PATH="$SCRATCH/tools" bash "$fixture" check
like "$(out)" "^not installed:.* srun .*slurm-wlm" "without Slurm the reason names it"
done_testing
