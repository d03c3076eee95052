#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --findings, --uncertain and --where choose what a run sees; the checkpoint keeps the choice.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff h5dump python3 chex-train chex-shard

chex-shard phantom --count 40 --size 32 --seed 1 --output ph -q || fail "phantom"
python3 - <<'E' || fail "labels"
import csv
names = ["Mass", "Edema", "Effusion"]
with open("labels.csv", "w") as f:
    f.write("image,patient,view,age,sex,%s\n" % ",".join(names))
    for i, row in enumerate(csv.DictReader(open("ph/labels.csv"))):
        found = row["Finding Labels"].split("|")
        y = [-1 if (i + k) % 5 == 0 else int(n in found or (i + k) % 3 == 0) for k, n in enumerate(names)]
        f.write("%s,%s,%s,%s,%s,%s\n" % (row["Image Index"], row["Patient ID"], "PA" if i % 2 else "AP",
                                         20 + i, "F" if i % 3 else "M", ",".join(map(str, y))))
E
columns="image=image,patient=patient,view=view,age=age,sex=sex,labels=Mass:Edema:Effusion"
create() { # OUTPUT OPTION...
    local out=$1
    shift
    chex-shard create --images ph/images --labels labels.csv --format csv --columns $columns --size 32 \
        --shards 2 --split patient --seed 1 --output "$out" -q "$@" 2> /dev/null || fail "shards $out"
}
create kept
create ones --uncertain ones
train() { # DATA OUTPUT OPTION...
    local data=$1 out=$2
    shift 2
    chex-train --data "$data" --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --precision fp32 --lr 1e-3 \
        --seed 5 --max-steps 2 --threads 1 --output "$out" "$@"
}
same() { # FILE FILE NAME
    h5diff -q "$1" "$2" /params /params
    ok $? "$3"
}

# A policy in training gives the bits of shards that were made with it.
expect_status 0 train ones made
expect_status 0 train kept chosen --uncertain ones
like "$(err)" 'uncertain labels: ones' "the log states the policy"
same made/last.h5 chosen/last.h5 "--uncertain ones gives the bits of shards made with ones"
expect_status 0 train kept smooth --uncertain smooth:1
same made/last.h5 smooth/last.h5 "the target 1 gives the same bits"
expect_status 0 train kept plain
all=$(python3 -c 'import json; print(",".join(json.load(open("kept/manifest.json"))["classes"]))')
expect_status 0 train kept all --findings "${all,,}" --uncertain ignore --where 'age>=0'
same plain/last.h5 all/last.h5 "a choice of everything gives the bits of no choice"
expect_status 0 train kept mixed --uncertain ones,Edema=ignore
h5diff -q made/last.h5 mixed/last.h5 /params /params
is $? 1 "a policy of one finding changes the run"

# Findings and images.
chosen=(--findings "Effusion,Mass" --where 'view=PA,age<=50,sex=F|M')
expect_status 0 train kept run "${chosen[@]}"
like "$(err)" '2 findings' "the network has the chosen findings"
like "$(err)" 'where view=PA,age<=50,sex=F.M: [0-9]+ of [0-9]+ training images, [0-9]+ of [0-9]+ validation' \
    "the log counts the chosen images"
like "$(h5dump -a /classes run/last.h5 | tr -d '\n')" 'Effusion.*Mass' "the checkpoint has the findings in their order"
like "$(cat run/config.json)" '"where": "view=PA,age<=50,sex=F.M"' "config.json has the conditions"
expect_status 0 train kept run --max-steps 3
like "$(err)" "taken from .*findings 'Effusion,Mass'.*where 'view=PA" "a resumed run keeps the choice"
expect_status 0 train kept whole "${chosen[@]}" --max-steps 3
same run/last.h5 whole/last.h5 "a resumed run has the bits of one that did not stop"

refused() { # STATUS TEXT NAME OUTPUT OPTION...
    local status=$1 text=$2 name=$3
    shift 3
    expect_status "$status" train kept "$@"
    error_line "$text" "$name"
}
refused 2 'where is "view=PA,age<=50,sex=F|M" in the checkpoint and "view=AP" now' "other conditions are refused" \
    run --where view=AP
refused 2 'uncertain is "ignore" in the checkpoint and "ones" now' "another policy is refused" run --uncertain ones
refused 2 'its 2 findings are not the 1 of kept with --findings Mass' "other findings are refused" run --findings Mass
expect_status 2 train ones run --findings Mass,Edema --uncertain Effusion=ones
error_line "resuming from run/checkpoints/step-[0-9]+.h5: --uncertain: the data has no finding 'Effusion'" \
    "an error that the options of a run may have caused names its checkpoint"
refused 2 "the data has no finding 'Efusion'; did you mean Effusion?" "an unknown finding is refused" \
    new --findings Efusion
refused 2 "'side', expected PA, AP, lateral or unknown" "an unknown view is refused" new --where view=side
refused 2 "'maybe', expected ignore, zeros, ones" "an unknown policy is refused" new --uncertain maybe
refused 3 'training images meets the conditions' "conditions that no image meets are refused" new --where 'age>100'
[ ! -e new ]
ok $? "a refused run leaves no folder"
done_testing
