#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-eval --where evaluates a part of a split.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need python3 chex-train chex-eval chex-shard

phantom_set 60
chex-train --data set --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --precision fp32 --threads 1 --max-steps 1 \
    --output run -q 2>/dev/null || fail "a run"
evaluate() { chex-eval --engine cpu --precision fp32 --bootstrap 0 --checkpoint run/last.h5 --output "$@"; }
expect_status 0 evaluate whole --data set --split all --allow-overlap
expect_status 0 evaluate part --data set --split all --allow-overlap --where 'view=PA,age<60,sex=F'
like "$(err)" 'split all of set: [0-9]+ images?' "the log counts the images"
python3 - <<'E'
import csv, json
def rows(name):
    return list(csv.DictReader(open(name + "/predictions.csv")))
chosen = [r for r in rows("whole") if r["view"] == "PA" and r["sex"] == "F" and int(r["age_years"]) < 60]
assert chosen and len(chosen) < len(rows("whole"))
assert [tuple(r.values()) for r in rows("part")] == [tuple(r.values()) for r in chosen]
assert json.load(open("part/auroc.json"))["provenance"]["where"] == "view=PA,age<60,sex=F"
E
ok $? "the rows are those that meet the conditions, with the same predictions, and auroc.json records the conditions"
like "$(cat part/report.html)" '<title>.*set where view=PA,age&lt;60,sex=F' "the title of the report has the conditions"
if mpi_ranks 2; then
    expect_status 0 "${ranks[@]}" chex-eval --engine cpu --precision fp32 --bootstrap 0 --checkpoint run/last.h5 --output two \
        --data set --split all --allow-overlap --where 'view=PA,age<60,sex=F'
    is "$(cat two/predictions.csv)" "$(cat part/predictions.csv)" "two processes give the same predictions"
else
    skip "no mpirun here" 2
fi
expect_status 3 evaluate none --data set --where 'age>150'
error_line 'where: none of the [0-9]+ images meets the conditions' "conditions that no image meets are refused"
expect_status 2 evaluate none --data set --where source=set
error_line "'source', expected view, age or sex" "a condition on the source is refused: each set is evaluated by itself"
[ ! -e none ]
ok $? "a refused evaluation leaves no folder"
done_testing
