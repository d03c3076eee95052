/* SPDX-License-Identifier: Apache-2.0
 *
 * Every operation of the cpu engine in small networks, against the ref engine: kernels 1, 3 and 7,
 * strides 1 and 2, odd and single-pixel maps, a dense layer, a transition, channels in odd
 * multiples of 16, both kinds of residual block, heads with and without batch norm.
 *
 * The networks are shallow on purpose. A ReLU whose input is within rounding of 0 opens in one
 * engine and not in the other, and after a hundred layers that is some percent of a gradient; with
 * a dozen layers and few pixels none is that close, so the bounds can be a few roundings wide.
 */
#ifndef CHEX_TESTS_OP_CONV_H
#define CHEX_TESTS_OP_CONV_H

#include "op/engine_test.h"

enum { SEED = 11 };

static void conv(struct chex_net *net, const char *name, struct chex_operand in, int out, int first,
                 int channels, int kernel, int stride) {
    chex_net_add_conv(net, name, name, in, out, first, channels, kernel, stride);
}

/* A convolution into a buffer of its own, and the batch norm of that buffer. */
static struct chex_operand conv_bn(struct chex_net *net, const char *base, int part,
                                   struct chex_operand in, int channels, int kernel, int stride) {
    char name[32];
    const int out = chex_net_add_buffer(net, channels);
    snprintf(name, sizeof name, "%s.c%d", base, part);
    conv(net, name, in, out, 0, channels, kernel, stride);
    snprintf(name, sizeof name, "%s.n%d", base, part);
    return (struct chex_operand){out, channels, chex_net_add_bn(net, name, out, channels)};
}

static struct chex_operand residual(struct chex_net *net, const char *base, struct chex_operand x,
                                    int width, int out_channels, int stride) {
    struct chex_operand z = conv_bn(net, base, 1, x, width, 1, 1), side = x;
    z = conv_bn(net, base, 2, z, width, 3, stride);
    z = conv_bn(net, base, 3, z, out_channels, 1, 1);
    if (stride > 1 || x.channels != out_channels)
        side = conv_bn(net, base, 4, x, out_channels, 1, stride);
    const int out = chex_net_add_buffer(net, out_channels);
    chex_net_add_residual(net, "join", z, side, out);
    return (struct chex_operand){out, out_channels, CHEX_NET_NONE};
}

/* Stem and maximum pooling into the first 64 channels of a buffer. */
static int stem(struct chex_net *net, int channels) {
    const struct chex_operand z = conv_bn(net, "stem", 0, CHEX_IMAGE_OPERAND, 64, 7, 2);
    const int x = chex_net_add_buffer(net, channels);
    chex_net_add_pool(net, "pool", CHEX_OP_MAXPOOL, z, x);
    return x;
}

/* Two dense layers and a transition, then a normed head. extra: added to some channel counts. */
static void dense_of(struct chex_net *net, int extra) {
    const int growth = 32 + extra, all = 64 + 2 * growth, x = stem(net, all);
    for (int layer = 0; layer < 2; layer++) {
        const int channels = 64 + growth * layer,
                  bn = chex_net_add_bn(net, layer ? "n1" : "n0", x, channels);
        const struct chex_operand z =
            conv_bn(net, layer ? "l1" : "l0", 1, (struct chex_operand){x, channels, bn},
                    128 + extra * layer, 1, 1);
        conv(net, layer ? "l1.c2" : "l0.c2", z, x, channels, growth, 3, 1);
    }
    const int bn = chex_net_add_bn(net, "t.n", x, all), p = chex_net_add_buffer(net, all);
    chex_net_add_pool(net, "pool", CHEX_OP_AVGPOOL, (struct chex_operand){x, all, bn}, p);
    const struct chex_operand y =
        conv_bn(net, "t", 1, (struct chex_operand){p, all, CHEX_NET_NONE}, 64 + extra, 1, 1);
    chex_net_add_head(net, "head", y);
}
static void dense(struct chex_net *net) { dense_of(net, 0); }
/* Odd multiples of 16 channels: into and out of 1x1 and 3x3 convolutions. */
static void uneven(struct chex_net *net) { dense_of(net, 16); }

/* Residual blocks of both kinds, down to single pixels, and a bare head. */
static void residuals(struct chex_net *net) {
    struct chex_operand x = {stem(net, 64), 64, CHEX_NET_NONE};
    x = residual(net, "a", x, 32, 160, 1);
    x = residual(net, "b", x, 32, 160, 1);
    x = residual(net, "c", x, 64, 256, 2);
    chex_net_add_head(net, "head", x);
}

static struct chex_net *build(void (*fill)(struct chex_net *net)) {
    struct chex_error err = {0};
    struct chex_net *net = chex_net_new("test", CLASSES);
    net->init = CHEX_INIT_RESNET;
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
    float *pixels = test_floats(area), *buf = test_floats(state);
    int8_t *labels = test_alloc((size_t)n * CLASSES, 1);
    for (size_t i = 0; i < area; i++)
        pixels[i] = unit(1000, i);
    for (size_t i = 0; i < (size_t)n * CLASSES; i++)
        labels[i] = (int8_t)(unit(1001, i) * 3) - 1;
    fill_state(net, buf);
    struct chex_batch batch = {n, pixels, labels};
    float *grad = test_grad(e);
    *out = (struct outcome){.grad = test_floats(state),
                            .logits = test_floats((size_t)n * CLASSES),
                            .moments = {test_floats(state), test_floats(state)}};
    test_set(e, CHEX_STATE_PARAMS, buf);
    test_infer(e, &batch, out->logits);
    /* Twice: nothing of the first pass may be left in the second. */
    for (int pass = 0; pass < 2; pass++)
        out->result = test_pass(e, &batch, grad, out->grad);
    struct chex_update u = {.optim = CHEX_LARS,
                            .lr = 0.1,
                            .weight_decay = 1e-4,
                            .momentum = 0.9,
                            .step = 1,
                            .grad_scale = 0.5};
    test_update(e, &u, grad);
    test_get(e, CHEX_STATE_PARAMS, out->moments[0]);
    test_get(e, CHEX_STATE_MOMENT1, out->moments[1]);
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
        double d = rel_l2(a + p->offset, b + p->offset, p->count);
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
    struct known {
        void (*fill)(struct chex_net *net);
        int size, n;
        bool bf16;
        struct outcome outcome;
    };
    static struct known known[MOST];
    static int count;
    int i = 0;
    while (i < count && (known[i].fill != fill || known[i].size != size || known[i].n != n ||
                         known[i].bf16 != bf16))
        i++;
    if (i == count) {
        BAIL_UNLESS(count++ < MOST, "more than %d references", MOST);
        known[i] = (struct known){fill, size, n, bf16, {.grad = NULL}};
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
    double logits = rel_l2(cpu.logits, ref->logits, (size_t)n * CLASSES);
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
