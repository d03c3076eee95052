/* SPDX-License-Identifier: Apache-2.0
 *
 * The wavefront of unfilter.h on 32 rows in two vectors of 16 bytes. Two vectors, so that one
 * computes while the other waits for its last result. Uses the vector types of the compiler, and
 * intrinsics for the few x86 instructions that compilers do not find.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef uint8_t bytes16 __attribute__((vector_size(16)));

#define ROWS 32
enum { HALVES = 2, BLOCK = 64 };

struct step {
    bytes16 half[HALVES];
};

/* The bytes of a block, row by row. Sixteen steps (a tile) are in registers at a time. */
struct block {
    _Alignas(64) uint8_t bytes[ROWS][BLOCK];
};

/* Values of 1, 2, 3 and 4 steps ago. Four names instead of an array, so that the compiler keeps
 * them in registers. */
struct past {
    bytes16 one, two, three, four;
};

struct wave {
    struct past result[HALVES], above[HALVES];
};

/* For each filter: 0xff in the rows that use it. */
struct mix {
    bytes16 sub[HALVES], up[HALVES], average[HALVES], paeth[HALVES];
};

static inline bytes16 load16(const uint8_t *p) {
    bytes16 v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static inline void store16(uint8_t *p, bytes16 v) { __builtin_memcpy(p, &v, sizeof v); }

#if defined(__SSE2__)
static inline bytes16 less_or_zero(bytes16 a, bytes16 b) { // a - b, at least 0
    return (bytes16)_mm_subs_epu8((__m128i)a, (__m128i)b);
}
static inline bytes16 smaller(bytes16 a, bytes16 b) {
    return (bytes16)_mm_min_epu8((__m128i)a, (__m128i)b);
}
static inline bytes16 half_sum_up(bytes16 a, bytes16 b) {
    return (bytes16)_mm_avg_epu8((__m128i)a, (__m128i)b);
}
#else
static inline bytes16 less_or_zero(bytes16 a, bytes16 b) { return (a - b) & (bytes16)(a > b); }
static inline bytes16 smaller(bytes16 a, bytes16 b) {
    const bytes16 m = (bytes16)(a < b);
    return (a & m) | (b & ~m);
}
static inline bytes16 half_sum_up(bytes16 a, bytes16 b) { return (a | b) - ((a ^ b) >> 1); }
#endif

static inline bytes16 choose(bytes16 mask, bytes16 yes, bytes16 no) {
#if defined(__SSE4_1__)
    return (bytes16)_mm_blendv_epi8((__m128i)no, (__m128i)yes, (__m128i)mask);
#else
    return (yes & mask) | (no & ~mask);
#endif
}

static inline bytes16 distance(bytes16 a, bytes16 b) {
    return less_or_zero(a, b) | less_or_zero(b, a);
}

/* Moves each byte to the next row. The first row gets the last byte of `before`. */
static inline bytes16 one_row_down(bytes16 rows, bytes16 before) {
    return __builtin_shufflevector(before, rows, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                   28, 29, 30);
}

static inline bytes16 low_pairs(bytes16 a, bytes16 b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline bytes16 high_pairs(bytes16 a, bytes16 b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}

/* Moves byte j of vector i to byte i of vector j. Each of four rounds exchanges one bit of the
 * indices.
 */
static inline void transpose16(bytes16 v[16]) {
    bytes16 t[16];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            t[2 * i] = low_pairs(v[i], v[i + 8]);
            t[2 * i + 1] = high_pairs(v[i], v[i + 8]);
        }
        for (int i = 0; i < 16; i++)
            v[i] = t[i];
    }
}

static inline void load_block(const uint8_t *in, size_t pitch, struct block *block) {
    for (size_t k = 0; k < ROWS; k++)
        __builtin_memcpy(block->bytes[k], in + k * pitch, BLOCK);
}

static inline void store_block(uint8_t *out, size_t pitch, const struct block *block) {
    for (size_t k = 0; k < ROWS; k++)
        __builtin_memcpy(out + k * pitch, block->bytes[k], BLOCK);
}

static inline void load_tile(const struct block *block, size_t s, struct step tile[16]) {
    for (size_t h = 0; h < HALVES; h++) {
        bytes16 v[16];
        for (size_t k = 0; k < 16; k++)
            v[k] = load16(block->bytes[h * 16 + k] + s);
        transpose16(v);
        for (int t = 0; t < 16; t++)
            tile[t].half[h] = v[t];
    }
}

static inline void store_tile(struct block *block, size_t s, const struct step tile[16]) {
    for (size_t h = 0; h < HALVES; h++) {
        bytes16 v[16];
        for (int t = 0; t < 16; t++)
            v[t] = tile[t].half[h];
        transpose16(v);
        for (size_t k = 0; k < 16; k++)
            store16(block->bytes[h * 16 + k] + s, v[k]);
    }
}

static inline void read_mix(const uint8_t *raw, size_t pitch, size_t rows, struct mix *mix) {
    for (int h = 0; h < HALVES; h++) {
        uint8_t filter[16] = {0};
        for (size_t k = 0; k < 16 && (size_t)h * 16 + k < rows; k++)
            filter[k] = raw[((size_t)h * 16 + k) * pitch];
        const bytes16 f = load16(filter);
        mix->sub[h] = (bytes16)(f == 1);
        mix->up[h] = (bytes16)(f == 2);
        mix->average[h] = (bytes16)(f == 3);
        mix->paeth[h] = (bytes16)(f == 4);
    }
}

/* One step of 16 rows. Paeth's distance to the corner: if the corner is between left and above, it
 * is the difference of the two other distances. Otherwise it is their sum, which is never the
 * smallest. The results of all choices are computed before the last choice is known. */
static inline bytes16 undo_step(const struct mix *mix, int h, bytes16 in, bytes16 left,
                                bytes16 above, bytes16 corner) {
    const bytes16 carry = (left ^ above) & 1;
    const bytes16 half_sum = half_sum_up(left, above) - carry;
    const bytes16 base =
        in + ((left & mix->sub[h]) | (above & mix->up[h]) | (half_sum & mix->average[h]));
    const bytes16 to_left = distance(above, corner), to_above = distance(left, corner);
    const bytes16 nearer = smaller(to_left, to_above);
    const bytes16 same_side =
        (bytes16)((smaller(left, corner) == left) == (smaller(above, corner) == above));
    const bytes16 to_corner = distance(to_left, to_above) | same_side;
    const bytes16 side = choose((bytes16)(nearer == to_left), left, above);
    const bytes16 of_side = base + (side & mix->paeth[h]);
    const bytes16 of_corner = base + (corner & mix->paeth[h]);
    return choose((bytes16)(smaller(nearer, to_corner) == nearer), of_side, of_corner);
}

static inline bytes16 pixels_ago(const struct past *past, size_t pixel_bytes) {
    return pixel_bytes == 1 ? past->one : pixel_bytes == 3 ? past->three : past->four;
}

static inline void remember(struct past *past, bytes16 now) {
    *past = (struct past){now, past->one, past->two, past->three};
}

/* Sixteen steps, from step s of a block on. masked: the first block. At its step t only rows 0 to t
 * have begun; the bytes of the other rows must stay 0. */
static inline __attribute__((always_inline)) void
undo_tile(const struct mix *mix, const uint8_t *above, struct step tile[16], struct wave *wave,
          size_t pixel_bytes, bool masked, size_t s) {
    static const bytes16 count = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (unsigned t = 0; t < 16; t++) {
        bytes16 before = (bytes16){0};
        before[15] = above[t];
        for (int h = HALVES - 1; h >= 0; h--) {
            struct past *result = &wave->result[h], *ups = &wave->above[h];
            const bytes16 up = one_row_down(result->one, h ? wave->result[h - 1].one : before);
            bytes16 out = undo_step(mix, h, tile[t].half[h], pixels_ago(result, pixel_bytes), up,
                                    pixels_ago(ups, pixel_bytes));
            if (masked)
                out &= (bytes16)(count + (uint8_t)(16 * h) <= (uint8_t)(s + t));
            tile[t].half[h] = out;
            remember(result, out);
            remember(ups, up);
        }
    }
}

static inline __attribute__((always_inline)) void undo(const struct mix *mix, const uint8_t *above,
                                                       struct block *block, struct wave *wave,
                                                       size_t pixel_bytes, bool masked) {
    for (size_t s = 0; s < BLOCK; s += 16) {
        struct step tile[16];
        load_tile(block, s, tile);
        undo_tile(mix, above + s, tile, wave, pixel_bytes, masked && s < ROWS, s);
        store_tile(block, s, tile);
    }
}

#include "image/unfilter.inc.h"
