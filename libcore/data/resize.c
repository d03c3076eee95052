/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of the double operations below is part of the definition: the weights must round as
 * Pillow's do.
 */
#include "data/resize.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };

/* The taps of every output pixel along one side. */
struct axis {
    int in, out, pitch; /* pitch: weights kept for each output pixel */
    int *first, *count; /* (out) */
    int32_t *weights;   /* (out, pitch), zeros behind the last tap */
};

struct chex_resizer {
    struct axis x, y;
    double *scratch; /* weights of one output pixel before rounding */
    size_t scratch_count;
    uint8_t *narrow; /* (src_h, dst_w) after the first pass */
    size_t narrow_bytes;
    int32_t *sums; /* (dst_w) of one output row */
    size_t sums_count;
};

enum chex_status chex_resizer_create(struct chex_resizer **resizer_out, struct chex_error *err) {
    struct chex_resizer *r = calloc(1, sizeof *r);
    if (!r)
        return chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "a resizer");
    *resizer_out = r;
    return CHEX_OK;
}

static void release_axis(struct axis *a) {
    free(a->first);
    free(a->count);
    free(a->weights);
    *a = (struct axis){0};
}

void chex_resizer_destroy(struct chex_resizer *r) {
    if (!r)
        return;
    release_axis(&r->x);
    release_axis(&r->y);
    free(r->scratch);
    free(r->narrow);
    free(r->sums);
    free(r);
}

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static void fill_taps(struct axis *a, double *scratch) {
    double scale = (double)a->in / a->out;
    double support = scale < 1.0 ? 1.0 : scale; // half the triangle's base, in input pixels
    double shrink = 1.0 / support;
    for (int i = 0; i < a->out; i++) {
        double centre = (i + 0.5) * scale, total = 0.0;
        int from = (int)(centre - support + 0.5), to = (int)(centre + support + 0.5);
        from = from < 0 ? 0 : from;
        to = to > a->in ? a->in : to;
        for (int k = 0; k < to - from; k++) {
            scratch[k] = triangle((k + from - centre + 0.5) * shrink);
            total += scratch[k];
        }
        int32_t *w = a->weights + (ptrdiff_t)i * a->pitch;
        for (int k = 0; k < to - from; k++) {
            double share = total != 0.0 ? scratch[k] / total : scratch[k];
            w[k] = (int32_t)(0.5 + share * (1 << WEIGHT_BITS));
        }
        a->first[i] = from;
        a->count[i] = to - from;
    }
}

/* `old` where it has room for `want` items, else fresh memory instead, or NULL with *have 0. */
static void *grown(void *old, size_t *have, size_t want, size_t size) {
    if (want <= *have)
        return old;
    free(old);
    void *fresh = calloc(want, size);
    *have = fresh ? want : 0;
    return fresh;
}

/* Keeps the weights where the sides are those of the last image. */
static bool set_axis(struct chex_resizer *r, struct axis *a, int in, int out) {
    if (a->in == in && a->out == out)
        return true;
    release_axis(a);
    double scale = (double)in / out;
    int pitch = (int)ceil(scale < 1.0 ? 1.0 : scale) * 2 + 1;
    r->scratch = grown(r->scratch, &r->scratch_count, (size_t)pitch, sizeof *r->scratch);
    if (!r->scratch)
        return false;
    a->first = calloc((size_t)out, sizeof *a->first);
    a->count = calloc((size_t)out, sizeof *a->count);
    a->weights = calloc((size_t)out * (size_t)pitch, sizeof *a->weights);
    if (!a->first || !a->count || !a->weights) {
        release_axis(a);
        return false;
    }
    a->in = in, a->out = out, a->pitch = pitch;
    fill_taps(a, r->scratch);
    return true;
}

static uint8_t round_sum(int32_t sum) {
    int32_t v = sum >> WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* src (rows, a->in) to dst (rows, a->out). */
static void along_rows(const struct axis *a, const uint8_t *src, int rows, uint8_t *dst) {
    for (int y = 0; y < rows; y++, src += a->in, dst += a->out)
        for (int i = 0; i < a->out; i++) {
            const uint8_t *p = src + a->first[i];
            const int32_t *w = a->weights + (ptrdiff_t)i * a->pitch;
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int k = 0; k < a->count[i]; k++)
                sum += w[k] * p[k];
            dst[i] = round_sum(sum);
        }
}

/* src (a->in, width) to dst (a->out, width). */
static void along_columns(const struct axis *a, const uint8_t *src, int width, uint8_t *dst,
                          int32_t *sums) {
    for (int i = 0; i < a->out; i++, dst += width) {
        const int32_t *w = a->weights + (ptrdiff_t)i * a->pitch;
        for (int x = 0; x < width; x++)
            sums[x] = 1 << (WEIGHT_BITS - 1);
        for (int k = 0; k < a->count[i]; k++) {
            const uint8_t *p = src + ((ptrdiff_t)a->first[i] + k) * width;
            for (int x = 0; x < width; x++)
                sums[x] += w[k] * p[x];
        }
        for (int x = 0; x < width; x++)
            dst[x] = round_sum(sums[x]);
    }
}

enum chex_status chex_resize(struct chex_resizer *r, const uint8_t *src, int src_w, int src_h,
                             uint8_t *dst, int dst_w, int dst_h, struct chex_error *err) {
    bool narrow = src_w != dst_w, shorten = src_h != dst_h;
    bool ok = !narrow || set_axis(r, &r->x, src_w, dst_w);
    ok = ok && (!shorten || set_axis(r, &r->y, src_h, dst_h));
    if (ok && narrow && shorten) {
        r->narrow = grown(r->narrow, &r->narrow_bytes, (size_t)src_h * (size_t)dst_w, 1);
        ok = r->narrow != NULL;
    }
    if (ok && shorten) {
        r->sums = grown(r->sums, &r->sums_count, (size_t)dst_w, sizeof *r->sums);
        ok = r->sums != NULL;
    }
    if (!ok)
        return chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "resize from %d x %d to %d x %d px",
                                src_w, src_h, dst_w, dst_h);
    if (!narrow && !shorten) {
        memcpy(dst, src, (size_t)src_w * (size_t)src_h);
        return CHEX_OK;
    }
    if (narrow)
        along_rows(&r->x, src, src_h, shorten ? r->narrow : dst);
    if (shorten)
        along_columns(&r->y, narrow ? r->narrow : src, dst_w, dst, r->sums);
    return CHEX_OK;
}
