/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine derives from parameters (copies of weights, the folded stem, 1 / sqrt of running
 * variances) follows them: after updates (direct, captured, replayed) and after a set, inference
 * gives the bits of an engine that has known no other parameters.
 */
#include "op/net.h"

enum { SIZE = 32, IMAGES = 2, UPDATES = 3 };

static const struct chex_update sgd = {
    .optim = CHEX_SGD, .lr = 1e-6, .momentum = 0.9, .grad_scale = 1};

struct subject {
    const char *spec;
    struct chex_engine_config config;
    struct chex_batch batch;
};

/* Logits of an engine that knows `state` alone. Made alike, it convolves by the same ways. */
static void fresh_logits(const struct subject *s, const float *state, float *logits) {
    struct chex_engine *e = test_engine(s->spec, &s->config, state);
    test_infer(e, &s->batch, logits);
    chex_engine_destroy(e);
}

static void follows(const struct subject *s, const float *first_state) {
    struct chex_error err = {0};
    float first[IMAGES * CLASSES], now[IMAGES * CLASSES], fresh[IMAGES * CLASSES];
    struct chex_engine *e = test_engine(s->spec, &s->config, first_state);
    float *grad = test_grad(e), *state = test_floats(s->config.net->state_count);
    test_infer(e, &s->batch, first);
    test_pass(e, &s->batch, grad, NULL);
    for (int k = 0; k < UPDATES; k++)
        test_update(e, &sgd, grad);
    struct chex_update unknown = sgd;
    unknown.optim = (enum chex_optim)99;
    OK_STATUS(chex_engine_update(e, &unknown, grad, &err), CHEX_E_USAGE, err,
              "--opt: engine cuda has no rule for it");
    test_infer(e, &s->batch, now);
    test_get(e, CHEX_STATE_PARAMS, state);
    fresh_logits(s, state, fresh);
    OK(memcmp(now, fresh, sizeof now) == 0 && memcmp(now, first, sizeof now) != 0,
       "%s: inference after %d updates has a fresh engine's bits", s->spec, UPDATES);
    test_set(e, CHEX_STATE_PARAMS, first_state);
    test_infer(e, &s->batch, now);
    OK(memcmp(now, first, sizeof now) == 0,
       "%s: with the first parameters again, what it gave at first", s->spec);
    free(state);
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
}

int main(void) {
    const struct setting bf16 = {"densenet_tiny", SIZE, IMAGES, IMAGES, CHEX_BF16};
    struct setting fp32 = bf16;
    fp32.precision = CHEX_FP32;
    struct chex_net *net = small_net(bf16.model, CLASSES);
    float *state = make_state(net);
    const struct chex_batch batch = make_batch(&bf16);
    const struct subject subjects[] = {{"cuda:s4", test_config(net, &bf16), batch},
                                       {"cuda:s0", test_config(net, &fp32), batch}};
    /* The own stem is in s4; a slow build has no time for it. */
    follows(&subjects[TAP_SLOW_BUILD], state);
    free(state);
    free_batch(&batch);
    chex_net_destroy(net);
    return tap_done();
}
