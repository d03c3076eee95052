/* SPDX-License-Identifier: Apache-2.0
 *
 * The two-channel stem: against the reference's loops on the two channels (operands rounded to the
 * type), and against the three-channel convolution that it replaces.
 *
 * Bounds. As in conv_3x3.c: rounding the output to bf16 makes 1.7e-3 in L2 (fp16: 2.1e-4), and half
 * a unit in an element; dW 1e-5. Against three channels in fp32 the folded weights' rounding adds
 * as much again: 4e-3 (fp16: 6e-4).
 */
#include "engine/ref/ref_ops.h"
#include "gpu/gpu_test.h"

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
    struct chex_ref_ctx ref;
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
    w->weight = gt_host(OUT * 147);
    w->folded2 = gt_host(OUT * 98);
    for (int i = 0; i < OUT * 147; i++)
        w->weight[i] = 0.01f + 0.1f * gt_normal(7, (uint64_t)i);
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
    free(flat);
}

static struct world world(struct shape s) {
    struct world w = {.s = s, .hw = (s.size - 1) / 2 + 1};
    struct chex_error err = {0};
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
    BAIL_UNLESS(chex_ref_ctx_init(&w.ref, 1, false, OUT * 147, &err) == CHEX_OK, "%s", err.text);
    return w;
}

static void release(struct world *w) {
    free(w->grey);
    free(w->two);
    free(w->weight);
    free(w->folded2);
    chex_ref_ctx_release(&w->ref);
    gt_release_all();
}

static struct chex_ref_map map(int n, int hw, int channels, float *data) {
    return (struct chex_ref_map){data, n, hw, hw, channels, channels};
}
static const struct chex_ref_window WINDOW = {7, 2, 3};

static double relative(const float *a, const float *b, size_t count) {
    double d = 0, s = 0;
    for (size_t i = 0; i < count; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        s += (double)b[i] * (double)b[i];
    }
    return sqrt(d / s);
}

static void check_forward(struct world *w, const float *got) {
    const bool bf16 = w->s.type == GPU_BF16;
    const size_t count = w->pixels * OUT;
    float *want = gt_host(count), *three = gt_host(3 * w->image_pixels);
    const struct chex_ref_map x2 = map(w->s.n, w->s.size, 2, w->two);
    const struct chex_ref_map x3 = map(w->s.n, w->s.size, 3, three);
    const struct chex_ref_map y = map(w->s.n, w->hw, OUT, want);
    chex_ref_conv_forward(&w->ref, &x2, w->folded2, WINDOW, &y);
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
    chex_ref_image(&w->ref, w->grey, mean, std, &x3);
    chex_ref_conv_forward(&w->ref, &x3, w->weight, WINDOW, &y);
    const double off = relative(got, want, count);
    OK(off <= (bf16 ? 4e-3 : 6e-4), "%s: forward is that of three channels (L2 %.2g)", name(&w->s),
       off);
    free(want);
    free(three);
}

static void check_stats(const struct world *w, const float *y, const struct gpu_stats *stats) {
    float *m = gt_floats(stats->mean, OUT), *v = gt_floats(stats->var, OUT);
    float *inv = gt_floats(stats->inv, OUT);
    double worst = 0;
    for (int c = 0; c < OUT; c++) {
        double sum = 0, squares = 0;
        for (size_t p = 0; p < w->pixels; p++)
            sum += (double)y[p * OUT + (size_t)c];
        const double centre = sum / (double)w->pixels;
        for (size_t p = 0; p < w->pixels; p++) {
            const double d = (double)y[p * OUT + (size_t)c] - centre;
            squares += d * d;
        }
        const double var = squares / (double)w->pixels;
        /* A variance far below the mean's square is a difference of fp32 sums. */
        const double errors[] = {
            fabs((double)m[c] - centre) / (sqrt(var) + 0.1 * fabs(centre)),
            fabs((double)v[c] - var) / (var + 0.1 * centre * centre),
            fabs((double)inv[c] * sqrt((double)v[c] + 1e-5) - 1),
        };
        for (int i = 0; i < 3; i++)
            worst = errors[i] > worst || isnan(errors[i]) ? errors[i] : worst;
    }
    gt_digest_add(m, OUT * sizeof *m);
    gt_digest_add(v, OUT * sizeof *v);
    unsigned ticket = 1;
    gt_download(&ticket, stats->ticket, sizeof ticket);
    OK(worst <= 1e-5 && ticket == 0, "%s: statistics (worst %.2g)", name(&w->s), worst);
    free(m);
    free(v);
    free(inv);
}

static struct gpu_device device_of(const struct world *w) {
    return (struct gpu_device){
        .capability = 80, .sms = w->s.sms, .shared_max = 99 << 10, .l2_bytes = 1 << 25};
}

static void forward(struct world *w) {
    const struct gpu_device device = device_of(w);
    struct gt_buffer out = gt_buffer(w->s.type, w->s.n, w->hw, PITCH, 3, 0, 1);
    const struct gpu_map slice = gt_slice(&out, FIRST, OUT);
    struct gpu_stats stats = {.partial = gt_alloc((size_t)GPU_MAX_BLOCKS * 2 * OUT * 4),
                              .ticket = gt_zeros(GPU_TICKETS * sizeof(unsigned)),
                              .mean = gt_alloc(OUT * 4),
                              .var = gt_alloc(OUT * 4),
                              .inv = gt_alloc(OUT * 4),
                              .eps = 1e-5f};
    GT_OK(gpu_stem_forward(&device, w->device_grey, w->s.n, w->s.size, w->folded, &slice, &stats,
                           NULL));
    float *all = gt_download_as(w->s.type, out.device, out.count), *y = gt_host(w->pixels * OUT);
    bool rest = true;
    for (size_t i = 0; i < out.count; i++) {
        const size_t c = i % PITCH;
        if (c < FIRST || c >= FIRST + OUT)
            rest &= all[i] == out.host[i];
        else
            y[i / PITCH * OUT + c - FIRST] = all[i];
    }
    OK(rest, "%s: the other channels are left alone", name(&w->s));
    gt_digest_add(y, w->pixels * OUT * sizeof *y);
    check_forward(w, y);
    check_stats(w, y, &stats);

    stats.partial = NULL;
    GT_OK(gpu_stem_forward(&device, w->device_grey, w->s.n, w->s.size, w->folded, &slice, &stats,
                           NULL));
    float *again = gt_download_as(w->s.type, out.device, out.count);
    OK(memcmp(all, again, out.count * sizeof *all) == 0, "%s: the same without statistics",
       name(&w->s));
    free(all);
    free(again);
    free(y);
    free(out.host);
}

/* dw of three channels from the reference's two. */
static double *unfolded(struct world *w, float *dy) {
    float *two = gt_host(OUT * 98);
    double *want = calloc(OUT * 147, sizeof *want);
    const struct chex_ref_map x = map(w->s.n, w->s.size, 2, w->two);
    const struct chex_ref_map y = map(w->s.n, w->hw, OUT, dy);
    chex_ref_conv_backward_weight(&w->ref, &x, &y, WINDOW, two);
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < 49; k++)
            for (int c = 0; c < 3; c++) {
                const double u = (double)two[o * 98 + k], one = (double)two[o * 98 + 49 + k];
                want[(o * 49 + k) * 3 + c] =
                    ((u + 128 * one) / 255 - (double)mean[c] * one) / (double)std[c];
            }
    free(two);
    return want;
}

static void backward(struct world *w) {
    const struct gpu_device device = device_of(w);
    struct gt_buffer g = gt_buffer(w->s.type, w->s.n, w->hw, PITCH, 21, 0.1f, 1);
    struct gt_buffer x = gt_buffer(w->s.type, w->s.n, w->hw, PITCH + 32, 22, 0.4f, 1);
    float bsum[OUT], csum[OUT], *dy = gt_host(w->pixels * OUT);
    for (int c = 0; c < OUT; c++) {
        bsum[c] = 0.2f * gt_normal(23, (uint64_t)c);
        csum[c] = 0.2f * gt_normal(24, (uint64_t)c);
    }
    for (size_t i = 0; i < w->pixels * OUT; i++) {
        const size_t p = i / OUT, c = i % OUT;
        const float gv = g.host[p * PITCH + FIRST + c], xv = x.host[p * (PITCH + 32) + FIRST + c];
        dy[i] = w->s.deferred_grad ? gt_rounded(w->s.type, fmaf(bsum[c], xv, gv) + csum[c]) : gv;
    }
    const struct gpu_deferred_grad deferred_grad = {
        .g = gt_slice(&g, FIRST, OUT),
        .x = w->s.deferred_grad ? gt_slice(&x, FIRST, OUT) : (struct gpu_map){0},
        .bsum = w->s.deferred_grad ? gt_upload(bsum, sizeof bsum) : NULL,
        .csum = w->s.deferred_grad ? gt_upload(csum, sizeof csum) : NULL,
    };
    float *device_dw = gt_alloc(OUT * 147 * sizeof(float));
    void *workspace = gt_alloc(gpu_stem_workspace(&device, w->s.n, w->s.size));
    GT_OK(gpu_stem_backward(&device, w->device_grey, w->s.n, w->s.size, &deferred_grad, mean, std,
                            device_dw, workspace, NULL));
    float *got = gt_floats(device_dw, OUT * 147);
    double *want = unfolded(w, dy);
    const double error = gt_rel_l2(got, want, OUT * 147);
    gt_digest_add(got, OUT * 147 * sizeof *got);
    OK(error <= 1e-5, "%s: dW (L2 %.2g)", name(&w->s), error);
    free(got);
    free(want);
    free(dy);
    free(g.host);
    free(x.host);
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
        release(&w);
    }
    printf("# digest %016llx\n", (unsigned long long)gt_digest);
    return tap_done();
}
