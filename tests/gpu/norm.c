/* SPDX-License-Identifier: Apache-2.0
 *
 * norm.cu and image.cu against engine/ref, whose sums are double.
 *
 * Bounds. Statistics and sums: 1e-5, what fp32 sums of a few thousand values per block leave (mean
 * against sigma, sums as vectors in the L2 norm); a variance also 2e-7 of the mean square, for a
 * square is rounded before the mean's square is taken off. Stored elements: half a unit of the
 * type's last place, and 1e-6 of the terms that fp32 added. dx: 1e-5 in fp32; in 16 bits the
 * rounding of in_g, whose L2 norm is 1.66e-3 (bf16) and 2.1e-4 (fp16) of it, and half as much again
 * as in_g may be larger than the terms measured against.
 */
#include "engine/ref/ref_ops.h"
#include "gpu/gpu_test.h"

struct dims {
    int n, hw, pitch, first, channels;
};
static const struct dims shapes[] = {
    {1, 1, 32, 0, 32},     {3, 7, 256, 64, 96},    {1, 3, 160, 32, 128},  {3, 10, 352, 32, 320},
    {1, 3, 1024, 0, 1024}, {1, 2, 1120, 32, 1056}, {2, 1, 2048, 0, 2048},
};
/* More pixels than all blocks take in one go. */
static const struct dims large = {3, TAP_SLOW_BUILD ? 40 : 75, 256, 0, 256};

static struct chex_ref_ctx ctx;
static uint64_t digest = 14695981039346656037u;

static void digest_add(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

static double unit(enum gpu_type type) {
    return type == GPU_F32 ? 0x1p-24 : type == GPU_BF16 ? 0x1p-8 : 0x1p-11;
}
static double dx_bound(enum gpu_type type) {
    return type == GPU_F32 ? 1e-5 : type == GPU_BF16 ? 2.5e-3 : 3.2e-4;
}

static struct chex_ref_map ref_map(float *data, const struct dims *d) {
    return (struct chex_ref_map){data + d->first, d->n, d->hw, d->hw, d->channels, d->pitch};
}
static size_t pixels_of(const struct dims *d) { return (size_t)(d->n * d->hw * d->hw); }

/* What a kernel wrote, all of the buffer. The slice is in `got`; nothing else may have changed. */
static float *fetch(const struct gt_buffer *b, const struct dims *d, int *strays) {
    float *got = gt_download_as(b->type, b->device, b->count);
    digest_add(got, b->count * sizeof *got);
    for (size_t i = 0; i < b->count; i++) {
        int c = (int)(i % (size_t)d->pitch);
        if (c < d->first || c >= d->first + d->channels)
            *strays += memcmp(&got[i], &b->host[i], sizeof *got) != 0;
    }
    return got;
}

/* ---- a batch norm on both sides ---- */

struct norm {
    float *mean, *inv, *gamma, *beta; /* host, of the slice */
    double *mean64, *inv64;           /* the same numbers */
    struct gpu_norm gpu;
    struct chex_ref_bn ref;
};

static void *room(size_t count, size_t size) {
    void *p = calloc(count, size);
    BAIL_UNLESS(p, "no memory for %zu elements", count);
    return p;
}

static struct norm norm_make(const struct gt_buffer *x, const struct dims *d, bool relu) {
    size_t c = (size_t)d->channels;
    struct norm n = {room(c, 4), room(c, 4), room(c, 4), room(c, 4),
                     room(c, 8), room(c, 8), {0},        {0}};
    struct chex_ref_map map = ref_map(x->host, d);
    chex_ref_bn_stats(&ctx, &map, n.mean64, n.inv64);
    for (size_t i = 0; i < c; i++) {
        n.mean[i] = (float)n.mean64[i];
        n.inv[i] = (float)(1.0 / sqrt(n.inv64[i] + 1e-5));
        n.gamma[i] = 1.0f + 0.5f * gt_normal(71, i);
        n.beta[i] = 0.5f * gt_normal(72, i);
        n.mean64[i] = n.mean[i];
        n.inv64[i] = n.inv[i];
    }
    n.gpu = (struct gpu_norm){gt_upload(n.mean, c * 4), gt_upload(n.inv, c * 4),
                              gt_upload(n.gamma, c * 4), gt_upload(n.beta, c * 4), relu};
    n.ref = (struct chex_ref_bn){n.mean64, n.inv64, n.gamma, n.beta};
    return n;
}
static void norm_free(struct norm *n) {
    free(n->mean), free(n->inv), free(n->gamma), free(n->beta), free(n->mean64), free(n->inv64);
}

/* ---- statistics ---- */

/* Vectors of the whole buffer, poisoned: only the slice's part may change. */
static int outside_changed(const float *v, const struct dims *d) {
    int changed = 0;
    for (int c = 0; c < d->pitch; c++)
        changed += (c < d->first || c >= d->first + d->channels) && !isnan(v[c]);
    return changed;
}

static void stats(enum gpu_type type, const struct dims *d, float mean_of, int seed) {
    struct gt_buffer x = gt_buffer(type, d->n, d->hw, d->pitch, (uint64_t)seed, mean_of, 1);
    struct gpu_map slice = gt_slice(&x, d->first, d->channels);
    size_t c = (size_t)d->channels, pitch = (size_t)d->pitch;
    float *vectors = gt_alloc(3 * pitch * 4);
    struct gpu_stats s = {
        gt_alloc(GPU_MAX_BLOCKS * 2 * c * 4), gt_zeros(GPU_TICKETS * 4),      vectors + d->first,
        vectors + pitch + d->first,           vectors + 2 * pitch + d->first, 1e-5f};
    GT_OK(gpu_stats_of(&slice, &s, 0));
    float *got = gt_floats(vectors, 3 * pitch), *tickets = gt_floats(s.ticket, GPU_TICKETS);
    digest_add(got, 3 * pitch * 4);
    double *mean = room(c, 8), *var = room(c, 8), worst_mean = 0, worst_var = 0, worst_inv = 0;
    struct chex_ref_map map = ref_map(x.host, d);
    chex_ref_bn_stats(&ctx, &map, mean, var);
    for (size_t i = 0; i < c; i++) {
        const float *at = got + d->first + i;
        double sigma = sqrt(var[i] + 1e-5), inv = 1 / sigma;
        double off_var = 1e-5 * var[i] + 2e-7 * (var[i] + mean[i] * mean[i]);
        double off_mean = 1e-5 * sigma + 6e-8 * fabs(mean[i]);
        double off_inv = 1e-6 + off_var / (var[i] + 1e-5);
        worst_mean = fmax(worst_mean, fabs((double)at[0] - mean[i]) / off_mean);
        worst_var = fmax(worst_var, fabs((double)at[pitch] - var[i]) / (off_var + 1e-30));
        worst_inv = fmax(worst_inv, fabs((double)at[2 * pitch] - inv) / inv / off_inv);
    }
    int ticket_left = 0;
    for (int i = 0; i < GPU_TICKETS; i++)
        ticket_left += tickets[i] != 0;
    OK(worst_mean <= 1 && worst_var <= 1 && worst_inv <= 1 && !ticket_left &&
           !outside_changed(got, d) && !outside_changed(got + pitch, d) &&
           !outside_changed(got + 2 * pitch, d),
       "statistics %s n %d hw %d channels %d, mean %g: %.2f, var %.2f, inv %.2f of the bounds",
       gt_type_names[type], d->n, d->hw, d->channels, (double)mean_of, worst_mean, worst_var,
       worst_inv);
    free(got), free(tickets), free(mean), free(var), free(x.host);
    gt_release_all();
}

/* ---- activation ---- */

enum kind { COPY, NORM, RELU };
static const char *const kinds[] = {"a copy", "norm", "norm and ReLU"};

static void activate(enum gpu_type type, enum gpu_type to, const struct dims *d, enum kind kind) {
    struct gt_buffer x = gt_buffer(type, d->n, d->hw, d->pitch, 5, 0.5f, 2);
    struct gt_buffer out = gt_buffer(to, d->n, d->hw, d->pitch, 6, 0, 1);
    struct norm n = norm_make(&x, d, kind == RELU);
    struct gpu_map from = gt_slice(&x, d->first, d->channels);
    struct gpu_map into = gt_slice(&out, d->first, d->channels);
    const struct gpu_norm none = {0};
    GT_OK(gpu_activate(&from, kind == COPY ? &none : &n.gpu, &into, 0));
    int strays = 0, wrong = 0;
    float *got = fetch(&out, d, &strays), *want = room(x.count, sizeof *want);
    struct chex_ref_map in_map = ref_map(x.host, d), want_map = ref_map(want, d);
    chex_ref_bn_forward(&ctx, &in_map, &n.ref, kind == RELU, &want_map);
    for (size_t p = 0; p < pixels_of(d); p++)
        for (int c = 0; c < d->channels; c++) {
            size_t i = p * (size_t)d->pitch + (size_t)(d->first + c);
            double a = (double)n.gamma[c] * n.inv64[c], mu = n.mean64[c];
            double y = kind == COPY ? (double)x.host[i] : (double)want[i];
            double terms = fabs(a * (double)x.host[i]) + fabs(a * mu) + fabs((double)n.beta[c]);
            wrong += !(fabs((double)got[i] - y) <= unit(to) * fabs(y) + 1e-6 * terms);
        }
    OK(!wrong && !strays, "%s %s to %s, n %d hw %d channels %d", kinds[kind], gt_type_names[type],
       gt_type_names[to], d->n, d->hw, d->channels);
    free(got), free(want), free(x.host), free(out.host);
    norm_free(&n);
    gt_release_all();
}

/* NaN passes norm and ReLU; a copy keeps -0. */
static void activate_special(enum gpu_type type) {
    struct dims d = {1, 1, 32, 0, 32};
    struct gt_buffer x = gt_buffer(type, 1, 1, 32, 8, 0, 1);
    struct norm n = norm_make(&x, &d, true);
    x.host[3] = NAN;
    x.host[4] = -0.0f;
    x.device = gt_upload_as(type, x.host, x.count);
    struct gt_buffer out = gt_buffer(type, 1, 1, 32, 9, 0, 1);
    struct gpu_map from = gt_slice(&x, 0, 32), into = gt_slice(&out, 0, 32);
    GT_OK(gpu_activate(&from, &n.gpu, &into, 0));
    float *active = gt_download_as(type, out.device, 32);
    GT_OK(gpu_activate(&from, NULL, &into, 0));
    float *copy = gt_download_as(type, out.device, 32);
    OK(isnan(active[3]) && !isnan(active[2]) && isnan(copy[3]) && copy[4] == 0 && signbit(copy[4]),
       "%s: NaN passes norm and ReLU, and a copy keeps -0", gt_type_names[type]);
    free(active), free(copy), free(x.host), free(out.host);
    norm_free(&n);
    gt_release_all();
}

/* ---- the gradient taken up ---- */

static void take(enum gpu_type type, enum gpu_type to, const struct dims *d, bool deferred) {
    struct gt_buffer g = gt_buffer(type, d->n, d->hw, d->pitch, 11, 0.1f, 1);
    struct gt_buffer x = gt_buffer(type, d->n, d->hw, d->pitch, 12, 0.5f, 2);
    struct gt_buffer out = gt_buffer(to, d->n, d->hw, d->pitch, 13, 0, 1);
    size_t c_all = (size_t)d->channels;
    float *b = room(c_all, 4), *k = room(c_all, 4);
    for (size_t i = 0; i < c_all; i++) {
        b[i] = 0.3f * gt_normal(14, i);
        k[i] = 0.3f * gt_normal(15, i);
    }
    struct gpu_deferred_grad deferred_grad = {.g = gt_slice(&g, d->first, d->channels)};
    if (deferred) {
        deferred_grad.x = gt_slice(&x, d->first, d->channels);
        deferred_grad.bsum = gt_upload(b, c_all * 4);
        deferred_grad.csum = gt_upload(k, c_all * 4);
    }
    struct gpu_map into = gt_slice(&out, d->first, d->channels);
    GT_OK(gpu_finish_grad(&deferred_grad, &into, 0));
    int strays = 0, wrong = 0;
    float *got = fetch(&out, d, &strays);
    for (size_t p = 0; p < pixels_of(d); p++)
        for (int c = 0; c < d->channels; c++) {
            size_t i = p * (size_t)d->pitch + (size_t)(d->first + c);
            double gi = (double)g.host[i], bx = (double)b[c] * (double)x.host[i];
            double y = deferred ? gi + bx + (double)k[c] : gi;
            double terms = deferred ? fabs(gi) + fabs(bx) + fabs((double)k[c]) : 0;
            wrong += !(fabs((double)got[i] - y) <= unit(to) * fabs(y) + 1e-6 * terms);
        }
    OK(!wrong && !strays, "take %s to %s%s, n %d hw %d channels %d", gt_type_names[type],
       gt_type_names[to], deferred ? "" : " without deferred terms", d->n, d->hw, d->channels);
    free(got), free(b), free(k), free(g.host), free(x.host), free(out.host);
    gt_release_all();
}

/* ---- backward ---- */

/* The kernel's in_g + B x + C is dx, where old is what in_g held before. */
struct backward_error {
    double dx, dgamma, dbeta;
};

static struct backward_error backward_compare(const struct dims *d, const struct norm *n,
                                              enum kind kind, float *x, const float *dv,
                                              const float *old, const float *in_g,
                                              const float *vectors) {
    size_t c_all = (size_t)d->channels, count = pixels_of(d) * (size_t)d->pitch;
    float *act = room(count, 4), *du = room(count, 4), *dx = room(count, 4);
    float *dgamma = room(c_all, 4), *dbeta = room(c_all, 4);
    memcpy(du, dv, count * 4);
    struct chex_ref_map x_map = ref_map(x, d), act_map = ref_map(act, d), du_map = ref_map(du, d),
                        dx_map = ref_map(dx, d);
    chex_ref_bn_forward(&ctx, &x_map, &n->ref, true, &act_map);
    if (kind == RELU)
        chex_ref_relu_backward(&ctx, &act_map, &du_map);
    double *sums = room(2 * c_all, sizeof *sums);
    chex_ref_bn_backward(&ctx, &x_map, &n->ref, &du_map, NULL, sums, dgamma, dbeta, &dx_map, NULL);
    free(sums);
    double diff = 0, scale = 0, gd = 0, gs = 0, bd = 0, bs = 0;
    for (size_t p = 0; p < pixels_of(d); p++)
        for (size_t c = 0; c < c_all; c++) {
            size_t i = p * (size_t)d->pitch + (size_t)d->first + c;
            double a_du = (double)n->gamma[c] * n->inv64[c] * (double)du[i];
            double got = (double)in_g[i] + (double)vectors[2 * c_all + c] * (double)x[i] +
                         (double)vectors[3 * c_all + c];
            diff += pow(got - (double)dx[i] - (double)old[i], 2);
            scale += pow(fabs(a_du) + fabs((double)old[i]), 2);
        }
    for (size_t c = 0; c < c_all; c++) {
        gd += pow((double)vectors[c] - (double)dgamma[c], 2);
        bd += pow((double)vectors[c_all + c] - (double)dbeta[c], 2);
        gs += pow((double)dgamma[c], 2);
        bs += pow((double)dbeta[c], 2);
    }
    free(act), free(du), free(dx), free(dgamma), free(dbeta);
    /* One pixel is its own mean: then dgamma is 0 except for the rounding of mean, and so measured
     * against dbeta. */
    return (struct backward_error){sqrt(diff / scale), sqrt(gd / (gs + bs)), sqrt(bd / bs)};
}

static void mask(enum gpu_type type, enum gpu_type dv_type, const struct dims *d, enum kind kind,
                 bool add) {
    struct gt_buffer x = gt_buffer(type, d->n, d->hw, d->pitch, 21, 0.5f, 2);
    struct gt_buffer dv = gt_buffer(dv_type, d->n, d->hw, d->pitch, 22, 0.2f, 1);
    struct gt_buffer in_g = gt_buffer(type, d->n, d->hw, d->pitch, 23, 0, 1);
    struct norm n = norm_make(&x, d, kind == RELU);
    size_t c_all = (size_t)d->channels;
    float *zero = room(in_g.count, 4);
    float *vectors = gt_alloc(4 * c_all * 4); /* dgamma, dbeta, bsum, csum */
    GT_OK(cudaMemset(vectors + 2 * c_all, 0, 2 * c_all * 4));
    struct gpu_sums sums = {gt_alloc(GPU_MAX_BLOCKS * 2 * c_all * 4),
                            gt_zeros(GPU_TICKETS * 4),
                            vectors,
                            vectors + c_all,
                            vectors + 2 * c_all,
                            vectors + 3 * c_all};
    struct gpu_map dv_slice = gt_slice(&dv, d->first, d->channels);
    struct gpu_map x_slice = gt_slice(&x, d->first, d->channels);
    struct gpu_map g_slice = gt_slice(&in_g, d->first, d->channels);
    const struct gpu_norm none = {0};
    const struct gpu_sums no_sums = {0};
    GT_OK(gpu_mask(&dv_slice, &x_slice, kind == COPY ? &none : &n.gpu, &g_slice, add,
                   kind == COPY ? &no_sums : &sums, 0));
    int strays = 0, wrong = 0;
    float *got = fetch(&in_g, d, &strays);
    if (kind == COPY) {
        for (size_t p = 0; p < pixels_of(d); p++)
            for (int c = 0; c < d->channels; c++) {
                size_t i = p * (size_t)d->pitch + (size_t)(d->first + c);
                wrong += got[i] != gt_rounded(type, dv.host[i] + (add ? in_g.host[i] : 0));
            }
        OK(!wrong && !strays, "%s gradient of %s, %s, n %d hw %d channels %d",
           gt_type_names[dv_type], gt_type_names[type], add ? "added" : "stored", d->n, d->hw,
           d->channels);
    } else {
        float *host = gt_floats(vectors, 4 * c_all);
        digest_add(host, 4 * c_all * 4);
        struct backward_error e =
            backward_compare(d, &n, kind, x.host, dv.host, add ? in_g.host : zero, got, host);
        OK(e.dx <= dx_bound(type) && e.dgamma <= 1e-5 && e.dbeta <= 1e-5 && !strays,
           "backward of %s, %s gradient of %s, %s, n %d hw %d channels %d: dx %.1e, dgamma %.1e, "
           "dbeta %.1e",
           kinds[kind], gt_type_names[dv_type], gt_type_names[type], add ? "added" : "stored", d->n,
           d->hw, d->channels, e.dx, e.dgamma, e.dbeta);
        free(host);
    }
    free(got), free(zero), free(x.host), free(dv.host), free(in_g.host);
    norm_free(&n);
    gt_release_all();
}

/* relu'(0) = 0, and a NaN lets no gradient pass either: as engine/ref masks. */
static void mask_special(enum gpu_type type) {
    enum { C = 32 };
    float x[C], one[C], beta[C];
    for (int c = 0; c < C; c++) {
        x[c] = c % 3 == 0 ? 0.0f : c % 3 == 1 ? 1.0f : NAN;
        one[c] = 1;
        beta[c] = 0;
    }
    float *ones = gt_upload(one, sizeof one), *zeros = gt_upload(beta, sizeof beta);
    float *sums_out = gt_zeros(4 * C * 4), got_sums[2 * C];
    struct gpu_norm norm = {zeros, ones, ones, zeros, true};
    struct gpu_sums sums = {gt_alloc(GPU_MAX_BLOCKS * 2 * C * 4),
                            gt_zeros(GPU_TICKETS * 4),
                            sums_out,
                            sums_out + C,
                            sums_out + 2 * C,
                            sums_out + 3 * C};
    struct gpu_map in = {gt_upload_as(type, x, C), type, 1, 1, C, C}, in_g = in, dv = in;
    in_g.data = gt_upload_as(type, x, C);
    dv.data = gt_upload_as(type, one, C);
    GT_OK(gpu_mask(&dv, &in, &norm, &in_g, false, &sums, 0));
    float *got = gt_download_as(type, in_g.data, C);
    gt_download(got_sums, sums_out, sizeof got_sums);
    int wrong = 0;
    for (int c = 0; c < C; c++)
        wrong += got[c] != (c % 3 == 1 ? 1.0f : 0.0f) || got_sums[C + c] != got[c];
    OK(!wrong, "%s: the ReLU is shut at 0 and at NaN", gt_type_names[type]);
    free(got);
    gt_release_all();
}

/* Every reader of a channel adds its B and C: a second pass doubles them. */
static void sums_accumulate(void) {
    struct dims d = shapes[1];
    struct gt_buffer x = gt_buffer(GPU_BF16, d.n, d.hw, d.pitch, 31, 0.5f, 2);
    struct gt_buffer g = gt_buffer(GPU_BF16, d.n, d.hw, d.pitch, 32, 0.2f, 1);
    struct norm n = norm_make(&x, &d, true);
    size_t c_all = (size_t)d.channels;
    float *vectors = gt_zeros(4 * c_all * 4);
    struct gpu_sums sums = {gt_alloc(GPU_MAX_BLOCKS * 2 * c_all * 4),
                            gt_zeros(GPU_TICKETS * 4),
                            vectors,
                            vectors + c_all,
                            vectors + 2 * c_all,
                            vectors + 3 * c_all};
    struct gpu_map dv = gt_slice(&g, d.first, d.channels), in = gt_slice(&x, d.first, d.channels);
    struct gt_buffer to = gt_buffer(GPU_BF16, d.n, d.hw, d.pitch, 33, 0, 1);
    struct gpu_map in_g = gt_slice(&to, d.first, d.channels);
    GT_OK(gpu_mask(&dv, &in, &n.gpu, &in_g, false, &sums, 0));
    float *once = gt_floats(vectors, 4 * c_all);
    GT_OK(gpu_mask(&dv, &in, &n.gpu, &in_g, false, &sums, 0));
    float *twice = gt_floats(vectors, 4 * c_all);
    int wrong = 0;
    for (size_t i = 0; i < 4 * c_all; i++)
        wrong += twice[i] != (i < 2 * c_all ? 1.0f : 2.0f) * once[i];
    OK(!wrong, "a second reader adds to bsum and csum, and has a dgamma and dbeta of its own");
    free(once), free(twice), free(x.host), free(g.host), free(to.host);
    norm_free(&n);
    gt_release_all();
}

/* ---- vectors ---- */

static void vectors(void) {
    enum { C = 200 };
    float mean[C], var[C], inv[C + 1];
    int wrong = 0;
    for (int c = 0; c < C; c++) {
        mean[c] = gt_normal(41, (uint64_t)c);
        var[c] = fabsf(gt_normal(42, (uint64_t)c));
    }
    float *d_var = gt_upload(var, sizeof var), *d_mean = gt_upload(mean, sizeof mean);
    float *d_inv = gt_alloc(sizeof inv), *out = gt_alloc((4 * C + 1) * 4);
    GT_OK(gpu_running_inv(d_var, C, 1e-5f, d_inv, 0));
    gt_download(inv, d_inv, sizeof inv);
    for (int c = 0; c < C; c++)
        wrong += !(fabs((double)inv[c] * sqrt((double)var[c] + (double)1e-5f) - 1) <= 1.2e-7);
    OK(!wrong && isnan(inv[C]), "1 / sqrt(var + eps) of running variances");

    struct gpu_report_job jobs[2] = {{d_mean, d_var, 0, C, C, 9},
                                     {d_mean, d_var, 2 * C, 2 * C + 64, 64, 1}};
    struct gpu_report_job *d_jobs = gt_upload(jobs, sizeof jobs);
    GT_OK(gpu_report(d_jobs, 2, 3, out, 0));
    float *got = gt_floats(out, 4 * C + 1);
    wrong = 0;
    for (int c = 0; c < C; c++)
        wrong += got[c] != mean[c] || got[C + c] != (float)chex_ref_bn_unbiased((double)var[c], 27);
    for (int c = 0; c < 64; c++)
        wrong += got[2 * C + c] != mean[c] ||
                 got[2 * C + 64 + c] != (float)chex_ref_bn_unbiased((double)var[c], 3);
    for (int i = 2 * C + 128; i <= 4 * C; i++)
        wrong += !isnan(got[i]);
    GT_OK(gpu_report(d_jobs + 1, 1, 1, out, 0));
    float *single = gt_floats(out + 2 * C + 64, 64);
    for (int c = 0; c < 64; c++)
        wrong += single[c] != 0;
    OK(!wrong, "batch means and unbiased variances; of a single value the variance is 0");
    free(got), free(single);
    gt_release_all();
}

static void image(enum gpu_type type, int channels, int n, int hw) {
    const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    size_t pixels = (size_t)(n * hw * hw);
    float *grey = room(pixels, 4), *want = room(pixels * 3, 4);
    for (size_t i = 0; i < pixels; i++)
        grey[i] = chex_rng_unit(chex_rng(51, CHEX_RNG_TEST, i, 0).v[0]);
    struct gt_buffer out = gt_buffer(type, n, hw, channels, 52, 0, 1);
    struct gpu_map map = gt_slice(&out, 0, channels);
    GT_OK(gpu_image(gt_upload(grey, pixels * 4), mean, std, &map, 0));
    struct chex_ref_map ref = {want, n, hw, hw, 3, 3};
    chex_ref_image(&ctx, grey, mean, std, &ref);
    float *got = gt_download_as(type, out.device, out.count);
    digest_add(got, out.count * 4);
    int wrong = 0;
    for (size_t p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c++) {
            double y = c < 3 ? (double)want[p * 3 + (size_t)c] : 0;
            /* fp32: the difference grey - mean is rounded before it is divided by 0.22. */
            double bound = c < 3 ? unit(type) * fabs(y) + 3e-7 : 0;
            wrong += !(fabs((double)got[p * (size_t)channels + (size_t)c] - y) <= bound);
        }
    OK(!wrong, "image of %d channels in %s, n %d hw %d", channels, gt_type_names[type], n, hw);
    free(grey), free(want), free(got), free(out.host);
    gt_release_all();
}

static void all_of(enum gpu_type type) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct dims *d = &shapes[i];
        stats(type, d, 0.5f, 1);
        for (int kind = COPY; kind <= RELU; kind++)
            activate(type, type, d, (enum kind)kind);
        take(type, type, d, true);
        mask(type, type, d, RELU, i & 1);
        mask(type, GPU_F32, d, RELU, !(i & 1));
    }
    const struct dims *d = &shapes[3];
    stats(type, d, 8, 2);
    activate(type, GPU_F32, d, RELU);
    take(type, type, d, false);
    take(type, GPU_F32, d, true);
    mask(type, GPU_F32, d, NORM, true);
    mask(type, GPU_F32, d, COPY, true);
    mask(type, type, d, COPY, false);
    activate_special(type);
    mask_special(type);
    image(type, 4, 3, 7);
    image(type, 8, 1, 19);
}

int main(void) {
    struct chex_error err;
    BAIL_UNLESS(chex_ref_ctx_init(&ctx, 2, false, 1, &err) == CHEX_OK, "%s", err.text);
    all_of(GPU_F32);
    all_of(GPU_BF16);
    all_of(GPU_F16);
    stats(GPU_BF16, &large, 0.5f, 3);
    take(GPU_F32, GPU_F32, &large, true);
    mask(GPU_BF16, GPU_F32, &large, RELU, true);
    sums_accumulate();
    vectors();
    printf("# all results: %016llx\n", (unsigned long long)digest);
    chex_ref_ctx_release(&ctx);
    return tap_done();
}
