#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env in a job compares ranks and names the odd one, GPUs that cannot be used, and lost CPUs.
. "$(dirname "$0")/lib.sh"
slurm_fixture
have chex-env || skip_all "chex-env is not built"
ask() { in_job -N2 --ntasks-per-node=2 "$@"; }

expect_status 0 ask chex-env -v
like "$(out)" "^launch +pass +pmix, 4 ranks on 2 nodes, job [0-9]+" "PMIx serves four ranks"
like "$(out)" "^ranks +pass +ranks 0 to 3, consistent" "all ranks agree"
like "$(out)" "^clock +pass +within 0\.[0-9]+ s" "the clocks of the ranks agree"
is "$(out | grep -c '^rank ')" 4 "one line a rank"
is "$(out | grep -c '^check ')" 1 "one table"
like "$(out)" "^rank 3/4, n1, local 1/2" "ranks know their nodes"

expect_status 0 ask chex-env --json
is "$(grep -c '"verdicts"' out)" 4 "JSON lists four ranks"
is "$(grep -c '"host": "n1"' out)" 2 "two of them on n1"

expect_status 4 ask --gpus-per-task=1 chex-env -v
like "$(out)" "^gpu +fail" "a GPU was allotted and cannot be used"
like "$(out)" "as all others" "no rank differs"
like "$(out)" "remedy: .*--engine cpu" "the remedy names the engine"

# Without MPI there is no job of several ranks. An installation without it no other node would mend,
# but a library that a node lacks is that node's.
CHEX_LIBDIR=$PWD/nothing expect_status 4 ask chex-env -v
like "$(out)" "^modules +fail +rank 0 \(n0\), as all others: mpi not installed" "a build without MPI"
like "$(out)" "remedy: build chexnet with CHEX_WITH_MPI=ON" "a missing module is not the node's fault"
if [ -f "$BUILD/lib/chexnet-mpi.so" ]; then
    mkdir parts
    sed 's/libmpi\.so/libnpi.so/g' "$BUILD/lib/chexnet-mpi.so" >parts/chexnet-mpi.so
    CHEX_LIBDIR=$PWD/parts expect_status 5 ask chex-env -v
    like "$(out)" "remedy: install libnpi\.so[.0-9]* on this node" "a missing library is"
else
    skip "built without MPI" 2
fi

# One rank differs.
cat >odd.sh <<'END'
[ "$SLURM_PROCID" != 3 ] || export NCCL_DEBUG=INFO
exec chex-env -v
END
expect_status 4 ask bash odd.sh
like "$(out)" "^nccl-env +fail +rank 3 \(n1\): NCCL_DEBUG=INFO \(environment\); 1 of 4 ranks differ" \
    "the odd rank and its node are named"
cat >odd.sh <<'END'
[ "$SLURM_PROCID" != 2 ] || { mkdir -p empty && export TMPDIR=$PWD/nowhere; }
exec chex-env -v
END
expect_status 4 ask bash odd.sh
like "$(out)" "^tmpdir +fail +rank 2 \(n1\): .*nowhere" "a fault of one rank carries its name"

# If one rank cannot begin, no rank waits for it, and one line says why.
cat >odd.sh <<'END'
[ "$SLURM_PROCID" != 2 ] || set -- --expect nosuch.json
exec chex-env -v "$@"
END
expect_status 2 ask bash odd.sh
error_line "^chex-env\[r0/4 n0\] error: rank 2 on n1: cannot open nosuch.json" "the one that cannot"
unlike "$(err)" "did not come" "and no other rank waits until its limit"
expect_status 2 ask chex-env --expect nosuch.json
error_line "^chex-env\[r0/4 n0\] error: cannot open nosuch.json" "a fault of all ranks is reported once"

# A rank that does not come is named, and no rank waits for ever.
cat >late.sh <<'END'
[ "$SLURM_PROCID" != 1 ] || exec sleep 300
exec chex-env -v --timeout 1s
END
in_job -N2 --ntasks-per-node=2 bash late.sh >out 2>err
[ $? -ne 0 ]
ok $? "a missing rank is no success"
like "$(cat err)" "rank 1 \(n0\) of 4 did not come" "and is named"

# sbatch -c is lost by srun in this release.
cat >job.sh <<'END'
#!/bin/bash
srun chex-env -v >lost 2>&1
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun -n1 chex-env -v >kept 2>&1
END
timeout "$CHEX_TEST_WAIT" sbatch --wait -n2 -c2 -o batch.out job.sh >/dev/null
like "$(cat lost)" "export SRUN_CPUS_PER_TASK" "the loss of -c is seen" || diag "$(cat lost)"
if [ "$(nproc)" -ge 2 ]; then
    like "$(cat kept)" "^cpus +pass +2 " "and mended by the variable"
else
    skip "one core here"
fi

# Ranks that cannot find each other.
CHEX_STEP_DIR=/sys expect_status 4 ask --mpi=none chex-env -v
is "$(out | grep -c '^check ')" 1 "one table"
like "$(out)" "^launch +fail" "the launch check fails"
like "$(out)" "srun --mpi=pmix" "the error names the srun option that helps"
done_testing
