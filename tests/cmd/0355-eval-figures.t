#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The figures of chex-eval score beside the AUROC agree with plain Python, thresholds are chosen and
# applied as asked, and wrong options are refused.
# CHEX_TEST_PYTHON: a python with NumPy.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
python_with numpy || skip_all "no python3 with NumPy here"

# Findings with many positives, with few, with ties and probabilities of 0 and 1, without positives.
"$python" - >p.csv <<'END'
import math, random
random.seed(5)
print("image_id,patient_id,y_Many,y_Few,y_Tied,y_None,p_Many,p_Few,p_Tied,p_None")
for i in range(300):
    x = [random.gauss(m, 1.5) for m in (-1, -5, 0, 0)]
    y = [int(random.random() < 1 / (1 + math.exp(-v))) for v in x]
    p = [1 / (1 + math.exp(-0.8 * v)) for v in x]
    p[2] = min(1, max(0, round(p[2] * 7 - 1) / 5))
    y[3] = 0 if i % 7 else -1
    print(f"i{i},q{i // 2}," + ",".join(map(str, y)) + "," + ",".join("%.9g" % v for v in p))
END
for rule in youden f1 sensitivity=0.9 specificity=0.8; do
    expect_status 0 chex-eval score --predictions p.csv --threshold $rule --output results --force
    is "$("$python" "$SOURCE/tests/tools/figures_plain.py" p.csv results/{auroc.json,figures.csv,curves.csv})" \
        "figures agree" "all figures agree with plain Python, thresholds by $rule"
done
class() { # NAME KEY...: a value of results/auroc.json
    "$python" -c 'import functools, json, sys
k = next(c for c in json.load(open("results/auroc.json"))["classes"] if c["name"] == sys.argv[1])
print(functools.reduce(lambda o, key: o[key], sys.argv[2:], k))' "$@"
}
is "$(class None operating threshold)" None "a finding without positives has no threshold"
is "$(class Few ap_ci_low) $(class Few average_precision | cut -c 1-2)" "None 0." \
    "a finding with few positive patients has an average precision without interval"

expect_status 0 chex-eval score --predictions p.csv --threshold 0.25 --prevalence Many=0.1,Few=0.02 \
    --table all --output results --force
is "$(class Tied operating threshold)" 0.25 "a number is the threshold of all findings"
is "$(class Many operating prevalence) $(class Tied operating prevalence)" "0.1 None" \
    "predictive values are given at the prevalences that were asked for"
for column in threshold sensitivity ppv_at_prevalence average_precision brier calibration_slope; do
    like "$(out)" "^finding .* $column( |\$)" "--table all has the column $column"
done
like "$(out)" 'too few' "--table all says where there is no interval"
cp results/auroc.json frozen.json
expect_status 0 chex-eval score --predictions p.csv --table operating
like "$(out)" 'chosen by youden on these images: new images will have worse figures' \
    "thresholds chosen on the evaluated images are said to be optimistic"
expect_status 0 chex-eval score --predictions p.csv --threshold frozen.json --output results --force
is "$(class Few operating threshold) $(class None operating threshold)" "0.25 0.25" \
    "the thresholds of an auroc.json are applied unchanged"
like "$(cat results/auroc.json)" '"source": "file"' "and named as those of a file"

expect_status 0 chex-eval score --predictions p.csv --bootstrap 0 --output results --force
is "$(class Many operating sensitivity_ci_low) $(class Many brier_ci_low)" "None None" \
    "--bootstrap 0 leaves all intervals out"
sed 's/q[0-9]*,/q,/' p.csv >one.csv
expect_status 0 chex-eval score --predictions one.csv --output results --force
is "$(class Many operating ppv_ci_low) $(class Many ece_ci_low) $(grep -c 'net_benefit.*nan,nan$' results/curves.csv)" \
    "None None 396" "one patient gives no interval anywhere"
expect_status 0 chex-eval score --predictions p.csv --scores any --output results --force
is "$(class Many brier) $(class Many operating tp | grep -c '[0-9]') $(wc -l <results/curves.csv)" "None 1 1" \
    "scores that are no probabilities have decisions, but no calibration"

refused() { # STATUS TEXT NAME OPTION...
    expect_status "$1" chex-eval score --predictions p.csv "${@:4}"
    error_line "$2" "$3"
}
refused 2 'threshold rule .youden=1. has no target' "a target of a rule without one" --threshold youden=1
refused 2 'sensitivity=0. needs a target above 0' "a sensitivity of 0" --threshold sensitivity=0
refused 2 'no such file, and not a rule' "an unknown rule" --threshold best
refused 2 'expected a probability from 0 to 1' "a threshold above 1" --threshold 1.5
refused 3 'p.csv: no thresholds' "a file without thresholds" --threshold p.csv
refused 2 'its thresholds are probabilities' "frozen thresholds for logits" --threshold frozen.json --scores any
refused 2 'expected a number above 0 and below 1' "a prevalence of 0" --prevalence 0
refused 2 'expected a number above 0 and below 1' "a prevalence of 1" --prevalence Many=1
refused 2 "no finding is named 'Other'" "a prevalence of an unknown finding" --prevalence Other=0.1
sed 's/Many/Other/' frozen.json >other.json
refused 3 'no threshold for finding Many: the thresholds are those of other findings' \
    "thresholds of other findings" --threshold other.json
sed 's/"threshold": 0.25/"threshold": "x"/' frozen.json >text.json
refused 3 'the threshold of finding .* is neither a number nor null' "a threshold that is text" --threshold text.json
done_testing
