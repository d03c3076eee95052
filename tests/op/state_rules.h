/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of an engine, compared with engine/update.h applied to row-major vectors: parameters,
 * moments and moving average, to the last bit. Every engine computes Adam, AdamW and SGD element by
 * element with the same expressions.
 */
#ifndef CHEX_TESTS_OP_STATE_RULES_H
#define CHEX_TESTS_OP_STATE_RULES_H

#include "engine/frozen.h"
#include "engine/update.h"
#include "op/net.h"

enum { RULE_SIZE = 32, RULE_IMAGES = 2, RULE_UPDATES = 3, RULE_PARTS = 4 };

/* The state in row-major order: parameters, moments, average. */
struct rule_state {
    float *part[RULE_PARTS];
};

static void rule_alloc(struct rule_state *s, size_t count) {
    for (int k = 0; k < RULE_PARTS; k++)
        s->part[k] = test_floats(count);
}
static void rule_free(struct rule_state *s) {
    for (int k = 0; k < RULE_PARTS; k++)
        free(s->part[k]);
}

static void rule_expect(const struct chex_engine_config *c, const struct chex_update *u,
                        const float *grad, struct rule_state *s) {
    const struct chex_net *net = c->net;
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        float *w = s->part[0] + p->offset;
        struct chex_update own = *u;
        own.lr = u->lr * (c->lr_scales ? c->lr_scales[i] : 1);
        if (own.lr > 0 || p->offset >= net->param_count)
            chex_update_param(&own, net, p, w, s->part[1] + p->offset, s->part[2] + p->offset,
                              grad + p->offset);
        chex_ema_move(c->ema_decay, s->part[3] + p->offset, w, p->count);
    }
}

static void rule_transfer(struct chex_engine *e, struct rule_state *s, bool set) {
    for (int k = 0; k < RULE_PARTS; k++)
        if (set)
            test_set(e, (enum chex_state_part)k, s->part[k]);
        else
            test_get(e, (enum chex_state_part)k, s->part[k]);
}

static void rule_compare(const char *spec, const char *what, const struct rule_state *got,
                         const struct rule_state *want, size_t count) {
    static const char *const names[] = {"parameters", "first moments", "second moments", "average"};
    for (int k = 0; k < RULE_PARTS; k++)
        OK(memcmp(got->part[k], want->part[k], count * sizeof(float)) == 0,
           "%s: %s: the %s are those of the definition", spec, what, names[k]);
}

/* The average in the parameters' place, and back. */
static void rule_swap(const char *spec, struct chex_engine *e, const struct chex_batch *batch,
                      const struct rule_state *now, size_t count) {
    struct chex_error err = {0};
    struct rule_state s;
    float before[RULE_IMAGES * CLASSES], averaged[RULE_IMAGES * CLASSES],
        wanted[RULE_IMAGES * CLASSES];
    rule_alloc(&s, count);
    test_infer(e, batch, before);
    BAIL_UNLESS(chex_engine_swap_ema(e, &err) == CHEX_OK, "%s", err.text);
    test_infer(e, batch, averaged);
    BAIL_UNLESS(chex_engine_swap_ema(e, &err) == CHEX_OK, "%s", err.text);
    rule_transfer(e, &s, false);
    rule_compare(spec, "after two swaps", &s, now, count);
    test_set(e, CHEX_STATE_PARAMS, now->part[3]);
    test_infer(e, batch, wanted);
    OK(memcmp(averaged, wanted, sizeof wanted) == 0 && memcmp(averaged, before, sizeof before) != 0,
       "%s: a swapped engine infers with the average", spec);
    rule_free(&s);
}

static void rule_run(const char *spec, const struct chex_engine_config *c, struct chex_update u,
                     const char *what) {
    const size_t count = c->net->state_count;
    const struct setting shape = {.size = RULE_SIZE, .n = RULE_IMAGES, .batch = RULE_IMAGES};
    struct rule_state want, got;
    const struct chex_batch batch = make_batch(&shape);
    float *rows = test_floats(count);
    struct chex_engine *e = test_engine(spec, c, NULL);
    float *grad = test_grad(e);
    rule_alloc(&want, count);
    rule_alloc(&got, count);
    chex_net_init_state(c->net, 3, 1, want.part[0]);
    memcpy(want.part[3], want.part[0], count * sizeof(float));
    rule_transfer(e, &want, true);
    test_pass(e, &batch, grad, rows);
    for (int k = 0; k < RULE_UPDATES; k++) {
        u.step = k + 1;
        test_update(e, &u, grad);
        rule_expect(c, &u, rows, &want);
    }
    rule_transfer(e, &got, false);
    rule_compare(spec, what, &got, &want, count);
    rule_swap(spec, e, &batch, &got, count);
    rule_free(&want);
    rule_free(&got);
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free_batch(&batch);
    free(rows);
}

/* Two passes of an engine with frozen parameters and one of an engine without. */
static void rule_gradients(const char *spec, const struct chex_engine_config *frozen,
                           const char *what) {
    struct chex_error err = {0};
    const struct chex_net *net = frozen->net;
    const size_t count = net->state_count;
    const struct setting shape = {.size = RULE_SIZE, .n = RULE_IMAGES, .batch = RULE_IMAGES};
    const struct chex_batch batch = make_batch(&shape);
    float *rows[3];
    struct chex_engine_config configs[2] = {*frozen, *frozen};
    float *state = make_state(net);
    configs[1].lr_scales = NULL;
    for (int k = 0; k < 3; k++) {
        struct chex_pass_result r;
        size_t seen[4] = {net->param_count, 0, 0, count};
        struct chex_engine *e = test_engine(spec, &configs[k == 2], state);
        float *grad = test_grad(e);
        rows[k] = test_floats(count);
        for (int pass = 0; pass <= k % 2; pass++) { /* k = 1: the second of two passes */
            seen[0] = net->param_count;
            BAIL_UNLESS(chex_engine_pass(e, &batch, grad, pass ? NULL : ready, seen, &r, &err) ==
                            CHEX_OK,
                        "%s", err.text);
        }
        OK(k % 2 || seen[0] == 0, "%s: %s: all ranges are reported", spec, what);
        BAIL_UNLESS(e->impl->grad_get(e->self, grad, rows[k], &err) == CHEX_OK, "%s", err.text);
        chex_engine_grad_free(e, grad);
        chex_engine_destroy(e);
    }
    chex_frozen_zero(frozen, rows[2], 0, net->param_count);
    OK(memcmp(rows[0], rows[2], count * sizeof(float)) == 0 &&
           memcmp(rows[1], rows[2], count * sizeof(float)) == 0,
       "%s: %s: gradients are 0 for frozen parameters, and as without for the others", spec, what);
    for (int k = 0; k < 3; k++)
        free(rows[k]);
    free_batch(&batch);
    free(state);
}

/* All parameters before the last third of the network are frozen, or every third tensor is. */
static double *rule_scales(const struct chex_net *net, bool first) {
    double *scales = test_alloc((size_t)net->param_total, sizeof *scales);
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        const bool frozen = first ? 3 * p->layer < 2 * net->layer : i % 3 == 0;
        scales[i] = frozen ? 0 : pow(0.9, net->layer - p->layer);
    }
    return scales;
}

static void rule_check(const char *spec, const char *model) {
    struct chex_error err = {0};
    struct chex_net *net = small_net(model, CLASSES);
    struct chex_engine_config c =
        test_config(net, &(struct setting){model, RULE_SIZE, RULE_IMAGES, RULE_IMAGES, CHEX_FP32});
    c.threads = 2;
    c.ema_decay = 0.9;
    const struct chex_update adamw = {.optim = CHEX_ADAMW,
                                      .lr = 1e-3,
                                      .weight_decay = 0.05,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .eps = 1e-8,
                                      .grad_scale = 1};
    rule_run(spec, &c, adamw, "adamw with an average");
    for (int first = 0; first < 2; first++) {
        struct chex_engine_config scaled = c;
        double *scales = rule_scales(net, first);
        scaled.lr_scales = scales;
        rule_gradients(spec, &scaled, first ? "the first layers are frozen" : "some are frozen");
        struct chex_update u = adamw;
        u.optim = first ? CHEX_SGD : CHEX_ADAMW;
        u.momentum = 0.9;
        rule_run(spec, &scaled, u, first ? "sgd by layers" : "adamw by layers");
        free(scales);
    }
    struct chex_engine_config none = c;
    none.ema_decay = 0;
    struct chex_engine *e = test_engine(spec, &none, NULL);
    OK_STATUS(chex_engine_swap_ema(e, &err), CHEX_E_FAIL, err, "without a moving average");
    chex_engine_destroy(e);
    chex_net_destroy(net);
}

#endif
