#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard --resume reads finished shards and spools of an interrupted run before it keeps them.
# It makes damaged ones anew.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

chex-shard phantom --count 60 --size 32 --output ph --quiet >/dev/null || exit 1
run=(chex-shard --images ph/images --labels ph/labels.csv --split none --size 32 --shards 6)
"${run[@]}" --output whole --quiet || exit 1
# A bad image ends a run; with --resume its five other shards stay.
mv ph/images/00000003_000.png good.png
interrupted() { # FOLDER OPTION...
    head -c 100 good.png >ph/images/00000003_000.png
    "${run[@]}" "${@:2}" --output "$1" --resume --quiet 2>/dev/null
    cp -p good.png ph/images/00000003_000.png
}
interrupted base
kept() { find "$1/.chex-shard-partial" -name '*.h5' | sort; }
is "$(kept base | grep -c .)" 5 "five finished shards"
# Shards of the same images with one other field in every row.
declare -A other=([labels]='s/^([^,]*,)[^,]*,/\1Hernia,/' [age]='s/^(([^,]*,){4})[0-9]+/\197/'
    [sex]='s/,M,/,F,/; t; s/,F,/,M,/' [view]='s/,PA,/,AP,/; t; s/,AP,/,PA,/'
    [patient]='s/^(([^,]*,){3})[0-9]+/\1777/')
number=0
try() { # NAME REGEX: resumes `o` with one damaged shard
    expect_status 0 "${run[@]}" --output o --resume
    is "$(grep -c 'warn: --resume: 1 of 5 finished shards are damaged and will be built again' err)" 1 "$1: one line says it"
    like "$(err)" "the first: o/.chex-shard-partial/all-.*h5: $2" "$1: and why"
    like "$(out)" "^4 shards kept" "$1: the other shards are kept"
    diff -r whole o
    ok $? "$1: the set is that of a run in one go"
    rm -rf o
}
for field in labels age sex view patient; do
    sed -E "2,\$ { ${other[$field]} }" ph/labels.csv >"$field.csv"
    cmp -s ph/labels.csv "$field.csv" && fail "$field.csv differs"
    interrupted "of.$field" --labels "$field.csv"
    cp -rp base o
    number=$((number % 5 + 1))
    file=$(kept o | sed -n ${number}p) name=${file##*/}
    cp "of.$field/.chex-shard-partial/${name%%.*}".*.h5 "$file"
    try "$field" "row [0-9]+: the $field of 0"
done
cp -rp base o
cp "$(kept o | sed -n 2p)" "$(kept o | sed -n 4p)"
try "another shard" "(row 0: the image id of|its attributes differ)"
cp -rp base o
printf x | dd of="$(kept o | sed -n 3p)" bs=1 seek=9000 conv=notrunc 2>/dev/null
try "a changed pixel" "row [0-9]+ .*pixels do not match their checksum"
cp -rp base o
truncate -s 5000 "$(kept o | sed -n 1p)"
try "a truncated file" ""
cp -rp base o
: >"$(kept o | sed -n 5p)"
try "an empty file" ""
cp -rp base o
expect_status 0 "${run[@]}" --output o --resume --workers 3
unlike "$(err)" " warn: " "sound shards are kept without a warning"
like "$(err)" "checking finished shards 50/50 img" "the check of finished shards is logged"

# Images of a compressed archive wait in a spool.
tar -C ph -czf images.tgz images
mkdir packed && mv images.tgz packed
run[2]=packed
touch -r packed/images.tgz stamp
"${run[@]}" --output wholetar --quiet || exit 1
"${run[@]}" --output kill --quiet --workers 1 2>/dev/null &
pid=$!
wait_in_run $pid compgen -G 'kill/.chex-shard-partial/spool-*[0-9a-f]' >spools
kill -9 $pid
wait $pid 2>/dev/null
spool=$(compgen -G 'kill/.chex-shard-partial/spool-*' | grep -v tmp)
if [ -e kill/manifest.json ] || [ -z "$spool" ]; then
    skip "the run was over before it could be killed" 3
else
    printf xyz | dd of="$spool" bs=1 seek=7000 conv=notrunc 2>/dev/null
    expect_status 0 "${run[@]}" --output kill --resume
    like "$(err)" "warn: --resume: spool kill/.*the archive is read again" "a damaged spool is made anew"
    diff -r wholetar kill
    ok $? "the set is that of an uninterrupted run"
fi
done_testing
