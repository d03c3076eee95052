#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table and the plot of tests/examples/what_options_do.sh. Arguments: RUNS SEEDS FILE.svg.

Each option is compared with the plain training of the same set and seed. Prints mean and standard
deviation over seeds (n - 1) of the mean validation AUROC and of the mean expected calibration error
of the findings, and of the differences from the plain training.
"""
import json
import math
import sys
from statistics import fmean, stdev

SETS = {"phantom": "Phantom", "nih-sample": "NIH sample"}
OPTIONS = {
    "plain": "none",
    "pos-weight": "--pos-weight balanced",
    "ema": "--ema 0.95",
    "label-smoothing": "--label-smoothing 0.1",
}
FIGURES = {"auroc": "AUROC", "ece": "ECE"}


def read(runs, data, option, seed):
    with open(f"{runs}/{data}-{option}-{seed}/eval/auroc.json", encoding="utf-8") as f:
        results = json.load(f)
    ece = [k["ece"] for k in results["classes"] if k["ece"] is not None]
    return {"auroc": results["mean"], "ece": fmean(ece)}


def spread(values):
    return stdev(values) if len(values) > 1 else math.nan


def summary(figures, data, option, what, seeds):
    """Mean and deviation of the figure, and of its difference from the plain training."""
    ours = [figures[data, option, s][what] for s in seeds]
    differences = [x - figures[data, "plain", s][what] for s, x in zip(seeds, ours)]
    return fmean(ours), spread(ours), fmean(differences), spread(differences)


def verdict(difference, deviation):
    if math.isnan(deviation):
        return "one seed"
    return "smaller than the spread" if abs(difference) < deviation else "larger than the spread"


def table(figures, seeds):
    for what, name in FIGURES.items():
        print(f"\n| set | option | {name}, mean (SD) | difference, mean (SD) | the difference is |")
        print("| --- | --- | --- | --- | --- |")
        for data, title in SETS.items():
            for option, text in OPTIONS.items():
                mean, sd, d, d_sd = summary(figures, data, option, what, seeds)
                row = f"| {title} | {text if option == 'plain' else f'`{text}`'} | {mean:.3f} ({sd:.3f}) |"
                print(row, "| |" if option == "plain" else f"{d:+.3f} ({d_sd:.3f}) | {verdict(d, d_sd)} |")


ROW, HEAD, NAMES, WIDE, GAP = 24, 56, 250, 250, 36
STYLE = (
    "<style>@media (prefers-color-scheme:dark){.b{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9aa7b4}"
    ".z{stroke:#9aa7b4}.c{stroke:#6fb1ff}.p{fill:#6fb1ff}}</style>"
)


def text(x, y, words, kind='class="t" fill="#1c2733"', anchor="start"):
    return f'<text {kind} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def panel(figures, seeds, what, left):
    """Differences of one figure: a dot for each seed, a bar from mean - SD to mean + SD."""
    rows = [(d, o) for d in SETS for o in OPTIONS if o != "plain"]
    values = [figures[d, o, s][what] - figures[d, "plain", s][what] for d, o in rows for s in seeds]
    top = 1.15 * max(abs(v) for v in values) or 1.0
    middle, bottom = left + WIDE / 2, HEAD + len(rows) * ROW
    out = [
        text(middle, 20, f"{FIGURES[what]}: with the option minus without", anchor="middle"),
        f'<path class="z" stroke="#5b6875" d="M{middle:.1f} {HEAD - 14}V{bottom}"/>',
        text(middle, bottom + 16, "0", 'class="m" fill="#5b6875"', "middle"),
        text(left, bottom + 16, f"{-top:+.2f}", 'class="m" fill="#5b6875"'),
        text(left + WIDE, bottom + 16, f"{top:+.2f}", 'class="m" fill="#5b6875"', "end"),
    ]
    for i, (data, option) in enumerate(rows):
        y = HEAD + (i + 0.3) * ROW
        place = lambda v: middle + v / top * WIDE / 2
        _, _, mean, sd = summary(figures, data, option, what, seeds)
        for s in seeds:
            x = place(figures[data, option, s][what] - figures[data, "plain", s][what])
            out.append(f'<circle class="p" fill="#0b62c4" fill-opacity="0.45" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        if not math.isnan(sd):
            out.append(
                f'<path class="c" stroke="#0b62c4" stroke-width="2" fill="none" d="M{place(mean - sd):.1f} '
                f'{y + 7:.1f}H{place(mean + sd):.1f}M{place(mean):.1f} {y + 3:.1f}v8"/>'
            )
    return out


def plot(figures, seeds, path):
    rows = [(d, o) for d in SETS for o in OPTIONS if o != "plain"]
    width, height = NAMES + 2 * WIDE + GAP + 32, HEAD + len(rows) * ROW + 48
    out = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui,\'DejaVu Sans\',sans-serif" '
        f'font-size="11" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        "<title>What training options change, by seed</title>",
        STYLE,
        f'<rect class="b" fill="#ffffff" width="{width}" height="{height}"/>',
    ]
    for i, (data, option) in enumerate(rows):
        out.append(text(16, HEAD + (i + 0.5) * ROW, f"{SETS[data]}, {OPTIONS[option]}"))
    for k, what in enumerate(FIGURES):
        out += panel(figures, seeds, what, NAMES + k * (WIDE + GAP))
    note = f"Dots: {len(seeds)} seeds. Bar: mean and one standard deviation over seeds."
    out += [text(16, height - 12, note, 'class="m" fill="#5b6875"'), "</svg>"]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    runs, seeds = sys.argv[1], range(1, int(sys.argv[2]) + 1)
    figures = {(d, o, s): read(runs, d, o, s) for d in SETS for o in OPTIONS for s in seeds}
    table(figures, seeds)
    plot(figures, seeds, sys.argv[3])


main()
