#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env on one machine prints its table and JSON, and has the right exit status in every mode.
source "$(dirname "$0")/lib.sh"

# One value of the JSON object: field FILE CHECK KEY.
field() {
    sed -n "/\"name\": \"$2\"/,/}/s/.*\"$3\": \"\(.*\)\",*$/\1/p" "$1"
}

expect_status 0 chex-env -v
like "$(out)" "^check +verdict +found$" "the table has its head"
like "$(out)" "^hdf5 +pass +[0-9]+\.[0-9]+\.[0-9]+$" "a library's version"
like "$(out)" "^launch +pass +single \(not a task of srun, mpirun or mpiexec\), 1 rank on 1 node$" "the launch method and why"
like "$(out)" "^rank 0/1, " "one line a rank"
like "$(out)" "^fit to train: [0-9]+ passed, [0-9]+ warned, 0 failed, [0-9]+ skipped; 1 rank on 1 node$" "the sum"
unlike "$(out)" $'\033' "no colour in a file"
is "$(out | awk '$2 == "pass" { print index($0, " pass ") }' | sort -u | wc -l)" 1 "columns line up"

# Without -v only what warns or fails, and the sum.
expect_status 0 env NCCL_P2P_DISABLE=1 chex-env
like "$(out)" "^nccl-env +warn " "a warning is always shown"
like "$(out)" "^ +remedy: NCCL_P2P_DISABLE slows every step down" "the warning has a remedy"
unlike "$(out)" "^(hdf5 |rank 0/1)" "checks that pass are not listed"
expect_status 4 env TMPDIR=/nonexistent/tmp chex-env
like "$(out)" "^tmpdir +fail +/nonexistent/tmp: No such file" "a failure is always shown"
like "$(out | tail -n 1)" "^not fit to train: [0-9]+ passed, [0-9]+ warned, 1 failed, .* \(-v shows each check\)$" \
    "the last line explains the result"
expect_status 0 env -u TMPDIR chex-env --mode login
if like "$(out | tail -n 1)" "^fit to train: " "where all is well" && ! grep -q " warn " out; then
    is "$(out | wc -l)" 1 "there is one line"
else
    skip "this machine has a warning: $(grep -m 1 warn out)"
fi

# Texts are whole, and printed as they are.
mkdir "größe"
expect_status 0 env TMPDIR="$PWD/größe" chex-env -v
like "$(out)" "^tmpdir +(pass|warn) +$PWD/größe, " "UTF-8 is printed as it is"
expect_status 4 env TMPDIR=$'/nonexistent/\033[31m\377' chex-env
like "$(out)" "^tmpdir +fail +/nonexistent/.x1B\[31m.xFF: No such file" "other bytes are escaped"
long=$(printf 'word-%s ' {1..120})
expect_status 0 env NCCL_LONG="$long" chex-env -v
like "$(out)" "^nccl-env .* word-[0-9]+\.\.\.$" "a text that is too long is cut at a word, with dots"
if [ ! -f "$BUILD/lib/chexnet-cuda.so" ]; then
    expect_status 0 chex-env -v
    like "$(out)" "cuda: .*build chexnet with CHEX_WITH_CUDA=ON, or load one that has it; ref: " \
        "the reason of an engine that cannot run is whole"
else
    skip "the engine is built" 2
fi

expect_status 0 chex-env --json
cp out json
is "$(grep -c '"question":' json)" "$(grep -c '"remedy":' json)" "each check has question and remedy"
like "$(cat json)" '"schema": 1' "the schema is stated"
is "$(field json launch verdict)" pass "a verdict"
is "$(field json gpu found)" none "the JSON has what was found"
like "$(cat json)" '"ranks": \[' "the ranks are listed"
if have python3 && ! without PYTHON; then
    python3 - json <<'END'
import json, sys
top = json.load(open(sys.argv[1]))
keys = {"name", "question", "expected", "found", "verdict", "fault", "remedy"}
assert top["schema"] == 1 and len(top["checks"]) > 20 and len(top["ranks"]) == 1
assert all(set(c) == keys for c in top["checks"])
assert {c["verdict"] for c in top["checks"]} <= {"pass", "warn", "fail", "skip"}
assert {c["fault"] for c in top["checks"]} <= {"user", "node"}
assert top["ranks"][0]["verdicts"].keys() == {c["name"] for c in top["checks"]}
END
    ok $? "another reader finds the object complete"
else
    skip "no python3"
fi

# A user's mistakes.
expect_status 4 env CUDA_VISIBLE_DEVICES=0 chex-env -v
like "$(out)" "^gpu +fail +.*CUDA_VISIBLE_DEVICES 0" "a GPU that cannot be used fails"
like "$(out)" "fault: user" "the fault is the user's"
like "$(out)" "remedy: .*--engine cpu" "the failure has a remedy"
like "$(err)" "user can mend" "one line says whose fault it is"
expect_status 4 env TMPDIR=/nonexistent/tmp chex-env -v
like "$(out)" "^tmpdir +fail +/nonexistent/tmp: No such file or directory" "a TMPDIR that is not there"
expect_status 0 env SLURM_CPUS_PER_TASK=64 chex-env -v
like "$(out)" "SRUN_CPUS_PER_TASK" "lost CPUs are a warning with the remedy"
expect_status 0 env NCCL_P2P_DISABLE=1 chex-env -v
like "$(out)" "^nccl-env +warn .*NCCL_P2P_DISABLE=1 \(environment\)" "NCCL's settings and their origin"
mkdir home && echo "NCCL_DEBUG=INFO" >home/.nccl.conf
expect_status 0 env HOME="$PWD/home" chex-env -v
like "$(out)" "^nccl-env +pass +NCCL_DEBUG=INFO \(.*/home/.nccl.conf\)" "settings of the user's file are found"

# The node's.
echo '{"zlib": "0.9"}' >want.json
expect_status 5 chex-env -v --expect want.json
like "$(out)" "^zlib +fail" "an expected version that is not found fails"
like "$(out)" "expected: 0.9 \(from want.json\)" "the failure shows the expectation"
echo "{\"zlib\": \"$(field json zlib found)\"}" >want.json
expect_status 0 chex-env -v --expect want.json

# A part that is installed, and whose library is not.
if [ -f "$BUILD/lib/chexnet-mpi.so" ]; then
    mkdir parts
    sed 's/libmpi\.so/libnpi.so/g' "$BUILD/lib/chexnet-mpi.so" >parts/chexnet-mpi.so
    CHEX_LIBDIR=$PWD/parts expect_status 0 chex-env -v
    like "$(out)" "^modules +pass +mpi lacks libnpi\.so[.0-9]*, cuda not installed, dicom not installed, slurm not installed$" \
        "a missing module differs from one that is not installed"
else
    skip "built without MPI" 2
fi

# In the prolog a user's mistake drains no node.
expect_status 0 env TMPDIR=/nonexistent/tmp CUDA_VISIBLE_DEVICES=7 SLURM_JOB_ID=5 SLURM_NTASKS=4 \
    chex-env -v --mode prolog
unlike "$(out)" "^(gpu|launch|workdir) " "the prolog looks at the node alone"
like "$(out)" "^tmpdir +pass +/tmp" "at its own /tmp"
echo '{"hdf5": "1.2.3"}' >want.json
expect_status 5 chex-env -v --mode prolog --expect want.json

# Nor does a site's mistake in the line or the files of its prolog.
for wrong in "--nosuch" "--level 4" "--timeout 0s" "--expect nosuch.json" "--config nosuch" "word"; do
    # shellcheck disable=SC2086 # several words
    expect_status 0 chex-env -v $wrong --mode prolog
    error_line . "the message comes: $wrong"
    like "$(err)" "warn: nothing was checked; the exit status is 0" "without checks a warning explains the exit status"
done
CHEX_MODE=prolog expect_status 0 chex-env -v --nosuch
CHEX_MODE=prolog expect_status 2 chex-env -v --mode=job --nosuch
expect_status 2 chex-env -v --mode prolog --mode login --nosuch

expect_status 0 chex-env -v --mode login
unlike "$(out)" "^(gpu|launch|clock) " "a login node has no allocation"
like "$(out)" "^engine-auto +pass " "on a login node the check of engines runs"

# Usage.
expect_status 2 chex-env -v --level 4
error_line "--level: '4' is not valid" "a level that never will"
expect_status 2 chex-env -v --mode night
error_line "expected one of job, prolog, login" "an unknown mode"
expect_status 2 chex-env -v --timeout 30
error_line "--timeout: '30' is not valid: expected a duration" "a time without unit"
expect_status 2 chex-env -v --timeout 999ms
error_line "--timeout: '999ms' is not valid: .*from 1s to 86400s" "a time in which no check can answer"
expect_status 2 chex-env -v --expect=
error_line "--expect: the value is empty: expected FILE" "an empty name"
expect_status 2 chex-env -v --expect nosuch.json
error_line "nosuch.json" "a missing file of expectations"
echo '{"zlob": "1"}' >typo.json
expect_status 2 chex-env -v --expect typo.json
error_line "'zlob' is not a check" "an unknown check"
expect_status 2 chex-env -v everything
error_line "unexpected word 'everything': chex-env takes options only" "a word"
expect_status 0 chex-env --help
like "$(out)" "^usage: chex-env" "help"
like "$(out)" "Exit status: 0 .* 4 .* 5 " "help states the exit statuses"
expect_status 0 chex-env --print-config -q
like "$(out)" "^timeout = 30s   # default$" "durations as they are typed"
like "$(out)" "^log-level = warn   # command line$" "-q is the level's origin"

# What is the same in all four commands.
for command in chex-shard chex-train chex-eval chex-env; do
    have "$command" || { skip "$command is not built" 6; continue; }
    expect_status 0 "$command" --version
    is "$(sed -E 's/ [0-9.]+$/ N/; 2s/, .*//; s/HDF5 .*/HDF5/' out | head -n 2 | tr '\n' ' ')" \
        "$command N HDF5 " "$command --version: the version, the libraries"
    like "$(tail -n 1 out)" "^compiler [A-Za-z]+ [0-9.]+$" "--version names the compiler"
    for option in --help --version --print-config; do
        "$command" $option >/dev/full 2>full
        is $? 9 "$command $option: a full standard output is no success"
    done
done
chex-env >/dev/full 2>full
is $? 9 "a full disk fails a report"
like "$(cat full)" "cannot write to standard output: No space left" "a full standard output names the cause"

# A prolog whose log is full, or that has no output at all, must not drain a sound node.
for as in "" --json; do
    # shellcheck disable=SC2086 # no word
    chex-env --mode prolog $as >/dev/full 2>full
    is $? 0 "the prolog keeps its verdict if its table $as cannot be written"
    like "$(cat full)" "warn: cannot write to standard output" "a failed write is warned about"
done
chex-env --mode prolog <&- >&- 2>&-
is $? 0 "the prolog passes with all three streams closed"
chex-env --mode prolog --expect want.json >/dev/full 2>/dev/null
is $? 5 "a node at fault has status 5"
done_testing
