#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs over all nodes of a cluster of four, or of as many as CHEX_TEST_NODES says: the plugin's
# preflight, chexnet.sbatch that is put back into the queue and preempted, an array.
# tests/slurm/soak_nodes.sh runs it with eight.
. "$(dirname "$0")/lib.sh"
nodes=${CHEX_TEST_NODES:-4}
build=${CHEX_TEST_BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build/debug}
all="Nodes=n[0-$((nodes - 1))] State=UP"
options=(--nodes "$nodes" --set TaskPlugin=task/none --set KillWait=20
    --set PreemptType=preempt/partition_prio --set PreemptMode=REQUEUE
    --set "PartitionName=low $all Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
PartitionName=high $all PriorityTier=10 PreemptMode=OFF")
[ ! -f "$build/lib/spank_chexnet.so" ] ||
    options+=(--plugin "$build/lib/spank_chexnet.so")
slurm_fixture --own "${options[@]}"
need_training
[ ! -f "$CLUSTER/spank_chexnet.so" ] || echo "required $CLUSTER/spank_chexnet.so prefix=$BUILD" >"$CLUSTER/plugstack.conf"

is "$NODES $(in_job -N"$NODES" hostname | sort -u | wc -l)" "$nodes $nodes" "a job runs on all nodes"
expect_status 0 in_job -N"$NODES" chex-env
like "$(out)" "^fit to train: .* $NODES ranks on $NODES nodes" "chex-env compares all nodes"
if [ -f "$BUILD/lib/spank_chexnet.so" ]; then
    expect_status 0 in_job -N"$NODES" --chexnet-preflight bash -c 'echo program'
    is "$(grep -c '^fit to train' "$SCRATCH/out") $(grep -c '^program' "$SCRATCH/out")" "1 $NODES" \
        "after one preflight of all nodes the program starts on each"
fi

phantom_shards 60 2
export CHEX_ENGINE=cpu CHEX_THREADS=1 CHEX_IMAGE_SIZE=32 CHEX_BATCH_SIZE=2 CHEX_BOOTSTRAP=0
same=(--seed 5 --deterministic --logical-ranks "$NODES" --epochs 100000)
# A training without --max-steps has no end until the file `steps` says where.
mkdir bin
cat >bin/chex-train <<END
#!/bin/bash
[[ ! -e $SCRATCH/steps || \$* = *--max-steps* ]] || set -- "\$@" --max-steps \$(cat $SCRATCH/steps)
exec $BUILD/bin/chex-train "\$@"
END
chmod +x bin/chex-train
batch() { # OPTION OF sbatch... -- ARGUMENT OF chexnet.sbatch...
    local sbatch=()
    while [ "$1" != -- ]; do
        sbatch+=("$1")
        shift
    done
    PATH=$SCRATCH/bin:$PATH sbatch_id --ntasks-per-node=1 --cpus-per-task=1 \
        --gpus-per-node=0 --exclusive --time=5 -o "$SCRATCH/batch-%j.out" "${sbatch[@]}" \
        "$SOURCE/slurm/chexnet.sbatch" shards "${@:2}"
}
beyond() { [ "$(steps run)" -gt "$1" ]; } # STEPS
completes() { # JOB LABEL
    finishes "$1"
    is "$(about "$1" JobState)" JobState=COMPLETED "$2" || diag "$(tail -n 20 "$SCRATCH"/batch-*.out)"
}

# Put back into the queue, then preempted, then to the end.
job=$(batch --partition=low --nodes="$NODES" -- run "${same[@]}")
wait_for beyond 0 && scontrol requeue "$job" && wait_for job_is "$job" "JobState=PENDING"
ok $? "a job on all nodes is put back into the queue" || diag "$(cat batch-"$job".out)"
first=$(steps run)
start_soon "$job"
wait_for beyond "$first"
ok $? "the job starts again and goes on" || diag "$(cat batch-"$job".out)"
urgent=$(sbatch_id --partition=high --nodes="$NODES" --exclusive -o /dev/null --wrap "true")
wait_for job_is "$job" "Restarts=2" && wait_for job_is "$urgent" "JobState=COMPLETED"
ok $? "an urgent job preempts it on all nodes" || diag "$(tail -n 30 "$CLUSTER/log/slurmctld" batch-"$job".out)"
echo $(($(steps run) + 1)) >steps
# While the job waits in the queue: an array whose two tasks use half of the nodes each, at the same time.
array=$(batch --array=1-2 --nodes=$((NODES / 2)) -- runs/%a --seed %a --max-steps 1)
chex-train --data shards --output whole "${same[@]}" --max-steps "$(cat steps)" >/dev/null 2>&1
completes "${array}_1" "the first task of an array ends well"
completes "${array}_2" "the second task of an array ends well"
is "$(for i in 1 2; do scontrol show hostnames "$(about "${array}_$i" NodeList | cut -d= -f2)"; done | sort -u | wc -l)" \
    "$((NODES / 2 * 2))" "the tasks of the array have nodes of their own"
is "$(grep -ho '"seed": "[0-9]*"' runs/1/config.json runs/2/config.json | tr '\n' ' ')" \
    '"seed": "1" "seed": "2" ' "each task of the array has its run and its options"
completes "$job" "the job ends well in its third start"
is "$(steps run)" "$(cat steps)" "no step is lost or done twice"
h5diff whole/last.h5 run/last.h5 /params /params >/dev/null
ok $? "the bits are those of one process without interruption"
[ -s run/eval/auroc.json ]
ok $? "the evaluation follows the training"

done_testing
