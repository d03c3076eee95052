#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval score computes the figures of a predictions table without a network, and refuses bad
# tables.
source "$(dirname "$0")/lib.sh"

# Hernia: positives 0.8 0.5 against negatives 0.5 0.1: (2 + 1.5) / 4. Mass: no positive.
cat >p.csv <<'END'
image_id,patient_id,y_Hernia,y_Mass,p_Hernia,p_Mass
a.png,1,1,0,0.8,0.1
b.png,1,0,0,0.5,0.2
c.png,2,1,0,0.5,0.3
d.png,3,0,-1,0.1,0.9
END

expect_status 0 chex-eval score --predictions p.csv
like "$(out)" '^finding +positives +patients +AUROC +95 % interval +published$' "the table has a head"
like "$(out)" '^Hernia +2 +2 +0\.8750 +0\.[0-9]{4} - 0\.9[0-9]{3} +0\.7670$' \
    "positives, positive patients, value, interval and published value"
like "$(out)" '^Mass +0 +0 +nan +- +0\.7060$' "an undefined class is nan"
like "$(out)" '^mean of 1 finding +0\.8750 .* 0\.7670$' "the mean is over the defined class"
like "$(out)" '^interval: 95 %, DeLong by patient, corrected for few positives$' "how the interval was made"
like "$(out)" 'wang2017.*split: official NIH test list' "the split of the published column is named"
is "$(err)" "" "stderr is empty"

expect_status 0 chex-eval score --predictions p.csv --output results
is "$(ls results | tr '\n' ' ')" "auroc.csv auroc.json curves.csv figures.csv report.html roc.svg shortcuts.csv subgroups.csv " "the files of --output"
like "$(head -n 1 results/auroc.csv)" '^class,positives,negatives,masked,auroc,ci_low,ci_high,' "auroc.csv"
like "$(grep ^Mass, results/auroc.csv)" '^Mass,0,3,1,nan,nan,nan,nan,0\.706,0,2,' "undefined is nan there too"
if have xmllint; then
    xmllint --noout results/roc.svg && xmllint --noout results/report.html
    ok $? "roc.svg and report.html are well-formed"
else
    skip "no xmllint here"
fi
cp results/auroc.json first.json
expect_status 2 chex-eval score --predictions p.csv --output results
error_line "results already holds auroc.json, auroc.csv, figures.csv, .*, report.html: .*--force" \
    "existing results are named and kept"
expect_status 0 chex-eval score --predictions p.csv --output results --force --threads 3
cmp -s results/auroc.json first.json
ok $? "another number of threads gives the same figures"

expect_status 0 chex-eval score --predictions p.csv --json --bootstrap 0 --compare none
like "$(out)" '^\{"schema":1,.*"mean":0\.875,.*"mean_ci_low":null,.*"defined_count":1,' "--json"
like "$(out)" '"name":"Mass","auroc":null,"ci_low":null,"ci_high":null,.*"positives":0' \
    "undefined is null"
expect_status 0 chex-eval score --predictions p.csv --compare published:zech2022
like "$(out)" '^Hernia .* 0\.9175$' "another published column"
expect_status 0 chex-eval score --predictions p.csv --compare results/auroc.csv
like "$(out)" '^Hernia +2 +2 +0\.8750 .* 0\.8750$' "an earlier run as comparison"
like "$(out)" '^compared: results/auroc.csv: the same images and labels$' "the compared file has the same images"
unlike "$(out)" 'not comparable|split' "equal images are comparable"
# Own findings have no published value; the default of --compare is no reason to warn.
sed 's/_Hernia/_TB/g; s/_Mass/_COVID/g' p.csv >own.csv
expect_status 0 chex-eval score --predictions own.csv --output own
unlike "$(err)" 'warn' "the default --compare does not warn"
like "$(err)" '--compare published: it states no AUROC for any finding of the data' "the log says that nothing is compared"
expect_status 0 chex-eval score --predictions own.csv --compare results/auroc.csv
like "$(err)" 'warn: --compare results/auroc.csv: it states no AUROC' "a file that was named does"
# Positives at ranks 1 and 3 of 4: precision 1 to recall 1/2, then 2/3.
is "$(sed -n '/aria-label="Precision and recall/,$p' results/report.html | grep -o 'class="c" .* d="[^"]*' | sed -n '1s/.* d="//p')" \
    'M0.0 0.0L75.0 0.0L75.0 50.0L150.0 50.0L150.0 75.0L150.0 75.0' "the precision-recall curve has steps, no values that no threshold reaches"

# Tables as a spreadsheet with a decimal comma writes them.
mkdir european
for table in p.csv results/auroc.csv; do
    sed 's/"\([^"]*\)"/\1/g; s/,/;/g; s/\./,/g; s/,png/.png/' "$table" >"european/${table##*/}"
done
expect_status 0 chex-eval score --predictions european/p.csv --compare european/auroc.csv
like "$(out)" '^Hernia +2 +2 +0\.8750 .* 0\.8750$' "semicolons and decimal commas are read in predictions and comparisons"
like "$(err)" 'p.csv: fields with semicolons between' "the log names the separator"
{ head -n 1 p.csv && tail -n +2 p.csv | sort -r | sed 's/,0.8,/,0.4,/'; } >second.csv
expect_status 0 chex-eval score --predictions second.csv --compare results/auroc.csv
like "$(out)" ': the same images and labels$' "another network on the same images, in another order"
sed 's/^d.png/e.png/' p.csv >third.csv
expect_status 0 chex-eval score --predictions third.csv --compare results/auroc.csv
like "$(out)" '^compared: results/auroc.csv: other images or labels$' "another image"
like "$(out)" 'AUROCs of different images are not comparable' "different images are not comparable"
expect_status 0 chex-eval score --predictions p.csv --cluster image
like "$(out)" 'DeLong by image' "without patients DeLong's test is by image"
expect_status 0 chex-eval score --predictions p.csv --interval bootstrap
like "$(out)" '^interval: 95 %, percentiles of 1000 bootstrap replicates by patient$' "the bootstrap"
like "$(out)" '^Hernia: [1-9][0-9]* of 1000 replicates had no positive or no negative$' \
    "undefined replicates are counted"

expect_status 0 chex-eval score --predictions p.csv --interval logit --output logit
like "$(out)" '^interval: 95 %, DeLong on the logit scale by patient \(Obuchowski 1997\)$' "the interval of the textbooks"
like "$(cat logit/auroc.json)" '"method": "DeLong on the logit scale"' "auroc.json records the method"
sentence='The 95 % confidence intervals of the AUROC are computed on the logit scale .*Obuchowski.*, without bootstrap \(chexnet .*; independent unit: patient; [0-9]+ patients\)\.'
like "$(cat logit/auroc.json)" "\"sentence\": \"$sentence\"" "a sentence for a methods section is in auroc.json"
like "$(cat logit/report.html)" "For a methods section: $sentence" "and in the report"
expect_status 0 chex-eval card --evaluation logit --output card.md
like "$(cat card.md)" '^For a methods section: The 95 % confidence intervals .*Obuchowski' "and in the model card"

# One patient, and one positive patient of three.
sed '2,$s/,[0-9],/,7,/' p.csv >one.csv
for method in delong logit bootstrap; do
    expect_status 0 chex-eval score --predictions one.csv --interval $method
    like "$(out)" '^Hernia +2 +1 +0\.8750 +too few' "$method: of one patient there is no interval"
    like "$(out)" '^too few: positives or negatives of fewer than 2 patients; no interval, nor for the mean$' \
        "which is said"
done
sed 's/^c.png,2,1/c.png,1,1/; s/^b.png,1/b.png,2/' p.csv >rare.csv
expect_status 0 chex-eval score --predictions rare.csv --json
like "$(out)" '"name":"Hernia","auroc":0.875,"ci_low":null,"ci_high":null,.*"positive_patients":1,"negative_patients":2,"too_few":true' \
    "two positive images of one patient are too few"
like "$(out)" '"mean_ci_low":null' "the mean has no interval either"

# A table in which no class has both.
awk -F, -v OFS=, 'NR > 1 {$3 = 1; $4 = 0} {print}' p.csv >none.csv
expect_status 0 chex-eval score --predictions none.csv --output undefined
like "$(out)" '^mean of 0 findings +nan' "no class defined: the mean is nan"
like "$(err)" 'warn: no finding has both positive and negative images: no AUROC is defined' "a warning says that no AUROC is defined"
like "$(cat undefined/auroc.json)" '"mean": null' "an undefined AUROC is null in auroc.json"
unlike "$(cat undefined/report.html undefined/roc.svg)" 'nan,' "no drawing contains nan"
sed 's/patient_id/note/' p.csv >nopatient.csv
expect_status 3 chex-eval score --predictions nopatient.csv
error_line 'nopatient.csv: no column patient_id.*--cluster image' "no patients: what to do"
expect_status 0 chex-eval score --predictions nopatient.csv --cluster image
like "$(out)" '^finding +positives +AUROC' "without patients there is no column of them"

# What other tools write: compressed, truth values, logits.
expect_status 0 chex-eval score --predictions p.csv --json --bootstrap 0
mean=$(out | grep -o '"mean":[^,]*' | head -n 1)
awk -F, -v OFS=, 'NR > 1 {$3 = $3 == 1 ? "True" : "False"; $4 = $4 == 0 ? "FALSE" : $4} {print}' p.csv |
    gzip >frame.csv.gz
expect_status 0 chex-eval score --predictions frame.csv.gz --json --bootstrap 0
is "$(out | grep -o '"mean":[^,]*' | head -n 1)" "$mean" "a gzip file with True and False"
gunzip <frame.csv.gz >frame.csv && head -c 60 frame.csv.gz >cut.csv.gz
expect_status 3 chex-eval score --predictions cut.csv.gz
error_line 'cut.csv.gz: gzip: ' "a gzip file that is cut short"
awk -F, -v OFS=, 'NR > 1 {$5 = log($5 / (1 - $5)); $6 = log($6 / (1 - $6))} {print}' p.csv >logits.csv
expect_status 3 chex-eval score --predictions logits.csv
error_line "line 2, column p_Hernia: '1\.38629', expected a probability from 0 to 1; for other scores add --scores any" \
    "scores that are no probabilities"
expect_status 0 chex-eval score --predictions logits.csv --json --bootstrap 0 --scores any
is "$(out | grep -o '"mean":[^,]*' | head -n 1)" "$mean" "logits are scored if that is asked for"

# refuse STATUS REGEX SED-SCRIPT: the table changed by the script is refused.
refuse() {
    sed "$3" p.csv >bad.csv
    expect_status "$1" chex-eval score --predictions bad.csv --output bad
    error_line "$2" "refused: $3"
    [ ! -e bad ]
    ok $? "a refused table writes no file"
}
expect_status 2 chex-eval score --predictions $'odd\377.csv' --output bad
error_line 'the name is no UTF-8 text, as auroc.json needs' "a name that the results cannot hold"
refuse 3 'bad.csv.* line 3, column p_Mass: .nan., expected a number' 's/,0.2$/,nan/'
refuse 3 'bad.csv.* line 2, column y_Hernia: .7., expected 1, 0, -1, -2, NA, true or false' 's/^a.png,1,1/a.png,1,7/'
refuse 3 'bad.csv.* line 2, column p_Hernia: .80., expected a probability from 0 to 1; .*--scores any' 's/,0.8,/,80,/'
refuse 3 'bad.csv.* line 5, column p_Mass: .-0.9.' 's/,0.9$/,-0.9/'
refuse 3 'bad.csv.* line 4: image a.png is already on line 2' 's/^c/a/'
refuse 3 'bad.csv.* line 5: 5 columns, the header has 6' 's/,0.9$//'
refuse 3 'bad.csv.* line 1: column p_Hernia has no column y_Hernia' '1s/y_Hernia/label/'
refuse 3 'bad.csv.* a header and no row' '2,$d'
refuse 3 'bad.csv.* empty' 'd'
expect_status 3 chex-eval score --predictions nowhere.csv
error_line 'cannot open nowhere.csv' "a file that is not there"
expect_status 2 chex-eval score --predictions results
error_line '--predictions results: a folder, expected a table such as predictions.csv' "a folder"
expect_status 3 chex-eval score --predictions /bin/bash
error_line '/bin/bash' "a file that is no table"
expect_status 3 chex-eval score --predictions p.csv --compare p.csv
error_line 'p.csv: expected a header that begins with class' "a comparison that is none"
expect_status 2 chex-eval score --predictions p.csv --compare published:me
error_line 'no such column, expected one of wang2017' "a published column that is none"
expect_status 2 chex-eval score
error_line 'chex-eval score needs --predictions' "score without a table"
expect_status 2 chex-eval score extra --predictions p.csv
error_line "unexpected word 'extra': chex-eval score takes options only; try 'chex-eval score --help'" "a word too many"
expect_status 2 chex-eval rank --predictions p.csv
error_line "unknown subcommand 'rank': expected score, .*, or none$" "an unknown subcommand"
expect_status 2 chex-eval score --predictions p.csv --bootstrap many
error_line 'bootstrap' "a number that is none"
expect_status 2 chex-eval score --predictions p.csv --cluster ward
error_line 'cluster' "a choice that is none"
touch file
expect_status 2 chex-eval score --predictions p.csv --output file
error_line 'file is no folder' "an output that is a file"

expect_status 2 chex-eval
error_line 'chex-eval needs --data DIR' "without options the command says what it needs"
expect_status 2 chex-eval --data d --checkpoint c
error_line 'chex-eval needs --output DIR' "nowhere to write"
expect_status 0 chex-eval --help all
for option in data checkpoint output split model image-size precision engine threads workers tta \
    bootstrap cluster interval compare allow-overlap force; do
    like "$(out)" "--$option " "--help names --$option"
done
like "$(out)" '^Exit status: 0 done, .*2 usage' "help explains the exit statuses"
unlike "$(out)" '--predictions FILE  ' "the help of evaluation lacks the options of score"
expect_status 0 chex-eval score --help
like "$(out)" '^usage: chex-eval score --predictions' "score has a help of its own"
unlike "$(out)" '--(checkpoint|data|engine|split) ' "the help of score lacks the options of a network"
expect_status 0 chex-eval export --help
unlike "$(out)" '--(workers|bootstrap|predictions) ' "export has options of its own"
for option in --checkpoint --data --engine --split; do
    expect_status 2 chex-eval score --predictions p.csv $option x
    error_line "unknown option '$option'; try 'chex-eval score --help'" "score takes no $option"
done
expect_status 2 chex-eval export --checkpoint c.h5 --output o.safetensors --threads 2
error_line '--threads: expected --features FILE with it' "export computes only with --features"
expect_status 2 chex-eval --quiet score --predictions p.csv
error_line "unknown option '--predictions'" "a subcommand comes first"
expect_status 2 chex-eval --quiet score
error_line "'score' comes first: chex-eval score" "a subcommand after options is explained"
unlike "$(out)" '[^.]cam ' "--help names no subcommand that is not there"
expect_status 0 chex-eval --version
expect_status 2 chex-eval --wards 3
error_line 'wards' "an unknown option"
if [ -w /dev/full ]; then
    chex-eval score --predictions p.csv >/dev/full 2>err
    is $? 9 "a full disk as standard output ends with status 9"
fi
# ---- one patient decides the figures ----
awk 'BEGIN {print "image_id,patient_id,y_A,p_A"
    for (i = 0; i < 200; i++) {y = i % 10 == 0; p = y ? 0.9 + i / 4000 : 0.1 - i / 4000
        if (i == 11) p = 0.91; printf "i%d,p%d,%d,%.5f\n", i, i, y, p}}' >sharp.csv
expect_status 0 chex-eval score --predictions sharp.csv --table calibration --compare none --output sharp
like "$(out)" '^A +[0-9.]+ \(not estimable\).* -?[0-9.]+ \(not estimable\)' "intervals that one patient decides are not estimable"
like "$(out)" 'not estimable: a single patient decides the figure$' "the reason is below the table"
like "$(tr -d ' \n' <sharp/auroc.json)" '"ap_ci_low":null,"ap_ci_high":null' "files have null"
done_testing
