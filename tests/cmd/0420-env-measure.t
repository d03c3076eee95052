#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env --level 2 and 3 measure one machine: figures, limits, folders, modes, time. The test
# only asks whether figures are there.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"
rates='^(memory|compute|step|tmpdir|output)-rate'

# One number of the JSON object: figure FILE KEY.
figure() { sed -n "s/.*\"$2\": \([0-9.e+-]*\),*$/\1/p" "$1" | head -n 1; }
positive() {
    [[ $1 =~ ^[0-9.e+-]+$ && $1 =~ [1-9] ]]
    ok $? "$2: $1"
}

mkdir work
chex-shard phantom --count 24 --size 36 --seed 3 --output ph >log 2>&1 &&
    chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 1 \
        --output shards >>log 2>&1
ok $? "a small set" || diag "$(cat log)"

expect_status 0 chex-env --level 2 --json --data shards --output work/not/yet --record good.json --timeout 5m
cp out json
for key in gb_per_s gflop_per_s images_per_s mb_per_s fsync_ms; do
    positive "$(figure json $key)" "a figure: $key"
done
is "$(grep -cE '"name": "(memory|compute|step|tmpdir|output|data)-rate"' json)" 6 "six rates"
like "$(cat json)" '"found": "[0-9.e+]+ MB/s.*/train-00000-of-00001.h5, [0-9]+ rows sound"' "the shard is read"
like "$(cat json)" '"found": "cpu [a-z0-9]+, (fp32|bf16): [0-9a-f]{16}"' "the digest of a step"
is "$(ls -A work)" "" "no file remains in the folder of results"
like "$(cat good.json)" '"step-rate": \{' "figures are recorded"
if have python3 && ! without PYTHON; then
    python3 - json good.json <<'END'
import json, sys
top, good = (json.load(open(f)) for f in sys.argv[1:])
bits = next(c["found"] for c in top["checks"] if c["name"] == "step-bits")
assert good["step-bits"] == "chexnet %s, %s" % (top["version"], bits)
good = {name: limits for name, limits in good.items() if "limit" in str(limits)}
figures = {c["name"]: c["figures"] for c in top["checks"] if "figures" in c}
assert figures == top["ranks"][0]["figures"] and good.keys() == figures.keys() - {"fabric-ports"}
for name, limits in good.items():
    for key, limit in limits.items():
        ratio = limit["limit"] / figures[name][key]
        assert 1.9 < ratio < 5.1 if key.endswith("_ms") else 0.19 < ratio < 0.92, (name, key, ratio)
        assert limit["spread"] >= 0 and abs(limit["measured"] / figures[name][key] - 1) < 0.01
END
    ok $? "another reader finds both complete, and a margin between them"
else
    skip "no python3"
fi

# Limits, a row that has changed, and a file in the place of the folder of results.
shard=shards/train/train-00000-of-00001.h5
cp "$shard" good.h5
printf '\377\001\376\002' | dd of="$shard" bs=1 seek=$((($(stat -c %s "$shard") - 700) / 2)) conv=notrunc 2>log
! cmp -s "$shard" good.h5
ok $? "the shard is spoilt"
echo '{"memory-rate": {"gb_per_s": 1e9}, "tmpdir-rate": {"fsync_ms": 1e9}}' >want.json
# The verdict is 5 on an idle machine; on a busy one the limit is a warning and the folders alone count.
chex-env -v --level 2 --expect want.json --data shards --output ph/labels.csv --timeout 5m >out 2>err
status=$?
verdict=$(awk '$1 == "memory-rate" { print $2 }' out)
like "$status $verdict" "^(5 fail|4 warn)$" "a limit that no node reaches: $status, $verdict"
[ "$verdict" = fail ] || like "$(out)" "disturbed: " "a machine that others use is not blamed"
like "$(out)" "expected: gb_per_s 1e\+09 GB/s or more \(from want.json\)" "a missed limit names the file of expectations"
like "$(out)" "^tmpdir-rate +pass" "one that all keep is kept"
like "$(out)" "^output-rate +fail +cannot make folder ph/labels.csv" "a file is no folder for results"
like "$(out)" "remedy: use a writable folder instead of ph/labels.csv" "a missing or wrong folder of results has a remedy"
like "$(out)" "^data-rate +fail +.*row [0-9]+ .*checksum" "a row that is not what its checksum says"
like "$(out)" "fault: user" "a folder problem that persists is the user's fault"
expect_status 0 chex-env -v --expect want.json
like "$(err)" "warn: expectations want.json: not measured, so not compared: memory-rate, tmpdir-rate; --level 2 measures them" \
    "limits that are not looked at are no silent success"
unlike "$(out)" "$rates" "level 1 measures nothing"
echo '{"memory-rate": {"gb": 1}}' >wrong.json
expect_status 2 chex-env -v --expect wrong.json
error_line "'gb' is not a figure of 'memory-rate'" "an unknown figure"
for wrong in '{"hdf5": {}}' '{"hdf5": {"mb": 1}}'; do
    echo "$wrong" >wrong.json
    expect_status 2 chex-env -v --expect wrong.json
    error_line "value of 'hdf5': expected a text$" "figures of a check that has none: $wrong"
done
expect_status 2 chex-env -v --record none.json
error_line "none.json: nothing was measured: use --level 2" "a record of level 1 without a network is refused"
expect_status 4 chex-env -v --level 2 --record ph/labels.csv/good.json
error_line "cannot make folder ph/labels.csv" "a record that cannot be written"
is "$(out)" "" "the refusal comes before the measurements"
cp ph/labels.csv kept.csv
expect_status 2 chex-env -v --level 2 --record ph/labels.csv
error_line "ph/labels.csv: a file of that name is there and holds no expectations" "a file without expectations is not overwritten"
cmp -s kept.csv ph/labels.csv
ok $? "the file is left as it was"
expect_status 2 chex-env -v --level 2 --timeout 1s --record new/none.json
error_line "none.json: nothing was measured.* longer --timeout" "no time to measure what is recorded"

# Folders.
expect_status 0 chex-env -v --data shards
like "$(err)" "warn: --data: level 1 reads and writes nothing: say --level 2" "an option that does nothing is warned of"

# Time: what does not fit is skipped, without a fault.
expect_status 0 chex-env -v --level 2 --timeout 1s
like "$(out)" "^step-rate +skip +it takes [0-9] s, and --timeout leaves [01]\.[0-9] s" "no time for a step"
like "$(out)" "^gpu-copy +skip +no GPU was allotted" "want of time is not blamed where there is no GPU"
like "$(out)" "^data-rate +skip +no --data" "without --data nothing is read"

# In the prolog only the node counts, and time is short.
expect_status 0 env TMPDIR=/nonexistent/tmp chex-env -v --mode prolog --level 2 --data nosuch \
    --record ph/labels.csv/good.json --timeout 100s
unlike "$(out)" "^(data|output)-rate" "file systems of others are not looked at"
like "$(out)" "^tmpdir-rate +(pass|warn) .*: /tmp$" "the rate of the own temporary folder is measured"
like "$(out)" "^memory-rate +(pass|skip)" "the check memory-rate is in the table"
like "$(err)" "warn: cannot make folder ph/labels.csv" "a record that cannot be written drains no node"

# Nothing stays of a run that was killed.
mkdir killed
(cd killed && TMPDIR=$PWD exec chex-env --level 2 --output .) >log 2>&1 &
sleep 1
kill -9 $!
wait $! 2>/dev/null
is "$(ls -A killed)" "" "a run that was killed leaves nothing"
if have strace && strace -o trace true 2>/dev/null; then
    (cd killed && TMPDIR=$PWD exec strace -f -o ../trace -e trace=fsync -e inject=fsync:delay_enter=60000000 chex-env) \
        >log 2>&1 &
    tracer=$!
    until grep -qs fsync trace || ! kill -0 $tracer; do sleep 0.05; done
    # shellcheck disable=SC2046
    kill -9 $(pgrep -P $tracer) $tracer
    wait $tracer 2>/dev/null
    is "$(ls -A killed)" "" "nor does one that was killed while it wrote a file"
else
    skip "no strace here"
fi
done_testing
