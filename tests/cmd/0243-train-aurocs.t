#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each epoch reports the validation AUROC of each finding.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"
without PYTHON || have python3 || WITHOUT=PYTHON
require PYTHON

phantom_set 40 --fractions 0.4,0.5,0.1
train=(chex-train --data set --model densenet_tiny --image-size 32 --batch-size 8 --engine cpu --threads 1 -q)

expect_status 0 "${train[@]}" --epochs 2 --output run
expect_status 0 python3 - run <<'P'
import glob, json, math, struct, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
epochs = [r for r in rows if r["kind"] == "epoch"]
assert len(epochs) == 2
for r in epochs:
    defined = [v for v in r["auroc"].values() if v is not None]
    assert len(r["auroc"]) == 14 and "Cardiomegaly" in r["auroc"], r
    assert len(defined) == r["val_auroc_defined_count"] > 0, r
    assert abs(sum(defined) / len(defined) - r["val_auroc_mean"]) < 1e-6, r
# TFRecord framing: length, its checksum, the record, its checksum. Tags: field 1 of a value.
tags, events = {}, open(glob.glob(sys.argv[1] + "/events*")[0], "rb").read()
while events:
    n, = struct.unpack_from("<Q", events)
    record, events = events[12:12 + n], events[16 + n:]
    at = record.find(b"auroc/")
    if at >= 0:
        size = record[at - 1]
        value, = struct.unpack("<f", record[at + size + 1:at + size + 5])
        tags.setdefault(record[at + 6:at + size].decode(), []).append(value)
for name in epochs[0]["auroc"]:
    want = [r["auroc"][name] for r in epochs if r["auroc"][name] is not None]
    got = tags.get(name, [])
    assert len(got) == len(want) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(got, want)), name
P
chex-eval --data set --checkpoint run/last.h5 --split val --engine cpu --output eval -q >eval.out 2>&1
expect_status 0 python3 - <<'P'
import json
last = [json.loads(line) for line in open("run/metrics.jsonl")][-1]
found = json.load(open("eval/auroc.json"))
for c in found["classes"]:
    a, b = c["auroc"], last["auroc"][c["name"]]
    assert (a is None) == (b is None) and (a is None or abs(a - b) < 1e-8), c
P

# A head 4,096 times as large gives logits in the same order, and probabilities of 0 and 1 in fp32.
tiny=("${train[@]}" --model densenet_tiny)
expect_status 0 "${tiny[@]}" --max-steps 2 --lr 1e-2 --output tiny
expect_status 0 chex-eval export --checkpoint tiny/last.h5 --output small.safetensors -q
expect_status 0 python3 - <<'P'
import json, struct
data = bytearray(open("small.safetensors", "rb").read())
start = 8 + struct.unpack_from("<Q", data)[0]
for name, tensor in json.loads(data[8:start]).items():
    if name.startswith("classifier."):
        a, b = (start + x for x in tensor["data_offsets"])
        values = struct.unpack(f"<{(b - a) // 4}f", data[a:b])
        struct.pack_into(f"<{len(values)}f", data, a, *(4096 * x for x in values))
open("large.safetensors", "wb").write(data)
P
aurocs() { grep -o '"auroc":{[^}]*}' "$1/metrics.jsonl" | tail -n 1; }
for head in small large; do
    expect_status 0 "${tiny[@]}" --init $head.safetensors --max-steps 1 --lr 0 --output $head
done
like "$(aurocs small)" 'Atelectasis":0\.[0-9]' "the AUROC of a finding is a number"
is "$(aurocs large)" "$(aurocs small)" "saturated probabilities do not tie: the AUROC is that of the logits"

# A run without validation images has no AUROC.
chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 1 --split none --output all -q >all.out
expect_status 0 "${train[@]}" --data all --epochs 1 --output all-run
like "$(tail -n 1 all-run/metrics.jsonl)" '"auroc":null' "without validation images, auroc is null"
done_testing
