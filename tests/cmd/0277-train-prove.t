#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --prove repeats stretches of a run, compares them with what the run recorded, and
# changes nothing.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need /usr/bin/python3 chex-train chex-shard

chex-shard phantom --count 60 --size 32 --seed 1 --output ph -q >/dev/null || fail "phantom"
chex-shard create --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
    --seed 1 --output shards -q >/dev/null 2>&1 || fail "shards"
new=(--data shards --model densenet_tiny --image-size 32 --batch-size 3 --engine cpu --precision fp32
    --checkpoint-keep 0 --checkpoint-every 2steps)

expect_status 0 chex-train "${new[@]}" --max-steps 4 --deterministic --logical-ranks 2 --output run
expect_status 0 chex-train --data shards --engine cpu --max-steps 6 --lr 3e-4 --output run
before=$(find run -type f -exec sha256sum {} + | sort)

# Without options: the data, the engine and all the rest are the run's.
expect_status 0 chex-train --prove run --stretches 0
like "$(out)" 'from step +0 to +2: equal, digest [0-9a-f]{32}' "the first stretch begins with the initial state"
like "$(out)" 'from step +4 to +6: equal' "a start with another --lr is repeated with that --lr"
like "$(out)" '^run: 3 of 3 repeated stretches are equal to the last bit \(3 of 3' "all stretches are equal"
is "$(find run -type f -exec sha256sum {} + | sort)" "$before" "the run's files are unchanged"
expect_status 0 chex-train --prove run --stretches 2 --threads 2 --json
like "$(out)" '"equal_stretches": 2' "K stretches are chosen"
is "$(grep -c '"repeated_digest"' out)" 2 "--json has an object for each of them"
cp out result.json
/usr/bin/python3 -c 'import json; json.load(open("result.json"))'
ok $? "--json is one object"
mv shards moved
expect_status 3 chex-train --prove run
expect_status 0 chex-train --prove run --data moved --stretches 1
mv moved shards

if mpi_ranks 2; then
    expect_status 0 "${ranks[@]}" chex-train --prove run --stretches 1
    like "$(out)" '1 of 1 repeated' "two processes prove a deterministic run of one"
    expect_status 0 "${ranks[@]}" chex-train "${new[@]}" --max-steps 2 --output two
    expect_status 2 chex-train --prove two
    error_line 'computed by 2 processes without --deterministic: prove them with as many \(these are 1\)' \
        "a run without --deterministic needs the same number of processes"
else
    skip "no mpirun here" 5
fi

# What provenance.json says.
/usr/bin/python3 - >said <<'END'
import json
p = json.load(open("run/provenance.json"))
s = p["starts"]
print([x["from_step"] for x in s], [c["step"] for c in p["checkpoints"]])
print(s[0]["machines"][0]["engine"], len(s[0]["machines"][0]["variant"]) > 0, s[0]["data"]["rows"] > 0,
      len(s[0]["program"]["digest"]), len(s[0]["data"]["source_digest"]), s[1]["from"])
END
is "$(sed -n 1p said)" "[0, 4] [2, 4, 6]" "provenance.json has the starts and the checkpoints"
is "$(sed -n 2p said)" "cpu True True 32 32 run/checkpoints/step-0000000004.h5" \
    "a start has engine, variant, digests and the checkpoint that it went on from"

# Runs that are not what their records say.
other() { # NAME SED-SCRIPT FILE: a copy of the run with a changed file
    cp -r run "$1"
    sed -i "$2" "$1/$3"
}
digest=$(sed -n 's/.*"step":4,.*"digest":"\([0-9a-f]*\)".*/\1/p' run/checkpoints.jsonl | tail -1)
other lied "/\"step\":4,/s/$digest/${digest//[0-7]/8}/" checkpoints.jsonl
expect_status 3 chex-train --prove lied --stretches 0
error_line 'lied/checkpoints/step-0000000004.h5 holds another state than the one recorded for step 4' \
    "a file that holds another state than the recorded one is refused"
other rate 's/"lr": "0.0003"/"lr": "0.0004"/' provenance.json
expect_status 3 chex-train --prove rate --stretches 0
error_line 'rate: 1 of 3 repeated stretches differ' "a stretch that differs is status 3"
like "$(out)" 'from step +4 to +6: DIFFERENT: recorded [0-9a-f]{32}, repeated [0-9a-f]{32}' "its digests are printed"
like "$(out)" 'the first other loss is that of step 6' "and the first step with another loss"
like "$(out)" 'the first other parameter is features.conv0.weight' "and the first other parameter"
like "$(out)" '^config.json: DIFFERENT: its options are not those of the newest start' "config.json has other options than that start"
damage() { # FILE: one bit of a copy that shares no bytes with other names of the file
    cp "$1" copy && printf '\377' | dd of=copy bs=1 seek=200000 conv=notrunc status=none && mv copy "$1"
}
for file in best.h5 last.h5 checkpoints/step-0000000006.h5; do
    rm -rf damaged && cp -r run damaged && damage damaged/$file
    expect_status 3 chex-train --prove damaged --stretches 1
    like "$(out)" "^$file: DIFFERENT: damaged/$file: .*checksum" "a damaged $file is found"
done
error_line 'damaged: 1 of [0-9]+ files are not what the run recorded' "and is status 3"
rm -rf damaged && cp -r run damaged && rm damaged/best.h5
# No stretch begins at step 6, so that it does not matter which one is chosen.
sed -i 's/"step":6,\(.*\)"digest":"[0-9a-f]*"/"step":6,\1"digest":"00000000000000000000000000000000"/' damaged/checkpoints.jsonl
expect_status 3 chex-train --prove damaged --stretches 1 --json
like "$(tr -d '\n' <out)" '"file": "last.h5", *"equal": false, *"step": 6,.*"fault": "it holds another state than the one recorded' \
    "a state that was not recorded is found"
like "$(tr -d '\n' <out)" '"file": "best.h5", *"equal": false,.*"fault": "it does not exist"' "so is a missing best.h5"
other engine 's/"variant": ".*"/"variant": "avx9"/' provenance.json
expect_status 4 chex-train --prove engine --engine cpu
error_line 'computed with the engine cpu:avx9, fp32, and this is cpu:[a-z0-9]+, fp32: their bits differ' \
    "another variant of the engine is refused"
other broken '1s/./[/' provenance.json
expect_status 3 chex-train --prove broken
error_line 'provenance.json is damaged' "a damaged provenance.json is refused"

cp -r run unrecorded
rm unrecorded/provenance.json
expect_status 3 chex-train --prove unrecorded --engine cpu
error_line 'unrecorded: no stretch can be repeated' "a run without provenance.json is not proven"

# Stretches that pass the end of an epoch, where plateau looks at the validation: at the loss that is
# trained, which falls in epoch 2 of this run while val_loss rises.
expect_status 0 chex-train --data shards --model densenet_tiny --image-size 32 --batch-size 8 --engine cpu --epochs 4 \
    --pos-weight balanced --precision fp32 --patience-epochs 0 --lr 1e-3 --checkpoint-keep 0 --checkpoint-every 3epochs --output epochs
like "$(err)" 'plateau: the validation loss has stopped falling' "plateau lowers the rate in this run"
sed -i '$!d' epochs/checkpoints.jsonl # one stretch, from step 0 to the last checkpoint
expect_status 0 chex-train --prove epochs --stretches 0
like "$(out)" 'repeated stretches are equal' "a stretch over the end of an epoch is repeated with its validation"

# Options that a start changes hold from there on: the moving average, frozen parameters, weights.
/usr/bin/python3 - >weights.csv <<'END'
import json
print("class,pos_weight", *(f"{name},3" for name in json.load(open("shards/manifest.json"))["classes"]), sep="\n")
END
expect_status 0 chex-train "${new[@]}" --max-steps 1 --pos-weight weights.csv --output many
expect_status 0 chex-train --data shards --engine cpu --max-steps 2 --ema 0.5 --freeze 'features.conv0.*' --output many
rm weights.csv
expect_status 0 chex-train --data shards --engine cpu --max-steps 3 --ema 0 --freeze none --pos-weight none --output many
expect_status 0 chex-train --prove many --stretches 0
like "$(out)" '^many: 3 of 3 repeated stretches are equal' "each stretch has the average, the frozen parameters and the weights of its start"

# The options that add to the state, choose the data or change the passes.
chex-shard phantom --count 20 --size 32 --seed 2 --output ph2 -q >/dev/null || fail "phantom"
chex-shard create --images ph2/images --labels ph2/labels.csv --size 32 --shards 1 --split none \
    --seed 1 --output shards2 -q >/dev/null 2>&1 || fail "shards"
expect_status 0 chex-train --data shards,shards2 --model densenet_tiny --image-size 32 --batch-size 1 --engine cpu \
    --precision fp32 --logical-ranks 2 --deterministic --sync-bn --ema 0.9 --freeze 'features.conv0.*,features.denseblock1.*' \
    --uncertain ones --checkpoint-keep 0 --checkpoint-every 1steps --max-steps 2 --output mixed
expect_status 0 chex-train --prove mixed --stretches 0
like "$(out)" '2 of 2 repeated stretches are equal' \
    "a run of two sets with --ema, --sync-bn, --freeze and --uncertain is proven"

# Bad input.
expect_status 3 chex-train --prove nowhere
error_line "nowhere" "no such run"
expect_status 2 chex-train --prove run --lr 1
error_line '--prove and --lr: a proof repeats the run with its own options' "options of the run are refused"
expect_status 2 chex-train --prove run --output x
error_line '--prove and --output' "a proof has no output"
expect_status 2 chex-train --prove run --bench 2
expect_status 2 chex-train --data shards --output x --stretches 2
error_line '--stretches: expected --prove RUN' "--stretches alone is refused"
done_testing
