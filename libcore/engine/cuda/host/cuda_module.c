/* SPDX-License-Identifier: Apache-2.0
 *
 * Version symbols of chexnet-cuda.so: the build that it belongs to, and its CUDA version.
 */
#include "engine/cuda/host/cuda_module.h"

#include <cuda_runtime_api.h>

#include "base/module.h"

CHEX_MODULE_VERSION_SYMBOL

const int chexnet_cuda_runtime = CUDART_VERSION;
