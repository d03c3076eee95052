#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --findings NAME=A|B trains on the union of findings, and chex-eval evaluates it.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff python3 chex-train chex-eval chex-shard

chex-shard phantom --count 60 --size 32 --seed 1 --output ph -q || fail "phantom"
# All 16 pairs of labels; `any` has the union as the rule says.
python3 - <<'E' || fail "labels"
import csv
values = ["1", "0", "-1", ""]
with open("labels.csv", "w") as f:
    f.write("image,patient,Mass,Edema,Effusion,any\n")
    for i, row in enumerate(csv.DictReader(open("ph/labels.csv"))):
        pair = [values[i % 4], values[i // 4 % 4]]
        union = [v for v in ("1", "-1", "", "0") if v in pair][0]
        f.write("%s,p%d,%d,%s,%s,%s\n" % (row["Image Index"], i, i % 3 == 0, *pair, union))
E
create() { # OUTPUT FINDINGS
    chex-shard create --images ph/images --labels labels.csv --format csv --size 32 --shards 2 --split patient --seed 1 \
        --fractions 0.4,0.2,0.4 --columns "image=image,patient=patient,labels=$2" --output "$1" -q 2>/dev/null || fail "shards $1"
}
create set Mass:Edema:Effusion
create stated Mass:any
train() { # OUTPUT OPTION...
    chex-train --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --precision fp32 --lr 1e-3 --seed 5 --threads 1 \
        --max-steps 2 --output "$@"
}
evaluate() { chex-eval --engine cpu --precision fp32 --bootstrap 0 --output "$@"; }
for policy in ignore any=ones; do
    expect_status 0 train "stated-$policy" --data stated --uncertain "$policy"
    expect_status 0 train "union-$policy" --data set --findings 'Mass,any=Edema|Effusion' --uncertain "$policy"
    h5diff -q "stated-$policy/last.h5" "union-$policy/last.h5" /params /params
    ok $? "--uncertain $policy: a union gives the bits of shards whose labels state it"
done
expect_status 0 evaluate e1 --checkpoint stated-ignore/last.h5 --data stated
expect_status 0 evaluate e2 --checkpoint union-ignore/last.h5 --data set
unlike "$(err)" 'does not state' "chex-eval makes the union of a set that does not state it"
is "$(cat e2/predictions.csv)" "$(cat e1/predictions.csv)" "its labels and predictions are those of shards that state it"
expect_status 0 chex-eval export --checkpoint union-ignore/last.h5 --output net.safetensors
expect_status 0 evaluate e3 --checkpoint net.safetensors --data set
is "$(cat e3/predictions.csv)" "$(cat e1/predictions.csv)" "an exported network keeps the union"
expect_status 0 train other --data set --findings 'Mass,any=Mass|Effusion'
expect_status 3 evaluate never --checkpoint union-ignore/last.h5,other/last.h5 --data set
error_line 'other/last.h5: no member of this ensemble: unions of findings "Mass,any=Mass.Effusion" \(expected "Mass,any=Edema.Effusion"' \
    "networks with other unions of one name are no ensemble"
expect_status 0 evaluate e4 --checkpoint union-ignore/last.h5 --data stated --allow-overlap
is "$(cat e4/predictions.csv)" "$(cat e1/predictions.csv)" "a set that states the finding itself is taken at its word"
refused() { # TEXT NAME OUTPUT OPTION...
    expect_status 2 train "$3" --data set "${@:4}"
    error_line "$1" "$2"
}
expect_status 0 train union-ignore --data set --max-steps 3
like "$(err)" "findings 'Mass,any=Edema.Effusion'" "a resumed run keeps the union"
refused 'findings is .* in the checkpoint' "another union of this name is refused" union-ignore --findings 'Mass,any=Mass|Effusion'
refused "no finding 'Efusion'; did you mean Effusion" "a part that is not there is refused" new --findings 'any=Edema|Efusion'
refused "'Mass': it is a finding of the data .expected a new name" "the name of a finding is refused" new --findings 'Mass=Edema|Effusion'
refused "no finding ''" "a union of nothing is refused" new --findings 'any='
refused "no finding ''" "an empty part of a union is refused" new --findings 'any=Edema||Effusion'
refused "any is listed twice" "a name given twice is refused" new --findings 'any=Edema,any=Mass'
[ ! -e new ]
ok $? "a refused run leaves no folder"
done_testing
