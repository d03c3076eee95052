#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks find each other by PMIx, are bound, and say where they run.
# shellcheck source-path=SCRIPTDIR source=lib.sh disable=SC2154
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2119
slurm_fixture
# shellcheck source=launch_lib.sh
. "$slurm_lib/launch_lib.sh"

check_exchange "TreeWidth=2"
check_notes "TreeWidth=2"

# One process after the other under one task, as a job script has them.
job "${four[@]}" sh -c "$probe exchange rounds=1 && $probe exchange rounds=1"
all "two programs in one step" 8 "$good"

job "${four[@]}" "$probe" exchange rounds=1 odd=3
is $rc 1 "ranks that differ in what they exchange: status 1"
like "$(cat err)" 'exchange card: rank [0-3] gave 2(08|16) bytes, expected' "and the number of bytes"

line() { sed -n "s/.*\"rank\": $1,.*\"line\": \"\(.*\)\".*/\1/p" out; }
# shellcheck disable=SC2317
has() { grep -q "\"rank\": $1,.*$2" out; }

job "${four[@]}" --gpus-per-task=1 "$probe" info
all "info from four ranks" 4 '"method": "pmix".*"size": 4.*"local_size": 2.*"nodes": 2.*"job": true'
for r in 0 1 2 3; do
    host=n$((r / 2)) gpu=$((r % 2))
    like "$(line $r)" "^rank $r/4, $host, local $gpu/2, cores [0-9,-]+ \([0-9]+\), NUMA [0-9,-]+, gpu own $gpu \(of 2\)$" "the line of rank $r"
    has $r "\"node\": $((r / 2)),"
    ok $? "rank $r is on node $((r / 2))"
done
is "$(wc -l <out.raw)" 4 "one line a rank on stdout, and no other"
job "${four[@]}" --gpus-per-task=1 --gpu-bind=none "$probe" info
# Slurm 24.11 sets SLURM_STEP_GPUS then, too.
all "--gpu-bind=none: allotted and unbound" 4 '"gpu": "\(unbound\|all\)", "allotted": true.*gpu \(unbound (2)\|all 0,1 (of 2)\)"'
job "${four[@]}" --gpus-per-node=2 "$probe" info
all "--gpus-per-node=2: all are seen" 4 '"gpu": "all", "allotted": true.*gpu all 0,1 (of 2)"'
job -N2 -n2 --gpus-per-task=1 --gpu-bind=none "$probe" info
all "one task a node sees all despite --gpu-bind=none" 2 '"gpu": "all"'
job "${four[@]}" "$probe" info
all "no GPU asked for" 4 '"gpu": "none", "allotted": false.*gpu none"'

if [ "$(nproc)" -ge 2 ]; then
    job -N1 -n2 -c2 --cpu-bind=none "$probe" info
    all "unbound ranks of a node share its cores" 2 '"narrowed": true'
    is "$(sed 's/.*, cores \([^ ]*\) .*/\1/' out | sort -u | wc -l)" 2 "each has other ones"
fi
cat >script <<END
#!/bin/bash
srun $probe info >plain
SRUN_CPUS_PER_TASK=2 srun $probe info >reported
$probe info >body
printf '%s' "\$SLURM_TRES_PER_TASK" >passed-on # set by releases in which srun reads it
END
timeout "$CHEX_TEST_WAIT" sbatch -W -N1 -n2 -c2 -o out.batch script >err 2>&1
if [ -s passed-on ]; then
    is "$(grep -c '"note": ""' plain)" 2 "sbatch -c 2: srun of this release takes the CPUs over, and there is no note"
else
    is "$(grep -c '"cpu_count": 1,.*is 2: pass -c to srun or set SRUN_CPUS_PER_TASK' plain)" 2 "sbatch -c 2: the tasks of a plain srun have one CPU, and the note says the cure"
fi
is "$(grep -c '"note": ""' reported)" 2 "with SRUN_CPUS_PER_TASK there is no note"
like "$(cat body)" '"method": "single"' "the batch script itself is a single process"

job --mpi=none -n1 "$probe" info
all "one task needs no PMIx" 1 '"method": "slurm", "rank": 0, "size": 1'
job -n1 sh -c "srun --mpi=none --overlap -n1 $probe info"
all "a step without PMIx inside one with it" 1 '"method": "slurm"'
job -n1 "$probe" info
all "one task with PMIx" 1 '"method": "pmix", "rank": 0, "size": 1'
done_testing
