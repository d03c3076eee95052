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
#include "engine/ref/engine_ref.h"

struct head {
    struct chex_ref_base base;
    const struct chex_op *op;
    size_t first; /* of the state: where the classifier begins; it ends at param_count */
    float *pooled, *logits, *dlogits; /* (batch, features), (batch, classes) */
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

static void destroy(void *self) {
    struct head *h = self;
    chex_ref_base_release(&h->base);
    free(h);
}

static enum chex_status allocate(struct head *h, struct chex_error *err) {
    const size_t batch = (size_t)h->base.config.batch, classes = (size_t)h->base.net->classes;
    chex_ref_alloc_parts(&h->base);
    h->pooled = chex_ref_alloc(&h->base, batch * (size_t)h->op->in_channels, sizeof(float));
    h->logits = chex_ref_alloc(&h->base, batch * classes, sizeof(float));
    h->dlogits = chex_ref_alloc(&h->base, batch * classes, sizeof(float));
    if (h->base.failed)
        return chex_error_memory(err, "the classifier of %s", h->base.net->model);
    return chex_ref_ctx_init(&h->base.ctx, h->base.config.threads, false, 1, err);
}

static enum chex_status create(const struct chex_engine_config *config, void **self_out,
                               struct chex_error *err) {
    struct head *h = *self_out = chex_alloc_zeroed(1, sizeof *h);
    if (!h)
        return chex_error_memory(err, "the classifier");
    h->base = (struct chex_ref_base){.name = "head", .config = *config, .net = config->net};
    h->op = head_of(config->net);
    h->first = first_of(config->net);
    return allocate(h, err);
}

static enum chex_status grad_get(void *self, const float *grad, float *out,
                                 struct chex_error *err) {
    const struct head *h = self;
    (void)err;
    memset(out, 0, h->base.net->state_count * sizeof *out);
    memcpy(out + h->first, grad, chex_head_gradients(h->base.net) * sizeof *out);
    return CHEX_OK;
}

static float *param(const struct head *h, float *state, int index) {
    return state + h->base.net->params[index].offset;
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
    float *state = h->base.parts[CHEX_STATE_PARAMS];
    memcpy(h->pooled, batch->features,
           (size_t)batch->n * (size_t)h->op->in_channels * sizeof *h->pooled);
    const struct chex_ref_map x = map_of(h, h->pooled, batch->n);
    chex_ref_head_forward(&h->base.ctx, &x, param(h, state, h->op->weight),
                          param(h, state, h->op->bias), h->base.net->classes, h->pooled, h->logits);
    return CHEX_OK;
}

static enum chex_status infer(void *self, const struct chex_batch *batch, float *logits_out,
                              struct chex_error *err) {
    struct head *h = self;
    CHEX_TRY(forward(h, batch, err));
    memcpy(logits_out, h->logits,
           (size_t)batch->n * (size_t)h->base.net->classes * sizeof *logits_out);
    return CHEX_OK;
}

static enum chex_status pass(void *self, const struct chex_batch *batch, float *grad_out,
                             chex_grad_ready_fn ready, void *ready_arg,
                             struct chex_pass_result *result_out, struct chex_error *err) {
    struct head *h = self;
    const struct chex_param *params = h->base.net->params;
    const double start_s = chex_clock_s();
    CHEX_TRY(forward(h, batch, err));
    const double loss = chex_loss_mean(&h->base.config.loss, h->logits, batch->labels, batch->n,
                                       h->base.net->classes, h->dlogits);
    const double middle_s = chex_clock_s();
    const struct chex_ref_map none = map_of(h, NULL, batch->n);
    chex_ref_head_backward(&h->base.ctx, h->pooled, h->dlogits,
                           param(h, h->base.parts[CHEX_STATE_PARAMS], h->op->weight),
                           h->base.net->classes,
                           grad_out + (params[h->op->weight].offset - h->first),
                           grad_out + (params[h->op->bias].offset - h->first), &none);
    if (ready)
        ready(ready_arg, 0, chex_head_gradients(h->base.net));
    *result_out = (struct chex_pass_result){
        .loss = loss, .forward_s = middle_s - start_s, .backward_s = chex_clock_s() - middle_s};
    return CHEX_OK;
}

static void update_param(struct head *h, int index, const struct chex_update *u,
                         const float *grad) {
    chex_ref_step(&h->base, index, u, false, grad + (h->base.net->params[index].offset - h->first));
}

static enum chex_status update(void *self, const struct chex_update *u, const float *grad,
                               struct chex_error *err) {
    struct head *h = self;
    struct chex_update own = *u;
    (void)err;
    if (u->clip_norm > 0) {
        for (int piece = 0; piece < CHEX_NORM_PIECES; piece++)
            chex_clip_sum(&h->base.clip, grad, chex_head_gradients(h->base.net), piece);
        own = chex_clip_apply(&h->base.clip, u);
    }
    update_param(h, h->op->weight, &own, grad);
    update_param(h, h->op->bias, &own, grad);
    return CHEX_OK;
}

static const struct chex_engine_impl chex_engine_head = {.name = "head",
                                                         .summary = "the classifier alone",
                                                         .probe = probe,
                                                         .create = create,
                                                         .destroy = destroy,
                                                         .variant = chex_ref_variant,
                                                         .bytes = chex_ref_bytes,
                                                         .set = chex_ref_set,
                                                         .get = chex_ref_get,
                                                         .grad_get = grad_get,
                                                         .infer = infer,
                                                         .pass = pass,
                                                         .update = update,
                                                         .grad_norms = chex_ref_grad_norms};

enum chex_status chex_head_engine_create(const struct chex_engine_config *config,
                                         struct chex_engine **engine_out, struct chex_error *err) {
    struct chex_engine_config c = *config;
    CHEX_TRY(chex_loss_check(&config->loss, config->net->classes, err));
    c.training = true;
    c.lr_scales = NULL;
    c.sync = NULL;
    return chex_engine_make(&chex_engine_head, &c, engine_out, err);
}
