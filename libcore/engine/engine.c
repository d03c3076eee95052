/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include <string.h>

#include "base/mem.h"
#include "engine/engines.h"

const char *const chex_precision_names[] = {"bf16", "fp32", "fp32-strict", "fp16", NULL};
const char *const chex_optim_names[] = {"adam", "adamw", "sgd", "lars", NULL};

const struct chex_engine_impl *const chex_engines[] = {
    &chex_engine_cpu,
    &chex_engine_cuda,
    &chex_engine_ref,
    NULL,
};

static const struct chex_engine_impl *find(const char *spec, const char **variant_out) {
    const char *colon = strchr(spec, ':');
    size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
    *variant_out = colon ? colon + 1 : NULL;
    for (size_t i = 0; chex_engines[i]; i++)
        if (strlen(chex_engines[i]->name) == n && memcmp(chex_engines[i]->name, spec, n) == 0)
            return chex_engines[i];
    return NULL;
}

static enum chex_status check_config(const struct chex_engine_config *c, struct chex_error *err) {
    int *hw = chex_mem_zalloc((size_t)c->net->buffer_count, sizeof *hw);
    if (!hw)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = chex_net_shapes(c->net, c->image_size, hw, err);
    free(hw);
    if (st != CHEX_OK)
        return st;
    if (c->batch < 1)
        return chex_error_set(err, CHEX_E_USAGE, "batch size %d: expected 1 or more", c->batch);
    if (c->threads < 1)
        return chex_error_set(err, CHEX_E_USAGE, "%d threads: expected 1 or more", c->threads);
    return CHEX_OK;
}

enum chex_status chex_engine_load(const char *spec, const struct chex_engine_impl **impl_out,
                                  struct chex_error *err) {
    const char *variant;
    const struct chex_engine_impl *impl = find(spec, &variant);
    if (!impl)
        return chex_error_set(err, CHEX_E_USAGE,
                              "unknown engine '%s': expected auto, ref, cpu or "
                              "cuda, with a variant as in cpu:avx2",
                              spec);
    if (impl->load)
        return impl->load(impl_out, err);
    *impl_out = impl;
    return CHEX_OK;
}

enum chex_status chex_engine_create(const char *spec, const struct chex_engine_config *config,
                                    struct chex_engine **engine_out, struct chex_error *err) {
    struct chex_engine_config c = *config;
    const struct chex_engine_impl *impl;
    find(spec, &c.variant);
    CHEX_TRY(chex_engine_load(spec, &impl, err));
    CHEX_TRY(check_config(&c, err));
    struct chex_engine *e = chex_mem_zalloc(1, sizeof *e);
    if (!e)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    e->impl = impl;
    e->config = c;
    e->config.device = NULL; /* the caller's */
    enum chex_status st = impl->create(&c, &e->self, err);
    if (st != CHEX_OK) {
        free(e);
        return st;
    }
    *engine_out = e;
    return CHEX_OK;
}

enum chex_precision chex_engine_usual_precision(const char *spec) {
    const char *variant;
    const struct chex_engine_impl *impl = find(spec, &variant);
    return impl && impl->usual_precision ? impl->usual_precision(variant) : CHEX_FP32;
}

void chex_engine_destroy(struct chex_engine *e) {
    if (!e)
        return;
    e->impl->destroy(e->self);
    free(e);
}

enum chex_status chex_engine_set(struct chex_engine *e, enum chex_state_part part,
                                 const float *state, struct chex_error *err) {
    return e->impl->set(e->self, part, state, err);
}

enum chex_status chex_engine_get(struct chex_engine *e, enum chex_state_part part, float *state_out,
                                 struct chex_error *err) {
    return e->impl->get(e->self, part, state_out, err);
}

static enum chex_status check_batch(const struct chex_engine *e, const struct chex_batch *batch,
                                    struct chex_error *err) {
    if (batch->n < 1 || batch->n > e->config.batch)
        return chex_error_set(err, CHEX_E_FAIL, "engine %s: a batch of %d images where 1 to %d fit",
                              e->impl->name, batch->n, e->config.batch);
    if (!batch->pixels && (!batch->crops || batch->stored_px > e->raw_px))
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine %s: a raw batch of rows of %d px where up to %d are taken",
                              e->impl->name, batch->stored_px, e->raw_px);
    return CHEX_OK;
}

enum chex_status chex_engine_infer(struct chex_engine *e, const struct chex_batch *batch,
                                   float *logits_out, struct chex_error *err) {
    CHEX_TRY(check_batch(e, batch, err));
    return e->impl->infer(e->self, batch, logits_out, err);
}

enum chex_status chex_engine_class_maps(struct chex_engine *e, int image, float *maps_out,
                                        struct chex_error *err) {
    if (!e->impl->class_maps)
        return chex_error_set(err, CHEX_E_FAIL, "engine %s: it has no class maps", e->impl->name);
    if (image < 0 || image >= e->config.batch)
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine %s: class maps of image %d, expected 0 to %d", e->impl->name,
                              image, e->config.batch - 1);
    return e->impl->class_maps(e->self, image, maps_out, err);
}

enum chex_status chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                  float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                  struct chex_pass_result *result_out, struct chex_error *err) {
    CHEX_TRY(check_batch(e, batch, err));
    return e->impl->pass(e->self, batch, grad_out, ready, ready_arg, result_out, err);
}

enum chex_status chex_engine_update(struct chex_engine *e, const struct chex_update *update,
                                    const float *grad, struct chex_error *err) {
    return e->impl->update(e->self, update, grad, err);
}

enum chex_status chex_engine_hold(struct chex_engine *e, const struct chex_hold *hold,
                                  struct chex_held *held_out, struct chex_error *err) {
    *held_out = (struct chex_held){.raw = false};
    if (!e->impl->takes_raw || !e->impl->takes_raw(e->self, hold->stored_px))
        return CHEX_OK;
    CHEX_TRY(e->impl->hold(e->self, hold, held_out, err));
    e->raw_px = held_out->raw ? hold->stored_px : 0;
    return CHEX_OK;
}

float *chex_engine_grad_alloc(struct chex_engine *e) {
    if (e->impl->grad_alloc)
        return e->impl->grad_alloc(e->self);
    float *g = chex_mem_alloc_aligned(e->config.net->state_count, sizeof *g);
    if (g)
        memset(g, 0, e->config.net->state_count * sizeof *g);
    return g;
}

void chex_engine_grad_free(struct chex_engine *e, float *grad) {
    if (e->impl->grad_alloc)
        e->impl->grad_free(e->self, grad);
    else
        free(grad);
}
