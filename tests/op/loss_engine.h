/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss inside an engine. With classifier weights of 0 the logits are the biases, so that the
 * loss is known, and the gradient of the biases is the sum of that of the logits.
 */
#ifndef CHEX_TESTS_OP_LOSS_ENGINE_H
#define CHEX_TESTS_OP_LOSS_ENGINE_H

#include "loss_cases.h"
#include "op/engine_test.h"

enum { SIZE = 32, MOST = 3 };

static struct chex_net *net;
static float *state, pixels[MOST * SIZE * SIZE];

struct result {
    double loss;
    float dbias[LOSS_CLASSES];
};

/* Random parameters; the classifier has weights of 0 and these biases. */
static void make_state(const float *bias) {
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        for (size_t k = 0; k < p->count; k++) {
            const float u = chex_rng_unit(chex_rng(3, CHEX_RNG_TEST, p->offset + k, 0).v[0]);
            state[p->offset + k] = p->kind == CHEX_PARAM_FC_WEIGHT ? 0
                                   : p->kind == CHEX_PARAM_FC_BIAS ? bias[k]
                                   : p->kind == CHEX_PARAM_CONV    ? (u - 0.5f) / 8
                                                                   : 0.5f + u;
        }
    }
}

static struct result run(const char *spec, const struct chex_loss *loss, int threads, int n,
                         const int8_t *labels) {
    struct chex_engine_config config =
        test_config(net, &(struct setting){net->model, SIZE, MOST, MOST, CHEX_FP32});
    config.threads = threads;
    config.loss = *loss;
    struct result r;
    const struct chex_batch batch = {n, pixels, labels};
    struct chex_engine *e = test_engine(spec, &config, state);
    float *out = test_floats(net->state_count), *grad = test_grad(e);
    r.loss = test_pass(e, &batch, grad, out).loss;
    for (int i = 0; i < net->param_total; i++)
        if (net->params[i].kind == CHEX_PARAM_FC_BIAS)
            memcpy(r.dbias, out + net->params[i].offset, sizeof r.dbias);
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free(out);
    return r;
}

/* bound: of loss and gradient, relative to the loss and to the largest gradient. */
static inline void check(const char *spec, const struct loss_case *c, int n, double bound) {
    static const float bias[LOSS_CLASSES] = {0.25f, 100, -100, -2.5f, 1.5f};
    float logits[MOST * LOSS_CLASSES], unused[MOST * LOSS_CLASSES];
    int8_t labels[MOST * LOSS_CLASSES];
    double slopes[MOST * LOSS_CLASSES], worst = 0, largest = 0;
    loss_batch(n * LOSS_CLASSES, unused, labels);
    for (int i = 0; i < n * LOSS_CLASSES; i++)
        logits[i] = bias[i % LOSS_CLASSES];
    make_state(bias);
    const double want = textbook_mean(&c->loss, logits, labels, n, LOSS_CLASSES, slopes);
    const struct result r = run(spec, &c->loss, 1, n, labels);
    for (int k = 0; k < LOSS_CLASSES; k++) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += slopes[i * LOSS_CLASSES + k];
            largest = fmax(largest, fabs(slopes[i * LOSS_CLASSES + k]));
        }
        worst = fmax(worst, fabs((double)r.dbias[k] - sum));
    }
    OK(fabs(r.loss - want) <= bound * want && worst <= bound * largest + 1e-10,
       "engine %s, %s, %d images: loss %.10g, within %.1g; gradient within %.1g", spec, c->name, n,
       r.loss, fabs(r.loss - want), worst);
}

static inline void check_threads(const char *spec, const struct loss_case *c) {
    int8_t labels[MOST * LOSS_CLASSES];
    float bias[MOST * LOSS_CLASSES];
    loss_batch(MOST * LOSS_CLASSES, bias, labels);
    make_state(bias);
    const struct result one = run(spec, &c->loss, 1, MOST, labels);
    for (int threads = 2; threads <= 4; threads *= 2) {
        const struct result more = run(spec, &c->loss, threads, MOST, labels);
        OK(more.loss == one.loss && memcmp(more.dbias, one.dbias, sizeof one.dbias) == 0,
           "engine %s, %s: %d threads give the bits of 1", spec, c->name, threads);
    }
}

static inline void begin(void) {
    net = small_net(SMALL_DENSENET, LOSS_CLASSES);
    state = test_floats(net->state_count);
    for (int i = 0; i < MOST * SIZE * SIZE; i++)
        pixels[i] = chex_rng_unit(chex_rng(5, CHEX_RNG_TEST, 1, (uint32_t)i).v[0]);
}

static inline int end(void) {
    free(state);
    chex_net_destroy(net);
    return tap_done();
}

#endif
