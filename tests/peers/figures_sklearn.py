#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the figures of `chex-eval score` with scikit-learn, on random and on tied scores.

    python3 -m venv venv && venv/bin/pip install scikit-learn
    venv/bin/python tests/peers/figures_sklearn.py build/release/bin/chex-eval

AUROC, average precision, Brier score, calibration slope and intercepts, thresholds of all rules and
the decisions at them must agree to 1e-9. Prints the greatest difference of each figure."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (average_precision_score, brier_score_loss, confusion_matrix, f1_score,
                             roc_auc_score, roc_curve)

LOGIT_MAX = 16.635532273
RULES = ["youden", "f1", "sensitivity=0.9", "specificity=0.9", "sensitivity=1", "specificity=0.5"]


def logit(p):
    with np.errstate(divide="ignore"):
        return np.clip(np.log(p) - np.log1p(-p), -LOGIT_MAX, LOGIT_MAX)


def slope_and_intercept(x, y):
    fit = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    fit.fit(x[:, None], y)
    return fit.coef_[0, 0], fit.intercept_[0]


def threshold_of(rule, y, p):
    """The highest of the best thresholds. Youden's index and F1 are compared as integers."""
    fpr, tpr, at = roc_curve(y, p, drop_intermediate=False)
    P, N = int(y.sum()), int((1 - y).sum())
    tp, fp = np.rint(tpr * P).astype(int), np.rint(fpr * N).astype(int)
    kind, _, target = rule.partition("=")
    at, tp, fp = at[1:], tp[1:], fp[1:]  # without the point (0, 0)
    if kind == "sensitivity":
        return at[np.flatnonzero(tp / P >= float(target))[0]]
    if kind == "specificity":
        return at[np.flatnonzero((N - fp) / N >= float(target))[-1]]
    if kind == "youden":
        return at[np.argmax(tp * N - fp * P)]
    best = max(range(len(at)), key=lambda i: (f1_score(y, p >= at[i]), at[i]))
    return at[best]


def tables():
    rng = np.random.default_rng(1)
    for n, share, decimals in ((400, 0.3, 9), (2000, 0.05, 9), (500, 0.2, 2), (300, 0.5, 1)):
        truth = rng.normal(np.log(share / (1 - share)), 1.5, n)
        y = (rng.random(n) < 1 / (1 + np.exp(-truth))).astype(int)
        p = 1 / (1 + np.exp(-(0.7 * truth + 0.4 + rng.normal(0, 0.3, n))))
        p = np.round(p.astype(np.float32).astype(float), decimals)
        yield f"{n} rows, {decimals} decimals", y, np.clip(p, 0, 1)


def score(program, folder, y, p, rule):
    path = Path(folder) / "predictions.csv"
    rows = (f"i{i},p{i // 2},{y[i]},{float(p[i])!r}" for i in range(len(y)))
    path.write_text("image_id,patient_id,y_A,p_A\n" + "\n".join(rows) + "\n")
    out = subprocess.run([program, "score", "--predictions", path, "--json", "--threshold", rule,
                          "--compare", "none"], stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout)["classes"][0]


def expected(y, p, rule):
    slope, intercept = slope_and_intercept(logit(p), y)
    large = brentq(lambda a: (y - 1 / (1 + np.exp(-(a + logit(p))))).sum(), -20, 20, xtol=1e-14)
    at = threshold_of(rule, y, p)
    tn, fp, fn, tp = confusion_matrix(y, p >= at).ravel()
    return {"auroc": roc_auc_score(y, p), "average_precision": average_precision_score(y, p),
            "brier": brier_score_loss(y, p), "calibration_slope": slope,
            "calibration_intercept": intercept, "calibration_in_the_large": large,
            "threshold": at, "tp": tp, "fp": fp, "tn": tn, "fn": fn,
            "f1": f1_score(y, p >= at), "ppv": tp / (tp + fp),
            "npv": tn / (tn + fn) if tn + fn else None}


def main():
    worst, bad = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, y, p in tables():
            for rule in RULES:
                got = score(sys.argv[1], folder, y, p, rule)
                got = {**got, **got["operating"]}
                for key, value in expected(y, p, rule).items():
                    if value is None or got[key] is None:
                        difference = 0 if value == got[key] else np.inf
                    else:
                        difference = abs(got[key] - value)
                    worst[key] = max(worst.get(key, 0), difference)
                    if not difference <= 1e-9:
                        bad += 1
                        print(f"{name}, {rule}: {key} {got[key]}, scikit-learn {value}")
    for key, value in worst.items():
        print(f"{key:26} {value:.1e}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
