/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the images of a run. The order: choose the rows of this rank, copy their shards to the
 * node (--stage), open them, choose the cache. After each part all ranks agree on the status, so
 * that they fail together.
 */
#include "train/run_input.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "eval/predict_split.h"
#include "input/stage.h"
#include "launch/reduce.h"
#include "launch/same.h"
#include "shard/manifest.h"
#include "train/watchdog.h"

/* The rows of this rank; known before a shard is opened. */
struct parts {
    enum chex_split split;
    size_t first, end; /* training rows of this rank */
    size_t val_rows, val_first, val_end;
};

/* The split to train on: `train`, or `all` if the data was not split. */
static enum chex_status choose_split(const char *dir, enum chex_split *split_out, size_t *rows_out,
                                     struct chex_error *err) {
    *split_out = CHEX_TRAIN;
    CHEX_TRY(chex_set_rows(dir, CHEX_TRAIN, rows_out, err));
    if (*rows_out == 0) {
        *split_out = CHEX_ALL;
        CHEX_TRY(chex_set_rows(dir, CHEX_ALL, rows_out, err));
    }
    if (*rows_out == 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: neither train nor all has any row: nothing to train on", dir);
    return CHEX_OK;
}

enum chex_status chex_train_choose_logical_ranks(struct chex_train_config *c, int ranks,
                                                 struct chex_error *err) {
    if (c->logical_ranks == 0)
        c->logical_ranks = ranks;
    if (c->logical_ranks >= ranks)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "--logical-ranks %d, but the job has %d ranks: expected at least as many",
                          c->logical_ranks, ranks);
}

static enum chex_status choose_rows(const struct chex_train_config *c, const struct chex_launch *l,
                                    bool with_val, struct chex_train_input *in, struct parts *p,
                                    struct chex_error *err) {
    size_t rows;
    chex_reduce_run(c->logical_ranks, l->size, l->rank, &in->run_from, &in->run_to);
    CHEX_TRY(choose_split(c->data_dir, &p->split, &rows, err));
    in->order = (struct chex_order_config){.rows = rows,
                                           .logical_ranks = c->logical_ranks,
                                           .batch = (size_t)c->batch,
                                           .kind = c->order,
                                           .shuffle_block = c->shuffle_block,
                                           .seed = c->seed};
    CHEX_TRY(chex_order_check(&in->order, err));
    chex_pipeline_rows(c->pipeline, &in->order, in->run_from, in->run_to, &p->first, &p->end);
    if (!with_val)
        return CHEX_OK;
    CHEX_TRY(chex_set_rows(c->data_dir, CHEX_VAL, &p->val_rows, err));
    if (p->val_rows)
        chex_eval_rows(p->val_rows, l->rank, l->size, &p->val_first, &p->val_end);
    return CHEX_OK;
}

static void waits(void *arg) {
    const struct chex_train_world *w = arg;
    chex_watchdog_wait_long(w->watchdog);
}

static void copied(void *arg) {
    const struct chex_train_world *w = arg;
    chex_watchdog_at(w->watchdog, CHEX_PHASE_STAGE);
}

static void opened(void *arg) {
    const struct chex_train_world *w = arg;
    chex_watchdog_at(w->watchdog, CHEX_PHASE_OPEN);
}

static enum chex_status stage(const struct chex_train_config *c, const struct chex_train_world *w,
                              const struct parts *p, struct chex_stage **out,
                              struct chex_error *err) {
    const struct chex_launch *l = w->launch;
    struct chex_stage_config s = {
        .source = c->data_dir,
        .dir = c->stage,
        .job = l->job_id,
        .node = l->node,
        .local_rank = l->local_rank,
        .parts = {{p->split, p->first, p->end}, {CHEX_VAL, p->val_first, p->val_end}},
        .part_count = p->val_rows ? 2 : 1,
        .look = c->plan_only,
        .stop = w->stop,
        .group = w->coll->group,
        .waits = waits,
        .copied = copied,
        .arg = (void *)w};
    return chex_stage_create(&s, out, err);
}

static enum chex_status open_sets(const struct chex_train_config *c,
                                  const struct chex_train_world *w, const char *dir,
                                  const struct parts *p, struct chex_train_input *in,
                                  struct chex_error *err) {
    void *arg = (void *)w;
    opened(arg);
    CHEX_TRY(chex_set_open_watched(dir, p->split, p->first, p->end, opened, arg, &in->train, err));
    if (in->train->size < c->image_size)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: images are stored at %d px, --image-size %d is larger: shard "
                              "again with --size %d, or train at %d",
                              c->data_dir, in->train->size, c->image_size, c->image_size,
                              in->train->size);
    in->val_first = p->val_first;
    in->val_end = p->val_end;
    if (p->val_rows)
        return chex_set_open_watched(dir, CHEX_VAL, p->val_first, p->val_end, opened, arg, &in->val,
                                     err);
    return CHEX_OK;
}

static enum chex_status choose_cache(const struct chex_train_config *c, const struct chex_launch *l,
                                     const struct parts *p, struct chex_train_input *in,
                                     struct chex_error *err) {
    uint64_t row_bytes = (uint64_t)in->train->size * (uint64_t)in->train->size;
    return chex_cache_choose(c->cache, (p->end - p->first) * row_bytes, chex_memory_free_bytes(""),
                             l->local_size, &in->cache, err);
}

enum chex_status chex_train_input_same(const struct chex_train_config *c,
                                       const struct chex_train_world *w, struct chex_error *err) {
    char *manifest = chex_fs_join(c->data_dir, CHEX_MANIFEST_NAME);
    const char *const paths[] = {manifest};
    const enum chex_status st = chex_same_files(w->coll, w->launch, paths, 1, err);
    free(manifest);
    return st;
}

enum chex_status chex_train_input_open(const struct chex_train_config *c,
                                       const struct chex_train_world *w, bool with_val,
                                       struct chex_train_input *in, struct chex_error *err) {
    struct parts p = {0};
    struct chex_stage *staged = NULL;
    memset(in, 0, sizeof *in);
    enum chex_status st = choose_rows(c, w->launch, with_val, in, &p, err);
    CHEX_TRY(chex_watchdog_agree(w->watchdog, w->coll->group, st, err));
    if (c->stage)
        CHEX_TRY(stage(c, w, &p, &staged, err));
    st = open_sets(c, w, staged ? chex_stage_path(staged) : c->data_dir, &p, in, err);
    if (st == CHEX_OK)
        st = choose_cache(c, w->launch, &p, in, err);
    st = chex_watchdog_agree(w->watchdog, w->coll->group, st, err);
    chex_stage_destroy(staged);
    if (st != CHEX_OK)
        chex_train_input_close(in);
    return st;
}

void chex_train_input_close(struct chex_train_input *in) {
    chex_set_close(in->train);
    chex_set_close(in->val);
    in->train = in->val = NULL;
}

enum chex_status chex_train_input_make_resident(struct chex_train_input *in,
                                                const struct chex_train_config *c,
                                                struct chex_engine *engine,
                                                struct chex_error *err) {
    const bool raw = c->pipeline == CHEX_PIPELINE_NEW; /* the old pipeline always augments itself */
    struct chex_resident_request make_resident = {.stored_px = in->train->size};
    if (raw && c->resident == CHEX_RESIDENT_AUTO)
        chex_pipeline_rows(c->pipeline, &in->order, in->run_from, in->run_to, &make_resident.first,
                           &make_resident.end);
    CHEX_TRY(chex_engine_make_resident(engine, &make_resident, &in->resident, err));
    in->resident.raw = in->resident.raw && raw;
    if (in->resident.resident && c->cache != CHEX_CACHE_MEMORY)
        in->cache.keep = false;
    return CHEX_OK;
}

static struct chex_pipeline_config pipeline_config(const struct chex_train_input *in,
                                                   const struct chex_train_config *c) {
    enum { SLOTS = 4 };
    return (struct chex_pipeline_config){.set = in->train,
                                         .image_size = c->image_size,
                                         .batch = c->batch,
                                         .workers = c->workers,
                                         .slots = SLOTS,
                                         .training = true,
                                         .kind = c->pipeline,
                                         .augment = c->augment,
                                         .keep = in->cache.keep,
                                         .raw = in->resident.raw,
                                         .resident = in->resident.resident,
                                         .trace = in->trace,
                                         .order = in->order,
                                         .rank_from = in->run_from,
                                         .rank_to = in->run_to};
}

enum chex_status chex_train_input_pipeline(const struct chex_train_input *in,
                                           const struct chex_train_config *c, uint64_t epoch,
                                           size_t step, struct chex_pipeline **pipeline_out,
                                           struct chex_error *err) {
    struct chex_pipeline_config p = pipeline_config(in, c);
    p.epoch = epoch;
    p.step = step;
    return chex_pipeline_create(&p, pipeline_out, err);
}

enum chex_status chex_train_input_measure(const struct chex_train_input *in,
                                          const struct chex_train_config *c, int batch,
                                          struct chex_pipeline_needs *needs_out,
                                          struct chex_error *err) {
    struct chex_pipeline_config p = pipeline_config(in, c);
    p.batch = batch;
    p.order.batch = (size_t)batch;
    return chex_pipeline_measure(&p, needs_out, err);
}

int chex_train_input_threads(const struct chex_train_input *in, const struct chex_train_config *c) {
    const struct chex_pipeline_config p = pipeline_config(in, c);
    return chex_pipeline_threads(&p);
}

void chex_train_input_describe(const struct chex_train_input *in,
                               const struct chex_train_config *c) {
    const int threads = chex_train_input_threads(in, c);
    chex_info("input pipeline %s, %d thread%s; order %s, shuffle %zu rows wide",
              chex_pipeline_names[c->pipeline], threads, threads == 1 ? "" : "s",
              c->pipeline == CHEX_PIPELINE_OLD ? "of the disk" : chex_order_names[c->order],
              chex_pipeline_width(c->pipeline, &in->order));
    if (c->pipeline == CHEX_PIPELINE_OLD)
        chex_info("the old pipeline reads and augments all %zu rows on every rank, with one "
                  "reader: --order, --shuffle-block and --workers mean nothing to it",
                  in->order.rows);
    if (!in->resident.resident || in->cache.keep)
        chex_info("%s", in->cache.why);
    if (in->resident.raw)
        chex_info("the engine crops and augments; it is given stored rows%s",
                  c->resident == CHEX_RESIDENT_NEVER ? " with every batch (--resident never)" : "");
    if (in->resident.why[0])
        chex_info("%s", in->resident.why);
}
