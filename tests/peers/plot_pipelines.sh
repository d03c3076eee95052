#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: plot_pipelines.sh OUT.svg FILE.json...
# Images a second of the old and the new input pipeline, side by side for each number of ranks, from
# what `chex-train --bench-input N --json` printed. No Python: awk writes the drawing.
set -euo pipefail
[ $# -ge 2 ] || {
    sed -n 's/^# usage: /usage: /p' "$0" >&2
    exit 2
}
svg=$1
shift
awk '
function value(key,   at, rest) {
    at = index($0, "\"" key "\": ")
    if (!at) { print FILENAME ": no " key > "/dev/stderr"; failed = 1; exit 3 }
    rest = substr($0, at + length(key) + 4)
    sub(/[,}].*/, "", rest)
    gsub(/"/, "", rest)
    return rest
}
# Up to 9,999 as it is, above in thousands.
function label(x) { return x < 10000 ? sprintf("%.0f", x) : sprintf("%.1f k", x / 1000) }
/images_per_s_median/ {
    n = value("ranks") + 0
    kind = value("pipeline")
    rate[n, kind] = value("images_per_s_median") + 0
    if (!(n in seen)) { seen[n] = 1; ranks[++count] = n }
    if (rate[n, kind] > most) most = rate[n, kind]
    stored = value("stored_size"); size = value("image_size"); batch = value("batch")
}
function bar(x, kind, n,   h) {
    if (!((n, kind) in rate)) return
    h = rate[n, kind] / top * 240
    printf "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\"52\" height=\"%.1f\"/>\n", kind, x, 310 - h, h
    printf "<text text-anchor=\"middle\" x=\"%d\" y=\"%.1f\">%s</text>\n", x + 26, 305 - h, label(rate[n, kind])
}
END {
    if (failed) exit 3
    if (!count) { print "no measurement in the files given" > "/dev/stderr"; exit 3 }
    for (i = 1; i <= count; i++)
        for (k = i + 1; k <= count; k++)
            if (ranks[k] < ranks[i]) { t = ranks[i]; ranks[i] = ranks[k]; ranks[k] = t }
    step = 1
    while (step * 5 < most) step *= (substr(step, 1, 1) == 2) ? 2.5 : 2
    for (top = step; top < most; top += step);
    width = 110 + count * 150
    printf "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d 380\" width=\"%d\" height=\"380\" role=\"img\">\n", width, width
    print "<title>Old and new input pipeline</title>"
    print "<style>text{font:12px system-ui,\"DejaVu Sans\",sans-serif;fill:#1c2733}.m{fill:#5b6875}.t{font-size:15px;font-weight:600}.g{stroke:#c3ccd5;stroke-dasharray:1 3}.old{fill:#9aa7b4}.new{fill:#0b62c4}</style>"
    printf "<rect width=\"%d\" height=\"380\" fill=\"#fff\"/>\n", width
    print "<text class=\"t\" x=\"16\" y=\"24\">Images a second, all ranks together</text>"
    printf "<text class=\"m\" x=\"16\" y=\"42\">%s px of %s stored, batch %s a rank, no network</text>\n", size, stored, batch
    for (y = 0; y <= top * 1.001; y += step) {
        printf "<path class=\"g\" d=\"M70 %.1fH%d\"/>\n", 310 - y / top * 240, width - 16
        printf "<text class=\"m\" text-anchor=\"end\" x=\"64\" y=\"%.1f\">%s</text>\n", 314 - y / top * 240, label(y)
    }
    for (i = 1; i <= count; i++) {
        x = 92 + (i - 1) * 150
        bar(x, "old", ranks[i])
        bar(x + 58, "new", ranks[i])
        printf "<text text-anchor=\"middle\" x=\"%d\" y=\"330\">%d rank%s</text>\n", x + 55, ranks[i], ranks[i] == 1 ? "" : "s"
    }
    print "<g transform=\"translate(70 350)\"><rect width=\"12\" height=\"12\" fill=\"#9aa7b4\"/><text x=\"18\" y=\"11\">old: every rank reads everything</text></g>"
    print "<g transform=\"translate(290 350)\"><rect width=\"12\" height=\"12\" fill=\"#0b62c4\"/><text x=\"18\" y=\"11\">new</text></g>"
    print "</svg>"
}' "$@" >"$svg.tmp.$$" || {
    status=$?
    rm -f "$svg.tmp.$$"
    exit $status
}
mv "$svg.tmp.$$" "$svg"
