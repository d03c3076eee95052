#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval and predict take several networks as one ensemble: the mean is that of the members' own
# predictions, whatever the ranks and threads, and members that do not fit are refused.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
python_with json || skip_all "no python3 here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }

train() { # OUTPUT SEED OPTION...
    quiet chex-train --output "$1" --seed "$2" --data set --model densenet_tiny --image-size 32 --batch-size 8 \
        --epochs 1 --max-steps 3 --lr 1e-3 --engine cpu --threads 2 "${@:3}"
}
phantom_set 90
for s in 1 2 3; do train runs/seed-$s $s; done
mkdir runs/notes
a=runs/seed-1/best.h5 b=runs/seed-2/best.h5 c=runs/seed-3/best.h5
evaluate() { chex-eval --data set --threads 2 "$@"; }
for s in 1 2 3; do
    expect_status 0 evaluate --checkpoint runs/seed-$s/best.h5 --output one-$s --tta flip -q
done

expect_status 0 evaluate --checkpoint $a,$b,$c --output ens --tta flip --unit patient
like "$(err)" 'ensemble of 3 networks by mean-probability: each image is decoded once and inferred 3 times; .* MiB on each rank' \
    "the start names the members' number and their memory"
like "$(out)" '^ensemble of 3 networks; mean AUROC of each: 0\.[0-9]{4} 0\.[0-9]{4} 0\.[0-9]{4}$' \
    "the members are printed below the table"
expect_status 0 evaluate --checkpoint runs --output folder --tta flip --ensemble mean-logit -q
for s in 1 2 3; do
    expect_status 0 chex-eval predict --images ph/images --checkpoint runs/seed-$s/best.h5 --output p-$s --threads 2 -q
done
expect_status 0 chex-eval predict --images ph/images --checkpoint $a,$b,$c --ensemble mean-logit --output p-logit \
    --threads 2 -q
expect_status 0 chex-eval predict --images ph/images --checkpoint runs --output p-ens --threads 2 -q
cat >check.py <<'END'
import csv, json, math, statistics, sys
def read(path):
    rows = list(csv.DictReader(open(path + "/predictions.csv")))
    return {row["image_id"]: row for row in rows}, [k[2:] for k in rows[0] if k.startswith("p_")]
def logit(p): return math.log(p) - math.log1p(-p)
def means(ensemble, members, by_logit):
    ours, names = read(ensemble)
    theirs = [read(m)[0] for m in members]
    worst = spread = 0
    for image, row in ours.items():
        for k in names:
            p = [float(t[image]["p_" + k]) for t in theirs]
            mean = 1 / (1 + math.exp(-sum(map(logit, p)) / len(p))) if by_logit else sum(p) / len(p)
            worst = max(worst, abs(mean - float(row["p_" + k])))
            spread = max(spread, abs(statistics.stdev(p) - float(row["s_" + k])))
    assert len(ours) > 10 and worst < 1e-6 and spread < 1e-6, (len(ours), worst, spread)
def gains(ensemble, members):
    e = json.load(open(ensemble + "/auroc.json"))
    g, units = e["ensemble"], [json.load(open(m)) for m in members]
    for c, k in enumerate(e["classes"]):
        for m, unit in enumerate(units):
            x, y = k["member_%d" % (m + 1)], unit["classes"][c]["auroc"]
            assert (x is None) == (y is None) and (x is None or abs(x - y) < 1e-12), (k, m)
    assert abs(g["member_%d" % g["best_member"]] - max(u["mean"] for u in units)) < 1e-12
    assert abs(g["gain"] - (e["mean"] - sum(u["mean"] for u in units) / len(units))) < 1e-12
    return g["best_member"]
def compared(ensemble, comparison):
    e, c = json.load(open(ensemble + "/auroc.json")), json.load(open(comparison))
    for ours, theirs in zip(e["classes"] + [e["ensemble"]], c["classes"] + [c["mean"]]):
        for key, other in ("", "difference"), ("_ci_low", "ci_low"), ("_ci_high", "ci_high"):
            x, y = ours["gain_over_best" + key], theirs[other]
            assert (x is None) == (y is None) and (x is None or abs(x - y) < 1e-12), (ours, theirs)
END
check() { PYTHONPATH=. "$python" -c "from check import *
$1"; }
check 'means("folder", ["one-1", "one-2", "one-3"], False)' 2>/dev/null
[ $? -ne 0 ]
ok $? "the check tells the two means apart"
expect_status 0 check 'means("p-ens", ["p-1", "p-2", "p-3"], False)'
expect_status 0 check 'means("p-logit", ["p-1", "p-2", "p-3"], True)'

expect_status 0 evaluate --checkpoint $a,$b,$c --output plain -q
for s in 1 2 3; do
    expect_status 0 evaluate --checkpoint runs/seed-$s/best.h5 --output plain-$s -q
    expect_status 0 chex-eval score --predictions one-$s/predictions.csv --unit patient --output unit-$s -q
done
expect_status 0 check 'means("plain", ["plain-1", "plain-2", "plain-3"], False)'
expect_status 0 check 'means("ens", ["one-1", "one-2", "one-3"], False)'
expect_status 0 check 'gains("ens", ["unit-%d/auroc.json" % s for s in (1, 2, 3)])'
best=$(check 'print(gains("plain", ["plain-%d/auroc.json" % s for s in (1, 2, 3)]))')
expect_status 0 chex-eval compare plain/predictions.csv "plain-$best/predictions.csv" --output against
like "$(out)" 'differs in: unknown; first file: it is of an ensemble, and each member has' \
    "compare says that the members have the training options"
expect_status 0 check 'compared("plain", "against/compare.json")'
expect_status 0 chex-eval card --evaluation plain --output card.md
like "$(cat card.md)" '^\| members \| runs/seed-1/best.h5, runs/seed-2/best.h5, runs/seed-3/best.h5 \|$' "a card names the members"
columns() { "$python" -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[1])): print(*(row[k] for k in sorted(row) if k[:2] in ("im", "p_", "s_")))' "$1" | sort; }
columns plain/predictions.csv >evaluated
columns p-ens/predictions.csv >all
is "$(grep -cFxf evaluated all)" "$(wc -l <evaluated)" \
    "predict gives the probabilities and spreads of the evaluation, to the last digit"
like "$(cat plain/auroc.json)" '"file": "runs/seed-2/best.h5"' "auroc.json names each member"
is "$(grep -cE '"(seed|step)": [123],?$' plain/auroc.json)" 6 "with its seed and its step"
is "$(head -n 1 plain/auroc.csv | cut -d, -f13-)" "variation,gain,gain_ci_low,gain_ci_high,gain_over_best,$(
)gain_over_best_ci_low,gain_over_best_ci_high,member_1,member_2,member_3" \
    "auroc.csv has the gains, the variation and each member's AUROC"
like "$(cat plain/report.html)" '<th scope="col">gain over the mean member</th>' "so has report.html"
is "$(sed -n 's/.*"digest": "\(.\{32\}\)",/\1/p' p-ens/predict.json | head -n 1)" "$(xxh128sum <$a | cut -d' ' -f1)" \
    "predict.json has the digest of each member's file"
like "$(cat p-ens/predict.json)" '"members": \[' "predict.json names the members"

expect_status 0 evaluate --checkpoint runs --output runs-of-folder --threads 1 --batch-size 3 -q
cmp plain/predictions.csv runs-of-folder/predictions.csv && cmp plain/auroc.csv runs-of-folder/auroc.csv
ok $? "a folder of runs, other threads and other batches give equal bytes"
if mpi_ranks 2; then
    expect_status 0 "${ranks[@]}" chex-eval --data set --checkpoint $a,$b,$c --output ranks --threads 1 -q
    cmp plain/predictions.csv ranks/predictions.csv && cmp plain/auroc.csv ranks/auroc.csv
    ok $? "two ranks give equal bytes"
else
    skip "no two ranks here" 2
fi

# Members that do not fit.
quiet chex-shard --images ph/images --labels ph/labels.csv --size 36 --split patient --output set36
train large 4 --data set36 --image-size 36
train two 4 --findings Effusion,Mass
train turned 5 --findings Mass,Effusion
head -c 20000 $b >cut.h5
refused() { # STATUS CHECKPOINT TEXT NAME
    expect_status "$1" evaluate --checkpoint "$2" --output never
    error_line "$3" "$4"
    [ ! -e never ]
    ok $? "and nothing is written"
}
no="no member of this ensemble:"
refused 3 $a,two/best.h5 "two/best.h5: $no number of findings 2 \(expected 14, as in $a\)" "other findings are refused"
refused 3 two/best.h5,turned/best.h5 "turned/best.h5: $no findings .\"Mass\",\"Effusion\". \(expected .\"Effusion\",\"Mass\"., as in two/best.h5\)" \
    "findings in another order are refused"
refused 3 $a,large/best.h5 "large/best.h5: $no image size 36 \(expected 32, as in $a\)" "another image size is refused"
refused 3 $a,cut.h5 'cut.h5: ' "a truncated member is refused"
refused 2 $a,$b,runs/../$a "$a and runs/../$a are one file \(expected each once\)" \
    "a network that is named twice is refused"
refused 2 $a,,$b 'an empty name between commas' "an empty name is refused"
refused 3 $a,none.h5 'none.h5: ' "a missing member is refused"
refused 2 runs/seed-1 'a folder, expected a file; did you mean runs/seed-1/best.h5' "the folder of one run is no ensemble"
refused 2 ph 'ph: a folder, expected a file such as best.h5 of chex-train, or a folder with' "nor is a folder without runs"
mv runs/seed-2/best.h5 a,b.h5
refused 3 runs 'runs/seed-2/best.h5: No such file' "a run without best.h5 is not left out"
expect_status 0 evaluate --checkpoint a,b.h5 --output comma -q
cmp comma/predictions.csv plain-2/predictions.csv
ok $? "a file whose name has a comma is one network"
expect_status 2 chex-eval cam --image ph/images/00000001_000.png --checkpoint $a,$c --output never.png
error_line 'an ensemble of 2 networks \(expected one, whose map is drawn\)' "cam draws one network"
expect_status 2 chex-eval predict --images ph/images --checkpoint $a,$c --output never --heat-maps 1
error_line '\-\-heat-maps: .* is an ensemble of 2 networks' "so do heat maps"
done_testing
