#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The one entrance to the tests. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../share/packages.sh
. "$root/share/packages.sh"
all_stages="lint release sanitize races valgrind cuda"

usage() {
    cat <<END
usage: tests/run.sh [OPTION...]
Installs what the tests need (Debian packages, by apt; environment-modules conflicts with lmod and is
only unpacked, in build/ci-unpacked), configures, builds and runs the tests. What
it makes is in build/ci-*; it can be run again.
  --stage NAME[,NAME]  only these, in this order; all by default:
                         lint      shellcheck, form of the source tree (tests/check_tree.sh), manual pages
                         release   gcc, warnings are errors, every test
                         sanitize  clang, warnings are errors, address and undefined behaviour: unit and
                                   operation tests; every target of tests/fuzz, half a minute in all
                         races     data races in the CUDA engine's kernels, on the emulated device
                         valgrind  a small job: phantom images, shards, training, evaluation
                         cuda      chexnet-cuda.so by nvcc, warnings are errors; no spills, register
                                   budgets; for 9.0, and for every target if the engine's files differ
                                   from the main branch; nothing runs on a GPU (tests/gpu/run.sh)
  --nightly            stage cuda compiles for every target
  --changed [COMMIT]   only what the files that differ from COMMIT need (the main branch by default):
                       the form of the tree and the tests that tests/changed.txt names
  --tests REGEX        only tests whose names match (ctest -R)
  --jobs N             compilers at a time ($(nproc)); of tests, which wait a lot, twice as many
  --no-install         install nothing; tests that miss something are skipped and say so
  --help
ccache is used where it is installed. CUDAToolkit_ROOT=FOLDER names the CUDA toolkit of stage cuda.
CHEX_TEST_WITHOUT=SLURM,PMIX,LMOD,PYTHON,VALGRIND skips what needs them, as if they were absent.
Exit status: 0 nothing failed, 1 something did, 2 usage, 4 packages are missing.
END
}

passed=0 failed=0 skipped=0

die_usage() {
    echo "tests/run.sh: $*; try --help" >&2
    exit 2
}

without() {
    [[ ,${CHEX_TEST_WITHOUT-}, = *,"$1",* ]]
}

# The commit that this branch left the main branch at, or nothing.
main_base() {
    local branch
    for branch in origin/main main origin/HEAD; do
        git merge-base HEAD "$branch" 2>/dev/null && return
    done
}

# changed_since COMMIT [PATH...]: files that differ from it, new ones included, one a line.
changed_since() {
    local commit=$1
    shift
    git diff --name-only "$commit" -- "$@" && git ls-files --others --exclude-standard -- "$@"
}

# check NAME COMMAND...: one step outside of ctest, quiet unless it fails.
check() {
    local name=$1 log=$root/build/ci-check.log
    shift
    if "$@" >"$log" 2>&1; then
        echo "passed: $name"
        passed=$((passed + 1))
    else
        tail -n 60 "$log"
        echo "FAILED: $name"
        failed=$((failed + 1))
        return 1
    fi
}

skip() {
    echo "skipped: $1: $2"
    skipped=$((skipped + 1))
}

# Objects come from an earlier run, or from a stage with the same options, wherever the tree lies. In
# depend mode headers count as files: what nvcc preprocesses for the host tells nothing of what it
# makes for devices.
use_ccache() {
    ccache -s >/dev/null 2>&1 || return 0
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
    local language
    for language in C CXX CUDA; do
        local name=CMAKE_${language}_COMPILER_LAUNCHER
        export "$name=${!name-ccache}"
    done
}

# Seconds for a test: ctest measures the time on the clock, and on a busy machine a test gets a share
# of a core only.
test_timeout() {
    local load factor
    read -r load _ </proc/loadavg
    factor=$((1 + ${load%.*} / $(nproc)))
    echo $((1200 * (factor > 4 ? 4 : factor)))
}

# The CUDA engine takes nvcc minutes: the stage cuda builds it, and the kernels' tests need none.
build() { # preset, options of cmake
    local preset=$1
    shift
    check "$preset: configure" cmake --preset "$preset" -B "build/ci-$preset" -DCHEX_WERROR=ON \
        -DCHEX_BUILD_TESTS=ON -DCHEX_TEST_TIMEOUT="$(test_timeout)" -DCHEX_WITH_CUDA=OFF "$@" &&
        check "$preset: build" cmake --build "build/ci-$preset" -j "$jobs"
}

run_ctest() { # preset, options of ctest
    local dir=$root/build/ci-$1 xml all bad out
    shift
    xml=$dir/ctest.xml
    rm -f "$xml"
    ctest --test-dir "$dir" --output-on-failure --no-tests=ignore -j $((2 * jobs)) \
        --output-junit "$xml" "$@" ${pattern:+-R "$pattern"}
    if [ ! -f "$xml" ]; then
        echo "FAILED: ctest wrote no result"
        failed=$((failed + 1))
        return
    fi
    read -r all bad out <<<"$(sed -n '/<testsuite/,/>/p' "$xml" | tr ' \t' '\n' | awk -F'"' '
        /^tests=/ { all = $2 } /^failures=/ { bad = $2 } /^(skipped|disabled)=/ { out += $2 }
        END { print all + 0, bad + 0, out + 0 }')"
    skip_reasons "$dir/Testing/Temporary/LastTest.log"
    [ "$all" != "$out" ] || stage_skipped=yes
    passed=$((passed + all - bad - out)) failed=$((failed + bad)) skipped=$((skipped + out))
}

# Of the stage that has just ended. Configuring and building alone is not a passed stage.
verdict() {
    if [ "$failed" != "$failed_before" ]; then
        echo FAILED
    elif [ $stage_skipped = yes ] || [ "$passed" = "$passed_before" ]; then
        echo skipped
    else
        echo passed
    fi
}
skipped_now() {
    [ "$skipped" = "$skipped_before" ] || echo ", $((skipped - skipped_before)) skipped"
}

# Why tests, or checks inside of tests, did not run: from ctest's log $1, which holds the output of
# all tests. In TAP "1..0 # SKIP why" is a whole test, "ok 3 - name # SKIP why" one check.
skip_reasons() {
    awk '
        /^[0-9]+\/[0-9]+ Testing: / { name = $3 }
        /^1\.\.0 # SKIP/ { sub(/.*# SKIP */, ""); print "skipped: " name ": " $0 }
        /^ok [0-9]+ .*# SKIP/ { sub(/.*# SKIP */, ""); part[name ": " $0]++ }
        END { for (p in part) print "skipped in part: " p " (" part[p] " check" (part[p] > 1 ? "s)" : ")") }
    ' "$1" | sort
}

check_scripts() { # script...
    if command -v shellcheck >/dev/null; then
        # shellcheck disable=SC2016
        check "shellcheck of $# scripts" bash -c 'printf "%s\0" "${@:2}" |
            xargs -0 -n 8 -P "$1" shellcheck -x -s bash' - "$jobs" "$@"
    else
        skip shellcheck "not installed"
    fi
}

# The whole stage cannot run here.
skip_stage() { # reason
    skip "$stage" "$1"
    stage_skipped=yes
}

stage_lint() {
    local scripts pages
    mapfile -t scripts < <(find tests share slurm cmake .ci datasets \( -name '*.sh' -o -name '*.t' \
        -o -name '*.bash' -o -name '*.sbatch' -o -path .ci/run \) -type f 2>/dev/null | sort)
    check_scripts "${scripts[@]}"
    # Other versions format otherwise and find other things: those of Debian 12 decide.
    local form=(heads layers names commands changed examples) tool version check
    while read -r tool version check; do
        if ! command -v "$tool" >/dev/null; then
            skip "$check of the source tree" "$tool is not installed"
        elif ! "$tool" --version | grep -qE " $version([.]|$)"; then
            skip "$check of the source tree" "needs $tool $version, and this is $("$tool" --version)"
        else
            form+=("$check")
        fi
    done <<<$'clang-format 14 format\ncppcheck 2.10 analyser'
    for tool in "${form[@]}"; do
        check "$tool of the source tree" tests/check_tree.sh "$tool"
    done
    mapfile -t pages < <(find share -name '*.[1-8]' | sort)
    if [ ${#pages[@]} = 0 ] || ! command -v mandoc >/dev/null; then
        skip "manual pages" "no mandoc, or no pages"
    else
        check "mandoc of ${#pages[@]} pages" mandoc -Tlint -W warning,stop "${pages[@]}"
    fi
}

stage_release() {
    build release && run_ctest release -LE '^races$'
}

# One build for the warnings of clang, the sanitizers and the fuzzer.
stage_sanitize() {
    if ! command -v clang >/dev/null; then
        skip_stage "clang is not installed"
        return
    fi
    build sanitize || return
    run_ctest sanitize -L '^(unit|op)$'
    fuzz
}

# Half a minute of both processors, however many targets there are; tests/fuzz.sh alone takes longer.
fuzz() {
    local targets seconds status=0 found log=$root/build/ci-fuzz.log
    targets=$(find tests/fuzz -name '*.c' ! -name replay.c | wc -l)
    seconds=$(((30 * jobs + targets - 1) / targets))
    tests/fuzz.sh --seconds "$seconds" --jobs "$jobs" --seed 1 >"$log" 2>&1 || status=$?
    cat "$log"
    found=$(grep -c '^FAILED: ' "$log")
    [ $status = 0 ] || [ "$found" != 0 ] || found=1 # it ended before it could say so
    passed=$((passed + $(grep -c '^passed: ' "$log")))
    failed=$((failed + found))
}

# In the build folder of release: the host's objects are there.
stage_races() {
    build release -DCHEX_TEST_RACES=ON &&
        check "races: build" cmake --build build/ci-release -j "$jobs" --target gpu-races &&
        run_ctest release -L '^races$'
}

# valgrind knows no AVX-512, so the plain engine runs the network.
stage_valgrind() {
    if without VALGRIND || ! command -v valgrind >/dev/null; then
        skip_stage "not installed, or taken away by CHEX_TEST_WITHOUT"
        return
    fi
    [ -x build/ci-release/bin/chex-shard ] || build release || return
    local bin=$root/build/ci-release/bin dir=$root/build/ci-valgrind
    local watched=(valgrind --quiet --error-exitcode=99 --leak-check=full
        --errors-for-leak-kinds=definite --suppressions="$root/tests/valgrind.supp")
    rm -rf "$dir"
    mkdir -p "$dir"
    check "valgrind: phantom" "${watched[@]}" "$bin/chex-shard" phantom --count 48 --size 40 \
        --seed 3 --output "$dir/phantom" &&
        check "valgrind: shard" "${watched[@]}" "$bin/chex-shard" create \
            --images "$dir/phantom/images" --labels "$dir/phantom/labels.csv" --split patient \
            --size 32 --shards 2 --output "$dir/shards" &&
        check "valgrind: verify" "${watched[@]}" "$bin/chex-shard" verify "$dir/shards" || return
    check "valgrind: environment" "${watched[@]}" "$bin/chex-env" --mode login
    [ -x "$bin/chex-train" ] || { skip "valgrind: training" "no chex-train" && return; }
    check "valgrind: training" "${watched[@]}" "$bin/chex-train" --data "$dir/shards" \
        --output "$dir/run" --model densenet_tiny --engine ref --image-size 32 --batch-size 2 \
        --max-steps 2 --epochs 1 --threads 2 --workers 1 || return
    [ -x "$bin/chex-eval" ] || { skip "valgrind: evaluation" "no chex-eval" && return; }
    check "valgrind: evaluation" "${watched[@]}" "$bin/chex-eval" --data "$dir/shards" \
        --checkpoint "$dir/run/last.h5" --output "$dir/eval" --engine ref --threads 2 \
        --bootstrap 20
}

# What the module may show (engine/cuda/host/cuda_module.h) and what it may not need: it has to load on nodes
# without a driver, to say so.
module_symbols() {
    local module=$1 shown
    shown=$(nm -D --defined-only "$module" | awk '{ print $3 }' | sort | tr '\n' ' ')
    echo "shown: $shown"
    [ "$shown" = "chexnet_cuda_runtime chexnet_engine_cuda chexnet_module_adopt $(
    )chexnet_module_version " ] || return 1
    ! readelf -d "$module" | grep -E 'NEEDED.*(libcuda|libcudart|libnccl)\.so'
}

# The targets that the engine is compiled for: nothing means all. Most faults are in all of them, and
# each takes nvcc minutes.
cuda_targets() {
    local base
    base=$(main_base)
    [ $nightly = yes ] || [ -z "$base" ] ||
        [ -n "$(changed_since "$base" libcore/engine/cuda cmake/cuda.cmake tests/gpu/registers.txt)" ] ||
        echo 90-real
}

stage_cuda() {
    local dir=build/ci-cuda why module targets toolkit=${CUDAToolkit_ROOT-}
    # A build folder keeps the toolkit that it was configured with.
    [ "$(cat $dir/toolkit 2>/dev/null)" = "$toolkit" ] || rm -rf $dir
    mkdir -p $dir
    echo "$toolkit" >$dir/toolkit
    targets=$(cuda_targets)
    check "cuda: configure" cmake --preset cuda -B $dir -DCHEX_WERROR=ON -DCHEX_WITH_CUDA=AUTO \
        -DCHEX_BUILD_TESTS=OFF -DCHEX_CUDA_ARCHITECTURES="$targets" || return
    why=$(sed -n 's/^-- *CUDA: no (.*): //p' build/ci-check.log)
    if [ -n "$why" ]; then
        skip_stage "$why"
        return
    fi
    [ -z "$targets" ] || skip "cuda: targets other than 9.0" \
        "the engine does not differ from the main branch, and --nightly is not given"
    check "cuda: build" cmake --build $dir -j "$jobs" --target chexnet-cuda || return
    module=$dir/lib/chexnet-cuda.so
    check "cuda: spills, stack frames, registers" tests/gpu/ptxas.sh $dir
    grep -E '^sm_' build/ci-check.log
    check "cuda: what the module shows and needs" module_symbols $module
}

# The tests that the changed files need: one regular expression; "all", or nothing.
changed_tests() { # file...
    printf '%s\n' "$@" | awk '
        NR == FNR { if (!/^#/ && NF == 2) { prefix[++n] = $1; regex[n] = $2 }; next }
        match($0, /^tests\/(unit|op|gpu|cmd|slurm)\/[^\/]*\.(c|t)$/) {
            split($0, part, "/"); sub(/\.[ct]$/, "", part[3])
            want["^" part[2] "-" part[3] "$"] = 1
            next
        }
        {
            for (i = 1; i <= n && index($0, prefix[i]) != 1; i++) {}
            if (i > n) print "tests/changed.txt has no line for " $0 >"/dev/stderr"
            want[i > n ? "all" : regex[i]] = 1
        }
        END {
            delete want["-"]
            if ("all" in want) { print "all"; exit }
            for (w in want) text = text (text == "" ? "" : "|") w
            print text
        }' tests/changed.txt -
}

stage_changed() {
    local files scripts=() file
    mapfile -t files < <(changed_since "$base" | sort -u)
    [ ${#files[@]} != 0 ] || { skip_stage "no file differs from $base" && return; }
    pattern=$(changed_tests "${files[@]}")
    echo "${#files[@]} files differ from $base; tests: ${pattern:-none}"
    for file in "${files[@]}"; do
        [[ ! $file =~ \.(sh|t|bash|sbatch)$ || ! -f $file ]] || scripts+=("$file")
    done
    [ ${#scripts[@]} = 0 ] || check_scripts "${scripts[@]}"
    check "form of the source tree" tests/check_tree.sh heads layers names commands changed examples format
    [ -n "$pattern" ] || return 0
    [ "$pattern" != all ] || pattern=''
    build release && run_ctest release -LE '^races$'
}

jobs=$(nproc) install=yes nightly=no stages='' pattern='' base=''
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --no-install) install=no ;;
    --nightly) nightly=yes ;;
    --changed)
        stages=changed
        [[ ${2--} = -* ]] || { base=$2 && shift; }
        ;;
    --stage | --jobs | --tests)
        [ $# -gt 1 ] || die_usage "$1 needs a value"
        case $1 in
        --stage) stages="$stages ${2//,/ }" ;;
        --tests) pattern=$2 ;;
        *) jobs=$2 ;;
        esac
        shift
        ;;
    *) die_usage "unknown argument '$1'" ;;
    esac
    shift
done
for stage in ${stages:-$all_stages}; do
    [[ " $all_stages changed " = *" $stage "* ]] || die_usage "unknown stage '$stage', not one of $all_stages"
done
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die_usage "--jobs '$jobs': expected a number"

cd "$root" || exit 1
if [ "$stages" = changed ]; then
    base=$(git rev-parse --verify --quiet "${base:-$(main_base)}^{commit}") ||
        die_usage "--changed: no commit to compare with; name one"
fi
if [ $install = yes ]; then
    # shellcheck disable=SC2086
    packages_install $packages_build $packages_test || exit $?
fi
mkdir -p build
unpacked=$root/build/ci-unpacked
# shellcheck disable=SC2086
[ $install = no ] || packages_unpack "$unpacked" $packages_test_unpacked
for file in "$unpacked"/usr/lib/*/modulecmd.tcl; do
    [ ! -f "$file" ] || export MODULECMD=$file
done
use_ccache
times=''
for stage in ${stages:-$all_stages}; do
    echo "== $stage"
    began=$SECONDS stage_skipped=no passed_before=$passed failed_before=$failed skipped_before=$skipped
    "stage_$stage"
    printf -v times '%s  %-9s %-7s %d s%s\n' "$times" "$stage" "$(verdict)" $((SECONDS - began)) \
        "$(skipped_now)"
done
printf '== stages\n%s' "$times"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
