/* SPDX-License-Identifier: Apache-2.0
 *
 * The join of residual blocks against the reference: values, both gradients, both norms' sums.
 */
#include "gpu/slice_test.h"

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

static void check_forward(const struct st_slice *out, const float *want, double terms,
                          const char *what) {
    const size_t channels = (size_t)out->channels, count = st_pixels(out) * channels;
    float *now = st_fetch(out);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        const double v = (double)st_at(out, now, i / channels, (int)(i % channels));
        const double w = (double)want[i];
        wrong += !(fabs(v - w) <= st_bound(out->b.type, w, terms));
    }
    OK(wrong == 0, "%s: values", what);
    OK(st_strays(out, now) == 0, "%s: channels beside the slice stay", what);
}

/* dU, which both branches get: the taken gradient where the stored output is above 0. */
static double *masked(const struct st_deferred_grad *deferred_grad, const struct st_slice *out) {
    const size_t channels = (size_t)out->channels, count = st_pixels(out) * channels;
    double *du = gt_take(count, sizeof *du);
    for (size_t i = 0; i < count; i++) {
        const size_t p = i / channels;
        const int c = (int)(i % channels);
        du[i] = st_at(out, out->b.host, p, c) > 0 ? (double)st_take(deferred_grad, out, p, c) : 0;
    }
    return du;
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
        st_check_whole(in, n, du, &g, &sums, 41, branch);
    snprintf(branch, sizeof branch, "%s, side", what);
    st_check_backward(du, side, side_n, &side_g, s->side_add, &side_sums, 43, branch);
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
    float *want = gt_host(count);
    const struct chex_ref_bn bn = st_ref_bn(&n);
    struct chex_ref_bn side_bn = {0};
    if (s->side_normed)
        side_bn = st_ref_bn(&side_n);
    const struct chex_ref_map x = st_map(&in), y = st_map(&side), to = st_packed(&out, want);
    chex_ref_residual_add_forward(&st_ref, &x, &bn, &y, s->side_normed ? &side_bn : NULL, &to);
    GT_OK(gpu_residual_add_forward(&in.map, &n.device, &side.map, &side_n.device, &out.map, 0));
    /* a x, its mean and the other branch's: some units each. */
    check_forward(&out, want, 8, what);
    out.b.host = gt_download_as(type, out.b.device, out.b.count);
    backward(s, &out, &in, &n, &side, &side_n, what);
    gt_release_all();
}

int main(void) {
    st_begin(1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        one(&shapes[i]);
    return st_done();
}
