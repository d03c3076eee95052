#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills chex-train at random moments. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PATH=${CHEX_TEST_BUILD:-${BUILD:-$root/build/release}}/bin:$PATH
# shellcheck source=options.sh
. "$root/tests/options.sh"

usage() {
    cat <<END
usage: tests/soak_kills.sh [--kills N] [--steps N] [--ranks "N..."] [--seed N] [--opt NAME]
    [--model NAME]
Trains on phantom images of 32 px and kills the run N times (200) at random moments: one rank, all
ranks or mpirun with kill -9, a stopped rank, a second signal while it saves. Each start draws its
number of processes from --ranks ("1 1 2 4") and goes on with --resume auto. A run that reaches its
last step (12) is compared with an undisturbed one: the digest of parameters and moments of each
checkpoint, steps and losses; the last run also by the values in last.h5 and best.h5. --opt: the
optimiser (adam; sgd writes a third less). --model: the network (densenet121). A start may report no
damaged checkpoint and must leave no file of an earlier one.
Exit status: 0 all equal, 1 not, 2 usage. chex-train is taken from CHEX_TEST_BUILD or build/release.
END
}

kills=200 steps=12 ranks="1 1 2 4" seed=1 opt=adam model=densenet121
read_options "kills# steps# seed# opt model ranks" "$@"
no_words
[[ $opt$model =~ ^[a-z0-9_]+$ && $ranks =~ ^[1-4](\ [1-4])*$ ]] ||
    usage_error "--opt '$opt', --model '$model', --ranks '$ranks': expected names and numbers from 1 to 4"
RANDOM=$seed
read -ra ranks <<<"$ranks"

scratch_folder
trap 'ours | xargs -r kill -9; rm -rf "$scratch"' EXIT

{ chex-shard phantom --count 40 --size 32 --seed 2 --output ph -q &&
    chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split patient \
        --fractions 0.6,0.2,0.2 --output set -q; } >out 2>&1 || fail "no shards: $(cat out)"
train=(chex-train --data set --model "$model" --image-size 32 --batch-size 1 --logical-ranks 4 --deterministic --seed 5
    --engine cpu --threads 1 --opt "$opt" --max-steps "$steps" --checkpoint-every 2steps --stall-abort 60s)
many=(mpirun --oversubscribe --bind-to none)
[ "$(id -u)" != 0 ] || many+=(--allow-run-as-root)
if ! "${many[@]}" -n 2 true >out 2>&1; then
    echo "soak: no mpirun: one process only"
    ranks=(1)
fi

compare() {
    diff <(states whole) <(states run) >out || fail "checkpoints differ: $(cat out)"
    diff <(facts whole) <(facts run) >out || fail "metrics.jsonl differs: $(cat out)"
    [ -z "$(find run -name '*.tmp*')" ] || fail "left over: $(find run -name '*.tmp*')"
}
compare_files() {
    local file group
    for file in last.h5 best.h5; do
        for group in params moment1 moment2; do
            [ "$opt $group" != "sgd moment2" ] || continue
            h5diff "whole/$file" "run/$file" "/$group" "/$group" >out 2>&1 ||
                fail "/$group of $file differs: $(cat out)"
        done
    done
}
facts() { grep -o '"kind":"step","epoch":[0-9]*,"step":[0-9]*,"loss":[^,]*' "$1/metrics.jsonl"; }
# Step and digest of each checkpoint. A start that was asked to end may have saved others between them.
states() {
    grep -E '"step":([0-9]*[02468]|'"$steps"'),' "$1/checkpoints.jsonl" |
        grep -oE '"(step|digest)":[^,]*' | paste - - | sort -u
}

# The processes of the start whose first process is $1.
members() {
    [ "$2" = 1 ] && echo "$1" || pgrep -P "$1" -x chex-train
}
# chex-train processes of this soak; false if there is none.
ours() {
    local pid found=1
    for pid in $(pgrep -x chex-train); do
        [ "$(readlink "/proc/$pid/cwd")" = "$scratch" ] && echo "$pid" && found=0
    done
    return $found
}
# Sets counted. A program that counts would take as much time as the training.
count_steps() {
    local line
    counted=0
    [ -e run/metrics.jsonl ] || return 0
    while read -r line; do
        [[ $line != *'"kind":"step"'* ]] || counted=$((counted + 1))
    done <run/metrics.jsonl
}
# A moment after $1 more steps, somewhere within the next ones; of a start with 0: while it sets up.
await_moment() {
    local from
    count_steps
    from=$counted
    while count_steps && [ "$counted" -lt $((from + $1)) ] && kill -0 $waiting 2>/dev/null; do sleep 0.05; done
    sleep "0.$(printf %03d $((RANDOM % ($1 == 0 ? 999 : 300))))"
}
one_of() { [ $# = 0 ] || eval "echo \${$((RANDOM % $# + 1))}"; }

"${train[@]}" --output whole >out 2>&1 || fail "the undisturbed run failed: $(cat out)"
killed=0 starts=0 ends=0
while [ $killed -lt "$kills" ] || [ -e run ]; do
    n=$(one_of "${ranks[@]}")
    command=("${train[@]}" --output run)
    [ "$n" = 1 ] || command=("${many[@]}" -n "$n" "${command[@]}")
    timeout -k 1 300 "${command[@]}" 2>err >out &
    waiting=$!
    until first=$(pgrep -P $waiting) || ! kill -0 $waiting 2>/dev/null; do sleep 0.02; done
    how=$((RANDOM % 5))
    if [ $killed -lt "$kills" ]; then
        await_moment $((RANDOM % 4))
        # shellcheck disable=SC2046
        case $how in
        0) kill -9 $(one_of $(members "$first" "$n")) ;;
        1) kill -9 $(members "$first" "$n") ;;
        2) kill -9 "$first" ;;
        3) victim=$(one_of $(members "$first" "$n")) && kill -STOP "$victim" && sleep 0.2 && kill -9 "$victim" ;;
        4) kill -TERM "$first" && sleep 0.0$((RANDOM % 10)) && kill -9 $(members "$first" "$n") ;;
        esac 2>/dev/null
    fi
    wait $waiting 2>/dev/null
    status=$?
    starts=$((starts + 1))
    ! grep -qE 'warn: .*(checkpoint|step-[0-9]+\.h5)' err || fail "a checkpoint was torn: $(cat err)"
    # What mpirun left behind ends by itself; until then it holds the lock of the run.
    for _ in $(seq 600); do
        ours >left || break
        sleep 0.1
    done
    case $status in
    0)
        compare
        [ $killed -lt "$kills" ] || compare_files
        rm -rf run
        ends=$((ends + 1))
        echo "soak: $killed of $kills kills, $ends runs to the end"
        ;;
    6) ;; # asked to save, and quick enough
    124) fail "a start hangs: $(cat err)" ;;
    *)
        [ $killed -lt "$kills" ] || fail "status $status without a kill: $(cat err)"
        killed=$((killed + 1))
        ;;
    esac
done
echo "soak: $killed kills in $starts starts with ${ranks[*]} processes, $ends runs to the end, no difference"
