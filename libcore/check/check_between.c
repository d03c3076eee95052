/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks between ranks: how fast the launcher exchanges data, how fast and how exact sums over
 * ranks are, how fast each node reaches the next. They use the launcher and the collectives of
 * training.
 *
 * Every probe here is collective. Before it enters a library call, all ranks exchange whether they
 * can take part (all_can), because a collective library call has no timeout. After a failed call no
 * rank uses the library again.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "check/between.h"
#include "check/checks.h"
#include "check/measure.h"
#include "check/outlier.h"

/* Reports that exchanges of the launcher fail. The run will then end at its next exchange, so the
 * reason is logged now. */
static void fail_exchange(struct chex_check_result *r, const struct chex_error *err) {
    chex_warn("%s", err->text);
    chex_check_found(r, "%s", err->text);
    chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                      "look at the rank that did not answer, and at its node");
}

/* Exchanges whether each rank can take part in the next call. This rank can if *r is still a pass.
 * True: all ranks can. */
static bool all_can(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_group *group = chex_check_group(c);
    struct chex_error err = {0};
    const char mine = r->verdict == CHEX_PASS;
    if (chex_group_exchange(group, "check-can", &mine, 1, &err) != CHEX_OK) {
        fail_exchange(r, &err);
        return false;
    }
    const char *cannot = memchr(group->all, 0, (size_t)group->size);
    if (cannot && mine)
        chex_check_skip(r, "rank %d cannot take part", (int)(cannot - (const char *)group->all));
    return !cannot;
}

/* True, and *r is a skip, if there is only one rank. */
static bool alone(const struct chex_check_context *c, struct chex_check_result *r) {
    if (c->launch->size == 1)
        chex_check_skip(r, "one rank: nothing to measure between ranks; try srun -N2");
    return c->launch->size == 1;
}

/* ---- fence ---- */

static const double max_fence_s = 1;

static enum chex_status time_fences(const struct chex_check_context *c, double *median_out,
                                    double *spread_out, struct chex_error *err) {
    enum { ROUNDS = 5, BYTES = 64 };
    char mine[BYTES] = {0};
    double seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const double start = chex_clock_s();
        CHEX_TRY(chex_group_exchange(chex_check_group(c), "check-fence", mine, BYTES, err));
        seconds[i] = chex_clock_s() - start;
    }
    *median_out = chex_median(seconds, ROUNDS);
    *spread_out = chex_spread(seconds, ROUNDS);
    return CHEX_OK;
}

static void probe_fence(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_error err = {0};
    double seconds;
    chex_check_expect(r, "less than %.0f s", max_fence_s);
    if (alone(c, r))
        return;
    (void)chex_check_has_time(c, 2, r);
    if (!all_can(c, r))
        return;
    if (time_fences(c, &seconds, &r->spread[0], &err) != CHEX_OK) {
        fail_exchange(r, &err);
        return;
    }
    r->figures[0] = seconds * 1e3;
    chex_check_found(r, "%.3g ms for %d ranks, %s", r->figures[0], c->launch->size,
                     c->launch->method);
    if (seconds > max_fence_s)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "starts will be slow: look at the load of the nodes and at TreeWidth and "
                          "the fence of Slurm's PMIx");
}
CHEX_CHECK(fence, .name = "fence",
           .question = "how fast do all ranks exchange a few bytes by the launcher?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_fence, .level = 3,
           .start = CHEX_START_ALL,
           .figures = {{.key = "ms", .unit = "ms", .lower_is_better = true}});

/* ---- collectives ---- */

/* Opens the collectives. A rank that fails alone would leave the others waiting in the library,
 * whose calls have no timeout. So all ranks first exchange whether they can take part. From then
 * until close_coll, in_coll is set: a failure means that the library is not used again. */
static bool open_coll(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_error err = {0};
    const struct chex_coll_impl *mpi;
    if (m->in_coll)
        chex_check_skip(r, "a collective call failed before: see collectives");
    else if (!m->coll && chex_coll_needs_mpi(m->launch) &&
             chex_coll_load_mpi(m->launch, &mpi, &err) != CHEX_OK)
        chex_check_skip(r, "%s: see modules", err.text);
    (void)chex_check_has_time(c, 3, r);
    if (!all_can(c, r))
        return false;
    m->in_coll = true;
    if (m->coll || chex_coll_create(m->launch, &m->coll, &err) == CHEX_OK)
        return true;
    chex_check_found(r, "%s", err.text);
    chex_check_worsen(r, CHEX_FAIL, err.status == CHEX_E_ENV ? CHEX_FAULT_USER : CHEX_FAULT_NODE,
                      "see mpi-env and modules");
    return false;
}

/* Ends the use of the collectives. All ranks have returned from the call, so the library can be
 * used again, except after CHEX_E_LOST. */
static void close_coll(const struct chex_check_context *c, enum chex_status st,
                       const struct chex_error *err, struct chex_check_result *r) {
    c->measure->in_coll = st == CHEX_E_LOST;
    if (st == CHEX_E_RESOURCE)
        chex_check_skip(r, "%s", err->text);
    else if (st == CHEX_E_ENV) {
        chex_check_found(r, "%s", err->text);
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER,
                          "install the missing library, or train with one rank");
    } else if (st != CHEX_OK) {
        chex_check_found(r, "%s", err->text);
        chex_check_worsen(
            r, CHEX_FAIL, CHEX_FAULT_NODE,
            "the network between the ranks fails: find the faulty node by halving the "
            "set of nodes");
    }
}

static const double sums_s = 2;
/* DenseNet-121 for 14 classes: parameters and statistics, 28 MB. */
enum { GRADIENT = 7051854 };

static void probe_sums(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_sum_rate rate;
    struct chex_error err = {0};
    const uint64_t need = 3 * sizeof(float) * (uint64_t)GRADIENT;
    chex_check_expect(r, "the exact sum everywhere");
    if (alone(c, r))
        return;
    if (chex_check_memory_share(c) < need)
        chex_check_skip(r, "it needs %d MiB of free memory", (int)(need >> 20));
    (void)chex_check_has_time(c, 2 * sums_s, r);
    if (!open_coll(c, r))
        return;
    enum chex_status st = chex_between_sums(c->measure->coll, GRADIENT, sums_s, &rate, &err);
    close_coll(c, st, &err, r);
    if (st != CHEX_OK)
        return;
    r->figures[0] = rate.small_s * 1e6;
    r->figures[1] = rate.vector_s * 1e3;
    r->figures[2] = rate.bus_bytes_per_s / 1e9;
    r->spread[0] = rate.small_spread;
    r->spread[1] = r->spread[2] = rate.vector_spread;
    chex_check_found(r,
                     "%s, %d ranks: one number %.4g us, a gradient of %.0f MB %.4g ms (%.3g GB/s)",
                     c->measure->coll->impl->name, c->launch->size, r->figures[0],
                     GRADIENT * sizeof(float) / 1e6, r->figures[1], r->figures[2]);
    if (c->gpu.allotted) {
        chex_check_found_more(r, "; in host memory, see gpu-sums");
    }
    if (rate.wrong == 0)
        return;
    chex_check_found(r, "%zu elements of the sum are wrong here, the first is %zu", rate.wrong,
                     rate.first_wrong);
    chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                      "the network or a memory corrupts data: leave %s out, drain it, test its "
                      "memory and network",
                      c->launch->host);
}
CHEX_CHECK(collectives, .name = "collectives",
           .question = "how fast are sums over all ranks, and are they right?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_sums, .level = 3,
           .start = CHEX_START_ALL,
           .figures = {{.key = "small_us", .unit = "us", .lower_is_better = true},
                       {.key = "gradient_ms", .unit = "ms", .lower_is_better = true},
                       {.key = "bus_gb_per_s", .unit = "GB/s"}});

/* ---- gpu-sums ---- */

static void probe_gpu_sums(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_step_sums sums;
    struct chex_error err = {0};
    chex_check_expect(r, "the same sum on all GPUs");
    if (alone(c, r))
        return;
    (void)chex_check_has_time(c, 4 * sums_s, r);
    (void)chex_measure_gpu(c, r); /* its reason replaces that of has_time */
    if (!open_coll(c, r))
        return;
    enum chex_status st = chex_step_sum(m->gpu, m->launch, m->coll, sums_s,
                                        chex_check_group(c)->wait_ms, &sums, &err);
    close_coll(c, st, &err, r);
    if (st != CHEX_OK)
        return;
    r->figures[0] = sums.images_per_s;
    chex_check_found(r, "%.4g images/s of a rank by %s, %.4g without sums", sums.images_per_s,
                     sums.by, m->gpu_steps.images_per_s);
    if (sums.equal)
        return;
    chex_check_found(r, "the ranks have different sums of one step's gradients by %s", sums.by);
    chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                      "data is corrupted between the GPUs: find the faulty node by halving the set "
                      "of nodes");
}
CHEX_CHECK(gpu_sums, .name = "gpu-sums",
           .question = "how fast are steps whose gradients are summed over all GPUs?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_gpu_sums, .level = 3,
           .start = CHEX_START_ALL, .figures = {{.key = "images_per_s", .unit = "images/s"}});

/* ---- neighbours ---- */

enum { LINK_BYTES = 8 << 20 };

static void report_links(const struct chex_check_context *c, const struct chex_link links[2],
                         struct chex_check_result *r) {
    double latency_s = 0;
    char host[CHEX_HOST_BYTES];
    for (int i = 0; i < 2; i++) {
        const struct chex_link *l = &links[i];
        if (l->rank < 0)
            continue;
        chex_launch_host(c->launch, l->rank, host, sizeof host);
        chex_check_found_more(r, "%s%s and %s %.3g GB/s", r->found[0] ? ", " : "", c->launch->host,
                              host, l->bytes_per_s / 1e9);
        /* The better of the two links counts: a slow neighbour is not the fault of this node. */
        if (l->bytes_per_s / 1e9 > r->figures[0])
            r->figures[0] = l->bytes_per_s / 1e9;
        if (latency_s <= 0 || l->latency_s < latency_s)
            latency_s = l->latency_s;
    }
    r->figures[1] = latency_s * 1e6;
    if (!r->found[0])
        chex_check_found(r, "measured by the first rank of the node");
    else
        chex_check_found_more(r, ", %.3g us", r->figures[1]);
}

static void probe_links(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_link links[2];
    struct chex_error err = {0};
    chex_check_expect(r, "as fast as other nodes");
    if (alone(c, r))
        return;
    if (c->launch->nodes == 1)
        chex_check_skip(r, "only one node");
    (void)chex_check_has_time(c, 3, r);
    if (!open_coll(c, r))
        return;
    enum chex_status st =
        chex_between_links(c->measure->coll, c->launch->local_rank, LINK_BYTES, links, &err);
    close_coll(c, st, &err, r);
    if (st == CHEX_OK)
        report_links(c, links, r);
}
CHEX_CHECK(neighbours, .name = "neighbours", .question = "how fast does each node reach the next?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_links, .level = 3,
           .start = CHEX_START_ALL,
           .figures = {{.key = "gb_per_s", .unit = "GB/s", .compared = true, .margin = 0.2},
                       {.key = "latency_us",
                        .unit = "us",
                        .lower_is_better = true,
                        .compared = true,
                        .warn_only = true}});
