/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast are this rank's processors and their memory, and did the system give it all of its time.
 * All ranks of a node measure at once, because that is how they will train: a memory channel that
 * is missing shows only under full load.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check/checks.h"
#include "check/load.h"
#include "check/measure.h"

static const char as_others[] = "as fast as others of its kind";

/* ---- memory-rate ---- */

static const double load_s = 1;

static const struct chex_figure memory_figures[] = {
    {.key = "gb_per_s", .unit = "GB/s", .compared = true}, {.key = NULL}};

static void probe_memory(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_load load;
    struct chex_error err = {0};
    const int threads = chex_check_threads(c);
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2 * load_s, r))
        return;
    chex_measure_begin(c->measure);
    if (chex_load_memory(threads, load_s, chex_check_memory_share(c), &load, &err) != CHEX_OK) {
        chex_check_skip(r, "%.250s", err.text);
        return;
    }
    c->measure->cpu_share = load.cpu_share;
    r->kind = chex_check_cpu_kind(c, "memory");
    r->figures[0] = load.bytes_per_s / 1e9;
    chex_check_found(r, "%.4g GB/s, %d thread%s", r->figures[0], threads, threads == 1 ? "" : "s");
}

/* What a node has in all is what its administrator knows that it should have. */
static void across_memory(const struct chex_check_card *cards,
                          const struct chex_check_result *const *all, int n,
                          struct chex_check_result *merged) {
    double least = 0;
    int where = 0;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < n; j++)
            sum += cards[j].node == cards[i].node ? all[j]->figures[0] : 0;
        if (cards[i].local_rank != 0 || (least > 0 && sum >= least))
            continue;
        least = sum;
        where = i;
    }
    if (n > 1 && merged->verdict == CHEX_PASS)
        chex_check_found(merged, "%.4g GB/s by all %d ranks of %s", least, cards[where].local_size,
                         cards[where].host);
}
const struct chex_check chex_check_memory_rate = {.name = "memory-rate",
                                                  .question =
                                                      "how fast is memory under the load of "
                                                      "all ranks of the node?",
                                                  .modes = CHEX_IN_ALL,
                                                  .fault = CHEX_FAULT_NODE,
                                                  .probe = probe_memory,
                                                  .across = across_memory,
                                                  .level = 2,
                                                  .start = CHEX_START_TOGETHER,
                                                  .figures = memory_figures};

/* ---- compute-rate ---- */

static const struct chex_figure compute_figures[] = {
    {.key = "gflop_per_s", .unit = "GFLOP/s", .compared = true}, {.key = NULL}};

static void probe_compute(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_engine_limits limits = {0};
    struct chex_error err = {0};
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2, r) || !chex_measure_cpu(c, r))
        return;
    chex_measure_begin(c->measure);
    const struct chex_engine *e = chex_step_engine(c->measure->cpu);
    if (!e->impl->limits || e->impl->limits(e->self, 0, &limits, &err) != CHEX_OK) {
        chex_check_skip(r, "%.250s", err.text[0] ? err.text : "not measured by this engine");
        return;
    }
    const char *variant = e->impl->variant(e->self);
    r->kind = chex_check_cpu_kind(c, variant);
    r->figures[0] = limits.flop_per_s / 1e9;
    chex_check_found(r, "%.4g GFLOP/s, %s %s", r->figures[0], variant,
                     chex_precision_names[e->config.precision]);
}
const struct chex_check chex_check_compute_rate = {
    .name = "compute-rate",
    .question = "how fast are matrix products from the caches?",
    .modes = CHEX_IN_ALL,
    .fault = CHEX_FAULT_NODE,
    .probe = probe_compute,
    .level = 2,
    .start = CHEX_START_TOGETHER,
    .figures = compute_figures};

/* ---- cpu-share ---- */

static const double least_share = 0.95, most_steal = 0.02;

static void probe_share(const struct chex_check_context *c, struct chex_check_result *r) {
    const struct chex_measure *m = c->measure;
    struct chex_strain now;
    chex_check_expect(r, "all of its time: no quota, no heat, nobody else");
    if (m->before.wall_s <= 0) {
        chex_check_skip(r, "nothing was measured");
        return;
    }
    chex_strain_read("", &now);
    const struct chex_strain d = chex_strain_between(&m->before, &now);
    const double steal = d.steal_s / d.wall_s / (double)sysconf(_SC_NPROCESSORS_ONLN);
    chex_check_found(r, "each thread ran %.0f %% of the time or more", 100 * m->cpu_share);
    if (d.throttled_count > 0) {
        chex_check_found(r,
                         "stopped %" PRIu64 " times by the quota of its control group, for %.2f s",
                         d.throttled_count, d.throttled_s);
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "the quota (cpu.max) is less than the CPUs: ask for more of it, or fewer "
                          "threads");
    } else if (m->cpu_share > 0 && m->cpu_share < least_share) {
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "others run on the same CPUs: --exclusive, fewer ranks a node, or "
                          "srun --cpu-bind=cores");
    }
    if (steal > most_steal) {
        chex_check_found(r, "%.1f %% of the node's time went to other virtual machines",
                         100 * steal);
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "its host is shared: leave it out with --exclude=%.60s, or ask for a "
                          "dedicated one",
                          c->launch->host);
    }
    if (d.heat_count > 0) {
        chex_check_found(r, "its processors were slowed down %" PRIu64 " times by heat in %.0f s",
                         d.heat_count, d.wall_s);
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "look at fans and heat sinks of %.60s; leave it out with --exclude",
                          c->launch->host);
    }
}
const struct chex_check chex_check_cpu_share = {.name = "cpu-share",
                                                .question =
                                                    "did the ranks get all the time of their CPUs?",
                                                .modes = CHEX_IN_ALL,
                                                .fault = CHEX_FAULT_NODE,
                                                .probe = probe_share,
                                                .level = 2};
