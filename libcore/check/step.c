/* SPDX-License-Identifier: Apache-2.0
 *
 * The small training step of check/step.h: data, repetitions, digests, and sums over ranks.
 */
#include "check/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "check/outlier.h"
#include "launch/reduce.h"

enum { CLASSES = 14, SEED = 1, MAX_REPEATS = 512 };

struct chex_step {
    struct chex_net *net;
    struct chex_engine *engine;
    struct chex_batch batch;
    float *pixels, *grad;
    int8_t *labels;
    float *state, *zeros, *read; /* (state_count), on the host: initial state, initial
                                    moments, final state */
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
    s->pixels = chex_alloc_aligned(pixels, sizeof *s->pixels);
    s->labels = chex_alloc_zeroed(labels, 1);
    s->state = chex_alloc_aligned(count, sizeof *s->state);
    s->zeros = chex_alloc_zeroed(count, sizeof *s->zeros);
    s->read = chex_alloc_aligned(count, sizeof *s->read);
    s->grad = chex_engine_grad_alloc(s->engine);
    if (!s->pixels || !s->labels || !s->state || !s->zeros || !s->read || !s->grad)
        return chex_error_memory(err, "a training step");
    for (size_t i = 0; i < pixels; i++)
        s->pixels[i] = chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, i, 0).v[0]);
    for (size_t i = 0; i < labels; i++)
        s->labels[i] = (int8_t)(chex_rng(SEED, CHEX_RNG_TEST, i, 1).v[0] % 5 == 0);
    chex_net_init_state(s->net, SEED, 1, s->state);
    s->batch = (struct chex_batch){.n = CHEX_STEP_BATCH, .pixels = s->pixels, .labels = s->labels};
    return CHEX_OK;
}

enum chex_status chex_step_create(const char *spec, int threads, const struct chex_gpu *device,
                                  struct chex_step **step_out, struct chex_error *err) {
    struct chex_step *s = chex_alloc_zeroed(1, sizeof *s);
    if (!s)
        return chex_error_memory(err, NULL);
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
    const float loss = (float)pass->loss; /* the last bits of a double depend on the C library */
    uint64_t h = chex_hash64_mix(0, &loss, sizeof loss);
    CHEX_TRY(e->impl->grad_get(e->self, s->grad, s->read, err));
    h = chex_hash64_mix(h, s->read, bytes);
    CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_PARAMS, s->read, err));
    *out = chex_hash64_mix(h, s->read, bytes);
    return CHEX_OK;
}

static const struct chex_update adam = {.optim = CHEX_ADAM,
                                        .lr = 1e-4,
                                        .beta1 = 0.9,
                                        .beta2 = 0.999,
                                        .eps = 1e-8,
                                        .step = 1,
                                        .grad_scale = 1};

static enum chex_status once(struct chex_step *s, double *seconds_out, uint64_t *digest_out,
                             struct chex_error *err) {
    struct chex_pass_result pass;
    CHEX_TRY(reset(s, err));
    const double start = chex_clock_s();
    CHEX_TRY(chex_engine_pass(s->engine, &s->batch, s->grad, NULL, NULL, &pass, err));
    CHEX_TRY(chex_engine_update(s->engine, &adam, s->grad, err));
    *seconds_out = chex_clock_s() - start;
    return digest(s, &pass, digest_out, err);
}

enum chex_status chex_step_run(struct chex_step *s, double seconds, double max_s,
                               struct chex_step_result *out, struct chex_error *err) {
    struct chex_step_result r = {0};
    const double began = chex_clock_s();
    double whole = 0; /* seconds of a repetition, including reset and digest */
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
             (r.repeats < 2 ? whole < max_s : chex_clock_s() - began + whole < seconds));
    if (r.repeats > 1) {
        r.images_per_s = CHEX_STEP_BATCH / chex_median(s->seconds + 1, r.repeats - 1);
        r.spread = chex_spread(s->seconds + 1, r.repeats - 1);
    }
    snprintf(r.how, sizeof r.how, "%s %.32s, %s", s->engine->impl->name,
             s->engine->impl->variant(s->engine->self),
             chex_precision_names[s->engine->config.precision]);
    *out = r;
    return CHEX_OK;
}

extern const unsigned char chex_step_bits[]; /* share/step-bits.txt (libcore/CMakeLists.txt) */
extern const unsigned long chex_step_bits_bytes;

bool chex_step_known_digest(const char *how, uint64_t *digest_out) {
    const char *text = (const char *)chex_step_bits, *end = text + chex_step_bits_bytes;
    char start[sizeof CHEX_STEP_ARCH + sizeof((struct chex_step_result *)0)->how];
    const size_t n = (size_t)snprintf(start, sizeof start, CHEX_STEP_ARCH "%s:", how);
    for (const char *line = text; line < end; line = (char *)memchr(line, '\n', end - line) + 1)
        if ((size_t)(end - line) > n && memcmp(line, start, n) == 0) {
            *digest_out = strtoull(line + n, NULL, 16);
            return true;
        }
    return false;
}

/* ---- with other ranks ---- */

/* Resets the state and creates the reduction. *on_device_out: the engine reduces its own memory.
 * Collective. */
static enum chex_status make_reduce(struct chex_step *s, struct chex_launch *launch,
                                    struct chex_coll *coll, uint64_t timeout_ms,
                                    struct chex_reduce **reduce_out, bool *on_device_out,
                                    struct chex_error *err) {
    const struct chex_engine_impl *impl = s->engine->impl;
    const struct chex_reduce_memory *memory = NULL;
    enum chex_status st = reset(s, err);
    if (impl->device) {
        CHEX_TRY(chex_group_agree(coll->group, st, err));
        st = impl->device->reduce_memory(s->engine->self, launch, coll->group, timeout_ms, &memory,
                                         err);
    }
    const struct chex_reduce_config config = {
        .coll = coll, .memory = memory, .logical_ranks = coll->size, .count = s->net->state_count};
    if (st == CHEX_OK)
        st = chex_reduce_create(&config, reduce_out, err);
    *on_device_out = memory != NULL;
    return chex_group_agree(coll->group, st, err);
}

/* What a pass has reported of its gradient. After a failed pass the rest is reported too: the other
 * ranks are in the sums and wait for it. */
struct reported {
    struct chex_reduce *reduce;
    size_t from; /* elements from here on */
};

static void report(void *arg, size_t from, size_t to) {
    struct reported *r = arg;
    r->from = from;
    chex_reduce_ready(r->reduce, from, to);
}

static enum chex_status pass_into(struct chex_step *s, struct chex_reduce *reduce, int rank,
                                  struct chex_error *err) {
    struct chex_pass_result pass;
    struct reported reported = {.reduce = reduce, .from = s->net->state_count};
    const enum chex_status st = chex_engine_pass(
        s->engine, &s->batch, chex_reduce_leaf(reduce, rank), report, &reported, &pass, err);
    if (st != CHEX_OK && reported.from > 0)
        chex_reduce_ready(reduce, 0, reported.from);
    return st;
}

/* An error of the pass or of the update on one rank is returned on all. */
static enum chex_status once_with_sums(struct chex_step *s, struct chex_coll *coll,
                                       struct chex_reduce *reduce, const float **sum_out,
                                       double *seconds_out, struct chex_error *err) {
    struct chex_update update = adam;
    double exposed_s;
    update.grad_scale = 1.0 / coll->size;
    CHEX_TRY(chex_coll_barrier(coll, err));
    const double start = chex_clock_s();
    enum chex_status st = pass_into(s, reduce, coll->rank, err);
    struct chex_error of_sums = {0};
    enum chex_status summed = chex_reduce_finish(reduce, sum_out, &exposed_s, &of_sums);
    if (st == CHEX_OK && summed == CHEX_OK)
        st = chex_engine_update(s->engine, &update, *sum_out, err);
    if (summed == CHEX_OK)
        summed = chex_reduce_settle(reduce, &of_sums);
    if (summed != CHEX_OK)
        return chex_error_set(err, summed, "%s", of_sums.text);
    *seconds_out = chex_clock_s() - start;
    return chex_group_agree(coll->group, st, err);
}

/* The first step is the warm-up. Rank 0 sets the number of repetitions from its time. */
static enum chex_status repeat(struct chex_step *s, struct chex_coll *coll,
                               struct chex_reduce *reduce, double seconds, const float **sum_out,
                               double *rate_out, struct chex_error *err) {
    enum { MAX_SUMS = 64 };
    CHEX_TRY(once_with_sums(s, coll, reduce, sum_out, &s->seconds[0], err));
    int32_t n = s->seconds[0] * MAX_SUMS < seconds ? MAX_SUMS
                : s->seconds[0] * 2 > seconds      ? 2
                                                   : (int32_t)(seconds / s->seconds[0]);
    CHEX_TRY(chex_group_broadcast(coll->group, &n, sizeof n, 0, err));
    for (int i = 0; i < n; i++)
        CHEX_TRY(once_with_sums(s, coll, reduce, sum_out, &s->seconds[i], err));
    *rate_out = CHEX_STEP_BATCH / chex_median(s->seconds, n);
    return CHEX_OK;
}

static enum chex_status compare_sums(struct chex_step *s, struct chex_coll *coll, const float *sum,
                                     bool *equal_out, struct chex_error *err) {
    enum chex_status st = s->engine->impl->grad_get(s->engine->self, sum, s->read, err);
    CHEX_TRY(chex_group_agree(coll->group, st, err));
    const uint64_t mine = chex_hash64(s->read, s->net->state_count * sizeof *s->read);
    CHEX_TRY(chex_group_exchange(coll->group, "sums", &mine, sizeof mine, err));
    const uint64_t *all = coll->group->all;
    *equal_out = true;
    for (int r = 0; r < coll->size; r++)
        *equal_out = *equal_out && all[r] == all[0];
    return CHEX_OK;
}

enum chex_status chex_step_sum(struct chex_step *s, struct chex_launch *launch,
                               struct chex_coll *coll, double seconds, uint64_t timeout_ms,
                               struct chex_step_sums *out, struct chex_error *err) {
    struct chex_reduce *reduce = NULL;
    struct chex_step_sums r = {0};
    const float *sum = NULL;
    bool on_device = false;
    enum chex_status st = make_reduce(s, launch, coll, timeout_ms, &reduce, &on_device, err);
    if (st == CHEX_OK)
        st = repeat(s, coll, reduce, seconds, &sum, &r.images_per_s, err);
    if (st == CHEX_OK)
        st = compare_sums(s, coll, sum, &r.equal, err);
    chex_reduce_destroy(reduce);
    r.by = on_device ? "NCCL" : coll->impl->name;
    if (st == CHEX_OK)
        *out = r;
    return st;
}
