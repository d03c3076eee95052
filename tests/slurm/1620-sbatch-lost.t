#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/chexnet.sbatch with lost ranks, time slices and arrays: which starts are counted, and what
# the job does in its next start. chex-env is the real one; training is a stand-in of chosen status.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
have chex-env || skip_all "chex-env is not built"
mkdir bin
for command in chex-train chex-eval; do
    cat >bin/$command <<END
#!/bin/bash
[ "\$SLURM_PROCID" != 0 ] || echo "$command \$*" >>$SCRATCH/calls
status=0
[ $command != chex-train ] || status=\$(cat $SCRATCH/status.\$SLURM_RESTART_COUNT 2>/dev/null || echo 0)
[ "\$SLURM_PROCID" != 0 ] || { mkdir -p "\${CHEX_STATUS_FILE%/*}" && echo \$status >"\$CHEX_STATUS_FILE"; }
exit \$status
END
done
# chex-env as it is on a node that hangs, or that lacks it, until it is well.
cat >bin/chex-env <<END
#!/bin/bash
if [ "\$SLURMD_NODENAME" = n1 ] && [ ! -e $SCRATCH/well ]; then
    [ "\$FAULT" != hangs ] || exec sleep 15
    [ "\$FAULT" != lacks ] || exit 127
fi
exec $BUILD/bin/chex-env --timeout 1s "\$@"
END
chmod +x bin/*
export PATH=$SCRATCH/bin:$PATH
submit() { # ARGUMENT...
    : >calls
    CHEXNET_RESTARTS=0 sbatch_id --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --gpus-per-node=0 \
        --time=5 -o "$SCRATCH/batch-%j.out" "$SOURCE/slurm/chexnet.sbatch" shards run "$@"
}
submit_array() { # INDICES RUN ARGUMENT...
    : >calls
    sbatch_id --array="$1" --nodes=1 --ntasks-per-node=1 --gpus-per-node=0 \
        --cpus-per-task=1 --time=5 -o "$SCRATCH/array-%a.out" "$SOURCE/slurm/chexnet.sbatch" shards "${@:2}"
}
# Waits until the text of the job matches. A job that is to end starts again soon.
until_job() { # JOB REGEX
    wait_for eval "job_is $1 '$2|JobState=(COMPLETED|FAILED)' || { [[ '$2' != ExcNodeList* ]] && start_soon $1 && false; }"
    job_is "$1" "$2" || {
        diag "$(scontrol show job "$1")"
        diag "$(tail -n 20 "batch-$1.out")"
        return 1
    }
}

declare -A faulty
for fault in lacks hangs; do
    faulty[$fault]=$(FAULT=$fault submit)
done
for fault in lacks hangs; do
    job=${faulty[$fault]}
    until_job "$job" "ExcNodeList=n1( |$)"
    ok $? "a node that $fault chex-env is left out"
    like "$(cat "batch-$job.out")" "^ranks +fail +rank 2 \(n1\), and others of this node: no answer" \
        "the table names the node that $fault"
    like "$(cat "batch-$job.out")" "^n1: unfit; this job is put back into the queue, for other nodes" \
        "the log says why the job of the node that $fault is put back"
    is "$(cat calls)" "" "nothing is trained beside a node that $fault"
done
touch well # these jobs go on at the end

# Lost ranks in training: again, from the last checkpoint.
echo 7 >status.
job=$(submit)
until_job "$job" "JobState=COMPLETED"
ok $? "after status 7 the job starts again and ends well"
is "$(about "$job" Restarts) $(about "$job" Comment)" "Restarts=1 Comment=chexnet-retries=1" \
    "status 7 is counted as a retry"
like "$(cat "batch-$job.out")" "^ranks were lost; this job is put back" "the log says that ranks were lost"

# A time slice is not counted: after it there are three retries.
echo 6 >status.
echo 7 | tee status.1 status.2 status.3 >status.4
job=$(submit --seed 5)
until_job "$job" "JobState=FAILED"
ok $? "a job whose ranks are always lost ends"
is "$(about "$job" Restarts) $(about "$job" ExitCode) $(about "$job" Comment)" \
    "Restarts=4 ExitCode=7:0 Comment=chexnet-retries=3" "after a time slice and three retries, with status 7"
rm -f status.*

# Arrays: a run for each task.
job=$(submit_array 1-2 sweep/%a --seed %a --lr 1e-%a)
until_job "${job}_1" "JobState=COMPLETED" && until_job "${job}_2" "JobState=COMPLETED"
ok $? "the tasks of an array run to their end"
is "$(grep chex-train calls | sort)" "chex-train --data shards --output sweep/1 --resume auto --seed 1 --lr 1e-1
chex-train --data shards --output sweep/2 --resume auto --seed 2 --lr 1e-2" "each task has its run and its options"
# A sweep: lost ranks are counted for each task.
echo 7 | tee status. status.1 status.2 >status.3
printf '%s\n' "--lr 1" >table
: >calls
job=$(sbatch_id --array=1 --gpus-per-node=0 --cpus-per-task=1 --time=5 --comment="of user" \
    -o "$SCRATCH/sweep-%a.out" "$SOURCE/slurm/sweep.sbatch" shards swept table)
until_job "${job}_1" "JobState=FAILED"
ok $? "a task of a sweep whose ranks are always lost ends"
is "$(about "${job}_1" Restarts) $(about "${job}_1" ExitCode) $(grep -c chex-train calls) $(grep -c chex-eval calls)" \
    "Restarts=3 ExitCode=7:0 4 0" "after three retries, with status 7 and without an evaluation"
like "$(scontrol show job "${job}_1")" "Comment=of user *chexnet-retries=3" "the comment of the user stays before the count"
rm -f status.*

job=$(CHEXNET_SRUN="--label --kill-on-bad-exit" CHEXNET_EVAL="--tta --bootstrap 9" submit_array 3 run)
until_job "${job}_3" "JobState=COMPLETED"
like "$(cat calls)" "chex-train --data shards --output run/3 " "without %a each task has a folder in RUN"
like "$(cat calls)" "chex-eval .*--force --tta --bootstrap 9$" "CHEXNET_EVAL gives options to chex-eval"
like "$(cat array-3.out)" "^0: fit to train" "CHEXNET_SRUN gives options to srun"

for fault in lacks hangs; do
    job=${faulty[$fault]}
    : >calls
    # slurmstepd of the step keeps its socket for some 20 s, and the next start has the same step.
    wait_for [ ! -e "$CLUSTER/spool.n0/stepd.slurm.pmix.$job.0" ]
    scontrol update JobId="$job" ExcNodeList=
    until_job "$job" "JobState=COMPLETED"
    ok $? "the job runs to its end when the node that $fault is well"
    is "$(about "$job" Restarts) $(cut -d' ' -f1 calls | tr '\n' ' ')" "Restarts=1 chex-train chex-eval " \
        "the job of the node that $fault has one restart"
done
done_testing
