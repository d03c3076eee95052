/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench: times steps of an engine on random data.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "bench/bench_rates.h"
#include "bench/roofline.h"
#include "engine/kernel_choices.h"
#include "label/classes.h"

struct run {
    const struct chex_bench *bench;
    const struct chex_train_config *c;
    const volatile sig_atomic_t *stop; /* non-zero after a signal to stop */
    struct chex_net *net;
    struct chex_engine *engine;
    /* The batches: pixels; or, if the engine crops itself, stored rows that it keeps and new crops
     * for each step, as in training. */
    float *pixels, *grad; /* grad: in inference it gets the logits */
    uint8_t *stored;
    struct chex_crop *crops;
    size_t *rows;
    int *places;
    struct chex_resident_result resident;
    int8_t *labels;

    double *seconds; /* (steps) */
    double *ops;     /* (3, op_count) forward, backward and product_shares; NULL: not timed */
    struct chex_engine_limits limits;
    struct chex_bench_rates rates;
};

/* Stored images are 8/7 of the crop, as 256 px are for 224. */
static int stored_px(const struct run *r) { return r->c->image_size * 8 / 7; }

static void release(struct run *r) {
    if (!r->bench->infer && r->engine)
        chex_engine_grad_free(r->engine, r->grad);
    else
        free(r->grad);
    free(r->pixels);
    free(r->stored);
    free(r->crops);
    free(r->rows);
    free(r->places);
    free(r->labels);
    free(r->seconds);
    free(r->ops);
    chex_engine_destroy(r->engine);
    chex_net_destroy(r->net);
}

static uint32_t random_word(const struct run *r, size_t i, uint32_t stream) {
    return chex_rng(r->c->seed, CHEX_RNG_TEST, i, stream).v[0];
}

static bool fill_pixels(struct run *r) {
    const size_t size = (size_t)r->c->image_size, count = (size_t)r->c->batch * size * size;
    r->pixels = chex_alloc_aligned(count, sizeof *r->pixels);
    for (size_t i = 0; r->pixels && i < count; i++)
        r->pixels[i] = chex_rng_unit(random_word(r, i, 0));
    return r->pixels;
}

static bool fill_stored(struct run *r) {
    const size_t n = (size_t)r->c->batch, px = (size_t)stored_px(r);
    r->stored = chex_alloc_aligned(n, px * px);
    r->crops = chex_alloc_zeroed(n, sizeof *r->crops);
    r->rows = chex_alloc_zeroed(n, sizeof *r->rows);
    r->places = chex_alloc_zeroed(n, sizeof *r->places);
    if (!r->stored || !r->crops || !r->rows || !r->places)
        return false;
    for (size_t i = 0; i < n * px * px; i++)
        r->stored[i] = (uint8_t)random_word(r, i, 0);
    for (size_t i = 0; i < n; i++) {
        r->rows[i] = i;
        r->places[i] = (int)i;
    }
    return true;
}

static bool fill_data(struct run *r) {
    const size_t n = (size_t)r->c->batch, classes = (size_t)r->net->classes;
    r->labels = chex_alloc_zeroed(n, classes);
    r->seconds = chex_alloc_zeroed((size_t)r->bench->steps, sizeof *r->seconds);
    r->grad = r->bench->infer ? chex_alloc_zeroed(n * classes, sizeof *r->grad)
                              : chex_engine_grad_alloc(r->engine);
    if (!r->labels || !r->seconds || !r->grad ||
        !(r->resident.raw ? fill_stored(r) : fill_pixels(r)))
        return false;
    for (size_t i = 0; i < n * classes; i++)
        r->labels[i] = (int8_t)(random_word(r, i, 1) % 5 == 0);
    return true;
}

/* The batch of step `step`, from 0. Resident rows are sent with step 0 only. */
static struct chex_batch batch_of(struct run *r, int64_t step) {
    struct chex_batch batch = {.n = r->c->batch, .pixels = r->pixels, .labels = r->labels};
    if (!r->resident.raw)
        return batch;
    for (int i = 0; i < batch.n; i++)
        r->crops[i] = chex_augment_draw(&chex_augment_defaults, r->c->seed, (uint64_t)step,
                                        (uint64_t)i, stored_px(r));
    batch.stored_px = stored_px(r);
    batch.crops = r->crops;
    batch.stored = r->stored;
    batch.stored_count = r->resident.resident && step ? 0 : batch.n;
    if (r->resident.resident) {
        batch.rows = r->rows;
        batch.places = r->places;
    }
    return batch;
}

static enum chex_status timed_steps(struct run *r, struct chex_error *err) {
    enum { WARM_UP = 2 };
    struct chex_update update = r->c->update;
    for (int64_t i = -WARM_UP; i < r->bench->steps; i++) {
        struct chex_pass_result result;
        if (*r->stop)
            return chex_error_set(err, CHEX_E_PREEMPTED, "asked to stop while measuring");
        const double start = chex_clock_s();
        const struct chex_batch batch = batch_of(r, i + WARM_UP);
        if (r->bench->infer) {
            CHEX_TRY(chex_engine_infer(r->engine, &batch, r->grad, err));
        } else {
            CHEX_TRY(chex_engine_pass(r->engine, &batch, r->grad, NULL, NULL, &result, err));
            update.step = i + WARM_UP + 1;
            CHEX_TRY(chex_engine_update(r->engine, &update, r->grad, err));
        }
        if (i >= 0)
            r->seconds[i] = chex_clock_s() - start;
    }
    return CHEX_OK;
}

static void summarise(struct run *r) {
    const double median = chex_bench_median(r->seconds, (size_t)r->bench->steps);
    r->rates = (struct chex_bench_rates){.images_per_s_median = r->c->batch / median,
                                         .images_per_s_best = r->c->batch / r->seconds[0],
                                         .step_s_median = median,
                                         .step_s_best = r->seconds[0],
                                         .engine_bytes = r->engine->impl->bytes(r->engine->self),
                                         .peak_rss_bytes = chex_alloc_peak_rss_bytes()};
}

/* For --bench-layers: the times of the last step, and the machine's limits. Call after the peak
 * memory was read: the measurement allocates large arrays. */
static enum chex_status measure_ops(struct run *r, struct chex_error *err) {
    const struct chex_engine_timing *timing = r->engine->impl->timing;
    const struct chex_engine_capacity *capacity = r->engine->impl->capacity;
    const size_t count = (size_t)r->net->op_count;
    if (timing) {
        if (!(r->ops = chex_alloc_zeroed(count, 3 * sizeof *r->ops)))
            return chex_error_memory(err, NULL);
        timing->op_times(r->engine->self, r->ops, r->ops + count);
        timing->product_shares(r->engine->self, r->ops + 2 * count);
    }
    return capacity ? capacity->limits(r->engine->self, UINT64_MAX, &r->limits, err) : CHEX_OK;
}

static enum chex_status create_engine(struct run *r, struct chex_error *err) {
    const struct chex_train_config *c = r->c;
    CHEX_TRY(chex_net_create(chex_net_names[c->model], CHEX_CLASS_COUNT, &r->net, err));
    const struct chex_engine_config config = {.net = r->net,
                                              .image_size = c->image_size,
                                              .batch = c->batch,
                                              .precision = c->precision,
                                              .threads = c->threads,
                                              .training = !r->bench->infer,
                                              .loss = c->loss,
                                              .ema_decay = c->ema_decay,
                                              .device = c->device};
    CHEX_AUTO_FREE float *state = chex_alloc_aligned(r->net->state_count, sizeof *state);
    CHEX_TRY(state ? chex_engine_create(c->engine, &config, &r->engine, err)
                   : chex_error_memory(err, NULL));
    CHEX_TRY(chex_kernel_measure(r->engine, err));
    chex_net_init_state(r->net, c->seed, c->threads, state);
    return chex_engine_set(r->engine, CHEX_STATE_PARAMS, state, err);
}

static enum chex_status measure(struct run *r, struct chex_error *err) {
    const struct chex_resident_request make_resident = {.stored_px = stored_px(r),
                                                        .end = (size_t)r->c->batch};
    CHEX_TRY(create_engine(r, err));
    CHEX_TRY(chex_engine_make_resident(r->engine, &make_resident, &r->resident, err));
    if (!fill_data(r))
        return chex_error_memory(err, NULL);
    CHEX_TRY(timed_steps(r, err));
    summarise(r);
    return r->bench->layers ? measure_ops(r, err) : CHEX_OK;
}

/* ---- the result ---- */

static json_t *result_json(const struct run *r, const struct chex_bench_sum *s) {
    const struct chex_train_config *c = r->c;
    const struct chex_bench_rates *all = &s->all;
    const double gflop = (r->bench->infer ? 2 : 6) * chex_net_macs(r->net, c->image_size) / 1e9;
    return chex_result(
        CHEX_FIELD("schema", 1), CHEX_FIELD("kind", r->bench->infer ? "infer" : "train"),
        CHEX_MEMBER(all, images_per_s_median), CHEX_MEMBER(all, images_per_s_best),
        CHEX_FIELD("step_ms_median", s->slowest.step_s_median * 1e3),
        CHEX_FIELD("step_ms_best", s->slowest.step_s_best * 1e3),
        CHEX_FIELD("gflop_per_s_median", gflop * all->images_per_s_median),
        CHEX_MEMBER(all, peak_rss_bytes), CHEX_MEMBER(all, engine_bytes), CHEX_MEMBER(c, engine),
        CHEX_FIELD("variant", r->engine->impl->variant(r->engine->self)),
        CHEX_MEMBER(r->net, model), CHEX_FIELD("precision", chex_precision_names[c->precision]),
        CHEX_MEMBER(c, batch), CHEX_MEMBER(c, image_size), CHEX_MEMBER(c, threads),
        CHEX_MEMBER(r->bench, steps), CHEX_MEMBER(s, ranks), CHEX_MEMBER(s, slowest_rank),
        CHEX_FIELD("slowest_images_per_s", s->slowest.images_per_s_median),
        CHEX_FIELD("version", CHEXNET_VERSION));
}

static double per_s(double amount, const struct chex_layer_time *t) {
    return t->seconds > 0 ? amount / t->seconds * 1e-9 : 0;
}

static json_t *time_json(const struct chex_layer_time *t) {
    static const char *const bound_names[] = {"flop", "bytes"};
    const bool known = t->min_s > 0 && t->seconds > 0;
    return chex_result(CHEX_FIELD("ms", t->seconds * 1e3), CHEX_FIELD("gflop", t->work.flop * 1e-9),
                       CHEX_FIELD("gb", t->work.bytes * 1e-9),
                       CHEX_FIELD("gflop_per_s", per_s(t->work.flop, t)),
                       CHEX_FIELD("gb_per_s", per_s(t->work.bytes, t)),
                       CHEX_FIELD_IF(known, "limit_percent", chex_layer_limit_percent(t)),
                       CHEX_FIELD_IF(known, "bound", bound_names[t->bound]));
}

static void add_layers(const struct run *r, const struct chex_layer *layers, json_t *o) {
    const bool known = r->limits.flop_per_s > 0;
    json_t *list = json_array();
    for (int i = 0; i <= r->net->op_count; i++) {
        json_t *layer = chex_result(CHEX_MEMBER(&layers[i], name),
                                    CHEX_FIELD("forward", time_json(&layers[i].forward)));
        if (!r->bench->infer)
            json_object_set_new(layer, "backward", time_json(&layers[i].backward));
        json_array_append_new(list, layer);
    }
    json_object_update_new(
        o, chex_result(CHEX_FIELD_IF(known, "limit_gflop_per_s", r->limits.flop_per_s * 1e-9),
                       CHEX_FIELD_IF(known, "limit_gb_per_s", r->limits.bytes_per_s * 1e-9),
                       CHEX_FIELD("layers", list)));
}

static enum chex_status make_layers(const struct run *r, json_t *o, struct chex_error *err) {
    const size_t count = (size_t)r->net->op_count;
    const struct chex_roofline step = {.net = r->net,
                                       .image_size = r->c->image_size,
                                       .batch = r->c->batch,
                                       .precision = r->c->precision,
                                       .training = !r->bench->infer,
                                       .forward_s = r->ops,
                                       .backward_s = r->ops + count,
                                       .share = r->ops + 2 * count,
                                       .limits = r->limits};
    CHEX_AUTO_FREE struct chex_layer *layers = chex_alloc_zeroed(count + 1, sizeof *layers);
    CHEX_TRY(layers ? chex_roofline_layers(&step, layers, err) : chex_error_memory(err, NULL));
    add_layers(r, layers, o);
    return CHEX_OK;
}

enum chex_status chex_bench_steps(const struct chex_bench *bench,
                                  const struct chex_train_config *config, struct chex_group *group,
                                  const volatile sig_atomic_t *stop, json_t **out,
                                  bool *together_out, struct chex_error *err) {
    struct run r = {.bench = bench, .c = config, .stop = stop};
    struct chex_bench_sum sum;
    *out = NULL;
    enum chex_status st = measure(&r, err);
    group->wait_ms = CHEX_GROUP_WORK_MS;
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK)
        st = chex_bench_gather(group, &r.rates, &sum, err);
    *together_out = !group->broken;
    if (st == CHEX_OK && group->rank == 0) {
        *out = result_json(&r, &sum);
        if (r.ops)
            st = make_layers(&r, *out, err);
        else if (bench->layers)
            chex_warn("--bench-layers: engine %s does not time its operations", config->engine);
    }
    release(&r);
    return st;
}
