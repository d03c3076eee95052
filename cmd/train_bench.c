/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --bench: runs the benchmark on each rank, exchanges the results, and prints them as
 * text or JSON on rank 0.
 */
#include "train_bench.h"

#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "train_layers.h"

struct summary {
    struct chex_bench_rates all; /* sums, times and maxima as in train_bench.h */
    double slowest_images_per_s;
    int ranks, slowest_rank;
};

static void add(struct summary *s, int rank, const struct chex_bench_rates *c) {
    struct chex_bench_rates *all = &s->all;
    all->images_per_s_median += c->images_per_s_median;
    all->images_per_s_best += c->images_per_s_best;
    if (c->engine_bytes > all->engine_bytes)
        all->engine_bytes = c->engine_bytes;
    if (c->peak_rss_bytes > all->peak_rss_bytes)
        all->peak_rss_bytes = c->peak_rss_bytes;
    if (rank == 0 || c->images_per_s_median < s->slowest_images_per_s) {
        s->slowest_images_per_s = c->images_per_s_median;
        s->slowest_rank = rank;
        all->step_s_median = c->step_s_median;
        all->step_s_best = c->step_s_best;
    }
}

static enum chex_status gather(struct chex_group *group, const struct chex_bench_rates *mine,
                               struct summary *out, struct chex_error *err) {
    CHEX_TRY(chex_group_exchange(group, "bench", mine, sizeof *mine, err));
    const struct chex_bench_rates *all = group->all;
    *out = (struct summary){.ranks = group->size};
    for (int r = 0; r < group->size; r++)
        add(out, r, &all[r]);
    return CHEX_OK;
}

static json_t *result_json(const struct chex_bench *b, const struct chex_bench_result *r,
                           const struct summary *s) {
    const struct chex_bench_rates *all = &s->all;
    return chex_result(
        CHEX_FIELD("schema", 1), CHEX_FIELD("kind", b->config.training ? "train" : "infer"),
        CHEX_MEMBER(all, images_per_s_median), CHEX_MEMBER(all, images_per_s_best),
        CHEX_FIELD("step_ms_median", all->step_s_median * 1e3),
        CHEX_FIELD("step_ms_best", all->step_s_best * 1e3),
        CHEX_FIELD("gflop_per_s_median", r->gflop_per_image * all->images_per_s_median),
        CHEX_MEMBER(all, peak_rss_bytes), CHEX_MEMBER(all, engine_bytes), CHEX_MEMBER(b, engine),
        CHEX_MEMBER(r, variant), CHEX_MEMBER(b, model),
        CHEX_FIELD("precision", chex_precision_names[b->config.precision]),
        CHEX_MEMBER(&b->config, batch), CHEX_MEMBER(&b->config, image_size),
        CHEX_MEMBER(&b->config, threads), CHEX_MEMBER(b, steps), CHEX_MEMBER(s, ranks),
        CHEX_MEMBER(s, slowest_rank), CHEX_MEMBER(s, slowest_images_per_s),
        CHEX_FIELD("version", CHEXNET_VERSION));
}

static const char result_text[] =
    "{model} {kind}, {image_size} px, batch {batch}, {precision}, engine {engine} ({variant}), "
    "{threads thread}{ranks=1!, {ranks} ranks}: {images_per_s_median:.1f} images/s median, "
    "{images_per_s_best:.1f} best of {steps} steps ({gflop_per_s_median:.1f} GFLOP/s), peak memory "
    "{peak_rss_bytes:B}\n"
    "{ranks=1!slowest rank {slowest_rank}: {slowest_images_per_s:.1f} images/s\n}";

static enum chex_status print_result(const struct chex_bench *b, const struct chex_bench_result *r,
                                     const struct summary *s, bool json, struct chex_error *err) {
    json_t *o = result_json(b, r, s);
    enum chex_status st = o && b->limits ? train_layers_add(b, r, o, err) : CHEX_OK;
    if (o && st == CHEX_OK && !json) {
        chex_result_text(stdout, o, result_text);
        train_layers_print(o);
    } else if (st == CHEX_OK)
        return chex_result_print(stdout, o, NULL, 0, err);
    json_decref(o);
    return st;
}

enum chex_status train_bench(const struct chex_bench *bench, struct chex_group *group, bool json,
                             bool *together_out, struct chex_error *err) {
    struct chex_bench_result r = {0};
    struct summary s;
    enum chex_status st = chex_bench_run(bench, &r, err);
    const bool measured = st == CHEX_OK;
    group->wait_ms = CHEX_GROUP_WORK_MS;
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK)
        st = gather(group, &r.rates, &s, err);
    *together_out = !group->broken;
    if (st == CHEX_OK && group->rank == 0)
        st = print_result(bench, &r, &s, json, err);
    if (measured)
        chex_bench_release(&r);
    return st;
}
