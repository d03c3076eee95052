#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Start-up and cost of a step against the number of ranks, on one machine: --help says more.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    cat <<END
usage: tests/scale.sh measure FILE [RANKS...]
       tests/scale.sh draw FILE OUT.svg
\`measure\` starts 2, 4, 8, 16, 32 and 64 ranks (or RANKS) with mpirun, more than there are cores, and adds
a line a number to FILE:
  ranks; seconds of a training of 3 steps, 32 px, batch 1, one thread a rank, from mpirun to its end;
  milliseconds of its last step; milliseconds and processor milliseconds of an exchange of 88 bytes, and
  of a sum of 8 MB (tests/tools/launch_probe.c, the mean over the ranks); MB that a rank keeps of the sum
A training that fails ends the script. \`draw\` prints the lines as a table and draws them.
CHEX_TEST_BUILD names the build folder (build/release).
END
}

build=${CHEX_TEST_BUILD:-$here/build/release}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

ranks_of() { # N COMMAND...
    mpirun --oversubscribe -n "$1" "${@:2}" </dev/null 2>>"$work/err" || {
        tail -n 5 "$work/err" >&2
        exit 1
    }
}

# The mean of a key over the lines of the ranks.
mean() { # KEY
    grep -o "\"$1\": [0-9.]*" "$work/rates" | awk '{ sum += $2 } END { printf "%.3f", sum / NR }'
}

measure() { # FILE RANKS...
    local file=$1 n began ended step
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    PATH=$build/bin:$PATH
    chex-shard phantom --count 300 --size 32 --seed 1 --output "$work/ph" -q >/dev/null
    chex-shard create --images "$work/ph/images" --labels "$work/ph/labels.csv" --size 32 --shards 4 \
        --split patient --fractions 0.94,0.03,0.03 --seed 1 --output "$work/shards" -q >/dev/null 2>&1
    for n in "${@:2}"; do
        began=$(date +%s%N)
        ranks_of "$n" chex-train --data "$work/shards" --output "$work/run$n" --image-size 32 --batch-size 1 \
            --engine cpu --threads 1 --epochs 1 --max-steps 3 -q
        ended=$(date +%s%N)
        step=$(grep -o '"step_ms":[0-9.]*' "$work/run$n/metrics.jsonl" | tail -n 1 | cut -d: -f2)
        ranks_of "$n" "$build/tests/launch_probe" rates rounds=30 fixed=0 count=2000000 >"$work/rates"
        echo "$n $(((ended - began) / 1000000)) $step $(mean exchange_ms) $(mean exchange_cpu_ms) \
$(mean sum_ms) $(mean sum_cpu_ms) $(mean sum_mb)" | tee -a "$file"
        rm -rf "$work/run$n"
    done
}

draw() { # FILE OUT.svg
    # The last line of each number of ranks counts.
    awk '{ last[$1] = $0 } END { for (n in last) print last[n] }' "$1" | sort -n | awk -v svg="$2" '
# Both axes are logarithmic: 60 px a doubling of the ranks, 55 px a power of ten from `low` on.
function y_of(value, low) { return 290 - 55 * log(value / low) / log(10) }
function panel(left, title, subtitle, low, columns, names,   i, k, of, what, line, y) {
    printf "<text class=\"t\" x=\"%d\" y=\"24\">%s</text>\n<text class=\"m\" x=\"%d\" y=\"42\">%s</text>\n",
        left - 40, title, left - 40, subtitle > svg
    for (i = 0; i <= 4; i++)
        printf "<path class=\"g\" d=\"M%d %dH%d\"/><text class=\"m\" text-anchor=\"end\" x=\"%d\" y=\"%d\">%g</text>\n",
            left, 290 - 55 * i, left + 60 * (rows - 1), left - 6, 294 - 55 * i, low * 10 ^ i > svg
    for (i = 1; i <= rows; i++)
        printf "<text class=\"m\" text-anchor=\"middle\" x=\"%d\" y=\"308\">%d</text>\n", left + 60 * (i - 1), at[i, 1] > svg
    count = split(columns, of, " ")
    split(names, what, "|")
    for (k = 1; k <= count; k++) {
        line = ""
        for (i = 1; i <= rows; i++) {
            y = y_of(at[i, of[k]], low)
            line = line sprintf("%s%d %.1f", i == 1 ? "M" : "L", left + 60 * (i - 1), y)
        }
        printf "<path class=\"c%d\" d=\"%s\"/>\n<text x=\"%d\" y=\"%.1f\">%s</text>\n", k, line,
            left + 60 * (rows - 1) + 6, y + 4, what[k] > svg
    }
}
{ rows++; for (i = 1; i <= NF; i++) at[rows, i] = $i + (i > 3 && $i == 0 ? 0.0005 : 0); at[rows, 2] /= 1000 }
END {
    if (rows < 2) { print "expected lines of two numbers of ranks" > "/dev/stderr"; exit 3 }
    width = 120 * (rows - 1) + 420
    print "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " width " 330\" width=\"" width "\" height=\"330\" role=\"img\">" > svg
    print "<title>Start-up and cost of a step by ranks</title>" > svg
    print "<style>text{font:12px system-ui,\"DejaVu Sans\",sans-serif;fill:#1c2733}.m{fill:#5b6875}.t{font-size:15px;font-weight:600}.g{stroke:#c3ccd5;stroke-dasharray:1 3}.c1{fill:none;stroke:#0b62c4;stroke-width:2}.c2{fill:none;stroke:#b3541e;stroke-width:2}</style>" > svg
    print "<rect width=\"" width "\" height=\"330\" fill=\"#fff\"/>" > svg
    panel(60, "A training of 3 steps", "seconds, by ranks that share the cores", 0.1, "2", "all")
    panel(60 * (rows - 1) + 220, "Processor time of a rank", "milliseconds, by ranks", 0.001, "5 7", "exchange|sum of 8 MB")
    print "</svg>" > svg
    print "| ranks | training of 3 steps, s | last step, s | exchange of 88 bytes, ms | its processor time, ms | sum of 8 MB, ms | its processor time, ms |"
    print "| --- | --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= rows; i++)
        printf "| %d | %.1f | %.2f | %.3f | %.3f | %.0f | %.1f |\n", at[i, 1], at[i, 2], at[i, 3] / 1000, at[i, 4], at[i, 5], at[i, 6], at[i, 7]
}'
}

case ${1-} in
draw)
    [ $# -eq 3 ] || { usage >&2 && exit 2; }
    draw "$2" "$3"
    ;;
measure)
    [ $# -ge 2 ] || { usage >&2 && exit 2; }
    if [ $# -gt 2 ]; then measure "${@:2}"; else measure "$2" 2 4 8 16 32 64; fi
    ;;
-h | --help) usage ;;
*) usage >&2 && exit 2 ;;
esac
