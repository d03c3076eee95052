/* SPDX-License-Identifier: Apache-2.0
 *
 * The symbols that chexnet-cuda.so exports in addition to its version (base/module.h).
 */
#ifndef CHEX_ENGINE_ENGINE_CUDA_H
#define CHEX_ENGINE_ENGINE_CUDA_H

#include "engine/engine.h"

/* const struct chex_engine_impl chexnet_engine_cuda: the complete table, without `load`. */
#define CHEX_CUDA_SYMBOL "chexnet_engine_cuda"
/* const int chexnet_cuda_runtime: CUDART_VERSION of the build. */
#define CHEX_CUDA_RUNTIME_SYMBOL "chexnet_cuda_runtime"

/* CUDA version of the module's build: 13000 is 13.0. 0: the module cannot be loaded. */
int chex_cuda_runtime(void);

#endif
