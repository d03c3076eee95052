#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random faults under slurm/chexnet.sbatch, one a job, on four nodes with one task each and the default
# TreeWidth. After each job: it has all of its steps, evaluated, has the bits of an undisturbed run, and left
# out no sound node. By hand, about a minute a fault:
#   CHEX_TEST_FAULTS=20 CHEX_TEST_SEED=7 bash tests/slurm/soak_faults.sh
# CHEX_TEST_FAULTS: a number (10), or the faults in order, such as "spool socket". CHEX_TEST_SEED: of the choices.
faults=${CHEX_TEST_FAULTS:-10} seed=${CHEX_TEST_SEED:-1} # lib.sh unsets them
. "$(dirname "$0")/lib.sh"
slurm_fixture --nodes 4 --network own --set TaskPlugin=task/none --set KillWait=5 --set SlurmdTimeout=10 --spool 64m
have chex-train || skip_all "chex-train is not built"
RANDOM=$seed
kinds=(task stepd node socket spool srun)
if [[ $faults =~ ^[0-9]+$ ]]; then
    order=()
    for ((i = 0; i < faults; i++)); do
        order+=("${kinds[RANDOM % 6]}")
    done
else
    read -ra order <<<"$faults"
fi

chex-shard phantom --count 60 --size 32 --seed 2 --output ph -q >/dev/null
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
    --fractions 0.6,0.2,0.2 --output shards -q >/dev/null 2>&1
steps=10
same=(--engine cpu --threads 1 --image-size 32 --batch-size 2 --seed 5 --deterministic --epochs 100 --max-steps "$steps"
    --checkpoint-every 2steps --stall-warn 5s --stall-abort 30s)
chex-train --data shards --output whole "${same[@]}" --logical-ranks 4 >/dev/null 2>&1

srun=$(command -v srun)
mkdir bin
cat >bin/srun <<END
#!/bin/bash
[[ \$* = *chex-train* ]] && rm $SCRATCH/refuse 2>/dev/null && exit \$((RANDOM % 2))
exec $srun "\$@"
END
chmod +x bin/srun
job_is() { scontrol show job "$job" | grep -qE "$1"; }
await() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    while ! "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}
rank_of() { # NODE: the process of its rank
    local pid
    for pid in $(pgrep -x chex-train); do
        ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxF "SLURM_CONF=$SLURM_CONF" ||
            ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxF "SLURMD_NODENAME=$1" || echo "$pid"
    done
}
trains() { grep -qsE '"step":[3-9],' "$run/metrics.jsonl" && [ "$(rank_of "$node")" ]; }
ended() {
    start_soon "$job"
    job_is 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT)'
}
sound() { [ "$(sinfo -hN -t idle -o %N | sort -u | wc -l)" = 4 ]; }
bind() { # STEP
    perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die' \
        "$CLUSTER/spool.$node/stepd.slurm.pmix.$job.$1"
}
# The fault itself. A killed node must not be that of the batch script: slurm/1673 has that.
strike() { # KIND
    case $1 in
    task) kill -9 "$(rank_of "$node")" ;;
    stepd) kill -9 "$(sed -n 's/^PPid:\s*//p' "/proc/$(rank_of "$node")/status")" ;;
    node) bash "$fixture" kill-node "$CLUSTER" "$node" ;;
    spool)
        cat /dev/zero >"$CLUSTER/spool.$node/fill" 2>/dev/null
        kill -9 "$(rank_of n0)"
        ;;
    esac
}
mend() {
    if [ "$kind" = node ]; then bash "$fixture" start-node "$CLUSTER" "$node"; fi
    rm -f "$CLUSTER"/spool.n?/fill refuse
    scancel "$job" 2>/dev/null
    scontrol update NodeName=n[0-3] State=RESUME 2>/dev/null
    await 90 sound || diag "$(sinfo -hNo '%N %T %E')"
}

i=0
for kind in "${order[@]}"; do
    i=$((i + 1)) run=run$i node=n$((RANDOM % 3 + 1))
    [ "$kind" != srun ] || touch refuse
    job=$(CHEXNET_EVAL="--engine cpu --bootstrap 0" PATH=$SCRATCH/bin:$PATH timeout 60 sbatch --parsable --hold --nodes=4 \
        --ntasks-per-node=1 --cpus-per-task=1 --gpus-per-node=0 --time=30 -o "$SCRATCH/$run.log" \
        "$SOURCE/slurm/chexnet.sbatch" shards $run "${same[@]}")
    [ "$kind" != socket ] || { bind 1 && bind 2; } # the training, or the watch of the first node, without PMIx
    scontrol release "$job"
    if [[ $kind != s[or]* ]]; then
        await 120 trains && strike "$kind"
    fi
    await $((2 * CHEX_TEST_WAIT)) ended # two starts, and what the fault costs
    name="fault $i, $kind on $node"
    state=$(scontrol show job "$job")
    left_out=$({ sed -n 's/^\(n[0-9]*\): .*; left out$/\1/p' $run.log
        sed -n 's/.*ExcNodeList=\(n[^ (]*\).*/\1/p' <<<"$state" | xargs -rn1 scontrol show hostnames; } | sort -u | xargs)
    job_is JobState=COMPLETED && grep -q "\"step\":$steps," $run/metrics.jsonl && [ -s $run/eval/auroc.json ]
    ok $? "$name: the job completes with all of its steps and an evaluation" || diag "$(cat $run.log)"
    h5diff whole/last.h5 $run/last.h5 /params /params >/dev/null
    ok $? "$name: the parameters have the bits of an undisturbed run"
    [ -z "$left_out" ] || { [[ $kind = node || $kind = spool ]] && [ "$left_out" = "$node" ]; }
    ok $? "$name: no sound node is left out (left out: ${left_out:-none})" || diag "$(cat $run.log)"
    mend
done
done_testing
