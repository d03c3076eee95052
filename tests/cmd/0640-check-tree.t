#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/check_tree.sh finds planted faults in a small tree, and nothing in a sound one.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

check() { "$SOURCE/tests/check_tree.sh" --root tree "$@"; }
# put FILE TEXT: a source file with a head.
put() {
    mkdir -p "tree/${1%/*}"
    printf '/* SPDX-License-Identifier: Apache-2.0\n *\n * A file of the small tree.\n */\n%s' "$2" >"tree/$1"
}
all=(heads layers names)
command -v clang-format >/dev/null && all+=(format)
command -v cppcheck >/dev/null && all+=(analyser)

mkdir -p tree/libcore tree/cmd
cp "$SOURCE/.clang-format" tree/
printf 'set(layers base launch\n  train)\n' >tree/libcore/CMakeLists.txt
put libcore/base/one.h $'int chex_one(void);\n'
put libcore/train/two.c $'#include "base/one.h"\n\nint chex_two(void);\nint chex_two(void) { return chex_one(); }\n'
expect_status 0 check "${all[@]}"
is "$(out)" "" "a sound tree has no fault"

printf '/* SPDX-License-Identifier: Apache-2.0 */\nint x;\n' >tree/libcore/base/bare.c
expect_status 1 check heads
like "$(out)" "^libcore/base/bare.c:1: no head" "a file without a head is named"
rm tree/libcore/base/bare.c

put libcore/base/up.c $'#include "train/two.h"\n'
expect_status 1 check layers
like "$(out)" "^libcore/base/up.c:5: layer base includes train/two.h, which is in a layer above" \
    "an include upward is named with its line"
put libcore/base/up.c $'#include "nowhere/two.h"\n'
expect_status 1 check layers
like "$(out)" "includes nowhere/two.h, which is in no layer" "an include of no layer is found"
rm tree/libcore/base/up.c

put cmd/two.c $'int y;\n'
expect_status 1 check names
like "$(out)" "^two.c: more than one file: cmd/two.c libcore/train/two.c" "two files of one name are named"
rm tree/cmd/two.c
put libcore/base/three.h $'struct chex_three { int x; };\n'
put libcore/train/four.h $'enum chex_three { CHEX_THREE };\n'
expect_status 1 check names
like "$(out)" "^train/four.h:5:6: defined twice:.*chex_three" "two headers that define one name are named"
rm tree/libcore/base/three.h tree/libcore/train/four.h

mkdir -p tree/share tree/slurm tree/tests
printf 'packages_build="gcc cmake"\npackages_test="git\n    procps"\n' >tree/share/packages.sh
cat >tree/tests/sound.sh <<'END'
#!/bin/bash
# frob is no command here.
later() { case $1 in frob | knead) cat <<EOF ;; *) [[ $1 = frob && -f knead ]] ;; esac; }
frob "$(frob)" 'frob'
EOF
names=(frob "$(git status)" # frob
    knead)
timeout -k 5 60 env A=frob pgrep -f "frob; knead ${names[*]#frob (}" >knead 2>&1 || later $((1 + (2))); awk '{ frob }'
END
printf 'grep a | sort\nsrun true\n' >tree/slurm/site.sh
expect_status 0 check commands
is "$(out)" "" "words, texts, patterns and functions are no commands"
cat >tree/tests/odd.sh <<'END'
[ -z "x $(frob <a)" ] ||
    find . -exec knead {} \;
nice timeout 5 jqx .a
X=1 whisk; ls
ps | `carve`
END
printf 'git status\n' >tree/share/first.sh
printf 'pgrep a\n' >tree/slurm/site.sh
expect_status 1 check commands
is "$(out | cut -d: -f1-3)" "share/first.sh:1: git
slurm/site.sh:1: pgrep
tests/odd.sh:1: frob
tests/odd.sh:2: knead
tests/odd.sh:3: jqx
tests/odd.sh:4: whisk
tests/odd.sh:5: carve" "a command of no known package, or of one that is not installed for the script, is named"
rm -r tree/share tree/slurm tree/tests

if command -v clang-format >/dev/null; then
    put libcore/train/odd.c $'int   odd ;\n'
    expect_status 1 check format
    like "$(out)" "^libcore/train/odd.c:5:.*clang-format" "a line that clang-format would change is named"
    rm tree/libcore/train/odd.c
fi
if command -v cppcheck >/dev/null; then
    put libcore/train/wild.c $'int chex_wild(void);\nint chex_wild(void) {\n    int a[3] = {0};\n    return a[3];\n}\n'
    expect_status 1 check analyser
    like "$(out)" "^libcore/train/wild.c:8: error \[arrayIndexOutOfBounds\]" "the analyser's finding is named"
fi
expect_status 2 check nothing
done_testing
