/* SPDX-License-Identifier: Apache-2.0
 *
 * One convolution by an algorithm (struct gpu_conv_algo) against engine/ref, whose sums are double:
 * forward with statistics; backward with mask, sums and dW. Both sides read the same operands,
 * rounded to the type: the activated input and the finished gradient are made here in the kernels'
 * own form, bit for bit. Maps are slices of wider buffers, the rest of which must stay as it is.
 *
 * Bounds. A stored element: one unit in the last place of its type, and 1e-5 of the sum of its
 * terms' magnitudes (a few thousand terms in fp32: their errors grow like sqrt(K) 2^-24). A map in
 * L2: half as much again as one rounding makes. dW and the sums: 1e-5 of the terms' magnitudes. An
 * algorithm that rounds dv and dW to the type once more (ct_algo) may be off by that, too.
 */
#ifndef CHEX_TESTS_GPU_CONV_TEST_H
#define CHEX_TESTS_GPU_CONV_TEST_H

#include "engine/cuda/host/device.h"
#include "gpu/slice_test.h"

struct ct_algo {
    const struct gpu_conv_algo *algo;
    /* The finished gradient g + b x + c of a map, in the algorithm's order of roundings. */
    float (*finish)(float g, float x, float b, float c);
    bool rounds; /* dv and a 16-bit convolution's dW are rounded to the type in between */
};

struct ct_shape {
    enum gpu_type type;
    struct gpu_window w;
    int in, out, n, hw;
    bool norm, relu, deferred, add;
    int sms, shared_kb; /* of the device; shared_kb 0: as it has */
    int spare;          /* images that the algorithm is prepared for in addition; NaN */
};

enum { CT_FIRST = 32, CT_AFTER = 64, CT_MARGIN = 256, CT_IMAGE_CHANNELS = 8 };

static struct gpu_device ct_device;

/* most_weights: of any shape. Skips the program if the device's capability is below `least`. */
static inline void ct_init(int least, size_t most_weights) {
    struct chex_error err = {0};
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        SKIP_ALL("no device");
    BAIL_UNLESS(gpu_device_open(NULL, &ct_device, &err) == CHEX_OK, "%s", err.text);
    st_begin(most_weights);
    if (ct_device.capability < least)
        SKIP_ALL("capability %d, expected %d or more", ct_device.capability, least);
}

static inline float ct_finish_sum(float g, float x, float b, float c) { return g + fmaf(b, x, c); }

static inline double ct_l2_bound(enum gpu_type type) {
    return type == GPU_F32 ? 1e-5 : type == GPU_BF16 ? 2.5e-3 : 3.2e-4;
}
/* The relative error of rounding to the type. */
static inline double ct_unit(enum gpu_type type) {
    return type == GPU_F32 ? 0 : type == GPU_BF16 ? 0x1p-8 : 0x1p-11;
}

static inline bool ct_image(const struct ct_shape *s) { return s->in <= CT_IMAGE_CHANNELS; }
static inline int ct_out_hw(const struct ct_shape *s) {
    return (s->hw + 2 * s->w.pad - s->w.kernel) / s->w.stride + 1;
}
static inline size_t ct_taps(const struct ct_shape *s) {
    return (size_t)(s->w.kernel * s->w.kernel);
}
static inline size_t ct_weights(const struct ct_shape *s) {
    return (size_t)s->in * (size_t)s->out * ct_taps(s);
}

/* ---- one convolution on both sides ---- */

struct ct {
    const struct ct_algo *a;
    const struct ct_shape *s;
    struct gpu_device device;
    char name[256];
    struct st_slice in, in_g, out, g, x; /* g, x: of the output */
    struct st_norm norm;
    float *bsum, *csum, *w; /* w: (out, in, ky, kx) */
    void *weight, *weight_t;
    float *v, *dz; /* what the convolution reads, packed */
    float *v_abs, *dz_abs, *w_abs;
    struct gpu_conv_forward f;
    struct gpu_conv_backward b;
};

/* A slice of n images. After them: the spare images, or one that nothing may write. */
static inline struct st_slice ct_slice(const struct ct_shape *s, int hw, int channels,
                                       uint64_t seed, float mean, float sigma, bool poison) {
    const bool image = channels <= CT_IMAGE_CHANNELS;
    const int pitch = image ? channels : CT_FIRST + channels + CT_AFTER;
    const size_t used = (size_t)s->n * (size_t)(hw * hw) * (size_t)pitch;
    struct st_slice r = st_slice(s->type, s->n + (s->spare ? s->spare : 1), hw, pitch,
                                 image ? 0 : CT_FIRST, channels, seed, mean, sigma);
    r.b.n = r.map.n = s->n;
    if (poison)
        st_poison(&r);
    if (s->spare) {
        const size_t bytes = gpu_type_bytes(s->type);
        GT_OK(cudaMemset((char *)r.b.device + used * bytes, 0xff, (r.b.count - used) * bytes));
        r.b.count = used;
    }
    return r;
}

static inline float *ct_abs(const float *v, size_t count) {
    float *a = gt_host(count);
    for (size_t i = 0; i < count; i++)
        a[i] = fabsf(v[i]);
    return a;
}

static inline void ct_make_weights(struct ct *t) {
    const struct ct_shape *s = t->s;
    const size_t in = (size_t)s->in, out = (size_t)s->out, taps = ct_taps(s);
    float *flat = gt_host(ct_weights(s)), *turned = gt_host(ct_weights(s));
    t->w = gt_host(ct_weights(s));
    for (size_t o = 0; o < out; o++)
        for (size_t k = 0; k < taps; k++)
            for (size_t i = 0; i < in; i++) {
                const size_t at = (o * taps + k) * in + i;
                flat[at] = gt_rounded(s->type, 0.1f * gt_normal(21, at));
                t->w[(o * in + i) * taps + k] = flat[at];
                turned[(i * taps + taps - 1 - k) * out + o] = flat[at];
            }
    t->weight = gt_upload_as(s->type, flat, ct_weights(s));
    t->weight_t = gt_upload_as(s->type, turned, ct_weights(s));
    t->w_abs = ct_abs(t->w, ct_weights(s));
}

static inline void ct_make_operands(struct ct *t) {
    const struct ct_shape *s = t->s;
    const size_t in = (size_t)s->in, out = (size_t)s->out;
    t->v = st_activated(&t->in, &t->norm);
    t->dz = gt_host(st_pixels(&t->g) * out);
    for (size_t i = 0; i < st_pixels(&t->in) * in; i++)
        t->v[i] = gt_rounded(s->type, t->v[i]);
    for (size_t i = 0; i < st_pixels(&t->g) * out; i++) {
        const int c = (int)(i % out);
        const float g = st_at(&t->g, t->g.b.host, i / out, c);
        const float x = st_at(&t->x, t->x.b.host, i / out, c);
        t->dz[i] =
            s->deferred ? gt_rounded(s->type, t->a->finish(g, x, t->bsum[c], t->csum[c])) : g;
    }
    t->v_abs = ct_abs(t->v, st_pixels(&t->in) * in);
    t->dz_abs = ct_abs(t->dz, st_pixels(&t->g) * out);
}

static inline struct ct ct_make(const struct ct_algo *a, const struct ct_shape *s) {
    struct ct t = {.a = a, .s = s, .device = ct_device};
    const size_t shared = (size_t)s->shared_kb << 10;
    t.device.sms = s->sms;
    if (shared && shared < t.device.shared_max)
        t.device.shared_max = shared;
    snprintf(t.name, sizeof t.name,
             "%s %s %dx%d/%d %d>%d, %d%s images of %d px%s%s%s%s, %d SMs, %zu KiB", a->algo->name,
             gt_type_names[s->type], s->w.kernel, s->w.kernel, s->w.stride, s->in, s->out, s->n,
             s->spare ? " of more" : "", s->hw, s->norm ? ", norm" : "", s->relu ? ", relu" : "",
             s->deferred ? ", deferred" : "", s->add ? ", added" : "", s->sms,
             t.device.shared_max >> 10);
    t.in = ct_slice(s, s->hw, s->in, 1, 0.5f, 1, false);
    t.in_g = ct_slice(s, s->hw, s->in, 2, 0, 1, !s->add && !ct_image(s));
    t.out = ct_slice(s, ct_out_hw(s), s->out, 3, 0, 1, true);
    t.g = ct_slice(s, ct_out_hw(s), s->out, 4, 0.1f, 1, false);
    t.x = ct_slice(s, ct_out_hw(s), s->out, 5, 0.4f, 1, false);
    t.norm = s->norm ? st_norm(&t.in, s->relu, 11) : st_no_norm(s->in);
    t.bsum = gt_normals((size_t)s->out, 31, 0, 0.3f);
    t.csum = gt_normals((size_t)s->out, 32, -0.1f, 0.2f);
    ct_make_weights(&t);
    ct_make_operands(&t);
    t.f = (struct gpu_conv_forward){.in = t.in.map,
                                    .norm = t.norm.device,
                                    .window = s->w,
                                    .weight = t.weight,
                                    .out = t.out.map,
                                    .stats = st_stats(s->out)};
    t.b = (struct gpu_conv_backward){.out = {.g = t.g.map},
                                     .in = t.in.map,
                                     .norm = t.norm.device,
                                     .window = s->w,
                                     .weight = t.weight,
                                     .weight_t = t.weight_t,
                                     .in_g = t.in_g.map,
                                     .add = s->add,
                                     .sums = st_sums(&t.norm, 41),
                                     .dweight = gt_alloc(ct_weights(s) * sizeof(float))};
    if (s->deferred) {
        t.b.out.x = t.x.map;
        t.b.out.bsum = gt_upload(t.bsum, (size_t)s->out * 4);
        t.b.out.csum = gt_upload(t.csum, (size_t)s->out * 4);
    }
    if (ct_image(s))
        t.b.in_g.data = NULL;
    return t;
}

/* Prepares and runs one direction. Scratch memory has a margin that must stay. */
static inline void ct_run(const struct ct *t, bool backward) {
    const struct gpu_conv_algo *algo = t->a->algo;
    struct gpu_conv_forward f = t->f;
    struct gpu_conv_backward b = t->b;
    struct chex_error err = {0};
    unsigned char margin[CT_MARGIN];
    void *state = NULL;
    int *const images[] = {&f.in.n, &f.out.n, &b.in.n, &b.in_g.n, &b.out.g.n, &b.out.x.n};
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        *images[i] += t->s->spare;
    const struct gpu_conv_forward *fp = backward ? NULL : &f;
    const struct gpu_conv_backward *bp = backward ? &b : NULL;
    BAIL_UNLESS(algo->fits(&t->device, fp, bp), "%s does not fit", t->name);
    BAIL_UNLESS(!algo->prepare || algo->prepare(&t->device, fp, bp, &state, &err) == CHEX_OK,
                "%s: %s", t->name, err.text);
    const size_t bytes = algo->workspace(&t->device, state, fp, bp);
    char *scratch = gt_alloc(bytes + CT_MARGIN);
    GT_OK(backward ? algo->backward(&t->device, state, &t->b, scratch, NULL)
                   : algo->forward(&t->device, state, &t->f, scratch, NULL));
    gt_download(margin, scratch + bytes, sizeof margin);
    int touched = 0;
    for (int i = 0; i < CT_MARGIN; i++)
        touched += margin[i] != 0xff;
    OK(touched == 0, "%s: %s stays in its scratch memory", t->name,
       backward ? "backward" : "forward");
    if (algo->release)
        algo->release(state);
}

static inline struct chex_ref_window ct_window(const struct ct_shape *s) {
    return (struct chex_ref_window){s->w.kernel, s->w.stride, s->w.pad};
}

/* ---- forward ---- */

static inline void ct_check_out(const struct ct *t, const float *now) {
    const size_t out = (size_t)t->s->out, count = st_pixels(&t->out) * out;
    float *want = gt_host(count), *terms = gt_host(count);
    const struct chex_ref_map v = st_packed(&t->in, t->v), v_abs = st_packed(&t->in, t->v_abs);
    const struct chex_ref_map y = st_packed(&t->out, want), y_abs = st_packed(&t->out, terms);
    chex_ref_conv_forward(&st_ref, &v, t->w, ct_window(t->s), &y);
    chex_ref_conv_forward(&st_ref, &v_abs, t->w_abs, ct_window(t->s), &y_abs);
    double worst = 0, d = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        const double w = (double)want[i];
        const double e = fabs((double)st_at(&t->out, now, i / out, (int)(i % out)) - w);
        const double share = e / st_bound(t->s->type, w, 10 * (double)terms[i]);
        worst = share > worst || isnan(share) ? share : worst;
        d += e * e;
        size += w * w;
    }
    OK(worst <= 1 && sqrt(d / size) <= ct_l2_bound(t->s->type), "%s: forward: %.2f bounds, L2 %.1e",
       t->name, worst, sqrt(d / size));
    OK(st_strays(&t->out, now) == 0, "%s: forward writes nothing else", t->name);
}

static inline void ct_forward(struct ct *t) {
    ct_run(t, false);
    float *first = st_fetch(&t->out);
    ct_check_out(t, first);
    st_check_stats(&t->out, first, &t->f.stats, t->name);
    t->f.stats = (struct gpu_stats){0};
    ct_run(t, false);
    float *second = gt_download_as(t->s->type, t->out.b.device, t->out.b.count);
    OK(memcmp(first, second, t->out.b.count * sizeof *first) == 0,
       "%s: forward without statistics gives the same bits", t->name);
}

/* ---- backward ---- */

/* want, terms: dW by the reference, and the sums of its terms' magnitudes; (out, in, ky, kx). */
static inline void ct_check_dweight(const struct ct *t, const float *want, const float *terms,
                                    const char *what) {
    const size_t count = ct_weights(t->s), in = (size_t)t->s->in, taps = ct_taps(t->s);
    const double unit = t->a->rounds ? ct_unit(t->s->type) : 0;
    float *got = gt_floats(t->b.dweight, count);
    double worst = 0, d = 0, size = 0;
    gt_digest_add(got, count * sizeof *got);
    for (size_t i = 0; i < count; i++) { /* (out, ky, kx, in) */
        const size_t at = (i / in / taps * in + i % in) * taps + i / in % taps;
        const double w = (double)want[at], e = fabs((double)got[i] - w);
        const double share = e / (1e-5 * (double)terms[at] + unit * fabs(w) + 1e-30);
        worst = share > worst || isnan(share) ? share : worst;
        d += e * e;
        size += w * w;
    }
    OK(worst <= 1 && sqrt(d / size) <= 1e-5 + unit, "%s: %s: %.2f bounds, L2 %.1e", t->name, what,
       worst, sqrt(d / size));
}

static inline void ct_check_in_g(const struct ct *t) {
    const size_t count = st_pixels(&t->in) * (size_t)t->s->in;
    const double unit = t->a->rounds ? ct_unit(t->s->type) : 0;
    float *dv = gt_host(count), *terms = gt_host(count);
    double *slack = gt_take(count, sizeof *slack);
    const struct chex_ref_map z = st_packed(&t->g, t->dz), z_abs = st_packed(&t->g, t->dz_abs);
    const struct chex_ref_map d = st_packed(&t->in, dv), d_abs = st_packed(&t->in, terms);
    chex_ref_conv_backward_data(&st_ref, &z, t->w, ct_window(t->s), &d);
    chex_ref_conv_backward_data(&st_ref, &z_abs, t->w_abs, ct_window(t->s), &d_abs);
    for (size_t i = 0; i < count; i++)
        slack[i] = 1e-5 * (double)terms[i] + unit * fabs((double)dv[i]);
    st_check_backward_within(gt_doubles(dv, count), slack, &t->in, &t->norm, &t->in_g, t->s->add,
                             &t->b.sums, 41, t->name);
}

static inline void ct_backward(struct ct *t) {
    const size_t count = ct_weights(t->s);
    float *want = gt_host(count), *terms = gt_host(count);
    const struct chex_ref_map v = st_packed(&t->in, t->v), v_abs = st_packed(&t->in, t->v_abs);
    const struct chex_ref_map z = st_packed(&t->g, t->dz), z_abs = st_packed(&t->g, t->dz_abs);
    chex_ref_conv_backward_weight(&st_ref, &v, &z, ct_window(t->s), want);
    chex_ref_conv_backward_weight(&st_ref, &v_abs, &z_abs, ct_window(t->s), terms);
    ct_run(t, true);
    if (t->b.in_g.data)
        ct_check_in_g(t);
    ct_check_dweight(t, want, terms, "dW");
    /* Weight gradients alone: the same products, perhaps in other blocks. */
    struct gpu_conv_backward alone = t->b;
    alone.in_g.data = NULL;
    alone.sums = (struct gpu_sums){0};
    if (t->a->algo->fits(&t->device, NULL, &alone)) {
        t->b = alone;
        ct_run(t, true);
        ct_check_dweight(t, want, terms, "dW without in_g");
    }
#ifndef CHEX_TEST_RACES /* the same launches meet the same races */
    float *first = gt_floats(t->b.dweight, count);
    ct_run(t, true);
    float *second = gt_floats(t->b.dweight, count);
    OK(memcmp(first, second, count * sizeof *first) == 0, "%s: dW has the same bits again",
       t->name);
#endif
}

/* Every variant of one shape, in both directions. */
static inline void ct_variants(const struct ct_algo *a, const struct ct_shape *s) {
    int list[GPU_VARIANTS];
    for (int backward = 0; backward < 2; backward++) {
        struct ct t = ct_make(a, s);
        const int count =
            a->algo->variants(&t.device, backward ? NULL : &t.f, backward ? &t.b : NULL, list);
        OK(count > 1 && count <= GPU_VARIANTS && list[0] == 0, "%s: %d variants %s", t.name, count,
           backward ? "backward" : "forward");
        gt_release_all();
        for (int i = 1; i < count; i++) {
            char variant[GPU_VARIANT_BYTES];
            t = ct_make(a, s);
            a->algo->variant_name(backward, list[i], variant);
            const size_t end = strlen(t.name);
            snprintf(t.name + end, sizeof t.name - end, ", %s", variant);
            t.f.variant = t.b.variant = list[i];
            if (backward)
                ct_backward(&t);
            else
                ct_forward(&t);
            gt_release_all();
        }
    }
}

/* Everything about one shape. */
static inline void ct_check(const struct ct_algo *a, const struct ct_shape *s) {
    if ((size_t)s->shared_kb << 10 > ct_device.shared_max) {
        printf("# %d KiB of shared memory: the device has less\n", s->shared_kb);
        return;
    }
    struct ct t = ct_make(a, s);
    ct_forward(&t);
    ct_backward(&t);
    gt_release_all();
}

/* All shapes. Slow builds, and the race detector with fewer than two groups of blocks, leave out
 * what takes long: ct_variants has every kernel on small shapes. */
static inline void ct_check_all(const struct ct_algo *a, const struct ct_shape *shapes,
                                size_t count) {
#ifdef CHEX_TEST_RACES
    const double most = 40e6;
#else
    const double most = TAP_SLOW_BUILD ? 22e6 : INFINITY;
#endif
    for (size_t i = 0; i < count; i++) {
        const struct ct_shape *s = &shapes[i];
        const double products = (double)ct_weights(s) * s->n * ct_out_hw(s) * ct_out_hw(s);
        if (products > most && (TAP_SLOW_BUILD || s->sms < 2 * GPU_GROUP))
            printf("# %d channels of %d px: left out\n", s->in, s->hw);
        else
            ct_check(a, s);
    }
}

/* A NaN passes the ReLU and stays in its pixel. */
static inline void ct_not_a_number(const struct ct_algo *a) {
    const struct ct_shape s = {GPU_BF16, {1, 1, 0}, 64, 64, 1, 7, true, true, 0, 0, 1, 0, 0};
    struct ct t = ct_make(a, &s);
    const uint16_t nan_bits = 0x7fc1;
    const size_t pixel = 5;
    size_t wrong = 0;
    GT_OK(cudaMemcpy((uint16_t *)t.in.map.data + pixel * (size_t)t.in.map.pitch + 9, &nan_bits, 2,
                     cudaMemcpyHostToDevice));
    GT_OK(a->algo->forward(&t.device, NULL, &t.f, NULL, NULL));
    float *now = gt_download_as(s.type, t.out.b.device, t.out.b.count);
    for (size_t p = 0; p < st_pixels(&t.out); p++)
        for (int c = 0; c < s.out; c++)
            wrong += (isnan(st_at(&t.out, now, p, c)) != 0) != (p == pixel);
    OK(wrong == 0, "a NaN reaches every output of its pixel and no other");
    gt_release_all();
}

/* What an algorithm does not take: `change` alters the device d, the forward convolution f and the
 * backward one b of the shape; f_or_b: which direction is refused then. */
#define CT_REFUSED(t, change, f_or_b, what)                                                        \
    do {                                                                                           \
        struct gpu_device d = (t).device;                                                          \
        struct gpu_conv_forward f = (t).f;                                                         \
        struct gpu_conv_backward b = (t).b;                                                        \
        change;                                                                                    \
        (void)f, (void)b;                                                                          \
        OK(!(t).a->algo->fits(&d, f_or_b), what);                                                  \
    } while (0)
#define CT_FORWARD &f, NULL
#define CT_BACKWARD NULL, &b

#endif
