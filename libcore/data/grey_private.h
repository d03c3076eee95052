/* SPDX-License-Identifier: Apache-2.0
 *
 * chex_grey_plain compiled for one instruction set.
 */
#ifndef CHEX_DATA_GREY_PRIVATE_H
#define CHEX_DATA_GREY_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

enum { CHEX_GREY_RED = 19595, CHEX_GREY_GREEN = 38470, CHEX_GREY_BLUE = 7471 };

#if defined(__x86_64__)
void chex_grey_avx2(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey);
#endif

#endif
