/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels behind chex_augment_apply. `plain` is the definition; the others give the same bits.
 */
#ifndef CHEX_INPUT_AUGMENT_PRIVATE_H
#define CHEX_INPUT_AUGMENT_PRIVATE_H

#include "input/augment.h"
#include "input/augment_index.h"

enum {
    CHEX_AUGMENT_TILE = 8,   /* blended rows that one call of `pick` works on */
    CHEX_AUGMENT_GROUP = 16, /* outputs of a row that a kernel may work on at once */
    CHEX_AUGMENT_SLACK = 64, /* readable zeros behind a blended row and the last pair of taps */
};

/* A resize along one axis: output i is the sum of pixels first[i] + t with weight t of i, t below
 * `taps`. Taps beyond the crop have weight 0. `taps` is even. */
struct chex_augment_taps {
    int outputs, taps;
    size_t output_stride, pair_stride; /* weight t of i: t / 2 * pair_stride + i * output_stride +
                                          t % 2 */
    int32_t *first;
    int16_t *weights;
};

/* Columns: the last output is repeated up to a multiple of CHEX_AUGMENT_GROUP. */
struct chex_augment_columns {
    struct chex_augment_taps taps;
    int32_t *base;     /* (outputs): the kernel's own, as the next two */
    uint32_t *shuffle; /* (outputs) at a 64-byte boundary */
    int window;
};

/* out = sum * k + b, clamped to [0, 1]; `same` says that this is k = CHEX_AUGMENT_SCALE and b = 0,
 * where adding and clamping change no bit. */
struct chex_augment_colour {
    float k, b;
    bool same;
};

/* Rows [0, rows) of tile, `stride` elements apart, rows <= CHEX_AUGMENT_TILE, to rows of out. */
struct chex_augment_pick {
    const struct chex_augment_columns *columns;
    const int16_t *tile;
    size_t stride;
    int used; /* elements of a tile's row that taps can reach */
    int rows, size;
    struct chex_augment_colour colour;
    bool stream;
    float *out;
    int16_t *spare; /* (stride * CHEX_AUGMENT_TILE) for the kernel's own use */
};

/* A segment of a turned row: pixel i comes from (x + i * dx, y + i * dy) of a plane with a border
 * of zeros, in units of 1/65536 px; `most` is the largest coordinate, px. */
struct chex_augment_turn {
    const uint8_t *plane;
    int pitch, most;
    int32_t x, y, dx, dy;
};

struct chex_augment_kernels {
    const char *name;
    bool (*supported)(void);
    /* Fills base and shuffle from taps. NULL: not needed. */
    void (*prepare)(struct chex_augment_columns *columns);
    /* to[x] = sum over t < taps of from[t * pitch + x] * weights[t], minus 32768: 16 bits with a
     * sign. The weights sum to 256. */
    void (*blend)(const uint8_t *from, size_t pitch, const int16_t *weights, int taps, int width,
                  int16_t *to);
    /* (sum over taps of tile * weight, plus 2^29) to colour. The weights sum to 2^14, which makes
     * 2^29 of the 32768 that blend took away. */
    void (*pick)(const struct chex_augment_pick *p);
    /* Both coordinates are held within [0, most]; the upper 8 bits of their fractions are the
     * weights of the next pixel and the next row. */
    void (*turn)(const struct chex_augment_turn *t, int count, uint8_t *to);
    /* After an image that was streamed: what was stored is seen before any later store. NULL: the
     * kernels do not stream. */
    void (*finish)(void);
};

extern const struct chex_augment_kernels chex_augment_plain, chex_augment_generic;
#if defined(__x86_64__)
extern const struct chex_augment_kernels chex_augment_avx2, chex_augment_avx512;
#endif

/* All that were built, the fastest first; NULL ends them. The last is plain. */
extern const struct chex_augment_kernels *const chex_augment_all[];
const struct chex_augment_kernels *chex_augment_best(void);

/* What an image's colour is made with: k, and b without the crop's mean, which it is multiplied by.
 */
struct chex_augment_colour chex_augment_colour_of(const struct chex_crop *crop,
                                                  double *b_per_mean_out);
struct chex_augment_angle chex_augment_angle_of(const struct chex_crop *crop);

void chex_augment_apply_with(const struct chex_augment_kernels *kernels, const uint8_t *pixels_in,
                             int stored, const struct chex_crop *crop, int size, bool stream,
                             float *out, void *scratch);

/* augment_taps.c. Places and weights of a resize from `length` to `size` px: taps->outputs of them,
 * those from `size` on like the last. flip: output i is that of size - 1 - i. */
void chex_augment_make_taps(int length, int size, bool antialias, bool flip, int bits,
                            struct chex_augment_taps *taps);

#endif
