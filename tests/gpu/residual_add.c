/* SPDX-License-Identifier: Apache-2.0
 *
 * The join of residual blocks against the reference: values, both gradients, both norms' sums.
 */
#include "engine/ref/ref_ops.h"
#include "slice_test.h"

static struct chex_ref_ctx ref;

struct shape {
    enum gpu_type type;
    int n, hw, channels, pitch, first;
    bool side_normed, more, add, side_add;
};

static const struct shape shapes[] = {
    {GPU_BF16, 3, 7, 256, 256, 0, true, false, false, false}, /* first block of a stage */
    {GPU_BF16, 3, 10, 64, 128, 32, false, false, false, true},
    {GPU_F32, 1, 7, 96, 160, 64, true, true, true, false},
    {GPU_F16, 3, 3, 64, 96, 32, false, true, true, false},
    {GPU_F32, 3, 1, 32, 64, 0, false, true, false, true},
    {GPU_F16, 1, 10, 2048, 2048, 0, true, false, false, false},
    {GPU_F32, 2, 100, 64, 64, 0, true, true, false, true}, /* blocks go round twice */
};

/* The reference takes statistics in double. */
static struct chex_ref_bn reference_norm(const struct st_norm *n) {
    const size_t channels = (size_t)n->channels;
    double *mean = malloc(2 * channels * sizeof *mean);
    if (!mean)
        exit(1);
    for (size_t c = 0; c < channels; c++) {
        mean[c] = (double)n->mean[c];
        mean[channels + c] = (double)n->inv[c];
    }
    return (struct chex_ref_bn){mean, mean + channels, n->gamma, n->beta};
}

/* The slice as the reference sees it. */
static struct chex_ref_map seen(const struct st_slice *s) {
    return (struct chex_ref_map){s->b.host + s->first, s->b.n,    s->b.hw, s->b.hw,
                                 s->channels,          s->b.pitch};
}

static void check_forward(const struct st_slice *out, const float *want, double terms,
                          const char *what) {
    const size_t channels = (size_t)out->channels, count = st_pixels(out) * channels;
    float *now = gt_download_as(out->b.type, out->b.device, out->b.count);
    gt_digest_add(now, out->b.count * sizeof *now);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        const double v = (double)st_at(out, now, i / channels, (int)(i % channels));
        const double w = (double)want[i];
        wrong += !(fabs(v - w) <= st_bound(out->b.type, w, terms));
    }
    OK(wrong == 0, "%s: values", what);
    OK(st_strays(out, now) == 0, "%s: channels beside the slice stay", what);
    free(now);
}

/* dU, which both branches get: the taken gradient where the stored output is above 0. */
static double *masked(const struct st_deferred_grad *deferred_grad, const struct st_slice *out) {
    const size_t channels = (size_t)out->channels, count = st_pixels(out) * channels;
    double *du = malloc(count * sizeof *du);
    if (!du)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        const size_t p = i / channels;
        const int c = (int)(i % channels);
        du[i] = st_at(out, out->b.host, p, c) > 0 ? (double)st_take(deferred_grad, out, p, c) : 0;
    }
    return du;
}

/* In fp32 the whole gradient of `in`, A dU + B x + C, against the reference's batch norm: within
 * 1e-5 of its size. */
static void check_whole(const struct st_slice *in, const struct st_norm *n, const double *du,
                        const struct st_slice *g, const struct gpu_sums *sums, uint64_t seed,
                        const char *what) {
    const size_t channels = (size_t)in->channels, count = st_pixels(in) * channels;
    float *dy = malloc(count * sizeof *dy), *is = malloc(count * sizeof *is);
    float *dx = calloc(count, sizeof *dx), *vectors = malloc(2 * channels * sizeof *vectors);
    double *want = malloc(count * sizeof *want);
    if (!dy || !is || !dx || !vectors || !want)
        exit(1);
    for (size_t i = 0; i < count; i++)
        dy[i] = (float)du[i];
    const struct chex_ref_map x = seen(in);
    const struct chex_ref_map from = {dy, in->b.n, in->b.hw, in->b.hw, in->channels, in->channels};
    struct chex_ref_map to = from;
    to.data = dx;
    const struct chex_ref_bn bn = reference_norm(n);
    double *scratch = malloc(2 * channels * sizeof *scratch);
    if (!scratch)
        exit(1);
    chex_ref_bn_backward(&ref, &x, &bn, &from, NULL, scratch, vectors, vectors + channels, &to,
                         NULL);
    free(scratch);
    float *now = gt_floats(g->b.device, g->b.count);
    float *b = gt_floats(sums->bsum, channels), *k = gt_floats(sums->csum, channels);
    for (size_t i = 0; i < count; i++) {
        const size_t p = i / channels, c = i % channels;
        const double b0 = (double)(0.01f * gt_normal(seed, c));
        const double c0 = (double)(0.01f * gt_normal(seed, channels + c));
        is[i] = (float)((double)st_at(g, now, p, (int)c) + ((double)k[c] - c0) +
                        ((double)b[c] - b0) * (double)st_at(in, in->b.host, p, (int)c));
        want[i] = (double)dx[i];
    }
    const double off = gt_rel_l2(is, want, count);
    OK(off <= 1e-5, "%s: A dU + B x + C is the batch norm's gradient to %.1e", what, off);
    free((void *)bn.mean);
    free(now);
    free(b);
    free(k);
    free(dy);
    free(is);
    free(dx);
    free(vectors);
    free(want);
}

static struct st_slice target(const struct shape *s, bool add, uint64_t seed) {
    struct st_slice g =
        st_slice(s->type, s->n, s->hw, s->pitch, s->first, s->channels, seed, 0, 0.5f);
    if (!add)
        st_poison(&g);
    return g;
}

static void backward(const struct shape *s, const struct st_slice *out, const struct st_slice *in,
                     const struct st_norm *n, const struct st_slice *side,
                     const struct st_norm *side_n, const char *what) {
    struct st_deferred_grad deferred_grad = st_deferred_grad(out, s->more, 31);
    struct st_slice g = target(s, s->add, 37), side_g = target(s, s->side_add, 39);
    const struct gpu_sums sums = st_sums(n, 41), side_sums = st_sums(side_n, 43);
    GT_OK(gpu_residual_add_backward(&deferred_grad.device, &out->map, &in->map, &n->device, &g.map,
                                    s->add, &sums, &side->map, &side_n->device, &side_g.map,
                                    s->side_add, &side_sums, 0));
    double *du = masked(&deferred_grad, out);
    char branch[96];
    snprintf(branch, sizeof branch, "%s, in", what);
    st_check_backward(du, in, n, &g, s->add, &sums, 41, branch);
    if (s->type == GPU_F32 && !s->add)
        check_whole(in, n, du, &g, &sums, 41, branch);
    snprintf(branch, sizeof branch, "%s, side", what);
    st_check_backward(du, side, side_n, &side_g, s->side_add, &side_sums, 43, branch);
    free(du);
    free(deferred_grad.bsum);
    free(deferred_grad.g.b.host);
    free(g.b.host);
    free(side_g.b.host);
}

static void one(const struct shape *s) {
    char what[64];
    snprintf(what, sizeof what, "%s n %d hw %d c %d%s", gt_type_names[s->type], s->n, s->hw,
             s->channels, s->side_normed ? " projected" : "");
    const enum gpu_type type = s->type;
    struct st_slice in =
        st_slice(type, s->n, s->hw, s->pitch, s->first, s->channels, 11, 0.8f, 1.5f);
    struct st_slice side =
        st_slice(type, s->n, s->hw, s->pitch, s->first, s->channels, 12, 0.3f, 1);
    struct st_slice out = st_slice(type, s->n, s->hw, s->pitch, s->first, s->channels, 13, 0, 1);
    st_poison(&out);
    struct st_norm n = st_norm(&in, false, 17);
    struct st_norm side_n = s->side_normed ? st_norm(&side, false, 19) : st_no_norm(s->channels);
    const size_t count = st_pixels(&in) * (size_t)s->channels;
    float *want = malloc(count * sizeof *want);
    if (!want)
        exit(1);
    const struct chex_ref_bn bn = reference_norm(&n);
    struct chex_ref_bn side_bn = {0};
    if (s->side_normed)
        side_bn = reference_norm(&side_n);
    const struct chex_ref_map x = seen(&in), y = seen(&side);
    const struct chex_ref_map to = {want, s->n, s->hw, s->hw, s->channels, s->channels};
    chex_ref_residual_add_forward(&ref, &x, &bn, &y, s->side_normed ? &side_bn : NULL, &to);
    GT_OK(gpu_residual_add_forward(&in.map, &n.device, &side.map, &side_n.device, &out.map, 0));
    /* a x, its mean and the other branch's: some units each. */
    check_forward(&out, want, 8, what);
    free(out.b.host);
    out.b.host = gt_download_as(type, out.b.device, out.b.count);
    backward(s, &out, &in, &n, &side, &side_n, what);
    free((void *)bn.mean);
    free((void *)side_bn.mean);
    free(want);
    free(n.mean);
    free(side_n.mean);
    free(in.b.host);
    free(side.b.host);
    free(out.b.host);
    gt_release_all();
}

int main(void) {
    struct chex_error err;
    BAIL_UNLESS(chex_ref_ctx_init(&ref, 1, false, 1, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        one(&shapes[i]);
    chex_ref_ctx_release(&ref);
    return st_done();
}
