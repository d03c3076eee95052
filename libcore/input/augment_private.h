/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of chex_augment_apply(). `plain` is the reference; the others give the same bits.
 */
#ifndef CHEX_INPUT_AUGMENT_PRIVATE_H
#define CHEX_INPUT_AUGMENT_PRIVATE_H

#include "input/augment.h"
#include "input/augment_index.h"

enum {
    CHEX_AUGMENT_TILE = 8,   /* rows of a tile: input of one call of horizontal_pass */
    CHEX_AUGMENT_GROUP = 16, /* outputs of a row that a kernel may compute at once */
    CHEX_AUGMENT_SLACK = 64, /* readable zeros after a tile's row and after the last pair of taps */
};

/* A resize along one axis: output i is the sum over t < taps of pixel first[i] + t times weight t
 * of i. Taps outside the crop have weight 0. `taps` is even. */
struct chex_augment_taps {
    int outputs, taps;
    size_t output_stride, pair_stride; /* weight t of i: t / 2 * pair_stride + i * output_stride +
                                          t % 2 */
    int32_t *first;
    int16_t *weights;
};

/* Taps of the horizontal pass. The last output is repeated to a multiple of CHEX_AUGMENT_GROUP.
 * `prepare` of the kernels fills base, shuffle and window for its own use. */
struct chex_augment_columns {
    struct chex_augment_taps taps;
    int32_t *base;     /* (outputs) */
    uint32_t *shuffle; /* (outputs), 64-byte aligned */
    int window;
};

/* out = sum * k + b, clamped to [0, 1]. `same`: k is CHEX_AUGMENT_SCALE and b is 0, so that adding
 * and clamping change no bit and may be left out. */
struct chex_augment_colour {
    float k, b;
    bool same;
};

/* Arguments of horizontal_pass: rows [0, rows) of tile -> rows of out. rows <= CHEX_AUGMENT_TILE.
 */
struct chex_augment_horizontal {
    const struct chex_augment_columns *columns;
    const int16_t *tile;
    size_t stride; /* elements between rows of tile */
    int used;      /* elements of a tile's row that taps can reach */
    int rows, size;
    struct chex_augment_colour colour;
    bool stream;
    float *out;
    int16_t *spare; /* (stride * CHEX_AUGMENT_TILE) scratch of the kernel */
};

/* Arguments of rotate, for one segment of a rotated row. Pixel i comes from (x + i * dx, y + i *
 * dy) of a plane with a border of zeros, in units of 1/65536 px. `max`: the largest coordinate, px.
 */
struct chex_augment_rotate {
    const uint8_t *plane;
    int pitch, max;
    int32_t x, y, dx, dy;
};

struct chex_augment_kernels {
    const char *name;
    bool (*supported)(void);
    /* Fills base and shuffle from taps. NULL: not needed. */
    void (*prepare)(struct chex_augment_columns *columns);
    /* to[x] = sum over t < taps of from[t * pitch + x] * weights[t], minus 32768 to fit int16_t.
     * The weights sum to 256. */
    void (*vertical_pass)(const uint8_t *from, size_t pitch, const int16_t *weights, int taps,
                          int width, int16_t *to);
    /* out = colour(sum over taps of tile * weight + 2^29). The weights sum to 2^14, so 2^29 adds
     * the 32768 again that vertical_pass subtracted. */
    void (*horizontal_pass)(const struct chex_augment_horizontal *p);
    /* Bilinear. Both coordinates are clamped to [0, max]. The upper 8 bits of their fractions are
     * the weights of the next pixel and the next row. */
    void (*rotate)(const struct chex_augment_rotate *t, int count, uint8_t *to);
    /* Store fence after an image written with non-temporal stores. NULL: the kernels have no such
     * stores. */
    void (*finish)(void);
};

extern const struct chex_augment_kernels chex_augment_plain, chex_augment_generic;
#if defined(__x86_64__)
extern const struct chex_augment_kernels chex_augment_avx2, chex_augment_avx512;
#endif

/* All kernels that were built, fastest first, NULL-terminated. The last one is plain. */
extern const struct chex_augment_kernels *const chex_augment_all[];
const struct chex_augment_kernels *chex_augment_best(void);

/* The colour parameters of a crop. Returns k; b is *b_per_mean_out times the mean of the crop. */
struct chex_augment_colour chex_augment_colour_of(const struct chex_crop *crop,
                                                  double *b_per_mean_out);
struct chex_augment_angle chex_augment_angle_of(const struct chex_crop *crop);

void chex_augment_apply_with(const struct chex_augment_kernels *kernels, const uint8_t *pixels_in,
                             int stored, const struct chex_crop *crop, int size, bool stream,
                             float *out, void *scratch);

/* Computes the taps of a resize from `length` to `size` px. Outputs from `size` to taps->outputs
 * repeat the last one. flip: output i is output size - 1 - i. */
void chex_augment_make_taps(int length, int size, bool antialias, bool flip, int bits,
                            struct chex_augment_taps *taps);

#endif
