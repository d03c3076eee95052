#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Start-up and cost of a step against the number of ranks, on one machine: --help says more.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    cat <<END
usage: tests/scale.sh measure FILE [RANKS...]
       tests/scale.sh draw FILE OUT.svg
\`measure\` starts 1, 2, 4, 16 and 64 ranks (or RANKS) with mpirun, more than there are cores, and adds
a line a number to FILE. Call it several times for several rounds. A line has:
   1 ranks
   2 seconds of launch_probe: launch, one exchange through PMIx, end
     of a training of 3 steps, 32 px, batch 1, one thread a rank:
   3 seconds from mpirun to the end of the set-up
   4 seconds from mpirun to its end
   5 milliseconds of its last step
   6 processor seconds of a rank
   7 peak memory of a rank in MB (mean)
     of launch_probe rates (mean over the ranks):
   8 milliseconds, 9 processor milliseconds of an exchange of 88 bytes
  10 milliseconds, 11 processor milliseconds of a sum of 8 MB
A training that fails ends the script. \`draw\` prints the medians as a table and draws them.
CHEX_TEST_BUILD names the build folder (build/release).
END
}

build=${CHEX_TEST_BUILD:-$here/build/release}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
TIMEFORMAT='%R %U %S'

ranks_of() { # N COMMAND...
    CHEX_MPI=openmpi mpirun --oversubscribe -n "$1" "${@:2}" </dev/null
}

# The mean of a key over the lines of the ranks.
mean() { # KEY FILE
    grep -o "\"$1\": *[0-9.]*" "$2" | awk -F: '{ sum += $2 } END { printf "%.3f", NR ? sum / NR : 0 }'
}

since_ms() { echo $((($(date +%s%N) - $1) / 1000000)); }

# Prints the milliseconds from `began` to the line with which rank 0 ends the set-up; keeps all lines.
set_up_ms() { # BEGAN LOG
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$2"
        case $line in *" GFLOP an image "*) since_ms "$1" ;; esac
    done
}

# A training of N ranks: prints the seconds of set-up and of all, the processor seconds and the MB of
# a rank.
train() { # N OUTPUT
    local began setup_ms all_ms
    rm -f "$work"/kib.*
    : >"$work/log"
    began=$(date +%s%N)
    # shellcheck disable=SC2016
    if ! { time ranks_of "$1" bash -c 'exec "$0" "$1.$PMIX_RANK" "${@:2}"' "$build/tests/peak_rss" "$work/kib" \
        chex-train --data "$work/shards" --output "$2" --image-size 32 --batch-size 1 --engine cpu --threads 1 \
        --epochs 1 --max-steps 3 2>&1 >/dev/null | set_up_ms "$began" "$work/log" >"$work/setup"; } 2>"$work/time"; then
        tail -n 5 "$work/log" >&2
        exit 1
    fi
    all_ms=$(since_ms "$began")
    setup_ms=$(cat "$work/setup")
    awk -v setup="$setup_ms" -v all="$all_ms" -v n="$1" \
        '{ printf "%.2f %.2f %.3f ", setup / 1000, all / 1000, ($2 + $3) / n }' "$work/time"
    cat "$work"/kib.* | awk '{ sum += $1 } END { printf "%.0f\n", sum * 1024 / 1e6 / NR }'
}

measure() { # FILE RANKS...
    local file=$1 n began launch_s start_s all_s cpu_s mb step
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    PATH=$build/bin:$PATH
    chex-shard phantom --count 300 --size 32 --seed 1 --output "$work/ph" -q >/dev/null
    chex-shard create --images "$work/ph/images" --labels "$work/ph/labels.csv" --size 32 --shards 4 \
        --split patient --fractions 0.94,0.03,0.03 --seed 1 --output "$work/shards" -q >/dev/null 2>&1
    for n in "${@:2}"; do
        began=$(date +%s%N)
        ranks_of "$n" "$build/tests/launch_probe" exchange rounds=1 >/dev/null
        launch_s=$(since_ms "$began" | awk '{ printf "%.2f", $1 / 1000 }')
        train "$n" "$work/run$n" >"$work/line"
        read -r start_s all_s cpu_s mb <"$work/line"
        step=$(grep -o '"step_ms":[0-9.]*' "$work/run$n/metrics.jsonl" | tail -n 1 | cut -d: -f2)
        ranks_of "$n" "$build/tests/launch_probe" rates rounds=30 fixed=0 count=2000000 >"$work/rates"
        echo "$n $launch_s $start_s $all_s $step $cpu_s $mb $(mean exchange_ms "$work/rates") \
$(mean exchange_cpu_ms "$work/rates") $(mean sum_ms "$work/rates") $(mean sum_cpu_ms "$work/rates")" | tee -a "$file"
        rm -rf "$work/run$n"
    done
}

draw() { # FILE OUT.svg
    sort -n "$1" | awk -v svg="$2" '
# The median of a column over the rounds of one number of ranks.
function median(ranks, column,   n, i, j, v, at) {
    n = rounds[ranks]
    for (i = 1; i <= n; i++) {
        v = value[ranks, i, column]
        for (j = i; j > 1 && at[j - 1] > v; j--) at[j] = at[j - 1]
        at[j] = v
    }
    return n % 2 ? at[(n + 1) / 2] : (at[n / 2] + at[n / 2 + 1]) / 2
}
# Both axes are logarithmic: 50 px a doubling of the ranks, 55 px a power of ten from `low` on.
function x_of(left, k) { return left + 50 * log(is[k, 1] / is[1, 1]) / log(2) }
function y_of(v, low) { return 290 - 55 * log(v / low) / log(10) }
function panel(left, title, subtitle, low, columns, names,   i, k, n, of, what, line, right) {
    right = x_of(left, count)
    printf "<text class=\"t\" x=\"%d\" y=\"24\">%s</text>\n<text class=\"m\" x=\"%d\" y=\"42\">%s</text>\n",
        left - 40, title, left - 40, subtitle > svg
    for (i = 0; i <= 4; i++)
        printf "<path class=\"g\" d=\"M%d %dH%d\"/><text class=\"m\" text-anchor=\"end\" x=\"%d\" y=\"%d\">%g</text>\n",
            left, 290 - 55 * i, right, left - 6, 294 - 55 * i, low * 10 ^ i > svg
    for (i = 1; i <= count; i++)
        printf "<text class=\"m\" text-anchor=\"middle\" x=\"%d\" y=\"308\">%d</text>\n", x_of(left, i), is[i, 1] > svg
    split(columns, of, " ")
    n = split(names, what, "|")
    for (k = 1; k <= n; k++) {
        line = ""
        for (i = 1; i <= count; i++)
            if (is[i, of[k]] >= low)
                line = line sprintf("%s%d %.1f", line == "" ? "M" : "L", x_of(left, i), y_of(is[i, of[k]], low))
        printf "<path class=\"c%d\" d=\"%s\"/>\n<text x=\"%d\" y=\"%.1f\">%s</text>\n", k, line, right + 6,
            y_of(is[count, of[k]], low) + 4, what[k] > svg
    }
}
NF != 11 { print "line " NR ": " NF " numbers (expected 11)" > "/dev/stderr"; failed = 1; exit 3 }
{
    if (!rounds[$1]++) order[++count] = $1
    for (i = 1; i <= NF; i++) value[$1, rounds[$1], i] = $i
    least[$1] = rounds[$1] == 1 || $4 < least[$1] ? $4 : least[$1]
    most[$1] = $4 > most[$1] ? $4 : most[$1]
}
END {
    if (failed) exit 3
    if (count < 2) { print "expected lines of two numbers of ranks" > "/dev/stderr"; exit 3 }
    for (i = 1; i <= count; i++) {
        for (k = 1; k <= 11; k++) is[i, k] = median(order[i], k)
        is[i, 5] /= 1000
    }
    width = 2 * (x_of(0, count) + 200)
    print "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " width " 330\" width=\"" width "\" height=\"330\" role=\"img\">" > svg
    print "<title>Start-up and cost of a step by ranks</title>" > svg
    print "<style>text{font:12px system-ui,\"DejaVu Sans\",sans-serif;fill:#1c2733}.m{fill:#5b6875}.t{font-size:15px;font-weight:600}.g{stroke:#c3ccd5;stroke-dasharray:1 3}.c1{fill:none;stroke:#0b62c4;stroke-width:2}.c2{fill:none;stroke:#b3541e;stroke-width:2}.c3{fill:none;stroke:#2e7d4f;stroke-width:2}</style>" > svg
    print "<rect width=\"" width "\" height=\"330\" fill=\"#fff\"/>" > svg
    panel(60, "A training of 3 steps", "seconds, by ranks that share the cores", 0.01, "4 5 2", "all|last step|launch alone")
    panel(260 + x_of(0, count), "Processor time of a rank", "milliseconds, by ranks", 0.001, "9 11", "exchange|sum of 8 MB")
    print "</svg>" > svg
    print "| ranks | launch alone, s | set-up, s | all, s | last step, s | processor time of a rank, s | memory of a rank, MB | exchange of 88 bytes, ms | its processor time, ms | sum of 8 MB, ms | its processor time, ms | rounds |"
    print "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for (i = 1; i <= count; i++)
        printf "| %d | %.2f | %.1f | %.1f (%.1f to %.1f) | %.2f | %.2f | %.0f | %.3f | %.3f | %.0f | %.1f | %d |\n", is[i, 1], is[i, 2], is[i, 3], is[i, 4], least[order[i]], most[order[i]], is[i, 5], is[i, 6], is[i, 7], is[i, 8], is[i, 9], is[i, 10], is[i, 11], rounds[order[i]]
}'
}

case ${1-} in
draw)
    [ $# -eq 3 ] || { usage >&2 && exit 2; }
    draw "$2" "$3"
    ;;
measure)
    [ $# -ge 2 ] || { usage >&2 && exit 2; }
    if [ $# -gt 2 ]; then measure "${@:2}"; else measure "$2" 1 2 4 16 64; fi
    ;;
-h | --help) usage ;;
*) usage >&2 && exit 2 ;;
esac
