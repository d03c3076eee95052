/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the entries of the table of engines in engine.c. Only engine.c and the engines include
 * this header.
 */
#ifndef CHEX_ENGINE_ENGINES_H
#define CHEX_ENGINE_ENGINES_H

#include "engine/engine.h"

extern const struct chex_engine_impl chex_engine_ref;
extern const struct chex_engine_impl chex_engine_cpu;
extern const struct chex_engine_impl chex_engine_cuda; /* engine_cuda.c: loads the module */

#endif
