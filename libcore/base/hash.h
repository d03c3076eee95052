/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums of data at rest: XXH3, 64 and 128 bits (xxHash). Not for secrets.
 */
#ifndef CHEX_BASE_HASH_H
#define CHEX_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t chex_hash64(const void *data, size_t bytes);

/* Continues an order-dependent digest: start with 0, feed parts one by one. */
uint64_t chex_hash64_mix(uint64_t digest, const void *data, size_t bytes);

/* The same of a text with its NUL. */
uint64_t chex_hash64_mix_text(uint64_t digest, const char *text);

/* 128 bits, the high half first. */
void chex_hash128(const void *data, size_t bytes, uint64_t out[2]);

enum { CHEX_HASH128_HEX_BYTES = 33 };
/* 32 lower-case hex digits and a NUL. */
void chex_hash128_hex(const void *data, size_t bytes, char out[CHEX_HASH128_HEX_BYTES]);

struct chex_hash_part {
    const void *data;
    size_t bytes;
};

/* The same for `count` parts, one after the other. */
void chex_hash128_hex_of_parts(const struct chex_hash_part *parts, size_t count,
                               char out[CHEX_HASH128_HEX_BYTES]);

#endif
