# SPDX-License-Identifier: Apache-2.0
"""Computes the figures of `chex-eval score` anew, by their definitions, and compares them.

    figures_plain.py PREDICTIONS.csv AUROC.json FIGURES.csv CURVES.csv

Thresholds are found by trying every score with integers; average precision, Brier score,
calibration, reliability, net benefit and histograms follow doc/figures.md. Values must agree to
1e-9, and the files must agree with each other. Needs NumPy."""
import csv
import json
import math
import sys

import numpy as np

LOGIT_MAX = 16.635532273


def logit(p):
    with np.errstate(divide="ignore"):
        return np.clip(np.log(p) - np.log1p(-p), -LOGIT_MAX, LOGIT_MAX)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def newton(columns, y, offset):
    """Coefficients of a logistic regression."""
    beta = np.zeros(columns.shape[1])
    for _ in range(200):
        p = sigmoid(columns @ beta + offset)
        step = np.linalg.solve(columns.T @ (columns * (p * (1 - p))[:, None]), columns.T @ (y - p))
        beta += step * min(1, 2 / max(1e-300, np.abs(step).max()))
        if np.abs(step).max() < 1e-13:
            break
    return beta


def threshold_of(rule, y, p):
    kind, _, target = rule.partition("=")
    P, N, best, chosen = int(y.sum()), int((1 - y).sum()), None, None
    for t in sorted(set(p), reverse=True):
        tp, fp = int(((p >= t) & (y == 1)).sum()), int(((p >= t) & (y == 0)).sum())
        if kind == "sensitivity" and tp / P >= float(target):
            return t
        if kind == "specificity":
            chosen = t if (N - fp) / N >= float(target) else chosen
            continue
        merit = (tp * N - fp * P, 1) if kind == "youden" else (2 * tp, P + tp + fp)
        if best is None or merit[0] * best[1] > best[0] * merit[1]:
            best, chosen = merit, t
    return chosen


def average_precision(y, p):
    return np.mean([(y[p >= t] == 1).mean() for t in p[y == 1]])


def bins_of(y, p, count=10):
    """Bins of equal count; the rows of a tie are spread evenly."""
    values = sorted(set(p))
    edges = [len(p) * i / count for i in range(count + 1)]
    for low, high in zip(edges, edges[1:]):
        at = rows = positives = total = 0
        for v in values:
            n = (p == v).sum()
            w = max(min(at + n, high) - max(at, low), 0) / n
            rows, total = rows + w * n, total + w * n * v
            positives += w * y[p == v].sum()
            at += n
        yield rows, total / rows, positives / rows


def expected(y, p, threshold):
    x = logit(p)
    intercept, slope = newton(np.stack([np.ones_like(x), x], 1), y, 0)
    called = p >= threshold
    tp, fp = int((called & (y == 1)).sum()), int((called & (y == 0)).sum())
    fn, tn = int(y.sum()) - tp, int((1 - y).sum()) - fp
    return {"average_precision": average_precision(y, p), "brier": np.mean((p - y) ** 2),
            "calibration_slope": slope, "calibration_intercept": intercept,
            "calibration_in_the_large": newton(np.ones((len(x), 1)), y, x)[0],
            "ece": sum(n * abs(o - m) for n, m, o in bins_of(y, p)) / len(p),
            "positive_share": y.mean(), "threshold": threshold, "tp": tp, "fp": fp, "tn": tn,
            "fn": fn, "sensitivity": tp / (tp + fn), "specificity": tn / (tn + fp),
            "ppv": tp / (tp + fp), "npv": tn / (tn + fn) if tn + fn else math.nan,
            "f1": 2 * tp / (2 * tp + fp + fn)}


def curves_of(y, p):
    for _, m, o in bins_of(y, p):
        yield "reliability", m, o
    for i in range(1, 100):
        t = i / 100
        w = t / (1 - t)
        called = p >= t
        yield "net_benefit", t, (y[called].sum() - w * (1 - y[called]).sum()) / len(p)
        yield "treat_all", t, y.mean() - w * (1 - y.mean())
    for name, label in (("positives", 1), ("negatives", 0)):
        cells = np.minimum((p[y == label] * 20).astype(int), 19)
        for b in range(20):
            yield name, b / 20, (cells == b).sum()


def same(a, b):
    a = math.nan if a is None else float(a)
    return (math.isnan(a) and math.isnan(b)) or abs(a - b) <= 1e-8 * max(1, abs(b))


def main(predictions, results, figures, curves):
    rows = list(csv.DictReader(open(predictions)))
    document = json.load(open(results))
    table = {row["class"]: row for row in csv.DictReader(open(figures))}
    points = {}
    for row in csv.DictReader(open(curves)):
        points.setdefault(row["class"], []).append(row)
    bad = 0

    def compare(what, got, want):
        nonlocal bad
        if not same(got, want):
            bad += 1
            print(f"{what}: {got}, expected {want}")

    for got in document["classes"]:
        name = got["name"]
        kept = [row for row in rows if row["y_" + name] in ("0", "1")]
        y = np.array([int(row["y_" + name]) for row in kept])
        p = np.array([float(row["p_" + name]) for row in kept])
        if not 0 < y.sum() < len(y):
            compare(name + " threshold", got["operating"]["threshold"], math.nan)
            continue
        flat = {**got, **got["operating"]}
        for key, value in expected(y, p, threshold_of(document["operating"]["rule"], y, p)).items():
            compare(f"{name} {key}", flat[key], value)
            compare(f"{name} {key} in figures.csv", table[name][key], value)
        for row, (curve, x, value) in zip(points[name], sorted_as(points[name], curves_of(y, p))):
            compare(f"{name} {curve} at {row['x']}", row["value"], value)
            compare(f"{name} {curve}: x", row["x"], x)
    print("figures agree" if not bad else f"{bad} differences")
    return bad > 0


def sorted_as(rows, wanted):
    """The expected points in the order of the file, which alternates two of the curves."""
    by_curve = {}
    for point in wanted:
        by_curve.setdefault(point[0], []).append(point)
    return [by_curve[row["curve"]].pop(0) for row in rows]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
