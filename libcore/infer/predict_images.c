/* SPDX-License-Identifier: Apache-2.0
 *
 * The inference loop of predict_images.h.
 *
 * A batch is a run of positions, as many as the engine takes. The usable images among them are
 * inferred together. predict_partial.h describes the line of an image.
 */
#include "infer/predict_images.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/text.h"
#include "infer/features.h"
#include "infer/image_loader.h"
#include "infer/split_run.h"

enum { BLOCK = 64, BATCHES_IN_RING = 4, BATCHES_IN_ROUND = 16 };

/* The state of one rank. */
struct run {
    const struct chex_predict_config *c;
    int batch, classes, px, feature_count;
    size_t *order, count;
    uint8_t *finished; /* (list->count + 7) / 8: a bit for each image that has a line */
    int parts;         /* numbers of parts in use before this run */
    struct chex_image_loader *loader;
    struct chex_partial_writer *writer;
    struct chex_pool *pool;
    const struct chex_loaded_image **images; /* (batch) of the current batch */
    float *pixels, *logits, *features;
    float *member_logits;  /* (networks, batch, classes) */
    double *distances;     /* (batch) */
    double *probabilities; /* (networks) of a finding of an image */
    char *thumb_dir;
    size_t bad;
};

/* ---- which images ---- */

static bool is_finished(const struct run *r, size_t i) { return r->finished[i / 8] >> (i % 8) & 1; }

/* Rank 0 finds the finished images and tells all ranks. Collective. */
static enum chex_status share_finished(struct run *r, size_t *kept_out, struct chex_error *err) {
    struct chex_group *g = r->c->group;
    const size_t count = r->c->list->count, bytes = (count + 7) / 8;
    struct chex_partial_index index = {0};
    r->finished = chex_alloc_zeroed(bytes, 1);
    enum chex_status st = r->finished ? CHEX_OK : chex_error_memory(err, "the unfinished results");
    if (st == CHEX_OK && g->rank == 0)
        st = chex_partial_scan(r->c->out, count, &index, err);
    for (size_t i = 0; st == CHEX_OK && i < index.count; i++)
        if (index.places[i].part >= 0)
            r->finished[i / 8] |= (uint8_t)(1u << (i % 8));
    r->parts = index.parts;
    *kept_out = index.done;
    chex_partial_index_release(&index);
    CHEX_TRY(chex_group_agree(g, st, err));
    CHEX_TRY(chex_group_broadcast(g, &r->parts, sizeof r->parts, 0, err));
    return chex_group_broadcast(g, r->finished, bytes, 0, err);
}

/* The images of this rank. */
static enum chex_status choose_images(struct run *r, struct chex_error *err) {
    const struct chex_image_list *l = r->c->list;
    const size_t size = (size_t)r->c->group->size, rank = (size_t)r->c->group->rank;
    if (!(r->order = chex_alloc_zeroed(l->count, sizeof *r->order)))
        return chex_error_memory(err, "the list of images");
    for (size_t i = 0, single = 0; i < l->count; i++) {
        if (is_finished(r, i))
            continue;
        const size_t turn =
            l->images[i].archive >= 0 ? (size_t)l->images[i].archive : single++ / BLOCK;
        if (turn % size == rank)
            r->order[r->count++] = i;
    }
    return CHEX_OK;
}

/* ---- set-up ---- */

static enum chex_status prepare(struct run *r, struct chex_error *err) {
    const struct chex_predict_config *c = r->c;
    const size_t batch = (size_t)r->batch, px = (size_t)r->px, features = (size_t)r->feature_count;
    CHEX_TRY(choose_images(r, err));
    r->images = chex_alloc_zeroed(batch, sizeof *r->images);
    r->pixels = chex_alloc_aligned(batch * px * px, sizeof *r->pixels);
    r->logits = chex_alloc_zeroed(batch * (size_t)r->classes, sizeof *r->logits);
    r->member_logits =
        chex_alloc_zeroed((size_t)c->ensemble->count * batch, (size_t)r->classes * sizeof(float));
    r->features = chex_alloc_zeroed(batch * features, sizeof *r->features);
    r->distances = chex_alloc_zeroed(batch, sizeof *r->distances);
    r->probabilities = chex_alloc_zeroed((size_t)c->ensemble->count, sizeof *r->probabilities);
    CHEX_ALLOCATED(r->images && r->pixels && r->logits && r->member_logits && r->features &&
                       r->distances && r->probabilities,
                   err, "a batch of %zu images", batch);
    if (r->feature_count)
        CHEX_TRY(chex_pool_create(c->threads, &r->pool, err));
    if (!r->count)
        return CHEX_OK;
    CHEX_TRY(chex_partial_create(c->out, r->parts + c->group->rank, &r->writer, err));
    if (!(r->thumb_dir = chex_fs_join(c->out, CHEX_PARTIAL_NAME "/thumbs")))
        return chex_error_memory(err, "the images");
    const struct chex_image_loader_config config = {.list = c->list,
                                                    .order = r->order,
                                                    .count = r->count,
                                                    .stored_px = c->stored_px,
                                                    .image_px = r->px,
                                                    .workers = c->workers,
                                                    .slots = BATCHES_IN_RING * batch +
                                                             (size_t)c->workers,
                                                    .pictures = c->pictures,
                                                    .thumbs = c->thumbs,
                                                    .thumb_dir = r->thumb_dir};
    return chex_image_loader_create(&config, &r->loader, err);
}

static void release(struct run *r) {
    chex_image_loader_destroy(r->loader);
    chex_pool_destroy(r->pool);
    free(r->thumb_dir);
    free(r->order);
    free(r->finished);
    free(r->images);
    free(r->pixels);
    free(r->logits);
    free(r->member_logits);
    free(r->features);
    free(r->distances);
    free(r->probabilities);
}

/* ---- one batch ---- */

/* A probability of image `i` of the batch. */
static double probability(const struct run *r, int i, int class_index) {
    return chex_eval_as_written(chex_eval_probability(
        (double)r->logits[(size_t)i * (size_t)r->classes + (size_t)class_index]));
}

/* How far the members are apart on image `i` of the batch. */
static double spread(const struct run *r, int i, int class_index) {
    const size_t stride = (size_t)r->batch * (size_t)r->classes;
    const float *logit = r->member_logits + (size_t)i * (size_t)r->classes + (size_t)class_index;
    for (size_t m = 0; m < (size_t)r->c->ensemble->count; m++)
        r->probabilities[m] =
            chex_eval_as_written(chex_eval_probability((double)logit[m * stride]));
    return chex_spread_of(r->probabilities, r->c->ensemble->count, 1).sd;
}

static unsigned flags_of(const struct run *r, int i, const struct chex_loaded_image *image) {
    const struct chex_deployment *d = r->c->deployment;
    unsigned flags = image->flags;
    if (d && d->views[CHEX_VIEW_LATERAL])
        flags &= ~(1u << CHEX_FLAG_LATERAL);
    if (!r->feature_count)
        return flags;
    switch (chex_features_judge(d->features, r->distances[i])) {
    case CHEX_DISTANCE_USUAL: break;
    case CHEX_DISTANCE_FAR: flags |= 1u << CHEX_FLAG_FAR; break;
    case CHEX_DISTANCE_VERY_FAR: flags |= 1u << CHEX_FLAG_VERY_FAR; break;
    }
    return flags;
}

static void put_cells(const struct run *r, int i, FILE *to) {
    const struct chex_deployment *d = r->c->deployment;
    for (int c = 0; c < r->classes; c++)
        fprintf(to, ",%.9g", probability(r, i, c));
    for (int c = 0; d && c < r->classes; c++)
        if (isnan(d->threshold[c]))
            putc(',', to);
        else
            fprintf(to, ",%d",
                    chex_calibrate(&d->calibration[c], probability(r, i, c)) >= d->threshold[c]);
    for (int c = 0; chex_deployment_recalibrates(d) && c < r->classes; c++)
        fprintf(to, ",%.9g", chex_calibrate(&d->calibration[c], probability(r, i, c)));
    for (int c = 0; r->c->ensemble->count > 1 && c < r->classes; c++)
        fprintf(to, ",%.6g", spread(r, i, c));
    if (r->feature_count)
        fprintf(to, ",%.6g", r->distances[i]);
}

/* Writes the line of an image. i: its place in the batch. */
static enum chex_status put_line(struct run *r, int i, const struct chex_loaded_image *image,
                                 struct chex_error *err) {
    const char *id = r->c->list->images[image->index].id;
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    CHEX_ALLOCATED(to, err, "the predictions");
    fputs(image->reason ? "r\t" : "p\t", to);
    chex_text_put_cell(to, id);
    putc('\t', to);
    if (image->reason) {
        chex_text_put_cell(to, image->reason);
    } else {
        chex_text_put_cell(to, image->about.study_uid);
        putc('\t', to);
        chex_text_put_cell(to, image->about.series_uid);
        putc('\t', to);
        put_cells(r, i, to);
        putc('\t', to);
        chex_image_flags_put(to, flags_of(r, i, image));
    }
    return fclose(to) == 0 ? chex_partial_put(r->writer, image->index, text, err)
                           : chex_error_memory(err, "the predictions");
}

/* Takes the next images. *n_out: usable images, whose pixels are in the batch. */
static enum chex_status collect(struct run *r, size_t count, int *n_out, struct chex_error *err) {
    const size_t area = (size_t)r->px * (size_t)r->px;
    *n_out = 0;
    for (size_t i = 0; i < count; i++) {
        CHEX_TRY(chex_image_loader_next(r->loader, &r->images[i], err));
        if (!r->images[i]->reason)
            memcpy(r->pixels + area * (size_t)(*n_out)++, r->images[i]->pixels,
                   area * sizeof *r->pixels);
    }
    return CHEX_OK;
}

static enum chex_status infer(struct run *r, int n, struct chex_error *err) {
    const struct chex_batch batch = {.n = n, .pixels = r->pixels};
    CHEX_TRY(chex_ensemble_begin(r->c->ensemble, &batch, r->member_logits, err));
    CHEX_TRY(chex_ensemble_end(r->c->ensemble, err));
    chex_ensemble_combine(r->c->ensemble, r->member_logits, n, r->logits);
    if (!r->feature_count)
        return CHEX_OK;
    CHEX_TRY(chex_engine_features(r->c->engine, n, r->features, err));
    return chex_features_distances(r->c->deployment->features, r->features, (size_t)n, r->pool,
                                   r->distances, err);
}

static enum chex_status put_image(struct run *r, int i, const struct chex_loaded_image *image,
                                  struct chex_error *err) {
    const float *logits = r->logits + (size_t)i * (size_t)r->classes;
    for (int c = 0; c < r->classes; c++)
        CHEX_TRY(chex_eval_check_logit((double)logits[c], r->c->list->images[image->index].id,
                                       r->c->class_names[c], err));
    if (image->index < r->c->pictures)
        CHEX_TRY(chex_predict_draw(r->c, image->index, &image->picture, i, logits, err));
    return put_line(r, i, image, err);
}

static enum chex_status run_batch(struct run *r, size_t count, struct chex_error *err) {
    int n = 0, at = 0;
    CHEX_TRY(collect(r, count, &n, err));
    if (n)
        CHEX_TRY(infer(r, n, err));
    for (size_t i = 0; i < count; i++) {
        const struct chex_loaded_image *image = r->images[i];
        r->bad += image->reason != NULL;
        if (r->bad > r->c->max_bad)
            return chex_error_set(err, CHEX_E_DATA,
                                  "more than %zu images cannot be used (--max-bad), such as %s",
                                  r->c->max_bad, image->reason);
        CHEX_TRY(image->reason ? put_line(r, 0, image, err) : put_image(r, at++, image, err));
    }
    chex_image_loader_release(r->loader, count);
    return chex_partial_flush(r->writer, err);
}

/* The number of rounds of the rank with the most images. Collective. */
static enum chex_status count_rounds(const struct run *r, size_t *rounds_out,
                                     struct chex_error *err) {
    struct chex_group *g = r->c->group;
    const uint64_t images = (uint64_t)BATCHES_IN_ROUND * (uint64_t)r->batch;
    const uint64_t mine = (r->count + images - 1) / images;
    CHEX_TRY(chex_group_exchange(g, "rounds", &mine, sizeof mine, err));
    const uint64_t *all = g->all;
    *rounds_out = 0;
    for (int i = 0; i < g->size; i++)
        *rounds_out = all[i] > *rounds_out ? (size_t)all[i] : *rounds_out;
    return CHEX_OK;
}

/* Runs the next batches of this rank, from image *done on. There may be none left. */
static enum chex_status run_round(struct run *r, struct chex_progress *bar, size_t *done,
                                  struct chex_error *err) {
    for (int i = 0; i < BATCHES_IN_ROUND && *done < r->count; i++) {
        const size_t left = r->count - *done;
        const size_t count = left < (size_t)r->batch ? left : (size_t)r->batch;
        CHEX_TRY(run_batch(r, count, err));
        *done += count;
        chex_progress_set(bar, *done, NULL);
    }
    return CHEX_OK;
}

/* All ranks agree after each round, so a failure of one rank ends the work of all. Collective. */
static enum chex_status run_images(struct run *r, struct chex_error *err) {
    struct chex_group *g = r->c->group;
    struct chex_progress *bar =
        chex_progress_create(g->size > 1 ? "predicting rank 0's part" : "predicting", "img",
                             r->count, r->c->progress && g->rank == 0 && r->count);
    size_t rounds = 0, done = 0;
    enum chex_status st = count_rounds(r, &rounds, err);
    for (size_t round = 0; st == CHEX_OK && round < rounds; round++)
        st = chex_group_agree(g, run_round(r, bar, &done, err), err);
    chex_progress_destroy(bar, st == CHEX_OK);
    return chex_partial_close(r->writer, st, err);
}

enum chex_status chex_predict_images(const struct chex_predict_config *config,
                                     struct chex_predict_result *result_out,
                                     struct chex_error *err) {
    const struct chex_deployment *d = config->deployment;
    const double start = chex_clock_s();
    struct run r = {.c = config,
                    .batch = config->engine->config.batch,
                    .classes = config->engine->config.net->classes,
                    .px = config->engine->config.image_size,
                    .feature_count = d && d->features ? d->features->count : 0};
    *result_out = (struct chex_predict_result){0};
    enum chex_status st = share_finished(&r, &result_out->kept, err);
    if (st == CHEX_OK)
        st = chex_group_agree(config->group, prepare(&r, err), err);
    if (st == CHEX_OK)
        st = chex_group_agree(config->group, run_images(&r, err), err);
    else
        chex_partial_close(r.writer, st, err);
    release(&r);
    result_out->seconds = chex_clock_s() - start;
    return st;
}
