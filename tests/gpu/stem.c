/* SPDX-License-Identifier: Apache-2.0
 *
 * The two-channel stem: against the reference's loops on the two channels (operands rounded to the
 * type), and against the three-channel convolution that it replaces.
 *
 * Bounds. As in conv_3x3.c: rounding the output to bf16 makes 1.7e-3 in L2 (fp16: 2.1e-4), and half
 * a unit in an element; dW 1e-5. Against three channels in fp32 the folded weights' rounding adds
 * as much again: 4e-3 (fp16: 6e-4).
 */
#include "gpu/slice_test.h"

enum { OUT = 64, FIRST = 32, PITCH = FIRST + OUT + 32 };

struct shape {
    enum gpu_type type;
    int n, size;
    bool deferred_grad;
    int sms;
};

static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
static const char *name(const struct shape *s) {
    static char text[96];
    snprintf(text, sizeof text, "%s, %d of %d px%s", gt_type_names[s->type], s->n, s->size,
             s->deferred_grad ? "" : ", bare g");
    return text;
}

struct world {
    struct shape s;
    int hw;
    size_t pixels, image_pixels;
    float *grey;    /* whole grey values, as they come from files */
    float *two;     /* u and 1, rounded */
    float *weight;  /* (64, 3, 7, 7) */
    float *folded2; /* (64, 2, 7, 7), rounded */
    float *device_grey, *device_weight;
    void *folded;
};

static double folded_u(const struct world *w, int o, int k) {
    double sum = 0;
    for (int c = 0; c < 3; c++)
        sum += (double)w->weight[(o * 3 + c) * 49 + k] / (255 * (double)std[c]);
    return sum;
}
static double folded_1(const struct world *w, int o, int k) {
    double sum = 0;
    for (int c = 0; c < 3; c++)
        sum += (double)w->weight[(o * 3 + c) * 49 + k] * (128.0 / 255 - (double)mean[c]) /
               (double)std[c];
    return sum;
}

static void make_weights(struct world *w) {
    float *flat = gt_host(OUT * 147);
    w->weight = gt_normals(OUT * 147, 7, 0.01f, 0.1f);
    w->folded2 = gt_host(OUT * 98);
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < 49; k++) {
            for (int c = 0; c < 3; c++)
                flat[(o * 49 + k) * 3 + c] = w->weight[(o * 3 + c) * 49 + k];
            w->folded2[o * 98 + k] = gt_rounded(w->s.type, (float)folded_u(w, o, k));
            w->folded2[o * 98 + 49 + k] = gt_rounded(w->s.type, (float)folded_1(w, o, k));
        }
    w->device_weight = gt_upload(flat, OUT * 147 * sizeof *flat);
    w->folded = gt_alloc(gpu_stem_folded_bytes());
    GT_OK(gpu_stem_fold(w->device_weight, mean, std, w->s.type, w->folded, NULL));
}

static struct world world(struct shape s) {
    struct world w = {.s = s, .hw = (s.size - 1) / 2 + 1};
    w.pixels = (size_t)s.n * (size_t)(w.hw * w.hw);
    w.image_pixels = (size_t)s.n * (size_t)(s.size * s.size);
    w.grey = gt_host(w.image_pixels);
    w.two = gt_host(2 * w.image_pixels);
    for (size_t i = 0; i < w.image_pixels; i++) {
        const uint32_t random = chex_rng(5, CHEX_RNG_TEST, i, 0).v[0];
        w.grey[i] = (float)(random % 256) / 255.0f;
        w.two[2 * i] = gt_rounded(s.type, fmaf(255.0f, w.grey[i], -128.0f));
        w.two[2 * i + 1] = 1;
    }
    w.device_grey = gt_upload(w.grey, w.image_pixels * sizeof *w.grey);
    make_weights(&w);
    return w;
}

static struct chex_ref_map map(int n, int hw, int channels, float *data) {
    return (struct chex_ref_map){data, n, hw, hw, channels, channels};
}
static const struct chex_ref_window WINDOW = {7, 2, 3};

static double relative(const float *a, const float *b, size_t count) {
    return gt_rel_l2(a, gt_doubles(b, count), count);
}

static void check_forward(const struct world *w, const float *got) {
    const bool bf16 = w->s.type == GPU_BF16;
    const size_t count = w->pixels * OUT;
    float *want = gt_host(count), *three = gt_host(3 * w->image_pixels);
    const struct chex_ref_map x2 = map(w->s.n, w->s.size, 2, w->two);
    const struct chex_ref_map x3 = map(w->s.n, w->s.size, 3, three);
    const struct chex_ref_map y = map(w->s.n, w->hw, OUT, want);
    chex_ref_conv_forward(&st_ref, &x2, w->folded2, WINDOW, &y);
    double worst = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += (double)want[i] * (double)want[i];
    const double rms = sqrt(squares / (double)count);
    for (size_t i = 0; i < count; i++) {
        const double share = fabs((double)got[i] - (double)want[i]) /
                             ((bf16 ? 1.0 / 128 : 1.0 / 1024) * fabs((double)want[i]) + 1e-4 * rms);
        worst = share > worst || isnan(share) ? share : worst;
    }
    const double error = relative(got, want, count);
    OK(error <= (bf16 ? 2.5e-3 : 4e-4) && worst <= 1, "%s: forward (L2 %.2g, worst %.2f)",
       name(&w->s), error, worst);
    chex_ref_image(&st_ref, w->grey, mean, std, &x3);
    chex_ref_conv_forward(&st_ref, &x3, w->weight, WINDOW, &y);
    const double off = relative(got, want, count);
    OK(off <= (bf16 ? 4e-3 : 6e-4), "%s: forward is that of three channels (L2 %.2g)", name(&w->s),
       off);
}

static struct gpu_device device_of(const struct world *w) {
    return (struct gpu_device){
        .capability = 80, .sms = w->s.sms, .shared_max = 99 << 10, .l2_bytes = 1 << 25};
}

static void forward(struct world *w) {
    const struct gpu_device device = device_of(w);
    const struct st_slice out = st_slice(w->s.type, w->s.n, w->hw, PITCH, FIRST, OUT, 3, 0, 1);
    struct gpu_stats stats = st_stats(OUT);
    GT_OK(gpu_stem_forward(&device, w->device_grey, w->s.n, w->s.size, w->folded, &out.map, &stats,
                           NULL));
    const float *all = st_fetch(&out);
    OK(st_strays(&out, all) == 0, "%s: the other channels are left alone", name(&w->s));
    check_forward(w, st_values(&out, all));
    st_check_stats(&out, all, &stats, name(&w->s));

    stats.partial = NULL;
    GT_OK(gpu_stem_forward(&device, w->device_grey, w->s.n, w->s.size, w->folded, &out.map, &stats,
                           NULL));
    const float *again = gt_download_as(w->s.type, out.b.device, out.b.count);
    OK(memcmp(all, again, out.b.count * sizeof *all) == 0, "%s: the same without statistics",
       name(&w->s));
}

/* dw of three channels from the reference's two. */
static double *unfolded(struct world *w, float *dy) {
    float *two = gt_host(OUT * 98);
    double *want = gt_take(OUT * 147, sizeof *want);
    const struct chex_ref_map x = map(w->s.n, w->s.size, 2, w->two);
    const struct chex_ref_map y = map(w->s.n, w->hw, OUT, dy);
    chex_ref_conv_backward_weight(&st_ref, &x, &y, WINDOW, two);
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < 49; k++)
            for (int c = 0; c < 3; c++) {
                const double u = (double)two[o * 98 + k], one = (double)two[o * 98 + 49 + k];
                want[(o * 49 + k) * 3 + c] =
                    ((u + 128 * one) / 255 - (double)mean[c] * one) / (double)std[c];
            }
    return want;
}

static void backward(struct world *w) {
    const struct gpu_device device = device_of(w);
    const struct st_slice g = st_slice(w->s.type, w->s.n, w->hw, PITCH, FIRST, OUT, 21, 0.1f, 1);
    const struct st_slice x =
        st_slice(w->s.type, w->s.n, w->hw, PITCH + 32, FIRST, OUT, 22, 0.4f, 1);
    const float *bsum = gt_normals(OUT, 23, 0, 0.2f), *csum = gt_normals(OUT, 24, 0, 0.2f);
    float *dy = st_values(&g, g.b.host);
    for (size_t i = 0; w->s.deferred_grad && i < w->pixels * OUT; i++) {
        const size_t c = i % OUT;
        const float bx = st_at(&x, x.b.host, i / OUT, (int)c);
        dy[i] = gt_rounded(w->s.type, fmaf(bsum[c], bx, dy[i]) + csum[c]);
    }
    struct gpu_deferred_grad deferred_grad = {.g = g.map};
    if (w->s.deferred_grad)
        deferred_grad = (struct gpu_deferred_grad){g.map, x.map, gt_upload(bsum, OUT * 4),
                                                   gt_upload(csum, OUT * 4)};
    float *device_dw = gt_alloc(OUT * 147 * sizeof(float));
    void *workspace = gt_alloc(gpu_stem_workspace(&device, w->s.n, w->s.size));
    GT_OK(gpu_stem_backward(&device, w->device_grey, w->s.n, w->s.size, &deferred_grad, mean, std,
                            device_dw, workspace, NULL));
    float *got = gt_floats(device_dw, OUT * 147);
    double *want = unfolded(w, dy);
    const double error = gt_rel_l2(got, want, OUT * 147);
    gt_digest_add(got, OUT * 147 * sizeof *got);
    OK(error <= 1e-5, "%s: dW (L2 %.2g)", name(&w->s), error);
}

static int attribute(enum cudaDeviceAttr which) {
    int value = 0;
    GT_OK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

int main(void) {
    static const struct shape shapes[] = {
        {GPU_BF16, 1, 1, true, 4},   {GPU_BF16, 3, 7, true, 4}, {GPU_F16, 1, 10, false, 1},
        {GPU_BF16, 3, 33, true, 2},  {GPU_F16, 1, 65, true, 8}, {GPU_BF16, 1, 70, true, 3},
        {GPU_BF16, 2, 64, false, 2},
    };
    st_begin(OUT * 147);
    if (attribute(cudaDevAttrComputeCapabilityMajor) < 8)
        SKIP_ALL("capability 8.0 is needed");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (TAP_SLOW_BUILD && shapes[i].size > 40) {
            printf("# %s: left out of slow builds\n", name(&shapes[i]));
            continue;
        }
        struct world w = world(shapes[i]);
        forward(&w);
        backward(&w);
        gt_release_all();
    }
    return st_done();
}
