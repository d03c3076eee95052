#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The cpu engine against PyTorch: --help says more.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=../options.sh
. "$here/tests/options.sh"

usage() {
    cat <<END
usage: tests/peers/compare.sh [OPTION...] [CASE...]
Runs chex-train and chex-eval's engine and PyTorch in turn on the same processors, and prints for each
case both medians, both bests, peak memory and the ratio of each pair (to PyTorch's best mode).
A case is KIND:MODEL:SIZE:BATCH:PRECISION[:VARIANT], KIND train or infer; by default those of
doc/performance.md. VARIANT forces the engine's (cpu:avx2) and PyTorch's to match. The word networks
means the trainings of the other networks at 224 px with batch 16, in bf16 and in fp32.
  --python PYTHON  with torch and torchvision (python3); without them the script is skipped (77)
  --pairs N        pairs of runs (5)
  --steps N        timed steps a run (3)
  --modes M,M      of PyTorch: eager, compile (both); compiling takes a C++ compiler
                   and minutes, once a case
  --threads N      ($(nproc))
END
}

python=python3 pairs=5 steps=3 modes=eager,compile threads=$(nproc)
read_options "python pairs# steps# modes threads#" "$@"
cases=("${words[@]}")
[ ${#cases[@]} -gt 0 ] || cases=(train:densenet121:224:16:bf16 train:densenet121:224:16:fp32
    train:densenet121:224:16:fp32:avx2 train:densenet121:64:64:bf16 infer:densenet121:224:16:bf16
    infer:densenet121:224:1:bf16 train:resnet50:224:16:bf16)
if [ "${cases[*]}" = networks ]; then
    mapfile -t cases < <(printf '%s\n' \
        train:{densenet161,densenet169,densenet201,resnet18,resnet34,resnet101,resnet152}:224:16:{bf16,fp32})
fi
bin=${CHEX_TEST_BUILD:-$here/build/release}/bin
"$python" -c 'import torch, torchvision' 2>/dev/null ||
    { echo "skipped: $python has no torch and torchvision"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ours() { # kind model size batch precision variant
    local infer=()
    [ "$1" = train ] || infer=(--bench-infer)
    "$bin/chex-train" --bench "$steps" "${infer[@]}" --model "$2" --image-size "$3" \
        --batch-size "$4" --precision "$5" --threads "$threads" --engine "cpu${6:+:$6}" --json -q |
        tr -d '\n'
    echo
}

# What is compiled is kept for the later pairs of a case, and not for other cases: PyTorch 2.15 takes
# code that was made for another instruction set (a max pool's indices are then out of bounds).
theirs() { # kind model size batch precision variant mode
    local limit=(env "TORCHINDUCTOR_CACHE_DIR=$work/inductor")
    [ "$6" != avx2 ] || limit+=(ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2)
    "${limit[@]}" "$python" "$here/tests/peers/torch_step.py" "$1" --model "$2" --image-size "$3" \
        --batch-size "$4" --precision "$5" --threads "$threads" --mode "$7" --bench "$steps" \
        >"$work/out" 2>"$work/err" ||
        { echo "torch_step.py $1 --mode $7 failed: $(tail -n 1 "$work/err")" >&2 && exit 1; }
    tail -n 1 "$work/out"
}

for c in "${cases[@]}"; do
    IFS=: read -r kind model size batch precision variant <<<"$c"
    rm -rf "${work:?}"/*
    for ((pair = 0; pair < pairs; pair++)); do
        ours "$kind" "$model" "$size" "$batch" "$precision" "$variant" >>"$work/ours"
        for mode in ${modes//,/ }; do
            theirs "$kind" "$model" "$size" "$batch" "$precision" "$variant" "$mode" \
                >>"$work/torch-$mode"
        done
    done
    "$python" - "$c" "$work" <<'P'
import glob, json, statistics as st, sys
case, work = sys.argv[1:]
read = lambda f: [json.loads(line) for line in open(f)]
ours = read(work + "/ours")
modes = {f.split("torch-")[1]: read(f) for f in sorted(glob.glob(work + "/torch-*"))}
med = lambda runs: st.median(r["images_per_s_median"] for r in runs)
best = lambda runs: max(r["images_per_s_best"] for r in runs)
peak = lambda runs: max(r["peak_rss_bytes"] for r in runs) / 1e6
name = max(modes, key=lambda m: med(modes[m]))
theirs = modes[name]
ratio = [a["images_per_s_median"] / b["images_per_s_median"] for a, b in zip(ours, theirs)]
print(f"{case} ({ours[0]['variant']}, {ours[0]['threads']} threads, {len(ours)} pairs)")
for label, runs in (("chexnet", ours), (f"{theirs[0]['engine']} {name}", theirs)):
    print(f"  {label:24} median {med(runs):8.2f} img/s  best {best(runs):8.2f}  peak {peak(runs):6.0f} MB")
print(f"  ratio {st.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f}), bests {best(ours) / best(theirs):.2f}")
P
done
