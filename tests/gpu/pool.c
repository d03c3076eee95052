/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling of slices with and without batch norm, in all types, against the reference's loops on the
 * activated map in fp32. Forward differs from them only where a value is stored.
 */
#include "gpu/slice_test.h"

struct shape {
    enum gpu_type type;
    int n, hw, channels, in_pitch, in_first, out_pitch, out_first;
    int kernel, stride, pad; /* stride 0: average pooling */
    bool normed, relu, more, add;
};

static const struct shape shapes[] = {
    /* The networks' own: 3x3 with stride 2 after the stem, 2x2 means between dense blocks. */
    {GPU_BF16, 3, 10, 64, 64, 0, 96, 32, 3, 2, 1, true, true, true, false},
    {GPU_F32, 1, 7, 64, 96, 32, 64, 0, 3, 2, 1, true, true, true, true},
    {GPU_F16, 3, 7, 32, 64, 32, 64, 32, 3, 2, 1, true, true, true, true},
    {GPU_BF16, 1, 1, 64, 64, 0, 64, 0, 3, 2, 1, true, true, false, false},
    {GPU_F32, 1, 4, 96, 128, 32, 96, 0, 3, 2, 1, true, true, false, false},
    {GPU_BF16, 3, 10, 128, 160, 32, 192, 64, 2, 0, 0, true, true, true, true},
    {GPU_F32, 1, 7, 96, 96, 0, 128, 32, 2, 0, 0, true, true, true, false},
    {GPU_F16, 3, 3, 64, 96, 32, 64, 0, 2, 0, 0, true, true, false, false},
    {GPU_F32, 3, 10, 32, 32, 0, 64, 32, 2, 0, 0, true, false, true, true},
    {GPU_BF16, 1, 7, 32, 64, 0, 32, 0, 2, 0, 0, false, false, true, false},
};

static int out_hw(const struct shape *s) {
    return s->stride ? (s->hw + 2 * s->pad - s->kernel) / s->stride + 1 : s->hw / s->kernel;
}

static struct gpu_window window(const struct shape *s) {
    return (struct gpu_window){s->kernel, s->stride, s->pad};
}
static struct chex_ref_window ref_window(const struct shape *s) {
    return (struct chex_ref_window){s->kernel, s->stride, s->pad};
}

/* The tap that won, from the pixel. */
static int tap_of(const struct shape *s, size_t out_pixel, int32_t at) {
    const int hw = out_hw(s), o = (int)(out_pixel % (size_t)(hw * hw));
    const int y = at / s->hw - (o / hw * s->stride - s->pad);
    const int x = at % s->hw - (o % hw * s->stride - s->pad);
    return y * s->kernel + x;
}

static void check_forward(const struct shape *s, const struct st_slice *out, const float *want,
                          const int32_t *arg, const uint8_t *device_arg, const char *what) {
    const size_t channels = (size_t)s->channels, count = st_pixels(out) * channels;
    float *now = st_fetch(out);
    size_t wrong = 0, wrong_arg = 0;
    for (size_t i = 0; i < count; i++) {
        const float v = st_at(out, now, i / channels, (int)(i % channels));
        const double r = (double)gt_rounded(s->type, want[i]);
        /* The maximum is one of the values; a mean is a sum in fp32. */
        const double bound = s->stride ? 0 : st_bound(s->type, r, fabs(r) + 1);
        wrong += isnan(want[i]) ? !isnan(v) : !((double)v == r || fabs((double)v - r) <= bound);
    }
    OK(wrong == 0, "%s: values", what);
    OK(st_strays(out, now) == 0, "%s: channels beside the slice stay", what);
    if (device_arg) {
        uint8_t *at = gt_take(count, 1);
        gt_download(at, device_arg, count);
        for (size_t i = 0; i < count; i++)
            wrong_arg += at[i] != tap_of(s, i / channels, arg[i]);
        OK(wrong_arg == 0, "%s: who won", what);
    }
}

/* The reference's gradient of the activated map. */
static double *reference_dv(const struct shape *s, const struct st_deferred_grad *deferred_grad,
                            const struct st_slice *in, const struct st_slice *out,
                            const int32_t *arg) {
    const size_t channels = (size_t)s->channels, outs = st_pixels(out) * channels;
    const size_t ins = st_pixels(in) * channels;
    float *dy = gt_host(outs), *dx = gt_host(ins);
    for (size_t i = 0; i < outs; i++)
        dy[i] = st_take(deferred_grad, out, i / channels, (int)(i % channels));
    const struct chex_ref_map from = st_packed(out, dy), to = st_packed(in, dx);
    if (s->stride)
        chex_ref_maxpool_backward(&st_ref, &from, arg, ref_window(s), &to);
    else
        chex_ref_avgpool_backward(&st_ref, &from, s->kernel, &to);
    return gt_doubles(dx, ins);
}

static void backward(const struct shape *s, const struct st_slice *in, const struct st_norm *n,
                     const struct st_slice *out, const int32_t *arg, const uint8_t *device_arg,
                     const char *what) {
    struct st_deferred_grad deferred_grad = st_deferred_grad(out, s->more, 31);
    struct st_slice g =
        st_slice(s->type, s->n, s->hw, s->in_pitch, s->in_first, s->channels, 37, 0, 0.5f);
    if (!s->add)
        st_poison(&g);
    const struct gpu_sums sums = st_sums(n, 41);
    if (s->stride)
        GT_OK(gpu_maxpool_backward(&deferred_grad.device, device_arg, window(s), &in->map,
                                   &n->device, &g.map, s->add, &sums, 0));
    else
        GT_OK(gpu_avgpool_backward(&deferred_grad.device, s->kernel, &in->map, &n->device, &g.map,
                                   s->add, &sums, 0));
    st_check_backward(reference_dv(s, &deferred_grad, in, out, arg), in, n, &g, s->add, &sums, 41,
                      what);
}

static void one(const struct shape *s) {
    char what[96];
    snprintf(what, sizeof what, "%s %s n %d hw %d c %d k %d s %d", s->stride ? "max" : "mean",
             gt_type_names[s->type], s->n, s->hw, s->channels, s->kernel, s->stride);
    const int hw = out_hw(s);
    struct st_slice in =
        st_slice(s->type, s->n, s->hw, s->in_pitch, s->in_first, s->channels, 11, 1.5f, 1.0f);
    struct st_slice out =
        st_slice(s->type, s->n, hw, s->out_pitch, s->out_first, s->channels, 13, 0, 1);
    st_poison(&out);
    struct st_norm n = s->normed ? st_norm(&in, s->relu, 17) : st_no_norm(s->channels);
    const struct gpu_stats stats = st_stats(s->channels);
    const size_t count = st_pixels(&out) * (size_t)s->channels;
    uint8_t *device_arg = s->stride ? gt_alloc(count) : NULL;
    int32_t *arg = gt_take(count, sizeof *arg);
    float *want = gt_host(count);
    const struct chex_ref_map from = st_packed(&in, st_activated(&in, &n));
    const struct chex_ref_map to = st_packed(&out, want);
    if (s->stride) {
        chex_ref_maxpool_forward(&st_ref, &from, ref_window(s), &to, arg);
        GT_OK(gpu_maxpool_forward(&in.map, &n.device, window(s), &out.map, device_arg, &stats, 0));
    } else {
        chex_ref_avgpool_forward(&st_ref, &from, s->kernel, &to);
        GT_OK(gpu_avgpool_forward(&in.map, &n.device, s->kernel, &out.map, &stats, 0));
    }
    check_forward(s, &out, want, arg, device_arg, what);
    out.b.host = gt_download_as(s->type, out.b.device, out.b.count);
    st_check_stats(&out, out.b.host, &stats, what);
    backward(s, &in, &n, &out, arg, device_arg, what);
    gt_release_all();
}

/* Ties, infinities and NaN: who wins after a norm that changes nothing and its ReLU, and that
 * inference needs no arg and no statistics. Which windows have no kernel. */
static void winners(void) {
    const struct shape s = {GPU_F32, 1, 3, 32, 32, 0, 32, 0, 3, 1, 1, false, false, false, false};
    struct st_slice in = st_slice(GPU_F32, 1, 3, 32, 0, 32, 3, 0, 1);
    for (size_t p = 0; p < 9; p++)
        for (size_t c = 0; c < 32; c++)
            in.b.host[p * 32 + c] = c % 4 == 0   ? 1.0f
                                    : c % 4 == 1 ? -INFINITY
                                    : c % 4 == 2 ? (p % 4 == 2 ? NAN : (float)p)
                                                 : -(float)(p % 3);
    in.b.device = gt_upload(in.b.host, in.b.count * 4);
    in.map = gt_slice(&in.b, 0, 32);
    struct st_slice out = st_slice(GPU_F32, 1, 3, 32, 0, 32, 5, 0, 1);
    struct st_norm n = st_no_norm(32);
    const struct gpu_stats none = {0};
    float want[9 * 32], ones[32], zeros[32] = {0};
    for (size_t c = 0; c < 32; c++)
        ones[c] = 1;
    for (size_t i = 0; i < in.b.count; i++)
        in.b.host[i] = in.b.host[i] <= 0 ? 0 : in.b.host[i];
    n.device =
        (struct gpu_norm){gt_upload(zeros, sizeof zeros), gt_upload(ones, sizeof ones),
                          gt_upload(ones, sizeof ones), gt_upload(zeros, sizeof zeros), true};
    int32_t arg[9 * 32];
    uint8_t *device_arg = gt_alloc(sizeof want / 4);
    const struct chex_ref_map from = st_packed(&in, in.b.host), to = st_packed(&out, want);
    chex_ref_maxpool_forward(&st_ref, &from, (struct chex_ref_window){3, 1, 1}, &to, arg);
    const struct gpu_window win = {3, 1, 1};
    GT_OK(gpu_maxpool_forward(&in.map, &n.device, win, &out.map, device_arg, &none, 0));
    check_forward(&s, &out, want, arg, device_arg, "first and NaN after a ReLU");
    st_poison(&out);
    GT_OK(gpu_maxpool_forward(&in.map, &n.device, win, &out.map, NULL, &none, 0));
    check_forward(&s, &out, want, arg, NULL, "without arg");
    const struct gpu_window far = {3, 1, 3};
    OK(gpu_maxpool_forward(&in.map, &n.device, far, &out.map, NULL, &none, 0) ==
           cudaErrorInvalidValue,
       "a window that may hold no pixel is refused");
    const struct gpu_window two = {2, 1, 1};
    OK(gpu_maxpool_forward(&in.map, &n.device, two, &out.map, NULL, &none, 0) ==
               cudaErrorInvalidValue &&
           gpu_maxpool_forward(&in.map, NULL, win, &out.map, NULL, &none, 0) ==
               cudaErrorInvalidValue &&
           gpu_avgpool_forward(&in.map, NULL, 3, &out.map, &none, 0) == cudaErrorInvalidValue,
       "windows that the networks do not have are refused");
    gt_release_all();
}

/* More pixels than a grid has rows: blocks go round, and there are many partial sums. */
static void many(void) {
    const int hw = TAP_SLOW_BUILD ? 40 : 200;
    one(&(struct shape){GPU_BF16, 2, hw, 32, 32, 0, 32, 0, 3, 2, 1, true, true, true, false});
}

int main(void) {
    st_begin(1);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        one(&shapes[i]);
    winners();
    many();
    return st_done();
}
