/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --bench: runs the benchmark on each rank, exchanges the results, and prints them as
 * text or JSON on rank 0.
 */
#include "train_bench.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "train_layers.h"

/* Every rank sends this to all ranks, as raw bytes. */
struct report {
    double images_per_s_median, images_per_s_best, step_s_median, step_s_best;
    uint64_t engine_bytes, peak_rss_bytes;
};

struct summary {
    struct report all; /* sums, times and maxima as in train_bench.h */
    double slowest_images_per_s;
    int ranks, slowest_rank;
};

static struct report report_of(const struct chex_bench_result *r) {
    struct report c;
    memset(&c, 0, sizeof c); /* padding too: the struct is sent as bytes */
    c.images_per_s_median = r->images_per_s_median;
    c.images_per_s_best = r->images_per_s_best;
    c.step_s_median = r->step_s_median;
    c.step_s_best = r->step_s_best;
    c.engine_bytes = r->engine_bytes;
    c.peak_rss_bytes = r->peak_rss_bytes;
    return c;
}

static void add(struct summary *s, int rank, const struct report *c) {
    struct report *all = &s->all;
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

static enum chex_status gather(struct chex_group *group, const struct report *mine,
                               struct summary *out, struct chex_error *err) {
    CHEX_TRY(chex_group_exchange(group, "bench", mine, sizeof *mine, err));
    const struct report *all = group->all;
    *out = (struct summary){.ranks = group->size};
    for (int r = 0; r < group->size; r++)
        add(out, r, &all[r]);
    return CHEX_OK;
}

static enum chex_status print_json(const struct chex_bench *b, const struct chex_bench_result *r,
                                   const struct summary *s, struct chex_error *err) {
    const struct report *all = &s->all;
    json_t *o = json_pack(
        "{s:i,s:s,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:I,s:i,s:i,s:f,s:s}",
        "schema", 1, "kind", b->config.training ? "train" : "infer", "images_per_s_median",
        all->images_per_s_median, "images_per_s_best", all->images_per_s_best, "step_ms_median",
        all->step_s_median * 1e3, "step_ms_best", all->step_s_best * 1e3, "gflop_per_s_median",
        r->gflop_per_image * all->images_per_s_median, "peak_rss_bytes",
        (json_int_t)all->peak_rss_bytes, "engine_bytes", (json_int_t)all->engine_bytes, "engine",
        b->engine, "variant", r->variant, "model", b->model, "precision",
        chex_precision_names[b->config.precision], "batch", b->config.batch, "image_size",
        b->config.image_size, "threads", b->config.threads, "steps", (json_int_t)b->steps, "ranks",
        s->ranks, "slowest_rank", s->slowest_rank, "slowest_images_per_s", s->slowest_images_per_s,
        "version", CHEXNET_VERSION);
    if (!o)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = b->limits ? train_layers_print(b, r, o, err) : CHEX_OK;
    if (st == CHEX_OK) {
        json_dumpf(o, stdout, JSON_PRESERVE_ORDER);
        putchar('\n');
    }
    json_decref(o);
    return st;
}

static enum chex_status print_text(const struct chex_bench *b, const struct chex_bench_result *r,
                                   const struct summary *s, struct chex_error *err) {
    const struct report *all = &s->all;
    char rss[32], ranks[32] = "";
    if (s->ranks > 1)
        snprintf(ranks, sizeof ranks, ", %d ranks", s->ranks);
    printf("%s %s, %d px, batch %d, %s, engine %s (%s), %d thread%s%s: %.1f images/s median, %.1f "
           "best of %lld steps (%.1f GFLOP/s), peak memory %s\n",
           b->model, b->config.training ? "train" : "infer", b->config.image_size, b->config.batch,
           chex_precision_names[b->config.precision], b->engine, r->variant, b->config.threads,
           b->config.threads == 1 ? "" : "s", ranks, all->images_per_s_median,
           all->images_per_s_best, (long long)b->steps,
           r->gflop_per_image * all->images_per_s_median,
           chex_format_bytes(rss, sizeof rss, all->peak_rss_bytes));
    if (s->ranks > 1)
        printf("slowest rank %d: %.1f images/s\n", s->slowest_rank, s->slowest_images_per_s);
    return b->limits ? train_layers_print(b, r, NULL, err) : CHEX_OK;
}

enum chex_status train_bench(const struct chex_bench *bench, struct chex_group *group, bool json,
                             bool *together_out, struct chex_error *err) {
    struct chex_bench_result r = {0};
    struct summary s;
    enum chex_status st = chex_bench_run(bench, &r, err);
    const bool measured = st == CHEX_OK;
    const struct report mine = report_of(&r);
    group->wait_ms = CHEX_GROUP_WORK_MS;
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK)
        st = gather(group, &mine, &s, err);
    *together_out = !group->broken;
    if (st == CHEX_OK && group->rank == 0)
        st = json ? print_json(bench, &r, &s, err) : print_text(bench, &r, &s, err);
    if (measured)
        chex_bench_release(&r);
    return st;
}
