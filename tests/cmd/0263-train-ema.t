#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --ema: the moving average of the parameters in the checkpoint, in validation and in chex-eval.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
new=(--data set --model densenet_tiny --image-size 32 --batch-size 4 --deterministic --logical-ranks 2
    --epochs 1 --opt sgd --lr 0.01 --precision fp32 --engine cpu --threads 1)
same() { h5diff "$1/last.h5" "$2/last.h5" "/$3" "/$3" >/dev/null; } # RUN RUN GROUP
loss() { grep '"kind":"epoch"' "$1/metrics.jsonl" | grep -o '"val_loss":[^,]*'; } # RUN

expect_status 0 chex-train "${new[@]}" --output plain
! h5ls plain/last.h5 | grep -q '^ema'
ok $? "without --ema the checkpoint has no group ema"
expect_status 0 chex-train "${new[@]}" --output run --ema 0.5
like "$(err)" 'sgd.*, moving average of decay 0.5' "the log states the decay"
like "$(err)" 'warn: --ema 0.5: after the 3 updates of this run, 12 %' "an average that still holds the first parameters is reported"
same plain run params && same plain run moment1
ok $? "the average changes no bit of the parameters and moments"
h5ls run/last.h5 | grep -q '^ema' && ! h5diff run/last.h5 run/last.h5 /params /ema >/dev/null
ok $? "the checkpoint has a group ema with other values than params"
[ "$(loss plain)" != "$(loss run)" ]
ok $? "validation measures the average"

expect_status 0 chex-train "${new[@]}" --output parts --ema 0.5 --max-steps 1
expect_status 0 chex-train --data set --output parts --engine cpu --threads 2 --max-steps 0
like "$(err)" "taken from parts/.*ema '0.5'" "a resumed run takes the decay over"
same run parts ema && same run parts params
ok $? "a resumed run has the average of one that did not stop, to the last bit"
expect_status 0 chex-train "${new[@]}" --output later --max-steps 1
expect_status 0 chex-train --data set --output later --engine cpu --threads 1 --max-steps 2 --ema 0.5
like "$(err)" '--ema 0.5: the run had no moving average; it starts from the parameters of step 1' "an average that starts in a resumed run is reported"
expect_status 0 chex-train --data set --output later --engine cpu --threads 1 --max-steps 0
like "$(err)" 'warn: --ema 0.5: after the 2 updates since step 1, 25 %' \
    "its part of first parameters is computed from the step at which it began, also in a later start"
same run later params && ! same run later ema
ok $? "it starts from the parameters of the checkpoint"
expect_status 0 chex-train "${new[@]}" --epochs 2 --output run --ema 0
! h5ls run/last.h5 | grep -q '^ema'
ok $? "--ema 0 ends the average of a resumed run"

# chex-eval reads what validation measured.
eval_of() { chex-eval --data set --checkpoint parts/last.h5 --split val --engine cpu --threads 1 \
    --precision fp32 --bootstrap 0 --output "$1" "${@:2}"; }
expect_status 0 eval_of auto
like "$(err)" 'parts/last.h5: the moving average of its parameters; --weights last reads' "chex-eval says that it reads the average"
expect_status 0 eval_of ema --weights ema
expect_status 0 eval_of last --weights last
cmp -s auto/predictions.csv ema/predictions.csv && ! cmp -s ema/predictions.csv last/predictions.csv
ok $? "the default is the average, and --weights last reads the last parameters"
is "$(grep -ho '"weights": "[a-z]*"' auto/auroc.json last/auroc.json | tr '\n' ' ')" \
    '"weights": "ema" "weights": "last" ' "auroc.json names the parameters"
found=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' auto/auroc.json | head -1)
like "$(loss parts)" "\"val_loss\":${found:0:7}" "chex-eval finds the loss of the validation"
expect_status 2 chex-eval export --checkpoint plain/last.h5 --output no.safetensors --weights ema
error_line '--weights ema: plain/last.h5 has no moving average \(expected a checkpoint of chex-train --ema\)' "a checkpoint without an average is refused"
expect_status 0 chex-eval export --checkpoint parts/last.h5 --output ema.safetensors
expect_status 0 chex-eval export --checkpoint parts/last.h5 --output last.safetensors --weights last
! cmp -s ema.safetensors last.safetensors
ok $? "an exported network has the chosen parameters"
expect_status 2 chex-eval export --checkpoint ema.safetensors --output no.onnx --weights last
error_line '--weights last: ema.safetensors has the moving average only' "the last parameters of an exported average are refused"
expect_status 0 chex-eval deploy --data set --checkpoint parts/last.h5 --split val --distribution-images 0 \
    --engine cpu --threads 1 --precision fp32 --output deployed.safetensors
for file in ema last deployed; do
    expect_status 0 chex-eval --data set --checkpoint $file.safetensors --split val --engine cpu \
        --threads 1 --precision fp32 --bootstrap 0 --output of-$file
done
is "$(grep -ho '"weights": "[a-z]*"' of-{ema,last,deployed}/auroc.json | tr '\n' ' ')" \
    '"weights": "ema" "weights": "last" "weights": "ema" ' "exports and deployment files say which parameters they hold"
expect_status 0 chex-eval card --evaluation of-deployed --output card.md
like "$(cat card.md)" '^\| weights \| ema \|$' "so does the model card"
expect_status 0 chex-eval compare auto/predictions.csv of-deployed/predictions.csv
like "$(out)" 'differs in: no training option' "compare finds no other parameters in a deployment file"
unlike "$(out)" '--weights' "and names none"
expect_status 0 chex-train "${new[@]}" --output from --init parts/last.h5 --max-steps 1
like "$(err)" 'parameters from parts/last.h5 \(their moving average\)' "--init starts from the average"
for x in -0.1 1 nan much; do
    expect_status 2 chex-train "${new[@]}" --output bad --ema "$x"
done
[ ! -e bad ]
ok $? "a decay that is none is refused before anything is written"
done_testing
