#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --audit-steps finds a rank that computes wrong gradients, names it, and sets the
# checkpoints aside that it may have spoiled. chex-train-faulty has such a rank
# (tests/faulty/faulty_pass.c).
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need chex-train chex-shard mpirun
faulty=$BUILD/tests/chex-train-faulty
[ -x "$faulty" ] || skip_all "no chex-train-faulty here"
mpi_ranks 3 || skip_all "mpirun does not work here"
mpi() { mpirun --oversubscribe --bind-to none --allow-run-as-root -n "$@"; } # RANKS COMMAND...

chex-shard phantom --count 60 --size 32 --seed 1 --output ph -q >/dev/null || fail "phantom"
chex-shard create --images ph/images --labels ph/labels.csv --size 32 --shards 2 --split none \
    --output shards -q >/dev/null 2>&1 || fail "shards"
run=(--data shards --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu --precision fp32 --threads 1
    --checkpoint-keep 0 --checkpoint-every 1steps --deterministic --logical-ranks 3)
digest() { sed -n "s/.*\"step\":$2,.*\"digest\":\"\([0-9a-f]*\)\".*/\1/p" "$1/checkpoints.jsonl" | tail -1; }
host=$(hostname)

# Sound devices. The audits change no bit.
expect_status 0 chex-train "${run[@]}" --max-steps 6 --output plain
expect_status 0 chex-train "${run[@]}" --audit-steps 50 --plan --output x
like "$(out)" '^audit +every 50 steps, at least 0.67 % of the time' "--plan has the cost"
expect_status 0 mpi 3 chex-train "${run[@]}" --audit-steps 1 --max-steps 4 --output sound
like "$(err)" 'audit: every 1 steps another process repeats a pass of one; [0-9.]+ s each, at least 100 % of the time' \
    "the log has the cost"
is "$(sed -n 's/.*"kind":"audit".*"rank":\([0-9]*\),.*/\1/p' sound/metrics.jsonl | tr '\n' ' ')" "1 2 0 1 " \
    "every process is audited in turn"
is "$(digest sound 4)" "$(digest plain 4)" "a run with audits has the bits of one without"

# Rank 2 is wrong from step 5 on (its passes: two at the start, seven in steps 1 to 4 with audits of
# every second step). It passed its last audit at step 4 and is the auditor of step 6.
FAULTY_PASS=2:8- expect_status 5 mpi 3 "$faulty" "${run[@]}" --audit-steps 2 --max-steps 6 --output always
error_line "audit of step 6: rank 2 on $host \(.*\) computed a wrong gradient of logical rank 0: it differs first in features.conv0.weight from that of rank 0 on $host .*, which rank 1 on $host .* confirms; repeated, it was wrong again: the node has a silent fault; the next start goes on from step 4" \
    "a rank that is always wrong is named with node and device"
[ -e always/checkpoints/step-0000000005.h5.abandoned ] && [ -e always/checkpoints/step-0000000004.h5 ] &&
    [ ! -e always/checkpoints/step-0000000005.h5 ]
ok $? "checkpoints since its last audit are set aside"
like "$(err)" 'step-0000000005.h5 is of step 5, and the run goes on from step 4: kept as' "with a warning"
expect_status 0 mpi 2 chex-train "${run[@]}" --max-steps 6 --output always
like "$(err)" 'going on from step 4' "the next start goes back before the fault"
is "$(digest always 6)" "$(digest plain 6)" "the resumed run has the bits of the undisturbed one"

# Rank 1 is wrong once, in step 2.
FAULTY_PASS=1:4 expect_status 5 mpi 3 "$faulty" "${run[@]}" --audit-steps 2 --max-steps 4 --output once
error_line "rank 1 on $host .* repeated, it was right \(a transient fault\).*; the next start begins anew" \
    "a transient fault is found too"
[ -e once/checkpoints/step-0000000001.h5.abandoned ] && [ ! -e once/last.h5 ] && [ ! -e once/metrics.jsonl ]
ok $? "without an audited checkpoint nothing is left to go on from"
expect_status 0 chex-train "${run[@]}" --max-steps 2 --output once
is "$(digest once 2)" "$(digest plain 2)" "and the next start begins anew"

# Wrong before the first step.
FAULTY_PASS=1:1- expect_status 5 mpi 3 "$faulty" "${run[@]}" --audit-steps 100 --max-steps 2 --output never
error_line "audit before the first step: rank 1 on $host .* computes another gradient of the same batch than more than half of the 3 ranks" \
    "a device that is always wrong does not begin the run"
[ ! -e never ]
ok $? "and writes nothing"

# Two processes, and one.
FAULTY_PASS=1:4 expect_status 5 mpi 2 "$faulty" "${run[@]}" --logical-ranks 2 --audit-steps 2 --max-steps 4 --output two
error_line "rank 1 on $host .* and rank 0 on $host .* computed different gradients of logical rank .*there is no third process, and it is not known which of the two is wrong; repeated, their results were equal \(a transient fault\)" \
    "two processes name both and accuse none"
FAULTY_PASS=0:4 expect_status 5 "$faulty" "${run[@]}" --logical-ranks 1 --audit-steps 2 --max-steps 4 --output one
error_line "audit of step 2: rank 0 on $host .* computed two different gradients of the same batch" \
    "one process finds a transient fault of its own"
FAULTY_PASS=0:1- expect_status 0 "$faulty" "${run[@]}" --logical-ranks 1 --audit-steps 2 --max-steps 2 --output blind
like "$(err)" 'the process repeats a pass of its own \(a device that is always wrong stays unnoticed\)' \
    "and the log says what it cannot find"

# Ranks whose bits differ anyway, and bad input.
if chex-train --bench 1 --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu:avx2 >/dev/null 2>&1; then
    expect_status 4 mpi 2 bash -c '[ "$OMPI_COMM_WORLD_RANK" = 0 ] && v=avx2 || v=generic; exec chex-train "$@" --engine cpu:$v' \
        rank "${run[@]}" --audit-steps 2 --output mixed
    error_line "audit-steps: rank 1 on $host computes with cpu:generic, fp32, and rank 0 with cpu:avx2, fp32: their bits differ" \
        "ranks with other variants of the engine are refused"
else
    skip "no AVX2 here" 2
fi
expect_status 2 chex-train "${run[@]}" --audit-steps 2 --pipeline old --output bad
error_line '--audit-steps and --pipeline old: no other process can repeat its batches' "the old pipeline is refused"
expect_status 2 chex-train "${run[@]}" --audit-steps=-1 --output bad
[ ! -e bad ]
ok $? "a refused run writes nothing"
done_testing
