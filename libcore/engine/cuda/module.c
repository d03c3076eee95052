/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks chexnet-cuda.so as this build's, and says which CUDA is in it.
 */
#include "engine/cuda/module.h"

#include <cuda_runtime_api.h>

#include "base/module.h"

CHEX_MODULE_VERSION_SYMBOL

const int chexnet_cuda_runtime = CUDART_VERSION;
