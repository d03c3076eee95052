# SPDX-License-Identifier: Apache-2.0
# Options of the build, and two interface targets: chex_options (language, paths) and
# chex_warnings. CHEX_SOURCE_ROOT is the top of the tree, whose project may be tests/gpu.

option(CHEX_BUILD_TESTS "Build the tests (the presets debug and sanitize do)" OFF)
option(CHEX_TEST_GPU "Build the tests of the CUDA engine on an emulated device (C++)" ON)
option(CHEX_TEST_RACES "Build the tests that look for races in those kernels (gcc; target gpu-races)" OFF)
option(CHEX_WERROR "Warnings are errors (CI)" OFF)
option(CHEX_FUZZ "Link tests/fuzz to clang's fuzzer (preset sanitize)" OFF)
set(CHEX_SANITIZE "" CACHE STRING "Sanitizers, such as address,undefined or thread")

# AUTO uses what is found, ON stops where it is missing, OFF leaves it out.
foreach(part MPI MPICH SLURM CUDA CUDNN NCCL DICOM OPENJPEG ISAL LIBDEFLATE ARCHIVE)
  set(CHEX_WITH_${part} AUTO CACHE STRING "AUTO, ON or OFF")
  set_property(CACHE CHEX_WITH_${part} PROPERTY STRINGS AUTO ON OFF)
  if(NOT CHEX_WITH_${part} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "CHEX_WITH_${part}=${CHEX_WITH_${part}}: expected AUTO, ON or OFF")
  endif()
endforeach()

set(CHEX_MODULE_SUBDIR ${CMAKE_INSTALL_LIBDIR}/chexnet)

add_library(chex_options INTERFACE)
target_compile_definitions(chex_options INTERFACE
  _GNU_SOURCE
  CHEXNET_VERSION="${PROJECT_VERSION}"
  CHEXNET_MODULE_SUBDIR="${CHEX_MODULE_SUBDIR}"
  CHEXNET_MODULE_DIR="${CMAKE_INSTALL_PREFIX}/${CHEX_MODULE_SUBDIR}"
  CHEXNET_COMPILER="${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
target_include_directories(chex_options INTERFACE ${CHEX_SOURCE_ROOT}/libcore)
# Results must not depend on whether the compiler found a multiply to fuse: contraction is off, and
# kernels that want an FMA say so.
target_compile_options(chex_options INTERFACE -ffp-contract=off -fno-math-errno)
if(CHEX_SANITIZE)
  target_compile_options(chex_options INTERFACE -fsanitize=${CHEX_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all
    # Its functions come only with programs that clang++ links; here a module alone is C++.
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr>)
  target_link_options(chex_options INTERFACE -fsanitize=${CHEX_SANITIZE})
endif()

add_library(chex_warnings INTERFACE)
target_compile_options(chex_warnings INTERFACE -Wall -Wextra -Wshadow
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes> -Wvla -Wformat=2 -Wundef -Wpointer-arith -Wwrite-strings
  -Wno-missing-field-initializers)
if(CHEX_WERROR)
  target_compile_options(chex_warnings INTERFACE -Werror)
endif()

# A source file whose name ends in _ISA.c is compiled for that ISA; it is chosen at run time.
set(CHEX_ISA_FLAGS_sse41 -msse4.1)
set(CHEX_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(CHEX_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma)
set(CHEX_ISA_FLAGS_avx512vnni ${CHEX_ISA_FLAGS_avx512} -mavx512vbmi -mavx512vnni)
set(CHEX_ISA_FLAGS_avx512bf16 ${CHEX_ISA_FLAGS_avx512} -mavx512bf16)
set(CHEX_ISA_FLAGS_amx ${CHEX_ISA_FLAGS_avx512bf16} -mamx-tile -mamx-bf16)
function(chex_isa_flags)
  foreach(source ${ARGN})
    foreach(isa sse41 avx2 avx512 avx512vnni avx512bf16 amx)
      if(source MATCHES "_${isa}\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "${CHEX_ISA_FLAGS_${isa}}")
      endif()
    endforeach()
    # The inner loops of the cpu engine live in registers only when optimised: unoptimised, a test
    # that takes a second takes minutes.
    if(source MATCHES "/kernels_[a-z0-9_]+\\.c$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Debug>:-O2>)
      # No fuzzed function calls them.
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        $<$<BOOL:${CHEX_FUZZ}>:-fno-sanitize=fuzzer-no-link>)
    endif()
  endforeach()
endfunction()
