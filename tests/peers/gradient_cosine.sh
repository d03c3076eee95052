#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Gradients of one pass against float64, ours beside PyTorch's: --help says more.
set -eu -o pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=../options.sh
. "$here/tests/options.sh"

usage() {
    cat <<END
usage: tests/peers/gradient_cosine.sh [OPTION...] [CASE...]
Computes the gradient of one batch (phantom images, crops and flips) from torchvision's initial
weights: by PyTorch in float64, float32 and under autocast to bf16, and by each engine in each
precision. Prints the cosine of each with float64, and for ours in bf16 the geometric mean over all
starts of 1 - cosine as a multiple of autocast's. Which ReLUs near 0 open in bf16 is chance: runs of
PyTorch from weights that differ in the last bit part by some 5 %. So exit status 1 means a mean
that is more than 10 % / sqrt(starts) above 1. A CASE is MODEL:SIZE:BATCH.
  --python PYTHON   with torch, torchvision and safetensors (python3); else skipped (77)
  --engines E,E     (cpu,cpu:avx2,cpu:generic)
  --precisions P,P  (fp32-strict,fp32,bf16)
  --seed N          of the first start's weights (0)
  --starts N        weights of seeds N, N + 1, ... (1)
END
}

python=python3 engines=cpu,cpu:avx2,cpu:generic precisions=fp32-strict,fp32,bf16 seed=0 starts=1
read_options "python engines precisions seed starts#" "$@"
cases=("${words[@]}")
[ ${#cases[@]} -gt 0 ] || cases=(densenet121:64:16 densenet121:128:4 resnet50:64:16)
build=${CHEX_TEST_BUILD:-$here/build/release}
"$python" -c 'import torch, torchvision, safetensors' 2>/dev/null ||
    { echo "skipped: $python has no torch, torchvision and safetensors"; exit 77; }
for program in bin/chex-shard tests/dump_batches tests/dump_gradient; do
    [ -x "$build/$program" ] || { echo "no $build/$program: build with -DCHEX_BUILD_TESTS=ON first" >&2 && exit 4; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

batches() { # size batch
    [ -d "$work/shards$1" ] || {
        "$build/bin/chex-shard" phantom --count 200 --size "$1" --seed 1 \
            --output "$work/phantom$1" -q >/dev/null
        "$build/bin/chex-shard" --images "$work/phantom$1/images" --size "$1" --shards 1 \
            --labels "$work/phantom$1/labels.csv" --split patient --output "$work/shards$1" \
            -q >/dev/null
    }
    "$build/tests/dump_batches" "$work/shards$1" "$1" "$2" 1 0 "$work/batches"
}

one() { # case model size batch seed
    local classes precision engine file files=()
    classes=$(od -An -t d4 -j 12 -N 4 "$work/batches" | tr -d ' ')
    "$python" "$here/tests/peers/gradient_cosine.py" start "$2" "$classes" "$5" \
        "$work/start.safetensors"
    for precision in ${precisions//,/ }; do
        for engine in ${engines//,/ }; do
            file=$work/$precision-$engine.safetensors
            read -r _ variant < <("$build/tests/dump_gradient" "$2" "$engine" "$precision" \
                "$work/start.safetensors" "$work/batches" "$file") ||
                { echo "$1: $engine in $precision failed" >&2 && exit 1; }
            files+=("$precision $variant=$file")
        done
    done
    "$python" "$here/tests/peers/gradient_cosine.py" compare "$1, start $5" "$2" \
        "$work/start.safetensors" "$work/batches" "${files[@]}"
}

status=0
for c in "${cases[@]}"; do
    IFS=: read -r model size batch <<<"$c"
    batches "$size" "$batch"
    : >"$work/ratios"
    for ((s = seed; s < seed + starts; s++)); do
        one "$c" "$model" "$size" "$batch" "$s" | tee -a "$work/ratios"
    done
    awk -v name="$c" '/1 - cosine is/ { log_sum += log($5); count++ }
        END { if (!count) exit
              mean = exp(log_sum / count)
              printf "%s: 1 - cosine in bf16 is on average %.3f of autocast'\''s (%d)\n", name, mean, count
              exit mean > 1 + 0.1 / sqrt(count) }' "$work/ratios" || status=1
done
exit $status
