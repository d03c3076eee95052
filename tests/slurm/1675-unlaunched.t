#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The batch files if srun cannot start a step, or ends with 0 without having started one: no command counts
# as done unless it has said so itself. One node and three, with and without a TaskProlog.
# shellcheck disable=SC2016
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --nodes 3 --set TaskPlugin=task/none --set TreeWidth=50 --set KillWait=2 --spool 64m
need_training

chex-shard phantom --count 60 --size 32 --seed 2 --output ph -q >/dev/null
split=(--size 32 --shards 2 --split patient)
chex-shard --images ph/images --labels ph/labels.csv --output shards "${split[@]}" \
    --fractions 0.6,0.2,0.2 -q >/dev/null 2>&1
same=(--engine cpu --threads 1 --image-size 32 --batch-size 2 --seed 5 --deterministic --logical-ranks 3 --epochs 1)
chex-train --data shards --output half "${same[@]}" --max-steps 2 >/dev/null 2>&1
cp -r half whole
chex-train --data shards --output whole --resume auto --max-steps 4 >/dev/null 2>&1

# An srun that starts nothing and ends with 0, for the command NOTHING, NOTHING_TIMES times. Before a
# training, and from then on, the spool folder of the node FULL is full.
srun=$(command -v srun)
mkdir bin
cat >bin/srun <<END
#!/bin/bash
if [ "\$FULL" ] && { [[ \$* = *chex-train* ]] || [ -e $CLUSTER/spool.\$FULL/fill ]; }; then
    cat /dev/zero >>$CLUSTER/spool.\$FULL/fill
    sleep 2 # the step before may still be removing its files
    cat /dev/zero >>$CLUSTER/spool.\$FULL/fill
fi 2>/dev/null
[[ " \$* " = *" \$NOTHING "* ]] || exec $srun "\$@"
echo x >>$SCRATCH/skipped.\$SLURM_JOB_ID
[ \$(grep -c x $SCRATCH/skipped.\$SLURM_JOB_ID) -le \$NOTHING_TIMES ] || exec $srun "\$@"
END
# With a file "unfit" chex-env finds its nodes at fault and all others fit.
cat >bin/chex-env <<END
#!/bin/bash
[ -e $SCRATCH/unfit ] || exec $BUILD/bin/chex-env
grep -qx "\$SLURMD_NODENAME" $SCRATCH/unfit || exec echo "fit to train"
printf 'shm  fail  rank %s (%s): 0 bytes\n  fault: node\n' "\$SLURM_PROCID" "\$SLURMD_NODENAME"
exit 5
END
chmod +x bin/*
export PATH=$SCRATCH/bin:$PATH NOTHING=none NOTHING_TIMES=9 FULL=
batch() { # NODES [OPTION of sbatch...] FILE ARGUMENT...
    sbatch_id --nodes="$1" --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=0 --time=20 \
        --open-mode=append -o "$SCRATCH/batch-%A.out" "${@:2}"
}
train() { # NODES RUN [OPTION of sbatch...]
    cp -r half "$2"
    CHEXNET_EVAL="--engine cpu --bootstrap 0" batch "$1" "${@:3}" "$SOURCE/slurm/chexnet.sbatch" shards "$2" "${same[@]}" --max-steps 4
}
# ends JOB WANTED LABEL: its state, exit status and restarts, as soon as it has ended or is back in the queue.
# A job that is back starts again two minutes later.
ends() {
    wait_for eval "job_is $1 '$ended' || { job_is $1 JobState=PENDING && job_is $1 Restarts=1; }"
    like "$(about "$1" JobState) $(about "$1" ExitCode) $(about "$1" Restarts)" "^JobState=$2" "$3" ||
        diag "$(tail -n 40 "batch-${1%_*}.out")"
}
completed='COMPLETED ExitCode=0:0 Restarts=0' failed='FAILED ExitCode=5:0 Restarts=0' requeued='[A-Z]+ ExitCode=[05]:0 Restarts=[1-9]'
excludes() { # JOB "NODE..." LABEL
    local excluded
    wait_for eval "excluded=\$(about $1 ExcNodeList | cut -d= -f2) && excluded=\$(scontrol show hostnames \"\$excluded\" | sort | xargs) &&
        [ \"\$excluded\" = '$2' ]"
    is "$excluded" "$2" "$3" || diag "$(tail -n 40 "batch-$1.out")"
    scancel "$1"
}
# whole RUN LABEL: it has all of its steps and the bits of the undisturbed run, and was evaluated.
whole() {
    h5diff whole/last.h5 "$1/last.h5" /params /params >/dev/null && grep -q '"step":4,' "$1/metrics.jsonl" &&
        [ -s "$1/eval/auroc.json" ]
    ok $? "$2"
}
# What a killed slurmstepd leaves: the socket of a step of the next start, which has the same numbers.
socket() { # NODE JOB STEP...
    local step
    for step in "${@:3}"; do
        perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die' \
            "$CLUSTER/spool.$1/stepd.slurm.pmix.$2.$step" || diag "no socket on $1"
    done
}

for prolog in without with; do
    if [ $prolog = with ]; then
        printf '#!/bin/sh\nexit 0\n' >prolog
        chmod +x prolog
        echo "TaskProlog=$SCRATCH/prolog" >>"$SLURM_CONF"
        scontrol reconfigure
    fi
    # Step 0 is the preflight. On three nodes step 1 or 2 is the watch of the first node, without PMIx.
    one=$(train 1 "one.$prolog" --hold)
    three=$(train 3 "three.$prolog" --hold)
    for node in n0 n1 n2; do
        socket $node "$one" 1
    done
    socket n1 "$three" 1 2
    scontrol release "$one,$three"
    ends "$one" "$completed" "$prolog a TaskProlog: a training that one node could not start is started again"
    whole "one.$prolog" "$prolog a TaskProlog: one node evaluates the finished network"
    ends "$three" "$completed" "$prolog a TaskProlog: so it is on three nodes"
    whole "three.$prolog" "$prolog a TaskProlog: three nodes evaluate the finished network"
    like "$(cat "batch-$three.out")" "^chex-train did not start, or reported no end \(status 5\); no step is lost; restart 1 of 5 with 3 processes on n0 n1 n2$" \
        "$prolog a TaskProlog: the log says that nothing was lost, and all nodes go on"
    unlike "$(cat "batch-$three.out")" "; left out$" "$prolog a TaskProlog: no node is blamed"
done

# srun starts nothing and ends with 0.
echo "--seed 5" >table
mkdir results.9
echo older >results.9/auroc.json
late=$(NOTHING=chex-eval NOTHING_TIMES=1 train 3 late)
never=$(NOTHING=chex-train CHEXNET_RESTARTS=1 train 1 never --comment=chexnet-retries=3)
again=$(NOTHING=chex-train CHEXNET_RESTARTS=0 train 3 again)
unchecked=$(NOTHING=chex-env train 1 unchecked --comment=chexnet-retries=3)
declare -A job=()
for times in 1 9; do
    export NOTHING_TIMES=$times
    job[eval$times]=$(NOTHING=chex-eval batch 1 "$SOURCE/slurm/eval.sbatch" shards half/last.h5 results.$times --engine cpu --bootstrap 0)
    job[shard$times]=$(NOTHING=chex-shard batch 1 "$SOURCE/slurm/shard.sbatch" ph/images ph/labels.csv made.$times "${split[@]}")
    job[sweep$times]=$(NOTHING=chex-train batch 1 --array=1 "$SOURCE/slurm/sweep.sbatch" shards swept.$times table \
        --engine cpu --image-size 32 --batch-size 2 --max-steps 2)
done
ends "$late" "$completed" "chexnet.sbatch: an evaluation that did not start is started again"
whole late "chexnet.sbatch: its results are there"
ends "$never" "$failed" "chexnet.sbatch: a training that never starts ends the job with 5, after restarts and retries"
[ ! -e never/eval ]
ok $? "chexnet.sbatch: the old network is not evaluated"
ends "$again" "$requeued" "chexnet.sbatch: before that it goes back into the queue"
is "$(about "$again" ExcNodeList)" "ExcNodeList=(null)" "chexnet.sbatch: without a node that fails alone, none is left out"
scancel "$again"
ends "$unchecked" "$failed" "chexnet.sbatch: a node on which chex-env never starts is not fit"
ends "${job[eval1]}" "$completed" "eval.sbatch: an evaluation that did not start is started again"
ends "${job[eval9]}" "$failed" "eval.sbatch: one that never starts ends with 5, although older results are there"
ends "${job[shard1]}" "$completed" "shard.sbatch: a start that did not happen is repeated"
ends "${job[shard9]}" "$failed" "shard.sbatch: a start that never happens ends with 5"
ends "${job[sweep1]}_1" "$completed" "sweep.sbatch: a training that did not start is started again"
ends "${job[sweep9]}_1" "$failed" "sweep.sbatch: one that never starts ends with 5"
[ -s results.1/auroc.json ] && [ -s made.1/manifest.json ] && [ -s swept.1/1/eval/auroc.json ]
ok $? "the results of what was started at last are there"

# A node whose file system has no space for another step. slurmd may drain it.
free_n1() {
    rm "$CLUSTER/spool.n1/fill"
    # After a full spool folder slurmctld shows a node without jobs as "mixed" for minutes. Jobs start there.
    wait_for eval 'scontrol update NodeName=n1 State=RESUME 2>/dev/null; [[ $(sinfo -hN -n n1 -o %T) = @(idle|mixed)* ]]'
}
last=$(FULL=n1 train 3 full.3)
ends "$last" "$completed" "a node whose spool folder is full does not end a job of three nodes"
if grep -q 'restart 1 of' "batch-$last.out"; then
    like "$(cat "batch-$last.out")" "^n1: (chex-env ended with [1-9][0-9]*|down or drained); left out$" "the node is left out"
    like "$(cat "batch-$last.out")" "restart 1 of 5 with 2 processes on n0 n2$" "the other nodes go on"
    free_n1
    last=$(FULL=n1 train 1 full.1 --exclude=n0,n2)
    ends "$last" "$requeued" "a job whose only node has a full spool folder goes back into the queue"
    excludes "$last" "n0 n1 n2" "it waits for another node"
else
    skip "this Slurm starts steps on a node with a full spool folder (24.11 does)" 4
fi
whole full.3 "they evaluate the finished network"
free_n1

printf '%s\n' n0 n2 >unfit
last=$(train 3 pair)
ends "$last" "$requeued" "a job with two nodes at fault goes back into the queue"
excludes "$last" "n0 n2" "both nodes are left out in one requeue"
like "$(cat "batch-$last.out")" "^n0,n2: unfit; this job is put back into the queue, for other nodes$" "the log names both"
is "$(find . "$TMPDIR" "$CLUSTER"/tmp.n? -mindepth 1 -maxdepth 2 \( -name '.status.*' -o -name 'tmp.*' \))" "" "the batch files leave no files of their own"
done_testing
