/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of engines, and the calls of engine.h: each checks its arguments, then calls the entry
 * of the engine's table or applies the default for an optional table that is NULL.
 */
#include "engine/engine.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/engines.h"
#include "engine/frozen.h"

const char *const chex_precision_names[] = {"bf16", "fp32", "fp32-strict", "fp16", NULL};
const char *const chex_optim_names[] = {"adam", "adamw", "sgd", "lars", NULL};

const struct chex_engine_impl *const chex_engines[] = {
    &chex_engine_cpu,
    &chex_engine_cuda,
    &chex_engine_ref,
    NULL,
};

enum chex_status chex_engine_find(const char *spec, const char **variant_out,
                                  const struct chex_engine_impl **impl_out,
                                  struct chex_error *err) {
    const size_t n = strcspn(spec, ":");
    *variant_out = spec[n] ? spec + n + 1 : NULL;
    for (size_t i = 0; chex_engines[i]; i++)
        if (strlen(chex_engines[i]->name) == n && memcmp(chex_engines[i]->name, spec, n) == 0) {
            *impl_out = chex_engines[i];
            return CHEX_OK;
        }
    return chex_error_set(err, CHEX_E_USAGE,
                          "--engine '%s': expected auto, cpu, ref or cuda, with a variant as in "
                          "cpu:avx2",
                          spec);
}

static enum chex_status check_config(const struct chex_engine_config *c, struct chex_error *err) {
    CHEX_AUTO_FREE int *hw = chex_alloc_zeroed((size_t)c->net->buffer_count, sizeof *hw);
    if (!hw)
        return chex_error_memory(err, NULL);
    CHEX_TRY(chex_net_shapes(c->net, c->image_size, hw, err));
    if (c->batch < 1)
        return chex_error_set(err, CHEX_E_USAGE, "--batch-size %d: expected 1 or more", c->batch);
    if (c->threads < 1)
        return chex_error_set(err, CHEX_E_USAGE, "--threads %d: expected 1 or more", c->threads);
    return chex_loss_check(&c->loss, c->net->classes, err);
}

enum chex_status chex_engine_load(const char *spec, const struct chex_engine_impl **impl_out,
                                  struct chex_error *err) {
    const char *variant;
    CHEX_TRY(chex_engine_find(spec, &variant, impl_out, err));
    return (*impl_out)->load ? (*impl_out)->load(impl_out, err) : CHEX_OK;
}

enum chex_status chex_engine_check(const char *spec, enum chex_precision precision,
                                   const struct chex_engine_impl **impl_out,
                                   struct chex_error *err) {
    const char *variant;
    CHEX_TRY(chex_engine_find(spec, &variant, impl_out, err));
    CHEX_TRY(chex_engine_load(spec, impl_out, err));
    return (*impl_out)->check ? (*impl_out)->check(variant, precision, err) : CHEX_OK;
}

enum chex_status chex_engine_create(const char *spec, const struct chex_engine_config *config,
                                    struct chex_engine **engine_out, struct chex_error *err) {
    struct chex_engine_config c = *config;
    const struct chex_engine_impl *impl;
    CHEX_TRY(chex_engine_find(spec, &c.variant, &impl, err));
    CHEX_TRY(chex_engine_check(spec, c.precision, &impl, err));
    CHEX_TRY(check_config(&c, err));
    return chex_engine_make(impl, &c, engine_out, err);
}

enum chex_status chex_engine_make(const struct chex_engine_impl *impl,
                                  const struct chex_engine_config *config,
                                  struct chex_engine **engine_out, struct chex_error *err) {
    CHEX_AUTO(chex_engine_destroy_at) struct chex_engine *e = calloc(1, sizeof *e);
    if (!e)
        return chex_error_memory(err, NULL);
    e->impl = impl;
    e->config = *config;
    e->config.device = NULL; /* owned by the caller, valid during create only */
    CHEX_TRY(impl->create(config, &e->self, err));
    *engine_out = CHEX_TAKE(e);
    return CHEX_OK;
}

enum chex_precision chex_engine_usual_precision(const char *spec) {
    const char *variant;
    const struct chex_engine_impl *impl;
    if (chex_engine_find(spec, &variant, &impl, NULL) != CHEX_OK ||
        chex_engine_load(spec, &impl, NULL) != CHEX_OK || !impl->hardware)
        return CHEX_FP32;
    return impl->hardware->usual_precision(variant);
}

void chex_engine_destroy(struct chex_engine *e) {
    if (e && e->self)
        e->impl->destroy(e->self);
    free(e);
}

static enum chex_status check_part(const struct chex_engine *e, enum chex_state_part part,
                                   struct chex_error *err) {
    const struct chex_engine_config *c = &e->config;
    if (part == CHEX_STATE_PARAMS || (c->training && (part != CHEX_STATE_EMA || c->ema_decay > 0)))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_FAIL, "engine %s: %s", e->impl->name,
                          part == CHEX_STATE_EMA
                              ? "it was made without a moving average"
                              : "no optimiser moments: it was made for inference only");
}

enum chex_status chex_engine_set(struct chex_engine *e, enum chex_state_part part,
                                 const float *state, struct chex_error *err) {
    CHEX_TRY(check_part(e, part, err));
    return e->impl->set(e->self, part, state, err);
}

enum chex_status chex_engine_get(struct chex_engine *e, enum chex_state_part part, float *state_out,
                                 struct chex_error *err) {
    CHEX_TRY(check_part(e, part, err));
    return e->impl->get(e->self, part, state_out, err);
}

enum chex_status chex_engine_swap_ema(struct chex_engine *e, struct chex_error *err) {
    const size_t count = e->config.net->state_count;
    CHEX_AUTO_FREE float *params = chex_alloc_aligned(count, sizeof *params);
    CHEX_AUTO_FREE float *ema = chex_alloc_aligned(count, sizeof *ema);
    if (!params || !ema)
        return chex_error_memory(err, "the moving average");
    CHEX_TRY(chex_engine_get(e, CHEX_STATE_PARAMS, params, err));
    CHEX_TRY(chex_engine_get(e, CHEX_STATE_EMA, ema, err));
    CHEX_TRY(chex_engine_set(e, CHEX_STATE_EMA, params, err));
    return chex_engine_set(e, CHEX_STATE_PARAMS, ema, err);
}

static enum chex_status check_batch(const struct chex_engine *e, const struct chex_batch *batch,
                                    struct chex_error *err) {
    if (batch->n < 1 || batch->n > e->config.batch)
        return chex_error_set(err, CHEX_E_FAIL, "engine %s: a batch of %d images, expected 1 to %d",
                              e->impl->name, batch->n, e->config.batch);
    if (!batch->pixels && !batch->features && (!batch->crops || batch->stored_px > e->raw_px))
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine %s: a raw batch with rows of %d px, expected at most %d",
                              e->impl->name, batch->stored_px, e->raw_px);
    return CHEX_OK;
}

enum chex_status chex_engine_infer(struct chex_engine *e, const struct chex_batch *batch,
                                   float *logits_out, struct chex_error *err) {
    CHEX_TRY(check_batch(e, batch, err));
    return e->impl->infer(e->self, batch, logits_out, err);
}

enum chex_status chex_engine_infer_begin(struct chex_engine *e, const struct chex_batch *batch,
                                         float *logits_out, struct chex_error *err) {
    const struct chex_engine_overlap *entries = e->impl->overlap;
    CHEX_TRY(check_batch(e, batch, err));
    if (e->begun_count == CHEX_INFER_BATCHES)
        return chex_error_set(err, CHEX_E_FAIL, "engine %s: %d batches are begun, expected fewer",
                              e->impl->name, e->begun_count);
    CHEX_TRY(entries ? entries->infer_begin(e->self, batch, err)
                     : e->impl->infer(e->self, batch, logits_out, err));
    e->begun[e->begun_count++] = logits_out;
    return CHEX_OK;
}

enum chex_status chex_engine_infer_end(struct chex_engine *e, struct chex_error *err) {
    const struct chex_engine_overlap *entries = e->impl->overlap;
    if (!e->begun_count)
        return chex_error_set(err, CHEX_E_FAIL, "engine %s: no batch is begun", e->impl->name);
    float *logits = e->begun[0];
    memmove(e->begun, e->begun + 1, (size_t)--e->begun_count * sizeof *e->begun);
    return entries ? entries->infer_end(e->self, logits, err) : CHEX_OK;
}

enum chex_status chex_engine_class_maps(struct chex_engine *e, int image, float *maps_out,
                                        struct chex_error *err) {
    if (!e->impl->maps)
        return chex_error_set(err, CHEX_E_FAIL, "engine %s: no class maps", e->impl->name);
    if (image < 0 || image >= e->config.batch)
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine %s: class maps of image %d, expected 0 to %d", e->impl->name,
                              image, e->config.batch - 1);
    return e->impl->maps->class_maps(e->self, image, maps_out, err);
}

enum chex_status chex_engine_features(struct chex_engine *e, int n, float *features_out,
                                      struct chex_error *err) {
    if (!e->impl->maps)
        return chex_error_set(err, CHEX_E_FAIL, "engine %s: no pooled features", e->impl->name);
    if (n < 1 || n > e->config.batch)
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine %s: pooled features of %d images, expected 1 to %d",
                              e->impl->name, n, e->config.batch);
    return e->impl->maps->features(e->self, n, features_out, err);
}

/* Reports ranges whose frozen elements are zero. */
struct frozen_report {
    const struct chex_engine_config *config;
    float *grad;
    chex_grad_ready_fn ready; /* NULL: the caller wants no reports */
    void *arg;
};
static void zero_and_report(void *arg, size_t from, size_t to) {
    const struct frozen_report *r = arg;
    chex_frozen_zero(r->config, r->grad, from, to);
    if (r->ready)
        r->ready(r->arg, from, to);
}

static enum chex_status check_training(const struct chex_engine *e, struct chex_error *err) {
    return e->config.training
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_FAIL, "engine %s: it was made for inference only",
                                e->impl->name);
}

enum chex_status chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                  float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                  struct chex_pass_result *result_out, struct chex_error *err) {
    CHEX_TRY(check_training(e, err));
    CHEX_TRY(check_batch(e, batch, err));
    struct frozen_report report = {&e->config, grad_out, ready, ready_arg};
    if (e->config.lr_scales && !e->impl->device) {
        ready = zero_and_report;
        ready_arg = &report;
    }
    return e->impl->pass(e->self, batch, grad_out, ready, ready_arg, result_out, err);
}

enum chex_status chex_engine_update(struct chex_engine *e, const struct chex_update *update,
                                    const float *grad, struct chex_error *err) {
    CHEX_TRY(check_training(e, err));
    return e->impl->update(e->self, update, grad, err);
}

enum chex_status chex_engine_grad_norms(struct chex_engine *e, struct chex_grad_norms *out,
                                        struct chex_error *err) {
    return e->impl->grad_norms(e->self, out, err);
}

enum chex_status chex_engine_make_resident(struct chex_engine *e,
                                           const struct chex_resident_request *make_resident,
                                           struct chex_resident_result *resident_out,
                                           struct chex_error *err) {
    const struct chex_engine_resident *entries = e->impl->resident;
    *resident_out = (struct chex_resident_result){.raw = false};
    if (!entries || !entries->takes_raw(e->self, make_resident->stored_px))
        return CHEX_OK;
    CHEX_TRY(entries->make_resident(e->self, make_resident, resident_out, err));
    e->raw_px = resident_out->raw ? make_resident->stored_px : 0;
    return CHEX_OK;
}

float *chex_engine_grad_alloc(struct chex_engine *e) {
    if (e->impl->device)
        return e->impl->device->grad_alloc(e->self);
    float *g = chex_alloc_aligned(e->config.net->state_count, sizeof *g);
    if (g)
        memset(g, 0, e->config.net->state_count * sizeof *g);
    return g;
}

void chex_engine_grad_free(struct chex_engine *e, float *grad) {
    if (e->impl->device)
        e->impl->device->grad_free(e->self, grad);
    else
        free(grad);
}
