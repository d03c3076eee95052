/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies an augmentation with a set of kernels (augment_private.h). The arithmetic is in
 * augment.h.
 *
 * An image is resized in tiles of CHEX_AUGMENT_TILE output rows: the vertical pass makes the rows
 * of a tile from the stored pixels, the horizontal pass makes the output from the tile. A tile is
 * small enough for the first-level cache (17 KiB at 1,024 px). All buffers are in the caller's
 * scratch, so no call allocates memory.
 */
#include "input/augment.h"

#include <math.h>
#include <string.h>

#include "input/augment_private.h"

const struct chex_augment_kernels *const chex_augment_all[] = {
#if defined(__x86_64__)
    &chex_augment_avx512, &chex_augment_avx2,
#endif
    &chex_augment_generic, &chex_augment_plain, NULL};

const struct chex_augment_kernels *chex_augment_best(void) {
    int i = 0;
    while (!chex_augment_all[i]->supported())
        i++;
    return chex_augment_all[i];
}

const char *chex_augment_kernels_name(void) { return chex_augment_best()->name; }

/* ---- scratch ---- */

/* The buffers of one call, one after the other in the caller's scratch. */
struct buffers {
    struct chex_augment_taps rows;
    struct chex_augment_columns columns;
    int16_t *tile, *spare;
    size_t stride;    /* elements of a tile's row */
    uint8_t *plane;   /* the stored image with a border of zeros; only to rotate */
    uint8_t *rotated; /* (crop.height, crop.width) */
    size_t plane_row; /* px */
};

/* Advances *at by `bytes`, rounded up to a cache line, and returns where it was. */
static void *carve(uint8_t *scratch, size_t *at, size_t bytes) {
    void *here = scratch ? scratch + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

/* Places the buffers for a crop of height x width in `scratch` and returns their total size in
 * bytes. scratch may be NULL to get only the size. */
static size_t lay_out(int stored, int height, int width, int size, bool antialias, uint8_t *scratch,
                      struct buffers *buf) {
    const int row_taps = chex_augment_tap_count(height, size, antialias);
    const int taps = chex_augment_tap_count(width, size, antialias);
    const int groups = (size + CHEX_AUGMENT_GROUP - 1) / CHEX_AUGMENT_GROUP;
    const size_t lines = (size_t)size, outputs = (size_t)groups * CHEX_AUGMENT_GROUP;
    size_t at = 0;
    *buf = (struct buffers){.rows = {.outputs = size,
                                     .taps = row_taps,
                                     .output_stride = (size_t)row_taps,
                                     .pair_stride = 2},
                            .columns.taps = {.outputs = (int)outputs,
                                             .taps = taps,
                                             .output_stride = 2,
                                             .pair_stride = 2 * outputs},
                            .stride = ((size_t)(width + taps) + CHEX_AUGMENT_SLACK + 31) / 32 * 32,
                            .plane_row = (size_t)stored + 3};
    buf->rows.first = carve(scratch, &at, lines * sizeof(int32_t));
    buf->rows.weights = carve(scratch, &at, lines * (size_t)row_taps * sizeof(int16_t));
    buf->columns.taps.first = carve(scratch, &at, outputs * sizeof(int32_t));
    buf->columns.taps.weights = carve(scratch, &at, outputs * (size_t)taps * sizeof(int16_t));
    buf->columns.base = carve(scratch, &at, outputs * sizeof(int32_t));
    buf->columns.shuffle = carve(scratch, &at, outputs * sizeof(uint32_t));
    buf->tile = carve(scratch, &at, buf->stride * CHEX_AUGMENT_TILE * sizeof(int16_t));
    buf->spare = carve(scratch, &at, buf->stride * CHEX_AUGMENT_TILE * sizeof(int16_t));
    /* 4 more bytes: the kernels read 4 bytes where 2 are used */
    buf->plane = carve(scratch, &at, buf->plane_row * buf->plane_row + 4);
    buf->rotated = carve(scratch, &at, (size_t)stored * (size_t)stored);
    return at;
}

size_t chex_augment_scratch_bytes(int stored, int size) {
    struct buffers buf;
    return lay_out(stored, stored, stored, size, true, NULL, &buf);
}

/* ---- rotate ---- */

static void make_plane(const uint8_t *pixels, int stored, const struct buffers *buf) {
    const size_t row = buf->plane_row, n = (size_t)stored;
    memset(buf->plane, 0, row);
    for (size_t y = 0; y < n; y++) {
        uint8_t *to = buf->plane + (y + 1) * row;
        to[0] = to[n + 1] = to[n + 2] = 0;
        memcpy(to + 1, pixels + y * n, n);
    }
    memset(buf->plane + (n + 1) * row, 0, 2 * row + 4);
}

struct chex_augment_angle chex_augment_angle_of(const struct chex_crop *crop) {
    const double angle = crop->degrees * (3.14159265358979323846 / 180);
    return (struct chex_augment_angle){.cosine = llrint(cos(angle) * 4294967296.0),
                                       .sine = llrint(sin(angle) * 4294967296.0)};
}

/* Precision: sine and cosine are rounded to 2^-32. The start of each segment is exact with these.
 * Within a segment, positions advance in steps rounded to 2^-16 px, so the error is at most
 * 64 * 2^-17 px. */
static void rotate_crop(const struct chex_augment_kernels *kernels, const struct chex_crop *v,
                        int stored, const struct buffers *buf) {
    const struct chex_augment_angle a = chex_augment_angle_of(v);
    struct chex_augment_rotate t = {.plane = buf->plane,
                                    .pitch = (int)buf->plane_row,
                                    .max = stored + 1,
                                    .dx = chex_augment_rotate_step(a.cosine),
                                    .dy = chex_augment_rotate_step(a.sine)};
    for (int y = 0; y < v->height; y++)
        for (int x = 0; x < v->width; x += CHEX_AUGMENT_SEGMENT) {
            const int left = v->width - x;
            chex_augment_rotated_from(a, stored, v->top + y, v->left + x, &t.y, &t.x);
            kernels->rotate(&t, left < CHEX_AUGMENT_SEGMENT ? left : CHEX_AUGMENT_SEGMENT,
                            buf->rotated + (size_t)y * (size_t)v->width + (size_t)x);
        }
}

/* ---- colour ---- */

static double mean_of(const uint8_t *in, size_t pitch, int height, int width) {
    uint64_t sum = 0;
    for (int y = 0; y < height; y++, in += pitch) {
        uint32_t row = 0;
        for (int x = 0; x < width; x++)
            row += in[x];
        sum += row;
    }
    return (double)sum / (255.0 * height * width);
}

struct chex_augment_colour chex_augment_colour_of(const struct chex_crop *crop,
                                                  double *b_per_mean_out) {
    const double brightness = 1 + crop->brightness_more, contrast = 1 + crop->contrast_more;
    *b_per_mean_out = 0;
    if (crop->brightness_more == 0 && crop->contrast_more == 0)
        return (struct chex_augment_colour){.k = CHEX_AUGMENT_SCALE, .same = true};
    *b_per_mean_out = (1 - contrast) * brightness;
    return (struct chex_augment_colour){
        .k = (float)(brightness * contrast * (double)CHEX_AUGMENT_SCALE)};
}

static struct chex_augment_colour colour_of(const struct chex_crop *v, const uint8_t *in,
                                            size_t pitch) {
    double b_per_mean;
    struct chex_augment_colour colour = chex_augment_colour_of(v, &b_per_mean);
    if (v->contrast_more != 0)
        colour.b = (float)(b_per_mean * mean_of(in, pitch, v->height, v->width));
    return colour;
}

/* ---- resizing ---- */

/* A crop of size x size: no resize. Gives the same bits as resize(), because scaling by a power of
 * two (2^22) is exact. */
static void copy_pixels(const uint8_t *in, size_t pitch, bool flip, int size,
                        const struct chex_augment_colour *c, float *out) {
    const float k = c->k * 4194304.0f, b = c->b;
    for (int y = 0; y < size; y++, in += pitch, out += size) {
        if (flip)
            for (int x = 0; x < size; x++)
                out[x] = (float)in[size - 1 - x] * k + b;
        else
            for (int x = 0; x < size; x++)
                out[x] = (float)in[x] * k + b;
        for (int x = 0; x < size && !c->same; x++) {
            out[x] = out[x] > 0 ? out[x] : 0;
            out[x] = out[x] < 1 ? out[x] : 1;
        }
    }
}

static void resize(const struct chex_augment_kernels *kernels, const uint8_t *in, size_t pitch,
                   const struct chex_crop *v, struct buffers *buf,
                   struct chex_augment_horizontal *horizontal_pass) {
    const int size = horizontal_pass->size;
    const struct chex_augment_taps *rows = &buf->rows;
    chex_augment_make_taps(v->height, size, v->antialias, false, CHEX_AUGMENT_ROW_BITS, &buf->rows);
    chex_augment_make_taps(v->width, size, v->antialias, v->flip, CHEX_AUGMENT_COLUMN_BITS,
                           &buf->columns.taps);
    if (kernels->prepare)
        kernels->prepare(&buf->columns);
    for (size_t y = 0; y < CHEX_AUGMENT_TILE; y++)
        memset(buf->tile + y * buf->stride + v->width, 0,
               (buf->stride - (size_t)v->width) * sizeof *buf->tile);
    for (int y = 0; y < size; y += horizontal_pass->rows) {
        horizontal_pass->rows = size - y < CHEX_AUGMENT_TILE ? size - y : CHEX_AUGMENT_TILE;
        for (int i = 0; i < horizontal_pass->rows; i++) {
            const int16_t *weights = rows->weights + (size_t)(y + i) * rows->output_stride;
            const int first = rows->first[y + i], left = v->height - first;
            int taps = rows->taps < left ? rows->taps : left;
            while (taps > 1 && weights[taps - 1] == 0)
                taps--;
            kernels->vertical_pass(in + (size_t)first * pitch, pitch, weights, taps, v->width,
                                   buf->tile + (size_t)i * buf->stride);
        }
        kernels->horizontal_pass(horizontal_pass);
        horizontal_pass->out += (size_t)horizontal_pass->rows * (size_t)size;
    }
    if (horizontal_pass->stream)
        kernels->finish();
}

void chex_augment_apply_with(const struct chex_augment_kernels *kernels, const uint8_t *pixels_in,
                             int stored, const struct chex_crop *crop, int size, bool stream,
                             float *out, void *scratch) {
    struct buffers buf;
    lay_out(stored, crop->height, crop->width, size, crop->antialias, scratch, &buf);
    const uint8_t *in = pixels_in + (size_t)crop->top * (size_t)stored + (size_t)crop->left;
    size_t pitch = (size_t)stored;
    if (crop->degrees != 0) {
        make_plane(pixels_in, stored, &buf);
        rotate_crop(kernels, crop, stored, &buf);
        in = buf.rotated;
        pitch = (size_t)crop->width;
    }
    struct chex_augment_horizontal horizontal_pass = {.columns = &buf.columns,
                                                      .tile = buf.tile,
                                                      .stride = buf.stride,
                                                      .used = crop->width + buf.columns.taps.taps,
                                                      .size = size,
                                                      .colour = colour_of(crop, in, pitch),
                                                      .stream = stream && kernels->finish &&
                                                                (uintptr_t)out % 64 == 0 &&
                                                                size % CHEX_AUGMENT_GROUP == 0,
                                                      .out = out,
                                                      .spare = buf.spare};
    if (crop->height == size && crop->width == size)
        copy_pixels(in, pitch, crop->flip, size, &horizontal_pass.colour, out);
    else
        resize(kernels, in, pitch, crop, &buf, &horizontal_pass);
}

void chex_augment_apply(const uint8_t *pixels_in, int stored, const struct chex_crop *crop,
                        int size, bool stream, float *out, void *scratch) {
    chex_augment_apply_with(chex_augment_best(), pixels_in, stored, crop, size, stream, out,
                            scratch);
}
