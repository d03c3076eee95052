#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run.html shows all epochs of a run in one file that needs nothing else.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"
without PYTHON || have python3 || WITHOUT=PYTHON
require PYTHON

phantom_set 40 --shards 1 --fractions 0.4,0.5,0.1
dir='run <b>"&'
train=(chex-train --data set --model densenet_tiny --image-size 32 --batch-size 8 --engine cpu --threads 1 --output "$dir")

expect_status 0 "${train[@]}" --epochs 1 --max-steps 1
like "$(err)" 'run.html' "the last lines name the page, although no epoch is complete"
expect_status 0 python3 - "$dir" <<'P'
import json, sys, xml.etree.ElementTree as tree
step = next(r for r in map(json.loads, open(sys.argv[1] + "/metrics.jsonl")) if r["kind"] == "step")
page = tree.parse(sys.argv[1] + "/run.html").getroot()
text = " ".join(" ".join(page.itertext()).split())
assert "Written after step 1 of 2 in epoch 1." in text and not list(page.iter("table")), text
assert "step 1: %.4g" % step["loss"] in text, text
P
expect_status 0 "${train[@]}" --epochs 1 --max-steps 0
like "$(err)" 'run.html' "the last lines name the page"
cp "$dir/run.html" first.html
expect_status 0 "${train[@]}" --epochs 2
expect_status 0 python3 - "$dir" <<'P'
import json, sys, xml.etree.ElementTree as tree
rows = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
rows = [r for r in rows if r["kind"] == "epoch"]
for name, epochs in ("first.html", 1), (sys.argv[1] + "/run.html", 2):
    page = tree.parse(name).getroot()
    text = [" ".join(t.itertext()) for t in page.iter("table")]
    assert page.find("head/title").text == "Training: " + sys.argv[1]
    assert not [e for e in page.iter() if e.tag in ("script", "link", "img", "iframe")]
    findings, table = [t for t in page.iter("table")]
    assert len(list(findings.find("tbody"))) == 14
    shown = [[c.text for c in row] for row in table.find("tbody")]
    assert [r[0] for r in shown] == [str(e) for e in range(epochs, 0, -1)], shown
    for r, line in zip(rows, reversed(shown)):
        assert line[3] == "%.4f" % r["val_auroc_mean"] and line[1] == "%.4g" % r["loss"], line
    last = {r.find("th").text.replace(" ", "_"): r.findall("td")[0].text for r in findings.find("tbody")}
    for f, v in rows[epochs - 1]["auroc"].items():
        assert last[f] == ("\u2013" if v is None else "%.4f" % v), (f, v, last[f])
    code = [c.text for c in page.iter("code")]
    assert "--batch-size 8" in code and "--loss bce" in code, code
P
! grep -qE '(src|href)="?[^#"]|url\(|https?:' "$dir/run.html"
ok $? "the page loads nothing"

# A page that cannot be written does not end the run.
expect_status 0 "${train[@]}" --output early --batch-size 4 --max-steps 1
rm early/run.html && mkdir early/run.html
expect_status 0 "${train[@]}" --output early --batch-size 4 --max-steps 2
is "$(grep -c 'run.html' err)" 1 "a page that cannot be written is reported in the first epoch, and not named"
rm "$dir/run.html" && mkdir "$dir/run.html"
expect_status 0 "${train[@]}" --epochs 3
is "$(grep -c 'warn: .*run.html' err)" 1 "a page that cannot be written is reported"
is "$(grep -c '"kind":"epoch"' "$dir/metrics.jsonl")" 3 "the run goes on without it"
done_testing
