/* SPDX-License-Identifier: Apache-2.0
 *
 * What chexnet-cuda.so exports besides its version (base/module.h).
 */
#ifndef CHEX_ENGINE_ENGINE_CUDA_H
#define CHEX_ENGINE_ENGINE_CUDA_H

#include "engine/engine.h"

/* const struct chex_engine_impl chexnet_engine_cuda: all but `load`; its name is "cuda". */
#define CHEX_CUDA_SYMBOL "chexnet_engine_cuda"
/* const int chexnet_cuda_runtime: the CUDA it was built with, as CUDART_VERSION. */
#define CHEX_CUDA_RUNTIME_SYMBOL "chexnet_cuda_runtime"

/* 13000 for 13.0; 0 where the module cannot be loaded. */
int chex_cuda_runtime(void);

#endif
