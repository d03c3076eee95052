#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A timeline of chex-train against what its viewers expect. Arguments: FILE [--same-clock].

Every event has the keys of its phase; spans of a thread lie within each other or apart; what a step
holds is no longer than the step. --same-clock: the ranks ran on one machine, so each measured
offset must be within its own bound of zero. Prints one line of figures; exits with 1 and the fault.
"""
import json
import sys
from collections import defaultdict

SLACK_US = 0.002  # times are rounded to nanoseconds


def fail(text):
    print(text)
    sys.exit(1)


def check_spans(spans):
    """Of one thread, as they stand in the file. Yields each with its parent, or None."""
    open_ = []
    for e in spans:
        end = e["ts"] + e["dur"]
        while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= e["ts"] + SLACK_US:
            open_.pop()
        parent = open_[-1] if open_ else None
        if parent and (e["ts"] < parent["ts"] - SLACK_US or end > parent["ts"] + parent["dur"] + SLACK_US):
            fail(f"{e} reaches beyond {parent}")
        yield e, parent
        open_.append(e)


def main():
    with open(sys.argv[1]) as f:
        whole = json.load(f)
    names, threads, spans, counts = {}, {}, defaultdict(list), defaultdict(int)
    for e in whole["traceEvents"]:
        if e["ph"] == "M":
            if e["name"] == "process_name":
                names[e["pid"]] = e["args"]["name"]
            if e["name"] == "thread_name":
                threads[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["ph"] == "X":
            if e["ts"] < 0 or e["dur"] < 0 or not e["cat"] or not e["args"]:
                fail(f"odd span {e}")
            spans[e["pid"], e["tid"]].append(e)
        elif e["ph"] == "C":
            if not all(isinstance(v, (int, float)) for v in e["args"].values()):
                fail(f"odd count {e}")
            counts[e["pid"], e["name"]] += 1
        else:
            fail(f"odd phase {e}")
    ranks = whole["otherData"]["ranks"]
    if sorted(names) != [r["rank"] for r in ranks]:
        fail(f"{names} have names, {ranks} have events")
    steps, shares, kinds = defaultdict(int), [], set()
    for (pid, tid), list_ in spans.items():
        if (pid, tid) not in threads:
            fail(f"thread {tid} of rank {pid} has no name")
        inside = defaultdict(float)
        for e, parent in check_spans(list_):
            kinds.add(e["name"])
            if parent is not None and parent["name"] == "step":
                inside[parent["args"]["step"]] += e["dur"]
            steps[pid] += e["name"] == "step"
        for e in list_:
            if e["name"] == "step" and e["dur"] > 0 and inside[e["args"]["step"]]:
                shares.append(inside[e["args"]["step"]] / e["dur"])
    if shares and max(shares) > 1.0001:
        fail(f"a step's parts take {max(shares)} of it")
    if "--same-clock" in sys.argv:
        for r in ranks:
            if abs(r["clock_offset_ns"]) > r["clock_error_ns"]:
                fail(f"one clock, but {r}")
    shares.sort()
    median = shares[len(shares) // 2] if shares else 0
    print(f"ranks {len(ranks)}; steps {' '.join(str(steps[r['rank']]) for r in ranks)}; "
          f"half of the steps are explained to {100 * median:.1f} %; "
          f"dropped {sum(r['dropped'] for r in ranks)}; kinds: {', '.join(sorted(kinds))}")


main()
