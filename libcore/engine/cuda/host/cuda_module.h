/* SPDX-License-Identifier: Apache-2.0
 *
 * The symbols that chexnet-cuda.so exports in addition to its version. The loader is
 * engine/engine_cuda.h.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_CUDA_MODULE_H
#define CHEX_ENGINE_CUDA_HOST_CUDA_MODULE_H

#include "engine/engine.h"

/* cuda_engine.c */
__attribute__((visibility("default"))) extern const struct chex_engine_impl chexnet_engine_cuda;
/* cuda_module.c: CUDART_VERSION of the build */
__attribute__((visibility("default"))) extern const int chexnet_cuda_runtime;

#endif
