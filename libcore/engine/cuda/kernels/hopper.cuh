/* SPDX-License-Identifier: Apache-2.0
 *
 * Instructions that only capability 9.0 has. Only sources named *_sm90.cu may include it: they are
 * compiled for sm_90a alone, and their launchers ask the device's capability first.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_HOPPER_CUH
#define CHEX_ENGINE_CUDA_KERNELS_HOPPER_CUH

#include "engine/cuda/kernels/hopper_copy.cuh"
#include "engine/cuda/kernels/hopper_wgmma.cuh"

#endif
