/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of kernels on slices share: a slice of a wider buffer with its batch norm on both
 * sides, targets whose surroundings must stay as they were, and the check of a batch norm's
 * backward. Host values are computed in double except for the one fma of batch norm, whose sign
 * decides masks and is the same on both sides.
 */
#ifndef CHEX_TESTS_GPU_SLICE_TEST_H
#define CHEX_TESTS_GPU_SLICE_TEST_H

#include "engine/ref/ref_ops.h"
#include "gpu/gpu_test.h"

static struct chex_ref_ctx st_ref;

/* most_weights: of a convolution of the reference. */
static inline void st_begin(size_t most_weights) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_ref_ctx_init(&st_ref, 1, false, most_weights, &err) == CHEX_OK, "%s",
                err.text);
}
static inline int st_done(void) {
    chex_ref_ctx_release(&st_ref);
    printf("# all results: %016llx\n", (unsigned long long)gt_digest);
    return tap_done();
}

struct st_slice {
    struct gt_buffer b;
    int first, channels;
    struct gpu_map map;
};

/* Channels [first, first + channels) of a buffer of `pitch`. */
static inline struct st_slice st_slice(enum gpu_type type, int n, int hw, int pitch, int first,
                                       int channels, uint64_t seed, float mean, float sigma) {
    struct st_slice s = {gt_buffer(type, n, hw, pitch, seed, mean, sigma), first, channels, {0}};
    s.map = gt_slice(&s.b, first, channels);
    return s;
}
static inline size_t st_pixels(const struct st_slice *s) {
    return (size_t)s->b.n * (size_t)(s->b.hw * s->b.hw);
}
static inline float st_at(const struct st_slice *s, const float *host, size_t p, int c) {
    return host[p * (size_t)s->b.pitch + (size_t)(s->first + c)];
}
/* The slice's contents become NaN: who is to overwrite them must. */
static inline void st_poison(struct st_slice *s) {
    for (size_t p = 0; p < st_pixels(s); p++)
        for (int c = 0; c < s->channels; c++)
            s->b.host[p * (size_t)s->b.pitch + (size_t)(s->first + c)] = NAN;
    s->b.device = gt_upload_as(s->b.type, s->b.host, s->b.count);
    s->map = gt_slice(&s->b, s->first, s->channels);
}
/* The slice as the reference sees it, and a map of its shape without gaps. */
static inline struct chex_ref_map st_map(const struct st_slice *s) {
    return (struct chex_ref_map){s->b.host + s->first, s->b.n,    s->b.hw, s->b.hw,
                                 s->channels,          s->b.pitch};
}
static inline struct chex_ref_map st_packed(const struct st_slice *s, float *data) {
    return (struct chex_ref_map){data, s->b.n, s->b.hw, s->b.hw, s->channels, s->channels};
}
/* Its contents without gaps. */
static inline float *st_values(const struct st_slice *s, const float *host) {
    const size_t channels = (size_t)s->channels, count = st_pixels(s) * channels;
    float *v = gt_host(count);
    for (size_t i = 0; i < count; i++)
        v[i] = st_at(s, host, i / channels, (int)(i % channels));
    return v;
}
/* What a kernel wrote, the whole buffer. */
static inline float *st_fetch(const struct st_slice *s) {
    float *now = gt_download_as(s->b.type, s->b.device, s->b.count);
    gt_digest_add(now, s->b.count * sizeof *now);
    return now;
}
/* Elements outside the slice that `now` has otherwise than the buffer had. */
static inline size_t st_strays(const struct st_slice *s, const float *now) {
    size_t wrong = 0;
    for (size_t i = 0; i < s->b.count; i++) {
        const int c = (int)(i % (size_t)s->b.pitch) - s->first;
        const bool outside = c < 0 || c >= s->channels || i / (size_t)s->b.pitch >= st_pixels(s);
        wrong += outside && memcmp(&now[i], &s->b.host[i], sizeof *now) != 0;
    }
    return wrong;
}

struct st_norm {
    int channels;
    float *mean, *inv, *gamma, *beta; /* host; NULL: no norm */
    struct gpu_norm device;
};
/* The norm of the slice's own statistics. Some gammas are negative. */
static inline struct st_norm st_norm(const struct st_slice *s, bool relu, uint64_t seed) {
    const size_t n = (size_t)s->channels, pixels = st_pixels(s);
    struct st_norm r = {s->channels, NULL, NULL, NULL, NULL, {NULL, NULL, NULL, NULL, relu}};
    r.mean = gt_host(4 * n);
    r.inv = r.mean + n;
    r.gamma = r.inv + n;
    r.beta = r.gamma + n;
    for (int c = 0; c < s->channels; c++) {
        double sum = 0, squares = 0;
        for (size_t p = 0; p < pixels; p++)
            sum += (double)st_at(s, s->b.host, p, c);
        const double mean = sum / (double)pixels;
        for (size_t p = 0; p < pixels; p++) {
            const double d = (double)st_at(s, s->b.host, p, c) - mean;
            squares += d * d;
        }
        r.mean[c] = (float)mean;
        r.inv[c] = (float)(1 / sqrt(squares / (double)pixels + 1e-5));
        r.gamma[c] = (c % 5 == 3 ? -1.0f : 1.0f) + 0.2f * gt_normal(seed, (uint64_t)c);
        r.beta[c] = 0.3f * gt_normal(seed + 1, (uint64_t)c);
        if (c % 16 == 7)
            r.gamma[c] = r.beta[c] = 0; /* a ReLU of 0 is shut */
    }
    r.device.mean = gt_upload(r.mean, n * 4);
    r.device.inv = gt_upload(r.inv, n * 4);
    r.device.gamma = gt_upload(r.gamma, n * 4);
    r.device.beta = gt_upload(r.beta, n * 4);
    return r;
}
static inline struct st_norm st_no_norm(int channels) {
    return (struct st_norm){.channels = channels};
}
static inline float st_a(const struct st_norm *n, int c) {
    return n->mean ? n->gamma[c] * n->inv[c] : 1.0f;
}
static inline float st_y(const struct st_norm *n, int c, float x) {
    return n->mean ? fmaf(st_a(n, c), x, fmaf(-n->mean[c], st_a(n, c), n->beta[c])) : x;
}
static inline float st_act(const struct st_norm *n, int c, float x) {
    const float y = st_y(n, c, x);
    return n->mean && n->device.relu && y < 0 ? 0 : y;
}
/* norm(s) without gaps; NaN where the slice has one. */
static inline float *st_activated(const struct st_slice *s, const struct st_norm *n) {
    float *v = st_values(s, s->b.host);
    for (size_t i = 0; i < st_pixels(s) * (size_t)s->channels; i++)
        v[i] = st_act(n, (int)(i % (size_t)s->channels), v[i]);
    return v;
}
/* The reference takes statistics in double. */
static inline struct chex_ref_bn st_ref_bn(const struct st_norm *n) {
    const size_t channels = (size_t)n->channels;
    return (struct chex_ref_bn){gt_doubles(n->mean, channels), gt_doubles(n->inv, channels),
                                n->gamma, n->beta};
}

/* ---- statistics of what was written ---- */

static inline struct gpu_stats st_stats(int channels) {
    struct gpu_stats s = {.eps = 1e-5f};
    s.partial = gt_alloc((size_t)GPU_MAX_BLOCKS * 2 * (size_t)channels * 4);
    s.ticket = gt_zeros(GPU_TICKETS * sizeof *s.ticket);
    s.mean = gt_alloc((size_t)channels * 4);
    s.var = gt_alloc((size_t)channels * 4);
    s.inv = gt_alloc((size_t)channels * 4);
    return s;
}
static inline bool st_tickets_are_zero(const unsigned *ticket) {
    unsigned t[GPU_TICKETS], any = 0;
    gt_download(t, ticket, sizeof t);
    for (int i = 0; i < GPU_TICKETS; i++)
        any |= t[i];
    return !any;
}
/* Against the values themselves: mean within 1e-5 sigma, variance within 1e-5 of the mean square,
 * the two bounds of sums in fp32 over a few hundred values. */
static inline void st_check_stats(const struct st_slice *out, const float *now,
                                  const struct gpu_stats *s, const char *what) {
    const size_t pixels = st_pixels(out);
    float *mean = gt_floats(s->mean, (size_t)out->channels);
    float *var = gt_floats(s->var, (size_t)out->channels);
    float *inv = gt_floats(s->inv, (size_t)out->channels);
    int wrong = 0;
    gt_digest_add(mean, (size_t)out->channels * sizeof *mean);
    gt_digest_add(var, (size_t)out->channels * sizeof *var);
    for (int c = 0; c < out->channels; c++) {
        double sum = 0, squares = 0;
        for (size_t p = 0; p < pixels; p++) {
            const double v = (double)st_at(out, now, p, c);
            sum += v;
            squares += v * v;
        }
        const double m = sum / (double)pixels, square = squares / (double)pixels;
        const double v = square - m * m > 0 ? square - m * m : 0;
        wrong += !(fabs((double)mean[c] - m) <= 1e-5 * sqrt(square) + 1e-30);
        wrong += !(fabs((double)var[c] - v) <= 1e-5 * square + 1e-30);
        wrong += !(fabs((double)inv[c] * sqrt((double)var[c] + (double)s->eps) - 1) <= 1e-6);
    }
    OK(wrong == 0, "%s: statistics of the rounded values", what);
    OK(st_tickets_are_zero(s->ticket), "%s: tickets are zero again", what);
}

/* ---- a batch norm's backward ---- */

static inline struct gpu_sums st_sums(const struct st_norm *n, uint64_t seed) {
    const size_t channels = (size_t)n->channels;
    struct gpu_sums s = {0};
    if (!n->mean)
        return s;
    float *start = gt_normals(2 * channels, seed, 0, 0.01f);
    s.partial = gt_alloc((size_t)GPU_MAX_BLOCKS * 2 * channels * 4);
    s.ticket = gt_zeros(GPU_TICKETS * sizeof *s.ticket);
    s.dgamma = gt_alloc(channels * 4);
    s.dbeta = gt_alloc(channels * 4);
    s.bsum = gt_upload(start, channels * 4);
    s.csum = gt_upload(start + channels, channels * 4);
    return s;
}

/* What a stored gradient may be off: one unit in the last place of the type, and sums in fp32. */
static inline double st_bound(enum gpu_type type, double v, double terms) {
    const double ulp = type == GPU_F32 ? 0x1p-23 : type == GPU_BF16 ? 0x1p-7 : 0x1p-10;
    return ulp * fabs(v) + (type == GPU_F16 ? 0x1p-24 : 0) + 1e-6 * terms + 1e-30;
}

/* dv: gradient of norm(in), packed (pixels, channels). slack: how far each element of the kernel's
 * own dv may be off; NULL: not at all. g: its target; g->b.host is what it held before. sums_seed:
 * seed of what bsum and csum held before. */
static inline void st_check_backward_within(const double *dv, const double *slack,
                                            const struct st_slice *in, const struct st_norm *n,
                                            const struct st_slice *g, bool add,
                                            const struct gpu_sums *sums, uint64_t sums_seed,
                                            const char *what) {
    const size_t pixels = st_pixels(in), channels = (size_t)in->channels;
    float *now = st_fetch(g);
    size_t wrong = 0;
    int wrong_sums = 0;
    float *got[4] = {0};
    if (sums->partial) {
        float *const from[4] = {sums->dbeta, sums->dgamma, sums->bsum, sums->csum};
        for (int i = 0; i < 4; i++) {
            got[i] = gt_floats(from[i], channels);
            gt_digest_add(got[i], channels * sizeof *got[i]);
        }
    }
    for (int c = 0; c < in->channels; c++) {
        double s1 = 0, s2 = 0, abs1 = 0, abs2 = 0, slack1 = 0, slack2 = 0;
        const double inv = n->mean ? (double)n->inv[c] : 1, a = (double)st_a(n, c);
        for (size_t p = 0; p < pixels; p++) {
            const float x = st_at(in, in->b.host, p, c);
            const bool shut = n->mean && n->device.relu && !(st_y(n, c, x) > 0);
            const double du = shut ? 0 : dv[p * channels + (size_t)c];
            const double old = add ? (double)st_at(g, g->b.host, p, c) : 0;
            const double want = old + a * du, is = (double)st_at(g, now, p, c);
            const double off = slack && !shut ? slack[p * channels + (size_t)c] : 0;
            wrong += !(fabs(is - want) <=
                       st_bound(g->b.type, want, fabs(old) + fabs(a * du)) + fabs(a) * off);
            const double xhat = n->mean ? ((double)x - (double)n->mean[c]) * inv : 0;
            slack1 += off;
            slack2 += off * fabs(xhat);
            s1 += du;
            s2 += du * xhat;
            abs1 += fabs(du);
            abs2 += fabs(du * xhat);
        }
        if (!sums->partial)
            continue;
        const double m = (double)pixels, b0 = (double)(0.01f * gt_normal(sums_seed, (uint64_t)c));
        const double c0 = (double)(0.01f * gt_normal(sums_seed, channels + (uint64_t)c));
        const double mean = (double)n->mean[c], t = 1e-6;
        const double e1 = 1e-5 * abs1 + slack1, e2 = 1e-5 * abs2 + slack2;
        const double b = -a * s2 * inv / m, k = -a * (s1 / m - mean * inv * s2 / m);
        wrong_sums += !(fabs((double)got[0][c] - s1) <= e1 + 1e-30);
        wrong_sums += !(fabs((double)got[1][c] - s2) <= e2 + 1e-30);
        wrong_sums += !(fabs((double)got[2][c] - b0 - b) <= fabs(a) * inv / m * e2 + t);
        wrong_sums += !(fabs((double)got[3][c] - c0 - k) <=
                        fabs(a) / m * (e1 + fabs(mean) * inv * e2) + t * (1 + fabs(mean)));
    }
    OK(wrong == 0, "%s: %s A dU", what, add ? "in_g +=" : "in_g =");
    OK(st_strays(g, now) == 0, "%s: channels beside the slice stay", what);
    if (sums->partial) {
        OK(wrong_sums == 0, "%s: dgamma, dbeta, bsum, csum", what);
        OK(st_tickets_are_zero(sums->ticket), "%s: tickets are zero again", what);
    }
}

static inline void st_check_backward(const double *dv, const struct st_slice *in,
                                     const struct st_norm *n, const struct st_slice *g, bool add,
                                     const struct gpu_sums *sums, uint64_t sums_seed,
                                     const char *what) {
    st_check_backward_within(dv, NULL, in, n, g, add, sums, sums_seed, what);
}

/* In fp32 the whole gradient of `in`, A dU + B x + C, against the reference's batch norm: within
 * 2e-5 of the size of A dU, which the other two take off. B and C begin at other values: half of
 * the bound. du: after the mask. */
static inline void st_check_whole(const struct st_slice *in, const struct st_norm *n,
                                  const double *du, const struct st_slice *g,
                                  const struct gpu_sums *sums, uint64_t seed, const char *what) {
    const size_t channels = (size_t)in->channels, count = st_pixels(in) * channels;
    float *dy = gt_host(count), *dx = gt_host(count), *vectors = gt_host(2 * channels);
    for (size_t i = 0; i < count; i++)
        dy[i] = (float)du[i];
    const struct chex_ref_map x = st_map(in), from = st_packed(in, dy), to = st_packed(in, dx);
    const struct chex_ref_bn bn = st_ref_bn(n);
    double *work = gt_take(2 * channels, sizeof *work);
    chex_ref_bn_backward(&st_ref, &x, &bn, &from, NULL, work, vectors, vectors + channels, &to,
                         NULL);
    const float *is = st_values(g, gt_floats(g->b.device, g->b.count));
    const float *b = gt_floats(sums->bsum, channels), *k = gt_floats(sums->csum, channels);
    double d = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t p = i / channels, c = i % channels;
        const double b0 = (double)(0.01f * gt_normal(seed, c));
        const double c0 = (double)(0.01f * gt_normal(seed, channels + c));
        const double whole = (double)is[i] + ((double)k[c] - c0) +
                             ((double)b[c] - b0) * (double)st_at(in, in->b.host, p, (int)c);
        d += pow(whole - (double)dx[i], 2);
        size += pow((double)st_a(n, (int)c) * du[i], 2);
    }
    OK(sqrt(d / size) <= 2e-5, "%s: A dU + B x + C is the batch norm's gradient to %.1e", what,
       sqrt(d / size));
}

/* ---- the gradient that readers left ---- */

struct st_deferred_grad {
    struct st_slice g;
    float *bsum, *csum; /* host; NULL: none */
    struct gpu_deferred_grad device;
};
static inline struct st_deferred_grad st_deferred_grad(const struct st_slice *x, bool more,
                                                       uint64_t seed) {
    struct st_deferred_grad t = {.g = st_slice(x->b.type, x->b.n, x->b.hw, x->b.pitch, x->first,
                                               x->channels, seed, 0.02f, 0.5f)};
    const size_t channels = (size_t)x->channels;
    t.device = (struct gpu_deferred_grad){.g = t.g.map, .x = x->map};
    if (!more)
        return t;
    t.bsum = gt_normals(2 * channels, seed + 1, 0, 0.1f);
    t.csum = t.bsum + channels;
    t.device.bsum = gt_upload(t.bsum, channels * 4);
    t.device.csum = gt_upload(t.csum, channels * 4);
    return t;
}
/* As the kernels write it. */
static inline float st_take(const struct st_deferred_grad *t, const struct st_slice *x, size_t p,
                            int c) {
    const float g = st_at(&t->g, t->g.b.host, p, c);
    return t->bsum ? fmaf(t->bsum[c], st_at(x, x->b.host, p, c), g + t->csum[c]) : g;
}

#endif
