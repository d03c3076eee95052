#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times `chex-eval score` beside scikit-learn: AUROCs of 14 findings of 25,596 images (the official
test split of ChestX-ray14) with bootstrap intervals by patient.

    python3 -m venv venv && venv/bin/pip install scikit-learn
    venv/bin/python tests/peers/score_speed.py build/release/bin/chex-eval [RUNS]

Both take one thread, in turn, RUNS times (3). scikit-learn computes 10 replicates, and its time is
scaled to 1,000. chex-eval runs with and without replicates: the difference is what scikit-learn
computes; the whole run also reads the table and computes all other figures."""
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

CLASSES, ROWS, PATIENTS, REPLICATES, SAMPLE = 14, 25596, 2797, 1000, 10


def write_table(path, patient, label, score):
    names = [f"Finding{c}" for c in range(CLASSES)]
    with open(path, "w") as f:
        f.write(",".join(["image_id", "patient_id"] + ["y_" + n for n in names]
                         + ["p_" + n for n in names]) + "\n")
        for i in range(ROWS):
            f.write(f"{i}.png,{patient[i]}," + ",".join(map(str, label[i])) + ","
                    + ",".join(f"{p:.9g}" for p in score[i]) + "\n")


def scikit_seconds(rng, patient, label, score):
    rows_of = [np.flatnonzero(patient == p) for p in range(PATIENTS)]
    start = time.perf_counter()
    for _ in range(SAMPLE):
        rows = np.concatenate([rows_of[p] for p in rng.integers(PATIENTS, size=PATIENTS)])
        for c in range(CLASSES):
            roc_auc_score(label[rows, c], score[rows, c])
    return (time.perf_counter() - start) * REPLICATES / SAMPLE


def chex_seconds(command, table, replicates):
    start = time.perf_counter()
    subprocess.run([command, "score", "--predictions", table, "--interval", "bootstrap",
                    "--bootstrap", str(replicates), "--threads", "1", "--compare", "none"],
                   check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main():
    command, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    rng = np.random.default_rng(1)
    patient = np.sort(rng.integers(PATIENTS, size=ROWS))
    label = (rng.random((ROWS, CLASSES)) < rng.uniform(0.01, 0.2, CLASSES)).astype(np.int8)
    score = (1 / (1 + np.exp(3 - label - rng.normal(size=(ROWS, CLASSES))))).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "predictions.csv")
        write_table(table, patient, label, score)
        whole, without, theirs = [], [], []
        for _ in range(runs):
            whole.append(chex_seconds(command, table, REPLICATES))
            without.append(chex_seconds(command, table, 0))
            theirs.append(scikit_seconds(rng, patient, label, score))
    run, alone, peer = np.median(whole), np.median(whole) - np.median(without), np.median(theirs)
    print(f"scikit-learn {peer:.1f} s (from {SAMPLE} replicates)")
    print(f"chex-eval: replicates {alone:.3f} s ({peer / alone:.0f} times faster), "
          f"the whole run {run:.2f} s ({peer / run:.0f} times)")


main()
