/* SPDX-License-Identifier: Apache-2.0 */
#include "check/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "check/outlier.h"

enum { CLASSES = 14, SEED = 1, MAX_REPEATS = 512 };

struct chex_step {
    struct chex_net *net;
    struct chex_engine *engine;
    struct chex_batch batch;
    float *pixels, *grad;
    int8_t *labels;
    float *state, *zeros, *read; /* (state_count) host: as it starts, of the moments, as it ends */
    double seconds[MAX_REPEATS];
};

static enum chex_status make_engine(struct chex_step *s, const char *spec, int threads,
                                    const struct chex_gpu *device, struct chex_error *err) {
    CHEX_TRY(chex_net_create("densenet121", CLASSES, &s->net, err));
    const struct chex_engine_config config = {.net = s->net,
                                              .image_size = CHEX_STEP_PX,
                                              .batch = CHEX_STEP_BATCH,
                                              .precision = chex_engine_usual_precision(spec),
                                              .threads = threads,
                                              .training = true,
                                              .device = device};
    return chex_engine_create(spec, &config, &s->engine, err);
}

static enum chex_status make_data(struct chex_step *s, struct chex_error *err) {
    const size_t pixels = (size_t)CHEX_STEP_BATCH * CHEX_STEP_PX * CHEX_STEP_PX,
                 labels = (size_t)CHEX_STEP_BATCH * CLASSES, count = s->net->state_count;
    s->pixels = chex_mem_alloc_aligned(pixels, sizeof *s->pixels);
    s->labels = chex_mem_zalloc(labels, 1);
    s->state = chex_mem_alloc_aligned(count, sizeof *s->state);
    s->zeros = chex_mem_zalloc(count, sizeof *s->zeros);
    s->read = chex_mem_alloc_aligned(count, sizeof *s->read);
    s->grad = chex_engine_grad_alloc(s->engine);
    if (!s->pixels || !s->labels || !s->state || !s->zeros || !s->read || !s->grad)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for a training step");
    for (size_t i = 0; i < pixels; i++)
        s->pixels[i] = chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, i, 0).v[0]);
    for (size_t i = 0; i < labels; i++)
        s->labels[i] = (int8_t)(chex_rng(SEED, CHEX_RNG_TEST, i, 1).v[0] % 5 == 0);
    chex_net_init_state(s->net, SEED, s->state);
    s->batch = (struct chex_batch){.n = CHEX_STEP_BATCH, .pixels = s->pixels, .labels = s->labels};
    return CHEX_OK;
}

enum chex_status chex_step_create(const char *spec, int threads, const struct chex_gpu *device,
                                  struct chex_step **step_out, struct chex_error *err) {
    struct chex_step *s = chex_mem_zalloc(1, sizeof *s);
    if (!s)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = make_engine(s, spec, threads, device, err);
    if (st == CHEX_OK)
        st = make_data(s, err);
    if (st != CHEX_OK)
        chex_step_destroy(s);
    else
        *step_out = s;
    return st;
}

void chex_step_destroy(struct chex_step *s) {
    if (!s)
        return;
    if (s->engine)
        chex_engine_grad_free(s->engine, s->grad);
    chex_engine_destroy(s->engine);
    chex_net_destroy(s->net);
    free(s->pixels);
    free(s->labels);
    free(s->state);
    free(s->zeros);
    free(s->read);
    free(s);
}

const struct chex_engine *chex_step_engine(const struct chex_step *s) { return s->engine; }

static enum chex_status reset(struct chex_step *s, struct chex_error *err) {
    CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_PARAMS, s->state, err));
    CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_MOMENT1, s->zeros, err));
    return chex_engine_set(s->engine, CHEX_STATE_MOMENT2, s->zeros, err);
}

static enum chex_status digest(struct chex_step *s, const struct chex_pass_result *pass,
                               uint64_t *out, struct chex_error *err) {
    const struct chex_engine *e = s->engine;
    const size_t bytes = s->net->state_count * sizeof *s->read;
    uint64_t h = chex_hash64_mix(0, &pass->loss, sizeof pass->loss);
    CHEX_TRY(e->impl->grad_get(e->self, s->grad, s->read, err));
    h = chex_hash64_mix(h, s->read, bytes);
    CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_PARAMS, s->read, err));
    *out = chex_hash64_mix(h, s->read, bytes);
    return CHEX_OK;
}

static enum chex_status once(struct chex_step *s, double *seconds_out, uint64_t *digest_out,
                             struct chex_error *err) {
    const struct chex_update update = {.optim = CHEX_ADAM,
                                       .lr = 1e-4,
                                       .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .eps = 1e-8,
                                       .step = 1,
                                       .grad_scale = 1};
    struct chex_pass_result pass;
    CHEX_TRY(reset(s, err));
    const double start = chex_clock_s();
    CHEX_TRY(chex_engine_pass(s->engine, &s->batch, s->grad, NULL, NULL, &pass, err));
    CHEX_TRY(chex_engine_update(s->engine, &update, s->grad, err));
    *seconds_out = chex_clock_s() - start;
    return digest(s, &pass, digest_out, err);
}

enum chex_status chex_step_run(struct chex_step *s, double seconds, double most_s,
                               struct chex_step_result *out, struct chex_error *err) {
    struct chex_step_result r = {0};
    const double began = chex_clock_s();
    double whole = 0; /* a repeat, with all that surrounds the step */
    do {
        uint64_t d = 0;
        const double start = chex_clock_s();
        CHEX_TRY(once(s, &s->seconds[r.repeats], &d, err));
        whole = chex_clock_s() - start;
        r.repeats++;
        if (r.repeats == 1)
            r.digest = d;
        else if (d != r.digest && !r.odd)
            r.odd = r.repeats;
    } while (r.repeats < MAX_REPEATS &&
             (r.repeats < 2 ? whole < most_s : chex_clock_s() - began + whole < seconds));
    if (r.repeats > 1)
        r.images_per_s = CHEX_STEP_BATCH / chex_median(s->seconds + 1, r.repeats - 1);
    snprintf(r.how, sizeof r.how, "%s %.32s, %s", s->engine->impl->name,
             s->engine->impl->variant(s->engine->self),
             chex_precision_names[s->engine->config.precision]);
    *out = r;
    return CHEX_OK;
}
