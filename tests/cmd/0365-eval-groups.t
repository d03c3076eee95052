#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Subgroups, units, the audit of shortcuts and several sets: the figures are those of a Python script
# that only knows doc/evaluation.md. CHEX_TEST_PYTHON: a python, with xxhash if possible.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
python_with xxhash || python_with sys || python=
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
oracle() { expect_status 0 "$python" "$SOURCE/tests/tools/evaluate_groups.py" "$@"; }

quiet chex-shard phantom --count 240 --size 40 --seed 3 --output ph
# The label file as a table with studies: two images of a patient are a study.
awk -F, 'NR == 1 {print "image,patient,study,view,age,sex,Effusion,Infiltration,Edema,Fracture"}
    NR > 1 {print $1 "," $4 "," int($3 / 2) "," $7 "," $5 "," $6 "," ($2 ~ /Effusion/) "," \
        (NR % 5 ? ($2 ~ /Infil/) : "-1") "," ($2 ~ /Edema/) "," (NR % 3 == 0)}' ph/labels.csv >own.csv
quiet chex-shard --images ph/images --labels own.csv --split patient --fractions 0.1,0.05,0.85 \
    --size 36 --shards 2 --output own
quiet chex-shard phantom --count 60 --size 48 --seed 4 --output ph2
awk -F, 'NR == 1 {print "image,patient,view,age,sex,Infiltration,Effusion,Fibrosis"}
    NR > 1 {print $1 ",x" $4 "," $7 "," $5 "," $6 "," ($2 ~ /Infil/) "," ($2 ~ /Effusion/) "," \
        ($2 ~ /Fibr/)}' ph2/labels.csv >other.csv
quiet chex-shard --images ph2/images --labels other.csv --split none --size 36 --shards 1 --output other
quiet chex-train --data own --output run --model densenet_tiny --image-size 32 --batch-size 8 --max-steps 2 \
    --engine cpu --threads 2
run=(--checkpoint run/last.h5 --engine cpu --threads 2 --compare none)

# ---- groups and shortcuts ----
expect_status 0 chex-eval --data own "${run[@]}" --output one --subgroups sex,view,age --age-bands 35,65
like "$(out)" '^sex +F +[0-9]+  0\.[0-9]+$' "the groups are printed when they are asked for"
like "$(out)" '^gaps: [0-9]+ of [0-9]+ largest differences' "so is the number of gaps"
like "$(head -n 1 one/predictions.csv)" ',p_Fracture,study_id,view,age_years,sex,width_px,height_px,brightness$' \
    "predictions.csv has the facts of the images"
like "$(cut -d, -f1,3 one/subgroups.csv | sort -u | tr '\n' ' ')" 'age,0-34 age,35-64 age,65\+ ' "age bands"
expect_status 0 chex-eval score --predictions one/predictions.csv --output study --unit study --compare none
unlike "$(out)" 'attribute' "groups are not printed otherwise"
like "$(cat study/auroc.json)" '"unit": "study"' "the unit is in the results"
like "$(cat study/auroc.json)" 'by study \(max of the images\)' "and in the title"
expect_status 0 chex-eval score --predictions one/predictions.csv --output patient --unit patient \
    --unit-score mean --threshold 0.5 --compare none --threads 1
expect_status 0 chex-eval score --predictions one/predictions.csv --output threads --unit patient \
    --unit-score mean --threshold 0.5 --compare none --threads 3
cmp -s patient/auroc.json threads/auroc.json
ok $? "results do not depend on threads"
if [ -z "$python" ]; then
    skip "no python3 here" 6
else
    oracle one/predictions.csv one/auroc.json 35,65
    like "$(out)" '^[0-9]{3,} values compared, 0 differ' "images: groups, gaps and shortcuts are those of the script"
    oracle one/predictions.csv study/auroc.json
    like "$(out)" '^[0-9]{3,} values compared, 0 differ' "studies, by the maximum"
    oracle one/predictions.csv patient/auroc.json
    like "$(out)" '^[0-9]{3,} values compared, 0 differ' "patients, by the mean"
fi

# ---- several sets ----
expect_status 0 chex-eval --data in=own,other "${run[@]}" --output sets --threshold sensitivity=0.8
like "$(err)" 'other does not state these findings of the network, .*: Edema, Fracture' "findings of the network alone"
like "$(err)" 'other states findings that the network does not have, .*: Fibrosis' "findings of the set alone"
like "$(out)" '^mean of 2 findings +in ' "the mean is over common findings"
is "$(ls sets | tr '\n' ' ')" "external.csv external.json in other " "the files of several sets"
cmp -s sets/in/auroc.csv <(chex-eval --data own "${run[@]}" --output alone -q >/dev/null; cat alone/auroc.csv)
ok $? "a set has the figures that it has alone"
like "$(head -n 2 sets/other/predictions.csv)" ',source,view' "the table names the set"
drop() { awk -F, -v c="$1" '$1 == c {a[$2] = $5; d = $8} END {printf "%.6f", a["in"] - a["other"] - d}' sets/external.csv; }
like "$(drop Effusion) $(drop Infiltration)" '^-?0\.00000[0-9] -?0\.00000[0-9]$' "the drop is the first set minus the other"
if [ -z "$python" ]; then
    skip "no python3 here" 2
else
    expect_status 0 "$python" - sets/external.json <<'END'
import json, math, sys
x = json.load(open(sys.argv[1]))
def near(a, b):
    assert (a is None) == (b is None) and (a is None or abs(a - b) < 1e-9), (a, b)
for k in x["classes"]:
    a, b = k["sets"]
    assert a["threshold"] == b["threshold"], k["name"]  # chosen on the first set
    for f in ("auroc", "sensitivity", "specificity", "calibration_slope", "calibration_intercept"):
        v = [s[f] for s in (a, b)]
        lo, hi = ([s[f + end] for s in (a, b)] for end in ("_ci_low", "_ci_high"))
        if None in v + lo + hi:
            near(b[f + "_drop_ci_low"], None)
            continue
        d = v[0] - v[1]
        near(b[f + "_drop"], d)  # independent samples: squares of the distances add
        near(b[f + "_drop_ci_low"], d - math.hypot(v[0] - lo[0], hi[1] - v[1]))
        near(b[f + "_drop_ci_high"], d + math.hypot(hi[0] - v[0], v[1] - lo[1]))
END
    is "$(err)" "" "drops and their intervals are those of independent sets"
fi

# ---- bad input ----
expect_status 2 chex-eval --data own,own/ "${run[@]}" --output no
error_line "own and own/ are the same set" "the same set twice"
mkdir copy && cp -r own copy/
expect_status 2 chex-eval --data own,copy/own "${run[@]}" --output no
error_line "two sets are named own: choose other names with NAME=DIR" "two sets of one name"
expect_status 3 chex-eval --data own,again=copy/own "${run[@]}" --output no
error_line "own and copy/own were made from the same images" "a copy of a set"
expect_status 2 chex-eval --data own,../x=other "${run[@]}" --output no
error_line "'../x' cannot be the name of a set" "a name that leaves the folder"
expect_status 3 chex-eval --data other "${run[@]}" --unit study --output no
error_line 'other: image .* has no study id, and --unit study needs it' "shards without studies"
unlike "$(err)" "densenet121 at" "this is found before the prediction"
expect_status 3 chex-eval --data own,other "${run[@]}" --unit study --output no
unlike "$(err)" "densenet121 at" "in a second set, too"
expect_status 3 chex-eval --data own,nowhere "${run[@]}" --output no
error_line "nowhere: no such folder" "the second set is missing"
expect_status 3 chex-eval --data own,other "${run[@]}" --split val --output no
error_line "other: no image in split val" "a split that the second set lacks"
unlike "$(err)" "densenet121 at" "this is found before the first set is predicted"
expect_status 2 chex-eval --data in=own,other "${run[@]}" --output sets
error_line "sets already holds external.json, external.csv, in, other: .*--force" "results are not replaced unasked"
sed '1s/Infiltration,Effusion,Fibrosis/Ague,Gout,Rickets/' other.csv >strange.csv
quiet chex-shard --images ph2/images --labels strange.csv --split none --size 36 --shards 1 --output strange
expect_status 3 chex-eval --data strange "${run[@]}" --output no
error_line "no finding in common: the network has .*Edema.*; the set has Ague, Gout, Rickets" "no common finding"
[ ! -e no ]
ok $? "nothing is written"
expect_status 3 chex-eval score --predictions sets/other/predictions.csv --unit study
error_line "has no study id, and --unit study needs it: .*--columns study=NAME" "no studies"
expect_status 2 chex-eval score --predictions one/predictions.csv --subgroups sex,color
error_line "'color', expected all, none or some of sex, age, view, source, size" "an unknown subgroup"
expect_status 3 chex-eval score --predictions one/predictions.csv --subgroups source
error_line "--subgroups source: no image states it" "a subgroup that no image states"
expect_status 2 chex-eval score --predictions one/predictions.csv --age-bands 40,30
error_line "30 after 40, expected increasing ages" "age bands out of order"
done_testing
