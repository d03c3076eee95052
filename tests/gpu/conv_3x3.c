/* SPDX-License-Identifier: Apache-2.0
 *
 * The 3x3 kernels against the reference's loops, which sum in double, on operands rounded to the
 * type: forward with statistics, and backward with mask, sums and dW.
 *
 * Bounds. Rounding a result to bf16 alone makes a relative error of 1.7e-3 in L2 (fp16: 2.1e-4) and
 * of half a unit in the last place in an element: 2.5e-3 (4e-4) and one unit, plus what fp32 sums
 * of a few thousand terms lose. fp32 results (sums, dW): 1e-5 of the sum of the terms' magnitudes,
 * or of the L2 norm.
 */
#include "engine/ref/ref_ops.h"
#include "gpu/gpu_test.h"

struct shape {
    enum gpu_type type;
    int in, out, n, hw;
    bool normed, deferred_grad, add;
    int shared_kb, sms;
};

static float *random_floats(size_t count, uint64_t seed, float mean, float sigma) {
    float *p = gt_host(count);
    for (size_t i = 0; i < count; i++)
        p[i] = mean + sigma * gt_normal(seed, i);
    return p;
}

static double ulp(enum gpu_type type) { return type == GPU_BF16 ? 1.0 / 128 : 1.0 / 1024; }
static double l2_bound(enum gpu_type type) { return type == GPU_BF16 ? 2.5e-3 : 4e-4; }

/* Everything a shape's tests need, on both sides. First channels are not 0, pitches are wider. */
struct world {
    struct shape s;
    size_t pixels;
    struct gpu_device device;
    struct gt_buffer in, g, x, in_g, out;
    struct gpu_map in_map, g_map, x_map, in_g_map, out_map;
    float *mean, *inv, *gamma, *beta, *bsum, *csum; /* host; norm's of in, bsum's of out */
    struct gpu_norm norm, device_norm;
    float *weight; /* (out, in, 3, 3), rounded */
    void *device_weight, *device_weight_t;
    float *v;  /* what forward multiplies, packed */
    float *dy; /* what backward multiplies, packed */
    struct chex_ref_ctx ref;
};

enum { FIRST = 32, BEHIND = 64 };

static float *upload_floats(const float *host, int count) {
    return gt_upload(host, (size_t)count * sizeof *host);
}

static void make_norm(struct world *w) {
    const int c = w->s.in;
    w->mean = random_floats((size_t)c, 11, 0.7f, 0.2f);
    w->inv = random_floats((size_t)c, 12, 1.5f, 0.1f);
    w->gamma = random_floats((size_t)c, 13, 1.0f, 0.3f);
    w->beta = random_floats((size_t)c, 14, 0.1f, 0.3f);
    w->norm = (struct gpu_norm){w->mean, w->inv, w->gamma, w->beta, true};
    w->device_norm = (struct gpu_norm){NULL, NULL, NULL, NULL, true};
    if (w->s.normed)
        w->device_norm =
            (struct gpu_norm){upload_floats(w->mean, c), upload_floats(w->inv, c),
                              upload_floats(w->gamma, c), upload_floats(w->beta, c), true};
}

static float norm_a(const struct world *w, int c) { return w->gamma[c] * w->inv[c]; }
static float normed(const struct world *w, int c, float x) {
    const float a = norm_a(w, c), b = fmaf(-w->mean[c], a, w->beta[c]);
    return fmaf(a, x, b);
}

static void make_weights(struct world *w) {
    const int in = w->s.in, out = w->s.out;
    const size_t count = (size_t)in * (size_t)out * 9;
    float *flat = gt_host(count), *turned = gt_host(count);
    w->weight = random_floats(count, 21, 0.01f, 0.1f);
    for (int o = 0; o < out; o++)
        for (int i = 0; i < in; i++)
            for (int k = 0; k < 9; k++) {
                float *at = &w->weight[((size_t)o * (size_t)in + (size_t)i) * 9 + (size_t)k];
                *at = gt_rounded(w->s.type, *at);
                flat[((size_t)o * 9 + (size_t)k) * (size_t)in + (size_t)i] = *at;
                turned[((size_t)i * 9 + (size_t)(8 - k)) * (size_t)out + (size_t)o] = *at;
            }
    w->device_weight = gt_upload_as(w->s.type, flat, count);
    w->device_weight_t = gt_upload_as(w->s.type, turned, count);
    free(flat);
    free(turned);
}

static const float *at(const struct gt_buffer *b, size_t pixel, int c) {
    return b->host + pixel * (size_t)b->pitch + FIRST + (size_t)c;
}

static void make_operands(struct world *w) {
    const enum gpu_type type = w->s.type;
    w->v = gt_host(w->pixels * (size_t)w->s.in);
    w->dy = gt_host(w->pixels * (size_t)w->s.out);
    for (size_t p = 0; p < w->pixels; p++) {
        for (int c = 0; c < w->s.in; c++) {
            const float x = *at(&w->in, p, c);
            w->v[p * (size_t)w->s.in + (size_t)c] =
                w->s.normed ? gt_rounded(type, fmaxf(normed(w, c, x), 0.0f)) : x;
        }
        for (int c = 0; c < w->s.out; c++) {
            const float g = *at(&w->g, p, c), x = *at(&w->x, p, c);
            w->dy[p * (size_t)w->s.out + (size_t)c] =
                w->s.deferred_grad ? gt_rounded(type, fmaf(w->bsum[c], x, g) + w->csum[c]) : g;
        }
    }
}

static struct world world(struct shape s) {
    struct world w = {.s = s};
    struct chex_error err = {0};
    w.pixels = (size_t)s.n * (size_t)(s.hw * s.hw);
    w.device = (struct gpu_device){.capability = 80,
                                   .sms = s.sms,
                                   .shared_max = (size_t)s.shared_kb << 10,
                                   .l2_bytes = 1 << 25};
    w.in = gt_buffer(s.type, s.n, s.hw, FIRST + s.in + BEHIND, 1, 0.8f, 1.0f);
    w.g = gt_buffer(s.type, s.n, s.hw, FIRST + s.out + BEHIND, 2, 0.1f, 1.0f);
    w.x = gt_buffer(s.type, s.n, s.hw, FIRST + s.out + 32, 3, -0.5f, 1.0f);
    w.in_g = gt_buffer(s.type, s.n, s.hw, FIRST + s.in, 4, 0.0f, 2.0f);
    w.out = gt_buffer(s.type, s.n, s.hw, FIRST + s.out + BEHIND, 5, 0.0f, 1.0f);
    w.in_map = gt_slice(&w.in, FIRST, s.in);
    w.g_map = gt_slice(&w.g, FIRST, s.out);
    w.x_map = gt_slice(&w.x, FIRST, s.out);
    w.in_g_map = gt_slice(&w.in_g, FIRST, s.in);
    w.out_map = gt_slice(&w.out, FIRST, s.out);
    w.bsum = random_floats((size_t)s.out, 31, 0.0f, 0.2f);
    w.csum = random_floats((size_t)s.out, 32, 0.1f, 0.2f);
    make_norm(&w);
    make_weights(&w);
    make_operands(&w);
    BAIL_UNLESS(chex_ref_ctx_init(&w.ref, 1, false, (size_t)s.in * (size_t)s.out * 9, &err) ==
                    CHEX_OK,
                "%s", err.text);
    return w;
}

static void release(struct world *w) {
    float *const resident[] = {w->in.host, w->g.host, w->x.host, w->in_g.host, w->out.host,
                               w->mean,    w->inv,    w->gamma,  w->beta,      w->bsum,
                               w->csum,    w->weight, w->v,      w->dy};
    for (size_t i = 0; i < sizeof resident / sizeof *resident; i++)
        free(resident[i]);
    chex_ref_ctx_release(&w->ref);
    gt_release_all();
}

static const char *name(const struct shape *s) {
    static char text[160];
    snprintf(text, sizeof text, "%s %d to %d, %d of %d px%s%s%s, %d KiB", gt_type_names[s->type],
             s->in, s->out, s->n, s->hw, s->normed ? "" : ", no norm",
             s->deferred_grad ? "" : ", bare g", s->add ? ", added" : "", s->shared_kb);
    return text;
}

static struct chex_ref_map packed(const struct world *w, float *data, int channels) {
    return (struct chex_ref_map){data, w->s.n, w->s.hw, w->s.hw, channels, channels};
}

/* A slice of a device buffer against `want` (packed); the rest of it as it was. */
static void check_map(const struct world *w, const struct gt_buffer *b, int channels,
                      const float *want, const char *what) {
    float *got = gt_download_as(w->s.type, b->device, b->count);
    double d = 0, s = 0, worst = 0;
    bool rest = true;
    for (size_t p = 0; p < w->pixels; p++)
        for (int c = 0; c < channels; c++)
            s += (double)want[p * (size_t)channels + (size_t)c] *
                 (double)want[p * (size_t)channels + (size_t)c];
    const double rms = sqrt(s / (double)(w->pixels * (size_t)channels));
    for (size_t i = 0; i < b->count; i++) {
        const int c = (int)(i % (size_t)b->pitch) - FIRST;
        if (c < 0 || c >= channels) {
            rest &= got[i] == b->host[i];
            continue;
        }
        const double target = (double)want[i / (size_t)b->pitch * (size_t)channels + (size_t)c];
        const double error = fabs((double)got[i] - target);
        const double share = error / (ulp(w->s.type) * fabs(target) + 1e-4 * rms);
        worst = share > worst || isnan(share) ? share : worst;
        d += error * error;
    }
    gt_digest_add(got, b->count * sizeof *got);
    OK(sqrt(d / s) <= l2_bound(w->s.type) && worst <= 1, "%s: %s (L2 %.2g, worst %.2f)",
       name(&w->s), what, sqrt(d / s), worst);
    OK(rest, "%s: %s leaves the other channels alone", name(&w->s), what);
    free(got);
}

/* Against the statistics of what was stored. */
static void check_stats(const struct world *w, const struct gpu_stats *stats) {
    const int out = w->s.out;
    float *got = gt_download_as(w->s.type, w->out.device, w->out.count);
    float *mean = gt_floats(stats->mean, (size_t)out), *var = gt_floats(stats->var, (size_t)out);
    float *inv = gt_floats(stats->inv, (size_t)out);
    unsigned tickets[GPU_TICKETS] = {0};
    double worst = 0;
    for (int c = 0; c < out; c++) {
        double sum = 0, squares = 0;
        for (size_t p = 0; p < w->pixels; p++)
            sum += (double)got[p * (size_t)w->out.pitch + FIRST + (size_t)c];
        const double m = sum / (double)w->pixels;
        for (size_t p = 0; p < w->pixels; p++) {
            const double x = (double)got[p * (size_t)w->out.pitch + FIRST + (size_t)c] - m;
            squares += x * x;
        }
        const double v = squares / (double)w->pixels;
        /* A variance far below the mean's square is a difference of fp32 sums. */
        const double mean_error = fabs((double)mean[c] - m) / (sqrt(v) + 0.1 * fabs(m));
        const double var_error = fabs((double)var[c] - v) / (v + 0.1 * m * m);
        const double inv_error = fabs((double)inv[c] * sqrt((double)var[c] + 1e-5) - 1);
        const double error = fmax(fmax(mean_error, var_error), inv_error);
        worst = error > worst || isnan(error) ? error : worst;
    }
    gt_digest_add(mean, (size_t)out * sizeof *mean);
    gt_digest_add(var, (size_t)out * sizeof *var);
    gt_download(tickets, stats->ticket, sizeof tickets);
    bool zero = true;
    for (int i = 0; i < GPU_TICKETS; i++)
        zero &= tickets[i] == 0;
    OK(worst <= 1e-5 && zero, "%s: statistics (worst %.2g)", name(&w->s), worst);
    free(got);
    free(mean);
    free(var);
    free(inv);
}

static struct gpu_conv_forward forward_of(const struct world *w) {
    const size_t out = (size_t)w->s.out * sizeof(float);
    return (struct gpu_conv_forward){
        .in = w->in_map,
        .norm = w->device_norm,
        .window = {3, 1, 1},
        .weight = w->device_weight,
        .out = w->out_map,
        .stats = {.partial = gt_alloc((size_t)GPU_MAX_BLOCKS * 2 * out),
                  .ticket = gt_zeros(GPU_TICKETS * sizeof(unsigned)),
                  .mean = gt_alloc(out),
                  .var = gt_alloc(out),
                  .inv = gt_alloc(out),
                  .eps = 1e-5f},
    };
}

static void forward(struct world *w) {
    const struct gpu_conv_algo *algo = &gpu_conv_algo_3x3;
    struct gpu_conv_forward f = forward_of(w);
    OK(algo->fits(&w->device, &f, NULL), "%s: forward fits", name(&w->s));
    void *workspace = gt_alloc(algo->workspace(&w->device, NULL, &f, NULL));
    GT_OK(algo->forward(&w->device, NULL, &f, workspace, NULL));
    float *want = gt_host(w->pixels * (size_t)w->s.out);
    const struct chex_ref_map x = packed(w, w->v, w->s.in), y = packed(w, want, w->s.out);
    chex_ref_conv_forward(&w->ref, &x, w->weight, (struct chex_ref_window){3, 1, 1}, &y);
    check_map(w, &w->out, w->s.out, want, "forward");
    check_stats(w, &f.stats);
    f.stats.partial = NULL;
    GT_OK(algo->forward(&w->device, NULL, &f, workspace, NULL));
    check_map(w, &w->out, w->s.out, want, "forward without statistics");
    free(want);
}

/* dv (packed) becomes dU; S1 and S2 and the sums of their terms' magnitudes into sums[4]. */
static void mask(const struct world *w, float *dv, double (*sums)[4]) {
    for (size_t p = 0; p < w->pixels; p++)
        for (int c = 0; c < w->s.in; c++) {
            float *d = &dv[p * (size_t)w->s.in + (size_t)c];
            const float x = *at(&w->in, p, c);
            if (!(normed(w, c, x) > 0))
                *d = 0;
            const double term = (double)*d * ((double)x - (double)w->mean[c]) * (double)w->inv[c];
            sums[c][0] += (double)*d;
            sums[c][1] += term;
            sums[c][2] += fabs((double)*d);
            sums[c][3] += fabs(term);
        }
}

static void check_sums(const struct world *w, const struct gpu_sums *got, double (*want)[4],
                       const float *bsum_before, const float *csum_before) {
    const size_t in = (size_t)w->s.in;
    float *dgamma = gt_floats(got->dgamma, in), *dbeta = gt_floats(got->dbeta, in);
    float *bsum = gt_floats(got->bsum, in), *csum = gt_floats(got->csum, in);
    const double n = (double)w->pixels;
    double worst = 0, usual[2] = {0}; /* a channel's terms can all be cancelled products */
    for (size_t c = 0; c < in; c++)
        for (int i = 0; i < 2; i++)
            usual[i] += want[c][2 + i] / (double)in;
    for (size_t c = 0; c < in; c++) {
        const double a = (double)norm_a(w, (int)c), inv = (double)w->inv[c];
        const double mean = (double)w->mean[c];
        const double s[] = {want[c][0], want[c][1], want[c][2] + usual[0], want[c][3] + usual[1]};
        const double b = -a * s[1] * inv / n, k = -a * (s[0] / n - mean * inv * s[1] / n);
        const double b_size = fabs(a) * s[3] * inv / n + fabs((double)bsum_before[c]);
        const double k_size =
            fabs(a) * (s[2] + fabs(mean) * inv * s[3]) / n + fabs((double)csum_before[c]);
        const double errors[] = {
            fabs((double)dbeta[c] - s[0]) / s[2],
            fabs((double)dgamma[c] - s[1]) / s[3],
            fabs((double)bsum[c] - (double)bsum_before[c] - b) / b_size,
            fabs((double)csum[c] - (double)csum_before[c] - k) / k_size,
        };
        for (int i = 0; i < 4; i++)
            worst = errors[i] > worst || isnan(errors[i]) ? errors[i] : worst;
    }
    gt_digest_add(dgamma, in * sizeof *dgamma);
    gt_digest_add(bsum, in * sizeof *bsum);
    OK(worst <= 1e-5, "%s: sums (worst %.2g)", name(&w->s), worst);
    free(dgamma);
    free(dbeta);
    free(bsum);
    free(csum);
}

static void check_dweight(const struct world *w, const float *device) {
    const size_t in = (size_t)w->s.in, out = (size_t)w->s.out, count = in * out * 9;
    float *got = gt_floats(device, count), *want = gt_host(count);
    double *ordered = calloc(count, sizeof *ordered);
    const struct chex_ref_map x = packed(w, w->v, w->s.in), dy = packed(w, w->dy, w->s.out);
    chex_ref_conv_backward_weight(&w->ref, &x, &dy, (struct chex_ref_window){3, 1, 1}, want);
    for (size_t o = 0; o < out; o++)
        for (size_t i = 0; i < in; i++)
            for (size_t k = 0; k < 9; k++)
                ordered[(o * 9 + k) * in + i] = (double)want[(o * in + i) * 9 + k];
    const double error = gt_rel_l2(got, ordered, count);
    gt_digest_add(got, count * sizeof *got);
    OK(error <= 1e-5, "%s: dW (L2 %.2g)", name(&w->s), error);
    free(got);
    free(want);
    free(ordered);
}

static void backward(struct world *w) {
    const struct gpu_conv_algo *algo = &gpu_conv_algo_3x3;
    const size_t in = (size_t)w->s.in, count = in * (size_t)w->s.out * 9;
    float *bsum_before = random_floats(in, 41, 0.0f, 0.01f);
    float *csum_before = random_floats(in, 42, 0.0f, 0.01f);
    struct gpu_conv_backward b = {
        .out = {w->g_map, w->x_map, NULL, NULL},
        .in = w->in_map,
        .norm = w->device_norm,
        .window = {3, 1, 1},
        .weight = w->device_weight,
        .weight_t = w->device_weight_t,
        .in_g = w->in_g_map,
        .add = w->s.add,
        .dweight = gt_alloc(count * sizeof(float)),
    };
    if (w->s.deferred_grad) {
        b.out.bsum = upload_floats(w->bsum, w->s.out);
        b.out.csum = upload_floats(w->csum, w->s.out);
    } else {
        b.out.x.data = NULL;
    }
    if (w->s.normed)
        b.sums = (struct gpu_sums){.partial = gt_alloc((size_t)GPU_MAX_BLOCKS * 2 * in * 4),
                                   .ticket = gt_zeros(GPU_TICKETS * sizeof(unsigned)),
                                   .dgamma = gt_alloc(in * 4),
                                   .dbeta = gt_alloc(in * 4),
                                   .bsum = upload_floats(bsum_before, w->s.in),
                                   .csum = upload_floats(csum_before, w->s.in)};
    OK(algo->fits(&w->device, NULL, &b), "%s: backward fits", name(&w->s));
    void *workspace = gt_alloc(algo->workspace(&w->device, NULL, NULL, &b));
    GT_OK(algo->backward(&w->device, NULL, &b, workspace, NULL));

    float *want = gt_host(w->pixels * in);
    double(*sums)[4] = calloc(in, sizeof *sums);
    const struct chex_ref_map dy = packed(w, w->dy, w->s.out), dv = packed(w, want, w->s.in);
    chex_ref_conv_backward_data(&w->ref, &dy, w->weight, (struct chex_ref_window){3, 1, 1}, &dv);
    if (w->s.normed)
        mask(w, want, sums);
    for (size_t i = 0; i < w->pixels * in; i++) {
        const float d = w->s.normed ? norm_a(w, (int)(i % in)) * want[i] : want[i];
        want[i] = d + (w->s.add ? *at(&w->in_g, i / in, (int)(i % in)) : 0);
    }
    check_map(w, &w->in_g, w->s.in, want, "in_g");
    if (w->s.normed)
        check_sums(w, &b.sums, sums, bsum_before, csum_before);
    check_dweight(w, b.dweight);
    free(want);
    free(sums);
    free(bsum_before);
    free(csum_before);
}

static void refusals(void) {
    struct world w = world((struct shape){GPU_BF16, 128, 32, 1, 3, true, true, false, 227, 4});
    const struct gpu_conv_forward f = forward_of(&w);
    struct gpu_conv_forward g = f;
    struct gpu_device old = w.device;
    old.capability = 75;
    OK(!gpu_conv_algo_3x3.fits(&old, &f, NULL), "capability 7.5 is refused");
    g.window.stride = 2;
    OK(!gpu_conv_algo_3x3.fits(&w.device, &g, NULL), "stride 2 is refused");
    g = f;
    g.in.type = g.out.type = GPU_F32;
    OK(!gpu_conv_algo_3x3.fits(&w.device, &g, NULL), "fp32 is refused");
    g = f;
    g.out.channels = 48;
    OK(!gpu_conv_algo_3x3.fits(&w.device, &g, NULL), "48 outputs are refused");
    g = f;
    g.in.n = 1 << 28;
    OK(!gpu_conv_algo_3x3.fits(&w.device, &g, NULL), "more pixels than have a number are refused");
    old = w.device;
    old.shared_max = 48 << 10;
    OK(!gpu_conv_algo_3x3.fits(&old, &f, NULL), "48 KiB of shared memory are refused");
    release(&w);
}

static int attribute(enum cudaDeviceAttr which) {
    int value = 0;
    GT_OK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

int main(void) {
    static const struct shape shapes[] = {
        /* the dense layer, on devices of 227, 163 and 99 KiB */
        {GPU_BF16, 128, 32, 1, 1, true, true, false, 227, 4},
        {GPU_BF16, 128, 32, 3, 7, true, true, true, 227, 4},
        {GPU_F16, 128, 32, 1, 10, true, true, false, 227, 1},
        {GPU_BF16, 128, 32, 3, 10, true, true, false, 163, 4},
        {GPU_BF16, 128, 32, 3, 3, true, true, true, 99, 4},
        {GPU_F16, 128, 32, 3, 14, true, true, true, 99, 1},
        {GPU_BF16, 128, 32, 1, 37, true, true, false, 227, 1},
        {GPU_F16, 128, 32, 1, 26, true, true, true, 227, 3},
        /* residual blocks */
        {GPU_BF16, 64, 64, 3, 7, true, true, false, 227, 2},
        {GPU_F16, 64, 64, 1, 15, false, true, true, 227, 1},
        {GPU_F16, 64, 64, 2, 10, false, true, true, 99, 4},
        {GPU_BF16, 64, 64, 1, 29, true, false, false, 99, 1},
        {GPU_BF16, 128, 128, 1, 10, true, true, false, 227, 1},
        {GPU_F16, 128, 128, 1, 14, true, true, true, 227, 1},
        {GPU_F16, 256, 256, 1, 3, false, false, false, 163, 8},
        {GPU_BF16, 512, 512, 1, 2, true, true, false, 227, 8},
        /* strips of images; weights that come with each step; two stages; several tiles of each */
        {GPU_BF16, 128, 32, 1, 32, true, true, false, 227, 1},
        {GPU_F16, 128, 32, 1, 35, true, true, true, 163, 1},
        {GPU_BF16, 64, 64, 1, 32, true, true, false, 163, 2},
        {GPU_BF16, 128, 128, 1, 22, true, true, false, 227, 1},
        {GPU_BF16, 128, 128, 2, 17, true, true, false, 163, 1},
        {GPU_F16, 128, 128, 2, 11, true, true, true, 99, 1},
    };
    if (attribute(cudaDevAttrComputeCapabilityMajor) < 8)
        SKIP_ALL("capability 8.0 is needed");
    const int room = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (shapes[i].shared_kb << 10 > room) {
            printf("# %s: the device has %d bytes of shared memory\n", name(&shapes[i]), room);
            continue;
        }
        if (TAP_SLOW_BUILD && (shapes[i].in > 128 || shapes[i].hw > 14)) {
            printf("# %s: left out of slow builds\n", name(&shapes[i]));
            continue;
        }
        struct world w = world(shapes[i]);
        forward(&w);
        backward(&w);
        release(&w);
    }
    refusals();
    printf("# digest %016llx\n", (unsigned long long)gt_digest);
    return tap_done();
}
