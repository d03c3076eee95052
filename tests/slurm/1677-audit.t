#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --audit-steps with a node that computes wrong numbers (chex-train-faulty): an audit names it, and the run
# ends. Under slurm/chexnet.sbatch the job goes on without it from the last audited checkpoint, and ends with
# the bits of an undisturbed run.
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --nodes 3 --set TaskPlugin=task/none
need_training
[ -x "$BUILD/tests/chex-train-faulty" ] || skip_all "no chex-train-faulty here"

phantom_shards 40 3 --split none
train() { # COMMAND OPTION...
    in_job -N3 --ntasks-per-node=1 "$1" --data shards --engine cpu --precision fp32 --threads 1 \
        --image-size 32 --batch-size 2 --deterministic --checkpoint-every 1steps "${@:2}"
}
# Rank 1 is wrong from step 3 on: two passes at the start, one in step 1, one in step 2.
export FAULTY_PASS=1:5-
expect_status 5 train "$BUILD/tests/chex-train-faulty" --audit-steps 2 --max-steps 9 --output three
like "$(err)" 'error: audit of step 8: rank 1 on n1 \(.*\) computed a wrong gradient .* repeated, it was wrong again' \
    "the node with the fault is named"
is "$(err | grep -c 'audit of step')" 1 "in one line of one rank"
unset FAULTY_PASS
is "$(cd three/checkpoints && echo step-*.h5)" step-0000000002.h5 \
    "the checkpoint of its last audit is kept beyond --checkpoint-keep"
expect_status 0 train chex-train --max-steps 5 --output three
like "$(err)" 'going on from step 2' "the next start goes on from the last one"

# The same under the batch file.
same=(--engine cpu --precision fp32 --threads 1 --image-size 32 --batch-size 1 --seed 5 --deterministic
    --opt sgd --lr 0.01 --ema 0.9 --freeze 'features.denseblock1.*' --max-steps 8
    --checkpoint-every 1steps --save-before-end off)
mkdir bin
ln -s "$BUILD/tests/chex-train-faulty" bin/chex-train
cat >bin/chex-eval <<'END'
#!/bin/bash
[ "$SLURM_PROCID" != 0 ] || echo 0 >"$CHEX_STATUS_FILE"
END
chmod +x bin/chex-eval
batch() { # RUN NODES TASKS-PER-NODE FAULT
    FAULTY_PASS=$4 PATH=$SCRATCH/bin:$PATH sbatch_id --nodes="$2" --ntasks-per-node="$3" \
        --cpus-per-task=1 --gpus-per-node=0 --time=5 -o "$SCRATCH/$1.log" "$SOURCE/slurm/chexnet.sbatch" \
        shards "$1" "${same[@]}" --audit-steps 1
}
# Rank 3, on n1, passes its audit in step 3 (two passes at the start, one in each step, one for each audit of
# another rank) and is wrong afterwards. The second start has ranks 0 and 1 only.
job=$(batch run 2 2 3:8-)
settles "$job"
is "$(scontrol show job "$job" | grep -oE 'JobState=[A-Z]*|Restarts=[0-9]*' | paste -sd' ')" \
    "JobState=COMPLETED Restarts=0" "the job ends well in one start" || diag "$(tail -n 40 run.log)"
like "$(cat run.log)" \
    'error: audit of step [0-9]+: rank 3 on n1 \(.*\) computed a wrong gradient .* repeated, it was wrong again' \
    "the audit names rank and node"
like "$(cat run.log)" '^n1: its numbers are wrong; left out$' "the node is left out"
lost='steps [0-9]+ to [0-9]+ are lost and computed again'
like "$(cat run.log)" "^an audit found wrong numbers \(status 5\); $lost; restart 1 of 5 with 2 processes on n0$" \
    "the others go on in the same allocation"
back=$(grep -o 'the next start goes on from step [0-9]*' run.log | grep -o '[0-9]*$')
like "$(cat run.log)" "going on from step ${back:-none}( |$)" "from the last audited checkpoint"
chex-train --data shards --output whole "${same[@]}" --logical-ranks 4 >/dev/null 2>&1
for group in /params /moment1 /ema; do
    h5diff whole/last.h5 run/last.h5 $group $group >/dev/null
    ok $? "$group has the bits of a run without a fault"
done

# One process, wrong once: there is no other node in the allocation.
job=$(batch alone 1 1 0:4)
wait_for job_is "$job" 'ExcNodeList=n[01]( |$)' && job_is "$job" 'Restarts=1'
ok $? "a job of one node goes back into the queue, for another node" || diag "$(tail -n 20 alone.log)"
like "$(cat alone.log)" 'rank 0 on (n[01]) .* computed two different gradients' "its own audit names it"
scancel "$job"
done_testing
