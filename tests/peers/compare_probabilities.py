#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the greatest difference between the probabilities of a table without a head (image_id, one
column for each output) and predictions.csv. Exits with 1 if it is above BOUND (5e-5), or if rows
differ.

usage: compare_probabilities.py TABLE.csv predictions.csv NAME [BOUND]
"""
import csv
import sys

BOUND = float(sys.argv[4]) if len(sys.argv) > 4 else 5e-5

with open(sys.argv[1], newline="") as file:
    theirs = {row[0]: [float(cell) for cell in row[1:]] for row in csv.reader(file)}
with open(sys.argv[2], newline="") as file:
    ours = {row["image_id"]: [float(row[key]) for key in row if key.startswith("p_")]
            for row in csv.DictReader(file)}
if theirs.keys() != ours.keys():
    sys.exit(f"{sys.argv[3]}: other images")
difference = max(abs(a - b) for name in ours for a, b in zip(ours[name], theirs[name], strict=True))
print(f"{sys.argv[3]:24} greatest difference of a probability {difference:.2e} (at most {BOUND})")
sys.exit(difference > BOUND)
