# SPDX-License-Identifier: Apache-2.0
# chex-shard knows which columns of a table are findings.
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 24 --size 32 --output ph --quiet || exit 1
mapfile -t images < <(ls ph/images)
make=(--images ph/images --size 32 --shards 1 --split patient)

{
    echo "Image,Effusion,COVID,width,follow-up number"
    for i in {0..23}; do echo "${images[$i]},$((i % 2)),$((i / 2 % 2)),$((i + 900)),0"; done
} >own.csv
expect_status 0 chex-shard "${make[@]}" --labels own.csv --output o1
like "$(err)" "2 findings, own findings: COVID" "a column of labels is a finding of its own"
like "$(err)" "ignored columns: width, follow-up number$" "other columns are listed as ignored"
expect_status 0 chex-shard info o1
like "$(out)" "COVID +[1-9]" "the shards hold the labels of the finding"
expect_status 0 chex-shard info o1 --json
like "$(out | tr -d ' \n')" '"classes":\["Effusion","COVID"\]' "known findings come first"

{
    echo "Image,COVID"
    for i in {0..23}; do echo "${images[$i]},$((i % 2))"; done
} >covid.csv
expect_status 0 chex-shard "${make[@]}" --labels covid.csv --output o2
expect_status 0 chex-shard info o2 --json
like "$(out | tr -d ' \n')" '"classes":\["COVID"\]' "no known finding is needed"

sed '2,$s/,[01]$/,yes/' covid.csv >words.csv
expect_status 3 chex-shard "${make[@]}" --labels words.csv --output o3 --quiet
error_line "words.csv: no column holds labels \(every value 1, 0, -1 or empty\)" "a table without labels is refused"

# Findings without positives or negatives.
{
    echo "Image,Effusion,COVID,Mass"
    for i in {0..23}; do echo "${images[$i]},$((i % 2)),0,1"; done
} >gaps.csv
expect_status 0 chex-shard "${make[@]}" --labels gaps.csv --output o4 --quiet
like "$(err)" "warn: split train: no positives of COVID; no negatives of Mass$" "gaps of train are one line"
like "$(err)" "warn: split test: .*no positives of COVID" "gaps of test too"
[ "$(grep -c warn <<<"$(err)")" -le 3 ]
ok $? "there is one line a split"
sed '2,$s/,.*/,1,0,1/' gaps.csv >constant.csv
expect_status 0 chex-shard "${make[@]}" --labels constant.csv --output o5 --quiet
like "$(err)" "warn: split train: nothing can be learned and no AUROC computed: no finding has both positives and negatives \(3 findings" "constant labels are reported"
expect_status 3 chex-train --data o5 --output run --engine cpu --image-size 32 --max-steps 1
error_line "nothing can be learned" "training refuses the set"
printf '%s\n' "${images[@]:0:8}" >test.txt
expect_status 0 chex-shard "${make[@]}" --labels constant.csv --split official --test-list test.txt --output o6 --quiet
like "$(err)" "warn: split test: nothing can be learned and no AUROC computed: no finding has both" "images to evaluate are accepted with a warning"
expect_status 0 chex-shard "${make[@]}" --labels constant.csv --split none --output o7 --quiet
like "$(err)" "warn: split all: nothing can be learned and no AUROC computed" "images without a split too"
done_testing
