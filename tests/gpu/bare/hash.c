/* SPDX-License-Identifier: Apache-2.0
 *
 * base/hash.h for a machine without xxhash.h: FNV-1a (Fowler, Noll, Vo) of 64 and 128 bits. The
 * engine alone hashes nothing but the names and contents of its own plan cache, so that other
 * values than the product's mean other file names there and no more.
 */
#include "base/hash.h"

#include <stdio.h>

uint64_t chex_hash64_mix(uint64_t digest, const void *data, size_t bytes) {
    uint64_t h = digest ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return h;
}

uint64_t chex_hash64(const void *data, size_t bytes) { return chex_hash64_mix(0, data, bytes); }

void chex_hash128(const void *data, size_t bytes, uint64_t out[2]) {
    const unsigned __int128 prime = (unsigned __int128)1 << 88 | 0x13b;
    unsigned __int128 h = (unsigned __int128)0x6c62272e07bb0142u << 64 | 0x62b821756295c58du;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * prime;
    out[0] = (uint64_t)(h >> 64);
    out[1] = (uint64_t)h;
}

void chex_hash128_hex(const void *data, size_t bytes, char out[CHEX_HASH128_HEX_BYTES]) {
    uint64_t h[2];
    chex_hash128(data, bytes, h);
    snprintf(out, CHEX_HASH128_HEX_BYTES, "%016llx%016llx", (unsigned long long)h[0],
             (unsigned long long)h[1]);
}
