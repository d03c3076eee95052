/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference operations against finite differences of themselves. An operation f(x) is turned
 * into the number L = sum r * f(x) with fixed random r; then dL/dx must be what its backward gives
 * for dy = r, and (L(x + h e) - L(x - h e)) / 2h must agree element by element.
 *
 * Bound. The values are stored as fp32, rounded by up to 6e-8 of their size. Linear operations
 * take any step: 2h = 2^-5 leaves 2e-6 an output. Batch norm bends: the central difference of h =
 * 2^-9 leaves h^2 / 6 of a third derivative, of order 1 / sigma^3 (with three values in a batch
 * sigma may be 0.1: 6e-4), and 1.5e-5 of rounding. So 1e-3 of the largest gradient holds for all,
 * and a missing term is off by 1e-1 or more.
 */
#include "base/alloc.h"
#include "base/rng.h"
#include "engine/loss.h"
#include "engine/ref/ref_ops.h"
#include "tap.h"

static const double bound = 1e-3;

static struct chex_ref_ctx ctx;

/* Zeros until the end of the running check. */
static void *taken[32];
static int taken_count;
static void *take(size_t count, size_t bytes) {
    void *p = chex_alloc_zeroed(count, bytes);
    BAIL_UNLESS(p && taken_count < 32, "out of memory");
    return taken[taken_count++] = p;
}
static void release(void) {
    while (taken_count)
        free(taken[--taken_count]);
}

static float draw(uint64_t item, size_t i) {
    return 2 * chex_rng_unit(chex_rng(5, CHEX_RNG_TEST, item, (uint32_t)i).v[0]) - 1;
}

static void fill(float *v, size_t count, uint64_t item) {
    for (size_t i = 0; i < count; i++)
        v[i] = draw(item, i);
}

/* A map with `slack` unused channels after each pixel's: they hold NaN, so that an operation that
 * reads or writes beyond its slice shows. */
static struct chex_ref_map map(int n, int h, int w, int c, int slack, uint64_t item) {
    struct chex_ref_map m = {NULL, n, h, w, c, c + slack};
    size_t count = chex_ref_pixels(&m) * (size_t)m.pitch;
    m.data = take(count, sizeof *m.data);
    for (size_t i = 0; i < count; i++)
        m.data[i] = (int)(i % (size_t)m.pitch) < c ? draw(item, i) : NAN;
    return m;
}

static bool slack_untouched(const struct chex_ref_map *m) {
    for (size_t p = 0; p < chex_ref_pixels(m); p++)
        for (int c = m->c; c < m->pitch; c++)
            if (!isnan(m->data[p * (size_t)m->pitch + (size_t)c]))
                return false;
    return true;
}

static double weighted_sum(const struct chex_ref_map *f, const struct chex_ref_map *r) {
    double sum = 0;
    for (size_t p = 0; p < chex_ref_pixels(f); p++)
        for (int c = 0; c < f->c; c++)
            sum += (double)f->data[p * (size_t)f->pitch + (size_t)c] *
                   (double)r->data[p * (size_t)r->pitch + (size_t)c];
    return sum;
}

typedef double (*loss_fn)(void *arg);

/* Which outputs a ReLU has closed. An element whose step changes it is at the corner, where there
 * is no derivative, and is left out. */
static uint64_t closed(const struct chex_ref_map *f) {
    uint64_t hash = 1469598103934665603u;
    for (size_t p = 0; f && p < chex_ref_pixels(f); p++)
        for (int c = 0; c < f->c; c++)
            hash = (hash ^ (f->data[p * (size_t)f->pitch + (size_t)c] > 0)) * 1099511628211u;
    return hash;
}

/* Largest difference of the gradient of `loss` by the elements at v from `grad`, relative to the
 * largest gradient. `out` is the output with a ReLU, or NULL. Infinite where more than a quarter
 * of the elements had to be left out. */
static double deviation(loss_fn loss, void *arg, float *v, const float *grad, size_t count, float h,
                        const struct chex_ref_map *out) {
    double worst = 0, largest = 1e-3;
    size_t left_out = 0, used = 0;
    for (size_t i = 0; i < count; i++) {
        if (isnan(v[i]))
            continue;
        float old = v[i], up = old + h, down = old - h;
        v[i] = up;
        double above = loss(arg);
        uint64_t pattern = closed(out);
        v[i] = down;
        double below = loss(arg);
        bool corner = closed(out) != pattern;
        v[i] = old;
        used++;
        left_out += corner;
        if (corner)
            continue;
        double got = (above - below) / ((double)up - (double)down);
        if (isnan(got) || isnan(grad[i]))
            return INFINITY;
        worst = fmax(worst, fabs(got - (double)grad[i]));
        largest = fmax(largest, fabs((double)grad[i]));
    }
    return left_out * 4 > used ? INFINITY : worst / largest;
}

static size_t elements(const struct chex_ref_map *m) {
    return chex_ref_pixels(m) * (size_t)m->pitch;
}

/* ---- convolution ---- */

struct conv_case {
    struct chex_ref_map x, y, r;
    float *weight;
    struct chex_ref_window win;
};

static double conv_loss(void *arg) {
    struct conv_case *t = arg;
    chex_ref_conv_forward(&ctx, &t->x, t->weight, t->win, &t->y);
    return weighted_sum(&t->y, &t->r);
}

static void check_conv(int n, int h, int w, int in, int out, struct chex_ref_window win) {
    int oh = (h + 2 * win.pad - win.kernel) / win.stride + 1;
    int ow = (w + 2 * win.pad - win.kernel) / win.stride + 1;
    struct conv_case t = {.x = map(n, h, w, in, 3, 1), .win = win};
    t.y = map(n, oh, ow, out, 5, 2);
    t.r = map(n, oh, ow, out, 1, 3);
    struct chex_ref_map dx = map(n, h, w, in, 3, 4);
    size_t weights = (size_t)out * (size_t)in * (size_t)(win.kernel * win.kernel);
    float *dw = take(weights, sizeof *dw);
    t.weight = take(weights, sizeof *t.weight);
    fill(t.weight, weights, 6);
    chex_ref_conv_backward_data(&ctx, &t.r, t.weight, win, &dx);
    chex_ref_conv_backward_weight(&ctx, &t.x, &t.r, win, dw);
    double x_off = deviation(conv_loss, &t, t.x.data, dx.data, elements(&t.x), 0x1p-6f, NULL);
    double w_off = deviation(conv_loss, &t, t.weight, dw, weights, 0x1p-6f, NULL);
    OK(x_off < bound && w_off < bound && slack_untouched(&dx) && slack_untouched(&t.y),
       "conv %dx%dx%dx%d to %d, kernel %d stride %d pad %d: data %.1g, weights %.1g", n, h, w, in,
       out, win.kernel, win.stride, win.pad, x_off, w_off);
    release();
}

/* One value by hand: 2x2 image, 3x3 kernel of 1 to 9, pad 1. */
static void check_conv_value(void) {
    float in[4] = {1, 2, 3, 4}, weight[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, out[4];
    struct chex_ref_map x = {in, 1, 2, 2, 1, 1}, y = {out, 1, 2, 2, 1, 1};
    chex_ref_conv_forward(&ctx, &x, weight, (struct chex_ref_window){3, 1, 1}, &y);
    OK(out[0] == 5 + 12 + 24 + 36 && out[3] == 1 + 4 + 12 + 20,
       "conv is a correlation with zero padding: %g, %g", (double)out[0], (double)out[3]);
}

/* ---- batch norm and ReLU ---- */

enum { CHANNELS = 19 }; /* more than one run of 16 */

struct bn_case {
    struct chex_ref_map x, y, r;
    double mean[CHANNELS], var[CHANNELS], inv[CHANNELS];
    float gamma[CHANNELS], beta[CHANNELS];
    bool relu;
};

static struct chex_ref_bn bn_view(struct bn_case *t) {
    chex_ref_bn_stats(&ctx, &t->x, t->mean, t->var);
    for (int c = 0; c < CHANNELS; c++)
        t->inv[c] = 1 / sqrt(t->var[c] + 1e-5);
    return (struct chex_ref_bn){t->mean, t->inv, t->gamma, t->beta};
}

static double bn_loss(void *arg) {
    struct bn_case *t = arg;
    struct chex_ref_bn bn = bn_view(t);
    chex_ref_bn_forward(&ctx, &t->x, &bn, t->relu, &t->y);
    return weighted_sum(&t->y, &t->r);
}

static void bn_backward(const struct chex_ref_map *x, const struct chex_ref_bn *bn,
                        const struct chex_ref_map *dy, float *dgamma, float *dbeta,
                        const struct chex_ref_map *dx) {
    double sums[2 * CHANNELS];
    chex_ref_bn_backward(&ctx, x, bn, dy, NULL, sums, dgamma, dbeta, dx, NULL);
}

static void check_bn(int n, int h, int w, bool relu) {
    struct bn_case t = {.x = map(n, h, w, CHANNELS, 2, 11), .relu = relu};
    t.y = map(n, h, w, CHANNELS, 0, 12);
    t.r = map(n, h, w, CHANNELS, 0, 13);
    for (int c = 0; c < CHANNELS; c++) {
        t.gamma[c] = 1 + draw(14, (size_t)c) / 2;
        t.beta[c] = draw(15, (size_t)c) / 2;
    }
    struct chex_ref_map dx = map(n, h, w, CHANNELS, 2, 16), d = map(n, h, w, CHANNELS, 0, 13);
    for (size_t p = 0; p < chex_ref_pixels(&dx); p++)
        for (int c = 0; c < CHANNELS; c++)
            dx.data[p * (size_t)dx.pitch + (size_t)c] = 100; /* what it adds to */
    float dgamma[CHANNELS], dbeta[CHANNELS];
    bn_loss(&t);
    struct chex_ref_bn bn = bn_view(&t);
    if (relu)
        chex_ref_relu_backward(&ctx, &t.y, &d);
    bn_backward(&t.x, &bn, &d, dgamma, dbeta, &dx);
    for (size_t i = 0; i < elements(&dx); i++)
        dx.data[i] -= 100;
    const struct chex_ref_map *corner = relu ? &t.y : NULL;
    double x_off = deviation(bn_loss, &t, t.x.data, dx.data, elements(&t.x), 0x1p-9f, corner);
    double g_off = deviation(bn_loss, &t, t.gamma, dgamma, CHANNELS, 0x1p-9f, corner);
    double b_off = deviation(bn_loss, &t, t.beta, dbeta, CHANNELS, 0x1p-9f, corner);
    OK(x_off < bound && g_off < bound && b_off < bound,
       "batch norm%s %dx%dx%d: data %.1g, gamma %.1g, beta %.1g", relu ? " and ReLU" : "", n, h, w,
       x_off, g_off, b_off);
    release();
}

/* A single value normalises to 0: the output is beta, its gradient vanishes. */
static void check_bn_single(void) {
    struct bn_case t = {.x = map(1, 1, 1, CHANNELS, 0, 21)};
    t.y = map(1, 1, 1, CHANNELS, 0, 22);
    t.r = map(1, 1, 1, CHANNELS, 0, 23);
    struct chex_ref_map dx = map(1, 1, 1, CHANNELS, 0, 24);
    float dgamma[CHANNELS], dbeta[CHANNELS];
    memset(dx.data, 0, sizeof(float) * CHANNELS);
    for (int c = 0; c < CHANNELS; c++) {
        t.gamma[c] = 2;
        t.beta[c] = draw(25, (size_t)c);
    }
    bn_loss(&t);
    struct chex_ref_bn bn = bn_view(&t);
    bn_backward(&t.x, &bn, &t.r, dgamma, dbeta, &dx);
    bool good = true;
    for (int c = 0; c < CHANNELS; c++)
        good = good && t.y.data[c] == t.beta[c] && dx.data[c] == 0 && dgamma[c] == 0 &&
               dbeta[c] == t.r.data[c] && t.var[c] == 0;
    OK(good, "batch norm of one value: beta comes out, nothing flows back");
    OK(chex_ref_bn_unbiased(3, 1) == 0 && chex_ref_bn_unbiased(3, 4) == 4,
       "unbiased variance: n / (n - 1), and 0 for one value");
    release();
}

/* ---- pooling ---- */

struct pool_case {
    struct chex_ref_map x, y, r;
    struct chex_ref_window win;
    int32_t *arg;
    bool average;
};

static double pool_loss(void *arg) {
    struct pool_case *t = arg;
    if (t->average)
        chex_ref_avgpool_forward(&ctx, &t->x, t->win.kernel, &t->y);
    else
        chex_ref_maxpool_forward(&ctx, &t->x, t->win, &t->y, NULL);
    return weighted_sum(&t->y, &t->r);
}

/* Distinct values 1/16 apart, shuffled, so that a step of 1/64 changes no winner. */
static void distinct(struct chex_ref_map *m) {
    size_t count = elements(m);
    for (size_t i = 0; i < count; i++)
        if (!isnan(m->data[i]))
            m->data[i] = (float)((i * 7919) % 8191) / 16.0f - 256;
}

static void check_pool(int n, int h, int w, struct chex_ref_window win, bool average) {
    int oh = (h + 2 * win.pad - win.kernel) / win.stride + 1;
    int ow = (w + 2 * win.pad - win.kernel) / win.stride + 1;
    struct pool_case t = {.x = map(n, h, w, 3, 2, 31), .win = win, .average = average};
    t.y = map(n, oh, ow, 3, 1, 32);
    t.r = map(n, oh, ow, 3, 0, 33);
    struct chex_ref_map dx = map(n, h, w, 3, 2, 34);
    t.arg = take(chex_ref_pixels(&t.y) * 3, sizeof *t.arg);
    if (average) {
        chex_ref_avgpool_backward(&ctx, &t.r, win.kernel, &dx);
    } else {
        distinct(&t.x);
        chex_ref_maxpool_forward(&ctx, &t.x, win, &t.y, t.arg);
        chex_ref_maxpool_backward(&ctx, &t.r, t.arg, win, &dx);
    }
    double off = deviation(pool_loss, &t, t.x.data, dx.data, elements(&t.x), 0x1p-6f, NULL);
    OK(off < bound && slack_untouched(&dx) && slack_untouched(&t.y),
       "%s pooling %dx%dx%d, kernel %d stride %d pad %d: %.1g", average ? "average" : "maximum", n,
       h, w, win.kernel, win.stride, win.pad, off);
    release();
}

static void check_pool_corners(void) {
    struct chex_ref_window win = {3, 2, 1};
    float in[9] = {-3, -3, -3, -3, -3, -3, -3, -3, -3}, out[4];
    int32_t arg[4];
    struct chex_ref_map x = {in, 1, 3, 3, 1, 1}, y = {out, 1, 2, 2, 1, 1};
    chex_ref_maxpool_forward(&ctx, &x, win, &y, arg);
    OK(out[0] == -3 && arg[0] == 0 && arg[1] == 1 && arg[2] == 3 && arg[3] == 4,
       "of equal values the first wins, and padding never");
    in[4] = NAN;
    chex_ref_maxpool_forward(&ctx, &x, win, &y, arg);
    OK(isnan(out[0]) && isnan(out[3]) && arg[0] == 4, "NaN wins");
}

/* ---- join ---- */

struct join_case {
    struct bn_case main, side;
    struct chex_ref_map out, r;
    bool side_bn;
};

static double join_loss(void *arg) {
    struct join_case *t = arg;
    struct chex_ref_bn a = bn_view(&t->main), b = {0};
    if (t->side_bn)
        b = bn_view(&t->side);
    chex_ref_residual_add_forward(&ctx, &t->main.x, &a, &t->side.x, t->side_bn ? &b : NULL,
                                  &t->out);
    return weighted_sum(&t->out, &t->r);
}

/* out is a ReLU's output, d the gradient with the closed ones taken out. */
static void join_backward(struct join_case *t, const struct chex_ref_map *d, float *dgamma[2],
                          float *dbeta[2], const struct chex_ref_map *dx,
                          const struct chex_ref_map *dside) {
    struct chex_ref_bn a = bn_view(&t->main), b = bn_view(&t->side);
    chex_ref_relu_backward(&ctx, &t->out, d);
    bn_backward(&t->main.x, &a, d, dgamma[0], dbeta[0], dx);
    if (t->side_bn)
        bn_backward(&t->side.x, &b, d, dgamma[1], dbeta[1], dside);
    else
        chex_ref_add(&ctx, d, dside);
}

static void zero(const struct chex_ref_map *m) {
    memset(m->data, 0, elements(m) * sizeof *m->data);
}

static void check_join(int n, int h, int w, bool side_bn) {
    struct join_case t = {.main = {.x = map(n, h, w, CHANNELS, 1, 41)},
                          .side = {.x = map(n, h, w, CHANNELS, 2, 42)},
                          .out = map(n, h, w, CHANNELS, 3, 43),
                          .r = map(n, h, w, CHANNELS, 0, 44),
                          .side_bn = side_bn};
    for (int c = 0; c < CHANNELS; c++) {
        t.main.gamma[c] = 1 + draw(45, (size_t)c) / 2;
        t.side.gamma[c] = 1 + draw(46, (size_t)c) / 2;
        t.main.beta[c] = draw(47, (size_t)c) / 2;
        t.side.beta[c] = draw(48, (size_t)c) / 2;
    }
    struct chex_ref_map d = map(n, h, w, CHANNELS, 0, 44);
    struct chex_ref_map dx = map(n, h, w, CHANNELS, 1, 0), ds = map(n, h, w, CHANNELS, 2, 0);
    float g0[CHANNELS], g1[CHANNELS], b0[CHANNELS], b1[CHANNELS];
    zero(&dx);
    zero(&ds);
    join_loss(&t);
    join_backward(&t, &d, (float *[]){g0, g1}, (float *[]){b0, b1}, &dx, &ds);
    const float step = 0x1p-9f;
    double x = deviation(join_loss, &t, t.main.x.data, dx.data, elements(&dx), step, &t.out);
    double s = deviation(join_loss, &t, t.side.x.data, ds.data, elements(&ds), step, &t.out);
    double g = deviation(join_loss, &t, t.main.gamma, g0, CHANNELS, step, &t.out);
    double b = side_bn ? deviation(join_loss, &t, t.side.beta, b1, CHANNELS, step, &t.out) : 0;
    OK(x < bound && s < bound && g < bound && b < bound,
       "join %dx%dx%d%s: branch %.1g, side %.1g, gamma %.1g, side beta %.1g", n, h, w,
       side_bn ? " with a batch norm on the side" : "", x, s, g, b);
    OK(slack_untouched(&t.out), "join writes its channels only");
    release();
}

/* ---- head and loss ---- */

enum { CLASSES = 3, FEATURES = 5, IMAGES = 3 };

struct head_case {
    struct chex_ref_map x;
    float weight[CLASSES * FEATURES], bias[CLASSES];
    float pooled[IMAGES * FEATURES], logits[IMAGES * CLASSES], dlogits[IMAGES * CLASSES];
    int8_t labels[IMAGES * CLASSES];
    struct chex_loss loss;
};

/* Through the loss, so that its gradient is tested with it. */
static double head_loss(void *arg) {
    struct head_case *t = arg;
    chex_ref_head_forward(&ctx, &t->x, t->weight, t->bias, CLASSES, t->pooled, t->logits);
    return chex_loss_mean(&t->loss, t->logits, t->labels, t->x.n, CLASSES, NULL);
}

static void check_head(int n, int h, int w) {
    static const int8_t labels[IMAGES * CLASSES] = {1, 0, -1, 0, -2, 1, 1, 1, 0};
    struct head_case t = {.x = map(n, h, w, FEATURES, 3, 51)};
    struct chex_ref_map dx = map(n, h, w, FEATURES, 3, 52);
    float dw[CLASSES * FEATURES], db[CLASSES];
    fill(t.weight, CLASSES * FEATURES, 53);
    fill(t.bias, CLASSES, 54);
    memcpy(t.labels, labels, sizeof labels);
    head_loss(&t);
    chex_loss_mean(&t.loss, t.logits, t.labels, n, CLASSES, t.dlogits);
    chex_ref_head_backward(&ctx, t.pooled, t.dlogits, t.weight, CLASSES, dw, db, &dx);
    double x = deviation(head_loss, &t, t.x.data, dx.data, elements(&dx), 0x1p-4f, NULL);
    double k = deviation(head_loss, &t, t.weight, dw, CLASSES * FEATURES, 0x1p-5f, NULL);
    double b = deviation(head_loss, &t, t.bias, db, CLASSES, 0x1p-5f, NULL);
    OK(x < bound && k < bound && b < bound && slack_untouched(&dx),
       "head and loss %dx%dx%d with masked labels: data %.1g, weights %.1g, bias %.1g", n, h, w, x,
       k, b);
    release();
}

/* ---- rounding ---- */

static void check_bf16(void) {
    static const struct {
        float in, out;
    } rows[] = {{1, 1},
                {1.00390625f, 1},            /* half way: to even */
                {1.01171875f, 1.015625f},    /* half way: to even */
                {1.00390637f, 1.0078125f},   /* above half */
                {-1.00390637f, -1.0078125f}, /* symmetric */
                {3.4e38f, INFINITY},
                {0x1p-140f, 0x1p-133f * 0},
                {INFINITY, INFINITY}};
    bool good = isnan(chex_ref_bf16(NAN));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        good = good && chex_ref_bf16(rows[i].in) == rows[i].out;
    OK(good, "bf16: nearest, ties to even, infinities and NaN kept");
}

int main(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_ref_ctx_init(&ctx, 2, false, 49 * 16 * 16, &err) == CHEX_OK, "%s", err.text);
    static const struct chex_ref_window w1 = {1, 1, 0}, w3 = {3, 1, 1}, w3s2 = {3, 2, 1},
                                        w7s2 = {7, 2, 3}, w1s2 = {1, 2, 0}, w2 = {2, 2, 0};
    check_conv_value();
    check_conv(1, 1, 1, 4, 3, w1);
    check_conv(3, 7, 7, 9, 5, w1);
    check_conv(1, 1, 1, 3, 2, w3);
    check_conv(3, 5, 9, 4, 3, w3);
    check_conv(1, 7, 7, 3, 2, w3s2);
    check_conv(3, 5, 4, 2, 3, w3s2);
    check_conv(1, 7, 11, 3, 2, w7s2);
    check_conv(3, 1, 1, 1, 2, w7s2);
    check_conv(3, 7, 5, 3, 4, w1s2);
    check_conv(1, 1, 2, 2, 70, w1); /* more than one block of output channels */
    check_conv(1, 2, 1, 70, 2, w1);
    for (int relu = 0; relu < 2; relu++) {
        check_bn(1, 7, 7, relu);
        check_bn(3, 5, 3, relu);
        check_bn(3, 1, 1, relu);
    }
    check_bn_single();
    for (int average = 0; average < 2; average++) {
        check_pool(1, 7, 7, average ? w2 : w3s2, average);
        check_pool(3, 5, 6, average ? w2 : w3s2, average);
        check_pool(3, average ? 2 : 1, average ? 3 : 1, average ? w2 : w3s2, average);
    }
    check_pool_corners();
    check_join(1, 5, 7, false);
    check_join(3, 3, 2, true);
    check_head(1, 1, 1);
    check_head(3, 7, 5);
    check_bf16();
    chex_ref_ctx_release(&ctx);
    return tap_done();
}
