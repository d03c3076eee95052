#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records scikit-learn's AUROCs, and DeLong variances by their definition, for tests/unit/auroc.c.

usage: record_auroc.py OUTPUT_DIR

Writes scores.csv (case,label,score; scores as %.9g of fp32) and expected.csv
(case,auroc,delong_variance). Needs NumPy and scikit-learn. Deterministic.
"""
import csv
import os
import sys

import numpy as np
from sklearn.metrics import roc_auc_score


def delong_variance(y, s):
    """Placements pair by pair, as the article defines them."""
    p, n = s[y == 1][:, None], s[y == 0][None, :]
    if p.size < 2 or n.size < 2:
        return float("nan")
    psi = (p > n) + 0.5 * (p == n)
    return psi.mean(1).var(ddof=1) / p.size + psi.mean(0).var(ddof=1) / n.size


def cases():
    rng = np.random.default_rng(20260131)
    y = rng.random(60) < 0.3
    yield "plain", y, rng.normal(y * 0.8, 1).astype(np.float32)
    y = rng.random(60) < 0.3
    yield "ties", y, np.round(rng.normal(y * 0.8, 1), 0).astype(np.float32)
    y = rng.random(40) < 0.5
    yield "two_values", y, (rng.random(40) < 0.5).astype(np.float32)
    y = rng.random(40) < 0.5
    yield "constant", y, np.full(40, 0.25, np.float32)
    y = rng.random(30) < 0.5
    zero = np.where(rng.random(30) < 0.5, -0.0, 0.0)
    yield "signed_zero", y, np.where(rng.random(30) < 0.4, zero, rng.normal(y, 1)).astype(np.float32)
    y = np.arange(50) >= 25
    yield "perfect", y, np.arange(50).astype(np.float32)
    yield "reversed", ~y, np.arange(50).astype(np.float32)
    y = np.zeros(50, bool)
    y[17] = True
    yield "one_positive", y, rng.random(50).astype(np.float32)
    y = rng.random(50) < 0.4
    yield "tiny_and_huge", y, (rng.choice([1e-42, -1e-42, 1e30, -1e30, 1, -1], 50)).astype(np.float32)
    y = rng.random(80) < 0.2
    # Probabilities of a sure network: most of them tie at 0 or at 1 in fp32.
    yield "saturated", y, (1 / (1 + np.exp(-rng.normal(12 * y - 4, 12)))).astype(np.float32)


def main(out):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "scores.csv"), "w", newline="") as f, open(
        os.path.join(out, "expected.csv"), "w", newline=""
    ) as g:
        scores, expected = csv.writer(f, lineterminator="\n"), csv.writer(g, lineterminator="\n")
        scores.writerow(["case", "label", "score"])
        expected.writerow(["case", "auroc", "delong_variance"])
        for name, y, s in cases():
            y = y.astype(int)
            for label, score in zip(y, s):
                scores.writerow([name, label, "%.9g" % score])
            expected.writerow(
                [name, "%.17g" % roc_auc_score(y, s), "%.17g" % delong_variance(y, s.astype(np.float64))]
            )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
