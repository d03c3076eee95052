# SPDX-License-Identifier: Apache-2.0
"""Computes units, subgroups, gaps and the audit of shortcuts from predictions.csv alone, from the
rules of doc/evaluation.md, and compares them with auroc.json.

    evaluate_groups.py PREDICTIONS.csv AUROC.json [AGES]     prints each difference; status 1 then

AGES: the value of --age-bands. Uses only the standard library. AUROCs are counted pair by pair.
Intervals of gaps are recomputed from the intervals of the groups and the rows of both.
"""
import bisect
import csv
import json
import math
import sys

MINIMUM = 10
faults, compared = [], 0


def compare(what, ours, theirs, tolerance=1e-9):
    global compared
    compared += 1
    if (ours is None) != (theirs is None) or (
            ours is not None and abs(ours - theirs) > tolerance):
        faults.append(f"{what}: {ours}, the file says {theirs}")


# ---- Student's t, by the continued fraction of the incomplete beta function ----

def beta_share(a, b, x):
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_share(b, a, 1 - x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    h = d
    for m in range(1, 500):
        for v in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                  -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d, c = 1 / (1 + v * d), 1 + v / c
            h *= c * d
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(log + a * math.log(x) + b * math.log1p(-x)) * h / a


def student_t(df):
    low, high = 0.0, 1e7
    for _ in range(200):
        t = (low + high) / 2
        low, high = (t, high) if beta_share(df / 2, .5, df / (df + t * t)) > .05 else (low, t)
    return low


def error_of(parts):
    squares, fourths = sum(p * p for p in parts), sum(p ** 4 for p in parts)
    used = sum(p != 0 for p in parts)
    if not fourths or used < 2:
        return None
    return math.sqrt(squares * used / (used - 1)), squares * squares / fourths - 1


# ---- rows ----

def number(text):
    return float(text) if text else None


class Row:
    def __init__(self, cells, classes):
        self.image, self.patient = cells["image_id"], cells["patient_id"]
        self.study = cells.get("study_id", "")
        self.label = {c: int(cells["y_" + c]) for c in classes}
        self.score = {c: float(cells["p_" + c]) for c in classes}
        self.view, self.sex = cells.get("view", ""), cells.get("sex", "")
        self.source = cells.get("source", "")
        self.age = number(cells.get("age_years", ""))
        if self.age is not None and self.age > 120:
            self.age = None
        width, height = (number(cells.get(k, "")) for k in ("width_px", "height_px"))
        self.side = max(width, height) if width else None
        self.size = (width, height) if width else None
        self.area = width * height if width else None
        self.brightness = number(cells.get("brightness", ""))


def joined(rows, classes, score):
    """The images of a study or patient as one row."""
    one = rows[0]
    for c in classes:
        labels = {r.label[c] for r in rows}
        one.label[c] = next(y for y in (1, -1, 0, -2) if y in labels)
        scores = [r.score[c] for r in rows]
        one.score[c] = max(scores) if score == "max" else sum(scores) / len(scores)
    for name in ("view", "sex", "source", "age", "size"):
        if len({getattr(r, name) for r in rows}) > 1:
            setattr(one, name, None if name in ("age", "size") else "")
    one.side = max(one.size) if one.size else None
    one.area = one.size[0] * one.size[1] if one.size else None
    if one.brightness is not None:
        one.brightness = sum(r.brightness for r in rows) / len(rows)
    return one


def units(rows, classes, unit, score):
    groups = {}
    for r in rows:
        groups.setdefault((r.patient, r.study if unit == "study" else ""), []).append(r)
    return [joined(group, classes, score) for group in groups.values()]


# ---- figures ----

def split(rows, c):
    return [r for r in rows if r.label[c] == 1], [r for r in rows if r.label[c] == 0]


def wins(p, n, score):
    a, b = score(p), score(n)
    return 1.0 if a > b else .5 if a == b else 0.0


def auroc_of(pos, neg, score):
    """The AUROC, and the contribution of each patient to its deviation (DeLong, Obuchowski)."""
    if not pos or not neg:
        return None, {}
    scores = sorted(score(n) for n in neg)
    value = sum((bisect.bisect_left(scores, score(p)) + bisect.bisect_right(scores, score(p))) / 2
                for p in pos) / len(pos) / len(neg)
    ups = sorted(score(p) for p in pos)
    of_pos, of_neg = {}, {}
    for p in pos:
        below = (bisect.bisect_left(scores, score(p)) + bisect.bisect_right(scores, score(p))) / 2
        of_pos[p.patient] = of_pos.get(p.patient, 0) + (below / len(neg) - value) / len(pos)
    for n in neg:
        above = len(ups) - (bisect.bisect_left(ups, score(n)) + bisect.bisect_right(ups, score(n))) / 2
        of_neg[n.patient] = of_neg.get(n.patient, 0) + (above / len(pos) - value) / len(neg)
    k, m = len(of_pos), len(of_neg)
    if k < 2 or m < 2:
        return value, {}
    up, un = math.sqrt(k / (k - 1)), math.sqrt(m / (m - 1))
    return value, {i: up * of_pos.get(i, 0) + un * of_neg.get(i, 0) for i in {**of_pos, **of_neg}}


def rate_of(rows, c, threshold):
    if not rows:
        return None, {}
    threshold *= 1 - 1e-8  # the file has nine digits of a score, the threshold all of them
    value = sum(r.score[c] >= threshold for r in rows) / len(rows)
    parts = {}
    for r in rows:
        parts[r.patient] = parts.get(r.patient, 0) + ((r.score[c] >= threshold) - value) / len(rows)
    return value, parts


def figures_of(rows, c, threshold):
    pos, neg = split(rows, c)
    small = min(len({r.patient for r in pos}), len({r.patient for r in neg})) < MINIMUM
    return small, {"auroc": auroc_of(pos, neg, lambda r: r.score[c]),
                   "sensitivity": rate_of(pos, c, threshold),
                   "false_positive_rate": rate_of(neg, c, threshold)}


def correlation(a, b):
    scale = math.sqrt(sum(v * v for v in a.values()) * sum(v * v for v in b.values()))
    return sum(v * b[k] for k, v in a.items() if k in b) / scale if scale else 0.0


def gap_ends(a, b, ai, bi, rho):
    """MOVER: values, their intervals, the correlation."""
    if None in (*ai, *bi):
        return None, None
    down = (a - ai[0]) ** 2 + (bi[1] - b) ** 2 - 2 * rho * (a - ai[0]) * (bi[1] - b)
    up = (ai[1] - a) ** 2 + (b - bi[0]) ** 2 - 2 * rho * (ai[1] - a) * (b - bi[0])
    return a - b - math.sqrt(max(down, 0)), a - b + math.sqrt(max(up, 0))


# ---- subgroups ----

def bands(value, starts, unit):
    if value is None:
        return None
    at = bisect.bisect_right(starts, value)
    if at == len(starts):
        return f"{starts[-1]}+{unit}"
    return f"{starts[at - 1] if at else 0}-{starts[at] - 1}{unit}"


def group_of(r, attribute, ages):
    return {"sex": r.sex, "view": r.view, "source": r.source,
            "age": bands(r.age, ages, ""),
            "size": bands(r.side, [1024, 2048, 3072], " px")}[attribute] or None


def interval(o, name):
    prefix = "" if name == "auroc" else name + "_"
    return o[prefix + "ci_low"], o[prefix + "ci_high"]


def check_subgroups(rows, result, ages):
    thresholds = {k["name"]: k["operating"]["threshold"] for k in result["classes"]}
    for attribute in result["subgroups"]["attributes"]:
        name = attribute["name"]
        known = [r for r in rows if group_of(r, name, ages)]
        compare(f"{name} unknown", len(rows) - len(known), attribute["unknown_images"])
        for k in attribute["classes"]:
            check_class(known, name, k, thresholds[k["name"]], ages)


def check_class(known, name, k, threshold, ages):
    found = {}
    if threshold is None:
        threshold = math.inf
    for g in k["groups"]:
        rows = [r for r in known if group_of(r, name, ages) == g["name"]]
        rest = [r for r in known if group_of(r, name, ages) != g["name"]]
        small, figures = figures_of(rows, k["name"], threshold)
        rest_small, others = figures_of(rest, k["name"], threshold)
        where = f"{name} {g['name']} {k['name']}"
        compare(where + " too small", int(small), int(g["too_small"]))
        for f, (value, parts) in figures.items():
            if f != "auroc" and threshold == math.inf:
                continue
            compare(f"{where} {f}", value, g[f])
            found.setdefault(f, []).append((g, value, parts, small))
            usable = not small and not rest_small
            compare(f"{where} {f} against rest", value - others[f][0] if usable else None,
                    g[f + "_against_rest"])
    for f, groups in found.items():
        usable = [g for g in groups if not g[3] and g[1] is not None]
        gap, where = k[f + "_gap"], f"{name} {k['name']} gap of {f}"
        if len(usable) < 2:
            compare(where, None, gap)
            continue
        high, low = max(usable, key=lambda g: g[1]), min(usable, key=lambda g: g[1])
        compare(where, high[1] - low[1], gap["value"])
        high, low = (next(g for g in usable if g[0]["name"] == gap[k]) for k in ("highest", "lowest"))
        ends = gap_ends(high[1], low[1], interval(high[0], f), interval(low[0], f),
                        correlation(high[2], low[2]))
        compare(where + ", low end", ends[0], gap["ci_low"], 1e-6)
        compare(where + ", high end", ends[1], gap["ci_high"], 1e-6)


# ---- shortcuts ----

def xxh3(text):
    import xxhash
    return xxhash.xxh3_64_intdigest(text.encode())


def within(rows, c, stratum, score):
    """Pairs within strata, and the contribution of each patient."""
    right, pairs, of_patient = 0.0, 0, {}
    for s in {stratum(r) for r in rows}:
        pos, neg = split([r for r in rows if stratum(r) == s], c)
        for p in pos:
            for n in neg:
                w = wins(p, n, score)
                right, pairs = right + w, pairs + 1
                for r in (p, n):
                    a, b = of_patient.get(r.patient, (0, 0))
                    of_patient[r.patient] = (a + w, b + 1)
    if not pairs:
        return None, {}
    value = right / pairs
    return value, {k: (a - value * b) / pairs for k, (a, b) in of_patient.items()}


def fifths(rows, value):
    values = sorted(value(r) for r in rows)
    cuts = [values[len(values) * q // 5] for q in range(1, 5)]
    return lambda r: bisect.bisect_right(cuts, value(r))


def check_end(where, value, parts, o, name, logit):
    error = error_of(parts)
    low = high = None
    if error and error[0] > 0 and error[1] >= 1 and (not logit or 0 < value < 1):
        scale = value * (1 - value) if logit else 1
        half = student_t(error[1]) * error[0] / scale
        low, high = ((math.log(value / (1 - value)) - half, math.log(value / (1 - value)) + half)
                     if logit else (value - half, value + half))
        if logit:
            low, high = 1 / (1 + math.exp(-low)), 1 / (1 + math.exp(-high))
    compare(where + ", low end", low, o[name + "_ci_low"], 1e-6)
    compare(where + ", high end", high, o[name + "_ci_high"], 1e-6)


def check_shortcut(rows, attribute, k):
    name, c = attribute["name"], k["name"]
    value = {"view": lambda r: r.view or None, "sex": lambda r: r.sex or None,
             "age": lambda r: r.age, "size": lambda r: r.area,
             "brightness": lambda r: r.brightness}[name]
    rows = [r for r in rows if value(r) is not None]
    stratum = value if name in ("view", "sex") else fifths(rows, value)
    rows = [r for r in rows if r.label[c] >= 0]
    pos, neg = split(rows, c)
    where = f"{name} {c}"
    compare(where + " positives", len(pos), k["positives"])
    if not pos or not neg:
        compare(where, None, k["auroc_network"])
        return
    if name not in ("view", "sex"):
        alone = auroc_of(pos, neg, value)[0]
        compare(where + " alone", max(alone, 1 - alone), k["auroc_alone"])
        compare(where + " direction", -1 if alone < .5 else 1,
                1 if k["positives_are"] == "larger" else -1)
    elif xxh3:
        half = {r.image: xxh3(r.patient) & 1 for r in rows}

        def rate(r):
            others = [o for o in rows if half[o.image] != half[r.image]]
            same = [o for o in others if value(o) == value(r)] or others
            return sum(o.label[c] for o in same) / len(same) if same else 0.0
        rates = {r.image: rate(r) for r in rows}
        compare(where + " alone", within(rows, c, lambda r: half[r.image], lambda r: rates[r.image])[0],
                k["auroc_alone"])
    network, all_parts = within(rows, c, lambda r: 0, lambda r: r.score[c])
    inside, parts = within(rows, c, stratum, lambda r: r.score[c])
    compare(where + " network", network, k["auroc_network"])
    compare(where + " within", inside, k["auroc_within"])
    check_end(where + " within", inside, list(parts.values()), k, "within", True)
    if inside is not None:
        compare(where + " drop", network - inside, k["drop"])
        differences = [v - parts.get(p, 0) for p, v in all_parts.items()]
        if max(map(abs, differences)) > 1e-12:
            check_end(where + " drop", network - inside, differences, k, "drop", False)


def main(table, figures, ages="18,40,60,80"):
    global xxh3
    try:
        import xxhash  # noqa: F401
    except ImportError:
        xxh3 = None
        print("no xxhash here: shortcuts of categories alone are left out", file=sys.stderr)
    with open(figures, encoding="utf-8") as f:
        result = json.load(f)
    with open(table, encoding="utf-8", newline="") as f:
        reader = csv.DictReader(f)
        classes = [n[2:] for n in reader.fieldnames if n.startswith("p_")]
        rows = [Row(cells, classes) for cells in reader]
    if result["unit"] != "image":
        rows = units(rows, classes, result["unit"], result["unit_score"])
    compare("rows", len(rows), result["images"])
    for k in result["classes"]:
        compare(f"AUROC of {k['name']}", auroc_of(*split(rows, k["name"]),
                                                  lambda r: r.score[k["name"]])[0], k["auroc"])
    check_subgroups(rows, result, [int(a) for a in ages.split(",")])
    for attribute in result["shortcuts"]["attributes"]:
        for k in attribute["classes"]:
            check_shortcut(rows, attribute, k)
    for fault in faults:
        print(fault)
    print(f"{compared} values compared, {len(faults)} differ")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
