/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3 checksums. chex_hash64 uses AVX2 from 1 KiB on if the processor has it; the digest is the
 * same.
 */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/cpu_features.h"
#include "base/hash_private.h"

enum { LONG_BYTES = 1024 }; /* from this size on, wider vectors are worth the dispatch */

uint64_t chex_hash64(const void *data, size_t bytes) {
#if defined(__x86_64__)
    if (bytes >= LONG_BYTES && chex_cpu_has(CHEX_ISA_AVX2))
        return chex_hash64_avx2(data, bytes);
#endif
    return XXH3_64bits(data, bytes);
}

uint64_t chex_hash64_mix(uint64_t digest, const void *data, size_t bytes) {
    return XXH3_64bits_withSeed(data, bytes, digest);
}

uint64_t chex_hash64_mix_text(uint64_t digest, const char *text) {
    return chex_hash64_mix(digest, text, strlen(text) + 1);
}

void chex_hash128(const void *data, size_t bytes, uint64_t out[2]) {
    XXH128_hash_t h = XXH3_128bits(data, bytes);
    out[0] = h.high64;
    out[1] = h.low64;
}

static void put_hex(const uint64_t h[2], char out[CHEX_HASH128_HEX_BYTES]) {
    snprintf(out, CHEX_HASH128_HEX_BYTES, "%016llx%016llx", (unsigned long long)h[0],
             (unsigned long long)h[1]);
}

void chex_hash128_hex(const void *data, size_t bytes, char out[CHEX_HASH128_HEX_BYTES]) {
    uint64_t h[2];
    chex_hash128(data, bytes, h);
    put_hex(h, out);
}

void chex_hash128_hex_of_parts(const struct chex_hash_part *parts, size_t count,
                               char out[CHEX_HASH128_HEX_BYTES]) {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < count; i++)
        XXH3_128bits_update(&state, parts[i].data, parts[i].bytes);
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    put_hex((const uint64_t[2]){h.high64, h.low64}, out);
}
