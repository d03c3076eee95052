/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench-input: times the input pipeline. The batches are divided into up to WINDOWS windows of
 * equal length; the result is the median and the best rate of a window.
 */
#include <errno.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/result.h"
#include "bench/bench.h"
#include "bench/bench_rates.h"
#include "train/run_input.h"

enum { WINDOWS = 10, WARM_UP = 8 /* batches; more than the pipeline keeps ready */ };

/* With three epochs or more, windows are whole epochs. Batches may come in bursts, as at the end of
 * an epoch from a shuffle buffer, and would distort the rates of shorter windows. */
struct windows {
    int count;
    int64_t unit, units; /* batches of a unit; units in all */
};

static struct windows choose_windows(const struct chex_bench *b,
                                     const struct chex_train_input *in) {
    enum { FEW = 3 };
    struct windows w = {.unit = 1, .units = b->batches};
    int64_t epoch = (int64_t)chex_order_steps(&in->order) * (int64_t)(in->run_to - in->run_from);
    if (b->batches / epoch >= FEW) {
        w.unit = epoch;
        w.units = b->batches / epoch;
    }
    w.count = w.units < WINDOWS ? (int)w.units : WINDOWS;
    return w;
}

/* The state of a measurement on one rank. */
struct meter {
    const struct chex_bench *bench;
    const struct chex_train_world *world;
    struct windows windows;
    int batch;
    double waited_s; /* for batches, since the warm-up */
    double start_s;
    int64_t batches; /* batches since start_s */
};

/* Sleeps until the next batch is due. Due times are absolute: after a stall the consumer takes
 * batches without sleeping until it has caught up. */
static void pace(const struct meter *m) {
    if (m->bench->images_per_s <= 0)
        return;
    double due_s = m->start_s + (double)m->batches * m->batch / m->bench->images_per_s;
    struct timespec due = {.tv_sec = (time_t)due_s,
                           .tv_nsec = (long)((due_s - (double)(time_t)due_s) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
        ;
}

static enum chex_status take_batch(struct meter *m, struct chex_pipeline *p,
                                   struct chex_error *err) {
    struct chex_ready ready;
    if (*m->world->stop)
        return chex_error_set(err, CHEX_E_PREEMPTED, "asked to stop while measuring");
    pace(m);
    CHEX_TRY(chex_pipeline_next(p, &ready, err));
    m->waited_s += ready.waited_s;
    m->batches++;
    chex_pipeline_release(p, &ready);
    return CHEX_OK;
}

static enum chex_status measure(struct meter *m, struct chex_pipeline *p,
                                struct chex_bench_rates *out, struct chex_error *err) {
    double rates[WINDOWS];
    const struct windows *win = &m->windows;
    int windows = win->count;
    for (int i = 0; i < WARM_UP; i++)
        CHEX_TRY(take_batch(m, p, err));
    uint64_t bytes = chex_pipeline_bytes(p);
    m->batches = 0;
    m->waited_s = 0;
    m->start_s = chex_clock_s();
    double from_s = m->start_s, now_s = from_s;
    for (int w = 0; w < windows; w++, from_s = now_s) {
        int64_t first = m->batches, end = win->units * (w + 1) / windows * win->unit;
        while (m->batches < end)
            CHEX_TRY(take_batch(m, p, err));
        now_s = chex_clock_s();
        rates[w] = (double)(end - first) * m->batch / (now_s - from_s);
    }
    double seconds = now_s - m->start_s;
    out->images_per_s_median = chex_bench_median(rates, (size_t)windows);
    out->images_per_s_best = rates[windows - 1];
    out->images_per_s = (double)m->batches * m->batch / seconds;
    out->bytes_per_s = (double)(chex_pipeline_bytes(p) - bytes) / seconds;
    out->stall_share = m->waited_s / seconds;
    out->peak_rss_bytes = chex_alloc_peak_rss_bytes();
    return CHEX_OK;
}

static enum chex_status run(struct meter *m, const struct chex_train_input *in,
                            struct chex_bench_sum *sum, struct chex_error *err) {
    struct chex_group *group = m->world->coll->group;
    struct chex_pipeline *p = NULL;
    struct chex_bench_rates mine = {0};
    chex_train_input_describe(in);
    CHEX_TRY(chex_group_agree(group, chex_train_input_pipeline(in, 0, 0, &p, err), err));
    enum chex_status st = chex_group_agree(group, measure(m, p, &mine, err), err);
    chex_pipeline_destroy(p);
    return st == CHEX_OK ? chex_bench_gather(group, &mine, sum, err) : st;
}

/* The keys are those of --bench. There is no engine, precision is fp32, and threads are the
 * input's. */
static json_t *result_json(const struct meter *m, const struct chex_train_input *in,
                           const struct chex_bench_sum *s) {
    const struct chex_train_config *c = in->config;
    const struct chex_bench_rates *all = &s->all;
    const int workers = chex_train_input_threads(in);
    return chex_result(
        CHEX_FIELD("schema", 1), CHEX_MEMBER(all, images_per_s_median),
        CHEX_MEMBER(all, images_per_s_best), CHEX_MEMBER(all, images_per_s),
        CHEX_MEMBER(all, bytes_per_s), CHEX_MEMBER(all, stall_share),
        CHEX_FIELD("consume_images_per_s", m->bench->images_per_s),
        CHEX_MEMBER(all, peak_rss_bytes), CHEX_FIELD("engine", "none"),
        CHEX_FIELD("precision", chex_precision_names[CHEX_FP32]),
        CHEX_FIELD("pipeline", chex_pipeline_names[c->pipeline]), CHEX_FIELD("threads", workers),
        CHEX_FIELD("workers", workers), CHEX_MEMBER(c, batch), CHEX_MEMBER(c, image_size),
        CHEX_FIELD("stored_size", in->train->size),
        CHEX_FIELD("cache", in->cache.keep ? "memory" : "none"),
        CHEX_FIELD("order", chex_order_names[c->order]), CHEX_MEMBER(c, shuffle_block),
        CHEX_FIELD("shuffle_width", chex_pipeline_width(c->pipeline, &in->order)),
        CHEX_MEMBER(m->bench, batches), CHEX_MEMBER(s, ranks), CHEX_MEMBER(s, slowest_rank),
        CHEX_FIELD("slowest_images_per_s", s->slowest.images_per_s_median),
        CHEX_FIELD("version", CHEXNET_VERSION), CHEX_FIELD("windows", m->windows.count),
        CHEX_FIELD("reached_images_per_s", all->images_per_s / s->ranks));
}

enum chex_status chex_bench_input(const struct chex_bench *bench,
                                  const struct chex_train_config *config,
                                  const struct chex_train_world *world, json_t **out,
                                  bool *together_out, struct chex_error *err) {
    struct chex_train_config c = *config;
    struct chex_train_input in = {.config = &c, .world = world};
    struct chex_bench_sum sum;
    *together_out = true; /* all ranks return the same status, unless the exchanges fail */
    *out = NULL;
    CHEX_TRY(chex_train_choose_logical_ranks(&c, world->coll->size, err));
    CHEX_TRY(chex_train_input_same(&in, err));
    CHEX_TRY(chex_train_input_open(&in, false, err));
    struct meter m = {.bench = bench,
                      .world = world,
                      .windows = choose_windows(bench, &in),
                      .batch = c.batch,
                      .start_s = chex_clock_s()};
    enum chex_status st = run(&m, &in, &sum, err);
    if (st == CHEX_OK && world->coll->rank == 0)
        *out = result_json(&m, &in, &sum);
    chex_train_input_close(&in);
    return st;
}
