/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the input pipeline. The batches are divided into up to WINDOWS windows of equal length; the
 * result is the median and the best rate of a window.
 */
#include "train/bench_input.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"

enum { WINDOWS = 10, WARM_UP = 8 /* batches; more than the pipeline keeps ready */ };

/* With three epochs or more, windows are whole epochs. Batches may come in bursts, as at the end of
 * an epoch from a shuffle buffer, and would distort the rates of shorter windows. */
struct windows {
    int count;
    int64_t unit, units; /* batches of a unit; units in all */
};

static struct windows choose_windows(const struct chex_bench_input *b,
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
    const struct chex_bench_input *bench;
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

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(double *rates, int n, struct chex_bench_input_rates *out) {
    qsort(rates, (size_t)n, sizeof *rates, by_value);
    out->images_per_s_median = 0.5 * (rates[(n - 1) / 2] + rates[n / 2]);
    out->images_per_s_best = rates[n - 1];
}

static enum chex_status measure(struct meter *m, struct chex_pipeline *p,
                                struct chex_bench_input_rates *out, struct chex_error *err) {
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
    summarise(rates, windows, out);
    out->images_per_s = (double)m->batches * m->batch / seconds;
    out->bytes_per_s = (double)(chex_pipeline_bytes(p) - bytes) / seconds;
    out->stall_share = m->waited_s / seconds;
    out->peak_rss_bytes = chex_alloc_peak_rss_bytes();
    return CHEX_OK;
}

static void add(struct chex_bench_input_result *r, int rank,
                const struct chex_bench_input_rates *of) {
    struct chex_bench_input_rates *all = &r->all;
    all->images_per_s_median += of->images_per_s_median;
    all->images_per_s_best += of->images_per_s_best;
    all->images_per_s += of->images_per_s;
    all->bytes_per_s += of->bytes_per_s;
    if (of->stall_share > all->stall_share)
        all->stall_share = of->stall_share;
    if (of->peak_rss_bytes > all->peak_rss_bytes)
        all->peak_rss_bytes = of->peak_rss_bytes;
    if (rank == 0 || of->images_per_s_median < r->slowest.images_per_s_median) {
        r->slowest = *of;
        r->slowest_rank = rank;
    }
}

static enum chex_status gather(const struct chex_bench_input_rates *mine, struct chex_coll *coll,
                               struct chex_bench_input_result *r, struct chex_error *err) {
    CHEX_TRY(chex_group_exchange(coll->group, "rates", mine, sizeof *mine, err));
    const struct chex_bench_input_rates *all = coll->group->all;
    for (int k = 0; k < coll->size; k++)
        add(r, k, &all[k]);
    return CHEX_OK;
}

static enum chex_status run(const struct chex_bench_input *b, const struct chex_train_config *c,
                            const struct chex_train_world *w, struct chex_train_input *in,
                            struct chex_bench_input_result *r, struct chex_error *err) {
    struct meter m = {.bench = b,
                      .world = w,
                      .windows = choose_windows(b, in),
                      .batch = c->batch,
                      .start_s = chex_clock_s()};
    struct chex_pipeline *p = NULL;
    struct chex_bench_input_rates mine = {0};
    chex_train_input_describe(in, c);
    CHEX_TRY(
        chex_group_agree(w->coll->group, chex_train_input_pipeline(in, c, 0, 0, &p, err), err));
    enum chex_status st = chex_group_agree(w->coll->group, measure(&m, p, &mine, err), err);
    chex_pipeline_destroy(p);
    return st == CHEX_OK ? gather(&mine, w->coll, r, err) : st;
}

enum chex_status chex_bench_input_run(const struct chex_bench_input *bench,
                                      const struct chex_train_config *config,
                                      const struct chex_train_world *world,
                                      struct chex_bench_input_result *out, bool *together_out,
                                      struct chex_error *err) {
    struct chex_train_config c = *config;
    struct chex_train_input in = {0};
    *together_out = true; /* all ranks return the same status, unless the exchanges fail */
    memset(out, 0, sizeof *out);
    CHEX_TRY(chex_train_choose_logical_ranks(&c, world->coll->size, err));
    CHEX_TRY(chex_train_input_same(&c, world, err));
    CHEX_TRY(chex_train_input_open(&c, world, false, &in, err));
    struct chex_pipeline_config p = {.kind = c.pipeline, .workers = c.workers};
    out->ranks = world->coll->size;
    out->workers = chex_pipeline_threads(&p);
    out->stored_size = in.train->size;
    out->shuffle_width = chex_pipeline_width(c.pipeline, &in.order);
    out->keep = in.cache.keep;
    out->windows = choose_windows(bench, &in).count;
    enum chex_status st = run(bench, &c, world, &in, out, err);
    chex_train_input_close(&in);
    return st;
}
