/* SPDX-License-Identifier: Apache-2.0
 *
 * norm.cu and image.cu against engine/ref, whose sums are double.
 *
 * Bounds. Statistics and sums: 1e-5, what fp32 sums of a few thousand values per block leave (mean
 * against sigma); a variance also 2e-7 of the mean square, for a square is rounded before the
 * mean's square is taken off. Stored elements: half a unit of the type's last place, and 1e-6 of
 * the terms that fp32 added. Backward: those of slice_test.h.
 */
#include "gpu/slice_test.h"

struct dims {
    int n, hw, pitch, first, channels;
};
static const struct dims shapes[] = {
    {1, 1, 32, 0, 32},     {3, 7, 256, 64, 96},    {1, 3, 160, 32, 128},  {3, 10, 352, 32, 320},
    {1, 3, 1024, 0, 1024}, {1, 2, 1120, 32, 1056}, {2, 1, 2048, 0, 2048},
};
/* More pixels than all blocks take in one go. */
static const struct dims large = {3, TAP_SLOW_BUILD ? 40 : 75, 256, 0, 256};

static double unit(enum gpu_type type) {
    return type == GPU_F32 ? 0x1p-24 : type == GPU_BF16 ? 0x1p-8 : 0x1p-11;
}

static struct st_slice slice(enum gpu_type type, const struct dims *d, uint64_t seed, float mean,
                             float sigma) {
    return st_slice(type, d->n, d->hw, d->pitch, d->first, d->channels, seed, mean, sigma);
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
    struct st_slice x = slice(type, d, (uint64_t)seed, mean_of, 1);
    size_t c = (size_t)d->channels, pitch = (size_t)d->pitch;
    float *vectors = gt_alloc(3 * pitch * 4);
    struct gpu_stats s = {
        gt_alloc(GPU_MAX_BLOCKS * 2 * c * 4), gt_zeros(GPU_TICKETS * 4),      vectors + d->first,
        vectors + pitch + d->first,           vectors + 2 * pitch + d->first, 1e-5f};
    GT_OK(gpu_stats_of(&x.map, &s, 0));
    float *got = gt_floats(vectors, 3 * pitch);
    gt_digest_add(got, 3 * pitch * 4);
    double *mean = gt_take(c, 8), *var = gt_take(c, 8);
    double worst_mean = 0, worst_var = 0, worst_inv = 0;
    const struct chex_ref_map map = st_map(&x);
    chex_ref_bn_stats(&st_ref, &map, mean, var);
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
    OK(worst_mean <= 1 && worst_var <= 1 && worst_inv <= 1 && st_tickets_are_zero(s.ticket) &&
           !outside_changed(got, d) && !outside_changed(got + pitch, d) &&
           !outside_changed(got + 2 * pitch, d),
       "statistics %s n %d hw %d channels %d, mean %g: %.2f, var %.2f, inv %.2f of the bounds",
       gt_type_names[type], d->n, d->hw, d->channels, (double)mean_of, worst_mean, worst_var,
       worst_inv);
    gt_release_all();
}

/* ---- activation ---- */

enum kind { COPY, NORM, RELU };
static const char *const kinds[] = {"a copy", "norm", "norm and ReLU"};

/* Each stored element is within half a unit of its last place and 1e-6 of the terms. */
static bool stored(const struct st_slice *out, const double *want, const double *terms) {
    const float *got = st_fetch(out), *values = st_values(out, got);
    size_t wrong = st_strays(out, got);
    for (size_t i = 0; i < st_pixels(out) * (size_t)out->channels; i++)
        wrong += !(fabs((double)values[i] - want[i]) <=
                   unit(out->b.type) * fabs(want[i]) + 1e-6 * terms[i]);
    return wrong == 0;
}

static void activate(enum gpu_type type, enum gpu_type to, const struct dims *d, enum kind kind) {
    struct st_slice x = slice(type, d, 5, 0.5f, 2), out = slice(to, d, 6, 0, 1);
    const struct st_norm n = st_norm(&x, kind == RELU, 71);
    const struct gpu_norm none = {0};
    GT_OK(gpu_activate(&x.map, kind == COPY ? &none : &n.device, &out.map, 0));
    const size_t count = st_pixels(&x) * (size_t)d->channels;
    float *want = st_values(&x, x.b.host);
    double *terms = gt_take(count, sizeof *terms);
    const struct chex_ref_map from = st_map(&x), into = st_packed(&x, want);
    const struct chex_ref_bn bn = st_ref_bn(&n);
    for (size_t i = 0; i < count; i++) {
        const int c = (int)(i % (size_t)d->channels);
        const double a = (double)n.gamma[c] * (double)n.inv[c];
        terms[i] =
            fabs(a * (double)want[i]) + fabs(a * (double)n.mean[c]) + fabs((double)n.beta[c]);
    }
    if (kind != COPY)
        chex_ref_bn_forward(&st_ref, &from, &bn, kind == RELU, &into);
    OK(stored(&out, gt_doubles(want, count), terms), "%s %s to %s, n %d hw %d channels %d",
       kinds[kind], gt_type_names[type], gt_type_names[to], d->n, d->hw, d->channels);
    gt_release_all();
}

/* NaN passes norm and ReLU; a copy keeps -0. */
static void activate_special(enum gpu_type type) {
    struct st_slice x = st_slice(type, 1, 1, 32, 0, 32, 8, 0, 1);
    const struct st_norm n = st_norm(&x, true, 71);
    x.b.host[3] = NAN;
    x.b.host[4] = -0.0f;
    x.map.data = gt_upload_as(type, x.b.host, x.b.count);
    const struct st_slice out = st_slice(type, 1, 1, 32, 0, 32, 9, 0, 1);
    GT_OK(gpu_activate(&x.map, &n.device, &out.map, 0));
    const float *active = gt_download_as(type, out.b.device, 32);
    GT_OK(gpu_activate(&x.map, NULL, &out.map, 0));
    const float *copy = gt_download_as(type, out.b.device, 32);
    OK(isnan(active[3]) && !isnan(active[2]) && isnan(copy[3]) && copy[4] == 0 && signbit(copy[4]),
       "%s: NaN passes norm and ReLU, and a copy keeps -0", gt_type_names[type]);
    gt_release_all();
}

/* ---- the finished gradient ---- */

static void finish(enum gpu_type type, enum gpu_type to, const struct dims *d, bool deferred) {
    struct st_slice x = slice(type, d, 12, 0.5f, 2), out = slice(to, d, 13, 0, 1);
    const struct st_deferred_grad g = st_deferred_grad(&x, deferred, 14);
    GT_OK(gpu_finish_grad(&g.device, &out.map, 0));
    const size_t count = st_pixels(&x) * (size_t)d->channels;
    double *want = gt_doubles(st_values(&g.g, g.g.b.host), count);
    double *terms = gt_take(count, sizeof *terms);
    for (size_t i = 0; deferred && i < count; i++) {
        const int c = (int)(i % (size_t)d->channels);
        const double bx =
            (double)g.bsum[c] * (double)st_at(&x, x.b.host, i / (size_t)d->channels, c);
        terms[i] = fabs(want[i]) + fabs(bx) + fabs((double)g.csum[c]);
        want[i] += bx + (double)g.csum[c];
    }
    OK(stored(&out, want, terms), "finished gradient %s to %s%s, n %d hw %d channels %d",
       gt_type_names[type], gt_type_names[to], deferred ? "" : " without deferred terms", d->n,
       d->hw, d->channels);
    gt_release_all();
}

/* ---- backward ---- */

/* A dU, and the sums of dU. In fp32 also dx = in_g + B x + C as a whole. */
static void mask(enum gpu_type type, enum gpu_type dv_type, const struct dims *d, enum kind kind,
                 bool add) {
    const struct st_slice x = slice(type, d, 21, 0.5f, 2), dv = slice(dv_type, d, 22, 0.2f, 1);
    const struct st_slice in_g = slice(type, d, 23, 0, 1);
    const struct st_norm n = kind == COPY ? st_no_norm(d->channels) : st_norm(&x, kind == RELU, 71);
    const struct gpu_sums sums = st_sums(&n, 41);
    const size_t count = st_pixels(&x) * (size_t)d->channels;
    char what[128];
    snprintf(what, sizeof what, "backward of %s, %s gradient of %s, n %d hw %d channels %d",
             kinds[kind], gt_type_names[dv_type], gt_type_names[type], d->n, d->hw, d->channels);
    GT_OK(gpu_mask(&dv.map, &x.map, &n.device, &in_g.map, add, &sums, 0));
    double *du = gt_doubles(st_values(&dv, dv.b.host), count);
    st_check_backward(du, &x, &n, &in_g, add, &sums, 41, what);
    if (type != GPU_F32 || add || kind == COPY)
        return gt_release_all();
    for (size_t i = 0; i < count; i++) {
        const int c = (int)(i % (size_t)d->channels);
        const float at = st_at(&x, x.b.host, i / (size_t)d->channels, c);
        du[i] = kind == RELU && !(st_y(&n, c, at) > 0) ? 0 : du[i];
    }
    st_check_whole(&x, &n, du, &in_g, &sums, 41, what);
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
    gt_release_all();
}

static void image(enum gpu_type type, int channels, int n, int hw) {
    const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    size_t pixels = (size_t)(n * hw * hw);
    float *grey = gt_host(pixels), *want = gt_host(pixels * 3);
    for (size_t i = 0; i < pixels; i++)
        grey[i] = chex_rng_unit(chex_rng(51, CHEX_RNG_TEST, i, 0).v[0]);
    struct gt_buffer out = gt_buffer(type, n, hw, channels, 52, 0, 1);
    struct gpu_map map = gt_slice(&out, 0, channels);
    GT_OK(gpu_image(gt_upload(grey, pixels * 4), mean, std, &map, 0));
    struct chex_ref_map ref = {want, n, hw, hw, 3, 3};
    chex_ref_image(&st_ref, grey, mean, std, &ref);
    float *got = gt_download_as(type, out.device, out.count);
    gt_digest_add(got, out.count * 4);
    int wrong = 0;
    for (size_t p = 0; p < pixels; p++)
        for (int c = 0; c < channels; c++) {
            double y = c < 3 ? (double)want[p * 3 + (size_t)c] : 0;
            /* fp32: the difference grey - mean is rounded before it is divided by 0.22. */
            double bound = c < 3 ? unit(type) * fabs(y) + 3e-7 : 0;
            wrong += !(fabs((double)got[p * (size_t)channels + (size_t)c] - y) <= bound);
        }
    OK(!wrong, "image of %d channels in %s, n %d hw %d", channels, gt_type_names[type], n, hw);
    gt_release_all();
}

static void all_of(enum gpu_type type) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct dims *d = &shapes[i];
        stats(type, d, 0.5f, 1);
        for (int kind = COPY; kind <= RELU; kind++)
            activate(type, type, d, (enum kind)kind);
        finish(type, type, d, true);
        mask(type, type, d, RELU, i & 1);
        mask(type, GPU_F32, d, RELU, !(i & 1));
    }
    const struct dims *d = &shapes[3];
    stats(type, d, 8, 2);
    activate(type, GPU_F32, d, RELU);
    finish(type, type, d, false);
    finish(type, GPU_F32, d, true);
    mask(type, GPU_F32, d, NORM, true);
    mask(type, GPU_F32, d, COPY, true);
    mask(type, type, d, COPY, false);
    activate_special(type);
    mask_special(type);
    image(type, 4, 3, 7);
    image(type, 8, 1, 19);
}

int main(void) {
    st_begin(1);
    all_of(GPU_F32);
    all_of(GPU_BF16);
    all_of(GPU_F16);
    stats(GPU_BF16, &large, 0.5f, 3);
    finish(GPU_F32, GPU_F32, &large, true);
    mask(GPU_BF16, GPU_F32, &large, RELU, true);
    vectors();
    return st_done();
}
