#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The tools that judge kernels and the source tree find planted faults, and none where there is none:
# tests/gpu/ptxas.sh and cmake/ptxas_log.sh (messages of ptxas 13.0), tests/check_tree.sh.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"

# record NAME REGISTERS FRAME STORES LOADS: what ptxas says of one kernel.
record() {
    cat <<END
ptxas info    : Compiling entry function '$1' for 'sm_90'
ptxas info    : Function properties for $1
    $3 bytes stack frame, $4 bytes spill stores, $5 bytes spill loads
ptxas info    : Used $2 registers, used 1 barriers, 128 bytes smem
END
}
mkdir -p good/er
printf '# comment\nmask_kernel 256 128 128\npack 1024 64 256\n' >good/table
{ record _ZN1_11mask_kernelIfEEv 107 0 0 0 && record _ZN1_4packIfEEv 64 0 0 0; } >good/er/x.o.ptxas
expect_status 0 bash "$SOURCE/tests/gpu/ptxas.sh" --list --table good/table good
like "$(out)" "^sm_90: 2 kernels, at most 107 registers$" "the records of a folder: the target and its worst"
like "$(out)" "^ 107 registers +128 shared +sm_90 +_ZN1_11mask_kernel" "--list names each kernel"

printf 'mask_kernel 256 128 127\npack 1024 72 256\nstale 64 8 0\nmask_kernel 256 128\n' >table
{
    record _ZN1_11mask_kernelIfEEv 129 0 0 0
    record _ZN1_4packIdEEv 65 16 4 8
    record _ZN1_5otherEv 3 0 0 0
    printf 'ptxas info    : Function properties for _Z1fv\n    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n'
    record _ZN1_4packIcEEv 3 0 0 0 | head -n 3
} >r.ptxas
expect_status 1 bash "$SOURCE/tests/gpu/ptxas.sh" --table table r.ptxas
while IFS='|' read -r text name; do like "$(out)" "^FAILED: .*$text" "ptxas.sh: $name"; done <<'END'
_ZN1_4packIdEEv for sm_90: a stack frame of 16 bytes|a stack frame fails
_ZN1_4packIdEEv for sm_90: 12 bytes of spills|spills fail
129 registers, 128 allowed \(mask_kernel\)|a register over the budget fails
65 registers for 1024 threads|more registers than a block can have are a fault
mask_kernelIfEEv for sm_90: 128 bytes of static shared memory, 127 allowed|static shared memory over the budget fails
otherEv for sm_90: no line of table is about it|a kernel without a line fails
a function with a stack frame of 8 bytes|functions that are called count
packIcEEv: the record ends before its registers|a cut record fails
"stale" matches no kernel|a stale line of the table fails
is not REGEX THREADS REGISTERS STATIC_BYTES|a line of another form fails
END
echo "ptxas info    : 0 bytes gmem" >none.ptxas
expect_status 1 bash "$SOURCE/tests/gpu/ptxas.sh" --table good/table none.ptxas
like "$(out)" "no kernel in the records" "ptxas.sh: a record without kernels fails"

# The recorder, with a compiler that says what nvcc says.
cat >nvcc <<'END'
#!/bin/sh
echo "ptxas info    : Used 3 registers" >&2
echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" >&2
echo "x.cu(3): warning #177-D: unused" >&2
exit "${FAKE_STATUS:-0}"
END
chmod +x nvcc
FAKE_STATUS=3 expect_status 3 sh "$SOURCE/cmake/ptxas_log.sh" ./nvcc -c x.cu -o x.o
is "$(err)" "x.cu(3): warning #177-D: unused" "the recorder leaves warnings where they were"
is "$(grep -c . x.o.ptxas)" 2 "the recorder keeps the figures of each kernel"

# A small tree without a fault, then with one of each kind.
# put FILE TEXT: a source file with a head.
put() {
    mkdir -p "tree/${1%/*}"
    printf '/* SPDX-License-Identifier: Apache-2.0\n *\n * A file of the small tree.\n */\n%s' "$2" >"tree/$1"
}
checks=(heads layers names commands changed examples)
have clang-format && checks+=(format)
have cppcheck && checks+=(analyser)
mkdir -p tree/{libcore,cmd,share,slurm,tests/unit,doc/add}
cp "$SOURCE/.clang-format" tree/
printf 'set(layers base launch\n  train)\n' >tree/libcore/CMakeLists.txt
put libcore/base/one.h $'int chex_one(void);\n'
put libcore/train/two.c $'#include "base/one.h"\n\nint chex_two(void);\nint chex_two(void) { return chex_one(); }\n'
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
touch tree/tests/unit/one.c
printf 'libcore/base/ ^unit-(one|o)\ncmd -\n' >tree/tests/changed.txt
cat >tree/doc/add/one.md <<'END'
+++ outside of a diff
```diff
+++ libcore/train/two.c
@@
 int chex_two(void);
-int chex_two(void) { return chex_one(); }
+int chex_two(void) { return chex_one() + CHEX_ADDED; }
+++ libcore/base/one.h
@@
 int chex_one(void);
+enum { CHEX_ADDED };
```
END
expect_status 0 "$SOURCE/tests/check_tree.sh" --root tree "${checks[@]}"
is "$(out)" "" "check_tree.sh: a sound tree has no fault; words, texts and patterns of a script are no commands"

printf '/* SPDX-License-Identifier: Apache-2.0 */\nint x;\n' >tree/libcore/base/bare.c
put libcore/base/up.c $'#include "train/two.h"\n#include "nowhere/two.h"\n'
put cmd/two.c $'int y;\n'
put libcore/base/three.h $'struct chex_three { int x; };\n'
put libcore/train/four.h $'enum chex_three { CHEX_THREE };\n'
put libcore/train/odd.c $'int   odd ;\n'
put libcore/train/wild.c $'int chex_wild(void);\nint chex_wild(void) {\n    int a[3] = {0};\n    return a[3];\n}\n'
cat >tree/tests/odd.sh <<'END'
[ -z "x $(frob <a)" ] ||
    find . -exec knead {} \;
nice timeout 5 jqx .a
X=1 whisk; ls
ps | `carve`
END
printf 'libcore/none/ ^unit-(one|gone)\n' >tree/tests/changed.txt
sed 's/CHEX_ADDED };/CHEX_OTHER };/' tree/doc/add/one.md >tree/doc/add/stale.md
sed 's/^ int chex_one/ int chex_old/' tree/doc/add/one.md >tree/doc/add/old.md
printf 'git status\n' >tree/share/first.sh
printf 'pgrep a\n' >tree/slurm/site.sh
expect_status 1 "$SOURCE/tests/check_tree.sh" --root tree "${checks[@]}"
is "$(sed -nE 's/^([a-z]+\/[a-z]+\.sh:[0-9]+: [a-z]+): .*/\1/p' out)" "share/first.sh:1: git
slurm/site.sh:1: pgrep
tests/odd.sh:1: frob
tests/odd.sh:2: knead
tests/odd.sh:3: jqx
tests/odd.sh:4: whisk
tests/odd.sh:5: carve" "check_tree.sh: commands of no known package, or of one that the script may not use, are named"
while IFS='|' read -r check text name; do
    [[ " ${checks[*]} " != *" $check "* ]] || like "$(out)" "^$text" "check_tree.sh: $name"
done <<'END'
heads|libcore/base/bare.c:1: no head|a file without a head is named
layers|libcore/base/up.c:5: layer base includes train/two.h, which is in a layer above|an include upward is named with its line
layers|libcore/base/up.c:6: includes nowhere/two.h, which is in no layer|an include of no layer is found
names|two.c: more than one file: cmd/two.c libcore/train/two.c|two files of one name are named
names|train/four.h:5:6: defined twice:.*chex_three|two headers that define one name are named
changed|tests/changed.txt: no path begins with libcore/none/|a path of changed.txt that does not exist is named
changed|tests/changed.txt: libcore/none/: \^unit-gone matches no test|a pattern that matches no test is named
examples|doc/add/old.md: a hunk of libcore/base/one.h is not once in it: int chex_old\(void\);|an example that no longer fits is named
examples|doc/add/stale.md: libcore/train/two.c:.*CHEX_ADDED|an example that does not compile is named
format|libcore/train/odd.c:5:.*clang-format|a line that clang-format would change is named
analyser|libcore/train/wild.c:8: error \[arrayIndexOutOfBounds\]|the analyser's finding is named
END
done_testing
