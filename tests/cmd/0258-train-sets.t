#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --data of several sets trains on them as one, and reports each.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff python3 chex-train chex-eval chex-shard

# Two sets of other images, with findings that overlap in part.
make() { # NAME SEED COLUMNS SIZE [SEED-OF-THE-SPLIT]
    chex-shard phantom --count 30 --size 32 --seed "$2" --output ph -q || fail "phantom"
    python3 - "$3" <<'E' || fail "labels"
import csv, sys
names = sys.argv[1].split(":")
with open("labels.csv", "w") as f:
    f.write("image,patient,view,%s\n" % ",".join(names))
    for i, row in enumerate(csv.DictReader(open("ph/labels.csv"))):
        f.write("%s,%s,%s,%s\n" % (row["Image Index"], row["Patient ID"], "PA" if i % 2 else "AP",
                                  ",".join(str((i + k) % 3 % 2) for k in range(len(names)))))
E
    chex-shard create --images ph/images --labels labels.csv --format csv --size "$4" --shards 2 --split patient \
        --seed "${5:-1}" --columns "image=image,patient=patient,view=view,labels=$3" --output "$1" -q 2> /dev/null || fail "shards $1"
    rm -r ph
}
make a 1 Mass:Edema 32
make b 2 Edema:Hernia 32
train() { # OUTPUT OPTION...
    local out=$1
    shift
    chex-train --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --precision fp32 --lr 1e-3 --seed 5 --threads 1 \
        --logical-ranks 2 --deterministic --output "$out" "$@"
}

expect_status 0 train run --data a,two=b --epochs 1
like "$(err)" 'set a: [0-9]+ training images, [0-9]+ validation images' "the log counts the images of each set"
like "$(err)" 'set two: [0-9]+ training images' "a set has the name that --data gives it"
like "$(err)" ' 3 findings' "the findings are the union"
like "$(err)" 'set a: val AUROC' "the log has the AUROC in each set"
python3 - <<'E'
import json
line = [json.loads(x) for x in open("run/metrics.jsonl")][-1]
assert set(line["auroc"]) == {"Mass", "Edema", "Hernia"}
assert list(line["sets"]) == ["a", "two"], line["sets"]
assert line["sets"]["a"]["auroc"]["Hernia"] is None and line["sets"]["two"]["auroc"]["Mass"] is None
known = [v for v in line["sets"]["two"]["auroc"].values() if v is not None]
assert not known or abs(line["sets"]["two"]["val_auroc_mean"] - sum(known) / len(known)) < 1e-6
E
ok $? "the metrics have the AUROC of each finding in each set, null where a set does not have it"
like "$(cat run/run.html)" 'AUROC by set' "the page of the run has a table of the sets"

# One set of two is the set alone.
expect_status 0 train alone --data b --findings Edema --max-steps 2
expect_status 0 train chosen --data a,b --findings Edema --where source=b --max-steps 2
h5diff -q alone/last.h5 chosen/last.h5 /params /params
ok $? "a condition on the source gives the bits of that set alone"
mkdir node
expect_status 0 train copied --data a,two=b --epochs 1 --stage node
h5diff -q run/last.h5 copied/last.h5 /params /params
ok $? "copies of both sets on the node give the same bits"
is "$(ls node)" "" "the copies are removed"

# A resumed run needs the same sets; chex-eval knows them.
expect_status 2 train run --data a --epochs 2
error_line 'it was trained on another set .* in a,two=b\)' "a resumed run with one set of two is refused"
expect_status 2 train run --data b,a --epochs 2
expect_status 0 train run --data a,two=b --epochs 2 --max-steps 6
expect_status 3 chex-eval --checkpoint run/last.h5 --data b --split train --output eval --bootstrap 0
error_line 'was trained on split train of this data' "an evaluation on the training images of the second set is refused"
expect_status 0 chex-eval --checkpoint run/last.h5 --data b --split test --output eval --bootstrap 0
unlike "$(err)" 'it is unknown whether' "an evaluation on its test images is known to be sound"

expect_status 0 train plan --data a,two=b --where view=PA --engine ref --plan
like "$(out)" 'set two \(b\): [0-9]+ images of training' "a plan lists the sets"
like "$(out)" 'where view=PA: [0-9]+ images of training' "a plan counts the chosen images"

python3 - <<'E'
import json
data = json.load(open("run/provenance.json"))["starts"][0]["data"]
assert [s["name"] for s in data["sets"]] == ["a", "two"] and data["manifest_digest"] is None, data
assert all(len(s["manifest_digest"]) == 32 for s in data["sets"]), data
E
ok $? "provenance.json has the digest of the manifest of each set"
expect_status 0 chex-train --prove run --stretches 1
expect_status 0 train plan --data first=a --where source=first --engine ref --plan
like "$(out)" 'where source=first: [0-9]+ images of training' "one set can have a name"

# Weights: images of the second set come twice in an epoch.
expect_status 0 train plan --data a,two=b --data-weights 1,2 --engine ref --plan
like "$(out)" 'set two \(b\): 20 images of training, each used 2 times in an epoch' "a plan has the uses of each set"
expect_status 0 train weighted --data a,two=b --data-weights 1,2 --epochs 1
like "$(err)" 'set two: 20 training images, each used 2 times in an epoch' "the log has the uses of each set"
expect_status 2 train weighted --data a,two=b --data-weights 1,3 --epochs 2
error_line "data.weights" "a resumed run with other weights is refused"
expect_status 2 train new --data a,two=b --data-weights 1,2,3
error_line '3 numbers .expected 2, one for each set of --data' "weights for other sets than there are are refused"
if mpi_ranks 2; then
    expect_status 0 "${ranks[@]}" chex-train --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --precision fp32 --lr 1e-3 \
        --seed 5 --threads 1 --logical-ranks 2 --deterministic --output two --data a,two=b --data-weights 1,2 --epochs 1
    h5diff -q weighted/last.h5 two/last.h5 /params /params
    ok $? "two processes give the same bits with weights"
else
    skip "no mpirun here" 2
fi

# The same images in train of one set and in val or test of another: other seeds split otherwise.
make other 1 Edema 32 9
make ids 2 Edema 32 9
expect_status 3 train new --data a,other
error_line '[0-9]+ validation or test images are each a training image of another set .the first: [^ ]*png of ' \
    "images in train of one set and in val or test of another are refused"
expect_status 0 train one --data a,other --where source=other --max-steps 1
like "$(out)$(err)" 'set other' "one of the two sets can be trained on"
expect_status 0 train shared --data a,ids --max-steps 1
like "$(err)" 'images? (is|are) of patients whose ids training images of another set have' \
    "equal patient ids in two sets give a warning"

# Bad input.
make c 3 Edema 40
expect_status 3 train new --data a,c
error_line 'a has images of 32 px and c of 40 px' "sets of two sizes are refused"
expect_status 2 train new --data a,a
error_line 'a and a are the same set' "a set given twice is refused"
expect_status 2 train new --data a,x/a
error_line 'two sets are named a' "two sets of one name are refused"
cp -r a again
expect_status 3 train new --data a,again
error_line 'a and again are the same set' "a copy of a set is refused"
expect_status 2 train new --data a, --findings Edema
error_line "''" "an empty name is refused"
expect_status 3 train new --data a,none
error_line 'none: no such folder' "a folder that does not exist is refused"
expect_status 2 train new --data a,b --where source=two
error_line "'two' is no set of --data" "a condition on an unknown set is refused"
expect_status 2 train new --data a,b --findings Mass
error_line 'b has none of them' "a set without any chosen finding is refused"
[ ! -e new ]
ok $? "a refused run leaves no folder"
done_testing
