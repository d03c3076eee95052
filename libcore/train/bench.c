/* SPDX-License-Identifier: Apache-2.0
 *
 * Times steps of an engine on random data.
 */
#include "train/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "engine/kernel_choices.h"
#include "input/augment.h"

/* The batches: pixels; or, if the engine crops itself, stored rows that it keeps and new crops
 * for each step, as in training. */
struct bench_data {
    float *pixels, *grad; /* grad: in inference it gets the logits */
    uint8_t *stored;
    struct chex_crop *crops;
    size_t *rows;
    int *places;
    struct chex_resident_result resident;
    int8_t *labels;
    double *seconds;
};

/* Stored images are 8/7 of the crop, as 256 px are for 224. */
static int stored_px(const struct chex_bench *b) { return b->config.image_size * 8 / 7; }

static void release_data(const struct chex_bench *b, struct bench_data *d,
                         struct chex_engine *engine) {
    if (b->config.training && engine)
        chex_engine_grad_free(engine, d->grad);
    else
        free(d->grad);
    free(d->pixels);
    free(d->stored);
    free(d->crops);
    free(d->rows);
    free(d->places);
    free(d->labels);
    free(d->seconds);
}

static bool fill_pixels(struct bench_data *d, const struct chex_bench *b) {
    const size_t n = (size_t)b->config.batch, size = (size_t)b->config.image_size;
    d->pixels = chex_alloc_aligned(n * size * size, sizeof *d->pixels);
    for (size_t i = 0; d->pixels && i < n * size * size; i++)
        d->pixels[i] = chex_rng_unit(chex_rng(b->seed, CHEX_RNG_TEST, i, 0).v[0]);
    return d->pixels;
}

static bool fill_stored(struct bench_data *d, const struct chex_bench *b) {
    const size_t n = (size_t)b->config.batch, px = (size_t)stored_px(b);
    d->stored = chex_alloc_aligned(n, px * px);
    d->crops = chex_alloc_zeroed(n, sizeof *d->crops);
    d->rows = chex_alloc_zeroed(n, sizeof *d->rows);
    d->places = chex_alloc_zeroed(n, sizeof *d->places);
    if (!d->stored || !d->crops || !d->rows || !d->places)
        return false;
    for (size_t i = 0; i < n * px * px; i++)
        d->stored[i] = (uint8_t)chex_rng(b->seed, CHEX_RNG_TEST, i, 0).v[0];
    for (size_t i = 0; i < n; i++) {
        d->rows[i] = i;
        d->places[i] = (int)i;
    }
    return true;
}

static bool fill_data(struct bench_data *d, const struct chex_bench *b,
                      struct chex_engine *engine) {
    const size_t n = (size_t)b->config.batch, classes = (size_t)b->classes;
    d->labels = chex_alloc_zeroed(n, classes);
    d->seconds = chex_alloc_zeroed((size_t)b->steps, sizeof *d->seconds);
    d->grad = b->config.training ? chex_engine_grad_alloc(engine)
                                 : chex_alloc_zeroed(n * classes, sizeof *d->grad);
    if (!d->labels || !d->seconds || !d->grad ||
        !(d->resident.raw ? fill_stored(d, b) : fill_pixels(d, b)))
        return false;
    for (size_t i = 0; i < n * classes; i++)
        d->labels[i] = (int8_t)(chex_rng(b->seed, CHEX_RNG_TEST, i, 1).v[0] % 5 == 0);
    return true;
}

/* The batch of step `step`, from 0. Resident rows are sent with step 0 only. */
static struct chex_batch batch_of(const struct chex_bench *b, struct bench_data *d, int64_t step) {
    struct chex_batch batch = {.n = b->config.batch, .pixels = d->pixels, .labels = d->labels};
    if (!d->resident.raw)
        return batch;
    for (int i = 0; i < batch.n; i++)
        d->crops[i] = chex_augment_draw(&chex_augment_defaults, b->seed, (uint64_t)step,
                                        (uint64_t)i, stored_px(b));
    batch.stored_px = stored_px(b);
    batch.crops = d->crops;
    batch.stored = d->stored;
    batch.stored_count = d->resident.resident && step ? 0 : batch.n;
    if (d->resident.resident) {
        batch.rows = d->rows;
        batch.places = d->places;
    }
    return batch;
}

static enum chex_status timed_steps(const struct chex_bench *b, struct chex_engine *engine,
                                    struct bench_data *d, struct chex_error *err) {
    enum { WARM_UP = 2 };
    struct chex_update update = b->update;
    update.grad_scale = 1;
    for (int64_t i = -WARM_UP; i < b->steps; i++) {
        if (b->stop && *b->stop)
            return chex_error_set(err, CHEX_E_PREEMPTED, "asked to stop while measuring");
        struct chex_pass_result result;
        double start = chex_clock_s();
        const struct chex_batch batch = batch_of(b, d, i + WARM_UP);
        if (b->config.training) {
            CHEX_TRY(chex_engine_pass(engine, &batch, d->grad, NULL, NULL, &result, err));
            update.step = i + WARM_UP + 1;
            CHEX_TRY(chex_engine_update(engine, &update, d->grad, err));
        } else {
            CHEX_TRY(chex_engine_infer(engine, &batch, d->grad, err));
        }
        if (i >= 0)
            d->seconds[i] = chex_clock_s() - start;
    }
    return CHEX_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(const struct chex_bench *b, struct chex_engine *engine, double *seconds,
                      struct chex_bench_result *out) {
    size_t n = (size_t)b->steps;
    qsort(seconds, n, sizeof *seconds, by_value);
    const double median = 0.5 * (seconds[(n - 1) / 2] + seconds[n / 2]);
    out->rates = (struct chex_bench_rates){.images_per_s_median = b->config.batch / median,
                                           .images_per_s_best = b->config.batch / seconds[0],
                                           .step_s_median = median,
                                           .step_s_best = seconds[0],
                                           .engine_bytes = engine->impl->bytes(engine->self),
                                           .peak_rss_bytes = chex_alloc_peak_rss_bytes()};
    out->gflop_per_image =
        (b->config.training ? 6 : 2) * chex_net_macs(out->net, b->config.image_size) / 1e9;
    snprintf(out->variant, sizeof out->variant, "%s", engine->impl->variant(engine->self));
    const struct chex_engine_timing *timing = engine->impl->timing;
    if (timing) {
        out->forward_s = chex_alloc_zeroed((size_t)out->net->op_count, sizeof(double));
        out->backward_s = chex_alloc_zeroed((size_t)out->net->op_count, sizeof(double));
        out->share = chex_alloc_zeroed((size_t)out->net->op_count, sizeof *out->share);
        if (out->forward_s && out->backward_s)
            timing->op_times(engine->self, out->forward_s, out->backward_s);
        if (out->share)
            timing->product_shares(engine->self, out->share);
    }
}

/* Call after the peak memory was read: the measurement allocates large arrays. */
static enum chex_status measure_limits(struct chex_engine *engine, struct chex_bench_result *out,
                                       struct chex_error *err) {
    const struct chex_engine_capacity *capacity = engine->impl->capacity;
    return capacity ? capacity->limits(engine->self, UINT64_MAX, &out->limits, err) : CHEX_OK;
}

enum chex_status chex_bench_run(const struct chex_bench *bench, struct chex_bench_result *out,
                                struct chex_error *err) {
    memset(out, 0, sizeof *out);
    CHEX_TRY(chex_net_create(bench->model, bench->classes, &out->net, err));
    struct chex_engine_config config = bench->config;
    config.net = out->net;
    struct chex_engine *engine = NULL;
    struct bench_data d = {0};
    float *state = chex_alloc_aligned(out->net->state_count, sizeof *state);
    enum chex_status st = state ? chex_engine_create(bench->engine, &config, &engine, err)
                                : chex_error_memory(err, NULL);
    if (st == CHEX_OK)
        st = chex_kernel_measure(engine, err);
    if (st == CHEX_OK) {
        chex_net_init_state(out->net, bench->seed, config.threads, state);
        st = chex_engine_set(engine, CHEX_STATE_PARAMS, state, err);
    }
    free(state);
    const struct chex_resident_request make_resident = {.stored_px = stored_px(bench),
                                                        .end = (size_t)config.batch};
    if (st == CHEX_OK)
        st = chex_engine_make_resident(engine, &make_resident, &d.resident, err);
    if (st == CHEX_OK && !fill_data(&d, bench, engine))
        st = chex_error_memory(err, NULL);
    if (st == CHEX_OK)
        st = timed_steps(bench, engine, &d, err);
    if (st == CHEX_OK)
        summarise(bench, engine, d.seconds, out);
    if (st == CHEX_OK && bench->limits)
        st = measure_limits(engine, out, err);
    release_data(bench, &d, engine);
    chex_engine_destroy(engine);
    if (st != CHEX_OK)
        chex_bench_release(out);
    return st;
}

void chex_bench_release(struct chex_bench_result *r) {
    free(r->forward_s);
    free(r->backward_s);
    free(r->share);
    chex_net_destroy(r->net);
    memset(r, 0, sizeof *r);
}
