/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop that measures memory bandwidth (McCalpin's STREAM triad): one multiplication and one
 * addition per element, on arrays far larger than the caches.
 */
#ifndef CHEX_ENGINE_TRIAD_H
#define CHEX_ENGINE_TRIAD_H

#include <stddef.h>

/* a = b + c / 2, or a = b if c is NULL.
 * - n is a multiple of 4. The arrays are 16-byte aligned and do not overlap.
 * - Stores bypass the caches if the processor supports it, so that no line is read before it is
 *   overwritten. Traffic: 12 bytes per element (8 without c). */
void chex_triad(float *restrict a, const float *restrict b, const float *restrict c, size_t n);

#endif
