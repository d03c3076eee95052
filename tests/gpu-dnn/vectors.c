/* SPDX-License-Identifier: Apache-2.0
 *
 * The small kernels around cuDNN's graphs against their formulas in double, and the widening of
 * every 16-bit value. Bounds: results are rounded once from double, 2^-24; 1e-6 of the larger term
 * where two terms may cancel (csum).
 */
#include "engine/cuda/cudnn/dnn_vectors.h"
#include "gpu/gpu_test.h"

enum { CHANNELS = 160, PIXELS = 37 };

static float host[8][2 * CHANNELS];

static void *fresh(int which, int count, float mean, float sigma) {
    for (int c = 0; c < count; c++)
        host[which][c] = mean + sigma * gt_normal((uint64_t)which + 40, (uint64_t)c);
    return gt_upload(host[which], (size_t)count * 4);
}

static double worst(const float *device, const double *want, const double *scale) {
    float *got = gt_floats(device, CHANNELS);
    double w = 0;
    for (int c = 0; c < CHANNELS; c++) {
        const double e = fabs((double)got[c] - want[c]) / scale[c];
        w = e <= w ? w : e; /* NaN stays */
    }
    free(got);
    return w;
}

static struct gpu_norm norm_of(void) {
    return (struct gpu_norm){.mean = fresh(0, CHANNELS, 3, 1),
                             .inv = fresh(1, CHANNELS, 1, 0.2f),
                             .gamma = fresh(2, CHANNELS, 1, 0.5f),
                             .beta = fresh(3, CHANNELS, 0, 1),
                             .relu = true};
}

static void scale(void) {
    const struct gpu_norm norm = norm_of();
    float *a = gt_alloc(CHANNELS * 4 + 4), *b = gt_alloc(CHANNELS * 4 + 4);
    GT_OK(gpu_dnn_scale(&norm, CHANNELS, a, b, NULL));
    float *as = gt_floats(a, CHANNELS + 1), *bs = gt_floats(b, CHANNELS + 1);
    int wrong = 0;
    for (int c = 0; c < CHANNELS; c++) {
        const float want = host[2][c] * host[1][c];
        wrong += as[c] != want || bs[c] != fmaf(-host[0][c], want, host[3][c]);
    }
    OK(wrong == 0 && isnan(as[CHANNELS]) && isnan(bs[CHANNELS]),
       "a and b are the kernels' own, bit for bit");
    free(as);
    free(bs);
    gt_release_all();
}

static void stats(void) {
    double mean[CHANNELS], var[CHANNELS], inv[CHANNELS], one[CHANNELS];
    fresh(4, 2 * CHANNELS, 900, 20);
    struct gpu_stats s = {.mean = gt_alloc(CHANNELS * 4),
                          .var = gt_alloc(CHANNELS * 4),
                          .inv = gt_alloc(CHANNELS * 4),
                          .eps = 1e-5f};
    for (int c = 0; c < CHANNELS; c++)
        host[4][CHANNELS + c] += host[4][c] * host[4][c] / PIXELS;
    host[4][CHANNELS] = 0; /* less than the mean's square: rounding; the variance is 0 */
    const float *sums = gt_upload(host[4], sizeof host[4]);
    GT_OK(gpu_dnn_stats(sums, CHANNELS, PIXELS, &s, NULL));
    for (int c = 0; c < CHANNELS; c++) {
        one[c] = 1;
        mean[c] = (double)host[4][c] / PIXELS;
        var[c] = fmax((double)host[4][CHANNELS + c] / PIXELS - mean[c] * mean[c], 0);
        inv[c] = 1 / sqrt(var[c] + (double)1e-5f);
    }
    const double m = worst(s.mean, mean, mean), v = worst(s.var, var, one);
    const double i = worst(s.inv, inv, inv);
    OK(m <= 1e-7 && v <= 4e-6 && i <= 1e-7, "statistics: mean %.1e variance %.1e inv %.1e", m, v,
       i);
    gt_release_all();
}

static void sums(void) {
    double dgamma[CHANNELS], dbeta[CHANNELS], bsum[CHANNELS], csum[CHANNELS], size[4][CHANNELS];
    const struct gpu_norm norm = norm_of();
    float *in = fresh(4, 2 * CHANNELS, 0, 5);
    struct gpu_sums s = {.dgamma = gt_alloc(CHANNELS * 4),
                         .dbeta = gt_alloc(CHANNELS * 4),
                         .bsum = fresh(5, CHANNELS, 0, 1),
                         .csum = fresh(6, CHANNELS, 0, 1)};
    GT_OK(gpu_dnn_sums(in, &norm, CHANNELS, PIXELS, &s, NULL));
    for (int c = 0; c < CHANNELS; c++) {
        const double inv = (double)host[1][c], mean = (double)host[0][c];
        const double a = (double)host[2][c] * inv, n = PIXELS;
        dbeta[c] = (double)host[4][c];
        dgamma[c] = (double)host[4][CHANNELS + c] * inv;
        bsum[c] = (double)host[5][c] - a * dgamma[c] * inv / n;
        csum[c] = (double)host[6][c] - a * (dbeta[c] / n - mean * inv * dgamma[c] / n);
        size[0][c] = fabs(dgamma[c]);
        size[1][c] = fabs(dbeta[c]);
        size[2][c] = 1 + fabs(a * dgamma[c]);
        size[3][c] = 1 + fabs(a * dbeta[c]) + fabs(a * mean * dgamma[c]);
    }
    const double g = worst(s.dgamma, dgamma, size[0]), b = worst(s.dbeta, dbeta, size[1]);
    const double x = worst(s.bsum, bsum, size[2]), y = worst(s.csum, csum, size[3]);
    OK(g <= 1e-6 && b == 0 && x <= 1e-6 && y <= 1e-6,
       "sums: dgamma %.1e dbeta %.1e, added to bsum %.1e and csum %.1e", g, b, x, y);
    gt_release_all();
}

static void widen(enum gpu_type type) {
    enum { ALL = 65536 };
    float *values = malloc(ALL * sizeof *values);
    uint16_t *bits = malloc(ALL * sizeof *bits);
    BAIL_UNLESS(values && bits, "out of memory");
    for (int i = 0; i < ALL; i++)
        bits[i] = (uint16_t)i;
    const void *from = gt_upload(bits, ALL * 2);
    int wrong = 0, spilt = 0;
    float *out = gt_alloc((ALL + 8) * 4);
    GT_OK(gpu_dnn_widen(type, from, ALL, out, NULL));
    float *got = gt_floats(out, ALL);
    for (int i = 0; i < ALL; i++) {
        const float want = type == GPU_BF16 ? gt_from_bf16((uint16_t)i) : gt_from_f16((uint16_t)i);
        wrong += isnan(want) ? !isnan(got[i]) : got[i] != want;
    }
    free(got);
    for (size_t count = 1; count < 40; count++) {
        GT_OK(cudaMemset(out, 0xff, 48 * 4));
        GT_OK(gpu_dnn_widen(type, from, count, out, NULL));
        got = gt_floats(out, 48);
        wrong += got[count - 1] != (type == GPU_BF16 ? gt_from_bf16((uint16_t)(count - 1))
                                                     : gt_from_f16((uint16_t)(count - 1)));
        spilt += !isnan(got[count]);
        free(got);
    }
    OK(wrong == 0 && spilt == 0, "%s: every value is widened, and none behind the end",
       gt_type_names[type]);
    free(values);
    free(bits);
    gt_release_all();
}

int main(void) {
    scale();
    stats();
    sums();
    widen(GPU_BF16);
    widen(GPU_F16);
    OK(gpu_dnn_widen(GPU_F32, NULL, 8, NULL, NULL) == cudaErrorInvalidValue,
       "fp32 has nothing to widen");
    return tap_done();
}
