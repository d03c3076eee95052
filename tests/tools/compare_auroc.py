#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_auroc.py A B RESULT.json [--cluster image] [--paired]: computes what `chex-eval compare` prints
from the formulas of the papers, pair by pair, in plain Python, and compares all figures to 1e-12 (those
of recipes to 1e-9). A and B are tables, or for recipes the tables of their trainings with commas between.

DeLong, DeLong, Clarke-Pearson 1988: each positive's share of negatives below it, each negative's
share of positives above it. Obuchowski 1997: their deviations summed by patient. Satterthwaite
1946; Newcombe 2006, method 5; Zou, Donner 2008; Holm 1979. Recipes: Obuchowski, Rockette 1995, with the
covariances of each pair of trainings; Hillis 2014. doc/intervals.md says how they combine.
"""
import csv
import json
import math
import sys


def read(path):
    rows = {row["image_id"]: row for row in csv.DictReader(open(path))}
    return rows, [name[2:] for name in next(iter(rows.values())) if name.startswith("p_")]


def student_p(t, df):
    """Two-sided. With t = sqrt(df) tan(a) the density is that of cos(a) ** (df - 1); the integral
    is a tanh-sinh sum."""
    def integral(low, high):
        total, h = 0.0, 1 / 32
        for i in range(-32 * 4, 32 * 4 + 1):
            u = math.pi / 2 * math.sinh(i * h)
            if abs(u) > 300:
                continue
            share = 1 / (1 + math.exp(-2 * u))
            weight = math.pi / 2 * math.cosh(i * h) / math.cosh(u) ** 2 / 2
            total += max(math.cos(low + (high - low) * share), 0.0) ** (df - 1) * weight * h
        return total * (high - low)
    return integral(math.atan(abs(t) / math.sqrt(df)), math.pi / 2) / integral(0, math.pi / 2)


def solve(f, low, high):
    """The least argument from which f is true, by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if f(middle) else (middle, high)
    return high


def student_t(df):
    return solve(lambda t: student_p(t, df) < 0.05, 0.0, 1000.0)


class Model:
    """One model: AUROC, and for each cluster the deviations of its positives and negatives."""

    def __init__(self, positives, negatives, clusters):
        # positives, negatives: (cluster, score)
        P, N = len(positives), len(negatives)
        psi = lambda x, y: 1.0 if x > y else 0.5 if x == y else 0.0
        v10 = [math.fsum(psi(x, y) for _, y in negatives) / N for _, x in positives]
        v01 = [math.fsum(psi(x, y) for _, x in positives) / P for _, y in negatives]
        self.auroc = math.fsum(v10) / P
        self.of_positives, self.of_negatives = [], []
        sizes = [[sum(k == c for k, _ in items) for c in clusters] for items in (positives, negatives)]
        self.K = sum(n > 0 for n in sizes[0])
        self.L = sum(n > 0 for n in sizes[1])
        if self.K < 2 or self.L < 2:
            return
        for c in clusters:
            p = math.fsum(v - self.auroc for v, (k, _) in zip(v10, positives) if k == c) / P
            n = math.fsum(v - self.auroc for v, (k, _) in zip(v01, negatives) if k == c) / N
            self.of_positives.append(math.sqrt(self.K / (self.K - 1)) * p)
            self.of_negatives.append(math.sqrt(self.L / (self.L - 1)) * n)
        self.P = P / (1 + 0.5 * (sum(n * n for n in sizes[0]) / P - 1))
        self.N = N / (1 + 0.5 * (sum(n * n for n in sizes[1]) / N - 1))

    @classmethod
    def mean(cls, models):
        out = cls.__new__(cls)
        out.__dict__ = dict(models[0].__dict__, auroc=math.fsum(m.auroc for m in models) / len(models))
        for kind in ("of_positives", "of_negatives"):
            setattr(out, kind, [math.fsum(v) / len(models) for v in zip(*(getattr(m, kind) for m in models))])
        return out

    def parts(self):
        return [p + n for p, n in zip(self.of_positives, self.of_negatives)]

    def variance_at(self, a):
        share = (1 - a) / (2 - a) + a / (1 + a)
        return a * (1 - a) * (1 + (self.P + self.N - 2) * share / 2) / (self.P * self.N)


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def correlation(a, b):
    scale = math.sqrt(dot(a, a) * dot(b, b))
    return dot(a, b) / scale if scale > 0 else 0.0


def difference(a, b, same):
    out = {"auroc_first": a.auroc, "auroc_second": b.auroc, "difference": a.auroc - b.auroc}
    if not a.of_positives:
        return dict(out, se=None, p_value=None, ci_low=None, ci_high=None, part=None)
    d = out["difference"]
    parts = [[p + n for p, n in zip(m.of_positives, m.of_negatives)] for m in (a, b)]
    dp = [x - y for x, y in zip(a.of_positives, b.of_positives)]
    dn = [x - y for x, y in zip(a.of_negatives, b.of_negatives)]
    out["part"] = [x + y for x, y in zip(dp, dn)]
    observed = dot(out["part"], out["part"])
    both = dot(dp, dp) + dot(dn, dn)
    df = both ** 2 / (dot(dp, dp) ** 2 / (a.K - 1) + dot(dn, dn) ** 2 / (a.L - 1)) if both > 0 else 0.0
    out.update(se=math.sqrt(observed), df=df)
    if same:
        return dict(out, p_value=1.0, ci_low=0.0, ci_high=0.0)
    r = (df * correlation(*parts) + 2 * correlation(a.of_negatives, b.of_negatives)) / (df + 2)
    va, vb = a.variance_at(a.auroc), b.variance_at(b.auroc)
    share = va / (va + vb) if va + vb > 0 else 0.5

    def model(x):
        x_a = a.variance_at(min(max(a.auroc + (x - d) * share, 0), 1))
        x_b = b.variance_at(min(max(b.auroc - (x - d) * (1 - share), 0), 1))
        return x_a + x_b - 2 * r * math.sqrt(x_a * x_b)
    ratio = (2 * 1.2 + df * (observed / model(d) if model(d) > 0 else 0)) / (2 + df)
    variance = lambda x: max(observed, ratio * model(x))
    df = df or 2
    t = student_t(df)
    out["p_value"] = student_p(d / math.sqrt(variance(0)), df) if d else 1.0
    outside = lambda x: (x - d) ** 2 > t * t * variance(x)
    out["ci_low"] = -solve(lambda x: outside(-x), -d, 1.0)
    out["ci_high"] = solve(outside, d, 1.0)
    return out


def mean_of(results):
    """The squared distances of the mean: sums over pairs of findings with their correlations."""
    n = len(results)
    d = math.fsum(r["difference"] for r in results) / n
    out = {"difference": d}
    for side, sign in (("ci_low", -1), ("ci_high", 1)):
        reach = [sign * (r[side] - r["difference"]) for r in results]
        square = math.fsum(
            reach[i] * reach[j] * (1.0 if i == j else correlation(results[i]["part"], results[j]["part"]))
            for i in range(n) for j in range(n))
        out[side] = d + sign * math.sqrt(max(square, dot(reach, reach))) / n
    reach = d - out["ci_low"] if d > 0 else out["ci_high"] - d
    out["p_value"] = math.erfc(abs(1.959963984540054 * d / reach) / math.sqrt(2)) if d else 1.0
    return out


def recipes(values, parts, fixed, paired, claimed):
    """values, parts: of each recipe the AUROCs and the contributions of the patients, by training.
    fixed: the difference of the mean AUROCs for these trainings only. Obuchowski and Rockette's variance
    with the mean covariance of trainings within (Cov2) and between recipes (Cov3)."""
    variance = lambda v: math.fsum((x - math.fsum(v) / len(v)) ** 2 for x in v) / (len(v) - 1)
    if paired:
        values_of = [[x - y for x, y in zip(*values)]]
        parts_of = [[[x - y for x, y in zip(a, b)] for a, b in zip(*parts)]]
    else:
        values_of, parts_of = values, parts
    terms = [(variance(v) / len(v), len(v)) for v in values_of]
    trainings = math.fsum(t for t, _ in terms)
    # P - Cov is what the trainings' own errors add to P, the variance for these trainings only.
    mean_parts = [[math.fsum(v) / len(p) for v in zip(*p)] for p in parts_of]
    total = [x - y for x, y in zip(*mean_parts)] if len(mean_parts) == 2 else mean_parts[0]
    covariance = 0.0
    for p in parts_of:
        covariance += math.fsum(dot(a, b) for i, a in enumerate(p) for k, b in enumerate(p) if i != k) / (
            len(p) * (len(p) - 1))
    if len(parts_of) == 2:
        covariance -= 2 * math.fsum(dot(a, b) for a in parts_of[0] for b in parts_of[1]) / (
            len(parts_of[0]) * len(parts_of[1]))
    own = dot(total, total) - covariance

    def at(patients, runs=None):
        t = [(v * j / (runs or j), runs or j) for v, j in terms]
        total = math.fsum(v for v, _ in t) + max(patients - own, 0)
        fourths = math.fsum(v * v / (j - 1) for v, j in t)
        return total, (total ** 2 / fourths if fourths > 0 else 1e7)
    mean = [math.fsum(v) / len(v) for v in values]
    d = mean[0] - mean[1]
    out = {"auroc_first": mean[0], "auroc_second": mean[1], "difference": d,
           "sd_first": math.sqrt(variance(values[0])), "sd_second": math.sqrt(variance(values[1]))}
    seen, out["df"] = at(dot(total, total))
    out["se"] = math.sqrt(seen)
    reach = {s: (x - fixed["difference"]) / 1.959963984540054 for s, x in fixed.items() if s.startswith("ci_")}
    ends = {side: at(r * r) for side, r in reach.items()}
    for side, sign in (("ci_low", -1), ("ci_high", 1)):
        out[side] = max(min(d + sign * student_t(ends[side][1]) * math.sqrt(ends[side][0]), 1.0), -1.0)
    near = ends["ci_low" if d > 0 else "ci_high"]
    out["p_value"] = student_p(d / math.sqrt(near[0]), near[1]) if d else 1.0
    patients = (reach["ci_low"] ** 2 + reach["ci_high"] ** 2) / 2
    width = lambda runs: (lambda v, df: student_t(df) * math.sqrt(v))(*at(patients, runs))
    out["training_share"] = trainings / at(patients)[0]
    n, half = int(claimed or 1000), width(None) / 2  # whether the number that is claimed is the least
    least = n == max(j for _, j in terms) + 1 or width(n - 1) > half
    enough = width(n) <= half
    out["runs_to_halve"] = claimed if (enough and least if claimed else not enough) else -1.0
    return out


def main_recipes(tables, result, by_image, paired):
    """Checks all figures; every table has the same images and findings."""
    first, names = tables[0][0]
    all_clusters = sorted({i if by_image else first[i]["patient_id"] for i in first})
    wrong, figures, done = [], 0, []

    def check(name, wanted, got):
        nonlocal figures
        for key in wanted:
            figures += 1
            x, y = wanted[key], got[key]
            if (x is None) != (y is None) or (x is not None and abs(x - y) > 1e-9 * max(1, abs(x))):
                wrong.append(f"{name}: {key} is {y}, wanted {x}")

    for name in names:
        rows = [i for i in first if first[i]["y_" + name] in ("0", "1")]
        cluster = lambda i: i if by_image else first[i]["patient_id"]
        if len({first[i]["y_" + name] for i in rows}) < 2:
            continue
        models = [[Model(*([(cluster(i), float(t[i]["p_" + name])) for i in rows if first[i]["y_" + name] == y]
                           for y in "10"), all_clusters) for t, _ in recipe] for recipe in tables]
        fixed = difference(*(Model.mean(m) for m in models), False)
        values, parts = ([[f(x) for x in m] for m in models] for f in (lambda x: x.auroc, Model.parts))
        got = next(c for c in result["classes"] if c["name"] == name)
        check(name, recipes(values, parts, fixed, paired, got["runs_to_halve"]), got)
        done.append((values, parts, fixed))
    mean = lambda v: math.fsum(v) / len(v)
    values = [[mean([d[0][r][j] for d in done]) for j in range(len(tables[r]))] for r in (0, 1)]
    parts = [[[mean(v) for v in zip(*(d[1][r][j] for d in done))] for j in range(len(tables[r]))] for r in (0, 1)]
    check("mean", recipes(values, parts, mean_of([d[2] for d in done]), paired, result["mean"]["runs_to_halve"]),
          result["mean"])
    print("\n".join(wrong) or f"{figures} figures agree")
    sys.exit(bool(wrong))


def main():
    by_image = "image" in sys.argv[4:]
    if "," in sys.argv[1]:
        tables = [[read(path) for path in recipe.split(",")] for recipe in sys.argv[1:3]]
        main_recipes(tables, json.load(open(sys.argv[3])), by_image, "--paired" in sys.argv)
    (first, names), (second, others) = read(sys.argv[1]), read(sys.argv[2])
    result = json.load(open(sys.argv[3]))
    images = [image for image in first if image in second]
    wrong, figures = [], 0

    def check(name, wanted, got):
        nonlocal figures
        for key in wanted:
            if key == "part" or (key == "df" and wanted[key] is None):
                continue
            figures += 1
            x, y = wanted[key], got[key]
            if (x is None) != (y is None) or (x is not None and abs(x - y) > 1e-12):
                wrong.append(f"{name}: {key} is {y}, wanted {x}")

    done = []
    for name in [n for n in names if n in others]:
        got = next(c for c in result["classes"] if c["name"] == name)
        rows = [i for i in images if first[i]["y_" + name] in ("0", "1")]
        cluster = lambda i: i if by_image else first[i]["patient_id"]
        items = [[[(cluster(i), float(t[i]["p_" + name])) for i in rows if t[i]["y_" + name] == y]
                  for y in "10"] for t in (first, second)]
        if not items[0][0] or not items[0][1]:
            check(name, {"difference": None, "p_value": None, "ci_low": None}, got)
            continue
        clusters = sorted({cluster(i) for i in rows})
        same = all(float(first[i]["p_" + name]) == float(second[i]["p_" + name]) for i in rows)
        wanted = difference(*(Model(*pair, clusters) for pair in items), same)
        if wanted["part"]:  # over all clusters, so that findings can be correlated
            at = dict(zip(clusters, wanted["part"]))
            wanted["part"] = [at.get(c, 0.0) for c in sorted({cluster(i) for i in images})]
        check(name, wanted, got)
        done.append((name, wanted, got))
    if all(w["part"] for _, w, _ in done):
        check("mean", mean_of([w for _, w, _ in done]), result["mean"])
    tested = sorted((w["p_value"], n, g) for n, w, g in done if w["p_value"] is not None)
    least = 0.0
    for i, (p, name, got) in enumerate(tested):
        least = max(least, min(1.0, (len(tested) - i) * p))
        check(name, {"p_holm": least}, got)
    print("\n".join(wrong) or f"{figures} figures agree")
    sys.exit(bool(wrong))


main()
