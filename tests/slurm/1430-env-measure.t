#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env --level 3 in a job measures each rank and between the ranks, and names a rank that is
# below its limit or cannot take part. The test only asks whether figures are there.
. "$(dirname "$0")/lib.sh"
slurm_fixture
have chex-env || skip_all "chex-env is not built"
export CHEX_TIMEOUT=${CHEX_TEST_WAIT}s
ask() { in_job -N2 --ntasks-per-node=2 "$@"; }

# Rank 2 is held to a limit that it cannot keep and to a version that it has not. The limit is a
# warning if others use this machine meanwhile.
echo '{"fence": {"ms": 1e-6}, "zlib": "0.9"}' >never.json
cat >odd.sh <<'END'
[ "$SLURM_PROCID" != 2 ] || set -- --expect never.json
exec chex-env -v --level 3 "$@"
END
expect_status 5 ask bash odd.sh
like "$(out)" "^zlib +fail +rank 2 \(n1\): " "a rank without a library fails the check"
like "$(out)" "^fence +(fail|warn) +rank 2 \(n1\): [0-9.e+]+ ms for 4 ranks, pmix" "the rank and its node are named"
like "$(out)" "expected: ms 1e-06 ms or less \(from never.json\)" "the failure shows the limit"
like "$(out)" "^collectives +pass +openmpi, 4 ranks: one number [0-9.e+]+ us, a gradient of 28 MB [0-9.e+]+ ms" \
    "sums are right and have a rate"
like "$(out)" "^neighbours +pass +n0 and n1 [0-9.e+]+ GB/s, [0-9.e+]+ us" "the nodes reach each other"
like "$(out)" "^step-bits +pass +cpu [a-z0-9]+, [a-z0-9]+: [0-9a-f]{16}$" "all ranks compute the same bits"
like "$(out)" "^memory-rate +(pass|warn) " "memory is measured"
is "$(out | grep -c '^check ')" 1 "one table"

# One rank has no library for collectives: no rank waits for it.
mkdir -p nothing
cat >odd.sh <<'END'
[ "$SLURM_PROCID" != 1 ] || export CHEX_LIBDIR=$PWD/nothing
exec chex-env --level 3 --json
END
expect_status 4 in_job -N2 --ntasks-per-node=1 bash odd.sh
is "$(grep -c '"found": "rank 1 cannot take part"' out)" 2 "measurements that need the library are skipped"
is "$(grep -c '"ms": [0-9.e+-]*[1-9]' out)" 3 "measurements that do not need it are done"
is "$(grep -c '"gb_per_s": [0-9.e+-]*[1-9]' out)" 3 "each rank has its figures, and the job the worst of them"

# One rank is a whole job.
expect_status 0 in_job -N1 -n1 chex-env -v --level 3 --timeout 1s
is "$(out | grep -cE '^(fence|collectives|neighbours|gpu-sums) +skip +one rank')" 4 "one rank has no measurements between ranks"

# Ranks with GPUs: the driver's library and the engine are stand-ins.
fake=$BUILD/tests/fake
if [ -f "$fake/nvml.so" ] && [ -f "$fake/chexnet-cuda.so" ]; then
    mkdir lib
    ln -s "$BUILD"/lib/*.so "$fake/chexnet-cuda.so" lib/
    export CHEX_NVML=$fake/nvml.so CHEX_LIBDIR=$PWD/lib FAKE_NVML=$SOURCE/tests/data/gpu/two-h200.txt
    expect_status 0 in_job -N2 --ntasks-per-node=1 --gpus-per-task=1 chex-env -v --level 3
    like "$(out)" "^gpu-copy +pass +55 GB/s to it, 54 GB/s from it, NVIDIA H200 0000:1b:00.0, PCIe 5 x16; of all ranks" \
        "each rank's GPU is measured"
    like "$(out)" "^gpu-step-bits +pass +cuda [a-z0-9]+, [a-z0-9]+ on NVIDIA H200: [0-9a-f]{16}$" "the bits of a step are reported"
    like "$(out)" "^gpu-sums +pass +[0-9.e+]+ images/s of a rank by [A-Za-z]+, [0-9.e+]+ without sums" \
        "and steps that all add up"
else
    skip "the stand-ins are not built" 4
fi
done_testing
