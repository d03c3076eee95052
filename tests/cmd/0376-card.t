#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval card writes a model card from a results folder, and refuses other folders.
source "$(dirname "$0")/lib.sh"

{
    echo image_id,patient_id,y_Pleural_Thickening,y_Hernia,y_Mass,p_Pleural_Thickening,p_Hernia,p_Mass,sex
    for i in {1..120}; do
        sex=F
        [ $((i % 4)) -lt 2 ] || sex=M
        echo "$i.png,$((i / 2)),$((i % 3 == 0)),$((i == 7)),0,0.$((i * 37 % 89 + 10)),0.$((i * 11 % 90 + 10)),0.5,$sex"
    done
} >p.csv
expect_status 0 chex-eval score --predictions p.csv --output results
expect_status 0 chex-eval card --evaluation results --output cards/card.md
card=$(cat cards/card.md)
like "$(err)" 'questions that the files cannot answer' "the log says that questions are left for a person"
is "$(ls -A cards)" "card.md" "the card, and nothing else"
is "$(head -n 1 cards/card.md) $(grep -c '^---$' cards/card.md)" "--- 2" "the card begins with front matter"
like "$card" '^## Intended use$' "intended use"
like "$card" '^- \*\*TO BE COMPLETED BY A PERSON:\*\* ' "questions for a person are marked"
auroc=$(sed -n '/Pleural_Thickening/,/ci_low/s/.*"auroc": \([0-9.]*\).*/\1/p' results/auroc.json | head -n 1)
like "$card" "^\| Pleural Thickening \| 40 \| $(printf %.4f "$auroc") \(" "a number is that of auroc.json"
like "$card" "name: \"AUROC Pleural_Thickening\"" "the front matter has the class"
like "$card" '^\| Mass \| 0 \| - \| - \|$' "an undefined figure is a dash"
unlike "$card" '(^|[ (-])(nan|null|inf)([ ,)]|$)' "no number that is none"
like "$card" '^- Mass: no AUROC' "limitations name classes without an AUROC"
like "$card" '^- Hernia: too few patients' "limitations name classes without an interval"
like "$card" 'chosen on the evaluated images' "limitations say that thresholds are optimistic"
like "$card" '^### By sex$' "subgroups"
if have xxh128sum; then
    for file in auroc.json report.html; do
        like "$card" "$(xxh128sum results/$file | cut -d' ' -f1)" "the digest of $file is that of xxh128sum"
    done
else
    skip "no xxh128sum here" 2
fi
if have python3 && ! without PYTHON && python3 -c 'import yaml' 2>/dev/null; then
    is "$(python3 -c 'import yaml; m = yaml.safe_load(open("cards/card.md").read().split("---")[1]); print(m["model-index"][0]["results"][0]["metrics"][1]["name"])')" \
        "AUROC Pleural_Thickening" "the front matter is YAML with a model-index"
else
    skip "no PyYAML here"
fi

expect_status 2 chex-eval card --evaluation results --output cards/card.md
error_line 'cards/card.md exists: say --force' "an existing card is kept"
cp cards/card.md before.md
expect_status 0 chex-eval card --evaluation results --output cards/card.md --force --json
is "$(tr -d ' \n' <out)" '{"schema":"chexnet-eval-card","version":1,"output":"cards/card.md"}' \
    "card --json prints an object with the new file"
cmp -s before.md cards/card.md
ok $? "the same folder gives the same card"

# Texts of the data are only text.
sed '1s/Pleural_Thickening/<script>|`x`**/g' p.csv >odd.csv
expect_status 0 chex-eval score --predictions odd.csv --output odd
expect_status 0 chex-eval card --evaluation odd --output odd.md
unlike "$(sed '1,/^---$/d' odd.md)" '<script' "a class cannot write HTML"
like "$(cat odd.md)" '^\| &lt;script\\>\\\|\\`x\\`\\\*\\\* \| 40 \|' "nor break a table"

# refuse STATUS REGEX NAME OPTION...
refuse() {
    local status=$1 regex=$2 name=$3
    shift 3
    expect_status "$status" chex-eval card "$@" --output bad.md
    error_line "$regex" "$name"
    [ ! -e bad.md ]
    ok $? "$name: no file is written"
}
mkdir empty cut other list
head -c 400 results/auroc.json >cut/auroc.json
echo '{"schema": 2}' >other/auroc.json
echo '{"schema": 1, "mean": 1, "provenance": {}, "classes": [{"name": 3}]}' >list/auroc.json
refuse 3 '^chex-eval error: nowhere: no such folder' "a folder that is not there" --evaluation nowhere
refuse 3 'p.csv: no folder' "a file" --evaluation p.csv
refuse 3 'empty: no auroc.json, expected a results folder of chex-eval' "an empty folder" --evaluation empty
refuse 3 'cut/auroc.json: line [0-9]+: ' "a file that is cut short" --evaluation cut
refuse 3 'other/auroc.json: no "schema": 1' "another schema" --evaluation other
refuse 3 'list/auroc.json: a finding without name' "a class without a name" --evaluation list
refuse 2 'needs --evaluation DIR' "no folder named"
expect_status 2 chex-eval card --evaluation results
error_line 'needs --output FILE.md' "no output named"
expect_status 2 chex-eval card --evaluation results --output card.txt
error_line 'ends in .md' "another ending"
expect_status 2 chex-eval card --evaluation results --output results
error_line 'ends in .md' "a folder"
done_testing
