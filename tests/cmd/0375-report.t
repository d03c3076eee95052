#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# report.html is one accessible file without scripts or outside resources. It has the hardest cases
# as pictures, the same for any number of ranks and threads, and the command that makes it again.
source "$(dirname "$0")/lib.sh"

[ -x "$BUILD/bin/chex-train" ] || skip_all "no chex-train here"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
quiet chex-shard phantom --count 60 --size 48 --seed 3 --output ph
quiet chex-shard --images ph/images --labels ph/labels.csv --split patient --size 36 --shards 2 --output 'my shards'
quiet chex-train --data 'my shards' --output run --model densenet_tiny --image-size 32 --batch-size 8 --max-steps 1 \
    --engine cpu --threads 1
evaluate() { chex-eval --data 'my shards' --checkpoint run/last.h5 --engine cpu --split train --allow-overlap "$@"; }

expect_status 0 evaluate --output one --threads 1
page=one/report.html
like "$(cat $page)" '<h2 id="hardest">Hardest cases</h2>' "the report has the hardest cases"
like "$(cat $page)" 'This section holds images of patients' "a note warns that the file holds images"
is "$(grep -c 'data:image/png;base64,iVBOR' $page)" "$(grep -c '<figure>' $page)" "each case has its pictures"
# not_dated FILE: without what may differ between two runs.
not_dated() { sed -E '/<pre>|made by|^<title|<p>split/d; s/<dd>[0-9]+<\/dd>//' "$1"; }
expect_status 0 evaluate --output two --threads 2 --workers 1 --batch-size 3
is "$(not_dated two/report.html | cksum)" "$(not_dated $page | cksum)" "threads and batches change nothing"
expect_status 0 evaluate --output none --hardest 0
unlike "$(cat none/report.html)" '<img|<figure|id="hardest"' "--hardest 0 leaves all images out"
expect_status 0 evaluate --output more --hardest 5
[ "$(grep -c '<figure>' more/report.html)" -gt "$(grep -c '<figure>' $page)" ]
ok $? "--hardest 5 shows more images"
expect_status 2 evaluate --output bad --hardest 21
error_line 'hardest' "more images than the limit are refused"
expect_status 2 chex-eval score --predictions one/predictions.csv --hardest 1
error_line 'hardest' "score has no images to show"

if have mpirun && [ -e "$BUILD/lib/chexnet-mpi.so" ]; then
    saved=$ASAN_OPTIONS
    export ASAN_OPTIONS=$saved:detect_leaks=0 # Open MPI leaks by itself
    expect_status 0 mpirun --allow-run-as-root --oversubscribe -n 3 chex-eval --data 'my shards' \
        --checkpoint run/last.h5 --engine cpu --split train --allow-overlap --output three --threads 1
    is "$(not_dated three/report.html | cksum)" "$(not_dated $page | cksum)" "3 ranks make the same pictures"
    export ASAN_OPTIONS=$saved
else
    skip "no MPI here" 2
fi

# ---- the command ----
command=$(sed -n 's/^<pre>\(.*\)<\/pre>$/\1/p' $page | sed "s/&#39;/'/g; s/&quot;/\"/g; s/&amp;/\&/g")
is "$command" "chex-eval --data 'my shards' --checkpoint run/last.h5 --split train --allow-overlap --engine cpu --threads 1 --output one" \
    "the command has every option that is no default, quoted for a shell"
mv one first
eval "$command" >/dev/null 2>&1
is "$(not_dated one/report.html | cksum)" "$(not_dated first/report.html | cksum)" "the command makes the report again"
cmp -s one/auroc.json first/auroc.json
ok $? "and the same figures"

# ---- structure: xmllint reads the page, which is well-formed XML ----
have xmllint || { skip "no xmllint here" 11; done_testing; }
xmllint --noout --nonet $page
ok $? "the page is well-formed XML"
xmllint --html --noout --nonet $page 2>html.log
is "$(grep 'error :' html.log | grep -vE ': Tag [a-z]+ invalid$')" "" \
    "the HTML parser only complains about elements that it is too old for"
count() { xmllint --nonet --xpath "count($1)" $page; }
is "$(count '//script') $(count '//link') $(count '//iframe') $(count '//@onload')" "0 0 0 0" "the page has no scripts and no links to resources"
is "$(count '//@href[not(starts-with(., "#"))]') $(count '//@src[not(starts-with(., "data:image/png;base64,"))]')" "0 0" \
    "the page refers to nothing outside of itself"
unlike "$(cat $page)" 'url\(|@import|https?://' "the page has no address"
is "$(xmllint --xpath '//@id' $page | sort | uniq -d)" "" "each id is used once"
is "$(count '//a[not(substring(@href, 2) = //@id)]')" "0" "each link of the contents has a target"
is "$(count '//nav//a')" "$(count '//h2')" "the contents list every section"
is "$(count '//h1') $(count '//h3[not(preceding::h2)]') $(count '//h4')" "1 0 0" "headings are in order"
is "$(count '//table[not(caption)]') $(count '//th[not(@scope)]')" "0 0" "each table has a caption, each heading a scope"
is "$(count '//img[not(@alt) or @alt=""]') $(count '//div[@class="cxs"][not(@aria-label)]')" "0 0" "each picture has a text"
done_testing
