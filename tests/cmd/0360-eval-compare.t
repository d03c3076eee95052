#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval compare joins tables of predictions, compares the models, and refuses tables that cannot
# be compared.
source "$(dirname "$0")/lib.sh"

# table SEED NOISE: 70 images of 25 patients with ties and masked labels. SEED changes the scores only.
table() {
    awk -v seed="$1" -v noise="$2" 'BEGIN {
        print "image_id,patient_id,y_Mass,y_Edema,y_Hernia,p_Mass,p_Edema,p_Hernia"
        for (i = 0; i < 70; i++) {
            line = "i" i ".png," i * 7 % 25
            scores = ""
            for (c = 0; c < 3; c++) {
                y = c == 2 ? 0 : (i * 31 + c * 17) % 5 < 2 ? 1 : (i * 13 + c) % 11 == 0 ? -1 : 0
                s = 5 + 3 * (y == 1) + (i * 37 + c * 11) % 7 - 3
                s += noise * ((i * (43 + 2 * seed) + c * 29 + seed) % 9 - 4)
                line = line "," y
                scores = scores "," (s < 0 ? 0 : s > 10 ? 1 : s / 10)
            }
            print line scores
        }
    }'
}
table 1 0.5 >a.csv
table 2 0.75 | { read -r head && echo "$head" && sort -r | sed '$d'; } >b.csv
table 3 1 >c.csv

expect_status 0 chex-eval compare a.csv b.csv
like "$(out)" '^69 images in both, of 25 patients; left out: 1 in the first file only, 0 in the second only$' \
    "rows are joined by image, in any order, and rows of one file are counted"
like "$(out)" '^finding +positives +patients +first +second +difference +95 % interval +p +p Holm$' \
    "the table has a head"
like "$(out)" '^Mass +[0-9]+ +[0-9]+ +0\.[0-9]{4} +0\.[0-9]{4} +[+-]0\.[0-9]{4} +[+-]0\.[0-9]{4} to [+-]0\.[0-9]{4} +0\.[0-9]{4} +0\.[0-9]{4}$' \
    "a finding has its difference, interval and p values"
like "$(out)" '^Hernia +0 +0 +nan +nan +nan +- +- +-$' "a finding without positives is undefined"
like "$(out)" '^mean of 2 findings .*[+-]0\.[0-9]{4} to [+-]0\.[0-9]{4} +0\.[0-9]{4} +$' \
    "the mean covers the defined findings"
like "$(out)" "^p Holm: corrected for the 2 findings of a comparison$" "the notes say what is corrected for"
is "$(err)" "" "stderr is empty"

# The figures, recomputed pair by pair.
if have python3 && ! without PYTHON; then
    for cluster in patient image; do
        expect_status 0 chex-eval compare a.csv b.csv --json --cluster $cluster
        cp out $cluster.json
        got=$(python3 "$SOURCE/tests/tools/compare_auroc.py" a.csv b.csv $cluster.json --cluster $cluster)
        is "$got" "25 figures agree" "by $cluster all figures are those of the papers' formulas to 1e-12"
    done
else
    skip "no python3 here" 4
fi

expect_status 0 chex-eval compare a.csv a.csv --json --bootstrap 100
like "$(out)" '"name":"Mass","difference":0\.0,"ci_low":0\.0,"ci_high":0\.0,"p_value":1\.0,"p_holm":1\.0' \
    "a table and itself differ by 0 with p 1"
like "$(out)" '"mean":\{"name":"mean","difference":0\.0,"ci_low":0\.0,"ci_high":0\.0,"p_value":1\.0' \
    "so do the means"
like "$(out)" '"bootstrap_low":0\.0,"bootstrap_high":0\.0' "each replicate draws the same patients for both"
expect_status 0 chex-eval compare a.csv b.csv --json
forward=$(out | grep -o '"difference":[^,]*' | head -n 1)
expect_status 0 chex-eval compare b.csv a.csv --json
is "$(out | grep -o '"difference":[^,]*' | head -n 1 | tr -d -)" "$(tr -d - <<<"$forward")" \
    "the order of the files changes the sign only"

# Three files, results in a folder.
expect_status 0 chex-eval compare a.csv b.csv c.csv --bootstrap 200 --margin 0.4 --output results
is "$(ls results | tr '\n' ' ')" "compare.csv compare.json compare.svg " "the files of --output"
is "$(grep -c '^first:  a.csv$' out)" 2 "the first file is the reference of each comparison"
like "$(out)" '^Mass .*(both|first|second) (non-inferior|superior)$' "--margin adds a verdict"
like "$(out)" '^verdict: non-inferior if the interval excludes a loss of 0\.4, a one-sided test at 2\.5 %.*not corrected for several findings$' \
    "the notes explain the verdict"
like "$(out)" "in the table of means for the comparisons$" "Holm's correction is for each comparison, and for the means"
is "$(wc -l <results/compare.csv)" 9 "compare.csv has a row for each finding and mean of both comparisons"
like "$(sed -n 2p results/compare.csv)" '^a.csv,b.csv,Mass,' "compare.csv names the files"
like "$(grep ,Hernia, results/compare.csv | head -n 1)" ',nan,nan,' "an undefined number is nan there"
unlike "$(cat results/compare.csv)" '-nan' "nan has no sign"
like "$(cat results/compare.json)" '"comparisons": \[' "compare.json lists the comparisons"
like "$(cat results/compare.json)" '"digest": "[0-9a-f]{32}"' "and the digests of the files"
if have xmllint; then
    xmllint --noout results/compare.svg
    ok $? "compare.svg is well-formed"
else
    skip "no xmllint here"
fi
unlike "$(cat results/compare.svg)" 'nan' "compare.svg contains no nan"
cp results/compare.json first.json
expect_status 2 chex-eval compare a.csv b.csv --output results
error_line 'results already holds compare.json, compare.csv, compare.svg: .*--force' "existing results are kept"
expect_status 0 chex-eval compare a.csv b.csv c.csv --bootstrap 200 --margin 0.4 --output results --force --threads 3
cmp -s results/compare.json first.json
ok $? "another number of threads gives the same bytes"

# Logits, gzip, findings of one file only.
awk -F, -v OFS=, 'NR > 1 {for (i = 6; i <= 8; i++) $i = 20 * $i - 10} {print}' a.csv | gzip >logits.csv.gz
expect_status 0 chex-eval compare logits.csv.gz a.csv --scores any --json
like "$(out)" '"name":"Mass","difference":0\.0,' "a monotone function of the scores changes nothing"
sed 's/_Edema/_Oedema/g' b.csv >other.csv
expect_status 0 chex-eval compare a.csv other.csv
like "$(out)" '^only in the first file: Edema$' "a finding of the first file only is listed"
like "$(out)" '^only in the second file: Oedema$' "a finding of the second file only is listed"
sed 's/patient_id/note/' b.csv >nopatient.csv
expect_status 0 chex-eval compare a.csv nopatient.csv
like "$(out)" ', of 25 patients' "patients of one file are enough"

sed 's/patient_id/note/' a.csv >nopatient_a.csv
expect_status 0 chex-eval compare nopatient_a.csv nopatient.csv --cluster image
like "$(out)" '^Mass +[0-9]+ +- ' "without patients none are counted"
like "$(out)" 'paired DeLong by image' "and the interval is by image"

# One patient: nothing can be tested.
awk -F, -v OFS=, 'NR > 1 {$2 = 1} {print}' a.csv >one_a.csv
awk -F, -v OFS=, 'NR > 1 {$2 = 1} {print}' b.csv >one_b.csv
expect_status 0 chex-eval compare one_a.csv one_b.csv --margin 0.1 --output one
like "$(out)" '^Mass .*too few +- +- +-$' "of one patient there is no interval and no test"
like "$(err)" 'warn: one_a.csv, one_b.csv: no finding has positives and negatives of at least 2 patients' "a warning says so"

# refuse STATUS REGEX FILE...: the comparison is refused and writes nothing.
refuse() {
    local status=$1 text=$2
    shift 2
    expect_status "$status" chex-eval compare "$@" --output bad
    error_line "$text" "refused: $*"
    [ ! -e bad ]
    ok $? "a refused comparison writes nothing"
}
cp a.csv same.csv
expect_status 0 chex-eval compare a.csv same.csv
like "$(err)" 'warn: a.csv and same.csv are equal: every difference is 0' "the same table twice gives a warning"
refuse 2 "chex-eval compare takes two or more tables of predictions" a.csv
refuse 2 'results: a folder, expected a table such as predictions.csv' a.csv results
refuse 3 'cannot open nowhere.csv' a.csv nowhere.csv
refuse 3 '/bin/bash' a.csv /bin/bash
refuse 2 'the name is no UTF-8 text, as compare.json needs' a.csv $'odd\377.csv'
sed '2,$s/^i/j/' b.csv >bad.csv
refuse 3 'a.csv and bad.csv have no image in common .the first of each: i0.png, j9.png.' a.csv bad.csv
awk -F, -v OFS=, '$1 == "i12.png" {$3 = $3 == 1 ? 0 : 1} {print}' c.csv >bad.csv
refuse 3 'image i12.png, finding Mass: label -?[01] in a.csv and [01] in bad.csv; only equal labels can be compared' a.csv bad.csv
sed 's/^i12.png,[0-9]*,/i12.png,99,/' c.csv >bad.csv
refuse 3 'image i12.png: patient 9 in a.csv and 99 in bad.csv' a.csv bad.csv
sed 's/^i3.png/i4.png/' c.csv >bad.csv
refuse 3 'bad.csv line 6: image i4.png is already on line 5' a.csv bad.csv
sed 's/_Mass/_M/g; s/_Edema/_E/g; s/_Hernia/_H/g' c.csv >bad.csv
refuse 3 'a.csv and bad.csv have no finding in common .the first of each: Mass, M.' a.csv bad.csv
refuse 3 "a.csv and bad.csv have no finding in common" a.csv b.csv bad.csv
gunzip <logits.csv.gz >bad.csv
refuse 3 'bad.csv line 2, column p_Mass: .* expected a probability' a.csv bad.csv
sed 's/patient_id/note/' a.csv >bad.csv
refuse 3 'no column patient_id, and intervals by patient need it: .*--cluster image' bad.csv nopatient.csv
refuse 2 'margin' a.csv b.csv --margin 2
refuse 2 "unknown option '--predictions'" a.csv b.csv --predictions c.csv
done_testing
