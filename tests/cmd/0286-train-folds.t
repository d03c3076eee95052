#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --folds K --fold I: cross-validation by patient on one set of shards.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff python3 chex-train chex-eval chex-shard

# 30 patients with one to three images. Fibrosis has three positive patients, Hernia two.
chex-shard phantom --count 64 --size 32 --seed 1 --output ph -q || fail "phantom"
python3 - <<'E' || fail "labels"
import csv
names = ["Mass", "Edema", "Fibrosis", "Hernia"]
with open("labels.csv", "w") as f:
    f.write("image,patient,view,%s\n" % ",".join(names))
    for i, row in enumerate(csv.DictReader(open("ph/labels.csv"))):
        p = i * 7 % 30
        y = [i % 3 == 0, i % 4 == 0, p in (2, 9, 17), p in (5, 21)]
        f.write("%s,p%d,%s,%s\n" % (row["Image Index"], p, "PA" if i % 2 else "AP", ",".join(str(int(v)) for v in y)))
open("test.txt", "w").writelines(row["image"] + "\n" for row in csv.DictReader(open("labels.csv")) if row["patient"] in ("p0", "p1"))
open("val.txt", "w").writelines(row["image"] + "\n" for row in csv.DictReader(open("labels.csv")) if row["patient"] in ("p2", "p5", "p8"))
open("train.txt", "w").writelines(row["image"] + "\n" for row in csv.DictReader(open("labels.csv"))
                                  if row["patient"] not in ("p0", "p1", "p2", "p5", "p8"))
E
create() { # OUTPUT OPTION...
    chex-shard create --images ph/images --labels labels.csv --format csv --size 32 --output "$1" -q \
        --columns image=image,patient=patient,view=view,labels=Mass:Edema:Fibrosis:Hernia "${@:2}" 2>/dev/null || fail "shards $1"
}
create set --shards 3 --split official --train-list train.txt --val-list val.txt --test-list test.txt
train() { # OUTPUT OPTION...
    chex-train --data set --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --precision fp32 --lr 1e-3 --seed 5 \
        --threads 1 --epochs 1 --logical-ranks 4 --deterministic --output "$@"
}
evaluate() { chex-eval --engine cpu --precision fp32 --bootstrap 0 --data set --output "$@"; }

for i in 1 2 3; do
    expect_status 0 train "cv/$i" --folds 3 --fold $i
    cat err >>log
    expect_status 0 evaluate "eval/$i" --checkpoint "cv/$i/best.h5"
    like "$(err)" "; fold $i of 3 of set: " "a network of a fold is evaluated on the images that its training left out"
done
like "$(cat log)" 'fold 1 of 3: [0-9]+ patients with [0-9]+ images to validate, [0-9]+ with [0-9]+ to train; rarest finding (Hernia|Fibrosis)' \
    "the log has the size of a fold and its rarest finding"
is "$(grep -c 'fold . of 3: no positives of Hernia$' log)" 1 "the fold without a positive of a finding gives a warning"
unlike "$(cat log)" 'no positives of.*Fibrosis' "each fold has its share of a finding with as many positive patients as folds"
expect_status 0 evaluate eval/test --checkpoint cv/1/best.h5 --split test
expect_status 0 chex-eval score --predictions eval/1/predictions.csv,eval/2/predictions.csv,eval/3/predictions.csv \
    --output pooled --subgroups fold
like "$(out)" '^finding.*within folds' "the pooled table has the AUROC within folds"
python3 - <<'E'
import collections, csv, json
def rows(name):
    return list(csv.DictReader(open("eval/%s/predictions.csv" % name)))
folds = {i: rows(i) for i in (1, 2, 3)}
patients = {i: {r["patient_id"] for r in f} for i, f in folds.items()}
assert not (patients[1] & patients[2] or patients[1] & patients[3] or patients[2] & patients[3])
everybody = {r["patient"] for r in csv.DictReader(open("labels.csv"))}
assert patients[1] | patients[2] | patients[3] == everybody - {r["patient_id"] for r in rows("test")}
assert max(map(len, folds.values())) - min(map(len, folds.values())) <= 4, [len(f) for f in folds.values()]
assert all(r["fold"] == str(i) for i, f in folds.items() for r in f)
E
ok $? "no patient is in two folds, and together the folds have all patients outside of the test split"
python3 - <<'E'
import csv, json
def auroc(rows, name):
    y = [int(r["y_" + name]) for r in rows]
    p = [float(r["p_" + name]) for r in rows]
    try:
        from sklearn.metrics import roc_auc_score
        return float(roc_auc_score(y, p)) if 0 < sum(y) < len(y) else 0.0, sum(y) * (len(y) - sum(y))
    except ImportError:
        pairs = [(a > b) + (a == b) / 2 for a, v in zip(p, y) if v for b, w in zip(p, y) if not w]
        return sum(pairs) / max(1, len(pairs)), len(pairs)
folds = [list(csv.DictReader(open("eval/%d/predictions.csv" % i))) for i in (1, 2, 3)]
result = json.load(open("pooled/auroc.json"))
assert result["folds"]["count"] == 3 and result["images"] == sum(map(len, folds))
for c in result["classes"]:
    parts = [auroc(f, c["name"]) for f in folds]
    assert abs(c["auroc"] - auroc(sum(folds, []), c["name"])[0]) < 1e-12, c
    within = sum(a * n for a, n in parts) / sum(n for a, n in parts)
    assert abs(c["auroc_within_folds"] - within) < 1e-12, (c, within)
mean = sum(c["auroc_within_folds"] for c in result["classes"]) / len(result["classes"])
assert abs(result["folds"]["mean_within"] - mean) < 1e-12
mass = result["classes"][0]
assert mass["auroc_within_folds_ci_low"] < mass["auroc_within_folds"] < mass["auroc_within_folds_ci_high"]
by_fold = [a for a in result["subgroups"]["attributes"] if a["name"] == "fold"][0]
for i, g in enumerate(by_fold["classes"][0]["groups"]):
    assert abs(g["auroc"] - auroc(folds[i], "Mass")[0]) < 1e-12, g
for i in (1, 2, 3):
    last = [json.loads(x) for x in open("cv/%d/metrics.jsonl" % i)][-1]
    assert abs(last["val_auroc_mean"] - json.load(open("eval/%d/auroc.json" % i))["mean"]) < 1e-6
E
ok $? "AUROCs of the pooled predictions, within folds and of each fold are those of scikit-learn or of the definition"
like "$(cat pooled/auroc.csv pooled/report.html)" 'Within folds: only pairs' "the report explains the AUROC within folds"

expect_status 0 chex-eval card --evaluation pooled --output card.md
like "$(cat card.md)" "same fold .*: $(sed -n 's/^    "mean_within": \(0\.[0-9]\{3\}\).*/\1/p' pooled/auroc.json)[0-9]( |\.)" \
    "so does a model card"

# An ensemble of the folds: each image outside of the test split trained some member.
expect_status 0 evaluate eval/ensemble --checkpoint cv
like "$(err)" '; split test of set: ' "an ensemble of the folds is evaluated on the test split"
expect_status 0 chex-eval export --checkpoint cv --output all.safetensors
for from in cv all.safetensors; do
    expect_status 3 evaluate eval/never --checkpoint $from --split fold
    error_line 'split fold: cv/2/best.h5 left out another fold than other members' "$from: the fold of one member is refused"
    for split in train val all; do
        expect_status 3 evaluate eval/never --checkpoint $from --split $split
        error_line "cv/1/best.h5 was trained on split train.val of this data, and split $split" "$from: split $split is refused"
    done
done
expect_status 3 chex-eval deploy --data set --checkpoint cv --output never.safetensors
error_line 'cv/1/best.h5 was trained on split train.val' "its thresholds are not chosen on images that trained members"
[ ! -e eval/never ] && [ ! -e never.safetensors ]
ok $? "a refused ensemble leaves no results"
expect_status 0 train cv2/2 --folds 3 --fold 2 --seed 6
expect_status 0 evaluate eval/two --checkpoint cv/2/best.h5,cv2/2/best.h5
like "$(err)" '; fold 2 of 3 of set: ' "members that left out the same fold are evaluated on it"

# The same folds from any layout, on any number of processes, and from copies.
create other --shards 1 --split official --train-list train.txt --val-list val.txt --test-list test.txt
expect_status 0 evaluate eval/other --checkpoint cv/2/best.h5 --data other
is "$(sort eval/other/predictions.csv)" "$(sort eval/2/predictions.csv)" "the folds do not depend on the shards"
mkdir node
expect_status 0 train copied --folds 3 --fold 2 --stage node
h5diff -q cv/2/last.h5 copied/last.h5 /params /params
ok $? "copies on the node give the same bits"
for n in 2 4; do
    if mpi_ranks $n; then
        expect_status 0 "${ranks[@]}" chex-train --data set --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu \
            --precision fp32 --lr 1e-3 --seed 5 --threads 1 --epochs 1 --logical-ranks 4 --deterministic --output "n$n" --folds 3 --fold 2
        h5diff -q cv/2/last.h5 "n$n/last.h5" /params /params
        ok $? "$n processes give the bits of one"
    else
        skip "no mpirun here" 2
    fi
done

expect_status 0 train plan --folds 3 --fold 2 --plan
like "$(out)" '^ +fold 2 of 3: [0-9]+ images of training, [0-9]+ images of validation$' "a plan has the size of the fold"

# The checkpoint keeps the fold.
like "$(cat cv/3/config.json)" '"fold": "3"' "config.json has the fold"
expect_status 0 train cv/3 --epochs 2
like "$(err)" "taken from .*folds '3', fold '3'" "a resumed run keeps its fold"
expect_status 2 train cv/3 --fold 1 --epochs 3
error_line 'fold is 3 in the checkpoint and 1 now' "another fold is refused"
expect_status 0 chex-eval export --checkpoint cv/1/best.h5 --output net.safetensors
expect_status 0 evaluate eval/exported --checkpoint net.safetensors
like "$(err)" '; fold 1 of 3 of set' "an exported network keeps its fold"
expect_status 3 evaluate eval/val --checkpoint cv/1/best.h5 --split val
error_line 'trained on split train.val of this data, and split val holds the same images' \
    "images of the other folds are refused"
sed 's/1 of 3, ./1 of 99, /' net.safetensors >many.safetensors
expect_status 2 evaluate eval/many --checkpoint many.safetensors --split fold
error_line 'folds 99 --fold 1: expected 2 to 64 folds' "more folds than chex-train makes are refused"
expect_status 0 train plain
expect_status 3 evaluate eval/plain --checkpoint plain/best.h5 --split fold
error_line 'split fold: plain/best.h5 was not trained on folds of set' "a network without a fold has none to evaluate"
sed 's/^\([^,]*,p9,[^,]*,[01],[01]\),1/\1,0/' labels.csv >relabelled.csv
mv relabelled.csv labels.csv
create relabelled --shards 1 --split official --train-list train.txt --val-list val.txt --test-list test.txt
expect_status 3 evaluate eval/relabelled --checkpoint cv/1/best.h5 --split fold --data relabelled
error_line 'was not trained on folds of relabelled' "a set with other labels, which has other folds, is refused"

# Bad input.
refused() { # STATUS TEXT NAME OPTION...
    expect_status "$1" train new "${@:4}"
    error_line "$2" "$3"
}
refused 2 'folds 3 --fold 0: expected 2 to 64 folds' "folds without a fold are refused" --folds 3
refused 2 'folds 3 --fold 4: expected' "a fold beyond the last one is refused" --folds 3 --fold 4
refused 2 'folds: --data names 2 sets' "folds of two sets are refused" --data set,other --folds 3 --fold 1
refused 3 'folds 40: the set has 28 patients' "more folds than patients are refused" --folds 40 --fold 1
[ ! -e new ]
ok $? "a refused run leaves no folder"
expect_status 3 chex-eval score --predictions eval/1/predictions.csv,eval/1/predictions.csv
error_line 'image .*png is in two tables' "a table given twice is refused"
expect_status 2 chex-eval score --predictions eval/1/predictions.csv,,eval/2/predictions.csv
error_line 'predictions.csv,,.*: an empty name, expected a table' "an empty name is refused"
sed '1!s/,1$/,2/' eval/1/predictions.csv | awk -F, 'NR == 1 || NR % 2' OFS=, | sed '1!s/^/x/' >twin.csv
expect_status 3 chex-eval score --predictions eval/1/predictions.csv,twin.csv
error_line 'patient p[0-9]+ is in fold 1 and in fold 2' "tables that share a patient are refused"
expect_status 3 chex-eval score --predictions eval/1/predictions.csv,labels.csv
for i in {1..65}; do
    printf 'image_id,y_A,p_A\ni%s,1,0.5\nj%s,0,0.4\n' "$i" "$i" >"t$i.csv"
done
expect_status 2 chex-eval score --predictions "$(echo t?.csv t??.csv | tr ' ' ,)"
error_line 'predictions: more than 64 tables' "more tables than folds are refused"
done_testing
