#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The two-node cluster itself: what the other tests of this folder stand on.
# shellcheck disable=SC2016
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TreeWidth=50

is "two nodes are idle" "$(sinfo -h -N -t idle -o %N | sort -u | tr '\n' ' ')" "n0 n1 "
is "a setting replaces the fixture's own" "$(grep TreeWidth "$SLURM_CONF")" TreeWidth=50

in_job -N2 hostname >hosts
is "a job runs on both, each with its host name" "$(sort hosts | tr '\n' ' ')" "n0 n1 "

in_job -N2 --ntasks-per-node=2 --gpus-per-task=1 \
    sh -c 'echo "$SLURM_PROCID $CUDA_VISIBLE_DEVICES $PMIX_RANK $SLURM_GPUS_ON_NODE"' >gpus
is "each task is given one of the node's two GPUs, and PMIx serves it" \
    "$(sort gpus | tr '\n' ,)" "0 0 0 2,1 1 1 2,2 0 2 2,3 1 3 2,"

in_job -N2 sh -c 'echo x >/dev/shm/mine-$(hostname); ls /dev/shm' >shm
is "shared memory is the node's own" "$(sort shm | tr '\n' ' ')" "mine-n0 mine-n1 "

ok "the job's environment comes from the fixture alone" \
    test -z "$(env | grep -E '^(OMPI|PMIX|SLURM_JOB)')"

# A second cluster beside this one, stopped while a job runs.
second=${CHEX_FIXTURE_DIR%/c}/2
port=$(($(sed -n 's/^SlurmctldPort=//p' "$SLURM_CONF") + 10000))
ok "a second cluster starts beside it" bash "$fixture" start "$second" $port
ok "a node dies" bash "$fixture" kill-node "$second" n1
ok "and comes back" bash "$fixture" start-node "$second" n1
is "and runs a job" "$(SLURM_CONF=$second/slurm.conf in_job -w n1 hostname)" n1
SLURM_CONF=$second/slurm.conf srun -N2 sleep 300 >/dev/null 2>&1 </dev/null &
waiting=$!
for _ in $(seq 50); do
    [ "$(SLURM_CONF=$second/slurm.conf squeue -h -t R | wc -l)" = 1 ] && break
    sleep 0.1
done
ok "it lists its processes" eval '! bash "$fixture" left "$second" >processes'
ok "stop succeeds while a job runs" bash "$fixture" stop "$second"
wait $waiting
ok "no process is left" bash "$fixture" left "$second"
ok "no folder is left" test ! -e "$second"
is "the first one still answers" "$(in_job -N1 echo here)" here

# A cluster whose owner is killed without a chance to clean up.
sleep 300 &
owner=$!
ok "a third cluster, with an owner" bash "$fixture" start "$second" $port --owner $owner
kill -9 $owner
wait $owner 2>/dev/null
for _ in $(seq 100); do
    [ -e "$second" ] || break
    sleep 0.1
done
ok "it ends with its owner" eval '[ ! -e "$second" ] && bash "$fixture" left "$second"'

ok "a missing folder is refused" eval '! bash "$fixture" stop "$scratch/none" 2>refused'
like "by name" "$(cat refused)" "no cluster in '$scratch/none'"
is "an unknown command is a usage error" "$(bash "$fixture" fly 2>/dev/null; echo $?)" 2
mkdir tools
for tool in bash id mktemp dirname; do
    ln -s "$(command -v $tool)" tools/
done
missing=$(PATH=$scratch/tools bash "$fixture" check)
is "where Slurm is missing the status is 77" $? 77
like "and the reason names what is missing" "$missing" "^not installed:.* srun .*slurm-wlm"
done_testing
