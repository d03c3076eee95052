#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# With a file of chex-eval deploy, predict decides at its thresholds, calibrates, and finds images
# that are far from the training images.
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

quiet chex-shard phantom --count 160 --size 40 --seed 5 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 1 \
    --output shards
quiet chex-train --data shards --output run --model densenet_tiny --image-size 32 --batch-size 8 \
    --max-steps 3 --engine cpu --threads 2
expect_status 0 chex-eval deploy --data shards --checkpoint run/last.h5 --output net.safetensors \
    --recalibrate platt --threads 2 --json
mkdir new
cp ph/images/000000[0-3]*.png new
cp "$SOURCE"/datasets/nih-sample/images/00000001_000.png new/radiograph.png
expect_status 0 chex-eval predict --images new --checkpoint net.safetensors --output decided --threads 2
is "$(head -n 1 decided/predictions.csv | cut -d, -f1,2,15,16,29,30,43-)" \
    "image_id,p_Atelectasis,p_Hernia,d_Atelectasis,d_Hernia,c_Atelectasis,c_Hernia,distance,flags" \
    "decisions, calibrated probabilities and the distance follow the probabilities"
unlike "$(err)" 'no feature statistics|its thresholds' "the check of the distance is possible"
like "$(grep '^radiograph.png,' decided/predictions.csv)" ',(very_far|far)$' \
    "a radiograph is far from a network of phantoms"
awk -F, 'NR > 1 && !/^radiograph/ { n++; far += $NF ~ /far/ } END { exit !(far < n / 4) }' decided/predictions.csv
ok $? "most phantoms are not"
# A decision rises with the calibrated probability, and this with the probability.
for class in 0 2 3; do
    sed 1d decided/predictions.csv | sort -t, -gk $((2 + class)) |
        awk -F, -v k=$class '{ if ($(16 + k) < d || $(30 + k) < c) bad = 1
            d = $(16 + k); c = $(30 + k) } END { exit bad }'
    ok $? "class $((class + 1)): decisions and calibrated probabilities rise with the probability"
done
like "$(cat decided/predict.json)" '"threshold_rule": "youden"' "predict.json names the rule"
chex-eval predict --images new --checkpoint run/last.h5 --output plain -q >/dev/null 2>&1
cmp -s <(cut -d, -f1-15 decided/predictions.csv) <(cut -d, -f1-15 plain/predictions.csv)
ok $? "the probabilities are those of the checkpoint"
like "$(head -n 1 plain/predictions.csv)" ',p_Hernia,flags$' \
    "a checkpoint alone gives no decisions"
expect_status 0 chex-eval predict --images new/radiograph.png --checkpoint net.safetensors \
    --image-size 36 --output wide
like "$(err)" 'its thresholds and statistics are for 32 of 36 px, and the images are predicted at 36 of 36 px' \
    "thresholds for another size of the image are reported"
expect_status 2 chex-eval predict --images new --checkpoint run/last.h5 --output decided
error_line 'already holds predictions.csv' "results of another file are not replaced"

done_testing
