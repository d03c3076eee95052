/* SPDX-License-Identifier: Apache-2.0
 *
 * What chexnet-cuda.so shows to who opens it (engine/engine_cuda.h): beside its version, this.
 */
#ifndef CHEX_ENGINE_CUDA_MODULE_H
#define CHEX_ENGINE_CUDA_MODULE_H

#include "engine/engine.h"

/* cuda_engine.c */
__attribute__((visibility("default"))) extern const struct chex_engine_impl chexnet_engine_cuda;
/* module.c */
__attribute__((visibility("default"))) extern const int chexnet_cuda_runtime;

#endif
