/* SPDX-License-Identifier: Apache-2.0
 *
 * The head and the loss against the reference, in all types of the map.
 */
#include "gpu/slice_test.h"
#include "loss_cases.h"

struct shape {
    enum gpu_type type;
    int n, hw, channels, pitch, first, classes;
    bool normed, relu, add;
};

static const struct shape shapes[] = {
    {GPU_BF16, 3, 7, 1024, 1024, 0, 14, true, true, false}, /* DenseNet-121 */
    {GPU_F32, 1, 7, 160, 192, 32, 14, true, true, false},
    {GPU_F16, 3, 3, 64, 128, 64, 5, true, true, true},
    {GPU_F32, 11, 1, 96, 96, 0, 1, true, false, true},
    {GPU_BF16, 3, 10, 2048, 2048, 0, 14, false, false, false}, /* ResNet-50: no norm before it */
    {GPU_F32, 1, 3, 32, 64, 32, 20, false, false, true},
};

/* Sums in fp32 of some hundred terms: relative L2 within 1e-6 each way. */
static void near(const float *device, const float *want, size_t count, const char *name,
                 const char *what) {
    float *is = gt_floats(device, count);
    gt_digest_add(is, count * sizeof *is);
    const double off = gt_rel_l2(is, gt_doubles(want, count), count);
    OK(off <= 1e-6, "%s: %s within %.1e", what, name, off);
}

static void one(const struct shape *s) {
    char what[64];
    snprintf(what, sizeof what, "%s n %d hw %d c %d", gt_type_names[s->type], s->n, s->hw,
             s->channels);
    const size_t n = (size_t)s->n, channels = (size_t)s->channels, classes = (size_t)s->classes;
    struct st_slice in =
        st_slice(s->type, s->n, s->hw, s->pitch, s->first, s->channels, 3, 0.7f, 1);
    struct st_norm norm = s->normed ? st_norm(&in, s->relu, 5) : st_no_norm(s->channels);
    const size_t count = st_pixels(&in) * channels;
    float *act = st_activated(&in, &norm), *dx = gt_host(count);
    float *weight = gt_normals(classes * channels, 7, 0, 0.1f);
    float *bias = gt_normals(classes, 9, 0, 1), *pooled = gt_host(n * channels);
    float *logits = gt_host(n * classes), *dlogits = gt_normals(n * classes, 11, 0, 0.1f);
    float *dweight = gt_host(classes * channels), *dbias = gt_host(classes);
    struct chex_ref_map map = st_packed(&in, act);
    chex_ref_head_forward(&st_ref, &map, weight, bias, s->classes, pooled, logits);
    map.data = dx;
    chex_ref_head_backward(&st_ref, pooled, dlogits, weight, s->classes, dweight, dbias, &map);

    float *d_weight = gt_upload(weight, classes * channels * 4);
    float *d_bias = gt_upload(bias, classes * 4), *d_pooled = gt_alloc(n * channels * 4);
    float *d_logits = gt_alloc(n * classes * 4), *d_dweight = gt_alloc(classes * channels * 4);
    float *d_dlogits = gt_upload(dlogits, n * classes * 4), *d_dbias = gt_alloc(classes * 4);
    float *d_dpooled = gt_alloc(n * channels * 4);
    GT_OK(gpu_head_forward(&in.map, &norm.device, d_weight, d_bias, s->classes, d_pooled, d_logits,
                           0));
    near(d_pooled, pooled, n * channels, "pooled", what);
    near(d_logits, logits, n * classes, "logits", what);

    struct st_slice g =
        st_slice(s->type, s->n, s->hw, s->pitch, s->first, s->channels, 13, 0, 0.1f);
    if (!s->add)
        st_poison(&g);
    const struct gpu_sums sums = st_sums(&norm, 15);
    GT_OK(gpu_head_backward(&in.map, &norm.device, d_weight, s->classes, d_pooled, d_dlogits,
                            d_dpooled, d_dweight, d_dbias, &g.map, s->add, &sums, 0));
    near(d_dweight, dweight, classes * channels, "dweight", what);
    near(d_dbias, dbias, classes, "dbias", what);
    /* Of every image its first pixel: all get the same. */
    const size_t pixels = (size_t)(s->hw * s->hw);
    float *dpooled = gt_host(n * channels);
    double *dv = gt_take(count, sizeof *dv);
    for (size_t i = 0; i < n * channels; i++)
        dpooled[i] = dx[i / channels * pixels * channels + i % channels];
    near(d_dpooled, dpooled, n * channels, "dpooled", what);
    gt_download(dpooled, d_dpooled, n * channels * 4);
    for (size_t i = 0; i < count; i++)
        dv[i] = (double)dpooled[i / (pixels * channels) * channels + i % channels];
    st_check_backward(dv, &in, &norm, &g, s->add, &sums, 15, what);

    gt_release_all();
}

/* The terms of a loss in device memory, as the engine has them. */
static struct gpu_loss_terms upload_terms(const struct chex_loss *loss, size_t classes) {
    const struct chex_loss_terms terms = chex_loss_terms_of(loss);
    float *factors = gt_host(2 * GPU_LABELS * classes);
    for (size_t i = 0; i < GPU_LABELS * classes; i++) {
        const struct chex_loss_factors f =
            chex_loss_factors_of(loss, (int)(i / GPU_LABELS), (int)(i % GPU_LABELS) - 1);
        factors[2 * i] = (float)f.pos;
        factors[2 * i + 1] = (float)f.neg;
    }
    const struct gpu_loss_terms out = {
        .factors = gt_upload(factors, 2 * GPU_LABELS * classes * 4),
        .gamma_pos = (float)terms.gamma_pos,
        .gamma_neg = (float)terms.gamma_neg,
        .clip = (float)terms.clip,
        .focused = terms.focused,
    };
    return out;
}

/* Masked labels, saturated logits, a loss scale. */
static void loss(const struct loss_case *c, size_t n, size_t classes, float scale) {
    const size_t count = n * classes;
    float *logits = gt_host(count), *want = gt_host(count);
    int8_t *labels = gt_take(count, 1);
    loss_batch((int)count, logits, labels);
    const double mean = chex_loss_mean(&c->loss, logits, labels, (int)n, (int)classes, want);
    for (size_t i = 0; i < count; i++)
        want[i] *= scale;
    const struct gpu_loss_terms terms = upload_terms(&c->loss, classes);
    float *d_logits = gt_upload(logits, count * 4), *d_dlogits = gt_alloc(count * 4);
    double *d_loss = gt_alloc(sizeof *d_loss), loss = 0;
    const float *d_scale = scale == 1 ? NULL : gt_upload(&scale, 4);
    GT_OK(gpu_loss(d_logits, gt_upload(labels, count), (int)n, (int)classes, &terms, d_scale,
                   d_loss, d_dlogits, 0));
    gt_download(&loss, d_loss, sizeof loss);
    char what[64];
    snprintf(what, sizeof what, "%s of %d x %d", c->name, (int)n, (int)classes);
    /* Terms in fp32 with a few roundings, and functions of a few units in the last place. */
    OK(fabs(loss - mean) <= 5e-7 * mean, "%s: %.9g is %.9g", what, loss, mean);
    near(d_dlogits, want, count, "dlogits", what);
    logits[count - 1] = NAN;
    labels[count - 1] = 0;
    d_logits = gt_upload(logits, count * 4);
    GT_OK(gpu_loss(d_logits, gt_upload(labels, count), (int)n, (int)classes, &terms, d_scale,
                   d_loss, d_dlogits, 0));
    gt_download(&loss, d_loss, sizeof loss);
    OK(isnan(loss) || chex_loss_factors_of(&c->loss, (int)classes - 1, 0).neg <= 0,
       "%s: a NaN shows", what);
    gt_release_all();
}

int main(void) {
    st_begin(1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        one(&shapes[i]);
    loss(&loss_cases[0], 3, 14, 1);
    loss(&loss_cases[0], 300, 14, 65536);
    loss(&loss_cases[0], 5, 1, 1);
    for (int i = 0; i < LOSS_CASES; i++)
        loss(&loss_cases[i], i % 2 ? 1 : 211, LOSS_CLASSES, i % 3 ? 1 : 65536);
    return st_done();
}
