/* SPDX-License-Identifier: Apache-2.0
 *
 * The plain way to convolve against engine/ref, whose sums are double.
 *
 * Bounds. Both sides read the same numbers: the activated input and the taken gradient are made
 * here in the kernels' own form of the batch norm, bit for bit. What is left is fp32 summing of up
 * to a few thousand products, 1e-5 in the L2 norm, and for 16-bit outputs their rounding: 1.66e-3
 * (bf16) and 2.1e-4 (fp16), with half as much again of reserve.
 */
#include "engine/ref/ref_ops.h"
#include "gpu/gpu_test.h"

struct slice {
    int pitch, first, channels;
};
struct conv {
    struct slice in, out;
    int n, hw;
    struct gpu_window w;
    bool norm, relu, deferred, add;
    const char *what;
};

static const struct conv convs[] = {
    {{4, 0, 4}, {64, 0, 64}, 3, 10, {7, 2, 3}, false, false, true, false, "image of 4 channels"},
    {{8, 0, 8}, {64, 0, 64}, 1, 7, {7, 2, 3}, false, false, false, false, "image of 8 channels"},
    {{256, 0, 96}, {128, 0, 128}, 3, 7, {1, 1, 0}, true, true, true, true, "bottleneck"},
    {{128, 0, 128}, {160, 96, 32}, 1, 7, {3, 1, 1}, true, true, true, false, "growth"},
    {{96, 32, 64}, {160, 32, 128}, 3, 7, {1, 2, 0}, true, false, true, true, "shortcut"},
    {{64, 0, 64}, {64, 0, 64}, 3, 10, {3, 2, 1}, true, true, true, false, "3x3 with stride 2"},
    {{64, 0, 64}, {96, 0, 96}, 3, 1, {3, 1, 1}, true, true, true, false, "3x3 of one pixel"},
    {{256, 0, 256}, {160, 0, 160}, 1, 3, {1, 1, 0}, false, false, false, true, "pooled input"},
    {{64, 32, 32}, {32, 0, 32}, 1, 3, {3, 2, 1}, true, true, false, true, "3x3 of 3 pixels"},
    {{64, 0, 64}, {32, 0, 32}, 3, 10, {1, 1, 0}, true, true, true, true, "several runs of pixels"},
    {{32, 0, 32}, {32, 0, 32}, 1, 9, {5, 3, 0}, true, true, true, false, "5x5, stride 3, no pad"},
};

/* More pixels than fp32 sums over, on a device that one run of pixels would fill. */
static const struct conv many_pixels = {{32, 0, 32}, {32, 0, 32}, 1,    71,    {1, 1, 0},
                                        true,        true,        true, false, "many pixels"};

static struct chex_ref_ctx ctx;
static void *room(size_t count, size_t size) {
    void *p = calloc(count, size);
    BAIL_UNLESS(p, "no memory for %zu elements", count);
    return p;
}
static double bound_of(enum gpu_type type) {
    return type == GPU_F32 ? 1e-5 : type == GPU_BF16 ? 2.5e-3 : 3.2e-4;
}
static int out_hw(const struct conv *c) {
    return (c->hw + 2 * c->w.pad - c->w.kernel) / c->w.stride + 1;
}

/* |a - b| / |b| over a slice; b is packed. */
static double distance(const float *a, struct slice s, const float *b, size_t pixels) {
    double diff = 0, scale = 0;
    for (size_t p = 0; p < pixels; p++)
        for (int c = 0; c < s.channels; c++) {
            double want = (double)b[p * (size_t)s.channels + (size_t)c];
            double got = (double)a[p * (size_t)s.pitch + (size_t)(s.first + c)];
            diff += (got - want) * (got - want);
            scale += want * want;
        }
    return sqrt(diff / scale);
}

/* How many elements outside the slice differ from what was there. */
static int strays(const struct gt_buffer *b, struct slice s, const float *now) {
    int changed = 0;
    for (size_t i = 0; i < b->count; i++) {
        int c = (int)(i % (size_t)s.pitch);
        if (c < s.first || c >= s.first + s.channels)
            changed += memcmp(&now[i], &b->host[i], sizeof *now) != 0;
    }
    return changed;
}

/* ---- one convolution, on both sides ---- */

struct sides {
    const struct conv *c;
    enum gpu_type type;
    struct gpu_device device;
    size_t in_pixels, out_pixels, weights;
    struct gt_buffer in, out, g, in_g;
    float *mean, *inv, *gamma, *beta, *bsum, *csum; /* host */
    struct gpu_norm norm;
    float *w, *w_ref;              /* (out, ky, kx, in) and (out, in, ky, kx) */
    float *active, *deferred_grad; /* packed, as the convolution reads them */
};

static float *vector(size_t count, float mean, float sigma, uint64_t seed) {
    float *v = room(count, sizeof *v);
    for (size_t i = 0; i < count; i++)
        v[i] = mean + sigma * gt_normal(seed, i);
    return v;
}

static void weights_make(struct sides *s) {
    const struct conv *c = s->c;
    const int in = c->in.channels, taps = c->w.kernel * c->w.kernel;
    s->weights = (size_t)(c->out.channels * taps * in);
    s->w = room(s->weights, 4);
    s->w_ref = room(s->weights, 4);
    for (int o = 0; o < c->out.channels; o++)
        for (int t = 0; t < taps; t++)
            for (int i = 0; i < in; i++) {
                size_t at = (size_t)((o * taps + t) * in + i);
                s->w[at] = gt_rounded(s->type, 0.05f * gt_normal(7, at));
                s->w_ref[(o * in + i) * taps + t] = s->w[at];
            }
}

static void active_make(struct sides *s) {
    const struct slice in = s->c->in;
    for (size_t p = 0; p < s->in_pixels; p++)
        for (int c = 0; c < in.channels; c++) {
            float x = s->in.host[p * (size_t)in.pitch + (size_t)(in.first + c)];
            if (s->c->norm) {
                float a = s->gamma[c] * s->inv[c];
                x = fmaf(a, x, fmaf(-s->mean[c], a, s->beta[c]));
                x = s->c->relu && x < 0 ? 0 : x;
            }
            s->active[p * (size_t)in.channels + (size_t)c] = gt_rounded(s->type, x);
        }
}

static void deferred_grad_make(struct sides *s) {
    const struct slice out = s->c->out;
    for (size_t p = 0; p < s->out_pixels; p++)
        for (int c = 0; c < out.channels; c++) {
            size_t i = p * (size_t)out.pitch + (size_t)(out.first + c);
            float g = s->g.host[i];
            if (s->c->deferred)
                g += fmaf(s->bsum[c], s->out.host[i], s->csum[c]);
            s->deferred_grad[p * (size_t)out.channels + (size_t)c] = gt_rounded(s->type, g);
        }
}

static struct sides sides_make(enum gpu_type type, const struct conv *c, int sms) {
    const int ohw = out_hw(c);
    struct sides s = {.c = c, .type = type, .device = {.capability = 80, .sms = sms}};
    s.in_pixels = (size_t)(c->n * c->hw * c->hw);
    s.out_pixels = (size_t)(c->n * ohw * ohw);
    s.in = gt_buffer(type, c->n, c->hw, c->in.pitch, 1, 0.5f, 1);
    s.in_g = gt_buffer(type, c->n, c->hw, c->in.pitch, 2, 0, 1);
    s.out = gt_buffer(type, c->n, ohw, c->out.pitch, 3, 0.3f, 1);
    s.g = gt_buffer(type, c->n, ohw, c->out.pitch, 4, 0.1f, 1);
    const size_t ci = (size_t)c->in.channels, co = (size_t)c->out.channels;
    s.mean = vector(ci, 0.5f, 0.2f, 11);
    s.inv = vector(ci, 1.0f, 0.1f, 12);
    s.gamma = vector(ci, 1.0f, 0.5f, 13);
    s.beta = vector(ci, 0.2f, 0.5f, 14);
    s.bsum = vector(co, 0, 0.3f, 15);
    s.csum = vector(co, 0, 0.3f, 16);
    if (c->norm)
        s.norm = (struct gpu_norm){gt_upload(s.mean, ci * 4), gt_upload(s.inv, ci * 4),
                                   gt_upload(s.gamma, ci * 4), gt_upload(s.beta, ci * 4), c->relu};
    s.active = room(s.in_pixels * ci, 4);
    s.deferred_grad = room(s.out_pixels * co, 4);
    weights_make(&s);
    active_make(&s);
    deferred_grad_make(&s);
    return s;
}

static void sides_free(struct sides *s) {
    free(s->in.host), free(s->in_g.host), free(s->out.host), free(s->g.host);
    free(s->mean), free(s->inv), free(s->gamma), free(s->beta), free(s->bsum), free(s->csum);
    free(s->w), free(s->w_ref), free(s->active), free(s->deferred_grad);
    gt_release_all();
}

static struct chex_ref_map packed(float *data, int n, int hw, int channels) {
    return (struct chex_ref_map){data, n, hw, hw, channels, channels};
}
static struct chex_ref_window ref_window(const struct conv *c) {
    return (struct chex_ref_window){c->w.kernel, c->w.stride, c->w.pad};
}

/* Bytes of scratch with a poisoned margin behind: it must stay as it is. */
enum { MARGIN = 256 };
static void *scratch(size_t bytes) { return gt_alloc(bytes + MARGIN); }
static bool margin_kept(const void *workspace, size_t bytes) {
    unsigned char tail[MARGIN];
    gt_download(tail, (const char *)workspace + bytes, MARGIN);
    for (int i = 0; i < MARGIN; i++)
        if (tail[i] != 0xff)
            return false;
    return true;
}

/* ---- forward ---- */

/* Against the statistics of what was stored. */
static bool stats_right(const struct sides *s, float *got, const float *stats) {
    const struct slice out = s->c->out;
    const size_t co = (size_t)out.channels;
    struct chex_ref_map m = packed(got + out.first, s->c->n, out_hw(s->c), out.channels);
    m.pitch = out.pitch;
    double *mean = room(co, 8), *var = room(co, 8);
    chex_ref_bn_stats(&ctx, &m, mean, var);
    bool right = true;
    for (size_t c = 0; c < co; c++) {
        double room_for = 1e-5 * var[c] + 2e-7 * (var[c] + mean[c] * mean[c]);
        right = right && fabs((double)stats[c] - mean[c]) <= 1e-5 * sqrt(var[c] + 1e-5) &&
                fabs((double)stats[co + c] - var[c]) <= room_for;
    }
    free(mean), free(var);
    return right;
}

static void forward(enum gpu_type type, const struct conv *c) {
    struct sides s = sides_make(type, c, 132);
    const size_t co = (size_t)c->out.channels;
    float *stats = gt_alloc(3 * co * 4);
    struct gpu_conv_forward f = {
        .in = gt_slice(&s.in, c->in.first, c->in.channels),
        .norm = s.norm,
        .window = c->w,
        .weight = gt_upload_as(type, s.w, s.weights),
        .out = gt_slice(&s.out, c->out.first, c->out.channels),
        .stats = {gt_alloc(GPU_MAX_BLOCKS * 2 * co * 4), gt_zeros(GPU_TICKETS * 4), stats,
                  stats + co, stats + 2 * co, 1e-5f},
    };
    bool fits = gpu_conv_algo_plain.fits(&s.device, &f, NULL);
    size_t bytes = gpu_conv_algo_plain.workspace(&s.device, NULL, &f, NULL);
    void *workspace = scratch(bytes);
    GT_OK(gpu_conv_algo_plain.forward(&s.device, NULL, &f, workspace, 0));
    float *got = gt_download_as(type, s.out.device, s.out.count),
          *got_stats = gt_floats(stats, 3 * co);
    gt_digest_add(got, s.out.count * 4);
    float *want = room(s.out_pixels * co, 4);
    struct chex_ref_map x = packed(s.active, c->n, c->hw, c->in.channels);
    struct chex_ref_map y = packed(want, c->n, out_hw(c), c->out.channels);
    chex_ref_conv_forward(&ctx, &x, s.w_ref, ref_window(c), &y);
    double off = distance(got, c->out, want, s.out_pixels);
    OK(fits && off <= bound_of(type) && !strays(&s.out, c->out, got) &&
           margin_kept(workspace, bytes) && stats_right(&s, got, got_stats),
       "forward %s, %s: %.1e", gt_type_names[type], c->what, off);
    free(got), free(got_stats), free(want);
    sides_free(&s);
}

/* ---- backward ---- */

/* dv, packed, becomes what in_g should hold; sums over it in double. */
static void masked(const struct sides *s, float *dv, double *dgamma, double *dbeta) {
    const struct slice in = s->c->in;
    for (size_t p = 0; p < s->in_pixels; p++)
        for (int c = 0; c < in.channels; c++) {
            size_t i = p * (size_t)in.pitch + (size_t)(in.first + c);
            float *d = &dv[p * (size_t)in.channels + (size_t)c], x = s->in.host[i];
            if (s->c->norm) {
                float a = s->gamma[c] * s->inv[c], b = fmaf(-s->mean[c], a, s->beta[c]);
                *d = s->c->relu && !(fmaf(a, x, b) > 0) ? 0 : *d;
                dbeta[c] += (double)*d;
                dgamma[c] += (double)*d * ((double)x - (double)s->mean[c]) * (double)s->inv[c];
                *d *= a;
            }
            if (s->c->add)
                *d += s->in_g.host[i];
        }
}

static double off_sums(const float *got, const double *want, const double *scale, size_t n) {
    double diff = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += scale[i] * scale[i];
    }
    return sqrt(diff / size);
}

static void backward(enum gpu_type type, const struct conv *c, int sms) {
    struct sides s = sides_make(type, c, sms);
    const size_t ci = (size_t)c->in.channels;
    const bool image = ci <= 8;
    float *sums = gt_zeros(4 * ci * 4), *dweight = gt_alloc((s.weights + 1) * 4);
    struct gpu_conv_backward b = {
        .out = {.g = gt_slice(&s.g, c->out.first, c->out.channels)},
        .in = gt_slice(&s.in, c->in.first, c->in.channels),
        .norm = s.norm,
        .window = c->w,
        .weight = gt_upload_as(type, s.w, s.weights),
        .add = c->add,
        .dweight = dweight,
    };
    if (c->deferred) {
        b.out.x = gt_slice(&s.out, c->out.first, c->out.channels);
        b.out.bsum = gt_upload(s.bsum, (size_t)c->out.channels * 4);
        b.out.csum = gt_upload(s.csum, (size_t)c->out.channels * 4);
    }
    if (!image)
        b.in_g = gt_slice(&s.in_g, c->in.first, c->in.channels);
    if (c->norm)
        b.sums = (struct gpu_sums){gt_alloc(GPU_MAX_BLOCKS * 2 * ci * 4),
                                   gt_zeros(GPU_TICKETS * 4),
                                   sums,
                                   sums + ci,
                                   sums + 2 * ci,
                                   sums + 3 * ci};
    bool fits = gpu_conv_algo_plain.fits(&s.device, NULL, &b);
    size_t bytes = gpu_conv_algo_plain.workspace(&s.device, NULL, NULL, &b);
    void *workspace = scratch(bytes);
    GT_OK(gpu_conv_algo_plain.backward(&s.device, NULL, &b, workspace, 0));

    float *dw = gt_floats(dweight, s.weights + 1), *got_sums = gt_floats(sums, 2 * ci);
    float *in_g = gt_download_as(type, s.in_g.device, s.in_g.count);
    gt_digest_add(dw, s.weights * 4);
    gt_digest_add(in_g, s.in_g.count * 4);
    gt_digest_add(got_sums, 2 * ci * 4);
    float *dw_ref = room(s.weights, 4), *dv = room(s.in_pixels * ci, 4);
    double *dgamma = room(ci, 8), *dbeta = room(ci, 8), off_dw = 0, size_dw = 0;
    struct chex_ref_map x = packed(s.active, c->n, c->hw, c->in.channels);
    struct chex_ref_map dy = packed(s.deferred_grad, c->n, out_hw(c), c->out.channels);
    struct chex_ref_map dx = packed(dv, c->n, c->hw, c->in.channels);
    chex_ref_conv_backward_weight(&ctx, &x, &dy, ref_window(c), dw_ref);
    chex_ref_conv_backward_data(&ctx, &dy, s.w_ref, ref_window(c), &dx);
    masked(&s, dv, dgamma, dbeta);
    const size_t taps = (size_t)(c->w.kernel * c->w.kernel);
    for (size_t i = 0; i < s.weights; i++) { // (out, ky, kx, in)
        size_t channel = i % ci, tap = i / ci % taps, out = i / ci / taps;
        double want = (double)dw_ref[(out * ci + channel) * taps + tap];
        off_dw += ((double)dw[i] - want) * ((double)dw[i] - want);
        size_dw += want * want;
    }
    off_dw = sqrt(off_dw / size_dw);
    bool kept = fits && margin_kept(workspace, bytes) && isnan(dw[s.weights]);
    if (image) {
        OK(kept && off_dw <= 1e-5 && memcmp(in_g, s.in_g.host, s.in_g.count * 4) == 0,
           "backward %s, %s: dw %.1e", gt_type_names[type], c->what, off_dw);
    } else {
        double off = distance(in_g, c->in, dv, s.in_pixels);
        double off_gamma = c->norm ? off_sums(got_sums, dgamma, dgamma, ci) : 0;
        double off_beta = c->norm ? off_sums(got_sums + ci, dbeta, dbeta, ci) : 0;
        OK(kept && off_dw <= 1e-5 && off <= bound_of(type) && off_gamma <= 1e-5 &&
               off_beta <= 1e-5 && !strays(&s.in_g, c->in, in_g),
           "backward %s, %s, %d SMs: dw %.1e, in_g %.1e, dgamma %.1e, dbeta %.1e",
           gt_type_names[type], c->what, sms, off_dw, off, off_gamma, off_beta);
    }
    free(dw), free(got_sums), free(in_g), free(dw_ref), free(dv), free(dgamma), free(dbeta);
    sides_free(&s);
}

static void table(void) {
    bool plain = false;
    for (int i = 0; gpu_conv_algos[i]; i++)
        plain = plain || gpu_conv_algos[i] == &gpu_conv_algo_plain;
    OK(plain, "the table has the plain way");
}

int main(void) {
    struct chex_error err;
    BAIL_UNLESS(chex_ref_ctx_init(&ctx, 2, false, 1 << 18, &err) == CHEX_OK, "%s", err.text);
    table();
    for (int type = GPU_F32; type <= GPU_F16; type++)
        for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
            forward((enum gpu_type)type, &convs[i]);
            backward((enum gpu_type)type, &convs[i], 132);
        }
    backward(GPU_F32, &convs[9], 1);
    backward(GPU_F32, &many_pixels, 1);
    printf("# all results: %016llx\n", (unsigned long long)gt_digest);
    chex_ref_ctx_release(&ctx);
    return tap_done();
}
