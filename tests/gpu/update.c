/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimiser step against engine/update.h, bit by bit where it promises that; the loss scale;
 * copies of the weights; the two small kernels.
 */
#include "engine/update.h"
#include "gpu_test.h"

enum { CONVS = 4, TRAINED = 9, TOTAL = 11 };

/* Shapes: the image's convolution, one with odd sides, one of 3x3, one of 1x1; batch norm; head. */
static const struct gpu_param convs[CONVS] = {
    {.out = 64, .kernel = 7, .in = 3, .in_padded = 4},
    {.out = 70, .kernel = 1, .in = 96, .in_padded = 96},
    {.out = 32, .kernel = 3, .in = 128, .in_padded = 128},
    {.out = 65, .kernel = 5, .in = 5, .in_padded = 8},
};

struct world {
    struct chex_net net;
    struct chex_param params[TOTAL];
    struct gpu_param gpu[TRAINED];
    size_t copy_count, copy_t_count;
    float *w, *m, *v, *g; /* host */
    struct gpu_update u;
};

static void add_param(struct world *t, enum chex_param_kind kind, size_t count) {
    struct chex_param *p = &t->params[t->net.param_total++];
    p->kind = kind;
    p->offset = t->net.state_count;
    p->count = count;
    t->net.state_count += count;
}

static void lay_out(struct world *t) {
    for (int i = 0; i < CONVS; i++)
        add_param(t, CHEX_PARAM_CONV,
                  (size_t)(convs[i].out * convs[i].kernel * convs[i].kernel * convs[i].in));
    add_param(t, CHEX_PARAM_BN_WEIGHT, 33);
    add_param(t, CHEX_PARAM_BN_BIAS, 2);
    add_param(t, CHEX_PARAM_BN_BIAS, 1);
    add_param(t, CHEX_PARAM_FC_WEIGHT, 14 * 31);
    add_param(t, CHEX_PARAM_FC_BIAS, 13);
    t->net.param_count = t->net.state_count;
    add_param(t, CHEX_PARAM_BN_MEAN, 33);
    add_param(t, CHEX_PARAM_BN_VAR, 33);
    for (int i = 0; i < TRAINED; i++) {
        struct gpu_param *p = &t->gpu[i];
        if (i < CONVS)
            *p = convs[i];
        p->offset = t->params[i].offset;
        p->count = t->params[i].count;
        p->is_weight = i < CONVS || t->params[i].kind == CHEX_PARAM_FC_WEIGHT;
        p->copy_offset = t->copy_count + 32; /* a gap that must stay */
        p->copy_t_offset = i == 0 ? SIZE_MAX : t->copy_t_count + 32;
        const size_t copied = (size_t)(p->out * p->kernel * p->kernel * p->in_padded);
        t->copy_count += 32 + copied;
        t->copy_t_count += i == 0 ? 0 : 32 + copied;
    }
}

static void world_init(struct world *t, enum gpu_type type, enum chex_optim optim) {
    *t = (struct world){.net = {.bn_momentum = 0.1f}};
    lay_out(t);
    const size_t n = t->net.state_count;
    t->w = gt_normals(n, 1, 0, 0.2f);
    t->m = gt_normals(n, 2, 0, 0.01f);
    t->v = gt_normals(n, 3, 0, 0.01f);
    t->g = gt_normals(n, 4, 0, 0.1f);
    for (size_t i = 0; i < n; i++)
        t->v[i] = fabsf(t->v[i]);
    t->u = (struct gpu_update){
        .params = gt_upload(t->gpu, sizeof t->gpu),
        .param_total = TRAINED,
        .param_count = t->net.param_count,
        .state_count = n,
        .w = gt_upload(t->w, n * 4),
        .m = gt_upload(t->m, n * 4),
        .v = chex_optim_moments(optim) == 2 ? gt_upload(t->v, n * 4) : NULL,
        .g = gt_upload(t->g, n * 4),
        .norms = optim == CHEX_LARS ? gt_alloc(2 * TRAINED * 4) : NULL,
        .type = type,
        .copies = gt_alloc(t->copy_count * gpu_type_bytes(type)),
        .copies_t = gt_alloc(t->copy_t_count * gpu_type_bytes(type)),
    };
}
static struct chex_update update_of(enum chex_optim optim, int64_t step) {
    return (struct chex_update){.optim = optim,
                                .lr = optim == CHEX_LARS ? 2.0 : 3e-3 / (double)step,
                                .weight_decay = 0.013,
                                .momentum = 0.9,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .step = step,
                                .grad_scale = 1.0 / 3};
}
static struct gpu_step step_of(const struct chex_update *u, const struct chex_net *net) {
    return (struct gpu_step){
        .optim = (int)u->optim,
        .nesterov = u->nesterov,
        .decays_all = u->decay_norms || !(u->weight_decay > 0),
        .grad_scale = (float)u->grad_scale,
        .momentum = (float)u->momentum,
        .lr = (float)u->lr,
        .weight_decay = (float)u->weight_decay,
        .beta1 = (float)u->beta1,
        .beta2 = (float)u->beta2,
        .one_minus_beta1 = (float)(1.0 - u->beta1),
        .one_minus_beta2 = (float)(1.0 - u->beta2),
        .adam_step = (float)(u->lr / (1.0 - pow(u->beta1, (double)u->step))),
        .adam_root = (float)(1.0 / sqrt(1.0 - pow(u->beta2, (double)u->step))),
        .adamw_shrink = (float)(1.0 - u->lr * u->weight_decay),
        .eps = (float)u->eps,
        .bn_momentum = net->bn_momentum,
        .clip_norm = u->clip_norm,
        .clip_scale = u->grad_scale,
    };
}
static void host_step(struct world *t, const struct chex_update *trained,
                      const struct chex_update *running) {
    for (int i = 0; i < TOTAL; i++) {
        const struct chex_param *p = &t->params[i];
        const size_t at = p->offset;
        chex_update_param(i < TRAINED ? trained : running, &t->net, p, t->w + at, t->m + at,
                          t->v + at, t->g + at);
    }
}

/* Relative L2 distance, 0 where all are equal, -0 and 0 too. */
static double apart(const float *device, const float *host, size_t count) {
    float *is = gt_floats(device, count);
    return gt_rel_l2(is, gt_doubles(host, count), count);
}
/* LARS: norms and their ratio are in fp32, which shifts all of a parameter's change by an ulp or
 * two. The others are exact. */
static void check_state(const struct world *t, enum chex_optim optim, const char *what) {
    const size_t n = t->net.state_count;
    const double bound = optim == CHEX_LARS ? 1e-6 : 0;
    const double w = apart(t->u.w, t->w, n), m = apart(t->u.m, t->m, n);
    const double v = t->u.v ? apart(t->u.v, t->v, n) : 0;
    OK(w <= bound && m <= bound && v <= bound, "%s: w %.1e, m %.1e, v %.1e", what, w, m, v);
}

static void host_clip(struct world *t, struct chex_clip *clip, const struct chex_update *u) {
    struct chex_update trained = *u;
    for (int k = 0; k < CHEX_NORM_PIECES && u->clip_norm > 0; k++)
        chex_clip_sum(clip, t->g, t->net.param_count, k);
    if (u->clip_norm > 0)
        trained = chex_clip_apply(clip, u);
    host_step(t, &trained, u);
}
/* Sums of some 10^5 squares in fp64, in two orders: the bound allows 10^4 roundings. */
static void check_norms(const struct world *t, const struct chex_clip *clip) {
    struct gpu_clip now;
    gt_download(&now, t->u.clip, sizeof now);
    const struct chex_grad_norms *n = &clip->norms;
    OK(now.updates == n->updates && fabs(now.sum - n->sum) <= 1e-12 * n->sum &&
           fabs(now.largest - n->largest) <= 1e-12 * n->largest,
       "the norms of %d updates: %.3g together, %.3g the largest", (int)now.updates, now.sum,
       now.largest);
}

static cudaGraphExec_t captured(const struct gpu_update *u, cudaStream_t stream) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    GT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    GT_OK(gpu_update_state(u, stream));
    GT_OK(cudaStreamEndCapture(stream, &graph));
    GT_OK(cudaGraphInstantiate(&exec, graph, 0));
    GT_OK(cudaGraphDestroy(graph));
    return exec;
}

/* The first by launches, which load the code, the others by their graph: only the step's scalars
 * and the gradient change. */
static void steps(enum chex_optim optim, double clip_norm, bool nesterov, bool decay_norms) {
    struct world t;
    struct chex_clip clip = {0};
    world_init(&t, GPU_F32, optim);
    const struct gpu_clip none = {.sum = 0};
    if (clip_norm > 0)
        t.u.clip = gt_upload(&none, sizeof none);
    struct gpu_step *step = gt_alloc(sizeof *step);
    t.u.step = step;
    cudaStream_t stream;
    cudaGraphExec_t exec = NULL;
    GT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 1; i <= 3; i++) {
        struct chex_update u = update_of(optim, i);
        u.clip_norm = clip_norm;
        u.nesterov = nesterov;
        u.decay_norms = decay_norms;
        const struct gpu_step s = step_of(&u, &t.net);
        for (size_t j = 0; j < t.net.state_count; j++)
            t.g[j] = (i == 2 ? 1e-4f : 1.0f) * t.g[j] + 0.01f * gt_normal(50 + (uint64_t)i, j);
        GT_OK(cudaMemcpy(step, &s, sizeof s, cudaMemcpyHostToDevice));
        GT_OK(cudaMemcpy((float *)t.u.g, t.g, t.net.state_count * 4, cudaMemcpyHostToDevice));
        GT_OK(cudaDeviceSynchronize()); /* the stream does not wait for the default one */
        if (i == 2)
            exec = captured(&t.u, stream);
        GT_OK(exec ? cudaGraphLaunch(exec, stream) : gpu_update_state(&t.u, stream));
        GT_OK(cudaStreamSynchronize(stream));
        host_clip(&t, &clip, &u);
        char what[96];
        snprintf(what, sizeof what, "%s%s%s%s, step %d", chex_optim_names[optim],
                 clip_norm > 0 ? ", clipped" : "", nesterov ? ", Nesterov" : "",
                 decay_norms ? ", all decay" : "", i);
        /* LARS: norms and their ratio in fp32; what follows from them cancels by no more than 10.
         */
        check_state(&t, optim, what);
    }
    if (clip_norm > 0)
        check_norms(&t, &clip);
    GT_OK(cudaGraphExecDestroy(exec));
    GT_OK(cudaStreamDestroy(stream));
    gt_release_all();
}

static void lars_of_zeros(void) {
    struct world t;
    world_init(&t, GPU_F32, CHEX_LARS);
    const struct chex_update u = update_of(CHEX_LARS, 1);
    const struct gpu_step s = step_of(&u, &t.net);
    for (size_t i = 0; i < t.params[1].count; i++)
        t.w[t.params[1].offset + i] = 0;
    for (size_t i = 0; i < t.params[2].count; i++)
        t.g[t.params[2].offset + i] = 0;
    GT_OK(cudaMemcpy(t.u.w, t.w, t.net.state_count * 4, cudaMemcpyHostToDevice));
    GT_OK(cudaMemcpy((float *)t.u.g, t.g, t.net.state_count * 4, cudaMemcpyHostToDevice));
    t.u.step = gt_upload(&s, sizeof s);
    GT_OK(gpu_update_state(&t.u, 0));
    host_step(&t, &u, &u);
    check_state(&t, CHEX_LARS, "LARS where weights or gradients are zero");
    gt_release_all();
}

/* ---- loss scale ---- */

static struct gpu_loss_scale scale_now(const struct world *t) {
    struct gpu_loss_scale s;
    gt_download(&s, t->u.loss_scale, sizeof s);
    return s;
}

static void loss_scale(enum chex_optim optim) {
    struct world t;
    world_init(&t, GPU_F16, optim);
    struct chex_update u = update_of(optim, 1);
    struct chex_clip clip = {0};
    const struct gpu_clip none = {.sum = 0};
    u.clip_norm = 1;
    const struct gpu_step s = step_of(&u, &t.net);
    const struct gpu_loss_scale start = {.scale = 4096, .good_steps = 7, .overflowed = 1};
    const size_t n = t.net.state_count, trained = t.net.param_count;
    t.u.step = gt_upload(&s, sizeof s);
    t.u.clip = gt_upload(&none, sizeof none);
    t.u.loss_scale = gt_upload(&start, sizeof start);
    float *scaled = gt_host(n);
    const size_t bad[3] = {5, trained - 1, n - 1};
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < n; j++)
            scaled[j] = t.g[j] * (j < trained ? 4096.0f : 1.0f);
        scaled[bad[i]] = i == 1 ? NAN : i ? -INFINITY : INFINITY;
        GT_OK(cudaMemcpy((float *)t.u.g, scaled, n * 4, cudaMemcpyHostToDevice));
        GT_OK(gpu_update_state(&t.u, 0));
        const struct gpu_loss_scale now = scale_now(&t);
        check_state(&t, CHEX_ADAM, "an overflow leaves everything");
        OK(now.overflowed == 1 && now.skipped == i + 1 && now.good_steps == 0 &&
               now.scale == 4096.0f / (float)(2 << i),
           "overflow at %d of %d: scale %g", (int)bad[i], (int)n, (double)now.scale);
    }
    for (size_t j = 0; j < trained; j++)
        scaled[j] = t.g[j] * 512.0f;
    scaled[n - 1] = t.g[n - 1];
    GT_OK(cudaMemcpy((float *)t.u.g, scaled, n * 4, cudaMemcpyHostToDevice));
    GT_OK(gpu_update_state(&t.u, 0));
    host_clip(&t, &clip, &u);
    /* The quotient of the two scales is exact: 512 is a power of two. */
    check_state(&t, optim, "a good step divides by the scale");
    check_norms(&t, &clip);
    struct gpu_loss_scale now = scale_now(&t);
    OK(now.overflowed == 0 && now.skipped == 3 && now.good_steps == 1 && now.scale == 512.0f,
       "a good step counts");
    for (int i = 0; i < 2; i++) {
        const float before = i ? 16777216.0f : 8388608.0f;
        now = (struct gpu_loss_scale){.scale = before, .good_steps = 1999};
        GT_OK(cudaMemcpy(t.u.loss_scale, &now, sizeof now, cudaMemcpyHostToDevice));
        GT_OK(gpu_update_state(&t.u, 0));
        now = scale_now(&t);
        OK(now.scale == 16777216.0f && now.good_steps == 0, "2000 good steps from %g: %g",
           (double)before, (double)now.scale);
    }
    gt_release_all();
}

/* ---- copies ---- */

static void copies(enum gpu_type type) {
    struct world t;
    world_init(&t, type, CHEX_ADAM);
    float *want = gt_host(t.copy_count), *want_t = gt_host(t.copy_t_count);
    memset(want, 0xff, t.copy_count * 4);
    memset(want_t, 0xff, t.copy_t_count * 4);
    for (int q = 0; q < CONVS; q++) {
        const struct gpu_param *p = &t.gpu[q];
        const size_t taps = (size_t)(p->kernel * p->kernel), in = (size_t)p->in;
        const size_t padded = (size_t)p->in_padded, out = (size_t)p->out;
        for (size_t o = 0; o < out; o++)
            for (size_t k = 0; k < taps; k++)
                for (size_t i = 0; i < padded; i++) {
                    const float w = i < in ? t.w[p->offset + (o * taps + k) * in + i] : 0;
                    want[p->copy_offset + (o * taps + k) * padded + i] = gt_rounded(type, w);
                    if (q)
                        want_t[p->copy_t_offset + (i * taps + taps - 1 - k) * out + o] =
                            gt_rounded(type, w);
                }
    }
    GT_OK(gpu_pack(&t.u, 0));
    float *is = gt_download_as(type, t.u.copies, t.copy_count);
    float *is_t = gt_download_as(type, t.u.copies_t, t.copy_t_count);
    size_t wrong = 0, wrong_t = 0;
    for (size_t i = 0; i < t.copy_count; i++)
        wrong += isnan(want[i]) ? !isnan(is[i]) : is[i] != want[i];
    for (size_t i = 0; i < t.copy_t_count; i++)
        wrong_t += isnan(want_t[i]) ? !isnan(is_t[i]) : is_t[i] != want_t[i];
    OK(wrong == 0, "%s: copies, and nothing between them", gt_type_names[type]);
    OK(wrong_t == 0, "%s: transposed copies", gt_type_names[type]);
    gt_release_all();
}

static void small_ones(void) {
    float *padded = gt_normals(98 * 8, 5, 0, 1), *a = gt_normals(1000, 6, 0, 1),
          *b = gt_normals(1000, 7, 0, 1);
    float *out = gt_alloc(98 * 3 * 4 + 64);
    GT_OK(gpu_unpad(gt_upload(padded, 98 * 8 * 4), 98, 8, 3, out, 0));
    float *is = gt_floats(out, 98 * 3 + 16);
    int wrong = 0;
    for (int i = 0; i < 98 * 3; i++)
        wrong += is[i] != padded[i / 3 * 8 + i % 3];
    for (int i = 98 * 3; i < 98 * 3 + 16; i++)
        wrong += !isnan(is[i]);
    OK(wrong == 0, "unpad");
    wrong = 0;
    for (size_t shift = 0; shift < 2; shift++)
        for (size_t count = 1; count < 1000; count = 3 * count + 1) {
            float *to = gt_upload(a, 4000), *from = gt_upload(b, 4000);
            GT_OK(gpu_add(to + shift, from, count, 0));
            float *sum = gt_floats(to, 1000);
            for (size_t i = 0; i < 1000; i++)
                wrong += sum[i] != (i >= shift && i - shift < count ? a[i] + b[i - shift] : a[i]);
        }
    OK(wrong == 0, "add, aligned and not");
    gt_release_all();
}

/* Every 16-bit value; then short arrays, whose last run of 8 is not complete. */
static void widen(enum gpu_type type) {
    enum { ALL = 65536, SHORT = 40, SPARE = 8 };
    uint16_t *bits = gt_take(ALL, sizeof *bits);
    for (int i = 0; i < ALL; i++)
        bits[i] = (uint16_t)i;
    const void *from = gt_upload(bits, ALL * 2);
    int wrong = 0, spilt = 0;
    float *out = gt_alloc((ALL + SPARE) * 4);
    for (size_t count = 1; count <= ALL; count = count < SHORT ? count + 1 : ALL) {
        GT_OK(cudaMemset(out, 0xff, (ALL + SPARE) * 4));
        GT_OK(gpu_widen(type, from, count, out, NULL));
        float *got = gt_floats(out, count + SPARE);
        for (size_t i = 0; i < count; i++) {
            const float want =
                type == GPU_BF16 ? gt_from_bf16((uint16_t)i) : gt_from_f16((uint16_t)i);
            wrong += isnan(want) ? !isnan(got[i]) : got[i] != want;
        }
        spilt += !isnan(got[count]);
        if (count == ALL)
            break;
    }
    OK(wrong == 0 && spilt == 0, "%s: every value is widened, none after the end",
       gt_type_names[type]);
    gt_release_all();
}

int main(void) {
    int named = 0, ruled = 0;
    for (int i = 0; chex_optim_names[i]; i++, named++)
        ruled += gpu_has_optim(i);
    OK(ruled == named && !gpu_has_optim(99), "every named optimiser has a rule on the GPU");
    for (int i = 0; chex_optim_names[i]; i++) {
        steps((enum chex_optim)i, 0, false, true);
        steps((enum chex_optim)i, 0, i == CHEX_SGD, false);
        steps((enum chex_optim)i, 1, false,
              false); /* the gradient of step 2 is shorter than that */
    }
    lars_of_zeros();
    loss_scale(CHEX_ADAM);
    loss_scale(CHEX_LARS);
    for (int i = GPU_F32; i <= GPU_F16; i++)
        copies((enum gpu_type)i);
    small_ones();
    widen(GPU_BF16);
    widen(GPU_F16);
    return tap_done();
}
