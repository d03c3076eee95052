/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <stdio.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t chex_hash64(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

uint64_t chex_hash64_mix(uint64_t digest, const void *data, size_t bytes) {
    return XXH3_64bits_withSeed(data, bytes, digest);
}

void chex_hash128_hex(const void *data, size_t bytes, char out[CHEX_HASH128_HEX_BYTES]) {
    XXH128_hash_t h = XXH3_128bits(data, bytes);
    snprintf(out, CHEX_HASH128_HEX_BYTES, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}
