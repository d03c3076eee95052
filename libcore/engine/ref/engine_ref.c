/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference engine: the definition with which the fast engines are compared in tests. It keeps
 * every activation and uses row-major order, so get and set are plain copies.
 *
 * Precision. fp32 and fp32-strict are the same here: fp32 storage, double sums. ref_walk.c lists
 * the values that bf16 rounds. fp16 is not supported: it needs loss scaling, and only GPUs use it.
 */
#include "engine/ref/engine_ref.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engines.h"
#include "engine/frozen.h"

static enum chex_status ref_probe(char *text_out, size_t size, struct chex_error *err) {
    (void)err;
    int cpus = chex_cpu_count();
    snprintf(text_out, size, "plain C, %d cpu%s", cpus, cpus == 1 ? "" : "s");
    return CHEX_OK;
}

/* Allocates zeroed memory and adds it to r->bytes. Out of memory: sets *ok to false. */
static void *alloc_counted(struct chex_ref_engine *r, size_t count, size_t size, bool *ok) {
    void *p = chex_alloc_zeroed(count, size);
    if (p)
        r->bytes += (uint64_t)count * size;
    else
        *ok = false;
    return p;
}

static size_t buffer_elements(const struct chex_ref_engine *r, int buffer) {
    return (size_t)r->config.batch * (size_t)r->hw[buffer] * (size_t)r->hw[buffer] *
           (size_t)r->net->buffers[buffer].channels;
}

static bool alloc_buffers(struct chex_ref_engine *r) {
    const struct chex_net *net = r->net;
    bool ok = true;
    r->buffers = alloc_counted(r, (size_t)net->buffer_count, sizeof *r->buffers, &ok);
    r->grads = alloc_counted(r, (size_t)net->buffer_count, sizeof *r->grads, &ok);
    r->argmax = alloc_counted(r, (size_t)net->op_count, sizeof *r->argmax, &ok);
    size_t largest = 0;
    for (int i = 0; ok && i < net->buffer_count; i++) {
        size_t count = buffer_elements(r, i);
        largest = count > largest ? count : largest;
        r->buffers[i] = alloc_counted(r, count, sizeof(float), &ok);
        if (r->config.training)
            r->grads[i] = alloc_counted(r, count, sizeof(float), &ok);
    }
    for (int i = 0; ok && i < net->op_count; i++)
        if (r->config.training && net->ops[i].kind == CHEX_OP_MAXPOOL)
            r->argmax[i] =
                alloc_counted(r, buffer_elements(r, net->ops[i].out), sizeof(int32_t), &ok);
    size_t image = (size_t)r->config.image_size * (size_t)r->config.image_size * 3;
    r->image = alloc_counted(r, (size_t)r->config.batch * image, sizeof(float), &ok);
    r->act = alloc_counted(r, largest, sizeof(float), &ok);
    if (r->config.training)
        r->dact = alloc_counted(r, largest, sizeof(float), &ok);
    return ok;
}

static bool alloc_norms(struct chex_ref_engine *r) {
    bool ok = true;
    size_t widest = 1;
    r->bns = alloc_counted(r, (size_t)r->net->bn_count, sizeof *r->bns, &ok);
    for (int i = 0; ok && i < r->net->bn_count; i++) {
        size_t channels = (size_t)r->net->bns[i].channels;
        widest = channels > widest ? channels : widest;
        r->bns[i].mean = alloc_counted(r, 2 * channels, sizeof(double), &ok);
        if (ok)
            r->bns[i].var = r->bns[i].mean + channels;
        r->bns[i].inv = alloc_counted(r, channels, sizeof(double), &ok);
    }
    if (r->config.training)
        r->bn_sums = alloc_counted(r, 2 * widest, sizeof *r->bn_sums, &ok);
    return ok;
}

static bool alloc_vectors(struct chex_ref_engine *r) {
    const struct chex_net *net = r->net;
    size_t batch = (size_t)r->config.batch, classes = (size_t)net->classes, features = 1;
    for (int i = 0; i < net->op_count; i++)
        if (net->ops[i].kind == CHEX_OP_HEAD)
            features = (size_t)net->ops[i].in_channels;
    bool ok = true;
    r->state = alloc_counted(r, net->state_count, sizeof(float), &ok);
    r->pooled = alloc_counted(r, batch * features, sizeof(float), &ok);
    r->logits = alloc_counted(r, batch * classes, sizeof(float), &ok);
    r->forward_s = alloc_counted(r, (size_t)net->op_count, sizeof(double), &ok);
    r->backward_s = alloc_counted(r, (size_t)net->op_count, sizeof(double), &ok);
    if (r->config.training) {
        r->moment1 = alloc_counted(r, net->state_count, sizeof(float), &ok);
        r->moment2 = alloc_counted(r, net->state_count, sizeof(float), &ok);
        if (r->config.ema_decay > 0)
            r->ema = alloc_counted(r, net->state_count, sizeof(float), &ok);
        r->dlogits = alloc_counted(r, batch * classes, sizeof(float), &ok);
    }
    return ok;
}

static void ref_destroy(void *self) {
    struct chex_ref_engine *r = self;
    if (!r)
        return;
    for (int i = 0; i < r->net->buffer_count; i++) {
        if (r->buffers)
            free(r->buffers[i]);
        if (r->grads)
            free(r->grads[i]);
    }
    for (int i = 0; r->argmax && i < r->net->op_count; i++)
        free(r->argmax[i]);
    for (int i = 0; r->bns && i < r->net->bn_count; i++) {
        free(r->bns[i].mean);
        free(r->bns[i].inv);
    }
    void *const parts[] = {r->hw,        r->state,      r->moment1, r->moment2, r->ema,
                           r->buffers,   r->grads,      r->bns,     r->argmax,  r->image,
                           r->act,       r->dact,       r->pooled,  r->logits,  r->dlogits,
                           r->forward_s, r->backward_s, r->bn_sums};
    for (size_t i = 0; i < CHEX_COUNT(parts); i++)
        free(parts[i]);
    chex_ref_ctx_release(&r->ctx);
    free(r);
}

static size_t largest_weight(const struct chex_net *net) {
    size_t largest = 1;
    for (int i = 0; i < net->param_total; i++)
        if (net->params[i].kind == CHEX_PARAM_CONV && net->params[i].count > largest)
            largest = net->params[i].count;
    return largest;
}

static enum chex_status fill(struct chex_ref_engine *r, struct chex_error *err) {
    bool ok = true;
    r->hw = alloc_counted(r, (size_t)r->net->buffer_count, sizeof *r->hw, &ok);
    if (ok)
        CHEX_TRY(chex_net_shapes(r->net, r->config.image_size, r->hw, err));
    if (!ok || !alloc_buffers(r) || !alloc_norms(r) || !alloc_vectors(r))
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "engine ref: no memory for %s with %d images of %d px", r->net->model,
                              r->config.batch, r->config.image_size);
    size_t scratch = largest_weight(r->net);
    CHEX_TRY(chex_ref_ctx_init(&r->ctx, r->config.threads, r->config.precision == CHEX_BF16,
                               scratch, err));
    r->bytes += scratch * sizeof(double);
    r->plain = r->ctx;
    r->plain.bf16 = false;
    return CHEX_OK;
}

static enum chex_status ref_check(const char *variant, enum chex_precision precision,
                                  struct chex_error *err) {
    if (variant)
        return chex_error_set(err, CHEX_E_USAGE, "engine ref has no variant '%s': expected ref",
                              variant);
    if (precision == CHEX_FP16)
        return chex_error_set(err, CHEX_E_USAGE,
                              "engine ref: precision fp16: expected bf16, fp32 or fp32-strict");
    return CHEX_OK;
}

static enum chex_status ref_create(const struct chex_engine_config *config, void **self_out,
                                   struct chex_error *err) {
    struct chex_ref_engine *r = chex_alloc_zeroed(1, sizeof *r);
    if (!r)
        return chex_error_memory(err, "engine ref");
    r->config = *config;
    r->net = config->net;
    enum chex_status st = fill(r, err);
    if (st != CHEX_OK) {
        ref_destroy(r);
        return st;
    }
    *self_out = r;
    return CHEX_OK;
}

static enum chex_status part_of(struct chex_ref_engine *r, enum chex_state_part part,
                                float **vector_out, struct chex_error *err) {
    float *const parts[] = {r->state, r->moment1, r->moment2, r->ema};
    if (!parts[part])
        return chex_error_set(err, CHEX_E_FAIL,
                              part == CHEX_STATE_EMA
                                  ? "engine ref: it was made without a moving average"
                                  : "engine ref: no optimiser moments: it was made for inference "
                                    "only");
    *vector_out = parts[part];
    return CHEX_OK;
}

static enum chex_status ref_set(void *self, enum chex_state_part part, const float *state,
                                struct chex_error *err) {
    struct chex_ref_engine *r = self;
    float *to = NULL;
    CHEX_TRY(part_of(r, part, &to, err));
    memcpy(to, state, r->net->state_count * sizeof *to);
    return CHEX_OK;
}

static enum chex_status ref_get(void *self, enum chex_state_part part, float *state_out,
                                struct chex_error *err) {
    struct chex_ref_engine *r = self;
    float *from = NULL;
    CHEX_TRY(part_of(r, part, &from, err));
    memcpy(state_out, from, r->net->state_count * sizeof *from);
    return CHEX_OK;
}

static enum chex_status ref_infer(void *self, const struct chex_batch *batch, float *logits_out,
                                  struct chex_error *err) {
    struct chex_ref_engine *r = self;
    CHEX_TRY(chex_ref_walk_forward(r, batch, false, err));
    memcpy(logits_out, r->logits, (size_t)batch->n * (size_t)r->net->classes * sizeof *logits_out);
    return CHEX_OK;
}

static enum chex_status ref_class_maps(void *self, int image, float *maps_out,
                                       struct chex_error *err) {
    struct chex_ref_engine *r = self;
    const struct chex_op *head = &r->net->ops[r->net->op_count - 1];
    const size_t hw = (size_t)r->hw[head->in];
    float *pooled = chex_alloc_zeroed(hw * hw * (size_t)head->in_channels, sizeof *pooled);
    if (!pooled)
        return chex_error_set(err, CHEX_E_RESOURCE, "engine ref: out of memory for class maps");
    chex_ref_walk_class_maps(r, image, pooled, maps_out);
    free(pooled);
    return CHEX_OK;
}

static enum chex_status ref_features(void *self, int n, float *features_out,
                                     struct chex_error *err) {
    (void)err;
    const struct chex_ref_engine *r = self;
    const struct chex_op *head = &r->net->ops[r->net->op_count - 1];
    memcpy(features_out, r->pooled, (size_t)n * (size_t)head->in_channels * sizeof *features_out);
    return CHEX_OK;
}

static enum chex_status ref_pass(void *self, const struct chex_batch *batch, float *grad_out,
                                 chex_grad_ready_fn ready, void *ready_arg,
                                 struct chex_pass_result *result_out, struct chex_error *err) {
    struct chex_ref_engine *r = self;
    if (!r->config.training)
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine ref: no training pass: it was made for inference only");
    double start = chex_clock_s();
    CHEX_TRY(chex_ref_walk_forward(r, batch, true, err));
    double loss = chex_loss_mean(&r->config.loss, r->logits, batch->labels, batch->n,
                                 r->net->classes, r->dlogits);
    double middle = chex_clock_s();
    CHEX_TRY(chex_ref_walk_backward(r, batch->n, grad_out, ready, ready_arg, err));
    *result_out = (struct chex_pass_result){
        .loss = loss, .forward_s = middle - start, .backward_s = chex_clock_s() - middle};
    return CHEX_OK;
}

struct update_loop {
    struct chex_ref_engine *r;
    const struct chex_update *trained, *running;
    const float *grad;
};

static void update_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct update_loop *l = arg;
    const struct chex_param *p = &l->r->net->params[item];
    const struct chex_update *u = p->offset < l->r->net->param_count ? l->trained : l->running;
    struct chex_update own;
    if (chex_update_of_param(&l->r->config, u, (int)item, &own))
        chex_update_param(&own, l->r->net, p, l->r->state + p->offset, l->r->moment1 + p->offset,
                          l->r->moment2 + p->offset, l->grad + p->offset);
    if (l->r->ema)
        chex_ema_move(l->r->config.ema_decay, l->r->ema + p->offset, l->r->state + p->offset,
                      p->count);
}

static void sum_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct update_loop *l = arg;
    chex_clip_sum(&l->r->clip, l->grad, l->r->net->param_count, (int)item);
}

static enum chex_status ref_update(void *self, const struct chex_update *update, const float *grad,
                                   struct chex_error *err) {
    struct chex_ref_engine *r = self;
    if (!r->config.training)
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine ref: no update: it was made for inference only");
    struct chex_update trained = *update;
    struct update_loop l = {.r = r, .trained = &trained, .running = update, .grad = grad};
    if (update->clip_norm > 0) {
        chex_ref_each(&r->ctx, CHEX_NORM_PIECES, sum_item, &l);
        trained = chex_clip_apply(&r->clip, update);
    }
    chex_ref_each(&r->ctx, (size_t)r->net->param_total, update_item, &l);
    return CHEX_OK;
}

static enum chex_status ref_grad_norms(void *self, struct chex_grad_norms *out,
                                       struct chex_error *err) {
    (void)err;
    struct chex_ref_engine *r = self;
    chex_clip_take_norms(&r->clip, out);
    return CHEX_OK;
}

static enum chex_status ref_grad_get(void *self, const float *grad, float *out,
                                     struct chex_error *err) {
    (void)err;
    const struct chex_ref_engine *r = self;
    memcpy(out, grad, r->net->state_count * sizeof *out);
    return CHEX_OK;
}

static const char *ref_variant(void *self) {
    (void)self;
    return "plain";
}

static uint64_t ref_bytes(void *self) { return ((const struct chex_ref_engine *)self)->bytes; }

static void ref_op_times(void *self, double *forward_s, double *backward_s) {
    const struct chex_ref_engine *r = self;
    size_t bytes = (size_t)r->net->op_count * sizeof *forward_s;
    memcpy(forward_s, r->forward_s, bytes);
    memcpy(backward_s, r->backward_s, bytes);
}

static void ref_product_shares(void *self, double *share_out) {
    const struct chex_ref_engine *r = self;
    for (int i = 0; i < r->net->op_count; i++)
        share_out[i] = 1;
}

static const struct chex_engine_maps maps = {ref_class_maps, ref_features};
static const struct chex_engine_timing timing = {ref_op_times, ref_product_shares};

const struct chex_engine_impl chex_engine_ref = {
    .name = "ref",
    .summary = "plain loops with double sums: the definition of the numerics",
    .probe = ref_probe,
    .check = ref_check,
    .create = ref_create,
    .destroy = ref_destroy,
    .variant = ref_variant,
    .bytes = ref_bytes,
    .set = ref_set,
    .get = ref_get,
    .grad_get = ref_grad_get,
    .infer = ref_infer,
    .pass = ref_pass,
    .update = ref_update,
    .grad_norms = ref_grad_norms,
    .maps = &maps,
    .timing = &timing,
};
