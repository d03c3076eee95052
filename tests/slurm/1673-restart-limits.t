#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/chexnet.sbatch: which statuses start the training again in the same allocation, how often, and on
# which nodes; and a job that loses its first node. The commands are stand-ins of chosen status.
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --set TaskPlugin=task/none
mkdir bin
for command in chex-env chex-train chex-eval; do
    cat >bin/$command <<END
#!/bin/bash
[ "\$SLURM_PROCID" != 0 ] || echo "$command \$SLURM_NTASKS \$SLURMD_NODENAME \$*" >>$SCRATCH/calls
if [ $command = chex-env ]; then
    # The GPU of n1 is gone as soon as training has begun.
    [ "\$SLURMD_NODENAME" != n1 ] || [ ! -e $SCRATCH/gpu-lost ] || ! grep -q chex-train $SCRATCH/calls || exit 5
    echo "fit to train"
elif [ $command = chex-train ]; then
    [ ! -e $SCRATCH/sleeps ] || exec sleep 100
    [ "\$SLURM_PROCID" = 0 ] || exit 0
    [ ! -e $SCRATCH/says ] || cat $SCRATCH/says >&2
    mkdir -p run && printf '{\n  "logical_ranks": 4,\n}\n' >run/ranks.json
    status=\$(sed -n "\$(grep -c '^chex-train' $SCRATCH/calls)p" $SCRATCH/statuses)
fi
[ "\$SLURM_PROCID" != 0 ] || [ ! "\$CHEX_STATUS_FILE" ] || echo "\${status:-0}" >"\$CHEX_STATUS_FILE"
exit "\${status:-0}"
END
done
chmod +x bin/*
# The watch of the first node looks each second instead of each minute, and srun has five seconds to end.
sed 's/while sleep 60;/while sleep 1;/; s/(sleep 60 /(sleep 5 /' "$SOURCE/slurm/chexnet.sbatch" >chexnet.sbatch
submit() {
    : >calls
    rm -rf run
    PATH=$SCRATCH/bin:$PATH sbatch_id --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 \
        --gpus-per-node=0 --time=5 -o "$SCRATCH/%j.log" chexnet.sbatch shards run
}
settled() { # JOB: it has ended or is back in the queue
    settles "$1" || diag "$(tail -n 20 "$1.log")"
}
await_excluded() { wait_for eval "! job_is $1 'ExcNodeList=.null.'"; } # JOB: its script has named the nodes to leave out
trainings() { grep -c '^chex-train' calls; }

export CHEXNET_RESTARTS=many
job=$(submit)
settled "$job"
unset CHEXNET_RESTARTS
like "$(about "$job" ExitCode) $(cat "$job.log")" "ExitCode=2:0 CHEXNET_RESTARTS: .many. is not a number" \
    "a wrong CHEXNET_RESTARTS is refused at once"
for status in 2 3 4 8 9; do
    printf '%s\n' $status 0 >statuses
    job=$(submit)
    settled "$job"
    is "$(about "$job" ExitCode) $(trainings)" "ExitCode=$status:0 1" "status $status ends the job, which trains once"
done
for status in 5 7 14 137 139; do
    printf '%s\n' $status 0 >statuses
    job=$(submit)
    settled "$job"
    is "$(about "$job" JobState) $(trainings)" "JobState=COMPLETED 2" "after status $status the job trains again"
done
like "$(grep chex-train calls | tail -n 1)" '^chex-train 4 n0 .*--accumulate 0 --logical-ranks 4$' \
    "the second start has the processes and logical ranks of the first"

# An srun that has ended its step and then waits for a task that nothing is known of.
real=$(command -v srun)
cat >bin/srun <<END
#!/bin/bash
[[ \$* != *chex-train* ]] || ! rm $SCRATCH/hangs 2>/dev/null || {
    echo "srun: Terminating StepId=1.1" >&2 # as 24.11 says it
    exec sleep 300
}
exec $real "\$@"
END
chmod +x bin/srun
touch hangs
echo 0 >statuses
job=$(submit)
settled "$job"
rm bin/srun
like "$(about "$job" JobState) $(trainings) $(tr '\n' ' ' <"$job.log")" "^JobState=COMPLETED 1 .*srun has not ended for a minute" \
    "an srun that outlives the end of its step is killed, and the job trains again"

yes 7 | head -n 9 >statuses
job=$(CHEXNET_RESTARTS=2 submit)
settled "$job"
is "$(trainings) $(about "$job" Comment)" "3 Comment=chexnet-retries=1" \
    "after as many restarts as CHEXNET_RESTARTS says, the job goes back into the queue"
scancel "$job"

echo 'chex-train[r0/4 n0] error: audit of step 4: rank 3 on n1 (cpu) computed a wrong gradient: the node has a silent fault' >says
printf '%s\n' 5 >statuses
job=$(CHEXNET_RESTARTS=0 submit)
settled "$job"
await_excluded "$job"
is "$(trainings) $(about "$job" Restarts) $(about "$job" ExcNodeList)" "1 Restarts=1 ExcNodeList=n1" \
    "without restarts, the job goes back into the queue without the node that an audit names" || diag "$(cat "$job.log")"
like "$(cat "$job.log")" '^an audit found wrong numbers; this job is put back into the queue, for other nodes$' \
    "the log says why"
scancel "$job"
rm says

touch gpu-lost
printf '%s\n' 5 0 >statuses
job=$(submit)
settled "$job"
is "$(about "$job" JobState) $(trainings)" "JobState=COMPLETED 2" "a job with a GPU that is lost goes on"
like "$(cat "$job.log")" '^n1: chex-env ended with 5; left out$' "the node of the GPU is left out"
like "$(cat "$job.log")" '^a node or a GPU failed \(status 5\); no step is lost; restart 1 of 5 with 2 processes on n0$' \
    "the log says with which processes it goes on"
like "$(grep chex-train calls | tail -n 1)" '^chex-train 2 n0 .*--logical-ranks 4$' "they share the logical ranks"
like "$(grep chex-eval calls)" '^chex-eval 2 n0 ' "the evaluation has the same processes"
rm gpu-lost

touch sleeps
job=$(submit)
wait_for grep -q chex-train calls
host=$(about "$job" BatchHost)
bash "$fixture" kill-node "$CLUSTER" "${host#*=}"
scontrol update NodeName="${host#*=}" State=DOWN Reason=power # which saves SlurmdTimeout
settled "$job"
is "$(about "$job" Restarts)" "Restarts=1" "a job that loses its first node goes back into the queue"
done_testing
