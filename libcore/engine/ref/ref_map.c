/* SPDX-License-Identifier: Apache-2.0
 *
 * The context of the operations, rounding to bf16, and the element-wise operations on maps.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/ref/ref_ops.h"

enum chex_status chex_ref_ctx_init(struct chex_ref_ctx *ctx, int threads, bool bf16,
                                   size_t weight_scratch, struct chex_error *err) {
    *ctx = (struct chex_ref_ctx){.bf16 = bf16, .weight_scratch = weight_scratch};
    ctx->weights = chex_alloc_aligned(weight_scratch, sizeof *ctx->weights);
    if (!ctx->weights)
        return chex_error_set(err, CHEX_E_RESOURCE, "engine ref: no memory for %zu weights",
                              weight_scratch);
    return chex_pool_create(threads, &ctx->pool, err);
}

void chex_ref_ctx_release(struct chex_ref_ctx *ctx) {
    chex_pool_destroy(ctx->pool);
    free(ctx->weights);
    *ctx = (struct chex_ref_ctx){0};
}

float chex_ref_bf16(float x) {
    uint32_t bits;
    if (isnan(x))
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void chex_ref_each(const struct chex_ref_ctx *ctx, size_t items, chex_pool_fn fn, void *arg) {
    chex_pool_run(ctx->pool, items, fn, arg);
}

/* One item is one row of pixels. */
struct rows {
    const struct chex_ref_ctx *ctx;
    const struct chex_ref_map *from, *to;
    const float *grey, *mean, *std;
};

static size_t row_count(const struct chex_ref_map *m) { return (size_t)m->n * (size_t)m->h; }

static float *pixel(const struct chex_ref_map *m, size_t row, int x) {
    return m->data + (row * (size_t)m->w + (size_t)x) * (size_t)m->pitch;
}

static void image_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct rows *r = arg;
    const float *grey = r->grey + row * (size_t)r->to->w;
    for (int x = 0; x < r->to->w; x++)
        for (int c = 0; c < 3; c++)
            pixel(r->to, row, x)[c] =
                chex_ref_store(r->ctx, ((double)grey[x] - (double)r->mean[c]) / (double)r->std[c]);
}

void chex_ref_image(const struct chex_ref_ctx *ctx, const float *grey, const float mean[3],
                    const float std[3], const struct chex_ref_map *out) {
    struct rows r = {.ctx = ctx, .to = out, .grey = grey, .mean = mean, .std = std};
    chex_ref_each(ctx, row_count(out), image_row, &r);
}

static void round_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct rows *r = arg;
    for (int x = 0; x < r->to->w; x++) {
        float *p = pixel(r->to, row, x);
        for (int c = 0; c < r->to->c; c++)
            p[c] = chex_ref_bf16(p[c]);
    }
}

void chex_ref_round_map(const struct chex_ref_ctx *ctx, const struct chex_ref_map *m) {
    struct rows r = {.ctx = ctx, .to = m};
    if (ctx->bf16)
        chex_ref_each(ctx, row_count(m), round_row, &r);
}

static void add_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct rows *r = arg;
    for (int x = 0; x < r->to->w; x++) {
        const float *from = pixel(r->from, row, x);
        float *to = pixel(r->to, row, x);
        for (int c = 0; c < r->to->c; c++)
            to[c] += from[c];
    }
}

void chex_ref_add(const struct chex_ref_ctx *ctx, const struct chex_ref_map *from,
                  const struct chex_ref_map *to) {
    struct rows r = {.ctx = ctx, .from = from, .to = to};
    chex_ref_each(ctx, row_count(to), add_row, &r);
}

static void relu_backward_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct rows *r = arg;
    for (int x = 0; x < r->to->w; x++) {
        const float *act = pixel(r->from, row, x);
        float *d = pixel(r->to, row, x);
        for (int c = 0; c < r->to->c; c++)
            d[c] = act[c] > 0 ? d[c] : 0;
    }
}

void chex_ref_relu_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *act,
                            const struct chex_ref_map *d) {
    struct rows r = {.ctx = ctx, .from = act, .to = d};
    chex_ref_each(ctx, row_count(d), relu_backward_row, &r);
}
