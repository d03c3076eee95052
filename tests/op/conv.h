/* SPDX-License-Identifier: Apache-2.0
 *
 * Every operation of the cpu engine in small networks, against the ref engine: kernels 1, 3 and 7,
 * strides 1 and 2, odd and single-pixel maps, a dense layer, a transition, both kinds of residual
 * block, heads with and without batch norm.
 *
 * The networks are shallow on purpose. A ReLU whose input is within rounding of 0 opens in one
 * engine and not in the other, and after a hundred layers that is some percent of a gradient; with
 * a dozen layers and few pixels none is that close, so the bounds can be a few roundings wide.
 */
#ifndef CHEX_TESTS_OP_CONV_H
#define CHEX_TESTS_OP_CONV_H

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "tap.h"

enum { CLASSES = 14, SEED = 11 };

static int conv(struct chex_net *net, const char *name, int in, int channels, int bn, int out,
                int out_first, int out_channels, int kernel, int stride) {
    struct chex_op op = {.kind = CHEX_OP_CONV,
                         .in = in,
                         .in_channels = channels,
                         .in_bn = bn,
                         .out = out,
                         .out_first = out_first,
                         .out_channels = out_channels,
                         .kernel = kernel,
                         .stride = stride,
                         .pad = kernel / 2};
    snprintf(op.name, sizeof op.name, "%s", name);
    return chex_net_add_op(net, op, name);
}

static void pool(struct chex_net *net, enum chex_op_kind kind, int in, int channels, int bn,
                 int out) {
    bool max = kind == CHEX_OP_MAXPOOL;
    chex_net_add_op(net,
                    (struct chex_op){.kind = kind,
                                     .name = "pool",
                                     .in = in,
                                     .in_channels = channels,
                                     .in_bn = bn,
                                     .out = out,
                                     .out_channels = channels,
                                     .kernel = max ? 3 : 2,
                                     .stride = 2,
                                     .pad = max},
                    NULL);
}

static int residual(struct chex_net *net, const char *base, int x, int channels, int width,
                    int out_channels, int stride) {
    char name[8][32];
    static const char *const parts[] = {"c1", "n1", "c2", "n2", "c3", "n3", "cs", "ns"};
    for (size_t i = 0; i < 8; i++)
        snprintf(name[i], sizeof name[i], "%s.%s", base, parts[i]);
    int z1 = chex_net_add_buffer(net, width), z2 = chex_net_add_buffer(net, width);
    int z3 = chex_net_add_buffer(net, out_channels), side = x, side_bn = CHEX_NET_NONE;
    conv(net, name[0], x, channels, CHEX_NET_NONE, z1, 0, width, 1, 1);
    int bn = chex_net_add_bn(net, name[1], z1, width);
    conv(net, name[2], z1, width, bn, z2, 0, width, 3, stride);
    bn = chex_net_add_bn(net, name[3], z2, width);
    conv(net, name[4], z2, width, bn, z3, 0, out_channels, 1, 1);
    bn = chex_net_add_bn(net, name[5], z3, out_channels);
    if (stride > 1 || channels != out_channels) {
        side = chex_net_add_buffer(net, out_channels);
        conv(net, name[6], x, channels, CHEX_NET_NONE, side, 0, out_channels, 1, stride);
        side_bn = chex_net_add_bn(net, name[7], side, out_channels);
    }
    int out = chex_net_add_buffer(net, out_channels);
    chex_net_add_op(net,
                    (struct chex_op){.kind = CHEX_OP_RESIDUAL_ADD,
                                     .name = "join",
                                     .in = z3,
                                     .in_channels = out_channels,
                                     .in_bn = bn,
                                     .out = out,
                                     .out_channels = out_channels,
                                     .side_in = side,
                                     .side_bn = side_bn},
                    NULL);
    return out;
}

static void head(struct chex_net *net, int in, int channels, int bn) {
    chex_net_add_op(
        net,
        (struct chex_op){
            .kind = CHEX_OP_HEAD, .name = "head", .in = in, .in_channels = channels, .in_bn = bn},
        "head");
}

/* Stem and maximum pooling into the first 64 channels of a buffer. */
static int stem(struct chex_net *net, int channels) {
    int z = chex_net_add_buffer(net, 64);
    conv(net, "stem", CHEX_NET_IMAGE, 3, CHEX_NET_NONE, z, 0, 64, 7, 2);
    int bn = chex_net_add_bn(net, "stem.norm", z, 64), x = chex_net_add_buffer(net, channels);
    pool(net, CHEX_OP_MAXPOOL, z, 64, bn, x);
    return x;
}

/* Two dense layers and a transition, then a normed head. */
static void dense(struct chex_net *net) {
    int x = stem(net, 128), bn;
    for (int layer = 0; layer < 2; layer++) {
        char name[32];
        int channels = 64 + 32 * layer, z = chex_net_add_buffer(net, 128);
        snprintf(name, sizeof name, "l%d.n1", layer);
        bn = chex_net_add_bn(net, name, x, channels);
        snprintf(name, sizeof name, "l%d.c1", layer);
        conv(net, name, x, channels, bn, z, 0, 128, 1, 1);
        snprintf(name, sizeof name, "l%d.n2", layer);
        bn = chex_net_add_bn(net, name, z, 128);
        snprintf(name, sizeof name, "l%d.c2", layer);
        conv(net, name, z, 128, bn, x, channels, 32, 3, 1);
    }
    bn = chex_net_add_bn(net, "t.n", x, 128);
    int p = chex_net_add_buffer(net, 128), y = chex_net_add_buffer(net, 64);
    pool(net, CHEX_OP_AVGPOOL, x, 128, bn, p);
    conv(net, "t.c", p, 128, CHEX_NET_NONE, y, 0, 64, 1, 1);
    bn = chex_net_add_bn(net, "last.n", y, 64);
    head(net, y, 64, bn);
}

/* Residual blocks of both kinds, down to single pixels, and a bare head. */
static void residuals(struct chex_net *net) {
    int x = stem(net, 64);
    x = residual(net, "a", x, 64, 32, 160, 1);
    x = residual(net, "b", x, 160, 32, 160, 1);
    x = residual(net, "c", x, 160, 64, 256, 2);
    head(net, x, 256, CHEX_NET_NONE);
}

static struct chex_net *build(void (*fill)(struct chex_net *net)) {
    struct chex_error err = {0};
    struct chex_net *net = chex_net_new("test", CLASSES);
    fill(net);
    BAIL_UNLESS(chex_net_finish(net, &err) == CHEX_OK, "%s", err.text);
    return net;
}

static float unit(uint64_t item, size_t i) {
    return chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, item, (uint32_t)i).v[0]);
}

static void fill_state(const struct chex_net *net, float *state) {
    chex_net_init_state(net, SEED, 1, state);
    for (int i = 0; i < net->param_total; i++)
        for (size_t k = 0; k < net->params[i].count; k++) {
            float *v = &state[net->params[i].offset + k], u = unit((uint64_t)i, k);
            if (net->params[i].kind == CHEX_PARAM_BN_WEIGHT)
                *v = u < 0.1f ? -0.5f : 0.7f + 0.6f * u;
            else if (net->params[i].kind == CHEX_PARAM_BN_VAR)
                *v = 0.7f + 0.6f * u;
            else if (net->params[i].rank == 1)
                *v = 0.4f * (u - 0.5f);
        }
}

struct outcome {
    struct chex_pass_result result;
    float *grad, *logits, *moments[2];
};

/* An engine by its name; a test of kernels that are in no engine has its own. */
typedef enum chex_status (*create_fn)(const char *spec, const struct chex_engine_config *config,
                                      struct chex_engine **engine_out, struct chex_error *err);

static void run(create_fn create, const char *spec, const struct chex_net *net, int size, int n,
                int threads, enum chex_precision precision, struct outcome *out) {
    struct chex_error err = {0};
    struct chex_engine *e = NULL;
    struct chex_engine_config config = {net, size, n, precision, threads, true, NULL};
    size_t area = (size_t)n * (size_t)size * (size_t)size, state = net->state_count;
    BAIL_UNLESS(create(spec, &config, &e, &err) == CHEX_OK, "%s", err.text);
    float *pixels = chex_alloc_zeroed(area, sizeof *pixels), *buf = chex_alloc_zeroed(state, 4);
    int8_t *labels = chex_alloc_zeroed((size_t)n * CLASSES, 1);
    for (size_t i = 0; i < area; i++)
        pixels[i] = unit(1000, i);
    for (size_t i = 0; i < (size_t)n * CLASSES; i++)
        labels[i] = (int8_t)(unit(1001, i) * 3) - 1;
    fill_state(net, buf);
    struct chex_batch batch = {n, pixels, labels};
    float *grad = chex_engine_grad_alloc(e);
    *out = (struct outcome){.grad = chex_alloc_zeroed(state, 4),
                            .logits = chex_alloc_zeroed((size_t)n * CLASSES, 4),
                            .moments = {chex_alloc_zeroed(state, 4), chex_alloc_zeroed(state, 4)}};
    BAIL_UNLESS(chex_engine_set(e, CHEX_STATE_PARAMS, buf, &err) == CHEX_OK, "set");
    BAIL_UNLESS(chex_engine_infer(e, &batch, out->logits, &err) == CHEX_OK, "infer");
    /* Twice: nothing of the first pass may be left in the second. */
    for (int pass = 0; pass < 2; pass++)
        BAIL_UNLESS(chex_engine_pass(e, &batch, grad, NULL, NULL, &out->result, &err) == CHEX_OK,
                    "pass");
    BAIL_UNLESS(e->impl->grad_get(e->self, grad, out->grad, &err) == CHEX_OK, "grad_get");
    struct chex_update u = {.optim = CHEX_LARS,
                            .lr = 0.1,
                            .weight_decay = 1e-4,
                            .momentum = 0.9,
                            .step = 1,
                            .grad_scale = 0.5};
    BAIL_UNLESS(chex_engine_update(e, &u, grad, &err) == CHEX_OK, "update");
    BAIL_UNLESS(chex_engine_get(e, CHEX_STATE_PARAMS, out->moments[0], &err) == CHEX_OK, "get");
    BAIL_UNLESS(chex_engine_get(e, CHEX_STATE_MOMENT1, out->moments[1], &err) == CHEX_OK, "get");
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free(pixels);
    free(labels);
    free(buf);
}

static void release(struct outcome *o) {
    free(o->grad);
    free(o->logits);
    free(o->moments[0]);
    free(o->moments[1]);
}

static double distance(const float *a, const float *b, size_t count) {
    double d = 0, r = 1e-30;
    for (size_t i = 0; i < count; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        r += (double)b[i] * (double)b[i];
    }
    return sqrt(d / r);
}

/* The largest relative distance of any parameter with more than `least` of the whole's norm;
 * smaller ones (a batch norm's bias in front of another batch norm) are sums that cancel. */
static double worst(const struct chex_net *net, const float *a, const float *b, int *which_out) {
    double most = -1, all = 0;
    *which_out = 0;
    for (size_t i = 0; i < net->param_count; i++)
        all += (double)b[i] * (double)b[i];
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        double own = 0;
        for (size_t k = 0; k < p->count; k++)
            own += (double)b[p->offset + k] * (double)b[p->offset + k];
        double d = distance(a + p->offset, b + p->offset, p->count);
        if (own > 1e-6 * all && !(d <= most)) {
            most = d;
            *which_out = i;
        }
    }
    return most;
}

static bool same(const struct chex_net *net, const struct outcome *a, const struct outcome *b,
                 int n) {
    size_t bytes = net->state_count * sizeof(float);
    return memcmp(a->grad, b->grad, bytes) == 0 &&
           memcmp(a->moments[0], b->moments[0], bytes) == 0 &&
           memcmp(a->moments[1], b->moments[1], bytes) == 0 &&
           memcmp(a->logits, b->logits, (size_t)n * CLASSES * sizeof(float)) == 0;
}

/* Relative distances that are allowed, and why: see those who set them. */
struct bounds {
    double logits, loss, grad, momentum;
};
/* Some roundings of 6e-8, through a dozen sums. */
static const struct bounds plain_fp32 = {3e-6, 3e-6, 2e-4, 4e-4};
/* Three products keep some 17 bits of 24: roundings of 4e-6. */
static const struct bounds three_products = {3e-5, 3e-5, 5e-4, 1e-3};
/* Roundings of 4e-3 at places that differ between the engines, and the ReLUs they flip. */
static const struct bounds plain_bf16 = {3e-2, 2e-2, 0.5, INFINITY};

/* What ref computes; once for all variants. */
static const struct outcome *reference(void (*fill)(struct chex_net *net),
                                       const struct chex_net *net, int size, int n, bool bf16) {
    enum { MOST = 16 };
    static struct {
        void (*fill)(struct chex_net *net);
        int size, n;
        bool bf16;
        struct outcome outcome;
    } known[MOST];
    static int count;
    int i = 0;
    while (i < count && (known[i].fill != fill || known[i].size != size || known[i].n != n ||
                         known[i].bf16 != bf16))
        i++;
    if (i == count) {
        BAIL_UNLESS(count++ < MOST, "more than %d references", MOST);
        known[i].fill = fill;
        known[i].size = size;
        known[i].n = n;
        known[i].bf16 = bf16;
        run(chex_engine_create, "ref", net, size, n, 2, bf16 ? CHEX_BF16 : CHEX_FP32_STRICT,
            &known[i].outcome);
    }
    return &known[i].outcome;
}

/* Three threads share no map evenly; two are in net_cpu.c. */
static void check(create_fn create, const char *spec, void (*fill)(struct chex_net *net),
                  const char *name, int size, int n, enum chex_precision precision,
                  struct bounds most) {
    struct chex_net *net = build(fill);
    const struct outcome *ref = reference(fill, net, size, n, precision == CHEX_BF16);
    struct outcome cpu, again;
    run(create, spec, net, size, n, 1, precision, &cpu);
    int which;
    double logits = distance(cpu.logits, ref->logits, (size_t)n * CLASSES);
    double loss = fabs(cpu.result.loss - ref->result.loss);
    double grad = worst(net, cpu.grad, ref->grad, &which);
    OK(logits < most.logits && loss < most.loss && grad < most.grad,
       "%s %s %d px n %d %s: logits %.1e, loss %.1e, gradients %.1e (%s)", spec, name, size, n,
       chex_precision_names[precision], logits, loss, grad, net->params[which].name);
    if (precision != CHEX_BF16) {
        double step = worst(net, cpu.moments[1], ref->moments[1], &which);
        OK(step < most.momentum, "%s %s: LARS's momentum within %.1e (%s)", spec, name, step,
           net->params[which].name);
    }
    run(create, spec, net, size, n, 3, precision, &again);
    OK(same(net, &cpu, &again, n), "%s %s %d px n %d: 3 threads give the bits of 1", spec, name,
       size, n);
    release(&again);
    release(&cpu);
    chex_net_destroy(net);
}

#endif
