#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm/chexnet.sbatch with a node that computes wrong numbers (chex-train-faulty): an audit names it, the job
# goes on without it from the last audited checkpoint, and ends with the bits of an undisturbed run.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
have chex-train || skip_all "chex-train is not built"
[ -e "$BUILD/lib/chexnet-mpi.so" ] || skip_all "built without MPI"
[ -x "$BUILD/tests/chex-train-faulty" ] || skip_all "no chex-train-faulty here"

chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q >/dev/null
chex-shard create --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split none \
    --output shards -q >/dev/null 2>&1
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
    FAULTY_PASS=$4 PATH=$SCRATCH/bin:$PATH timeout 60 sbatch --parsable --nodes="$2" --ntasks-per-node="$3" \
        --cpus-per-task=1 --gpus-per-node=0 --time=5 -o "$SCRATCH/$1.log" "$SOURCE/slurm/chexnet.sbatch" \
        shards "$1" "${same[@]}" --audit-steps 1
}
job_is() { # JOB REGEX: waits for it
    local tries
    for ((tries = 0; tries < 600; tries++)); do
        ! scontrol show job "$1" | grep -qE "$2" || return 0
        sleep 0.1
    done
    diag "$(scontrol show job "$1")"
    return 1
}

# Rank 3, on n1, passes its audit in step 3 (two passes at the start, one in each step, one for each audit of
# another rank) and is wrong afterwards. The second start has ranks 0 and 1 only.
job=$(batch run 2 2 3:8-)
job_is "$job" 'JobState=(COMPLETED|FAILED|CANCELLED)|Restarts=1'
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
job_is "$job" 'Restarts=1' && job_is "$job" 'ExcNodeList=n[01]( |$)'
ok $? "a job of one node goes back into the queue, for another node" || diag "$(tail -n 20 alone.log)"
like "$(cat alone.log)" 'rank 0 on (n[01]) .* computed two different gradients' "its own audit names it"
scancel "$job"
done_testing
