#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The two-node cluster of the other tests in this folder works.
# shellcheck disable=SC2016,SC2154
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --set TreeWidth=50

is "$(sinfo -h -N -t idle -o %N | sort -u | tr '\n' ' ')" "n0 n1 " "two nodes are idle"
is "$(grep TreeWidth "$SLURM_CONF")" TreeWidth=50 "a setting replaces the fixture's own"

in_job -N2 hostname >hosts
is "$(sort hosts | tr '\n' ' ')" "n0 n1 " "a job runs on both, each with its host name"

in_job -N2 --ntasks-per-node=2 --gpus-per-task=1 \
    sh -c 'echo "$SLURM_PROCID $CUDA_VISIBLE_DEVICES ${PMIX_RANK:-$PMI_RANK} $SLURM_GPUS_ON_NODE"' >gpus
is "$(sort gpus | tr '\n' ,)" "0 0 0 2,1 1 1 2,2 0 2 2,3 1 3 2," \
    "each task is given one of the node's two GPUs, and PMIx, or else PMI-2, serves it"

in_job -N2 sh -c 'echo x >/dev/shm/mine-$(hostname); ls /dev/shm' >shm
is "$(sort shm | tr '\n' ' ')" "mine-n0 mine-n1 " "shared memory is the node's own"

unlike "$(env)" '^(OMPI_[^M]|PMIX|SLURM_JOB)' "the environment comes from the fixture alone"

# A daemon that crashes, as slurmd does now and then, is started again; the job goes on.
in_job -N2 sh -c ': >up-$SLURM_PROCID; until [ -e crashed ]; do sleep 0.05; done; hostname' >hosts &
job=$!
wait_for [ -e up-0 ] && wait_for [ -e up-1 ]
# shellcheck disable=SC2046
kill -ABRT $(processes slurmd)
wait_for eval '[ "$(cat "$CLUSTER"/log/n?.out | grep -c "is started again")" = 2 ]'
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
wait_for eval '[ "$(SLURM_CONF=$second/slurm.conf squeue -h -t R | wc -l)" = 1 ]'
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
wait_for [ ! -e "$second" ] && bash "$fixture" left "$second"
ok $? "it ends with its owner"

# Scripts that hand a cluster over, as under ctest. Their parent must be this shell.
export CHEX_TEST_SHARE=1 CHEX_TEST_BUILD=$BUILD
script() { # NAME OPTIONS COMMANDS
    cat >"$1.t" <<END
. $slurm_lib/lib.sh
slurm_fixture $2
echo "\$CLUSTER \$(squeue -h | wc -l) \$(in_job -N2 ls /dev/shm)"
$3
done_testing
END
}
script leaves '' "in_job -N2 touch /dev/shm/kept; sbatch_id -N2 -o /dev/null --wrap 'sleep 300'"
script own --own ''
script fails '' 'fail "a failure"'
script killed '' ": >$SCRATCH/killed; sleep 300"
cluster() { sed -n 's/^\(\/[^ ]*\).*/\1/p' "$1.out"; }
bash leaves.t >first.out 2>&1
bash own.t >own.out 2>&1
bash leaves.t >second.out 2>&1
is "$(grep ^/ second.out)" "$(cluster first) 0 " "a script has the cluster of one before it, without its jobs and files"
[ "$(cluster own)" != "$(cluster first)" ] && [ -e "$(cluster first)" ] && [ ! -e "$(cluster own)" ]
ok $? "a cluster of a script's own ends with it"
bash fails.t >fails.out 2>&1
[ "$(cluster fails)" = "$(cluster first)" ] && [ ! -e "$(cluster first)" ]
ok $? "the cluster of a script that fails ends"
bash killed.t >killed.out 2>&1 &
wait_for [ -e killed ]
kill -9 $!
bash leaves.t >third.out 2>&1
[ -n "$(cluster third)" ] && [ "$(cluster third)" != "$(cluster killed)" ] && [ ! -e "$(cluster killed)" ]
ok $? "the cluster of a script that was killed ends"
bash "$fixture" end >end.out
ok $? "the last test of a run stops the clusters"
[ ! -e "$(cluster third)" ] && bash "$fixture" left "$(cluster third)"
ok $? "it leaves neither folder nor process"
unset CHEX_TEST_SHARE CHEX_TEST_BUILD

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
