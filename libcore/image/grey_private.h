/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of grey.h and the versions of chex_grey_plain() for one instruction set.
 */
#ifndef CHEX_IMAGE_GREY_PRIVATE_H
#define CHEX_IMAGE_GREY_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

enum { CHEX_GREY_RED = 19595, CHEX_GREY_GREEN = 38470, CHEX_GREY_BLUE = 7471 };

#if defined(__x86_64__)
void chex_grey_avx2(const uint8_t *colour, size_t pixel_bytes, size_t n, uint8_t *grey);
#endif

#endif
