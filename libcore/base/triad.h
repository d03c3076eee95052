/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop by which the rate of memory is measured (McCalpin's STREAM): one multiplication and one
 * addition an element, on arrays far larger than the caches.
 */
#ifndef CHEX_BASE_TRIAD_H
#define CHEX_BASE_TRIAD_H

#include <stddef.h>

/* a = b + c / 2, or a = b where c is NULL. n is a multiple of 4, the arrays lie on 16-byte
 * boundaries and do not overlap. Stores go past the caches where the processor has such, so that no
 * line is read only to be overwritten: 12 (8) bytes move an element. */
void chex_triad(float *restrict a, const float *restrict b, const float *restrict c, size_t n);

#endif
