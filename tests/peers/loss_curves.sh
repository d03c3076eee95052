#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The loss of 200 steps against PyTorch's: --help says more.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=../options.sh
. "$here/tests/options.sh"

usage() {
    cat <<END
usage: tests/peers/loss_curves.sh [OPTION...]
Trains a network by chex-train and by PyTorch from equal initial weights (torchvision's, of several
seeds) on the same batches, pixel for pixel: those chex-train takes from phantom shards, crops and
flips included. Prints how far ours is from PyTorch's run of the same start, how far PyTorch's runs
of different starts are from each other, and a table; exit status 1 where ours is outside.
  --python PYTHON   with torch, torchvision and safetensors (python3); else skipped (77)
  --steps N         (200)
  --seeds N         starting weights (3)
  --model NAME      (densenet121)
  --size PX         (64)
  --batch N         (16)
  --lr RATE         of Adam, constant (1e-3)
  --engine NAME     that runs from all starts (cpu)
  --others E,E      engines that run from the first start only (cpu:avx2,cpu:generic); '' for none
  --precisions P,P  (fp32,bf16)
  --threads N       ($(nproc))
  --work DIR        kept; what is there already is not run again (a fresh folder, removed)
  --svg FILE        the drawing (build/loss-curves.svg)
END
}

python=python3 steps=200 seeds=3 model=densenet121 size=64 batch=16 lr=1e-3 engine=cpu
others=cpu:avx2,cpu:generic precisions=fp32,bf16 threads=$(nproc)
svg=$here/build/loss-curves.svg work=
read_options "python steps# seeds# model size# batch# lr engine others precisions threads# work svg" "$@"
no_words
build=${CHEX_TEST_BUILD:-$here/build/release}
"$python" -c 'import torch, torchvision, safetensors' 2>/dev/null ||
    { echo "skipped: $python has no torch, torchvision and safetensors"; exit 77; }
for program in bin/chex-shard bin/chex-train tests/dump_batches; do
    [ -x "$build/$program" ] || { echo "no $build/$program: build with -DCHEX_BUILD_TESTS=ON first" >&2 && exit 4; }
done
if [ -n "$work" ]; then
    mkdir -p "$work"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi

phantom() {
    "$build/bin/chex-shard" phantom --count 2000 --size "$size" --seed 1 --output "$work/phantom" -q
    "$build/bin/chex-shard" --images "$work/phantom/images" --labels "$work/phantom/labels.csv" \
        --size "$size" --shards 4 --split patient --output "$work/shards" -q
    "$build/tests/dump_batches" "$work/shards" "$size" "$batch" "$steps" 0 "$work/batches.part"
    mv "$work/batches.part" "$work/batches"
}

theirs() { # precision seed
    # Waiting threads that spin take the cores from those that compute where these are shared.
    OMP_WAIT_POLICY=passive "$python" "$here/tests/peers/loss_curves.py" train "$model" \
        "$work/start$2.safetensors" "$work/batches" "$1" "$lr" "$threads" "$work/torch-$1-$2.json"
}

ours() { # precision seed engine
    rm -rf "$work/run-$1-$2-$3"
    "$build/bin/chex-train" --data "$work/shards" --output "$work/run-$1-$2-$3" --model "$model" \
        --image-size "$size" --batch-size "$batch" --max-steps "$steps" --epochs 100000 \
        --checkpoint-every 1000000steps --lr "$lr" --sched constant --seed 0 --engine "$3" \
        --precision "$1" --threads "$threads" --init "$work/start$2.safetensors" \
        2>"$work/run-$1-$2-$3.log" ||
        { cat "$work/run-$1-$2-$3.log" >&2 && return 1; }
    "$python" - "$work/run-$1-$2-$3/metrics.jsonl" "$steps" "$work/ours-$1-$2-$3.json" <<'P'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
losses = [r["loss"] for r in lines if r["kind"] == "step"]
assert len(losses) == int(sys.argv[2]), f"{len(losses)} steps"
json.dump(losses, open(sys.argv[3], "w"))
P
}

timed() {
    local from=$SECONDS
    # theirs PRECISION SEED writes torch-PRECISION-SEED.json; ours likewise, and its engine
    local result=$2-$3${4:+-$4}.json
    [ "$1" = theirs ] && result=torch-$result || result=ours-$result
    [ ! -e "$work/$result" ] || return 0
    "$@"
    echo "# $*: $((SECONDS - from)) s"
}

[ -e "$work/batches" ] || phantom
classes=$(od -An -t d4 -j 12 -N 4 "$work/batches" | tr -d ' ')
for ((seed = 0; seed < seeds; seed++)); do
    "$python" "$here/tests/peers/loss_curves.py" start "$model" "$classes" "$seed" \
        "$work/start$seed.safetensors"
done
for precision in ${precisions//,/ }; do
    for ((seed = 0; seed < seeds; seed++)); do
        timed theirs "$precision" "$seed"
        timed ours "$precision" "$seed" "$engine"
    done
    for other in ${others//,/ }; do
        timed ours "$precision" 0 "$other"
    done
done
mkdir -p "$(dirname "$svg")"
echo "$model, $size px, batch $batch, $steps steps of Adam at $lr, $("$python" -c \
    'import torch, torchvision as v; print("torch", torch.__version__, "torchvision", v.__version__)')"
"$python" "$here/tests/peers/loss_curves.py" judge "$work" "$svg"
