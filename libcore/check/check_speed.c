/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the speed of this rank's processors and memory, and whether the rank got all of its CPU
 * time.
 *
 * All ranks of a node measure at the same time, as in training. A missing memory channel shows only
 * under full load.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/checks.h"
#include "check/load.h"
#include "check/measure.h"
#include "check/outlier.h"

static const char as_others[] = "as fast as others of its kind";

/* ---- memory-rate ---- */

static const double load_s = 1;

static void probe_memory(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_load load;
    struct chex_error err = {0};
    const int threads = chex_check_threads(c);
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2 * load_s, r))
        return;
    chex_measure_begin(c->measure, CHEX_DISTURB_CPU);
    const enum chex_status st =
        chex_load_memory(threads, load_s, chex_check_memory_share(c), &load, &err);
    chex_measure_end(c->measure, r);
    if (st != CHEX_OK) {
        chex_check_skip(r, "%s", err.text);
        return;
    }
    c->measure->cpu_share = load.cpu_share;
    r->spread[0] = load.spread;
    r->kind = chex_check_cpu_kind(c, "memory");
    r->figures[0] = load.bytes_per_s / 1e9;
    chex_check_found(r, "%.4g GB/s, %d thread%s", r->figures[0], threads, threads == 1 ? "" : "s");
}

/* Reports the sum over the ranks of the slowest node. An administrator can compare it with the
 * memory rate of the hardware. */
static void across_memory(const struct chex_check_record *records,
                          const struct chex_check_result *const *all, int n,
                          struct chex_check_result *merged) {
    double slowest = 0;
    int where = 0;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++)
            sum += records[j].node == records[i].node ? all[j]->figures[0] : 0;
        if (records[i].local_rank != 0 || (slowest > 0 && sum >= slowest))
            continue;
        slowest = sum;
        where = i;
    }
    if (n > 1 && merged->verdict == CHEX_PASS)
        chex_check_found(merged, "%.4g GB/s by all %d ranks of %s", slowest,
                         records[where].local_size, records[where].host);
}
CHEX_CHECK(memory_rate, .name = "memory-rate",
           .question = "how fast is memory under the load of all ranks of the node?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_memory,
           .across = across_memory, .level = 2, .start = CHEX_START_TOGETHER,
           .figures = {{.key = "gb_per_s", .unit = "GB/s", .compared = true}});

/* ---- compute-rate ---- */

/* The engine reports the best moment of each run. Several runs therefore give a median and a small
 * spread. */
static enum chex_status measure_products(const struct chex_engine *e, struct chex_check_result *r,
                                         struct chex_error *err) {
    enum { RUNS = 5 };
    double rates[RUNS];
    for (int i = 0; i < RUNS; i++) {
        struct chex_engine_limits limits = {0};
        CHEX_TRY(e->impl->capacity->limits(e->self, 0, &limits, err));
        rates[i] = limits.flop_per_s / 1e9;
    }
    r->figures[0] = chex_median(rates, RUNS);
    r->spread[0] = chex_spread(rates, RUNS);
    return CHEX_OK;
}

static void probe_compute(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_error err = {0};
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2, r) || !chex_measure_cpu(c, r))
        return;
    const struct chex_engine *e = chex_step_engine(c->measure->cpu);
    if (!e->impl->capacity) {
        chex_check_skip(r, "not measured by this engine");
        return;
    }
    chex_measure_begin(c->measure, CHEX_DISTURB_CPU);
    const enum chex_status st = measure_products(e, r, &err);
    chex_measure_end(c->measure, r);
    if (st != CHEX_OK) {
        chex_check_skip(r, "%s", err.text);
        return;
    }
    const char *variant = e->impl->variant(e->self);
    r->kind = chex_check_cpu_kind(c, variant);
    chex_check_found(r, "%.4g GFLOP/s, %s %s", r->figures[0], variant,
                     chex_precision_names[e->config.precision]);
}
CHEX_CHECK(compute_rate, .name = "compute-rate",
           .question = "how fast are matrix products from the caches?", .modes = CHEX_IN_ALL,
           .fault = CHEX_FAULT_NODE, .probe = probe_compute, .level = 2,
           .start = CHEX_START_TOGETHER,
           .figures = {{.key = "gflop_per_s", .unit = "GFLOP/s", .compared = true}});

/* ---- cpu-share ---- */

static const double min_share = 0.95, max_steal = 0.02;

static void probe_share(const struct chex_check_context *c, struct chex_check_result *r) {
    const struct chex_measure *m = c->measure;
    struct chex_throttling now;
    chex_check_expect(r, "all of its time: no quota, no heat, no other processes");
    if (m->before.wall_s <= 0) {
        chex_check_skip(r, "nothing was measured");
        return;
    }
    chex_throttling_read("", &now);
    const struct chex_throttling d = chex_throttling_between(&m->before, &now);
    const double steal = d.steal_s / d.wall_s / (double)sysconf(_SC_NPROCESSORS_ONLN);
    chex_check_found(r, "each thread ran %.0f %% of the time or more", 100 * m->cpu_share);
    if (d.throttled_count > 0) {
        chex_check_found(r,
                         "stopped %" PRIu64 " times by the quota of its control group, for %.2f s",
                         d.throttled_count, d.throttled_s);
        chex_check_worsen(
            r, CHEX_WARN, CHEX_FAULT_USER,
            "the quota (cpu.max) is less than the CPUs: request more of it, or use fewer "
            "threads");
    } else if (m->disturbed[0]) {
        chex_check_found(r, "%s", m->disturbed);
        chex_check_worsen(
            r, CHEX_WARN, CHEX_FAULT_USER,
            "the figures of this rank are not reliable: measure when the node is idle, "
            "in a job with srun --exclusive");
    } else if (m->cpu_share > 0 && m->cpu_share < min_share) {
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "other processes run on the same CPUs: use --exclusive, fewer ranks per "
                          "node, or srun --cpu-bind=cores");
    }
    if (steal > max_steal) {
        chex_check_found(r, "%.1f %% of the node's time went to other virtual machines",
                         100 * steal);
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "its host is shared: leave it out with --exclude=%s, or ask for a "
                          "dedicated one",
                          c->launch->host);
    }
    /* All causes so far are disturbances by others. Heat, below, is a problem of the node. */
    if (r->verdict != CHEX_PASS)
        snprintf(r->disturbed, sizeof r->disturbed, "%s",
                 m->disturbed[0] ? m->disturbed : "others ran on the same CPUs");
    if (d.heat_count > 0) {
        chex_check_found(r, "its processors were slowed down %" PRIu64 " times by heat in %.0f s",
                         d.heat_count, d.wall_s);
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "look at fans and heat sinks of %s; leave it out with --exclude",
                          c->launch->host);
    }
}
CHEX_CHECK(cpu_share, .name = "cpu-share",
           .question = "did the ranks get all the time of their CPUs?", .modes = CHEX_IN_ALL,
           .fault = CHEX_FAULT_NODE, .probe = probe_share, .level = 2);
