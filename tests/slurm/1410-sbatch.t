#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/chexnet.sbatch runs its steps in order, exports what it should, and goes back to the queue
# when it should. The three commands are fakes that record how they were called, with statuses chosen
# here.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set MpiDefault=none --set TaskPlugin=task/none

mkdir bin
for command in chex-env chex-train chex-eval; do
    cat >bin/$command <<END
#!/bin/bash
[ "\$SLURM_PROCID" != 0 ] || echo "$command pmix=\${PMIX_NAMESPACE:+yes} cpus=\$SRUN_CPUS_PER_TASK \$*" >>$SCRATCH/calls
[ "\$SLURM_PROCID" != 0 ] || cat $SCRATCH/$command.out
[ ! -e $SCRATCH/$command.signal ] || kill -USR2 \$\$
status=\$(cat $SCRATCH/$command.status)
[ "\$SLURM_PROCID" != 0 ] || [ ! "\$CHEX_STATUS_FILE" ] || { mkdir -p run && echo \$status >"\$CHEX_STATUS_FILE"; }
exit \$status
END
    chmod +x bin/$command
    echo 0 >$command.status
    : >$command.out
done
echo "fit to train" >chex-env.out
export PATH=$SCRATCH/bin:$PATH

submit() { # [OPTION OF sbatch...]
    : >calls
    sbatch_id "$@" --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=0 \
        --time=5 "$SOURCE/slurm/chexnet.sbatch" shards run --epochs 3
}
# State of a job, and how often it was put back.
state() { scontrol show job "$1" | grep -oE 'JobState=[A-Z]+|Restarts=[0-9]+' | sort | tr '\n' ' '; }
settled() { # JOB: as soon as it is no longer running
    settles "$1"
    wait_for eval "! job_is $1 'JobState=(RUNNING|COMPLETING)'"
    state "$1"
}

is "$(sed -n '2,/^[^#]/p' "$SOURCE/slurm/chexnet.sbatch" | grep -n SBATCH | tail -n 1 | cut -d: -f1)" \
    "$(grep -c '^#SBATCH' "$SOURCE/slurm/chexnet.sbatch")" "the directives stand together, first"

job=$(submit)
is "$(settled "$job")" "JobState=COMPLETED Restarts=0 " "a run ends well"
is "$(cat calls)" "chex-env pmix=yes cpus=1 
chex-train pmix=yes cpus=1 --data shards --output run --resume auto --epochs 3
chex-eval pmix=yes cpus=1 --data shards --checkpoint run/best.h5 --output run/eval --force" \
    "after its three steps, whose ranks have PMIx although MpiDefault is none"

for command in chex-env chex-train chex-eval; do
    touch $command.signal
    job=$(submit)
    is "$(settled "$job")" "JobState=COMPLETED Restarts=0 " "the signal does not end $command while it loads"
    rm $command.signal
done

echo 6 >chex-train.status
job=$(submit)
like "$(settled "$job")" "JobState=PENDING Restarts=1" "status 6 puts the job back into the queue"
is "$(grep -c chex-eval calls)" 0 "after a failed training nothing is evaluated"
echo 0 >chex-train.status
finishes "$job"
is "$(state "$job")" "JobState=COMPLETED Restarts=1 " "the job starts again and ends well"
is "$(cut -d' ' -f1 calls | tr '\n' ' ')" "chex-env chex-train chex-env chex-train chex-eval " \
    "with all of its steps"

echo 8 >chex-train.status
job=$(submit)
is "$(settled "$job")" "JobState=FAILED Restarts=0 " "another status does not"
like "$(scontrol show job "$job")" "ExitCode=8:0" "the exit status is the job's"

echo 4 >chex-env.status
job=$(submit)
is "$(settled "$job")" "JobState=FAILED Restarts=0 " "an unfit allocation"
is "$(grep -c chex-train calls)" 0 "trains nothing"

# A node that is blamed: its name comes from the table.
node=$(sinfo -hN -o %N | sort | tail -n 1)
cat >chex-env.out <<END
check    verdict  found
hdf5     pass     1.10.8
tmpdir   fail     rank 0 (elsewhere): read-only
                  fault: user
shm      fail     rank 1 ($node): 0 bytes (of 64 GiB)
                  question: is there room for shared memory?
                  fault: node
END
echo 5 >chex-env.status
job=$(submit)
like "$(settled "$job")" "JobState=PENDING Restarts=1" "a node's fault puts the job back"
wait_for job_is "$job" "ExcNodeList=$node"
like "$(scontrol show job "$job")" "ExcNodeList=$node( |$)" "the job is queued without the node at fault"
is "$(grep -c chex-train calls)" 0 "nothing is trained on that node"
scancel "$job"
job=$(submit --comment=chexnet-retries=3)
is "$(settled "$job")" "JobState=FAILED Restarts=0 " "three times at most"
like "$(scontrol show job "$job")" "ExitCode=5:0" "the second failure is the status of the job"
echo "rank 0/2" >chex-env.out
job=$(submit)
is "$(settled "$job")" "JobState=FAILED Restarts=0 " "a failure without a node does not requeue"
done_testing
