#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels' device code where there is no nvcc of that CUDA: by its NVRTC and ptxas,
which come as Python wheels, too. What runs on the host is not compiled. Says for each target how
many kernels there are, the most registers, and spills; --output keeps what ptxas says of each kernel
as a build by nvcc does, for tests/gpu/ptxas.sh --list.

For CUDA 12.9, the last one that compiles for capability 7.0:
    pip install --target cu12 nvidia-cuda-nvrtc-cu12==12.9.* nvidia-cuda-nvcc-cu12==12.9.* \\
        nvidia-cuda-runtime-cu12==12.9.*
    tests/gpu/nvrtc.py --cuda cu12 70 75 80 86 89 90 100 120
"""
import argparse
import ctypes
import glob
import os
import re
import subprocess
import sys

ENGINE = os.path.join(os.path.dirname(__file__), "..", "..", "libcore", "engine", "cuda",
                      "kernels")

# NVRTC has no C library and no host: its own headers declare the types of the runtime, and of the
# calls that launch kernels only the declarations are needed, so that all kernels are instantiated.
RUNTIME = """
struct CUstream_st; typedef CUstream_st *cudaStream_t;
struct CUevent_st; typedef CUevent_st *cudaEvent_t;
__device__ cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
__device__ cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *, void **);
__device__ cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
__device__ cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
__device__ cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *);
__device__ cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t);
template <class T> __device__ cudaError_t cudaFuncSetAttribute(T *, cudaFuncAttribute, int);
#define INFINITY __int_as_float(0x7f800000)
"""
INTEGERS = "\n".join(
    f"typedef {sign}{c} {name}{bits}_t;"
    for c, bits in (("char", 8), ("short", 16), ("int", 32), ("long", 64))
    for sign, name in (("signed ", "int"), ("unsigned ", "uint"))
) + """
typedef unsigned long uintptr_t;
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define UINT64_MAX 18446744073709551615ul
#define SIZE_MAX UINT64_MAX
#define INT_MAX 2147483647
"""
HEADERS = {
    "cuda_runtime.h": RUNTIME, "cuda_runtime_api.h": "#include <cuda_runtime.h>",
    "stdint.h": INTEGERS, "limits.h": "#include <stdint.h>",
    "cstdio": "__device__ int snprintf(char *, size_t, const char *, ...);",
    "stddef.h": "", "stdbool.h": "", "stdarg.h": "", "math.h": "",
}
HEADERS = {name: "#pragma once\n" + text for name, text in HEADERS.items()}


def find(root, name):
    """The first file of that name below root."""
    found = sorted(glob.glob(os.path.join(root, "**", name), recursive=True))
    if not found:
        sys.exit(f"nvrtc.py: no {name} below {root}; try --help")
    return found[0]


def text_of(library, program, what):
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"nvrtcGet{what}")(program, text)
    return text.value


def to_ptx(library, source, include, target):
    """The PTX of one source file; ends with what the compiler says where there is none."""
    program = ctypes.c_void_p()
    names = (ctypes.c_char_p * len(HEADERS))(*(n.encode() for n in HEADERS))
    texts = (ctypes.c_char_p * len(HEADERS))(*(t.encode() for t in HEADERS.values()))
    with open(source, "rb") as f:
        library.nvrtcCreateProgram(ctypes.byref(program), f.read(), source.encode(),
                                   len(HEADERS), texts, names)
    options = [f"--gpu-architecture=compute_{target}", "--std=c++17", "--fmad=false",
               "--device-as-default-execution-space", "-diag-suppress=20044",
               "-I" + os.path.join(ENGINE, "..", "..", ".."), "-I" + include]
    values = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
    if library.nvrtcCompileProgram(program, len(options), values) != 0:
        sys.exit(text_of(library, program, "ProgramLog").decode())
    return text_of(library, program, "PTX")


def record_of(ptxas, ptx, target):
    """What ptxas says of the kernels, as nvcc shows it."""
    done = subprocess.run([ptxas, "-v", "-c", f"-arch=sm_{target}", "-o", os.devnull, "-"],
                          input=ptx, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode()
    if done.returncode != 0:
        sys.exit(said)
    said = re.sub(r"^ptxas +\. +", "    ", said, flags=re.M)
    # Functions of the host, which are compiled beside the kernels, are left out.
    return "".join(re.findall(r"^ptxas info +: Compiling entry(?:.*\n)+?ptxas info +: Used.*\n",
                              said, flags=re.M))


def keep(folder, source, target, record):
    os.makedirs(folder, exist_ok=True)
    name = f"{os.path.basename(source)}.{target}.ptxas"
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(record)


def summary(records):
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", records)]
    spills = [int(a) + int(b) for a, b in
              re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", records)]
    spilling = sum(n > 0 for n in spills)
    return (f"{len(registers)} kernels, at most {max(registers)} registers, " +
            (f"{sum(spills)} bytes of spills in {spilling}" if spilling else "no spills"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", required=True, metavar="FOLDER",
                        help="where libnvrtc, ptxas and headers are")
    parser.add_argument("--output", metavar="FOLDER", help="for the records")
    parser.add_argument("targets", nargs="+", help="capabilities, as in 70")
    args = parser.parse_args()
    library = ctypes.CDLL(os.path.abspath(find(args.cuda, "libnvrtc.so.*")))
    ptxas = find(args.cuda, "ptxas")
    include = os.path.dirname(find(args.cuda, "cuda_bf16.h"))
    for target in args.targets:
        records = ""
        for source in sorted(glob.glob(os.path.join(ENGINE, "*.cu"))):
            if source.endswith("_sm90.cu") and target != "90a":
                continue
            record = record_of(ptxas, to_ptx(library, source, include, target), target)
            if args.output:
                keep(args.output, source, target, record)
            records += record
        print(f"sm_{target}: {summary(records)}", flush=True)


if __name__ == "__main__":
    main()
