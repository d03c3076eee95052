/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the images of a run. The order: choose the rows of this rank, copy their shards to the
 * node (--stage), open them, choose the cache. After each part all ranks agree on the status, so
 * that they fail together.
 */
#include "train/run_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "infer/split_run.h"
#include "input/stage.h"
#include "launch/reduce.h"
#include "launch/same.h"
#include "shard/manifest.h"
#include "shard/selection_overlap.h"
#include "train/watch/watchdog.h"

/* The rows of this rank; known before a shard is opened for training. */
struct parts {
    size_t first, end; /* training rows of this rank */
    size_t val_rows, val_first, val_end;
};

/* The copies on the node, one for each set. */
struct copies {
    struct chex_stage **stage; /* (count); NULL: no --stage */
    const char **dirs;         /* (count) folders to read */
    int count;
};

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

/* Beats of the stall watch, for the folders below. */
static void waits(void *arg) {
    const struct chex_train_input *in = arg;
    chex_watchdog_wait_long(in->world->watchdog);
}

static void copied(void *arg) {
    const struct chex_train_input *in = arg;
    chex_watchdog_at(in->world->watchdog, CHEX_PHASE_STAGE);
}

static void opened(void *arg) {
    const struct chex_train_input *in = arg;
    chex_watchdog_at(in->world->watchdog, CHEX_PHASE_OPEN);
}

static enum chex_status agree(const struct chex_train_input *in, enum chex_status mine,
                              struct chex_error *err) {
    return chex_watchdog_agree(in->world->watchdog, in->world->coll->group, mine, err);
}

/* ---- --stage ---- */

/* Adds the rows of each split of source `at` that contain rows [first, end) of the part. */
static void add_stage_parts(const struct chex_selection *s, enum chex_part part, int at,
                            size_t first, size_t end, struct chex_stage_config *stage) {
    const struct chex_splits splits = s->source[at].splits[part];
    size_t from, to;
    chex_selection_span(s, part, at, first, end, &from, &to);
    for (int k = splits.from; k < splits.to; k++) {
        const size_t rows = s->source[at].manifest->splits[k].rows;
        stage->parts[stage->part_count++] =
            (struct chex_stage_part){(enum chex_split)k, from, to < rows ? to : rows};
        from = from > rows ? from - rows : 0;
        to = to > rows ? to - rows : 0;
    }
}

/* Copies one set. Collective. */
static enum chex_status stage_set(struct chex_train_input *in, int at, const struct parts *p,
                                  struct chex_stage **out, struct chex_error *err) {
    const struct chex_launch *l = in->world->launch;
    const struct chex_selection *s = in->selection;
    struct chex_stage_config stage = {.source = s->sources.set[at].dir,
                                      .dir = in->config->stage,
                                      .job = l->job_id,
                                      .node = l->node,
                                      .local_rank = l->local_rank,
                                      .look = in->config->plan_only,
                                      .stop = in->world->stop,
                                      .group = in->world->coll->group,
                                      .waits = waits,
                                      .copied = copied,
                                      .arg = in};
    add_stage_parts(s, CHEX_PART_TRAIN, at, p->first, p->end, &stage);
    if (p->val_rows)
        add_stage_parts(s, CHEX_PART_VAL, at, p->val_first, p->val_end, &stage);
    return chex_stage_create(&stage, out, err);
}

/* Copies the sets to the node. Collective. */
static enum chex_status stage_all(struct chex_train_input *in, const struct parts *p,
                                  struct copies *copies, struct chex_error *err) {
    const int count = in->selection->sources.count;
    copies->stage = chex_alloc_zeroed((size_t)count, sizeof(struct chex_stage *));
    copies->dirs = chex_alloc_zeroed((size_t)count, sizeof(const char *));
    const enum chex_status st =
        copies->stage && copies->dirs ? CHEX_OK : chex_error_memory(err, "--stage");
    CHEX_TRY(agree(in, st, err));
    for (; copies->count < count; copies->count++) {
        struct chex_stage **stage = &copies->stage[copies->count];
        CHEX_TRY(stage_set(in, copies->count, p, stage, err));
        copies->dirs[copies->count] = chex_stage_path(*stage);
    }
    return CHEX_OK;
}

static void release_copies(struct copies *copies) {
    for (int i = 0; i < copies->count; i++)
        chex_stage_destroy(copies->stage[i]);
    free(copies->stage);
    free(copies->dirs);
}

/* ---- opening ---- */

static enum chex_status open_sets(struct chex_train_input *in, const char *const *dirs,
                                  const struct parts *p, struct chex_error *err) {
    const struct chex_train_config *c = in->config;
    opened(in);
    CHEX_TRY(chex_selection_open(in->selection, CHEX_PART_TRAIN, p->first, p->end, dirs, opened, in,
                                 &in->train, err));
    if (in->train->size < c->image_size)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: images are stored at %d px, --image-size %d is larger: shard "
                              "again with --size %d, or train at %d",
                              c->data_dir, in->train->size, c->image_size, c->image_size,
                              in->train->size);
    in->val_first = p->val_first;
    in->val_end = p->val_end;
    if (p->val_rows)
        CHEX_TRY(chex_selection_open(in->selection, CHEX_PART_VAL, p->val_first, p->val_end, dirs,
                                     opened, in, &in->val, err));
    const uint64_t row_bytes = (uint64_t)in->train->size * (uint64_t)in->train->size;
    return chex_cache_choose(c->cache, (p->end - p->first) * row_bytes, chex_memory_free_bytes(""),
                             in->world->launch->local_size, &in->cache, err);
}

/* What the ranks must have in common before their manifests can be compared. One set may have
 * another name on each node. */
static uint64_t names_digest(const struct chex_sources *s) {
    uint64_t digest = (uint64_t)s->count;
    for (int i = 0; s->count > 1 && i < s->count; i++)
        digest = chex_hash64_mix(digest, s->set[i].name, strlen(s->set[i].name) + 1);
    return digest;
}

static enum chex_status same_names(const struct chex_train_input *in,
                                   const struct chex_sources *sources, struct chex_error *err) {
    struct chex_group *group = in->world->coll->group;
    const uint64_t mine = names_digest(sources);
    CHEX_TRY(chex_group_exchange(group, "data-names", &mine, sizeof mine, err));
    const uint64_t *all = group->all;
    return chex_group_agree(group,
                            all[group->rank] == all[0]
                                ? CHEX_OK
                                : chex_error_set(err, CHEX_E_USAGE,
                                                 "--data %s: other sets than on rank 0",
                                                 in->config->data_dir),
                            err);
}

static enum chex_status same_manifests(const struct chex_train_input *in,
                                       const struct chex_sources *sources, struct chex_error *err) {
    const struct chex_train_world *w = in->world;
    const size_t count = (size_t)sources->count;
    CHEX_AUTO_FREE struct chex_path *paths = chex_alloc_zeroed(count, sizeof *paths);
    CHEX_AUTO_FREE const char **texts = chex_alloc_zeroed(count, sizeof(char *));
    const enum chex_status st = paths && texts ? CHEX_OK : chex_error_memory(err, "--data");
    CHEX_TRY(chex_group_agree(w->coll->group, st, err));
    for (size_t i = 0; i < count; i++) {
        paths[i] = chex_path(sources->set[i].dir, CHEX_MANIFEST_NAME);
        texts[i] = paths[i].text;
    }
    return chex_same_files(w->coll, w->launch, texts, count, err);
}

enum chex_status chex_train_input_same(const struct chex_train_input *in, struct chex_error *err) {
    struct chex_sources sources = {0};
    struct chex_group *group = in->world->coll->group;
    enum chex_status st =
        chex_group_agree(group, chex_sources_parse(in->config->data_dir, &sources, err), err);
    if (st == CHEX_OK && group->size > 1)
        st = same_names(in, &sources, err);
    if (st == CHEX_OK)
        st = same_manifests(in, &sources, err);
    chex_sources_release(&sources);
    return st;
}

enum chex_status chex_train_input_select(struct chex_train_input *in, struct chex_error *err) {
    const struct chex_train_config *c = in->config;
    const struct chex_selection_config selection = {
        c->data_dir, c->findings, c->uncertain, c->where, c->data_weights, c->fold, NULL};
    return in->selection ? CHEX_OK : chex_selection_create(&selection, &in->selection, err);
}

static enum chex_status choose_rows(struct chex_train_input *in, bool with_val, struct parts *p,
                                    struct chex_error *err) {
    const struct chex_train_config *c = in->config;
    const struct chex_launch *l = in->world->launch;
    const size_t *rows = in->selection->rows;
    chex_reduce_run(c->logical_ranks, l->size, l->rank, &in->run_from, &in->run_to);
    in->order = (struct chex_order_config){.rows = rows[CHEX_PART_TRAIN],
                                           .logical_ranks = c->logical_ranks,
                                           .batch = (size_t)c->batch,
                                           .kind = c->order,
                                           .shuffle_block = c->shuffle_block,
                                           .seed = c->seed};
    CHEX_TRY(chex_order_check(&in->order, err));
    chex_pipeline_rows(c->pipeline, &in->order, in->run_from, in->run_to, &p->first, &p->end);
    p->val_rows = with_val ? rows[CHEX_PART_VAL] : 0;
    if (p->val_rows)
        chex_eval_rows(p->val_rows, l->rank, l->size, &p->val_first, &p->val_end);
    return CHEX_OK;
}

/* The rows of the run, then those of this rank. Collective. */
static enum chex_status select_rows(struct chex_train_input *in, bool with_val, struct parts *p,
                                    struct chex_error *err) {
    struct chex_group *group = in->world->coll->group;
    const struct chex_selection_ranks ranks = {group, opened, waits, in};
    enum chex_status st = chex_train_input_select(in, err);
    CHEX_TRY(agree(in, st, err));
    CHEX_TRY(chex_selection_choose(in->selection, &ranks, err));
    opened(in);
    if (group->rank == 0)
        st = chex_selection_check_overlap(in->selection, opened, in, in->overlap,
                                          sizeof in->overlap, err);
    else if (in->selection->sources.count > 1)
        waits(in);
    CHEX_TRY(chex_group_agree(group, st, err));
    return agree(in, choose_rows(in, with_val, p, err), err);
}

enum chex_status chex_train_input_open(struct chex_train_input *in, bool with_val,
                                       struct chex_error *err) {
    struct parts p = {0};
    struct copies copies = {0};
    CHEX_TRY(select_rows(in, with_val, &p, err));
    enum chex_status st = in->config->stage ? stage_all(in, &p, &copies, err) : CHEX_OK;
    if (st == CHEX_OK)
        st = agree(in, open_sets(in, copies.dirs, &p, err), err);
    release_copies(&copies);
    if (st != CHEX_OK)
        chex_train_input_close(in);
    return st;
}

void chex_train_input_close(struct chex_train_input *in) {
    chex_set_close(in->train);
    chex_set_close(in->val);
    chex_selection_destroy(in->selection);
    in->train = in->val = NULL;
    in->selection = NULL;
}

enum chex_status chex_train_input_make_resident(struct chex_train_input *in,
                                                struct chex_engine *engine,
                                                struct chex_error *err) {
    const struct chex_train_config *c = in->config;
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

static struct chex_pipeline_config pipeline_config(const struct chex_train_input *in) {
    enum { SLOTS = 4 };
    const struct chex_train_config *c = in->config;
    /* With --sync-bn the batches of all logical ranks of this process are held together. */
    const int held = c->sync_bn ? in->run_to - in->run_from : 1;
    return (struct chex_pipeline_config){.set = in->train,
                                         .image_size = c->image_size,
                                         .batch = c->batch,
                                         .workers = c->workers,
                                         .slots = held + SLOTS - 1,
                                         .training = true,
                                         .kind = c->pipeline,
                                         .augment = c->augment,
                                         .keep = in->cache.keep,
                                         .raw = in->resident.raw,
                                         .resident = in->resident.resident,
                                         .features = in->train_features,
                                         .trace = in->trace,
                                         .order = in->order,
                                         .rank_from = in->run_from,
                                         .rank_to = in->run_to};
}

enum chex_status chex_train_input_pipeline(const struct chex_train_input *in, uint64_t epoch,
                                           size_t step, struct chex_pipeline **pipeline_out,
                                           struct chex_error *err) {
    struct chex_pipeline_config p = pipeline_config(in);
    p.epoch = epoch;
    p.step = step;
    return chex_pipeline_create(&p, pipeline_out, err);
}

enum chex_status chex_train_input_one_open(const struct chex_train_input *in, int v, uint64_t epoch,
                                           size_t step, struct chex_train_input_one *out,
                                           struct chex_error *err) {
    size_t first, end;
    *out = (struct chex_train_input_one){0};
    chex_pipeline_rows(in->config->pipeline, &in->order, v, v + 1, &first, &end);
    CHEX_TRY(chex_selection_open(in->selection, CHEX_PART_TRAIN, first, end, NULL, NULL, NULL,
                                 &out->set, err));
    struct chex_pipeline_config p = pipeline_config(in);
    p.set = out->set;
    p.workers = 1;
    p.slots = 2;
    p.keep = p.resident = false;
    p.trace = NULL;
    p.rank_from = v;
    p.rank_to = v + 1;
    p.epoch = epoch;
    p.step = step;
    enum chex_status st = chex_pipeline_create(&p, &out->pipeline, err);
    if (st == CHEX_OK)
        st = chex_pipeline_next(out->pipeline, &out->ready, err);
    if (st == CHEX_OK)
        return CHEX_OK;
    chex_pipeline_destroy(out->pipeline);
    chex_set_close(out->set);
    return st;
}

void chex_train_input_one_close(struct chex_train_input_one *one) {
    chex_pipeline_release(one->pipeline, &one->ready);
    chex_pipeline_destroy(one->pipeline);
    chex_set_close(one->set);
}

enum chex_status chex_train_input_measure(const struct chex_train_input *in, int batch,
                                          struct chex_pipeline_needs *needs_out,
                                          struct chex_error *err) {
    struct chex_pipeline_config p = pipeline_config(in);
    p.batch = batch;
    p.order.batch = (size_t)batch;
    return chex_pipeline_measure(&p, needs_out, err);
}

int chex_train_input_threads(const struct chex_train_input *in) {
    const struct chex_pipeline_config p = pipeline_config(in);
    return chex_pipeline_threads(&p);
}

/* Logs what --data, --where and --uncertain choose. Nothing without them. */
static void describe_selection(const struct chex_train_input *in) {
    const struct chex_train_config *c = in->config;
    const struct chex_selection *s = in->selection;
    const bool where = c->where && *c->where, several = s->sources.count > 1;
    char of[96] = "";
    if (where)
        chex_info("--where %s: %zu of %zu training images, %zu of %zu validation images", c->where,
                  chex_selection_images(s, CHEX_PART_TRAIN), s->total[CHEX_PART_TRAIN],
                  chex_selection_images(s, CHEX_PART_VAL), s->total[CHEX_PART_VAL]);
    for (int i = 0; several && i < s->sources.count; i++) {
        const struct chex_selection_source *source = &s->source[i];
        char uses[64] = "";
        if (where)
            snprintf(of, sizeof of, " (of %zu and %zu)", source->rows[CHEX_PART_TRAIN],
                     source->rows[CHEX_PART_VAL]);
        if (source->uses[CHEX_PART_TRAIN] > 1)
            snprintf(uses, sizeof uses, ", each used %zu times in an epoch",
                     source->uses[CHEX_PART_TRAIN]);
        chex_info("set %s: %zu training images%s, %zu validation images%s", s->sources.set[i].name,
                  source->kept[CHEX_PART_TRAIN], uses, source->kept[CHEX_PART_VAL], of);
    }
    if (in->overlap[0])
        chex_warn("%s", in->overlap);
    if (c->uncertain && *c->uncertain && strcmp(c->uncertain, "ignore") != 0)
        chex_info("uncertain labels: %s", c->uncertain);
}

void chex_train_input_describe(const struct chex_train_input *in) {
    const struct chex_train_config *c = in->config;
    const int threads = chex_train_input_threads(in);
    describe_selection(in);
    chex_info("input pipeline %s, %d thread%s; order %s, shuffle %zu rows wide",
              chex_pipeline_names[c->pipeline], threads, threads == 1 ? "" : "s",
              c->pipeline == CHEX_PIPELINE_OLD ? "of the disk" : chex_order_names[c->order],
              chex_pipeline_width(c->pipeline, &in->order));
    if (c->pipeline == CHEX_PIPELINE_OLD)
        chex_info("the old pipeline reads and augments all %zu rows on every rank, with one "
                  "reader: --order, --shuffle-block and --workers mean nothing to it",
                  in->order.rows);
    if (!in->train_features.count && (!in->resident.resident || in->cache.keep))
        chex_info("%s", in->cache.why);
    if (in->resident.raw)
        chex_info("the engine crops and augments; it is given stored rows%s",
                  c->resident == CHEX_RESIDENT_NEVER ? " with every batch (--resident never)" : "");
    if (in->resident.why[0])
        chex_info("%s", in->resident.why);
}
