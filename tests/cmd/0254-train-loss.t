#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --loss, --pos-weight, --label-smoothing, --loss-mean: what they change and record, what a resumed
# run keeps, and what is refused. tests/unit/loss.c holds the numbers against the formula.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

# 30 training images: Effusion 10 positive and 20 negative; Mass 5 and 10, 10 uncertain and 5 not
# stated; Nodule 30 negative. 9 images validate.
chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q >ph.out
mapfile -t images < <(cd ph/images && ls)
echo "Image,Patient,Effusion,Mass,Nodule" >labels.csv
mass=(1 0 -1 0 -1 "")
for i in "${!images[@]}"; do
    side=train
    ((i < 30)) || side='val'
    ((i < 39)) || side='test'
    echo "${images[i]}" >>$side.txt
    echo "${images[i]},$i,$((i % 3 == 0)),${mass[i % 6]},0" >>labels.csv
done
chex-shard --images ph/images --labels labels.csv --size 32 --shards 2 --output set -q \
    --train-list train.txt --val-list val.txt --test-list test.txt >shard.out 2>&1 || diag "$(cat shard.out)"
here=(--data set --engine cpu --threads 1)
new=("${here[@]}" --model densenet_tiny --image-size 32 --batch-size 5 --deterministic --logical-ranks 2 --max-steps 2)
same() { h5diff "$1/last.h5" "$2/last.h5" /params /params >/dev/null; } # RUN RUN
weights() { tr -d ' \n' <"$1/config.json" | grep -o "\"$2\":{[^}]*}"; }  # RUN KEY

expect_status 0 chex-train "${new[@]}" --output plain
like "$(cat plain/config.json)" '"loss": "bce"' "config.json has the options"
is "$(weights plain pos_weight)" "" "the plain loss records no weights"
printf 'class,pos_weight\nNodule,1\nEffusion,1\nMass,1\n' >ones.csv
expect_status 0 chex-train "${new[@]}" --output ones --pos-weight ones.csv
same plain ones
ok $? "weights of 1 give the bits of the plain loss"

expect_status 0 chex-train "${new[@]}" --output balanced --pos-weight balanced --loss-mean stated
is "$(weights balanced pos_weight)" '"pos_weight":{"Effusion":2.0,"Mass":2.0,"Nodule":1.0}' \
    "balanced is negatives divided by positives of the training images"
is "$(weights balanced class_weight)" '"class_weight":{"Effusion":1.0,"Mass":2.0,"Nodule":1.0}' \
    "--loss-mean stated weighs a finding by images divided by stated labels"
like "$(err)" 'balanced: Nodule has 0 positive and 30 negative training labels: its weight is 1' \
    "a finding without positives is reported"
like "$(err)" 'bce loss, pos_weight 1 \(Nodule\) to 2 \(Effusion\), class_weight 1 \(Effusion\) to 2 \(Mass\)' \
    "the log names the least and the greatest weight"
losses() { grep -o '"val_[a-z_]*loss":[^,]*' "$1/metrics.jsonl" | cut -d: -f2 | tr '\n' ' '; } # RUN
read -r bce own <<<"$(losses plain)"
is "$own" "$bce" "metrics.jsonl: the plain loss is the validation's loss"
read -r bce own <<<"$(losses balanced)"
[ -n "$own" ] && [ "$own" != "$bce" ]
ok $? "the validation also has the weighted loss"
! same plain balanced
ok $? "they change the parameters"

expect_status 0 chex-train "${new[@]}" --output soft --uncertain Mass=smooth --loss-mean stated
is "$(weights soft class_weight)" '"class_weight":{"Effusion":1.0,"Mass":1.2000000476837158,"Nodule":1.0}' \
    "uncertain labels with a target count as stated: 30 images, 25 labels in the loss of Mass"

asl=(--loss asl --label-smoothing 0.1 --pos-weight heavy.csv --asl-clip 0.1)
printf 'pos_weight,class\n3.5,Mass\n0.1,effusion\n7,nodule\n' >heavy.csv
expect_status 0 chex-train "${new[@]}" --output asl "${asl[@]}"
expect_status 0 chex-train "${new[@]}" --output parts "${asl[@]}" --max-steps 1
rm heavy.csv
expect_status 0 chex-train "${here[@]}" --output parts --max-steps 2
like "$(err)" "loss 'asl', pos-weight 'heavy.csv', label-smoothing '0.1', asl-clip '0.1'" \
    "a resumed run keeps the loss"
same asl parts && [ "$(weights asl pos_weight)" = "$(weights parts pos_weight)" ]
ok $? "it keeps the weights although the file is gone, and has the bits of one that did not stop"
expect_status 0 chex-train "${here[@]}" --output parts --max-steps 3 --loss focal --pos-weight none
like "$(err)" "loss 'asl' -> 'focal'" "the loss may be changed when a run resumes"
is "$(weights parts pos_weight)" "" "then the weights are gone"

expect_status 0 chex-eval --data set --checkpoint asl/last.h5 --output asl/eval --engine cpu
like "$(cat asl/eval/auroc.json)" '"training_loss": "--loss asl --pos-weight heavy.csv --label-smoothing 0.1"' \
    "an evaluation names the loss"
like "$(cat asl/eval/report.html)" 'The training loss shifts the probabilities' "the report points to the calibration"
expect_status 0 chex-eval card --evaluation asl/eval --output card.md
like "$(cat card.md)" 'The training loss \(--loss asl .*\) shifts the probabilities' "so does the model card"
expect_status 0 chex-eval --data set --checkpoint plain/last.h5 --output plain/eval --engine cpu
unlike "$(cat plain/eval/auroc.json plain/eval/report.html)" 'training_loss|training loss' \
    "nothing is said of the plain loss"

if mpi_ranks 2; then
    expect_status 0 "${ranks[@]}" chex-train "${new[@]}" --output two --pos-weight balanced --loss-mean stated
    same balanced two && [ "$(weights two pos_weight)" = "$(weights balanced pos_weight)" ]
    ok $? "two processes have the weights and the bits of one"
else
    skip "no mpirun here" 2
fi

expect_status 2 chex-train "${new[@]}" --output bad --focal-gamma 3
error_line '--focal-gamma: --loss is bce \(expected focal\)' "an option of another loss is refused"
for option in --loss=dice --label-smoothing=1.5 --label-smoothing=nan --loss-mean=some; do
    expect_status 2 chex-train "${new[@]}" --output bad $option
done
expect_status 2 chex-train "${new[@]}" --output bad --loss asl --asl-clip 1
refused() { # TEXT NAME ROW...: a file of weights
    printf '%s\n' "${@:3}" >bad.csv
    expect_status 3 chex-train "${new[@]}" --output bad --pos-weight bad.csv
    error_line "$1" "$2"
}
refused 'no row for Nodule \(expected one for each of the 3 findings\)' "a missing finding is named" \
    class,pos_weight Mass,1 Effusion,2
refused 'no row for Nodule' "semicolons and decimal commas are read" 'class;pos_weight' 'Mass;1,5' 'Effusion;2'
refused "line 2.*'Masss', expected a finding of the data; did you mean Mass\?" "an unknown finding gets a suggestion" \
    class,pos_weight Masss,1
refused "line 3.*'mass', expected each finding once" "a finding that is given twice is refused" \
    class,pos_weight Mass,1 mass,2
refused "'-1', expected a number from 0 to 1000000" "a negative weight is refused" class,pos_weight Mass,-1
refused 'the columns class and pos_weight' "a file without the columns is refused" Mass,1
expect_status 3 chex-train "${new[@]}" --output bad --pos-weight nowhere.csv
error_line "--pos-weight 'nowhere.csv': there is no such file \(expected none, balanced, or a CSV file" "a value that is no file is refused with what is expected"
[ ! -e bad ]
ok $? "a refused run writes nothing"
done_testing
