/* SPDX-License-Identifier: Apache-2.0
 *
 * Normal random values with the same bits on every processor and with every C library.
 */
#ifndef CHEX_MODEL_NORMAL_H
#define CHEX_MODEL_NORMAL_H

#include <stddef.h>
#include <stdint.h>

/* Fills elements [from, to) of w with normal values of mean 0 and deviation std, by the Box-Muller
 * transform of stream CHEX_RNG_INIT. One Philox block gives two elements, so `from` must be even.
 * item: number of the random stream. */
void chex_normal_fill(uint64_t seed, uint64_t item, float std, float *w, size_t from, size_t to);

#endif
