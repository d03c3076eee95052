/* SPDX-License-Identifier: Apache-2.0
 *
 * The classifier alone as an engine (head_engine.h).
 */
#include "engine/ref/head_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/ref/ref_ops.h"
#include "engine/update.h"

enum { PARTS = 4 }; /* of enum chex_state_part */

struct head {
    struct chex_engine_config config;
    const struct chex_net *net;
    const struct chex_op *op;
    size_t first; /* of the state: where the classifier begins; it ends at param_count */
    struct chex_ref_ctx ctx;
    float *state[PARTS];              /* whole state vectors; the average is NULL without one */
    float *pooled, *logits, *dlogits; /* (batch, features), (batch, classes) */
    struct chex_clip clip;
    uint64_t bytes;
};

static const struct chex_op *head_of(const struct chex_net *net) {
    return &net->ops[net->op_count - 1];
}

int chex_head_features(const struct chex_net *net) { return head_of(net)->in_channels; }

/* Parameters are in forward order, so those of the classifier are the last that train. */
static size_t first_of(const struct chex_net *net) {
    return net->params[head_of(net)->weight].offset;
}

size_t chex_head_gradients(const struct chex_net *net) { return net->param_count - first_of(net); }

static enum chex_status probe(char *text_out, size_t size, struct chex_error *err) {
    (void)err;
    snprintf(text_out, size, "plain C");
    return CHEX_OK;
}

static float *alloc_counted(struct head *h, size_t count, bool *ok) {
    float *p = chex_alloc_zeroed(count, sizeof *p);
    h->bytes += (uint64_t)count * sizeof *p;
    *ok = *ok && p;
    return p;
}

static void destroy(void *self) {
    struct head *h = self;
    if (!h)
        return;
    for (int i = 0; i < PARTS; i++)
        free(h->state[i]);
    free(h->pooled);
    free(h->logits);
    free(h->dlogits);
    chex_ref_ctx_release(&h->ctx);
    free(h);
}

static enum chex_status fill(struct head *h, struct chex_error *err) {
    const size_t batch = (size_t)h->config.batch, classes = (size_t)h->net->classes;
    bool ok = true;
    for (int i = 0; i < PARTS; i++)
        if (i != CHEX_STATE_EMA || h->config.ema_decay > 0)
            h->state[i] = alloc_counted(h, h->net->state_count, &ok);
    h->pooled = alloc_counted(h, batch * (size_t)h->op->in_channels, &ok);
    h->logits = alloc_counted(h, batch * classes, &ok);
    h->dlogits = alloc_counted(h, batch * classes, &ok);
    if (!ok)
        return chex_error_memory(err, "the classifier of %s", h->net->model);
    return chex_ref_ctx_init(&h->ctx, h->config.threads, false, 1, err);
}

static enum chex_status create(const struct chex_engine_config *config, void **self_out,
                               struct chex_error *err) {
    struct head *h = chex_alloc_zeroed(1, sizeof *h);
    if (!h)
        return chex_error_memory(err, "the classifier");
    h->config = *config;
    h->net = config->net;
    h->op = head_of(config->net);
    h->first = first_of(config->net);
    const enum chex_status st = fill(h, err);
    if (st != CHEX_OK) {
        destroy(h);
        return st;
    }
    *self_out = h;
    return CHEX_OK;
}

static const char *variant(void *self) {
    (void)self;
    return "plain";
}

static uint64_t bytes(void *self) { return ((const struct head *)self)->bytes; }

static enum chex_status part_of(const struct head *h, enum chex_state_part part, float **out,
                                struct chex_error *err) {
    *out = h->state[part];
    return *out ? CHEX_OK
                : chex_error_set(err, CHEX_E_FAIL,
                                 "engine head: it was made without a moving average");
}

static enum chex_status set(void *self, enum chex_state_part part, const float *state,
                            struct chex_error *err) {
    const struct head *h = self;
    float *to;
    CHEX_TRY(part_of(h, part, &to, err));
    memcpy(to, state, h->net->state_count * sizeof *to);
    return CHEX_OK;
}

static enum chex_status get(void *self, enum chex_state_part part, float *state_out,
                            struct chex_error *err) {
    const struct head *h = self;
    float *from;
    CHEX_TRY(part_of(h, part, &from, err));
    memcpy(state_out, from, h->net->state_count * sizeof *from);
    return CHEX_OK;
}

static enum chex_status grad_get(void *self, const float *grad, float *out,
                                 struct chex_error *err) {
    const struct head *h = self;
    (void)err;
    memset(out, 0, h->net->state_count * sizeof *out);
    memcpy(out + h->first, grad, chex_head_gradients(h->net) * sizeof *out);
    return CHEX_OK;
}

static float *param(const struct head *h, float *state, int index) {
    return state + h->net->params[index].offset;
}

/* The features as a map of one position; its mean is the features themselves. */
static struct chex_ref_map map_of(const struct head *h, float *data, int n) {
    const int features = h->op->in_channels;
    return (struct chex_ref_map){data, n, 1, 1, features, features};
}

static enum chex_status forward(struct head *h, const struct chex_batch *batch,
                                struct chex_error *err) {
    if (!batch->features)
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine head: a batch of images, expected features");
    float *state = h->state[CHEX_STATE_PARAMS];
    memcpy(h->pooled, batch->features,
           (size_t)batch->n * (size_t)h->op->in_channels * sizeof *h->pooled);
    const struct chex_ref_map x = map_of(h, h->pooled, batch->n);
    chex_ref_head_forward(&h->ctx, &x, param(h, state, h->op->weight), param(h, state, h->op->bias),
                          h->net->classes, h->pooled, h->logits);
    return CHEX_OK;
}

static enum chex_status infer(void *self, const struct chex_batch *batch, float *logits_out,
                              struct chex_error *err) {
    struct head *h = self;
    CHEX_TRY(forward(h, batch, err));
    memcpy(logits_out, h->logits, (size_t)batch->n * (size_t)h->net->classes * sizeof *logits_out);
    return CHEX_OK;
}

static enum chex_status pass(void *self, const struct chex_batch *batch, float *grad_out,
                             chex_grad_ready_fn ready, void *ready_arg,
                             struct chex_pass_result *result_out, struct chex_error *err) {
    struct head *h = self;
    const struct chex_param *params = h->net->params;
    const double start_s = chex_clock_s();
    CHEX_TRY(forward(h, batch, err));
    const double loss = chex_loss_mean(&h->config.loss, h->logits, batch->labels, batch->n,
                                       h->net->classes, h->dlogits);
    const double middle_s = chex_clock_s();
    const struct chex_ref_map none = map_of(h, NULL, batch->n);
    chex_ref_head_backward(&h->ctx, h->pooled, h->dlogits,
                           param(h, h->state[CHEX_STATE_PARAMS], h->op->weight), h->net->classes,
                           grad_out + (params[h->op->weight].offset - h->first),
                           grad_out + (params[h->op->bias].offset - h->first), &none);
    if (ready)
        ready(ready_arg, 0, chex_head_gradients(h->net));
    *result_out = (struct chex_pass_result){
        .loss = loss, .forward_s = middle_s - start_s, .backward_s = chex_clock_s() - middle_s};
    return CHEX_OK;
}

static void update_param(struct head *h, int index, const struct chex_update *u,
                         const float *grad) {
    const struct chex_param *p = &h->net->params[index];
    float *w = param(h, h->state[CHEX_STATE_PARAMS], index);
    chex_update_param(u, h->net, p, w, param(h, h->state[CHEX_STATE_MOMENT1], index),
                      param(h, h->state[CHEX_STATE_MOMENT2], index), grad + (p->offset - h->first));
    if (h->state[CHEX_STATE_EMA])
        chex_ema_move(h->config.ema_decay, param(h, h->state[CHEX_STATE_EMA], index), w, p->count);
}

static enum chex_status update(void *self, const struct chex_update *u, const float *grad,
                               struct chex_error *err) {
    struct head *h = self;
    struct chex_update own = *u;
    (void)err;
    if (u->clip_norm > 0) {
        for (int piece = 0; piece < CHEX_NORM_PIECES; piece++)
            chex_clip_sum(&h->clip, grad, chex_head_gradients(h->net), piece);
        own = chex_clip_apply(&h->clip, u);
    }
    update_param(h, h->op->weight, &own, grad);
    update_param(h, h->op->bias, &own, grad);
    return CHEX_OK;
}

static enum chex_status grad_norms(void *self, struct chex_grad_norms *out,
                                   struct chex_error *err) {
    (void)err;
    chex_clip_take_norms(&((struct head *)self)->clip, out);
    return CHEX_OK;
}

static const struct chex_engine_impl chex_engine_head = {.name = "head",
                                                         .summary = "the classifier alone",
                                                         .probe = probe,
                                                         .create = create,
                                                         .destroy = destroy,
                                                         .variant = variant,
                                                         .bytes = bytes,
                                                         .set = set,
                                                         .get = get,
                                                         .grad_get = grad_get,
                                                         .infer = infer,
                                                         .pass = pass,
                                                         .update = update,
                                                         .grad_norms = grad_norms};

enum chex_status chex_head_engine_create(const struct chex_engine_config *config,
                                         struct chex_engine **engine_out, struct chex_error *err) {
    CHEX_TRY(chex_loss_check(&config->loss, config->net->classes, err));
    struct chex_engine *e = chex_alloc_zeroed(1, sizeof *e);
    if (!e)
        return chex_error_memory(err, NULL);
    e->impl = &chex_engine_head;
    e->config = *config;
    e->config.device = NULL;
    e->config.lr_scales = NULL;
    e->config.sync = NULL;
    const enum chex_status st = create(&e->config, &e->self, err);
    if (st != CHEX_OK) {
        free(e);
        return st;
    }
    *engine_out = e;
    return CHEX_OK;
}
