/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast are this rank's processors and their memory, does each compute the same bits, and did
 * the system give it all of its time. All ranks of a node measure at once, because that is how they
 * will train: a memory channel that is missing shows only under full load.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "check/checks.h"
#include "check/load.h"
#include "check/measure.h"

static const char as_others[] = "as fast as others of its kind";

/* Before the first measurement, so that cpu-share can tell what happened during them. */
static void begin(struct chex_measure *m) {
    if (m->before.wall_s <= 0)
        chex_strain_read("", &m->before);
}

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
    begin(c->measure);
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

/* ---- the engine that the next three share ---- */

/* NULL where there is none; *r says why. */
static struct chex_step *engine(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_error err = {0};
    char need[32], have[32];
    /* The share is a quarter of what is this rank's, and the step may take half of that. */
    const uint64_t share = 2 * chex_check_memory_share(c);
    if (m->cpu)
        return m->cpu;
    if (share < CHEX_STEP_BYTES)
        chex_check_skip(r, "a step takes %s, and half of this rank's free memory is %s",
                        chex_format_bytes(need, sizeof need, CHEX_STEP_BYTES),
                        chex_format_bytes(have, sizeof have, share));
    else if (chex_step_create("cpu", chex_check_threads(c), NULL, &m->cpu, &err) != CHEX_OK)
        chex_check_skip(r, "%.250s", err.text);
    return m->cpu;
}

/* ---- compute-rate ---- */

static const struct chex_figure compute_figures[] = {
    {.key = "gflop_per_s", .unit = "GFLOP/s", .compared = true}, {.key = NULL}};

static void probe_compute(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_engine_limits limits = {0};
    struct chex_error err = {0};
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2, r) || !engine(c, r))
        return;
    begin(c->measure);
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

/* ---- step-rate ---- */

static const struct chex_figure step_figures[] = {
    {.key = "images_per_s", .unit = "images/s", .compared = true},
    {.key = "repeats", .unit = "repeats"},
    {.key = NULL}};

static const double step_s = 2;

static void probe_step(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_error err = {0};
    struct chex_step_result *s = &c->measure->cpu_steps;
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2 * step_s, r) || !engine(c, r))
        return;
    begin(c->measure);
    /* A second step for the bits, where it leaves as much time again for what comes behind. */
    const double most_s = (c->until_s - chex_clock_s()) / 3;
    if (chex_step_run(c->measure->cpu, step_s, most_s, s, &err) != CHEX_OK) {
        chex_check_skip(r, "%.250s", err.text);
        return;
    }
    r->kind = chex_check_cpu_kind(c, s->how);
    r->figures[0] = s->images_per_s;
    r->figures[1] = s->repeats;
    if (s->images_per_s > 0)
        chex_check_found(r, "%.4g images/s of %d px, %s", s->images_per_s, CHEX_STEP_PX, s->how);
    else
        chex_check_skip(r, "one step took more than %.1f s, %s", most_s, s->how);
}
const struct chex_check chex_check_step_rate = {.name = "step-rate",
                                                .question = "how fast are training steps of this "
                                                            "rank's processors?",
                                                .modes = CHEX_IN_ALL,
                                                .fault = CHEX_FAULT_NODE,
                                                .probe = probe_step,
                                                .level = 2,
                                                .start = CHEX_START_TOGETHER,
                                                .figures = step_figures};

/* ---- step-bits ---- */

static void probe_bits(const struct chex_check_context *c, struct chex_check_result *r) {
    const struct chex_step_result *s = &c->measure->cpu_steps;
    chex_check_expect(r, "the same from each step and rank of one kind");
    if (s->repeats == 0) {
        chex_check_skip(r, "no step was made: see step-rate");
        return;
    }
    chex_check_found(r, "%s: %016" PRIx64, s->how, s->digest);
    if (s->odd) {
        chex_check_found(r, "%s: step %d of %d computed other bits from the same input", s->how,
                         s->odd, s->repeats);
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "a processor or memory of this node computes wrong: leave it out with "
                          "--exclude=%.60s, drain it, test it",
                          c->launch->host);
    }
}

/* Whether two answers are of one variant and precision, of which only the bits may differ. */
static bool same_how(const char *a, const char *b) {
    const char *end = strrchr(a, ':');
    return end && strncmp(a, b, (size_t)(end + 1 - a)) == 0;
}

/* How many ranks say what rank i says. */
static int agreeing(const struct chex_check_result *const *all, int n, int i) {
    int count = 0;
    for (int j = 0; j < n; j++)
        count += strcmp(all[j]->found, all[i]->found) == 0;
    return count;
}

/* Of two answers of one kind the rarer one is wrong; of two that are as rare the later one is
 * named, and the verdict says that it may be either. */
static void across_bits(const struct chex_check_card *cards,
                        const struct chex_check_result *const *all, int n,
                        struct chex_check_result *merged) {
    for (int i = 1; i < n && merged->verdict == CHEX_PASS; i++) {
        if (all[i]->verdict != CHEX_PASS || strcmp(all[i]->found, all[i - 1]->found) == 0)
            continue;
        for (int j = 0; j < i && merged->verdict == CHEX_PASS; j++) {
            if (all[j]->verdict != CHEX_PASS || strcmp(all[i]->found, all[j]->found) == 0 ||
                !same_how(all[i]->found, all[j]->found))
                continue;
            const int here = agreeing(all, n, i), there = agreeing(all, n, j);
            const int odd = here <= there ? i : j, other = odd == i ? j : i;
            chex_check_found(merged, "rank %d (%s): %.60s, rank %d (%s): %.60s; with %d and %d",
                             cards[odd].rank, cards[odd].host, all[odd]->found, cards[other].rank,
                             cards[other].host, all[other]->found, here < there ? here : there,
                             here < there ? there : here);
            chex_check_worsen(merged, CHEX_FAIL, CHEX_FAULT_NODE,
                              "%s computes wrong: leave it out with --exclude=%.60s, drain it, "
                              "test it",
                              here == there ? "one of the two" : "a processor of the first",
                              cards[odd].host);
        }
    }
}
const struct chex_check chex_check_step_bits = {.name = "step-bits",
                                                .question = "does every step give the same bits?",
                                                .modes = CHEX_IN_ALL,
                                                .fault = CHEX_FAULT_NODE,
                                                .probe = probe_bits,
                                                .across = across_bits,
                                                .level = 2};

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
