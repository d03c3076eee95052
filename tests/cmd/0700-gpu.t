#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-train and chex-eval work on an emulated GPU (tests/gpu/emulated): the real module, whose
# kernels run on the processor.
source "$(dirname "$0")/lib.sh"
emulated=$BUILD/tests/emulated
[ -e "$emulated/chexnet-cuda.so" ] || skip_all "built without the emulated GPU: no C++ compiler, or CHEX_TEST_GPU=OFF"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
export CHEX_LIBDIR=$emulated

quiet chex-shard phantom --count 40 --size 40 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 40 --shards 2 \
    --fractions 0.5,0.1,0.4 --output shards
common=(--data shards --image-size 33 --batch-size 4 --threads 2 --workers 1 --model densenet_tiny
    --precision fp32 --opt sgd --lr 1e-4)

expect_status 0 chex-train "${common[@]}" --engine cuda:s0 --max-steps 2 --output gpu
like "$(err)" 'engine cuda \(s0\), fp32' "the engine and its stage are said"
like "$(err)" 'GPU 0000:01:00.0, emulated GPU, capability 9.0' "the log names the GPU"
expect_status 0 chex-train "${common[@]}" --engine cpu --max-steps 2 --output cpu
# Two losses of either engine. With AMX the cpu engine makes an fp32 product of three bf16 products,
# each exact to 2^-16, so the first losses differ by up to 2e-5. Before step 2 the weights are updated;
# with so few and small images a ReLU that one rounding opens counts there: ref, cpu and cpu:generic
# differ by up to 0.5 %.
losses() { grep '"kind":"step"' "$1/metrics.jsonl" | grep -o '"loss":[0-9.]*' | cut -d: -f2; }
is "$(paste <(losses gpu) <(losses cpu) | awk '{ d = $1 - $2; if (d < 0) d = -d; n += d > (NR > 1 ? 1e-2 : 5e-5) * $2 }
    END { print NR, n + 0 }')" "2 0" "the losses are the cpu engine's"

# The choices of kernels are those of the checkpoint; on another kind of GPU that is no help.
like "$(grep -a -o '"cuda_choices":."device [^"]*"' gpu/last.h5 | head -n 1)" \
    'emulated GPU, capability 9.0, 4 multiprocessors' "a checkpoint has the kind of GPU"
like "$(grep -a -o '"backward 3x3/1 128>32 fp32[^"]*"' gpu/last.h5 | head -n 1)" ': plain"' \
    "a checkpoint has the kernel of each convolution"
like "$(cat gpu/provenance.json)" '"cuda_choices": *.' "provenance.json has the choices"
expect_status 0 chex-train --plan "${common[@]}" --engine cuda:s0 --max-steps 3 --output gpu
unlike "$(err)" 'another kind of GPU' "a run that goes on on the same kind of GPU says nothing"
expect_status 0 env EMULATED_SMS=3 chex-train --plan "${common[@]}" --engine cuda:s0 --max-steps 3 --output gpu
like "$(err)" 'step-0000000002.h5 was written on another kind of GPU .*4 multiprocessors; here: .*3 multiprocessors.: .*the last bits differ' \
    "a run that goes on on another kind of GPU says so"
expect_status 2 env CHEX_CUDA_MEASURE=2s chex-train "${common[@]}" --engine cuda:s0 --max-steps 3 --output gpu
like "$(err)" "CHEX_CUDA_MEASURE: not a number of seconds .'2s'; expected 0 to 3600" "a bad time to measure is refused"

# A checkpoint of one engine goes on with another.
expect_status 0 chex-train "${common[@]}" --engine cpu --max-steps 3 --output gpu
like "$(err)" 'going on from step 2' "the cpu engine resumes what the GPU began"
is "$(losses gpu | wc -l)" 3 "at step 3"
expect_status 0 chex-train "${common[@]}" --engine cuda:s0 --max-steps 3 --output cpu
is "$(losses cpu | wc -l)" 3 "the GPU resumes what the cpu engine began"

for engine in cuda:s0 cpu; do
    expect_status 0 chex-eval --data shards --checkpoint cpu/last.h5 --engine $engine \
        --output "eval-${engine%:*}" --split val --bootstrap 10 --threads 2 --precision fp32
done
is "$(paste -d, eval-cuda/predictions.csv eval-cpu/predictions.csv | tail -n +2 | awk -F, '
    { for (i = 17; i <= 30; i++) { d = $i - $(i + NF / 2); if (d > 1e-5 || d < -1e-5) n++ } }
    END { print n + 0 }')" 0 "predictions of both engines agree to 1e-5"

# A preview knows what fits, and an engine of one image more does not.
preview() { # BATCH
    EMULATED_BYTES=820000000 chex-train --plan "${common[@]}" --model densenet121 --batch-size "$1" \
        --engine cuda:s0 --output preview >out 2>err
}
preview 1
is $? 0 "a preview"
largest=$(sed -n 's/.*the largest --batch-size that fits is //p' out)
like "$(cat out)" '[0-9.]+ MiB of the GPU.s memory, [0-9.]+ MiB are free besides' "it tells of the GPU's memory"
preview "$largest"
is $? 0 "a batch of $largest fits"
if [ "$largest" -lt 20 ]; then
    preview $((largest + 1))
    is $? 9 "a batch of one more does not fit"
    like "$(cat err)" "the largest batch that fits is $largest" "the error names the largest batch, as the plan does"
else
    skip "the data end before the memory" 2
fi
[ ! -e preview ]
ok $? "a refused command creates nothing"
expect_status 0 chex-train "${common[@]}" --engine cuda:s0 --max-steps 2 --output timed --timeline timed.json
like "$(cat timed.json)" '"name":"forward","cat":"step","pid":0,"tid":2,' "a timeline has the device's own times"
like "$(cat timed.json)" '"name":"backward","cat":"step","pid":0,"tid":2,' "the timeline has backward on the device"
like "$(cat timed.json)" '"name":"pass .host.","cat":"step","pid":0,"tid":0,' "beside the host's pass"
if have python3 && ! without PYTHON; then
    like "$(python3 "$SOURCE/tests/tools/check_timeline.py" timed.json)" '^ranks 1; steps 2; ' "the timeline is valid"
else
    skip "no python3" 1
fi

# s5 has kernels for capability 9.0 only, and none for fp32.
too_large=(--bench 1 --engine cuda:s5 --image-size 40 --batch-size 40)
for capability in 7.5 8.0 10.0; do
    expect_status 9 env EMULATED_GPU=$capability EMULATED_BYTES=100000000 chex-train \
        "${too_large[@]}" --precision fp16
    below=s4
    [ $capability != 7.5 ] || below=s1
    like "$(err)" "cuda: stage s5 computes as $below: .* has capability $capability, the kernels of s5 are for 9.0 only" \
        "s5 on capability $capability computes as $below, in words"
done
expect_status 9 env EMULATED_BYTES=100000000 chex-train "${too_large[@]}" --precision fp32
like "$(err)" 'cuda: stage s5 computes as s4: its kernels support no convolution of densenet121 in fp32' \
    "s5 in fp32 computes as s4, in words"

# Refusals, each with what to do.
expect_status 9 env EMULATED_BYTES=820000000 chex-train --bench 1 --engine cuda:s0 --precision fp32 \
    --image-size 40 --batch-size 40
like "$(err)" 'densenet121 with 40 px and batch 40 needs 0.[0-9] GiB: the largest batch that fits is [0-9]+' \
    "too large a batch: the largest that fits is named"
expect_status 4 env EMULATED_GPU=7.5 chex-train "${common[@]}" --precision bf16 --engine cuda \
    --max-steps 1 --output old
like "$(err)" 'capability 7.5: precision bf16 needs 8.0; use fp16' "bf16 on an old GPU"
expect_status 9 env EMULATED_GPU=7.5 EMULATED_BYTES=100000000 chex-train --bench 1 --engine cuda \
    --precision fp16 --image-size 40 --batch-size 40
like "$(err)" 'cuda: stage s1: emulated GPU has capability 7.5, the kernels of s4 need 8.0' \
    "fp16 there is stage s1, in words"
like "$(err)" 'plain kernels, which are slow, have [0-9]+ of [0-9]+ convolutions: .*without cuDNN' \
    "an option that the GPU does not have is refused"
expect_status 2 chex-train "${common[@]}" --engine cuda:s9 --max-steps 1 --output s9
like "$(err)" "engine cuda:s9: unknown variant, expected one of s0, s1, s4, s5" "unknown stage"
expect_status 4 env EMULATED_GPU=0 chex-train "${common[@]}" --engine cuda --max-steps 1 --output none
like "$(err)" 'error: ' "no device: a line, and no run on the processor"

done_testing
