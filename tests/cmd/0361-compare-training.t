#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval compare names the training options in which two networks differ. It reads them from the
# auroc.json next to each table, and says why if it cannot.
source "$(dirname "$0")/lib.sh"

[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
set_of() { # SEED NAME
    quiet chex-shard phantom --count 40 --size 32 --seed "$1" --output "ph$1"
    quiet chex-shard --images "ph$1/images" --labels "ph$1/labels.csv" --split patient --size 32 --shards 1 --output "$2"
}
train() { # RUN DATA OPTION...
    local run=$1 data=$2
    shift 2
    quiet chex-train --data "$data" --output "$run" --model densenet_tiny --image-size 32 --batch-size 4 \
        --max-steps 1 --engine cpu "$@"
    quiet chex-eval --data set --checkpoint "$run/last.h5" --split train --allow-overlap --compare none \
        --hardest 0 --engine cpu --output "$run/eval"
}
compare() { chex-eval compare "$1/eval/predictions.csv" "$2/eval/predictions.csv" "${@:3}"; }

set_of 3 set
set_of 4 other
train plain set --threads 1
train same set --threads 2 --workers 2 --checkpoint-every 1epochs
train weighted set --pos-weight balanced --ema 0.9 --where 'age>=0'
cp -r set copy
train second copy --seed 1 --max-steps 2
train elsewhere other

expect_status 0 compare weighted plain
like "$(out)" '^differs in: --where age>=0 \(second: not given\), --pos-weight balanced \(second: none\), --ema 0\.9 \(second: 0\)$' \
    "the options that differ are named with both values"
like "$(out)" '^differs in: training options .* not another training: repeat with several --seed, see --runs$' \
    "a note says what the interval does not cover"
expect_status 0 compare same plain
like "$(out)" '^differs in: no training option$' "threads, folders and saves are no difference"
expect_status 0 compare second plain
like "$(out)" '^differs in: --max-steps 2 \(second: 1\), --seed 1 \(second: 0\); 2 steps \(second: 1\)$' \
    "another number of steps is stated, a copy of the data is no difference"
expect_status 0 compare elsewhere plain
like "$(out)" '^differs in: no training option; other training images$' "other training images are stated"

compare weighted plain --json >difference.json
like "$(cat difference.json)" '"option":"pos-weight","first":"balanced","second":"none"' "JSON lists the options"
like "$(cat difference.json)" '"other_images":false,"other_weights":false,"step_first":1,"step_second":1' \
    "JSON has images, weights and steps"
expect_status 0 chex-eval compare weighted/eval/predictions.csv plain/eval/predictions.csv same/eval/predictions.csv \
    --output compared
is "$(grep -c '"option": "ema"' compared/compare.json)" 3 "compare.json lists them for both comparisons, the first at the top too"
like "$(cat compared/compare.svg)" '>differs in: --where age&gt;=0 .*--pos-weight balanced' "so does the plot"
quiet chex-eval --data set --checkpoint weighted/last.h5 --weights last --split train --allow-overlap --compare none \
    --hardest 0 --engine cpu --output last/eval
expect_status 0 compare weighted last
like "$(out)" '^differs in: no training option; --weights ema \(second: last\)$' \
    "the moving average and the last parameters of one run differ in --weights"

# The same name of a file with other weights.
printf 'class,pos_weight\n' >weights.csv
sed -n '1s/,/\n/gp' plain/eval/predictions.csv | sed -n 's/^y_\(.*\)/\1,2/p' >>weights.csv
train two set --pos-weight weights.csv
sed -i '2s/,2$/,3/' weights.csv
train three set --pos-weight weights.csv
expect_status 0 compare three two
like "$(out)" '^differs in: no training option; other weights of the labels$' "other weights in a file of the same name are seen"

like "$(cat weighted/eval/report.html)" '<dd>--.* --pos-weight balanced .*--seed 0' "the report has the training options"
expect_status 0 chex-eval card --evaluation weighted/eval --output card.md
like "$(cat card.md)" '^\| training.options \| .*pos.weight balanced' "so has the model card"

# What cannot be known.
cp plain/eval/predictions.csv alone.csv
mkdir foreign damaged folder
cp plain/eval/auroc.json foreign
cp weighted/eval/predictions.csv foreign
cp plain/eval/predictions.csv damaged
head -c 100 plain/eval/auroc.json >damaged/auroc.json
cp plain/eval/predictions.csv folder
mkdir folder/auroc.json
unknown() { # FILE REGEX NAME
    expect_status 0 chex-eval compare plain/eval/predictions.csv "$1"
    like "$(out)" "^differs in: unknown; second file: $2\$" "$3"
}
unknown alone.csv 'no auroc.json next to it' "without auroc.json the training is unknown"
unknown foreign/predictions.csv 'the auroc.json next to it is of another table or an earlier version' \
    "the auroc.json of another table is not used"
unknown damaged/predictions.csv 'the auroc.json next to it is damaged' "a damaged auroc.json is no error"
unknown folder/predictions.csv 'the auroc.json next to it cannot be read' "nor is one that cannot be read"
mkdir odd
cp plain/eval/predictions.csv odd
sed -E 's/"seed": "0"/"seed": 7/; s/"lr": "[^"]*"/"lr": "1\\n2"/' plain/eval/auroc.json >odd/auroc.json
expect_status 0 chex-eval compare plain/eval/predictions.csv odd/predictions.csv
like "$(out)" '^differs in: --lr [^ ]+ \(second: 1\\x0A2\), --seed 0 \(second: not recorded\)$' \
    "values of a wrong type are not recorded, control characters are escaped"
quiet chex-eval export --checkpoint plain/last.h5 --output plain.safetensors
quiet chex-eval --data set --checkpoint plain.safetensors --split train --allow-overlap --compare none --hardest 0 \
    --engine cpu --output exported
unknown exported/predictions.csv 'its network does not record training options' "an exported network has no training options"
like "$(out)" '^p Holm' "the comparison itself is made"
expect_status 0 chex-eval compare plain/eval/predictions.csv alone.csv --json
like "$(out)" '"training":null' "JSON says null"
done_testing
