#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# share/reference_run.sh on synthetic images in the form of the NIH.
. "$(dirname "$0")/lib.sh"
need chex-train
script=$SOURCE/share/reference_run.sh
rehearse() { "$script" --rehearse phantom --output run --model densenet_tiny --seeds 1,2 --epochs 1 "$@"; }

expect_status 0 rehearse --plan
like "$(out)" "^images +801 for training and validation, 199 for the test" "the plan counts the images of the lists"
like "$(out)" "^time +[0-9]+ min for 2 trainings, epochs: 1" "the plan states the time"
[ ! -e run/shards ]
ok $? "the plan makes no shards"
expect_status 0 rehearse
like "$(out)" "^ensemble of 2 networks" "the networks are evaluated as one ensemble"
is "$(grep -c 'seed-[12] step 10$' run/digests.txt) $(grep -c '/predictions.csv$' run/digests.txt)" "2 3" \
    "the digests are those of both networks and of three evaluations"
cp run/digests.txt before
expect_status 0 rehearse --launch env
is "$(grep -c '^run/.* is complete' "$SCRATCH/out") $(cmp before run/digests.txt && echo equal)" "4 equal" \
    "a second start repeats what is not complete, and gives the same digests"

expect_status 2 "$script" --output run
like "$(err)" "data or --rehearse is missing" "the input must be given"
expect_status 2 "$script" --rehearse both --output run
expect_status 2 rehearse --seeds 1,x
expect_status 2 rehearse --epochs 0
expect_status 2 rehearse --nosuch
expect_status 3 rehearse --init nosuch.h5
mkdir nih
expect_status 3 "$script" --data nih --output other
like "$(err)" "^reference_run: nih/Data_Entry_2017.csv: not there" "a missing file is named"
done_testing
