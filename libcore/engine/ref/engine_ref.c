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

static size_t buffer_elements(const struct chex_ref_engine *r, int buffer) {
    return (size_t)r->base.config.batch * (size_t)r->hw[buffer] * (size_t)r->hw[buffer] *
           (size_t)r->base.net->buffers[buffer].channels;
}

static void alloc_buffers(struct chex_ref_engine *r) {
    const struct chex_net *net = r->base.net;
    r->buffers = chex_ref_alloc(&r->base, (size_t)net->buffer_count, sizeof *r->buffers);
    r->grads = chex_ref_alloc(&r->base, (size_t)net->buffer_count, sizeof *r->grads);
    r->argmax = chex_ref_alloc(&r->base, (size_t)net->op_count, sizeof *r->argmax);
    size_t largest = 0;
    for (int i = 0; !r->base.failed && i < net->buffer_count; i++) {
        size_t count = buffer_elements(r, i);
        largest = count > largest ? count : largest;
        r->buffers[i] = chex_ref_alloc(&r->base, count, sizeof(float));
        if (r->base.config.training)
            r->grads[i] = chex_ref_alloc(&r->base, count, sizeof(float));
    }
    for (int i = 0; !r->base.failed && i < net->op_count; i++)
        if (r->base.config.training && net->ops[i].kind == CHEX_OP_MAXPOOL)
            r->argmax[i] =
                chex_ref_alloc(&r->base, buffer_elements(r, net->ops[i].out), sizeof(int32_t));
    size_t image = (size_t)r->base.config.image_size * (size_t)r->base.config.image_size * 3;
    r->image = chex_ref_alloc(&r->base, (size_t)r->base.config.batch * image, sizeof(float));
    r->act = chex_ref_alloc(&r->base, largest, sizeof(float));
    if (r->base.config.training)
        r->dact = chex_ref_alloc(&r->base, largest, sizeof(float));
}

static void alloc_norms(struct chex_ref_engine *r) {
    size_t widest = 1;
    r->bns = chex_ref_alloc(&r->base, (size_t)r->base.net->bn_count, sizeof *r->bns);
    for (int i = 0; !r->base.failed && i < r->base.net->bn_count; i++) {
        size_t channels = (size_t)r->base.net->bns[i].channels;
        double *all = chex_ref_alloc(&r->base, 3 * channels, sizeof *all);
        widest = channels > widest ? channels : widest;
        if (all)
            r->bns[i] = (struct chex_ref_norm){all, all + channels, all + 2 * channels};
    }
    if (r->base.config.training)
        r->bn_sums = chex_ref_alloc(&r->base, 2 * widest, sizeof *r->bn_sums);
}

static void alloc_vectors(struct chex_ref_engine *r) {
    const struct chex_net *net = r->base.net;
    const size_t batch = (size_t)r->base.config.batch, classes = (size_t)net->classes;
    const size_t features = (size_t)net->ops[net->op_count - 1].in_channels;
    chex_ref_alloc_parts(&r->base);
    r->pooled = chex_ref_alloc(&r->base, batch * features, sizeof(float));
    r->logits = chex_ref_alloc(&r->base, batch * classes, sizeof(float));
    r->forward_s = chex_ref_alloc(&r->base, (size_t)net->op_count, sizeof(double));
    r->backward_s = chex_ref_alloc(&r->base, (size_t)net->op_count, sizeof(double));
    if (r->base.config.training)
        r->dlogits = chex_ref_alloc(&r->base, batch * classes, sizeof(float));
}

static void ref_destroy(void *self) {
    struct chex_ref_engine *r = self;
    chex_ref_base_release(&r->base);
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
    r->hw = chex_ref_alloc(&r->base, (size_t)r->base.net->buffer_count, sizeof *r->hw);
    if (r->hw) {
        CHEX_TRY(chex_net_shapes(r->base.net, r->base.config.image_size, r->hw, err));
        alloc_buffers(r);
        alloc_norms(r);
        alloc_vectors(r);
    }
    if (r->base.failed)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "engine ref: no memory for %s with %d images of %d px",
                              r->base.net->model, r->base.config.batch, r->base.config.image_size);
    size_t scratch = largest_weight(r->base.net);
    CHEX_TRY(chex_ref_ctx_init(&r->base.ctx, r->base.config.threads,
                               r->base.config.precision == CHEX_BF16, scratch, err));
    r->base.bytes += scratch * sizeof(double);
    r->plain = r->base.ctx;
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
    struct chex_ref_engine *r = *self_out = chex_alloc_zeroed(1, sizeof *r);
    if (!r)
        return chex_error_memory(err, "engine ref");
    r->base = (struct chex_ref_base){.name = "ref", .config = *config, .net = config->net};
    return fill(r, err);
}

static enum chex_status ref_infer(void *self, const struct chex_batch *batch, float *logits_out,
                                  struct chex_error *err) {
    struct chex_ref_engine *r = self;
    CHEX_TRY(chex_ref_walk_forward(r, batch, false, err));
    memcpy(logits_out, r->logits,
           (size_t)batch->n * (size_t)r->base.net->classes * sizeof *logits_out);
    return CHEX_OK;
}

static enum chex_status ref_class_maps(void *self, int image, float *maps_out,
                                       struct chex_error *err) {
    struct chex_ref_engine *r = self;
    const struct chex_op *head = &r->base.net->ops[r->base.net->op_count - 1];
    const size_t hw = (size_t)r->hw[head->in];
    CHEX_AUTO_FREE float *pooled =
        chex_alloc_zeroed(hw * hw * (size_t)head->in_channels, sizeof *pooled);
    if (!pooled)
        return chex_error_set(err, CHEX_E_RESOURCE, "engine ref: out of memory for class maps");
    chex_ref_walk_class_maps(r, image, pooled, maps_out);
    return CHEX_OK;
}

static enum chex_status ref_features(void *self, int n, float *features_out,
                                     struct chex_error *err) {
    (void)err;
    const struct chex_ref_engine *r = self;
    const struct chex_op *head = &r->base.net->ops[r->base.net->op_count - 1];
    memcpy(features_out, r->pooled, (size_t)n * (size_t)head->in_channels * sizeof *features_out);
    return CHEX_OK;
}

static enum chex_status ref_pass(void *self, const struct chex_batch *batch, float *grad_out,
                                 chex_grad_ready_fn ready, void *ready_arg,
                                 struct chex_pass_result *result_out, struct chex_error *err) {
    struct chex_ref_engine *r = self;
    double start = chex_clock_s();
    CHEX_TRY(chex_ref_walk_forward(r, batch, true, err));
    double loss = chex_loss_mean(&r->base.config.loss, r->logits, batch->labels, batch->n,
                                 r->base.net->classes, r->dlogits);
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
    const struct chex_param *p = &l->r->base.net->params[item];
    const struct chex_update *u = p->offset < l->r->base.net->param_count ? l->trained : l->running;
    struct chex_update own;
    const bool frozen = !chex_update_of_param(&l->r->base.config, u, (int)item, &own);
    chex_ref_step(&l->r->base, (int)item, &own, frozen, l->grad + p->offset);
}

static void sum_item(void *arg, size_t item, int worker) {
    (void)worker;
    const struct update_loop *l = arg;
    chex_clip_sum(&l->r->base.clip, l->grad, l->r->base.net->param_count, (int)item);
}

static enum chex_status ref_update(void *self, const struct chex_update *update, const float *grad,
                                   struct chex_error *err) {
    struct chex_ref_engine *r = self;
    (void)err;
    struct chex_update trained = *update;
    struct update_loop l = {.r = r, .trained = &trained, .running = update, .grad = grad};
    if (update->clip_norm > 0) {
        chex_ref_each(&r->base.ctx, CHEX_NORM_PIECES, sum_item, &l);
        trained = chex_clip_apply(&r->base.clip, update);
    }
    chex_ref_each(&r->base.ctx, (size_t)r->base.net->param_total, update_item, &l);
    return CHEX_OK;
}

static enum chex_status ref_grad_get(void *self, const float *grad, float *out,
                                     struct chex_error *err) {
    (void)err;
    const struct chex_ref_engine *r = self;
    memcpy(out, grad, r->base.net->state_count * sizeof *out);
    return CHEX_OK;
}

static void ref_op_times(void *self, double *forward_s, double *backward_s) {
    const struct chex_ref_engine *r = self;
    size_t bytes = (size_t)r->base.net->op_count * sizeof *forward_s;
    memcpy(forward_s, r->forward_s, bytes);
    memcpy(backward_s, r->backward_s, bytes);
}

static void ref_product_shares(void *self, double *share_out) {
    const struct chex_ref_engine *r = self;
    for (int i = 0; i < r->base.net->op_count; i++)
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
    .variant = chex_ref_variant,
    .bytes = chex_ref_bytes,
    .set = chex_ref_set,
    .get = chex_ref_get,
    .grad_get = ref_grad_get,
    .infer = ref_infer,
    .pass = ref_pass,
    .update = ref_update,
    .grad_norms = chex_ref_grad_norms,
    .maps = &maps,
    .timing = &timing,
};
