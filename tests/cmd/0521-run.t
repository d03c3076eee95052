#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/run.sh reports tests and stages that did not run. cmake and ctest are fakes.
source "$(dirname "$0")/lib.sh"

# A tree of its own: the real one may be under test.
mkdir -p tree/tests tree/share bin
cp "$SOURCE/tests/run.sh" tree/tests/
cp "$SOURCE/share/packages.sh" tree/share/
for tool in awk bash cat dirname env find grep ls mkdir nproc rm sed sort tail tr wc xargs; do
    ln -s "$(command -v $tool)" bin/
done
cat >bin/cmake <<'END'
#!/bin/bash
echo "-- CUDA: no (AUTO): no nvcc here"
END
cat >bin/ctest <<'END'
#!/bin/bash
while [ $# -gt 0 ]; do
    case $1 in
    --test-dir) dir=$2 ;;
    --output-junit) xml=$2 ;;
    esac
    shift
done
mkdir -p "$dir/Testing/Temporary"
cp "$STUB/junit" "$xml"
cp "$STUB/log" "$dir/Testing/Temporary/LastTest.log"
END
ln -s "$(command -v cp)" bin/
chmod +x bin/cmake bin/ctest
cat >log <<'END'
1/3 Testing: unit-one
1/3 Test: unit-one
Output:
ok 1 - fine
2/3 Testing: slurm-two
Output:
1..0 # SKIP no Slurm cluster here: not installed: munged
3/3 Testing: cmd-three
Output:
ok 1 # SKIP no man here
ok 2 - name # SKIP no man here
END
junit() { # tests, skipped
    printf '<testsuite name="x"\n\ttests="%s"\n\tfailures="0"\n\tdisabled="0"\n\tskipped="%s"\n>\n' \
        "$@" >junit
}
run() {
    env -i PATH="$SCRATCH/bin" STUB="$SCRATCH" HOME="$SCRATCH" bash tree/tests/run.sh --no-install "$@"
}

junit 3 1
expect_status 0 run --stage release
like "$(out)" "^skipped: slurm-two: no Slurm cluster here: not installed: munged$" \
    "a skipped test is shown with its reason"
like "$(out)" "^skipped in part: cmd-three: no man here \(2 checks\)$" \
    "skipped checks of a test that ran are shown with their reason"
unlike "$(out)" "unit-one" "a test without skipped checks is not listed"
like "$(out)" "^  release +passed +[0-9]+ s, 1 skipped$" "the table counts skipped tests of a passed stage"

junit 1 1
expect_status 0 run --stage release
like "$(out)" "^  release +skipped " "a stage whose tests were all skipped did not pass"
expect_status 0 run --stage sanitize,cuda,valgrind
for stage in sanitize cuda valgrind; do
    like "$(out)" "^  $stage +skipped +[0-9]+ s" "$stage: a skipped stage is not called passed"
done
like "$(out)" "^skipped: cuda: no nvcc here$" "the reason of a skipped stage is shown"

# Linters of another Debian have other opinions.
printf '#!/bin/bash\n' >tree/tests/check_tree.sh
printf '#!/bin/bash\necho "Debian clang-format version 19.1.7"\n' >bin/clang-format
printf '#!/bin/bash\necho "Cppcheck 2.10"\n' >bin/cppcheck
chmod +x tree/tests/check_tree.sh bin/clang-format bin/cppcheck
expect_status 0 run --stage lint
like "$(out)" "^skipped: format of the source tree: needs clang-format 14, and this is .* 19.1.7$" \
    "a linter of another version is not asked"
like "$(out)" "^passed: analyser of the source tree$" "the version that the tree was checked with is"

# Only what changed files need.
mkdir -p tree/libcore/label tree/libcore/new tree/tests/unit
cp "$SOURCE/tests/changed.txt" tree/tests/
echo build >tree/.gitignore
ln -s "$(command -v git)" bin/
git() { command git -C tree -c user.name=a -c user.email=a@b -c commit.gpgsign=false "$@"; }
git init -q && git add . && git commit -qm first
junit 1 0
expect_status 0 run --changed HEAD
like "$(out)" "^skipped: changed: no file differs from " "without a changed file no test runs"
echo >tree/tests/unit/opt.c
echo >tree/CONTRIBUTING.md
expect_status 0 run --changed HEAD
like "$(out)" 'tests: \^unit-opt[$]$' "a changed test runs alone, and a page without tests runs none"
echo >tree/libcore/label/label.c
expect_status 0 run --changed HEAD
like "$(out)" "tests: .*\^cmd-0233" "a changed folder runs the tests of its line in tests/changed.txt"
echo >tree/libcore/new/file.c
expect_status 0 run --changed HEAD
like "$(out)" "tests: all$" "a changed file of no line runs every test"
like "$(err)" "has no line for libcore/new/file.c" "the path that asks for every test is named"
expect_status 2 run --changed nowhere
stale=$(awk '!/^#/ && NF { print $1 }' "$SOURCE/tests/changed.txt" | while read -r prefix; do
    compgen -G "$SOURCE/$prefix*" >matches || echo "$prefix"
done)
is "$stale" "" "each prefix of tests/changed.txt is in the tree"
done_testing
