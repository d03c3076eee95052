#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/ptxas.sh judges recorded messages of ptxas 13.0, which cmake/ptxas_log.sh records.
# tests/gpu/loops.sh reads machine code as nvdisasm prints it. tests/gpu/nvrtc.py says what it
# needs.
source "$(dirname "$0")/lib.sh"
script=$SOURCE/tests/gpu/ptxas.sh

# record NAME REGISTERS FRAME STORES LOADS: what ptxas says of one kernel.
record() {
    cat <<END
ptxas info    : Compiling entry function '$1' for 'sm_90'
ptxas info    : Function properties for $1
    $3 bytes stack frame, $4 bytes spill stores, $5 bytes spill loads
ptxas info    : Used $2 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compile time = 12.3 ms
END
}
# judge STATUS: on the file r.ptxas and the table t.
judge() { expect_status "$1" bash "$script" --table t r.ptxas; }

printf '# comment\nmask_kernel 256 128 128\npack 1024 64 256\n' >t
{
    echo "ptxas info    : 0 bytes gmem"
    record _ZN1_11mask_kernelIfEEv 107 0 0 0
    record _ZN1_4packIfEEv 64 0 0 0
} >good
cp good r.ptxas
judge 0
like "$(out)" "^sm_90: 2 kernels, at most 107 registers$" "the targets and their worst"
expect_status 0 bash "$script" --list --table t r.ptxas
like "$(out)" "^ 107 registers +128 shared +sm_90 +_ZN1_11mask_kernel" "--list names each"
mkdir -p deep/er && cp good deep/er/x.o.ptxas
expect_status 0 bash "$script" --table t deep
like "$(out)" "2 kernels" "a folder means all records in it"

{ cat good && record _ZN1_4packIdEEv 32 16 0 0; } >r.ptxas
judge 1
like "$(out)" "^FAILED: _ZN1_4packIdEEv for sm_90: a stack frame of 16 bytes" "a stack frame fails"
{ cat good && record _ZN1_4packIdEEv 32 0 4 8; } >r.ptxas
judge 1
like "$(out)" "^FAILED: _ZN1_4packIdEEv for sm_90: 12 bytes of spills" "spills fail"
{ record _ZN1_4packIdEEv 32 0 0 0 && record _ZN1_11mask_kernelIfEEv 129 0 0 0; } >r.ptxas
judge 1
like "$(out)" "129 registers, 128 allowed \(mask_kernel\)" "a register over the budget fails"
printf 'mask_kernel 256 128 127\npack 1024 72 128\n' >t
{ record _ZN1_4packIdEEv 65 0 0 0 && record _ZN1_11mask_kernelIfEEv 12 0 0 0; } >r.ptxas
judge 1
like "$(out)" "65 registers for 1024 threads" "more registers than a block can have are a fault"
like "$(out)" "mask_kernelIfEEv for sm_90: 128 bytes of static shared memory, 127 allowed" "static shared memory over the budget fails"
{ cat good && record _ZN1_5otherEv 3 0 0 0; } >r.ptxas
judge 1
like "$(out)" "otherEv for sm_90: no line of t is about it" "a kernel without a line fails"
{ cat good && printf "ptxas info    : Function properties for _Z1fv\n    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"; } >r.ptxas
judge 1
like "$(out)" "a function with a stack frame of 8 bytes" "functions that are called count"

record _ZN1_11mask_kernelIfEEv 107 0 0 0 >r.ptxas
judge 1
like "$(out)" "\"pack\" matches no kernel" "a stale line of the table fails"
head -n 3 good >r.ptxas
judge 1
like "$(out)" "the record ends before its registers" "a cut record fails"
echo "ptxas info    : 0 bytes gmem" >r.ptxas
judge 1
like "$(out)" "no kernel in the records" "a record without kernels fails"
printf 'mask_kernel 256 128\n' >t
judge 1
like "$(out)" "is not REGEX THREADS REGISTERS STATIC_BYTES" "a line of another form fails"
mkdir empty
expect_status 2 bash "$script" empty
expect_status 2 bash "$script" --wrong
expect_status 0 bash "$script" --help

# The recorder, with a compiler that says what nvcc says.
cat >nvcc <<'END'
#!/bin/sh
echo "ptxas info    : Used 3 registers" >&2
echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" >&2
echo "x.cu(3): warning #177-D: unused" >&2
exit "${FAKE_STATUS:-0}"
END
chmod +x nvcc
expect_status 0 sh "$SOURCE/cmake/ptxas_log.sh" ./nvcc -c x.cu -o x.o
is "$(err)" "x.cu(3): warning #177-D: unused" "the recorder leaves warnings where they were"
is "$(grep -c . x.o.ptxas)" 2 "the wrapper records the figures of each kernel"
FAKE_STATUS=3 expect_status 3 sh "$SOURCE/cmake/ptxas_log.sh" ./nvcc -c x.cu -o x.o

# Loops: one of three instructions, and one around it.
loops=$SOURCE/tests/gpu/loops.sh
mkdir bin
printf '#!/bin/sh\n' >bin/nvcc
cat >bin/nvdisasm <<'END'
#!/bin/sh
cat <<'CODE'
	.section	.text._Z5twiceIfEvPT_,"ax",@progbits
.text._Z5twiceIfEvPT_:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDG.E R2, desc[UR4][R2.64] ;
.L_x_2:
        /*0020*/                   FFMA R4, R2, R2, R4 ;
        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0040*/              @!P0 BRA `(.L_x_2) ;
        /*0050*/              @!PT LDS RZ, [RZ] ;
        /*0060*/               @P1 BRA `(.L_x_1) ;
        /*0070*/                   EXIT ;
	.section	.text._Z4oncev,"ax",@progbits
.text._Z4oncev:
        /*0000*/                   EXIT ;
CODE
END
chmod +x bin/*
touch x.cu
PATH=$PWD/bin:$PATH expect_status 0 bash "$loops" --least 3 x.cu
is "$(out)" "void twice<float>(float*): 8 instructions
  loop of    3, depth 2:  mma 1  fp32 1  other 1
  loop of    3, depth 1:  shared 1  global 1  other 1
once(): 1 instructions" "loops hold what no loop within them holds"
PATH=$PWD/bin:$PATH expect_status 0 bash "$loops" x.cu once
is "$(out)" "once(): 1 instructions" "a regex chooses kernels"
NVDISASM=$PWD/none PATH=$PWD/bin:$PATH expect_status 4 bash "$loops" x.cu
expect_status 2 bash "$loops" none.cu
expect_status 2 bash "$loops" --wrong

# The compiler of another CUDA: what compiles is not tried here.
if have python3; then
    expect_status 0 python3 "$SOURCE/tests/gpu/nvrtc.py" --help
    expect_status 1 python3 "$SOURCE/tests/gpu/nvrtc.py" --cuda empty 70
    is "$(err)" "nvrtc.py: no libnvrtc.so.* below empty; try --help" "a folder without it"
else
    skip "no python3 here" 3
fi
done_testing
