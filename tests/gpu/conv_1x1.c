/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_1x1 against the reference's products, on operands that are rounded alike on both
 * sides.
 *
 * Bounds. A stored element: one unit in the last place of its type (both sides round the same real
 * number, which fp32 sums miss a little) and 1e-5 of the sum of its terms' absolute values (K terms
 * in fp32: their errors grow like sqrt(K) 2^-24, K up to 1024 here). A whole map, relative L2: half
 * as much again as uniform rounding alone makes. dW and sums: 1e-5 of the terms' absolute sum, no
 * more for L2. Mean: 1e-5 sigma; variance: 1e-5 relative, of the values as they were stored.
 */
#include "engine/ref/ref_ops.h"
#include "gpu/gpu_test.h"

struct shape {
    enum gpu_type type;
    int n, hw, c, m;
    bool norm, deferred_grad, add;
    int sms;
    size_t shared;
};

static struct gpu_device device;
static struct chex_ref_ctx ref;

static struct gpu_device device_of(const struct shape *s) {
    struct gpu_device d = device;
    d.sms = s->sms;
    d.shared_max = s->shared && s->shared < d.shared_max ? s->shared : d.shared_max;
    return d;
}

static const char *name_of(const struct shape *s) {
    static char text[128];
    snprintf(text, sizeof text, "%s n %d hw %d c %d m %d%s%s%s sms %d shared %d KiB",
             gt_type_names[s->type], s->n, s->hw, s->c, s->m, s->norm ? " norm" : "",
             s->deferred_grad ? " taken" : "", s->add ? " add" : "", s->sms,
             (int)(s->shared >> 10));
    return text;
}

static size_t pixels_of(const struct shape *s) { return (size_t)(s->n * s->hw * s->hw); }

/* The step from |v| to the next number of the type, v in fp32. */
static double ulp(enum gpu_type type, double v) {
    int e;
    frexp(v, &e); /* |v| < 2^e */
    const int bits = type == GPU_BF16 ? 8 : 11, least = type == GPU_BF16 ? -133 : -24;
    return ldexp(1.0, e - bits > least ? e - bits : least);
}
static double map_bound(enum gpu_type type) { return type == GPU_BF16 ? 2.5e-3 : 3.2e-4; }

/* Of all results: equal where the order of threads makes no difference. */
static uint64_t checksum = 1469598103934665603u;
static void add_to_checksum(const float *v, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, v + i, 4);
        checksum = (checksum ^ bits) * 1099511628211u;
    }
}
static float *results(const float *device_values, int count) {
    float *v = gt_floats(device_values, (size_t)count);
    add_to_checksum(v, (size_t)count);
    return v;
}

/* ---- operands ---- */

/* A slice within a wider buffer of one image more than is used, as it was and as it lies packed. */
struct operand {
    struct gt_buffer buffer;
    struct gpu_map map;
    int first;
    float *packed;
};
static struct operand operand(const struct shape *s, int channels, uint64_t seed, float mean) {
    struct operand o = {.first = 32};
    o.buffer = gt_buffer(s->type, s->n + 1, s->hw, channels + 64, seed, mean, 1.0f);
    o.map = gt_slice(&o.buffer, o.first, channels);
    o.map.n = s->n;
    o.packed = gt_host(pixels_of(s) * (size_t)channels);
    for (size_t p = 0; p < pixels_of(s); p++)
        memcpy(o.packed + p * (size_t)channels,
               o.buffer.host + p * (size_t)o.buffer.pitch + o.first,
               (size_t)channels * sizeof(float));
    return o;
}
static void operand_free(struct operand *o) {
    free(o->buffer.host);
    free(o->packed);
}
/* What lies in the slice now, packed; counts into *touched what has changed around it. */
static float *operand_now(const struct operand *o, int *touched) {
    const int channels = o->map.channels, pitch = o->buffer.pitch;
    const size_t pixels = (size_t)gpu_map_pixels(&o->map);
    float *all = gt_download_as(o->buffer.type, o->buffer.device, o->buffer.count);
    float *out = gt_host(pixels * (size_t)channels);
    for (size_t i = 0; i < o->buffer.count; i++) {
        const size_t p = i / (size_t)pitch;
        const int c = (int)(i % (size_t)pitch) - o->first;
        if (p < pixels && c >= 0 && c < channels)
            out[p * (size_t)channels + (size_t)c] = all[i];
        else
            *touched += all[i] != o->buffer.host[i];
    }
    add_to_checksum(all, o->buffer.count);
    free(all);
    return out;
}

static float *vector(int count, uint64_t seed, float mean, float sigma) {
    float *v = gt_host((size_t)count);
    for (int i = 0; i < count; i++)
        v[i] = mean + sigma * gt_normal(seed, (uint64_t)i);
    return v;
}
static float *upload(const float *v, int count) { return gt_upload(v, (size_t)count * sizeof *v); }

struct norm {
    float *mean, *inv, *gamma, *beta;
    struct gpu_norm gpu;
};
static struct norm norm_of(const struct shape *s) {
    struct norm o = {.mean = vector(s->c, 11, 0.5f, 0.2f),
                     .inv = vector(s->c, 12, 1.0f, 0.05f),
                     .gamma = vector(s->c, 13, 0.3f, 0.7f), /* some below 0 */
                     .beta = vector(s->c, 14, 0.1f, 0.3f)};
    o.gamma[3] = o.beta[3] = 0; /* a ReLU of 0 is shut */
    if (s->norm)
        o.gpu = (struct gpu_norm){.mean = upload(o.mean, s->c),
                                  .inv = upload(o.inv, s->c),
                                  .gamma = upload(o.gamma, s->c),
                                  .beta = upload(o.beta, s->c),
                                  .relu = true};
    return o;
}
static void norm_free(struct norm *n) {
    free(n->mean);
    free(n->inv);
    free(n->gamma);
    free(n->beta);
}
static float norm_a(const struct norm *n, int c) { return n->gamma[c] * n->inv[c]; }
static float normed(const struct norm *n, int c, float x) {
    const float a = norm_a(n, c);
    return fmaf(a, x, fmaf(-n->mean[c], a, n->beta[c]));
}
/* What the convolution reads. */
static float *activated(const struct shape *s, const struct norm *n, const float *x) {
    const size_t count = pixels_of(s) * (size_t)s->c;
    float *u = gt_host(count);
    for (size_t i = 0; i < count; i++) {
        const float y = s->norm ? normed(n, (int)(i % (size_t)s->c), x[i]) : x[i];
        u[i] = s->norm ? gt_rounded(s->type, y > 0 ? y : 0) : y;
    }
    return u;
}

struct weights {
    float *w; /* (m, c) */
    void *device, *device_t;
};
static struct weights weights_of(const struct shape *s) {
    const size_t count = (size_t)s->c * (size_t)s->m;
    struct weights o = {.w = gt_host(count)};
    float *t = gt_host(count);
    for (size_t i = 0; i < count; i++) {
        o.w[i] = gt_rounded(s->type, gt_normal(21, i) * 0.1f);
        t[i % (size_t)s->c * (size_t)s->m + i / (size_t)s->c] = o.w[i];
    }
    o.device = gt_upload_as(s->type, o.w, count);
    o.device_t = gt_upload_as(s->type, t, count);
    free(t);
    return o;
}

static struct chex_ref_map ref_map(const struct shape *s, float *data, int c) {
    return (struct chex_ref_map){data, s->n, s->hw, s->hw, c, c};
}
static float *absolute(const float *v, size_t count) {
    float *a = gt_host(count);
    for (size_t i = 0; i < count; i++)
        a[i] = fabsf(v[i]);
    return a;
}

/* How far values are from the reference, in bounds: above 1 is wrong. NaN counts as wrong. */
static double worst(enum gpu_type type, const float *got, const float *want, const float *terms,
                    size_t count) {
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        const double bound =
            (type == GPU_F32 ? 0 : ulp(type, (double)want[i])) + 1e-5 * (double)terms[i] + 1e-30;
        const double d = fabs((double)got[i] - (double)want[i]) / bound;
        most = d > most || isnan(d) ? (isnan(d) ? INFINITY : d) : most;
    }
    return most;
}
static double rel_l2(const float *got, const float *want, size_t count) {
    double *w = malloc(count * sizeof *w);
    if (!w)
        exit(1);
    for (size_t i = 0; i < count; i++)
        w[i] = (double)want[i];
    const double r = gt_rel_l2(got, w, count);
    free(w);
    return r;
}
static bool all_zero(const unsigned *tickets_device) {
    unsigned t[GPU_TICKETS];
    gt_download(t, tickets_device, sizeof t);
    int wrong = 0;
    for (int i = 0; i < GPU_TICKETS; i++)
        wrong += t[i] != 0;
    return wrong == 0;
}

/* ---- forward ---- */

static void check_stats(const struct shape *s, const struct gpu_stats *stats, const float *z) {
    float *mean = results(stats->mean, s->m), *var = results(stats->var, s->m);
    float *inv = results(stats->inv, s->m);
    const double n = (double)pixels_of(s);
    double most = 0;
    for (int c = 0; c < s->m; c++) {
        double sum = 0, squares = 0;
        for (size_t p = 0; p < pixels_of(s); p++)
            sum += (double)z[p * (size_t)s->m + (size_t)c];
        for (size_t p = 0; p < pixels_of(s); p++) {
            const double d = (double)z[p * (size_t)s->m + (size_t)c] - sum / n;
            squares += d * d;
        }
        /* Of a single pixel the variance is what is left of x^2 - x^2 in fp32. */
        const double v = squares / n, sigma = sqrt(v), least = 1e-6 * sum / n * sum / n;
        const double d1 = fabs((double)mean[c] - sum / n) / (1e-5 * sigma + 1e-6 * fabs(sum / n));
        const double d2 = fabs((double)var[c] - v) / (1e-5 * v + least + 1e-12);
        const double want = 1 / sqrt((double)var[c] + (double)stats->eps);
        const double d3 = fabs((double)inv[c] - want) / (1e-6 * want);
        most = fmax(most, fmax(d1, fmax(d2, d3)));
        if (isnan(d1) || isnan(d2) || isnan(d3))
            most = INFINITY;
    }
    OK(most <= 1, "forward %s: statistics of what was stored: %.2f bounds", name_of(s), most);
    free(mean);
    free(var);
    free(inv);
}

static void forward(const struct shape *s) {
    const size_t count = pixels_of(s) * (size_t)s->m;
    const struct gpu_device d = device_of(s);
    struct operand x = operand(s, s->c, 1, 0.5f), out = operand(s, s->m, 2, 0);
    struct norm norm = norm_of(s);
    struct weights w = weights_of(s);
    struct gpu_stats stats = {.partial = gt_alloc(GPU_MAX_BLOCKS * 2 * (size_t)s->m * 4),
                              .ticket = gt_zeros(GPU_TICKETS * sizeof(unsigned)),
                              .mean = gt_alloc((size_t)s->m * 4),
                              .var = gt_alloc((size_t)s->m * 4),
                              .inv = gt_alloc((size_t)s->m * 4),
                              .eps = 1e-5f};
    struct gpu_conv_forward f = {.in = x.map,
                                 .norm = norm.gpu,
                                 .window = {1, 1, 0},
                                 .weight = w.device,
                                 .out = out.map,
                                 .stats = stats};
    OK(gpu_conv_algo_1x1.fits(&d, &f, NULL), "forward %s fits", name_of(s));
    GT_OK(gpu_conv_algo_1x1.forward(&d, NULL, &f, NULL, NULL));
    int touched = 0, again = 0;
    float *z = operand_now(&out, &touched);

    float *u = activated(s, &norm, x.packed), *want = gt_host(count), *terms = gt_host(count);
    float *u_abs = absolute(u, pixels_of(s) * (size_t)s->c);
    float *w_abs = absolute(w.w, (size_t)s->c * (size_t)s->m);
    const struct chex_ref_window one = {1, 1, 0};
    struct chex_ref_map um = ref_map(s, u, s->c), zm = ref_map(s, want, s->m);
    struct chex_ref_map am = ref_map(s, u_abs, s->c), tm = ref_map(s, terms, s->m);
    chex_ref_conv_forward(&ref, &um, w.w, one, &zm);
    chex_ref_conv_forward(&ref, &am, w_abs, one, &tm);
    const double most = worst(s->type, z, want, terms, count), l2 = rel_l2(z, want, count);
    OK(most <= 1, "forward %s: elements: %.2f bounds", name_of(s), most);
    OK(l2 <= map_bound(s->type), "forward %s: L2 %.2e", name_of(s), l2);
    OK(touched == 0, "forward %s: nothing else is written", name_of(s));
    check_stats(s, &stats, z);

    GT_OK(gpu_conv_algo_1x1.forward(&d, NULL, &f, NULL, NULL));
    float *z2 = operand_now(&out, &again);
    OK(memcmp(z, z2, count * sizeof *z) == 0 && all_zero(stats.ticket),
       "forward %s: the same again", name_of(s));
    f.stats = (struct gpu_stats){0};
    GT_OK(gpu_conv_algo_1x1.forward(&d, NULL, &f, NULL, NULL));
    free(z);
    free(z2);
    free(u);
    free(u_abs);
    free(w_abs);
    free(want);
    free(terms);
    free(w.w);
    operand_free(&x);
    operand_free(&out);
    norm_free(&norm);
    gt_release_all();
}

/* A NaN passes the ReLU and stays in its pixel. */
static void not_a_number(void) {
    const struct shape s = {GPU_BF16, 1, 7, 64, 64, true, 0, 0, 1, 0};
    const struct gpu_device d = device_of(&s);
    struct operand x = operand(&s, s.c, 1, 0), out = operand(&s, s.m, 2, 0);
    struct norm norm = norm_of(&s);
    struct weights w = weights_of(&s);
    const struct gpu_conv_forward f = {
        .in = x.map, .norm = norm.gpu, .window = {1, 1, 0}, .weight = w.device, .out = out.map};
    const uint16_t nan_bits = 0x7fc1;
    GT_OK(cudaMemcpy((uint16_t *)x.map.data + 5 * x.map.pitch + 9, &nan_bits, 2,
                     cudaMemcpyHostToDevice));
    GT_OK(gpu_conv_algo_1x1.forward(&d, NULL, &f, NULL, NULL));
    int touched = 0, wrong = 0;
    float *z = operand_now(&out, &touched);
    for (int i = 0; i < s.hw * s.hw * s.m; i++)
        wrong += (isnan(z[i]) != 0) != (i / s.m == 5);
    OK(wrong == 0, "a NaN reaches every output of its pixel and no other");
    free(z);
    free(w.w);
    operand_free(&x);
    operand_free(&out);
    norm_free(&norm);
    gt_release_all();
}

/* ---- backward ---- */

/* All of one backward, on both sides. */
struct backward {
    const struct shape *s;
    struct gpu_device d;
    struct operand x, g, out_g, out_x;
    struct norm norm;
    struct weights w;
    float *bsum, *csum;       /* of the output */
    float *in_bsum, *in_csum; /* what lies in the input's before */
    struct gpu_conv_backward call;
    float *dz, *u;
    void *workspace;
};

static struct backward backward_of(const struct shape *s) {
    struct backward b = {.s = s, .d = device_of(s)};
    b.x = operand(s, s->c, 1, 0.5f);
    b.g = operand(s, s->c, 2, 0.1f);
    b.out_g = operand(s, s->m, 3, 0.2f);
    b.out_x = operand(s, s->m, 4, 0.4f);
    b.norm = norm_of(s);
    b.w = weights_of(s);
    b.bsum = vector(s->m, 31, 0, 0.3f);
    b.csum = vector(s->m, 32, -0.1f, 0.2f);
    b.in_bsum = vector(s->c, 33, 0, 0.1f);
    b.in_csum = vector(s->c, 34, 0, 0.1f);
    b.call = (struct gpu_conv_backward){.out = {.g = b.out_g.map, .x = b.out_x.map},
                                        .in = b.x.map,
                                        .norm = b.norm.gpu,
                                        .window = {1, 1, 0},
                                        .weight = b.w.device,
                                        .weight_t = b.w.device_t,
                                        .in_g = b.g.map,
                                        .add = s->add,
                                        .dweight = gt_alloc((size_t)(s->c * s->m) * 4)};
    if (s->deferred_grad) {
        b.call.out.bsum = upload(b.bsum, s->m);
        b.call.out.csum = upload(b.csum, s->m);
    } else {
        b.call.out.x.data = NULL;
    }
    if (s->norm)
        b.call.sums = (struct gpu_sums){.partial = gt_alloc(GPU_MAX_BLOCKS * 2 * (size_t)s->c * 4),
                                        .ticket = gt_zeros(GPU_TICKETS * sizeof(unsigned)),
                                        .dgamma = gt_alloc((size_t)s->c * 4),
                                        .dbeta = gt_alloc((size_t)s->c * 4),
                                        .bsum = upload(b.in_bsum, s->c),
                                        .csum = upload(b.in_csum, s->c)};
    b.u = activated(s, &b.norm, b.x.packed);
    b.dz = gt_host(pixels_of(s) * (size_t)s->m);
    for (size_t i = 0; i < pixels_of(s) * (size_t)s->m; i++) {
        const size_t c = i % (size_t)s->m;
        b.dz[i] = b.out_g.packed[i];
        if (s->deferred_grad)
            b.dz[i] = gt_rounded(s->type, b.dz[i] + fmaf(b.bsum[c], b.out_x.packed[i], b.csum[c]));
    }
    return b;
}
static void backward_free(struct backward *b) {
    operand_free(&b->x);
    operand_free(&b->g);
    operand_free(&b->out_g);
    operand_free(&b->out_x);
    norm_free(&b->norm);
    free(b->w.w);
    free(b->bsum);
    free(b->csum);
    free(b->in_bsum);
    free(b->in_csum);
    free(b->dz);
    free(b->u);
    gt_release_all();
}

static void check_dweight(const struct backward *b) {
    const struct shape *s = b->s;
    const size_t count = (size_t)s->c * (size_t)s->m;
    float *got = results(b->call.dweight, s->c * s->m), *want = gt_host(count),
          *terms = gt_host(count);
    float *u_abs = absolute(b->u, pixels_of(s) * (size_t)s->c);
    float *dz_abs = absolute(b->dz, pixels_of(s) * (size_t)s->m);
    const struct chex_ref_window one = {1, 1, 0};
    struct chex_ref_map um = ref_map(s, b->u, s->c), zm = ref_map(s, b->dz, s->m);
    struct chex_ref_map ua = ref_map(s, u_abs, s->c), za = ref_map(s, dz_abs, s->m);
    chex_ref_conv_backward_weight(&ref, &um, &zm, one, want);
    chex_ref_conv_backward_weight(&ref, &ua, &za, one, terms);
    const double most = worst(GPU_F32, got, want, terms, count), l2 = rel_l2(got, want, count);
    OK(most <= 1 && l2 <= 1e-5, "backward %s: dW: %.2f bounds, L2 %.1e", name_of(s), most, l2);
    free(got);
    free(want);
    free(terms);
    free(u_abs);
    free(dz_abs);
}

/* dU from dV, in place; 0 where the ReLU was shut. */
static void shut(const struct backward *b, float *dv) {
    for (size_t i = 0; b->s->norm && i < pixels_of(b->s) * (size_t)b->s->c; i++)
        if (!(normed(&b->norm, (int)(i % (size_t)b->s->c), b->x.packed[i]) > 0))
            dv[i] = 0;
}

/* S1, S2 and what they add, of one channel. du: (pixels, c); terms: its elements' terms. */
static double sums_off(const struct backward *b, int c, const float *du, const float *terms,
                       const float got[4]) {
    const double n = (double)pixels_of(b->s), inv = (double)b->norm.inv[c];
    const double mean = (double)b->norm.mean[c], a = (double)norm_a(&b->norm, c);
    double s1 = 0, s2 = 0, t1 = 0, t2 = 0;
    for (size_t p = 0; p < pixels_of(b->s); p++) {
        const size_t i = p * (size_t)b->s->c + (size_t)c;
        const double xhat = ((double)b->x.packed[i] - mean) * inv;
        s1 += (double)du[i];
        s2 += (double)du[i] * xhat;
        /* dU's own error is a tenth of what a stored element is allowed. */
        const double t = du[i] != 0 ? fabs((double)du[i]) + 0.1 * (double)terms[i] : 0;
        t1 += t;
        t2 += t * (fabs(xhat) + mean * inv);
    }
    const double want[4] = {s1, s2, (double)b->in_bsum[c] - a * s2 * inv / n,
                            (double)b->in_csum[c] - a * (s1 / n - mean * inv * s2 / n)};
    const double bound[4] = {t1, t2, fabs((double)b->in_bsum[c]) + fabs(a) * inv * t2 / n,
                             fabs((double)b->in_csum[c]) + fabs(a) * (t1 + mean * inv * t2) / n};
    double most = 0;
    for (int i = 0; i < 4; i++) {
        const double d = fabs((double)got[i] - want[i]) / (1e-5 * bound[i] + 1e-30);
        most = isnan(d) ? INFINITY : fmax(most, d);
    }
    return most;
}
static void check_sums(const struct backward *b, const float *du, const float *terms) {
    const struct gpu_sums *sums = &b->call.sums;
    const float *const from[4] = {sums->dbeta, sums->dgamma, sums->bsum, sums->csum};
    float *got[4];
    for (int i = 0; i < 4; i++)
        got[i] = results(from[i], b->s->c);
    double most = 0;
    for (int c = 0; c < b->s->c; c++)
        most = fmax(
            most, sums_off(b, c, du, terms, (float[]){got[0][c], got[1][c], got[2][c], got[3][c]}));
    OK(most <= 1 && all_zero(sums->ticket), "backward %s: sums: %.4f bounds", name_of(b->s), most);
    for (int i = 0; i < 4; i++)
        free(got[i]);
}

/* The input's gradient, and what hangs on dU. */
static void check_in_g(const struct backward *b) {
    const struct shape *s = b->s;
    const size_t count = pixels_of(s) * (size_t)s->c;
    int touched = 0;
    float *got = operand_now(&b->g, &touched), *du = gt_host(count), *terms = gt_host(count);
    float *dz_abs = absolute(b->dz, pixels_of(s) * (size_t)s->m);
    float *w_abs = absolute(b->w.w, (size_t)s->c * (size_t)s->m);
    const struct chex_ref_window one = {1, 1, 0};
    struct chex_ref_map zm = ref_map(s, b->dz, s->m), za = ref_map(s, dz_abs, s->m);
    struct chex_ref_map dm = ref_map(s, du, s->c), tm = ref_map(s, terms, s->c);
    chex_ref_conv_backward_data(&ref, &zm, b->w.w, one, &dm);
    chex_ref_conv_backward_data(&ref, &za, w_abs, one, &tm);
    shut(b, du);
    if (s->norm)
        check_sums(b, du, terms);
    float *want = gt_host(count);
    for (size_t i = 0; i < count; i++) {
        const float a = s->norm ? norm_a(&b->norm, (int)(i % (size_t)s->c)) : 1.0f;
        const float old = s->add ? b->g.packed[i] : 0.0f;
        want[i] = (float)((double)a * (double)du[i] + (double)old);
        terms[i] = fabsf(a) * terms[i] + fabsf(old);
    }
    const double most = worst(s->type, got, want, terms, count), l2 = rel_l2(got, want, count);
    OK(most <= 1, "backward %s: in_g: %.2f bounds", name_of(s), most);
    OK(l2 <= map_bound(s->type), "backward %s: in_g: L2 %.2e", name_of(s), l2);
    OK(touched == 0, "backward %s: nothing else is written", name_of(s));
    free(got);
    free(du);
    free(terms);
    free(dz_abs);
    free(w_abs);
    free(want);
}

static void run(struct backward *b) {
    const size_t bytes = gpu_conv_algo_1x1.workspace(&b->d, NULL, NULL, &b->call);
    GT_OK(gpu_conv_algo_1x1.backward(&b->d, NULL, &b->call, gt_alloc(bytes), NULL));
}

static void backward(const struct shape *s) {
    struct backward b = backward_of(s);
    OK(gpu_conv_algo_1x1.fits(&b.d, NULL, &b.call), "backward %s fits", name_of(s));
    run(&b);
    check_in_g(&b);
    check_dweight(&b);

    const size_t count = (size_t)s->c * (size_t)s->m;
    b.call.in_g.data = NULL; /* the weights' gradient alone: the same products in other blocks */
    OK(gpu_conv_algo_1x1.fits(&b.d, NULL, &b.call), "backward %s fits without in_g", name_of(s));
    run(&b);
    check_dweight(&b);
    float *second = gt_floats(b.call.dweight, count);
    run(&b);
    float *third = gt_floats(b.call.dweight, count);
    OK(memcmp(second, third, count * sizeof *third) == 0, "backward %s: the same again",
       name_of(s));
    free(second);
    free(third);
    backward_free(&b);
}

/* ---- what it does not take ---- */

static void refusals(void) {
    const struct shape s = {GPU_BF16, 1, 3, 64, 128, true, true, true, 4, 0};
    struct backward b = backward_of(&s);
    struct gpu_conv_forward f = {.in = b.x.map,
                                 .norm = b.norm.gpu,
                                 .window = {1, 1, 0},
                                 .weight = b.w.device,
                                 .out = b.out_x.map};
    struct gpu_device old = b.d;
    old.capability = 75;
    OK(!gpu_conv_algo_1x1.fits(&old, &f, NULL) && !gpu_conv_algo_1x1.fits(&old, NULL, &b.call),
       "not below capability 8.0");
    struct gpu_device small = b.d;
    small.shared_max = 40 << 10;
    OK(!gpu_conv_algo_1x1.fits(&small, &f, NULL) && !gpu_conv_algo_1x1.fits(&small, NULL, &b.call),
       "not with 40 KiB of shared memory");
    struct gpu_conv_forward g = f;
    g.window = (struct gpu_window){1, 2, 0};
    OK(!gpu_conv_algo_1x1.fits(&b.d, &g, NULL), "no stride");
    g.window = (struct gpu_window){3, 1, 1};
    OK(!gpu_conv_algo_1x1.fits(&b.d, &g, NULL), "no 3x3");
    g = f;
    g.in.type = g.out.type = GPU_F32;
    OK(!gpu_conv_algo_1x1.fits(&b.d, &g, NULL), "no fp32");
    g = f;
    g.in.channels = 40;
    OK(!gpu_conv_algo_1x1.fits(&b.d, &g, NULL), "no 40 channels");
    g = f;
    g.norm.relu = false;
    OK(!gpu_conv_algo_1x1.fits(&b.d, &g, NULL), "no batch norm without ReLU");
    backward_free(&b);
}

int main(void) {
    struct chex_error err;
    int major = 0, minor = 0, shared = 0;
    GT_OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    GT_OK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    GT_OK(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    device.capability = 10 * major + minor;
    device.shared_max = (size_t)shared;
    if (device.capability < 80)
        SKIP_ALL("capability %d.%d: no bf16 on tensor cores", major, minor);
    BAIL_UNLESS(chex_ref_ctx_init(&ref, 1, false, 1024 * 512, &err) == CHEX_OK, "%s", err.text);

    const size_t ada = 99 << 10;     /* capability 8.6, 8.9, 12.0 */
    const size_t ampere = 163 << 10; /* 8.0 */
    const struct shape forwards[] = {
        {GPU_BF16, 1, 1, 64, 128, true, 0, 0, 4, 0},
        {GPU_BF16, 3, 7, 96, 128, true, 0, 0, 1, 0},
        {GPU_F16, 3, 10, 160, 32, true, 0, 0, 2, 0},
        {GPU_F16, 3, 10, 64, 256, true, 0, 0, 1, 0},
        {GPU_BF16, 3, 14, 32, 160, false, 0, 0, 2, 0},
        {GPU_BF16, 1, 3, 1024, 512, false, 0, 0, 4, ada},
        {GPU_BF16, 1, 10, 992, 128, true, 0, 0, 1, ada},
        {GPU_BF16, 3, 10, 256, 64, false, 0, 0, 1, 0},
    };
    for (size_t i = 0; i < sizeof forwards / sizeof *forwards; i++)
        forward(&forwards[i]);
    const struct shape backwards[] = {
        {GPU_BF16, 1, 1, 64, 128, true, true, true, 4, 0},
        {GPU_BF16, 3, 7, 96, 128, true, true, true, 1, 0},
        {GPU_F16, 3, 10, 160, 128, true, true, true, 5, 0},
        {GPU_BF16, 3, 10, 160, 96, true, true, false, 2, ada},
        {GPU_F16, 1, 10, 256, 128, false, true, false, 2, 0},
        {GPU_BF16, 3, 10, 64, 32, true, false, true, 3, ada},
        {GPU_F16, 3, 10, 96, 128, true, true, true, 1, 0},
        {GPU_BF16, 3, 10, 160, 128, true, true, true, 2, ampere},
        {GPU_BF16, 3, 10, 64, 64, false, true, true, 1, ampere},
        {GPU_BF16, 1, 3, 1024, 128, true, true, true, 16, 0},
        {GPU_BF16, 3, 7, 160, 256, true, true, true, 4, 0},
        {GPU_F16, 3, 7, 64, 160, false, true, true, 2, ada},
        {GPU_BF16, 1, 10, 96, 256, true, false, false, 1, 0},
        {GPU_BF16, 1, 3, 512, 1024, false, true, false, 4, ada},
    };
    for (size_t i = 0; i < sizeof backwards / sizeof *backwards; i++)
        backward(&backwards[i]);
    not_a_number();
    refusals();
    chex_ref_ctx_release(&ref);
    printf("# checksum %016llx\n", (unsigned long long)checksum);
    return tap_done();
}
