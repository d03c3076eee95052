#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/chexnet.sbatch after lost ranks and nodes: it goes on in the same allocation, with the nodes that
# are left, and ends with the bits of an undisturbed run.
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --nodes 3 --set TaskPlugin=task/none
need_training

phantom_shards 60 2
same=(--engine cpu --threads 1 --image-size 32 --batch-size 2 --seed 5 --deterministic --epochs 100000 --checkpoint-every 2steps --stall-warn 3s --stall-abort 15s)
# A training without --max-steps has no end until the file `steps` says where.
mkdir bin
cat >bin/chex-train <<END
#!/bin/bash
[[ ! -e $SCRATCH/steps || \$* = *--max-steps* ]] || set -- "\$@" --max-steps \$(cat $SCRATCH/steps)
exec $BUILD/bin/chex-train "\$@"
END
chmod +x bin/chex-train
batch() { # RUN
    CHEXNET_SRUN=--wait=1 CHEXNET_EVAL="--engine cpu --bootstrap 0" PATH=$SCRATCH/bin:$PATH sbatch_id --nodes=3 --ntasks-per-node=1 \
        --cpus-per-task=1 --gpus-per-node=0 --time=20 -o "$SCRATCH/$1.log" "$SOURCE/slurm/chexnet.sbatch" shards "$1" "${same[@]}"
}
rank() { processes chex-train "$1"; }
restarts() { [ "$(grep -c 'ranks were lost' run.log)" -ge "$1" ]; } # COUNT
trains_anew() { # COUNT: the run has made steps after its restart number COUNT
    sed -n "/restart $1 of/,\$p" run.log | grep -q 'going on from step' && wait_for grows
}
grows() {
    local before
    before=$(tail -n 1 run/metrics.jsonl)
    sleep 0.3
    [ "$before" != "$(tail -n 1 run/metrics.jsonl)" ]
}
says() { grep 'ranks were lost' run.log | sed -n "$1p"; }

job=$(batch run)
wait_for grep -qs '"step":' run/checkpoints.jsonl # the files of early steps are soon removed
kill -9 "$(rank 1)"
wait_for restarts 1
like "$(says 1)" '^ranks were lost \(status (137|7); n1: task 1: Killed\); (steps [0-9]+ to [0-9]+ are lost and computed again|no step is lost); restart 1 of 5 with 3 processes on n0 n1 n2$' \
    "after a killed rank the same nodes go on, and the log says what was lost"
wait_for trains_anew 1

# The daemon of the step's tasks on n2, whose end Slurm does not notice.
daemon=$(sed -n "s/^PPid:\s*//p" "/proc/$(rank 2)/status")
kill -9 "$daemon"
wait_for restarts 2
like "$(says 2)" 'restart 2 of 5 with 3 processes on n0 n1 n2$' "so they do after a killed slurmstepd"
wait_for trains_anew 2

scontrol update NodeName=n2 State=DOWN Reason=test
wait_for restarts 3
like "$(cat run.log)" '^n2: lost by the job; left out$' "a node that is set down is left out"
like "$(says 3)" 'restart 3 of 5 with 2 processes on n0 n1$' "the others go on with fewer processes"
wait_for trains_anew 3

kill -9 "$(rank 1)"
step=$(tail -n 1 run/metrics.jsonl | grep -o '"step":[0-9]*')
echo $((${step#*:} + 6)) >steps # the next start ends there
wait_for restarts 4
like "$(cat run.log)" '^n1: its tasks were killed twice; left out$' "a node whose tasks are killed twice is left out"
like "$(says 4)" 'restart 4 of 5 with 1 process on n0$' "one process goes on alone"
wait_for job_is "$job" 'JobState=(COMPLETED|FAILED|CANCELLED|PENDING)'
is "$(about "$job" JobState) $(about "$job" Restarts)" "JobState=COMPLETED Restarts=0" "the job ends well in one start" ||
    diag "$(tail -n 40 run.log)"
chex-train --data shards --output whole "${same[@]}" --logical-ranks 3 --max-steps "$(cat steps)" >/dev/null 2>&1
for group in /params /moment1 /moment2; do
    h5diff whole/last.h5 run/last.h5 $group $group >/dev/null
    ok $? "$group of the last checkpoint has the bits of a run without a fault"
done
[ -s run/eval/auroc.json ]
ok $? "the evaluation follows the training"
done_testing
