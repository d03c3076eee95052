/* SPDX-License-Identifier: Apache-2.0 */
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

/* Everything one call needs, one behind the other in the caller's scratch. */
struct room {
    struct chex_augment_taps rows;
    struct chex_augment_columns columns;
    int16_t *tile, *spare;
    size_t stride;    /* of a tile's row */
    uint8_t *plane;   /* stored row with a border of zeros */
    uint8_t *turned;  /* (crop.height, crop.width) */
    size_t plane_row; /* px */
};

/* Advances *at by `bytes`, rounded up to a cache line, and returns where it was. */
static void *take(uint8_t *scratch, size_t *at, size_t bytes) {
    void *here = scratch ? scratch + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

/* Lays the room out for a crop of height x width; returns its bytes. scratch may be NULL: then only
 * the bytes count. */
static size_t lay_out(int stored, int height, int width, int size, bool antialias, uint8_t *scratch,
                      struct room *room) {
    const int row_taps = chex_augment_tap_count(height, size, antialias);
    const int taps = chex_augment_tap_count(width, size, antialias);
    const int groups = (size + CHEX_AUGMENT_GROUP - 1) / CHEX_AUGMENT_GROUP;
    const size_t lines = (size_t)size, outputs = (size_t)groups * CHEX_AUGMENT_GROUP;
    size_t at = 0;
    *room = (struct room){.rows = {.outputs = size,
                                   .taps = row_taps,
                                   .output_stride = (size_t)row_taps,
                                   .pair_stride = 2},
                          .columns.taps = {.outputs = (int)outputs,
                                           .taps = taps,
                                           .output_stride = 2,
                                           .pair_stride = 2 * outputs},
                          .stride = ((size_t)(width + taps) + CHEX_AUGMENT_SLACK + 31) / 32 * 32,
                          .plane_row = (size_t)stored + 3};
    room->rows.first = take(scratch, &at, lines * sizeof(int32_t));
    room->rows.weights = take(scratch, &at, lines * (size_t)row_taps * sizeof(int16_t));
    room->columns.taps.first = take(scratch, &at, outputs * sizeof(int32_t));
    room->columns.taps.weights = take(scratch, &at, outputs * (size_t)taps * sizeof(int16_t));
    room->columns.base = take(scratch, &at, outputs * sizeof(int32_t));
    room->columns.shuffle = take(scratch, &at, outputs * sizeof(uint32_t));
    room->tile = take(scratch, &at, room->stride * CHEX_AUGMENT_TILE * sizeof(int16_t));
    room->spare = take(scratch, &at, room->stride * CHEX_AUGMENT_TILE * sizeof(int16_t));
    /* four bytes are read where two count */
    room->plane = take(scratch, &at, room->plane_row * room->plane_row + 4);
    room->turned = take(scratch, &at, (size_t)stored * (size_t)stored);
    return at;
}

size_t chex_augment_scratch_bytes(int stored, int size) {
    struct room room;
    return lay_out(stored, stored, stored, size, true, NULL, &room);
}

/* ---- turning ---- */

static void make_plane(const uint8_t *pixels, int stored, const struct room *room) {
    const size_t row = room->plane_row, n = (size_t)stored;
    memset(room->plane, 0, row);
    for (size_t y = 0; y < n; y++) {
        uint8_t *to = room->plane + (y + 1) * row;
        to[0] = to[n + 1] = to[n + 2] = 0;
        memcpy(to + 1, pixels + y * n, n);
    }
    memset(room->plane + (n + 1) * row, 0, 2 * row + 4);
}

struct chex_augment_angle chex_augment_angle_of(const struct chex_crop *crop) {
    const double angle = crop->degrees * (3.14159265358979323846 / 180);
    return (struct chex_augment_angle){.cosine = llrint(cos(angle) * 4294967296.0),
                                       .sine = llrint(sin(angle) * 4294967296.0)};
}

/* The angle enters as sine and cosine rounded to 2^-32, each segment's start is exact in these, and
 * within a segment steps of 2^-16 px are wrong by 64 * 2^-17 px at most. */
static void turn_crop(const struct chex_augment_kernels *kernels, const struct chex_crop *v,
                      int stored, const struct room *room) {
    const struct chex_augment_angle a = chex_augment_angle_of(v);
    struct chex_augment_turn t = {.plane = room->plane,
                                  .pitch = (int)room->plane_row,
                                  .most = stored + 1,
                                  .dx = chex_augment_turn_step(a.cosine),
                                  .dy = chex_augment_turn_step(a.sine)};
    for (int y = 0; y < v->height; y++)
        for (int x = 0; x < v->width; x += CHEX_AUGMENT_SEGMENT) {
            const int left = v->width - x;
            chex_augment_turned_from(a, stored, v->top + y, v->left + x, &t.y, &t.x);
            kernels->turn(&t, left < CHEX_AUGMENT_SEGMENT ? left : CHEX_AUGMENT_SEGMENT,
                          room->turned + (size_t)y * (size_t)v->width + (size_t)x);
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

/* Scaling by a power of two is exact, so this gives the bits of the general path. */
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
                   const struct chex_crop *v, struct room *room, struct chex_augment_pick *pick) {
    const int size = pick->size;
    const struct chex_augment_taps *rows = &room->rows;
    chex_augment_make_taps(v->height, size, v->antialias, false, CHEX_AUGMENT_ROW_BITS,
                           &room->rows);
    chex_augment_make_taps(v->width, size, v->antialias, v->flip, CHEX_AUGMENT_COLUMN_BITS,
                           &room->columns.taps);
    if (kernels->prepare)
        kernels->prepare(&room->columns);
    for (size_t y = 0; y < CHEX_AUGMENT_TILE; y++)
        memset(room->tile + y * room->stride + v->width, 0,
               (room->stride - (size_t)v->width) * sizeof *room->tile);
    for (int y = 0; y < size; y += pick->rows) {
        pick->rows = size - y < CHEX_AUGMENT_TILE ? size - y : CHEX_AUGMENT_TILE;
        for (int i = 0; i < pick->rows; i++) {
            const int16_t *weights = rows->weights + (size_t)(y + i) * rows->output_stride;
            const int first = rows->first[y + i], left = v->height - first;
            int taps = rows->taps < left ? rows->taps : left;
            while (taps > 1 && weights[taps - 1] == 0)
                taps--;
            kernels->blend(in + (size_t)first * pitch, pitch, weights, taps, v->width,
                           room->tile + (size_t)i * room->stride);
        }
        kernels->pick(pick);
        pick->out += (size_t)pick->rows * (size_t)size;
    }
    if (pick->stream)
        kernels->finish();
}

void chex_augment_apply_with(const struct chex_augment_kernels *kernels, const uint8_t *pixels_in,
                             int stored, const struct chex_crop *crop, int size, bool stream,
                             float *out, void *scratch) {
    struct room room;
    lay_out(stored, crop->height, crop->width, size, crop->antialias, scratch, &room);
    const uint8_t *in = pixels_in + (size_t)crop->top * (size_t)stored + (size_t)crop->left;
    size_t pitch = (size_t)stored;
    if (crop->degrees != 0) {
        make_plane(pixels_in, stored, &room);
        turn_crop(kernels, crop, stored, &room);
        in = room.turned;
        pitch = (size_t)crop->width;
    }
    struct chex_augment_pick pick = {.columns = &room.columns,
                                     .tile = room.tile,
                                     .stride = room.stride,
                                     .used = crop->width + room.columns.taps.taps,
                                     .size = size,
                                     .colour = colour_of(crop, in, pitch),
                                     .stream = stream && kernels->finish &&
                                               (uintptr_t)out % 64 == 0 &&
                                               size % CHEX_AUGMENT_GROUP == 0,
                                     .out = out,
                                     .spare = room.spare};
    if (crop->height == size && crop->width == size)
        copy_pixels(in, pitch, crop->flip, size, &pick.colour, out);
    else
        resize(kernels, in, pitch, crop, &room, &pick);
}

void chex_augment_apply(const uint8_t *pixels_in, int stored, const struct chex_crop *crop,
                        int size, bool stream, float *out, void *scratch) {
    chex_augment_apply_with(chex_augment_best(), pixels_in, stored, crop, size, stream, out,
                            scratch);
}
