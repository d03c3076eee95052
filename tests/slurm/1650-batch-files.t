#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The batch files with the real commands: shards over two nodes with an interruption, a training, an
# evaluation, a sweep.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set MpiDefault=none --set TaskPlugin=task/none
need_training

for file in "$SOURCE"/slurm/*.sbatch; do
    is "$(grep -n '^#SBATCH' "$file" | tail -n 1 | cut -d: -f1)" "$(($(grep -c '^#SBATCH' "$file") + 1))" \
        "${file##*/}: the directives come first"
done

small=(--nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --time=20)
batch() { sbatch_id -o "$SCRATCH/batch-%j-%a.out" "$@"; }
ends() { # JOB LABEL
    finishes "$1"
    is "$(about "$1" JobState)" JobState=COMPLETED "$2" || diag "$(tail -n 12 batch-"${1%_*}"*.out)"
}

# Shards over two nodes, interrupted once: the same as from one process.
chex-shard phantom --count 600 --size 256 --output ph -q >/dev/null
split=(--size 64 --shards 4 --split patient)
chex-shard create --images ph/images --labels ph/labels.csv --output one "${split[@]}" -q >/dev/null 2>&1
job=$(batch "${small[@]}" "$SOURCE/slurm/shard.sbatch" ph/images ph/labels.csv shards "${split[@]}")
until compgen -G "shards/.chex-shard-partial/*" >/dev/null; do sleep 0.02; done
# Both ranks wait for the signal, which comes late on a busy machine. Slurm wakes what it ends.
pgrep -x chex-shard | while read -r pid; do
    ! grep -qzxF "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" 2>/dev/null || kill -STOP "$pid"
done
scancel --signal=USR2 --batch "$job"
ends "$job" "shard.sbatch makes shards"
is "$(about "$job" Restarts)" Restarts=1 "after its signal the job is put back into the queue"
like "$(cat batch-"$job"-*.out)" "^stopped with finished shards kept" "the log says that it was stopped"
digests() { (cd "$1" && find . -name '*.h5' | sort | xargs sha256sum); }
is "$(digests shards)" "$(digests one)" "the shards are those of one process"

# A training with its steps.
tiny=(--engine cpu --threads 1 --image-size 32 --batch-size 4 --max-steps 2 --epochs 1)
export CHEX_BOOTSTRAP=0
job=$(batch "${small[@]}" --gpus-per-node=0 "$SOURCE/slurm/chexnet.sbatch" shards run "${tiny[@]}")
ends "$job" "chexnet.sbatch trains and evaluates"
[ -s run/eval/auroc.json ]
ok $? "chexnet.sbatch leaves the table of AUROCs"

# An evaluation after it.
job=$(CHEX_ENGINE=cpu CHEX_THREADS=1 batch --dependency="afterok:$job" "${small[@]}" --gpus-per-node=0 \
    "$SOURCE/slurm/eval.sbatch" shards run/best.h5 results --split val)
ends "$job" "eval.sbatch evaluates"
[ -s results/auroc.json ]
ok $? "eval.sbatch leaves the table of AUROCs"

# A sweep.
printf '%s\n' "--lr 1e-3 --seed 7" "--lr 1e-4 --seed 8 --folds 2 --fold 2" >options
job=$(CHEX_ENGINE=cpu CHEX_THREADS=1 batch --array=1-2 --cpus-per-task=1 --gpus-per-node=0 --time=20 \
    "$SOURCE/slurm/sweep.sbatch" shards sweep options "${tiny[@]}")
ends "${job}_1" "the first task of sweep.sbatch ends well"
ends "${job}_2" "the second task of sweep.sbatch ends well"
is "$(grep -hoE '"(lr|seed)": "[0-9.]*"' sweep/1/config.json sweep/2/config.json | tr -d '\n')" \
    '"lr": "0.001""seed": "7""lr": "0.0001""seed": "8"' "each task has its line of options"
is "$(grep -m 1 '"mean"' sweep/*/eval/auroc.json | cut -d: -f1,2 | tr -d ' \n')" \
    'sweep/1/eval/auroc.json:"mean"sweep/2/eval/auroc.json:"mean"' "one grep prints the table of the sweep"
is "$(grep -hoE '"(split|checkpoint)": "(fold|sweep)[^"]*"' sweep/2/eval/auroc.json | tr -d '\n')" \
    '"checkpoint": "sweep/2/last.h5""split": "fold 2 of 2"' "a network of a fold is evaluated on the fold that it did not see"
done_testing
