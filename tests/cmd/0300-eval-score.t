#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval score: figures of a predictions table without a network, and what it refuses.
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
like "$(out)" '^class +positives +AUROC +95 % interval +published$' "the table has a head"
like "$(out)" '^Hernia +2 +0\.8750 +0\.[0-9]{4} - 1\.0000 +0\.7670$' "value, interval and published value"
like "$(out)" '^Mass +0 +nan +- +0\.7060$' "an undefined class is nan"
like "$(out)" '^mean of 1 class +0\.8750 .* 0\.7670$' "the mean is over the defined class"
like "$(out)" 'wang2017.*split: official NIH test list' "the split of the published column is named"
is "$(err)" "" "nothing on stderr"

expect_status 0 chex-eval score --predictions p.csv --output results
is "$(ls results | tr '\n' ' ')" "auroc.csv auroc.json report.html roc.svg " "the files of --output"
like "$(head -n 1 results/auroc.csv)" '^class,positives,negatives,masked,auroc,ci_low,ci_high,' "auroc.csv"
like "$(grep ^Mass, results/auroc.csv)" '^Mass,0,3,1,nan,nan,nan,nan,0\.706$' "undefined is nan there too"
if have xmllint; then
    xmllint --noout results/roc.svg && xmllint --noout results/report.html
    ok $? "roc.svg and report.html are well-formed"
else
    skip "no xmllint here"
fi
cp results/auroc.json first.json
expect_status 2 chex-eval score --predictions p.csv --output results
error_line "results already holds auroc.json, auroc.csv, roc.svg, report.html: .*--force" \
    "existing results are named and kept"
expect_status 0 chex-eval score --predictions p.csv --output results --force --threads 3
cmp -s results/auroc.json first.json
ok $? "the same figures with another number of threads"

expect_status 0 chex-eval score --predictions p.csv --json --bootstrap 0 --compare none
like "$(out)" '^\{"schema":1,.*"mean":0\.875,.*"mean_ci_low":null,.*"defined_count":1,' "--json"
like "$(out)" '"name":"Mass","auroc":null,"ci_low":null,"ci_high":null,.*"positives":0' \
    "undefined is null"
expect_status 0 chex-eval score --predictions p.csv --compare published:zech2022
like "$(out)" '^Hernia .* 0\.9175$' "another published column"
expect_status 0 chex-eval score --predictions p.csv --compare results/auroc.csv
like "$(out)" '^Hernia +2 +0\.8750 .* 0\.8750$' "an earlier run as comparison"
expect_status 0 chex-eval score --predictions p.csv --cluster image
like "$(out)" 'bootstrap replicates by image' "by image"

# One patient.
sed '2,$s/,[0-9],/,7,/' p.csv >one.csv
expect_status 0 chex-eval score --predictions one.csv
like "$(out)" '^Hernia +2 +0\.8750 +- ' "of one patient there is no interval"
like "$(out)" '^no interval: all images are of one patient$' "which is said"

# A table in which no class has both.
awk -F, -v OFS=, 'NR > 1 {$3 = 1; $4 = 0} {print}' p.csv >none.csv
expect_status 0 chex-eval score --predictions none.csv --output undefined
like "$(out)" '^mean of 0 classes +nan' "no class defined: the mean is nan"
like "$(err)" 'warn: no class has both positive and negative images: no AUROC is defined' "which is said"
like "$(cat undefined/auroc.json)" '"mean": null' "and null in auroc.json"
unlike "$(cat undefined/report.html undefined/roc.svg)" 'nan,' "and undefined in the drawings"
sed 's/patient_id/note/' p.csv >nopatient.csv
expect_status 3 chex-eval score --predictions nopatient.csv
error_line 'nopatient.csv: no column patient_id.*--cluster image' "no patients: what to do"
expect_status 0 chex-eval score --predictions nopatient.csv --cluster image

# refuse STATUS REGEX SED-SCRIPT: the table changed by the script is refused.
refuse() {
    sed "$3" p.csv >bad.csv
    expect_status "$1" chex-eval score --predictions bad.csv --output bad
    error_line "$2" "refused: $3"
    [ ! -e bad ]
    ok $? "and nothing is written"
}
expect_status 2 chex-eval score --predictions $'odd\377.csv' --output bad
error_line 'the name is no UTF-8 text, as auroc.json needs' "a name that the results cannot hold"
refuse 3 'bad.csv.* line 3, column p_Mass: .nan., expected a number' 's/,0.2$/,nan/'
refuse 3 'bad.csv.* line 2, column y_Hernia: .7., expected 1, 0, -1 or -2' 's/^a.png,1,1/a.png,1,7/'
refuse 3 'bad.csv.* line 4: image a.png stands on line 2 too' 's/^c/a/'
refuse 3 'bad.csv.* line 5: 5 columns, the header has 6' 's/,0.9$//'
refuse 3 'bad.csv.* line 1: column p_Hernia has no column y_Hernia' '1s/y_Hernia/label/'
refuse 3 'bad.csv.* a header and no row' '2,$d'
refuse 3 'bad.csv.* empty' 'd'
expect_status 3 chex-eval score --predictions nowhere.csv
error_line 'cannot open nowhere.csv' "a file that is not there"
expect_status 3 chex-eval score --predictions /bin/bash
error_line '/bin/bash' "a file that is no table"
expect_status 3 chex-eval score --predictions p.csv --compare p.csv
error_line 'p.csv: expected a header that begins with class' "a comparison that is none"
expect_status 2 chex-eval score --predictions p.csv --compare published:me
error_line 'no such column, expected one of wang2017' "a published column that is none"
expect_status 2 chex-eval score
error_line 'chex-eval score needs --predictions' "score without a table"
expect_status 2 chex-eval score extra --predictions p.csv
error_line "'extra' is one word too many" "a word too many"
expect_status 2 chex-eval rank --predictions p.csv
error_line "unknown subcommand 'rank': expected score, cam or export" "an unknown subcommand"
expect_status 2 chex-eval score --predictions p.csv --bootstrap many
error_line 'bootstrap' "a number that is none"
expect_status 2 chex-eval score --predictions p.csv --cluster ward
error_line 'cluster' "a choice that is none"
touch file
expect_status 2 chex-eval score --predictions p.csv --output file
error_line 'file is no folder' "an output that is a file"

expect_status 2 chex-eval
error_line 'chex-eval needs --data DIR' "nothing to evaluate"
expect_status 2 chex-eval --data d --checkpoint c
error_line 'chex-eval needs --output DIR' "nowhere to write"
expect_status 0 chex-eval --help
for option in data checkpoint output split model image-size precision engine threads workers tta \
    bootstrap cluster compare allow-overlap force; do
    like "$(out)" "--$option " "--help names --$option"
done
like "$(out)" '^Exit status: 0 done, .*2 usage' "and the exit status"
unlike "$(out)" '--predictions FILE  ' "but not what only score takes"
expect_status 0 chex-eval score --help
like "$(out)" '^usage: chex-eval score --predictions' "score has a help of its own"
unlike "$(out)" '--(checkpoint|data|engine|split) ' "without the options of a network"
expect_status 0 chex-eval export --help
unlike "$(out)" '--(data|bootstrap|predictions) ' "and export"
for option in --checkpoint --data --engine --split; do
    expect_status 2 chex-eval score --predictions p.csv $option x
    error_line "unknown option '$option'; try 'chex-eval score --help'" "score takes no $option"
done
expect_status 2 chex-eval export --checkpoint c.h5 --output o.safetensors --threads 2
error_line "unknown option '--threads'; try 'chex-eval export --help'" "export takes no --threads"
expect_status 2 chex-eval --quiet score --predictions p.csv
error_line "unknown option '--predictions'" "a subcommand comes first"
expect_status 2 chex-eval --quiet score
error_line "'score' comes first: chex-eval score" "which is said"
unlike "$(out)" '[^.]cam ' "--help names no subcommand that is not there"
expect_status 0 chex-eval --version
expect_status 2 chex-eval --wards 3
error_line 'wards' "an unknown option"
if [ -w /dev/full ]; then
    chex-eval score --predictions p.csv >/dev/full 2>err
    is $? 9 "a full disk behind stdout"
fi
done_testing
