#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval compare --runs compares two recipes by several trainings of each. Its interval covers patients
# and trainings. Trainings that cannot be compared are refused.
source "$(dirname "$0")/lib.sh"

# table SCALE SEED: 70 images of 25 patients. SCALE is the recipe's noise, SEED that of the training.
table() {
    awk -v recipe="$1" -v seed="$2" 'BEGIN {
        print "image_id,patient_id,y_Mass,y_Edema,y_Hernia,p_Mass,p_Edema,p_Hernia"
        for (i = 0; i < 70; i++) {
            line = "i" i ".png," i * 7 % 25
            scores = ""
            for (c = 0; c < 3; c++) {
                y = c == 2 ? 0 : (i * 31 + c * 17) % 5 < 2 ? 1 : (i * 13 + c) % 11 == 0 ? -1 : 0
                s = 5 + 3 * (y == 1) + (i * 37 + c * 11) % 7 - 3
                s += recipe * ((i * (43 + 2 * recipe) + c * 29) % 9 - 4)
                s += ((i * (53 + 4 * seed) + c * 7 + seed + 3 * recipe) % 11 - 5) / 5
                line = line "," y
                scores = scores "," (s < 0 ? 0 : s > 10 ? 1 : s / 10)
            }
            print line scores
        }
    }'
}
for seed in 1 2 3 4; do
    mkdir a$seed
    table 0.4 $seed >a$seed/predictions.csv
    table 1 $seed | { read -r head && echo "$head" && sort -r; } >b$seed.csv
done
a=a1,a2,a3 b=b1.csv,b2.csv,b3.csv

expect_status 0 chex-eval compare --runs $a --against $b,b4.csv
like "$(out)" '^first:  a1/predictions.csv, a2/predictions.csv, a3/predictions.csv$' \
    "a folder of results names the table in it"
like "$(out)" '^70 images in both, of 25 patients$' "rows are joined in any order"
like "$(out)" '^finding .* p Holm +SD 1st +SD 2nd +trainings$' "the table has the spread of the trainings"
like "$(out)" '^Mass +28 +10 +0\.[0-9]{4} .*[+-]0\.[0-9]{4} to [+-]0\.[0-9]{4} +0\.[0-9]{4} +0\.[0-9]{4} +0\.[0-9]{4} +0\.[0-9]{4} +[0-9]+%$' \
    "a finding has interval, p values, deviations and the share of the trainings"
like "$(out)" '^Hernia +0 +0 +nan +nan +nan ' "a finding without positives is undefined"
like "$(out)" '^difference: mean AUROC of the 3 trainings of the first recipe minus that of the 4 of the second$' \
    "numbers of trainings may differ"
like "$(out)" '^interval, p: 95 %, for other patients and other trainings .*trainings nested within recipes, by patient' \
    "a note says what the interval covers"
like "$(out)" '^half the width of the mean: .*(trainings of each recipe|only more patients)$' \
    "a note says how many trainings would halve the interval"
unlike "$(out)" 'not another training' "the note on comparisons of two networks is absent"

# Figures of a reference implementation, stored (nested, by patient).
expect_status 0 chex-eval compare --runs $a --against $b,b4.csv --json
cp out nested.json
figures() { # NAME
    grep -o "\"name\":\"$1\"[^}]*" nested.json | head -n 1 |
        grep -oE '"(difference|ci_low|ci_high|p_value|se|df|training_share)":[^,]*' | cut -d: -f2
}
stored() { # NAME VALUE...
    paste <(figures "$1") <(printf '%s\n' "${@:2}") |
        awk '{ d = ($1 - $2) / ($2 > 1 ? $2 : 1); if (d > 1e-9 || d < -1e-9) print }
            END { if (NR != 7) print NR " figures" }'
}
is "$(stored Mass -0.058646214896 -0.109782066577 -0.015608086362 0.007701839806 0.019826001231 \
    249.425801829006 0.073959870965 && stored mean -0.058223483388 -0.096592147593 -0.025573858875 \
    0.000521621678 0.013796051495 133.369029350202 0.071326437223)" "" \
    "the figures of a finding and of the mean are those of the reference implementation to 1e-9"
if have python3 && ! without PYTHON; then
    agrees() { # NAME OPTION...
        got=$(python3 "$SOURCE/tests/tools/compare_auroc.py" "$tables" "$against" result.json "${@:2}")
        is "$got" "36 figures agree" "$1 all figures are those of the papers' formulas to 1e-9"
    }
    tables=a1/predictions.csv,a2/predictions.csv,a3/predictions.csv against=$b,b4.csv
    cp nested.json result.json
    agrees "with nested trainings"
    expect_status 0 chex-eval compare --runs $a --against $b --paired --cluster image --json
    cp out result.json
    against=$b
    agrees "with paired seeds, by image," --paired --cluster image
    like "$(out)" '"method":"Obuchowski-Rockette-Hillis, seeds paired"' "JSON names the method"
else
    skip "no python3 here" 5
fi

# The order of recipes and trainings.
expect_status 0 chex-eval compare --runs $b,b4.csv --against $a --json
is "$(out | grep -oE '"difference":-?0.[0-9]{9}' | tr -d - | sort -u)" \
    "$(grep -oE '"difference":-?0.[0-9]{9}' nested.json | tr -d - | sort -u)" \
    "the order of the recipes changes the sign only"

# Files of results.
expect_status 0 chex-eval compare --runs $a --against $b --paired --margin 0.4 --output results
is "$(ls results | tr '\n' ' ')" "compare.csv compare.json compare.svg " "the files of --output"
like "$(head -n 1 results/compare.csv)" ',sd_first,sd_second,training_share,runs_to_halve$' \
    "compare.csv has the columns of recipes"
is "$(grep -c '"digest"' results/compare.json)" 6 "compare.json lists all tables"
like "$(cat results/compare.svg)" 'First: a1/predictions.csv and 2 more<' "compare.svg names the recipes"
like "$(out)" '^Mass .*(both|first|second) (non-inferior|superior)$' "--margin adds a verdict"

# record FOLDER SEED LR: the auroc.json of a table has the options of its training.
record() {
    printf '{"predictions_digest": "%s", "provenance": {"training_options": {"seed": "%s", "lr": "%s"}}}\n' \
        "$(grep -o "\"$1/predictions.csv\"[^}]*" digests | grep -oE '[0-9a-f]{32}')" "$2" "$3" >"$1/auroc.json"
}
for seed in 1 2 3; do
    mkdir c$seed
    cp b$seed.csv c$seed/predictions.csv
done
chex-eval compare --runs $a --against c1,c2,c3 --json >digests
for seed in 1 2 3; do
    record a$seed $seed 1e-3
    record c$seed $seed 1e-4
done
expect_status 0 chex-eval compare --runs $a --against c1,c2,c3 --paired
is "$(err)" "" "recipes whose trainings differ in the seed only give no warning"
like "$(out)" '^differs in: --lr 1e-3 .second: 1e-4.$' "the options in which the recipes differ are named"
record a3 3 1e-2
expect_status 0 chex-eval compare --runs $a --against c1,c2,c3
like "$(err)" 'warn: a1/predictions.csv and a3/predictions.csv differ in --lr; trainings of one recipe differ in --seed only' \
    "another option that differs within a recipe gives a warning"
record c2 5 1e-4

# refuse STATUS REGEX OPTION...: the comparison is refused and writes nothing.
refuse() {
    local status=$1 text=$2
    shift 2
    expect_status "$status" chex-eval compare "$@" --output bad
    error_line "$text" "refused: $*"
    [ ! -e bad ]
    ok $? "a refused comparison writes nothing"
}
refuse 2 '--runs: 1 training .expected at least 3, with other seeds.; chex-eval compare A B compares two networks, and its interval covers other patients, but no other training' \
    --runs a1 --against $b
refuse 2 '--against: 2 trainings .expected at least 3' --runs $a --against b1.csv,b2.csv
expected='expected tables, or --runs with --against .and --paired., without --bootstrap'
refuse 2 "$expected" --runs $a
refuse 2 "$expected" --against $b
refuse 2 "$expected" b1.csv b2.csv --paired
refuse 2 '--runs: an empty name in the list' --runs a1,,a3 --against $b
refuse 2 "$expected" --runs $a --against $b b1.csv
refuse 2 "$expected" --runs $a --against $b --bootstrap 10
refuse 2 '--paired: 3 trainings in --runs and 4 in --against' --runs $a --against $b,b4.csv --paired
refuse 3 '--paired: a2/predictions.csv and c2/predictions.csv differ in --seed' --runs $a --against c1,c2,c3 --paired
cp b1.csv copy.csv
refuse 3 'b1.csv and copy.csv are the same table .digest [0-9a-f]{32}.; expected another training each' \
    --runs $a --against b1.csv,b2.csv,copy.csv
refuse 3 'a2/predictions.csv and a2/predictions.csv are the same table' --runs a1,a2,b1.csv --against a2,b2.csv,b3.csv
sed '$d' b3.csv >bad.csv
refuse 3 'bad.csv: 1 images of a1/predictions.csv are missing, 0 are not in it' --runs $a --against b1.csv,b2.csv,bad.csv
sed 's/^i12.png,[0-9]*,/i12.png,99,/' b3.csv >bad.csv
refuse 3 'image i12.png: patient 9 in a1/predictions.csv and 99 in bad.csv' --runs $a --against b1.csv,b2.csv,bad.csv
sed 's/_Edema/_Oedema/g' b3.csv >bad.csv
refuse 3 'finding Edema: in a1/predictions.csv, not in bad.csv' --runs $a --against b1.csv,b2.csv,bad.csv
head -c 1500 b3.csv >bad.csv
refuse 3 'bad.csv line [0-9]+' --runs $a --against b1.csv,b2.csv,bad.csv
refuse 3 'cannot open a4/nothing' --runs a1,a2,a4/nothing --against $b
done_testing
