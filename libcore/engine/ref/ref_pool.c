/* SPDX-License-Identifier: Apache-2.0
 *
 * Maximum and average pooling. A work item is one row of the map that is written. So the gradients
 * gather: an input pixel sums over all windows that contain it.
 */
#include <math.h>

#include "engine/ref/ref_ops.h"

struct pool_loop {
    const struct chex_ref_ctx *ctx;
    const struct chex_ref_map *x, *y;
    struct chex_ref_window win;
    int32_t *arg;
    const int32_t *argmax;
};

static size_t dense_at(const struct chex_ref_map *m, int image, int y, int x) {
    return (((size_t)image * (size_t)m->h + (size_t)y) * (size_t)m->w + (size_t)x) * (size_t)m->c;
}

/* Position y * w + x of the maximum in the window of output (oy, ox), channel c. */
static int32_t argmax(const struct pool_loop *l, int image, int oy, int ox, int c) {
    const struct chex_ref_map *x = l->x;
    int32_t best = -1;
    float largest = 0;
    for (int kh = 0; kh < l->win.kernel; kh++)
        for (int kw = 0; kw < l->win.kernel; kw++) {
            int iy = oy * l->win.stride - l->win.pad + kh;
            int ix = ox * l->win.stride - l->win.pad + kw;
            if (iy < 0 || iy >= x->h || ix < 0 || ix >= x->w)
                continue;
            float v = chex_ref_at(x, image, iy, ix)[c];
            if (best < 0 || v > largest || (isnan(v) && !isnan(largest))) {
                best = iy * x->w + ix;
                largest = v;
            }
        }
    return best;
}

static void max_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct pool_loop *l = arg;
    const int image = (int)(row / (size_t)l->y->h), oy = (int)(row % (size_t)l->y->h);
    for (int ox = 0; ox < l->y->w; ox++)
        for (int c = 0; c < l->y->c; c++) {
            int32_t at = argmax(l, image, oy, ox, c);
            chex_ref_at(l->y, image, oy, ox)[c] =
                chex_ref_at(l->x, image, at / l->x->w, at % l->x->w)[c];
            if (l->arg)
                l->arg[dense_at(l->y, image, oy, ox) + (size_t)c] = at;
        }
}

void chex_ref_maxpool_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                              struct chex_ref_window win, const struct chex_ref_map *out,
                              int32_t *arg) {
    struct pool_loop l = {.ctx = ctx, .x = x, .y = out, .win = win, .arg = arg};
    chex_ref_each(ctx, (size_t)out->n * (size_t)out->h, max_row, &l);
}

/* Outputs [*first, *end) whose window contains input coordinate i. */
static void windows_of(int i, const struct chex_ref_window *win, int size, int *first, int *end) {
    int t = i + win->pad;
    *first = t < win->kernel ? 0 : (t - win->kernel) / win->stride + 1;
    *end = t / win->stride + 1 < size ? t / win->stride + 1 : size;
}

static void max_backward_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct pool_loop *l = arg;
    const int image = (int)(row / (size_t)l->x->h), iy = (int)(row % (size_t)l->x->h);
    int oy0, oy1, ox0, ox1;
    windows_of(iy, &l->win, l->y->h, &oy0, &oy1);
    for (int ix = 0; ix < l->x->w; ix++) {
        windows_of(ix, &l->win, l->y->w, &ox0, &ox1);
        for (int c = 0; c < l->x->c; c++) {
            double sum = 0;
            for (int oy = oy0; oy < oy1; oy++)
                for (int ox = ox0; ox < ox1; ox++)
                    if (l->argmax[dense_at(l->y, image, oy, ox) + (size_t)c] == iy * l->x->w + ix)
                        sum += (double)chex_ref_at(l->y, image, oy, ox)[c];
            chex_ref_at(l->x, image, iy, ix)[c] = (float)sum;
        }
    }
}

void chex_ref_maxpool_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *dy,
                               const int32_t *arg, struct chex_ref_window win,
                               const struct chex_ref_map *dx) {
    struct pool_loop l = {.ctx = ctx, .x = dx, .y = dy, .win = win, .argmax = arg};
    chex_ref_each(ctx, (size_t)dx->n * (size_t)dx->h, max_backward_row, &l);
}

static void average_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct pool_loop *l = arg;
    const int image = (int)(row / (size_t)l->y->h), oy = (int)(row % (size_t)l->y->h);
    const int k = l->win.kernel;
    for (int ox = 0; ox < l->y->w; ox++)
        for (int c = 0; c < l->y->c; c++) {
            double sum = 0;
            for (int kh = 0; kh < k; kh++)
                for (int kw = 0; kw < k; kw++)
                    sum += (double)chex_ref_at(l->x, image, oy * k + kh, ox * k + kw)[c];
            chex_ref_at(l->y, image, oy, ox)[c] = chex_ref_store(l->ctx, sum / (double)(k * k));
        }
}

void chex_ref_avgpool_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                              int kernel, const struct chex_ref_map *out) {
    struct pool_loop l = {
        .ctx = ctx, .x = x, .y = out, .win = {.kernel = kernel, .stride = kernel}};
    chex_ref_each(ctx, (size_t)out->n * (size_t)out->h, average_row, &l);
}

static void average_backward_row(void *arg, size_t row, int worker) {
    (void)worker;
    const struct pool_loop *l = arg;
    const int image = (int)(row / (size_t)l->x->h), iy = (int)(row % (size_t)l->x->h);
    const int k = l->win.kernel, oy = iy / k;
    for (int ix = 0; ix < l->x->w; ix++) {
        const bool inside = oy < l->y->h && ix / k < l->y->w;
        const float *dy = inside ? chex_ref_at(l->y, image, oy, ix / k) : NULL;
        for (int c = 0; c < l->x->c; c++)
            chex_ref_at(l->x, image, iy, ix)[c] =
                inside ? (float)((double)dy[c] / (double)(k * k)) : 0;
    }
}

void chex_ref_avgpool_backward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *dy,
                               int kernel, const struct chex_ref_map *dx) {
    struct pool_loop l = {
        .ctx = ctx, .x = dx, .y = dy, .win = {.kernel = kernel, .stride = kernel}};
    chex_ref_each(ctx, (size_t)dx->n * (size_t)dx->h, average_backward_row, &l);
}
