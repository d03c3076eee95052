/* SPDX-License-Identifier: Apache-2.0
 *
 * chex_hash64 compiled for one instruction set: the same digest.
 */
#ifndef CHEX_BASE_HASH_PRIVATE_H
#define CHEX_BASE_HASH_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
uint64_t chex_hash64_avx2(const void *data, size_t bytes);
#endif

#endif
