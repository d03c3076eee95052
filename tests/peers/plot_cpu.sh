#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How the cpu engine scales: --help says more. No Python: awk writes the table and the drawing.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=../options.sh
. "$here/tests/options.sh"

usage() {
    cat <<END
usage: tests/peers/plot_cpu.sh [OPTION...] measure FILE [threads|batch|pixels]...
       tests/peers/plot_cpu.sh draw FILE OUT.svg
\`measure\` adds to FILE what chex-train --bench says of DenseNet-121's training step, for 1 to all
threads at 224 px and batch 16, for batches of 1 to 32 at 224 px, and for 64 to 448 px at batch 8; a
round goes through all values of a sweep, so that a drift of the machine meets all of them. \`draw\`
prints a table of the medians over the rounds and draws it.
  --rounds N       of each sweep (3)
  --steps N        timed steps of a run (3)
  --precision P    (bf16)
  --threads N      the most (those there are: $(nproc))
END
}

rounds=3 steps=3 precision=bf16 threads=$(nproc)
read_options "rounds# steps# precision threads#" "$@"
bin=${CHEX_TEST_BUILD:-$here/build/release}/bin

# A whole line or none: a run that is cut short leaves nothing.
step() { # sweep threads batch pixels
    local result
    result=$("$bin/chex-train" --bench "$steps" --precision "$precision" --engine cpu --threads "$2" \
        --batch-size "$3" --image-size "$4" --json -q)
    printf '%s %s\n' "$1" "$(tr -d '\n' <<<"$result")"
}

round() { # sweep
    local n
    case $1 in
    threads) for ((n = 1; n <= threads; n = n < threads && 2 * n > threads ? threads : 2 * n)); do
        step threads "$n" 16 224
    done ;;
    batch) for n in 1 2 4 8 16 32; do step batch "$threads" "$n" 224; done ;;
    pixels) for n in 64 96 128 192 224 320 448; do step pixels "$threads" 8 "$n"; done ;;
    *) echo "unknown sweep '$1': expected threads, batch or pixels" >&2 && exit 2 ;;
    esac
}

measure() { # file sweep...
    local file=$1 sweep i
    shift
    [ $# -gt 0 ] || set -- threads batch pixels
    for sweep in "$@"; do
        for ((i = 0; i < rounds; i++)); do round "$sweep" >>"$file"; done
    done
}

draw() { # file svg
    awk -v svg="$2.tmp.$$" '
function value(key,   at, rest) {
    at = index($0, "\"" key "\": ")
    if (!at) { print FILENAME ": no " key > "/dev/stderr"; failed = 1; exit 3 }
    rest = substr($0, at + length(key) + 4)
    sub(/[,}].*/, "", rest)
    gsub(/"/, "", rest)
    return rest
}
{
    sweep = $1
    key = sweep == "pixels" ? "image_size" : sweep
    x = value(key) + 0
    if (!((sweep, x) in runs)) at[sweep, ++points[sweep]] = x
    ms[sweep, x, ++runs[sweep, x]] = value("step_ms_median") + 0
    batch[sweep, x] = value("batch") + 0
    variant = value("variant"); precision = value("precision"); model = value("model")
    if (value("threads") + 0 > threads) threads = value("threads") + 0
}
function median(sweep, x,   n, i, k, v, t) {
    n = runs[sweep, x]
    for (i = 1; i <= n; i++) v[i] = ms[sweep, x, i]
    for (i = 1; i <= n; i++)
        for (k = i + 1; k <= n; k++)
            if (v[k] < v[i]) { t = v[i]; v[i] = v[k]; v[k] = t }
    return (v[int((n + 1) / 2)] + v[int(n / 2) + 1]) / 2
}
function sort(sweep,   i, k, t) {
    for (i = 1; i <= points[sweep]; i++)
        for (k = i + 1; k <= points[sweep]; k++)
            if (at[sweep, k] < at[sweep, i]) {
                t = at[sweep, i]; at[sweep, i] = at[sweep, k]; at[sweep, k] = t
            }
}
# A round number not below x.
# the least number from x on whose quarters are short
function ceiling(x,   step, i, of) {
    for (step = 1; step * 10 < x; step *= 10);
    split("1 1.2 1.6 2 2.4 3.2 4 6 8 10", of, " ")
    for (i = 1; i < 10 && of[i] * step < x; i++);
    return of[i] * step
}
# A panel of the drawing: a line through the points, another for proportion to a reference point.
function panel(sweep, index_, title, subtitle, axis,   i, n, px, py, x, y, most_x, most_y, line, left) {
    left = 60 + index_ * 300
    n = points[sweep]
    for (i = 1; i <= n; i++) {
        if (xs[i] > most_x) most_x = xs[i]
        if (ys[i] > most_y) most_y = ys[i]
        if (wanted[i] > most_y) most_y = wanted[i]
    }
    top_y = ceiling(most_y)
    printf "<text class=\"t\" x=\"%d\" y=\"24\">%s</text>\n", left - 44, title > svg
    printf "<text class=\"m\" x=\"%d\" y=\"42\">%s</text>\n", left - 44, subtitle > svg
    for (i = 0; i <= 4; i++) {
        y = 290 - i * 55
        printf "<path class=\"g\" d=\"M%d %.1fH%d\"/>\n", left, y, left + 220 > svg
        printf "<text class=\"m\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%g</text>\n", left - 6, y + 4, top_y * i / 4 > svg
    }
    line = ""
    for (i = 1; i <= n; i++)
        line = line sprintf("%s%.1f %.1f", i == 1 ? "M" : "L", left + xs[i] / most_x * 210, 290 - wanted[i] / top_y * 220)
    printf "<path class=\"d\" d=\"%s\"/>\n", line > svg
    line = ""
    for (i = 1; i <= n; i++) {
        x = left + xs[i] / most_x * 210
        y = 290 - ys[i] / top_y * 220
        line = line sprintf("%s%.1f %.1f", i == 1 ? "M" : "L", x, y)
        printf "<circle class=\"p\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", x, y > svg
        # Labels that would meet their neighbour are left out.
        if (i == n || xs[i + 1] - xs[i] > most_x * 0.09 || n < 3)
            printf "<text class=\"m\" text-anchor=\"middle\" x=\"%.1f\" y=\"308\">%s</text>\n", x, names[i] > svg
    }
    printf "<path class=\"c\" d=\"%s\"/>\n", line > svg
    printf "<text class=\"m\" text-anchor=\"middle\" x=\"%d\" y=\"326\">%s</text>\n", left + 110, axis > svg
}
END {
    if (failed) exit 3
    if (!points["threads"] || !points["batch"] || !points["pixels"]) {
        print FILENAME ": expected all three sweeps" > "/dev/stderr"; exit 3
    }
    sort("threads"); sort("batch"); sort("pixels")
    print "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 910 370\" width=\"910\" height=\"370\" role=\"img\">" > svg
    print "<title>The cpu engine by threads, batch and image size</title>" > svg
    print "<style>text{font:12px system-ui,\"DejaVu Sans\",sans-serif;fill:#1c2733}.m{fill:#5b6875}.t{font-size:15px;font-weight:600}.g{stroke:#c3ccd5;stroke-dasharray:1 3}.d{fill:none;stroke:#9aa7b4;stroke-width:1.5;stroke-dasharray:6 4}.c{fill:none;stroke:#0b62c4;stroke-width:2}.p{fill:#0b62c4}</style>" > svg
    print "<rect width=\"910\" height=\"370\" fill=\"#fff\"/>" > svg

    print "| threads | images/s | ratio to 1 thread |\n| --- | --- | --- |"
    for (i = 1; i <= points["threads"]; i++) {
        xs[i] = names[i] = x = at["threads", i]
        ys[i] = 1000 * batch["threads", x] / median("threads", x)
        wanted[i] = x / xs[1] * ys[1]
        printf "| %d | %.1f | %.2f |\n", x, ys[i], ys[i] / ys[1]
    }
    panel("threads", 0, "Images a second", "224 px, batch " batch["threads", at["threads", 1]], "threads")

    print "\n| batch | ms a step | ms an image |\n| --- | --- | --- |"
    for (i = 1; i <= points["batch"]; i++) {
        xs[i] = names[i] = x = at["batch", i]
        ys[i] = median("batch", x)
        printf "| %d | %.0f | %.1f |\n", x, ys[i], ys[i] / x
    }
    n = points["batch"]
    for (i = 1; i <= n; i++) wanted[i] = xs[i] / xs[n] * ys[n]
    panel("batch", 1, "Milliseconds a step", "224 px, " threads " threads", "batch")

    print "\n| px | ms a step | ns a pixel |\n| --- | --- | --- |"
    for (i = 1; i <= points["pixels"]; i++) {
        x = at["pixels", i]
        xs[i] = x * x; names[i] = x
        ys[i] = median("pixels", x)
        printf "| %d | %.0f | %.0f |\n", x, ys[i], ys[i] * 1e6 / (x * x * batch["pixels", x])
    }
    n = points["pixels"]
    for (i = 1; i <= n; i++) wanted[i] = xs[i] / xs[n] * ys[n]
    panel("pixels", 2, "Milliseconds a step", "batch " batch["pixels", at["pixels", 1]] ", " threads " threads", "side in px, at its square")

    printf "<g transform=\"translate(16 342)\"><path class=\"d\" d=\"M0 8H26\"/><text x=\"32\" y=\"12\">in proportion to 1 thread, or to the largest batch and image</text><text class=\"m\" x=\"420\" y=\"12\">%s, training, %s, %s; medians</text></g>\n</svg>\n", model, precision, variant > svg
}' "$1" || {
        status=$?
        rm -f "$2.tmp.$$"
        exit $status
    }
    mv "$2.tmp.$$" "$2"
}

case ${words[0]-} in
measure) [ ${#words[@]} -ge 2 ] || { usage >&2 && exit 2; }
    measure "${words[@]:1}" ;;
draw) [ ${#words[@]} -eq 3 ] || { usage >&2 && exit 2; }
    draw "${words[@]:1}" ;;
*) usage >&2 && exit 2 ;;
esac
