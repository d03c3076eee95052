/* SPDX-License-Identifier: Apache-2.0
 *
 * --head-only and --features (head_only.h): the engines, and the features of this process.
 */
#include "train/head_only.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/ref/head_engine.h"
#include "train/memory_budget.h"

enum chex_status chex_head_only_check(const struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    if (c->head_only && !c->features && !c->init && !s->restored)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--head-only: the network has only the parameters of --seed, and its "
            "features mean nothing (expected --init FILE with a trained network)");
    return CHEX_OK;
}

enum chex_status chex_head_only_read(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    struct chex_sources sources = {0};
    if (!c->features)
        return CHEX_OK;
    chex_watchdog_wait_long(s->world.watchdog);
    enum chex_status st = chex_sources_parse(c->data_dir, &sources, err);
    if (st == CHEX_OK && sources.count > 1)
        st = chex_error_set(err, CHEX_E_USAGE, "--features and %d sets in --data: expected one set",
                            sources.count);
    if (st == CHEX_OK)
        st = chex_feature_file_open(c->features, sources.set[0].dir, s->world.coll->group,
                                    &s->features, err);
    if (st == CHEX_OK)
        memcpy(s->features_digest, s->features->digest, sizeof s->features_digest);
    chex_sources_release(&sources);
    chex_watchdog_at(s->world.watchdog, CHEX_PHASE_SETUP);
    return st;
}

/* ---- the rows of this process ---- */

struct rows {
    const struct chex_set *set;
    size_t first, end;
};

static struct rows train_rows(const struct chex_session *s) {
    struct rows r = {.set = s->input.train};
    chex_pipeline_rows(s->config.pipeline, &s->input.order, s->input.run_from, s->input.run_to,
                       &r.first, &r.end);
    return r;
}

static struct rows val_rows(const struct chex_session *s) {
    return s->input.val ? (struct rows){s->input.val, s->input.val_first, s->input.val_end}
                        : (struct rows){.set = NULL};
}

static uint64_t vector_bytes(const struct chex_session *s, const struct rows *r) {
    return (uint64_t)(r->end - r->first) * (uint64_t)chex_head_features(s->net) * sizeof(float);
}

uint64_t chex_head_only_bytes(const struct chex_session *s) {
    const struct rows train = train_rows(s), val = val_rows(s);
    return s->config.head_only ? vector_bytes(s, &train) + vector_bytes(s, &val) : 0;
}

uint64_t chex_head_only_reads(const struct chex_session *s) {
    const struct rows train = train_rows(s);
    const uint64_t px = (uint64_t)train.set->size;
    return (uint64_t)(train.end - train.first) * px * px;
}

/* The features of this process, from the file. */
static enum chex_status copy_features(struct chex_session *s, struct chex_error *err) {
    const struct rows rows[] = {train_rows(s), val_rows(s)};
    struct chex_pipeline_features *const parts[] = {&s->input.train_features,
                                                    &s->input.val_features};
    char size[32];
    for (int i = 0; i < 2; i++) {
        float *features = NULL; /* chex_head_only_release frees it, after an error too */
        const enum chex_status st = chex_feature_file_copy(s->features, rows[i].set, rows[i].first,
                                                           rows[i].end, &features, err);
        parts[i]->rows = features;
        parts[i]->first = rows[i].first;
        CHEX_TRY(st);
    }
    chex_feature_file_close(s->features);
    s->features = NULL;
    chex_info("--features %s: %s, %zu parameters, fp32 on the host; rank 0 keeps the features of "
              "%zu images (%s)",
              s->config.features, s->net->model, s->net->param_count,
              rows[0].end - rows[0].first + rows[1].end - rows[1].first,
              chex_format_bytes(size, sizeof size, chex_head_only_bytes(s)));
    return CHEX_OK;
}

enum chex_status chex_head_only_create(struct chex_session *s, const struct chex_engine_config *e,
                                       struct chex_error *err) {
    struct chex_engine_config infers = *e;
    s->input.train_features.count = s->input.val_features.count = chex_head_features(s->net);
    s->input.cache.keep = false; /* each stored row is read once */
    snprintf(s->input.cache.why, sizeof s->input.cache.why,
             s->features ? "--features: no image is read"
                         : "--head-only: only the classifier trains, on features of each image "
                           "that are computed once: running statistics, no augmentation");
    if (s->features) {
        CHEX_TRY(copy_features(s, err));
        return chex_head_engine_create(e, &s->engine, err);
    }
    infers.training = false;
    infers.loss = (struct chex_loss){.kind = CHEX_LOSS_BCE};
    infers.ema_decay = 0;
    CHEX_TRY(chex_engine_create(s->config.engine, &infers, &s->extractor, err));
    if (!s->extractor->impl->maps)
        return chex_error_set(err, CHEX_E_USAGE, "--head-only: engine %s gives no pooled features",
                              s->extractor->impl->name);
    return chex_head_engine_create(e, &s->engine, err);
}

/* ---- computing ---- */

static enum chex_status check_finite(const struct chex_session *s, const struct chex_set *set,
                                     const struct chex_ready *ready, const float *vectors,
                                     struct chex_error *err) {
    const size_t count = (size_t)chex_head_features(s->net);
    for (size_t i = 0; i < (size_t)ready->batch.n * count; i++)
        if (!isfinite(vectors[i])) {
            size_t at;
            const struct chex_shard *shard = chex_set_locate(set, ready->rows[i / count], &at);
            return chex_error_set(err, CHEX_E_DIVERGED,
                                  "--head-only: image %s: a feature is not finite: the parameters "
                                  "of the network are not usable",
                                  chex_shard_image_id(shard, at));
        }
    return CHEX_OK;
}

/* The batches of a pipeline through the extractor. logits: scratch of one batch. */
static enum chex_status infer_all(struct chex_session *s, const struct rows *rows,
                                  struct chex_pipeline *pipeline, float *logits, float *vectors,
                                  struct chex_progress *bar, size_t done, struct chex_error *err) {
    const size_t count = (size_t)chex_head_features(s->net), all = rows->end - rows->first;
    enum chex_status st = CHEX_OK;
    for (size_t at = 0; st == CHEX_OK && at < all;) {
        struct chex_ready ready;
        chex_watchdog_at(s->world.watchdog, CHEX_PHASE_FEATURES);
        if (*s->world.stop)
            return chex_error_set(err, CHEX_E_PREEMPTED,
                                  "asked to stop while features are computed; run again to go on");
        CHEX_TRY(chex_pipeline_next(pipeline, &ready, err));
        struct chex_batch images = ready.batch;
        images.labels = NULL;
        float *to = vectors + at * count;
        st = chex_engine_infer(s->extractor, &images, logits, err);
        if (st == CHEX_OK)
            st = chex_engine_features(s->extractor, images.n, to, err);
        if (st == CHEX_OK)
            st = check_finite(s, rows->set, &ready, to, err);
        at += (size_t)images.n;
        chex_pipeline_release(pipeline, &ready);
        chex_progress_set(bar, done + at, NULL);
    }
    return st;
}

/* Allocates and computes the features of some rows. */
static enum chex_status compute_rows(struct chex_session *s, const struct rows *rows,
                                     struct chex_pipeline_features *out, struct chex_progress *bar,
                                     size_t done, struct chex_error *err) {
    enum { SLOTS = 4 };
    const struct chex_pipeline_config config = {.set = rows->set,
                                                .image_size = s->config.image_size,
                                                .batch = s->config.batch,
                                                .workers = s->config.workers,
                                                .slots = SLOTS,
                                                .row_from = rows->first,
                                                .row_to = rows->end};
    struct chex_pipeline *pipeline = NULL;
    if (rows->end == rows->first)
        return CHEX_OK;
    CHEX_AUTO_FREE float *logits =
        chex_alloc_zeroed((size_t)s->config.batch, (size_t)s->net->classes * sizeof *logits);
    float *vectors = chex_alloc_aligned(rows->end - rows->first,
                                        (size_t)chex_head_features(s->net) * sizeof *vectors);
    enum chex_status st = logits && vectors ? chex_pipeline_create(&config, &pipeline, err)
                                            : chex_error_memory(err, "the features of %zu images",
                                                                rows->end - rows->first);
    if (st == CHEX_OK)
        st = infer_all(s, rows, pipeline, logits, vectors, bar, done, err);
    chex_pipeline_destroy(pipeline);
    out->rows = vectors; /* chex_head_only_release frees it, after an error too */
    out->first = rows->first;
    return st;
}

/* The features must fit into the free memory, in equal parts for the processes of the node. */
static enum chex_status check_free(const struct chex_session *s, struct chex_error *err) {
    const uint64_t need = chex_head_only_bytes(s);
    const uint64_t left = chex_train_free_bytes(s->world.launch);
    char a[32], b[32];
    if (!left || need <= left)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_RESOURCE,
                          "--head-only: the features of this process's images take %s of memory "
                          "(its part of the free memory is %s): use more nodes%s",
                          chex_format_bytes(a, sizeof a, need),
                          chex_format_bytes(b, sizeof b, left),
                          s->config.order == CHEX_ORDER_GLOBAL ? ", and --order local" : "");
}

static enum chex_status give_parameters(struct chex_session *s, struct chex_error *err) {
    CHEX_AUTO_FREE float *state = chex_alloc_aligned(s->net->state_count, sizeof *state);
    CHEX_TRY(state ? chex_engine_get(s->engine, CHEX_STATE_PARAMS, state, err)
                   : chex_error_memory(err, NULL));
    return chex_engine_set(s->extractor, CHEX_STATE_PARAMS, state, err);
}

static enum chex_status compute(struct chex_session *s, struct chex_error *err) {
    const struct rows train = train_rows(s), val = val_rows(s);
    const size_t of_train = train.end - train.first, of_val = val.end - val.first;
    CHEX_TRY(check_free(s, err));
    CHEX_TRY(give_parameters(s, err));
    struct chex_progress *bar =
        chex_progress_create(s->size > 1 ? "features of rank 0's images" : "features", "img",
                             of_train + of_val, s->rank == 0);
    enum chex_status st = compute_rows(s, &train, &s->input.train_features, bar, 0, err);
    if (st == CHEX_OK)
        st = compute_rows(s, &val, &s->input.val_features, bar, of_train, err);
    chex_progress_destroy(bar, st == CHEX_OK);
    return st;
}

/* Logs what is trained, and on what. */
static void describe(const struct chex_session *s) {
    const struct rows train = train_rows(s), val = val_rows(s);
    const size_t images = train.end - train.first + val.end - val.first;
    char size[32];
    chex_info("--head-only: only the classifier trains (%zu parameters, fp32 on the host), on %d "
              "features of each image: running statistics, no augmentation; rank 0 keeps those of "
              "%zu image%s (%s)",
              chex_head_gradients(s->net), chex_head_features(s->net), images, chex_text_s(images),
              chex_format_bytes(size, sizeof size, chex_head_only_bytes(s)));
    if (s->config.order == CHEX_ORDER_GLOBAL && s->size > 1)
        chex_info("--order global: every rank computes the features of all training images; "
                  "--order local shares the work");
}

enum chex_status chex_head_only_compute(struct chex_session *s, struct chex_error *err) {
    const double from_s = chex_clock_s();
    if (!s->extractor)
        return CHEX_OK;
    describe(s);
    enum chex_status st = compute(s, err);
    chex_watchdog_wait_long(s->world.watchdog);
    st = chex_group_agree(s->world.coll->group, st, err);
    if (st != CHEX_OK)
        s->together = !s->world.coll->group->broken;
    chex_watchdog_at(s->world.watchdog, CHEX_PHASE_SETUP);
    chex_engine_destroy(s->extractor);
    s->extractor = NULL;
    char seconds[32];
    if (st == CHEX_OK)
        chex_info("--head-only: features computed in %s",
                  chex_format_duration(seconds, sizeof seconds, chex_clock_s() - from_s));
    return st;
}

void chex_head_only_release(struct chex_session *s) {
    chex_engine_destroy(s->extractor);
    chex_feature_file_close(s->features);
    free((void *)s->input.train_features.rows);
    free((void *)s->input.val_features.rows);
}
