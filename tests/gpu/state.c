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
    const struct chex_net *net;
    enum chex_precision precision;
    struct chex_batch batch;
};

static struct chex_engine *create(const struct subject *s, const float *state) {
    struct chex_error err = {0};
    struct chex_engine *e = NULL;
    const struct chex_engine_config c = {.net = s->net,
                                         .image_size = SIZE,
                                         .batch = IMAGES,
                                         .precision = s->precision,
                                         .threads = 1,
                                         .training = true};
    BAIL_UNLESS(chex_engine_create(s->spec, &c, &e, &err) == CHEX_OK, "%s", err.text);
    BAIL_UNLESS(chex_engine_set(e, CHEX_STATE_PARAMS, state, &err) == CHEX_OK, "%s", err.text);
    return e;
}

static void infer(struct chex_engine *e, const struct subject *s, float *logits) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_engine_infer(e, &s->batch, logits, &err) == CHEX_OK, "%s", err.text);
}

static void pass(struct chex_engine *e, const struct subject *s, float *grad) {
    struct chex_error err = {0};
    struct chex_pass_result r;
    BAIL_UNLESS(chex_engine_pass(e, &s->batch, grad, NULL, NULL, &r, &err) == CHEX_OK, "%s",
                err.text);
}

/* Logits of an engine that knows `state` alone. Made alike, it convolves by the same ways. */
static void fresh_logits(const struct subject *s, const float *state, float *logits) {
    struct chex_engine *e = create(s, state);
    infer(e, s, logits);
    chex_engine_destroy(e);
}

static void follows(const struct subject *s, const float *first_state) {
    struct chex_error err = {0};
    float first[IMAGES * CLASSES], now[IMAGES * CLASSES], fresh[IMAGES * CLASSES];
    struct chex_engine *e = create(s, first_state);
    float *grad = chex_engine_grad_alloc(e);
    float *state = chex_alloc_zeroed(s->net->state_count, sizeof *state);
    BAIL_UNLESS(grad && state, "out of memory");
    infer(e, s, first);
    pass(e, s, grad);
    for (int k = 0; k < UPDATES; k++)
        BAIL_UNLESS(chex_engine_update(e, &sgd, grad, &err) == CHEX_OK, "%s", err.text);
    struct chex_update unknown = sgd;
    unknown.optim = (enum chex_optim)99;
    OK_STATUS(chex_engine_update(e, &unknown, grad, &err), CHEX_E_USAGE, err,
              "--opt: engine cuda has no rule for it");
    infer(e, s, now);
    BAIL_UNLESS(chex_engine_get(e, CHEX_STATE_PARAMS, state, &err) == CHEX_OK, "%s", err.text);
    fresh_logits(s, state, fresh);
    OK(memcmp(now, fresh, sizeof now) == 0 && memcmp(now, first, sizeof now) != 0,
       "%s: inference after %d updates has a fresh engine's bits", s->spec, UPDATES);
    BAIL_UNLESS(chex_engine_set(e, CHEX_STATE_PARAMS, first_state, &err) == CHEX_OK, "%s",
                err.text);
    infer(e, s, now);
    OK(memcmp(now, first, sizeof now) == 0,
       "%s: with the first parameters again, what it gave at first", s->spec);
    free(state);
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
}

int main(void) {
    struct chex_error err = {0};
    struct chex_net *net = NULL;
    const struct setting setting = {"densenet_tiny", SIZE, IMAGES, IMAGES, CHEX_BF16};
    float *pixels = chex_alloc_zeroed(IMAGES * SIZE * SIZE, sizeof *pixels);
    int8_t labels[IMAGES * CLASSES];
    BAIL_UNLESS(pixels && chex_net_create(setting.model, CLASSES, &net, &err) == CHEX_OK, "%s",
                err.text);
    float *state = make_state(net);
    fill_batch(&setting, pixels, labels);
    const struct chex_batch batch = {.n = IMAGES, .pixels = pixels, .labels = labels};
    const struct subject subjects[] = {{"cuda:s4", net, CHEX_BF16, batch},
                                       {"cuda:s0", net, CHEX_FP32, batch}};
    /* The own stem is in s4; a slow build has no time for it. */
    follows(&subjects[TAP_SLOW_BUILD], state);
    free(state);
    free(pixels);
    chex_net_destroy(net);
    return tap_done();
}
