/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3", SC 2011). The value is a pure function of (key, counter), so results never depend
 * on threads, ranks or restarts, and a GPU kernel draws the same numbers.
 */
#ifndef CHEX_BASE_RNG_H
#define CHEX_BASE_RNG_H

#include <stdint.h>

struct chex_rng4 {
    uint32_t v[4];
};

/* Streams keep the uses of one seed apart: the counter's top word is the stream. */
enum chex_rng_stream {
    CHEX_RNG_ORDER = 1,
    CHEX_RNG_AUGMENT = 2,
    CHEX_RNG_INIT = 3,
    CHEX_RNG_SPLIT = 4,
    CHEX_RNG_PHANTOM = 5,
    CHEX_RNG_BOOTSTRAP = 6,
    CHEX_RNG_TEST = 7,
    CHEX_RNG_SHARD = 8,
};

static inline struct chex_rng4 chex_rng_block(uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2,
                                              uint32_t c3) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    struct chex_rng4 c = {{c0, c1, c2, c3}};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c.v[0], p1 = (uint64_t)0xCD9E8D57u * c.v[2];
        c = (struct chex_rng4){{(uint32_t)(p1 >> 32) ^ c.v[1] ^ k0, (uint32_t)p1,
                                (uint32_t)(p0 >> 32) ^ c.v[3] ^ k1, (uint32_t)p0}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Four words for (seed, stream, item, draw): item is 64 bits wide (an image, a position), draw
 * counts blocks within it. */
static inline struct chex_rng4 chex_rng(uint64_t seed, enum chex_rng_stream stream, uint64_t item,
                                        uint32_t draw) {
    return chex_rng_block(seed, draw, (uint32_t)item, (uint32_t)(item >> 32), (uint32_t)stream);
}

/* Uniform in [0, 1) with 24 bits: exact in fp32. */
static inline float chex_rng_unit(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* Uniform in [0, n) by multiply-shift; bias below n / 2^32. */
static inline uint32_t chex_rng_below(uint32_t word, uint32_t n) {
    return (uint32_t)(((uint64_t)word * n) >> 32);
}

#endif
