# SPDX-License-Identifier: Apache-2.0
# Finds what the CUDA engine is built with: nvcc, cuDNN 9 and NCCL 2's header. Used by the whole
# product (dependencies.cmake) and by the engine alone (tests/gpu). Include it at the top level: it
# enables the language CUDA.
#
# In: CHEX_WITH_CUDA, CHEX_WITH_CUDNN, CHEX_WITH_NCCL (AUTO, ON, OFF); CHEX_CUDA_ARCHITECTURES;
# hints CUDAToolkit_ROOT, CUDNN_ROOT, NCCL_ROOT (variables or environment), CMAKE_CUDA_COMPILER or
# the environment's CUDACXX. A build folder keeps the toolkit that it was configured with.
# Out: CHEX_HAVE_CUDA, CHEX_HAVE_CUDNN, CHEX_HAVE_NCCL; *_VERSION and, where one is missing, *_WHY;
# targets chex_cuda_runtime, chex_cudnn, chex_nccl, chex_cublaslt (the last for measurements only).
set(CHEX_CUDA_ARCHITECTURES "" CACHE STRING
  "Targets such as 80;90; 90-real: without PTX; empty: every target that this nvcc knows")
set(CHEX_CUDA_LEAST 12.9)
set(CHEX_CUDA_TARGETS 70 75 80 86 89 90 100 120)

# Folders nvidia/cudnn, nvidia/cu13, ... of the Python that is first in PATH: pip puts libraries
# there that a machine may have nowhere else.
function(chex_python_roots out)
  set(roots)
  find_program(CHEX_PYTHON NAMES python3 python)
  if(CHEX_PYTHON)
    execute_process(COMMAND ${CHEX_PYTHON} -c "import importlib.util as u, os
s = u.find_spec('nvidia')
for p in (s.submodule_search_locations if s else ()):
    for d in sorted(os.listdir(p)):
        print(os.path.join(p, d))"
      OUTPUT_VARIABLE roots ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" ";" roots "${roots}")
  endif()
  set(${out} "${roots}" PARENT_SCOPE)
endfunction()

# nvcc and its version; *_WHY where there is none that will do.
function(chex_find_nvcc)
  file(GLOB versioned /usr/local/cuda-*/bin)
  list(REVERSE versioned)
  list(TRANSFORM CHEX_PYTHON_ROOTS APPEND /bin OUTPUT_VARIABLE wheels)
  get_filename_component(asked "${CMAKE_CUDA_COMPILER}" DIRECTORY)
  get_filename_component(asked_too "$ENV{CUDACXX}" DIRECTORY)
  find_program(CHEX_NVCC nvcc
    HINTS ${asked} ${asked_too} ${CUDAToolkit_ROOT}/bin $ENV{CUDAToolkit_ROOT}/bin
      $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin
    PATHS /usr/local/cuda/bin ${versioned} /opt/cuda/bin ${wheels})
  set(remedy "install NVIDIA's cuda-compiler-13-0 and cuda-cudart-dev-13-0, or name the toolkit by -DCUDAToolkit_ROOT=FOLDER")
  if(NOT CHEX_NVCC)
    set(CUDA_WHY "there is no nvcc: ${remedy}" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CHEX_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" text "${text}")
  set(version "${CMAKE_MATCH_1}")
  if(NOT version OR version VERSION_LESS CHEX_CUDA_LEAST)
    set(CUDA_WHY "${CHEX_NVCC} is version '${version}', the least is ${CHEX_CUDA_LEAST}: ${remedy}" PARENT_SCOPE)
    return()
  endif()
  check_language(CXX)
  if(NOT CMAKE_CXX_COMPILER)
    set(CUDA_WHY "nvcc needs a C++ compiler: apt-get install g++" PARENT_SCOPE)
    return()
  endif()
  get_filename_component(root ${CHEX_NVCC} REALPATH)
  get_filename_component(root ${root} DIRECTORY)
  get_filename_component(root ${root} DIRECTORY)
  set(CUDA_ROOT ${root} PARENT_SCOPE)
  set(CUDA_VERSION ${version} PARENT_SCOPE)
  set(CUDA_WHY "" PARENT_SCOPE)
endfunction()

# Those of the targets that this nvcc knows, as its options: machine code for each. Half of nvcc's
# time goes into making PTX. Kernels only tell three kinds of targets apart (7.x, 8.x, and 9.0 with
# all later ones, which have dependent launches), so each kind shares one PTX. Those of 8.0 and 9.0
# are kept for devices that come later, unless all targets end in -real. A build for one target has
# the same code.
function(chex_cuda_targets names_out options_out targets)
  execute_process(COMMAND ${CHEX_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  set(names)
  set(options)
  set(kept 80 90)
  if(targets MATCHES "^([0-9]+-real;?)+$")
    set(kept)
  endif()
  string(REPLACE "-real" "" targets "${targets}")
  foreach(target ${targets})
    if(known MATCHES "compute_${target}[^0-9a-z]")
      set(ptx ${target})
      if(target GREATER_EQUAL 90)
        set(ptx 90)
      elseif(target GREATER 80)
        set(ptx 80)
      endif()
      list(APPEND names ${target})
      list(APPEND options --generate-code=arch=compute_${ptx},code=[sm_${target}])
    endif()
  endforeach()
  foreach(ptx ${kept})
    list(APPEND options --generate-code=arch=compute_${ptx},code=[compute_${ptx}])
  endforeach()
  set(${names_out} "${names}" PARENT_SCOPE)
  set(${options_out} "${options}" PARENT_SCOPE)
endfunction()

# chex_find_pair(NAME header libraries roots): a folder that has both. Sets NAME_INCLUDE and, unless
# `libraries` is empty, NAME_LIBRARY.
function(chex_find_pair name header libraries roots)
  set(${name}_INCLUDE "" PARENT_SCOPE)
  foreach(root ${roots})
    unset(include CACHE)
    unset(library CACHE)
    find_path(include ${header} PATHS ${root} PATH_SUFFIXES include include/x86_64-linux-gnu
      include/aarch64-linux-gnu NO_DEFAULT_PATH NO_CACHE)
    if(libraries)
      find_library(library NAMES ${libraries} PATHS ${root} PATH_SUFFIXES lib64 lib
        lib/x86_64-linux-gnu lib/aarch64-linux-gnu NO_DEFAULT_PATH NO_CACHE)
    endif()
    if(include AND (library OR NOT libraries))
      set(${name}_INCLUDE ${include} PARENT_SCOPE)
      set(${name}_LIBRARY ${library} PARENT_SCOPE)
      return()
    endif()
    unset(include)
    unset(library)
  endforeach()
endfunction()

# "9.19.1" of three #defines in the headers of a folder.
function(chex_header_version out folder pattern prefix parts)
  set(version)
  file(GLOB headers ${folder}/${pattern})
  foreach(part ${parts})
    foreach(header ${headers})
      file(STRINGS ${header} line REGEX "define ${prefix}${part}[ \t]+[0-9]+" LIMIT_COUNT 1)
      string(REGEX MATCH "[0-9]+ *$" number "${line}")
      if(line)
        list(APPEND version ${number})
        break()
      endif()
    endforeach()
  endforeach()
  string(REPLACE ";" "." version "${version}")
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

function(chex_find_cudnn)
  set(CHEX_HAVE_CUDNN OFF PARENT_SCOPE)
  if(CHEX_WITH_CUDNN STREQUAL "OFF")
    set(CUDNN_WHY "CHEX_WITH_CUDNN=OFF" PARENT_SCOPE)
    return()
  endif()
  chex_find_pair(CUDNN cudnn_backend.h "cudnn;libcudnn.so.9"
    "${CUDNN_ROOT};$ENV{CUDNN_ROOT};${CUDA_ROOT};/usr/local;/usr;${CHEX_PYTHON_ROOTS}")
  set(remedy "install NVIDIA's libcudnn9-dev-cuda-13, or name its folder by -DCUDNN_ROOT=FOLDER")
  set(why)
  if(CUDNN_INCLUDE)
    chex_header_version(version ${CUDNN_INCLUDE} "cudnn_version*.h" CUDNN_ "MAJOR;MINOR;PATCHLEVEL")
    if(version VERSION_LESS 9 OR version VERSION_GREATER_EQUAL 10)
      set(why "${CUDNN_INCLUDE} has cuDNN '${version}', not 9: ${remedy}")
    endif()
  else()
    set(why "cuDNN 9 is missing: ${remedy}")
  endif()
  if(why)
    set(CUDNN_WHY "${why}" PARENT_SCOPE)
    return()
  endif()
  add_library(chex_cudnn INTERFACE IMPORTED GLOBAL)
  target_include_directories(chex_cudnn SYSTEM INTERFACE ${CUDNN_INCLUDE})
  target_link_libraries(chex_cudnn INTERFACE ${CUDNN_LIBRARY})
  set(CUDNN_VERSION ${version} PARENT_SCOPE)
  set(CUDNN_LIBRARY ${CUDNN_LIBRARY} PARENT_SCOPE)
  set(CHEX_HAVE_CUDNN ON PARENT_SCOPE)
endfunction()

# The header alone: the library is opened at run time, by runs of more than one GPU.
function(chex_find_nccl)
  set(CHEX_HAVE_NCCL OFF PARENT_SCOPE)
  if(CHEX_WITH_NCCL STREQUAL "OFF")
    set(NCCL_WHY "CHEX_WITH_NCCL=OFF" PARENT_SCOPE)
    return()
  endif()
  chex_find_pair(NCCL nccl.h ""
    "${NCCL_ROOT};$ENV{NCCL_ROOT};${CUDA_ROOT};/usr/local;/usr;${CHEX_PYTHON_ROOTS}")
  if(NOT NCCL_INCLUDE)
    set(NCCL_WHY "nccl.h is missing: install NVIDIA's libnccl-dev, or name its folder by -DNCCL_ROOT=FOLDER" PARENT_SCOPE)
    return()
  endif()
  chex_header_version(version ${NCCL_INCLUDE} nccl.h NCCL_ "MAJOR;MINOR;PATCH")
  # Its folder holds other headers than ours, of other versions perhaps: it comes last.
  add_library(chex_nccl INTERFACE IMPORTED GLOBAL)
  target_compile_options(chex_nccl INTERFACE
    "$<$<COMPILE_LANGUAGE:C,CXX>:SHELL:-idirafter ${NCCL_INCLUDE}>")
  set(NCCL_VERSION ${version} PARENT_SCOPE)
  set(CHEX_HAVE_NCCL ON PARENT_SCOPE)
endfunction()

# For the measured tensor-core rate.
function(chex_find_cublaslt)
  set(CHEX_HAVE_CUBLASLT OFF PARENT_SCOPE)
  string(REGEX REPLACE "\\..*" "" major "${CUDA_VERSION}")
  chex_find_pair(CUBLASLT cublasLt.h "libcublasLt.so.${major};cublasLt"
    "${CUDA_ROOT};/usr/local;/usr;${CHEX_PYTHON_ROOTS}")
  if(CUBLASLT_INCLUDE)
    add_library(chex_cublaslt INTERFACE IMPORTED GLOBAL)
    target_compile_options(chex_cublaslt INTERFACE
      "$<$<COMPILE_LANGUAGE:C,CXX>:SHELL:-idirafter ${CUBLASLT_INCLUDE}>")
    target_link_libraries(chex_cublaslt INTERFACE ${CUBLASLT_LIBRARY})
    get_filename_component(folder ${CUBLASLT_LIBRARY} DIRECTORY)
    target_link_options(chex_cublaslt INTERFACE LINKER:-rpath,${folder} LINKER:-rpath-link,${folder})
    set(CHEX_HAVE_CUBLASLT ON PARENT_SCOPE)
  endif()
endfunction()

# ---- the search itself; a macro, since a language is enabled at the top level ----
set(CHEX_HAVE_CUDA OFF)
set(CHEX_HAVE_CUDNN OFF)
set(CHEX_HAVE_NCCL OFF)
set(CUDA_WHY "CHEX_WITH_CUDA=OFF")
if(NOT CHEX_WITH_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  chex_python_roots(CHEX_PYTHON_ROOTS)
  chex_find_nvcc()
endif()
set(CUDNN_WHY "${CUDA_WHY}")
set(NCCL_WHY "${CUDA_WHY}")
if(NOT CUDA_WHY)
  chex_find_cudnn()
  chex_find_nccl()
endif()
foreach(part CUDA CUDNN NCCL)
  if(CHEX_WITH_${part} STREQUAL "ON" AND ${part}_WHY)
    message(FATAL_ERROR "CHEX_WITH_${part}=ON, but ${${part}_WHY}")
  elseif(CHEX_WITH_CUDA STREQUAL "ON" AND ${part}_WHY AND NOT CHEX_WITH_${part} STREQUAL "OFF")
    message(FATAL_ERROR "CHEX_WITH_CUDA=ON, but ${${part}_WHY} (or -DCHEX_WITH_${part}=OFF)")
  endif()
endforeach()
if(NOT CUDA_WHY)
  set(CMAKE_CUDA_COMPILER ${CHEX_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES 80-real) # for CMake's own questions; kernels get the options
  set(targets ${CHEX_CUDA_TARGETS})
  if(CHEX_CUDA_ARCHITECTURES)
    set(targets ${CHEX_CUDA_ARCHITECTURES})
  endif()
  chex_cuda_targets(CHEX_CUDA_NAMES CHEX_CUDA_OPTIONS "${targets}")
  if(NOT CHEX_CUDA_NAMES)
    message(FATAL_ERROR "CHEX_CUDA_ARCHITECTURES=${CHEX_CUDA_ARCHITECTURES}: ${CHEX_NVCC} knows none of them")
  endif()
  enable_language(CXX)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  # The static runtime opens the driver itself: what is linked to it loads on machines without one.
  find_library(CHEX_CUDART cudart_static HINTS ${CUDA_ROOT}/lib64 ${CUDA_ROOT}/lib
    ${CUDA_ROOT}/targets/x86_64-linux/lib ${CUDA_ROOT}/targets/sbsa-linux/lib REQUIRED)
  find_path(CHEX_CUDART_INCLUDE cuda_runtime_api.h HINTS ${CUDA_ROOT}/include
    ${CUDA_ROOT}/targets/x86_64-linux/include ${CUDA_ROOT}/targets/sbsa-linux/include REQUIRED)
  add_library(chex_cuda_runtime INTERFACE IMPORTED GLOBAL)
  target_include_directories(chex_cuda_runtime SYSTEM INTERFACE ${CHEX_CUDART_INCLUDE})
  target_link_libraries(chex_cuda_runtime INTERFACE ${CHEX_CUDART} pthread dl rt)
  set(CHEX_HAVE_CUDA ON)
endif()

# chex_cuda_kernels(TARGET folder): the object library of the folder's kernels. What ptxas says of
# each goes into OBJECT.ptxas beside the object, for tests/gpu/ptxas.sh.
#
# NAME_sm90.cu has kernels with instructions that only capability 9.0 has (target 90a). It is compiled
# for that target alone, whatever CHEX_CUDA_ARCHITECTURES says, and without PTX: no other device runs
# it. Its launchers look at the device's capability first.
#
# -fmad=false: as on the CPU nothing is fused but what the source fuses (__fmaf_rn, mma), so that a
# kernel computes what it computes on the emulated device. CUDA 12.9 warns that 7.0 is its last.
function(chex_cuda_kernels target folder)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${folder}/*.cu)
  add_library(${target} OBJECT ${kernels})
  foreach(kernel ${kernels})
    set(options ${CHEX_CUDA_OPTIONS})
    if(kernel MATCHES "_sm90\\.cu$")
      set(options --generate-code=arch=compute_90a,code=[sm_90a])
    endif()
    set_source_files_properties(${kernel} PROPERTIES COMPILE_OPTIONS "${options}")
  endforeach()
  target_include_directories(${target} PRIVATE ${CHEX_SOURCE_ROOT}/libcore)
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES OFF)
  target_compile_options(${target} PRIVATE -fmad=false
    -Wno-deprecated-gpu-targets -Xptxas -v -Xcompiler=-fno-exceptions
    $<$<BOOL:${CHEX_WERROR}>:SHELL:-Werror all-warnings>)
  set(launcher sh ${CHEX_SOURCE_ROOT}/cmake/ptxas_log.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CUDA_COMPILER_LAUNCHER "${launcher}")
endfunction()

# chex_cuda_module(core folder): chexnet-cuda.so of the folder's host files and kernels. Only what
# engine/cuda/host/cuda_module.h names is visible, and nothing may be missing but what the libraries give.
# Without cuDNN its folder stays out; nccl.c sees for itself whether there is a header.
function(chex_cuda_module core folder)
  file(GLOB_RECURSE hosts CONFIGURE_DEPENDS ${folder}/*.c)
  if(NOT CHEX_HAVE_CUDNN)
    list(FILTER hosts EXCLUDE REGEX "/cudnn/[a-z0-9_]*\\.c$")
  endif()
  add_library(chexnet-cuda MODULE ${hosts} $<TARGET_OBJECTS:cuda-kernels>)
  set_target_properties(chexnet-cuda PROPERTIES PREFIX "" LINKER_LANGUAGE CXX)
  target_compile_definitions(chexnet-cuda PRIVATE CHEXNET_HAVE_CUDNN=$<BOOL:${CHEX_HAVE_CUDNN}>)
  target_link_libraries(chexnet-cuda PRIVATE ${core} chex_warnings chex_cuda_runtime
    $<$<BOOL:${CHEX_HAVE_CUDNN}>:chex_cudnn> $<$<BOOL:${CHEX_HAVE_NCCL}>:chex_nccl>)
  target_link_options(chexnet-cuda PRIVATE LINKER:--exclude-libs,ALL LINKER:-z,defs LINKER:--as-needed)
endfunction()

# The lines of the summary.
function(chex_cuda_summary)
  foreach(part CUDA CUDNN NCCL)
    if(CHEX_HAVE_${part})
      set(more)
      if(part STREQUAL "CUDA")
        string(REPLACE ";" ", " more " for ${CHEX_CUDA_NAMES}")
      endif()
      message(STATUS "  ${part}: ${${part}_VERSION}${more}")
    elseif(part STREQUAL "CUDA" OR CHEX_HAVE_CUDA)
      message(STATUS "  ${part}: no (CHEX_WITH_${part}=${CHEX_WITH_${part}}): ${${part}_WHY}")
    endif()
  endforeach()
endfunction()
