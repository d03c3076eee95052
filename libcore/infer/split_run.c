/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a split through an engine, over all ranks.
 *
 * Each rank reads its rows through an input pipeline and averages the probabilities of the views in
 * fp64. Two views are in flight: the engine may upload the second while it computes the first. A
 * rank packs one record per row: loss, scores, labels, facts, image id, patient id, study. Rank 0
 * gathers the records in order of rows and sums the loss in that order, so the result does not
 * depend on the number of ranks.
 */
#include "infer/split_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/progress.h"
#include "input/augment.h"

const char *const chex_tta_names[] = {"none", "flip", "tencrop", NULL};

enum { LOSSES = 2 }; /* of a row: those of struct chex_eval_loss */
enum { SLOTS = 4 };  /* two batches in flight, two for the workers */

/* A view that the engine has begun. */
struct flight {
    struct chex_ready ready; /* its batch */
    bool last;               /* of its batch: the records follow, and the pipeline's slot is free */
    double *sums;
    float *logits;
};

/* The state of one rank. */
struct run {
    struct chex_engine *engine; /* the first one */
    struct chex_ensemble ensemble;
    const struct chex_set *set;
    const struct chex_eval_config *config;
    bool raw; /* the engine cuts the views from stored images */
    int source_px, image_px, classes;
    struct chex_crop views[CHEX_AUGMENT_TEN_CROP];
    int view_count;
    struct chex_crop *view; /* (batch) the current view, repeated for every image; only if raw */
    float *crops;           /* NULL: nothing is cut here */
    int members;            /* of an ensemble; 0: one network */
    float *logits[CHEX_INFER_BATCHES]; /* (networks, batch, classes) */
    float *combined;                   /* (batch, classes): of the ensemble */
    /* (batch, width): the losses of the row; then (1 + members, classes) mean probabilities over
     * the views, of the ensemble and of each member. Batches take them in turn. */
    double *sums[CHEX_INFER_BATCHES];
    size_t width;
    size_t batches, begun, ended; /* batches begun; views begun and ended */
    struct flight flights[CHEX_INFER_BATCHES];
    struct chex_pipeline *pipeline;
    size_t rows, rows_begun; /* of this rank */
    size_t rows_done;
    FILE *records; /* packed, into `out` */
    char *out;
    size_t out_bytes;
};

void chex_eval_rows(size_t rows, int rank, int size, size_t *from_out, size_t *to_out) {
    *from_out = rows * (size_t)rank / (size_t)size;
    *to_out = rows * ((size_t)rank + 1) / (size_t)size;
}

enum chex_status chex_eval_check_size(const struct chex_set *set, int image_size, enum chex_tta tta,
                                      struct chex_error *err) {
    if (image_size > set->size)
        return chex_error_set(
            err, CHEX_E_DATA,
            "%s: images are stored at %d px, and the image size is %d: create the "
            "shards again with --size %d",
            set->dir, set->size, image_size, image_size);
    if (tta == CHEX_TTA_TENCROP && image_size == set->size)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--tta tencrop: images are stored at %d px, no larger than the crops; "
            "use --tta flip",
            set->size);
    return CHEX_OK;
}

/* Chooses what the pipeline delivers and the views to cut from it.
 * - raw: stored images; the engine cuts the views.
 * - tencrop: whole images; view_pixels() cuts the views.
 * - otherwise: the centre crop, which is the view or is mirrored.
 * The pixels of a view are bit-identical in all three cases. */
static void choose_views(struct run *r) {
    const enum chex_tta tta = r->config->tta;
    r->source_px = tta == CHEX_TTA_TENCROP || r->raw ? r->set->size : r->image_px;
    r->view_count = tta == CHEX_TTA_TENCROP ? CHEX_AUGMENT_TEN_CROP : tta == CHEX_TTA_FLIP ? 2 : 1;
    chex_augment_ten_crop(r->source_px, r->image_px, r->views);
}

static enum chex_status prepare(struct run *r, struct chex_error *err) {
    const size_t batch = (size_t)r->engine->config.batch, px = (size_t)r->image_px;
    const bool cut = !r->raw && !r->config->features.count;
    r->crops = cut ? chex_alloc_aligned(batch * px * px, sizeof *r->crops) : NULL;
    r->view = chex_alloc_zeroed(batch, sizeof *r->view);
    r->combined = chex_alloc_zeroed(batch * (size_t)r->classes, sizeof *r->combined);
    r->records = open_memstream(&r->out, &r->out_bytes);
    bool all = (r->crops || !cut) && r->view && r->combined && r->records;
    for (int i = 0; i < CHEX_INFER_BATCHES; i++) {
        r->logits[i] = chex_alloc_zeroed((size_t)r->ensemble.count * batch * (size_t)r->classes,
                                         sizeof *r->logits[i]);
        r->sums[i] = chex_alloc_zeroed(batch * r->width, sizeof *r->sums[i]);
        all = all && r->logits[i] && r->sums[i];
    }
    CHEX_ALLOCATED(all, err, "a batch of %zu images", batch);
    return CHEX_OK;
}

static void run_release(struct run *r) {
    free(r->crops);
    free(r->view);
    free(r->combined);
    for (int i = 0; i < CHEX_INFER_BATCHES; i++) {
        free(r->logits[i]);
        free(r->sums[i]);
    }
    free(r->out);
}

/* The pixels of one view of the batch. If nothing is cut or mirrored, the batch itself. */
static const float *view_pixels(struct run *r, const struct chex_batch *b,
                                const struct chex_crop *v) {
    const size_t from = (size_t)r->source_px, px = (size_t)r->image_px;
    if (!v->flip && from == px)
        return b->pixels;
    for (size_t i = 0; i < (size_t)b->n; i++)
        for (size_t y = 0; y < px; y++) {
            const float *in = b->pixels + (i * from + y + (size_t)v->top) * from + (size_t)v->left;
            float *to = r->crops + (i * px + y) * px;
            if (!v->flip)
                memcpy(to, in, px * sizeof *to);
            else
                for (size_t x = 0; x < px; x++)
                    to[x] = in[px - 1 - x];
        }
    return r->crops;
}

static struct chex_batch view_of(struct run *r, const struct chex_batch *b, int v) {
    struct chex_batch out = {.n = b->n, .features = b->features};
    if (out.features)
        return out;
    if (!r->raw) {
        out.pixels = view_pixels(r, b, &r->views[v]);
        return out;
    }
    out = *b;
    out.labels = NULL;
    out.crops = r->view;
    for (int i = 0; i < b->n; i++)
        r->view[i] = r->views[v];
    return out;
}

/* The label of a class of the network; labels are those of the set. */
static int8_t label_of(const struct run *r, const int8_t *labels, size_t c) {
    if (!r->config->set_class)
        return labels[c];
    const int at = r->config->set_class[c];
    return at < 0 ? CHEX_LABEL_NOT_STATED : labels[at];
}

static const char *class_name(const struct run *r, size_t c) {
    return r->config->class_names ? r->config->class_names[c] : r->set->class_names[c];
}

double chex_eval_as_written(double probability) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", (double)(float)probability);
    return strtod(digits, NULL);
}

double chex_eval_probability(double z) {
    double e = exp(-fabs(z)); /* never overflows */
    return z < 0 ? e / (1 + e) : 1 / (1 + e);
}

enum chex_status chex_eval_check_logit(double z, const char *image, const char *class_name,
                                       struct chex_error *err) {
    if (isfinite(z))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DIVERGED,
                          "image %s, finding %s: the logit is %g, expected a finite number", image,
                          class_name, isnan(z) ? (double)NAN : z);
}

static double cross_entropy(double z, int y) {
    return fmax(z, 0) - (y == 1 ? z : 0) + log1p(exp(-fabs(z)));
}

/* Adds the probabilities of the members in a view of image `i` of the batch. */
static void add_members(const struct run *r, const struct flight *f, size_t i) {
    const size_t classes = (size_t)r->classes, batch = (size_t)r->engine->config.batch;
    double *sum = f->sums + i * r->width + LOSSES + classes;
    for (size_t k = 0; k < (size_t)r->members * classes; k++) {
        const float z = f->logits[(k / classes * batch + i) * classes + k % classes];
        sum[k] += chex_eval_probability((double)z) / r->view_count;
    }
}

static enum chex_status add_logits(struct run *r, const struct flight *f, struct chex_error *err) {
    const size_t classes = (size_t)r->classes;
    const struct chex_ready *ready = &f->ready;
    chex_ensemble_combine(&r->ensemble, f->logits, ready->batch.n, r->combined);
    for (size_t i = 0; i < (size_t)ready->batch.n; i++) {
        add_members(r, f, i);
        for (size_t c = 0; c < classes; c++) {
            const double z = (double)r->combined[i * classes + c];
            const int y = label_of(r, ready->batch.labels + i * (size_t)r->set->classes, c);
            if (!isfinite(z)) {
                size_t at;
                const struct chex_shard *s = chex_set_locate(r->set, ready->rows[i], &at);
                return chex_eval_check_logit(z, chex_shard_image_id(s, at), class_name(r, c), err);
            }
            double *sum = f->sums + i * r->width;
            sum[LOSSES + c] += r->config->logits ? z : chex_eval_probability(z) / r->view_count;
            const double plain = y >= 0 ? cross_entropy(z, y) : 0;
            const double training =
                r->config->loss ? chex_loss_value(r->config->loss, (int)c, y, z) : plain;
            sum[0] += plain / (double)classes / r->view_count;
            sum[1] += training / (double)classes / r->view_count;
        }
    }
    return CHEX_OK;
}

/* The facts of a row as they travel to rank 0, without their strings. */
static struct chex_row_facts facts_of(const struct run *r, const struct chex_shard *s, size_t row,
                                      uint64_t pixel_sum) {
    const double side = r->set->size;
    /* Rounded to fp32, as the scores are. Unknown if no pixel was read. */
    const float brightness = (float)((double)pixel_sum / (255 * side * side));
    return (struct chex_row_facts){.brightness =
                                       r->config->features.count ? NAN : (double)brightness,
                                   .view = chex_shard_view(s, row),
                                   .age_years = chex_shard_age_years(s, row),
                                   .sex = chex_shard_sex(s, row),
                                   .width_px = chex_shard_original_width(s, row),
                                   .height_px = chex_shard_original_height(s, row)};
}

/* Lack of memory shows when the stream is closed. */
static void put_records(struct run *r, const struct flight *f) {
    const struct chex_ready *ready = &f->ready;
    for (size_t i = 0; i < (size_t)ready->batch.n; i++) {
        const double *sum = f->sums + i * r->width;
        size_t at;
        const struct chex_shard *s = chex_set_locate(r->set, ready->rows[i], &at);
        const char *image = chex_shard_image_id(s, at), *patient = chex_shard_patient_id(s, at);
        fwrite(sum, sizeof *sum, LOSSES, r->records);
        for (size_t k = LOSSES; k < r->width; k++) {
            const double score = r->config->logits ? sum[k] : chex_eval_as_written(sum[k]);
            fwrite(&score, sizeof score, 1, r->records);
        }
        for (size_t c = 0; c < (size_t)r->classes; c++)
            putc(label_of(r, chex_set_labels(r->set, ready->rows[i]), c), r->records);
        const struct chex_row_facts facts = facts_of(r, s, at, ready->pixel_sums[i]);
        fwrite(&facts, sizeof facts, 1, r->records);
        fwrite(image, strlen(image) + 1, 1, r->records);
        fwrite(patient, strlen(patient) + 1, 1, r->records);
        const char *study = chex_shard_study_id(s, at);
        fwrite(study ? study : "", study ? strlen(study) + 1 : 1, 1, r->records);
    }
}

/* Waits for the oldest view and adds it; after the last view of a batch packs its records. */
static enum chex_status end_view(struct run *r, struct chex_error *err) {
    struct flight *f = &r->flights[r->ended++ % CHEX_INFER_BATCHES];
    enum chex_status st = chex_ensemble_end(&r->ensemble, err);
    if (st == CHEX_OK)
        st = add_logits(r, f, err);
    if (st == CHEX_OK && f->last)
        put_records(r, f);
    if (f->last) {
        r->rows_done += (size_t)f->ready.batch.n;
        chex_pipeline_release(r->pipeline, &f->ready);
    }
    return st;
}

static enum chex_status begin_view(struct run *r, const struct chex_ready *ready, double *sums,
                                   int v, struct chex_error *err) {
    const struct chex_batch b = view_of(r, &ready->batch, v);
    struct flight *f = &r->flights[r->begun % CHEX_INFER_BATCHES];
    *f = (struct flight){*ready, v + 1 == r->view_count, sums,
                         r->logits[r->begun % CHEX_INFER_BATCHES]};
    CHEX_TRY(chex_ensemble_begin(&r->ensemble, &b, f->logits, err));
    r->begun++;
    return CHEX_OK;
}

/* Begins each view of a batch, and ends the view before it. So one view is left in flight. */
static enum chex_status run_batch(struct run *r, const struct chex_ready *ready,
                                  struct chex_error *err) {
    double *sums = r->sums[r->batches++ % CHEX_INFER_BATCHES];
    memset(sums, 0, (size_t)ready->batch.n * r->width * sizeof *sums);
    for (int v = 0; v < r->view_count; v++) {
        CHEX_TRY(begin_view(r, ready, sums, v, err));
        if (r->begun - r->ended == CHEX_INFER_BATCHES)
            CHEX_TRY(end_view(r, err));
    }
    return CHEX_OK;
}

/* Decides whether the engines take stored images. Training has already set this up in the engine;
 * for evaluation alone it is set up here. */
static enum chex_status choose_raw(struct run *r, struct chex_error *err) {
    const struct chex_resident_request request = {.stored_px = r->set->size};
    struct chex_resident_result result;
    r->raw = true;
    for (int m = 0; m < r->ensemble.count; m++) {
        struct chex_engine *engine = r->ensemble.engine[m];
        if (!engine->raw_px)
            CHEX_TRY(chex_engine_make_resident(engine, &request, &result, err));
        r->raw = r->raw && engine->raw_px >= r->set->size;
    }
    return CHEX_OK;
}

static enum chex_status open_rows(struct run *r, size_t from, size_t to, struct chex_error *err) {
    CHEX_TRY(choose_raw(r, err));
    choose_views(r);
    const struct chex_pipeline_config config = {.set = r->set,
                                                .image_size = r->raw ? r->image_px : r->source_px,
                                                .raw = r->raw,
                                                .features = r->config->features,
                                                .batch = r->engine->config.batch,
                                                .workers = r->config->workers,
                                                .slots = SLOTS,
                                                .row_from = from,
                                                .row_to = to};
    CHEX_TRY(prepare(r, err));
    return chex_pipeline_create(&config, &r->pipeline, err);
}

/* Begins the next batch. After the last one nothing is left in flight. */
static enum chex_status next_batch(struct run *r, struct chex_error *err) {
    struct chex_ready ready;
    CHEX_TRY(chex_pipeline_next(r->pipeline, &ready, err));
    if (ready.batch.n == 0)
        return chex_error_set(err, CHEX_E_FAIL, "the pipeline ended after %zu of %zu rows",
                              r->rows_begun, r->rows);
    r->rows_begun += (size_t)ready.batch.n;
    CHEX_TRY(run_batch(r, &ready, err));
    while (r->rows_begun == r->rows && r->begun > r->ended)
        CHEX_TRY(end_view(r, err));
    return CHEX_OK;
}

/* After a failure: the engine has nothing in flight that writes to memory of this run. */
static void abandon(struct run *r) {
    struct chex_error ignored;
    for (; r->begun > r->ended; r->ended++)
        chex_ensemble_end(&r->ensemble, &ignored);
}

static void report_progress(const struct run *r, bool waits) {
    if (r->config->advanced)
        r->config->advanced(r->config->advanced_arg, waits);
}

/* All ranks agree on the outcome of a batch: continue, stop or fail. Collective. */
static enum chex_status agree_on_batch(const struct run *r, struct chex_coll *coll,
                                       enum chex_status st, struct chex_error *err) {
    if (st == CHEX_OK && *r->config->stop)
        st = chex_error_set(err, CHEX_E_PREEMPTED, "asked to stop while evaluating");
    report_progress(r, true);
    return chex_group_agree(coll->group, st, err);
}

/* The number of batches of the rank with the most rows. All ranks agree this many times. */
static size_t rounds_of(const struct run *r, const struct chex_coll *coll) {
    const size_t ranks = (size_t)coll->size, batch = (size_t)r->engine->config.batch;
    return ((r->set->rows + ranks - 1) / ranks + batch - 1) / batch;
}

static enum chex_status run_rows(struct run *r, struct chex_coll *coll, size_t from, size_t to,
                                 struct chex_error *err) {
    const bool together = r->config->stop != NULL;
    const size_t rows = r->rows = to - from, rounds = rounds_of(r, coll);
    struct chex_progress *bar = NULL;
    const int classes = r->set->classes;
    enum chex_status st = chex_eval_check_size(r->set, r->image_px, r->config->tta, err);
    if (st == CHEX_OK && !r->config->set_class && classes != r->classes)
        st = chex_error_set(err, CHEX_E_DATA, "%s: %d findings, the network has %d", r->set->dir,
                            classes, r->classes);
    if (st == CHEX_OK && rows) /* there may be more ranks than rows */
        st = open_rows(r, from, to, err);
    if (st == CHEX_OK && rows)
        bar = chex_progress_create(coll->size > 1 ? "evaluating rank 0's part" : "evaluating",
                                   "img", rows, r->config->progress && coll->rank == 0);
    for (size_t round = 0; together ? round < rounds : st == CHEX_OK && r->rows_begun < rows;
         round++) {
        if (together)
            report_progress(r, false);
        if (st == CHEX_OK && r->rows_begun < rows)
            st = next_batch(r, err);
        chex_progress_set(bar, r->rows_done, NULL);
        if (together && (st = agree_on_batch(r, coll, st, err)) != CHEX_OK)
            break;
    }
    abandon(r);
    chex_progress_destroy(bar, st == CHEX_OK);
    chex_pipeline_destroy(r->pipeline);
    return st;
}

static enum chex_status bad_records(const struct run *r, size_t bytes, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_FAIL,
                          "the ranks' predictions are %zu bytes that do not hold %zu images", bytes,
                          r->set->rows);
}

/* Unpacks the records of all ranks, in order of rows, and sums the loss in that order. The caller
 * destroys *out, after an error too. */
static enum chex_status unpack(const struct run *r, const char *all, size_t bytes,
                               struct chex_predictions **out, struct chex_eval_loss *loss_out,
                               struct chex_error *err) {
    const size_t classes = (size_t)r->classes, rows = r->set->rows;
    const size_t numbers = r->width * sizeof(double) + classes;
    const size_t fixed = numbers + sizeof(struct chex_row_facts);
    const char *at = all, *end = all + bytes;
    double sum[LOSSES] = {0}, one[LOSSES];
    CHEX_TRY(chex_predictions_create(
        rows, r->classes,
        r->config->class_names ? r->config->class_names : chex_set_class_names(r->set), out, err));
    struct chex_predictions *p = *out;
    CHEX_TRY(chex_predictions_add_facts(p, err));
    p->members = r->members;
    p->member_score = chex_alloc_zeroed(rows * classes, (size_t)r->members * sizeof(double));
    CHEX_ALLOCATED(p->member_score, err, "the predictions");
    for (size_t i = 0; i < rows; i++) {
        if ((size_t)(end - at) < fixed + 3)
            return bad_records(r, bytes, err);
        memcpy(one, at, sizeof one);
        memcpy(p->score + i * classes, at + sizeof one, classes * sizeof(double));
        for (size_t m = 0; m < (size_t)r->members; m++)
            memcpy(p->member_score + (m * rows + i) * classes,
                   at + sizeof one + (1 + m) * classes * sizeof(double), classes * sizeof(double));
        memcpy(p->label + i * classes, at + numbers - classes, classes);
        memcpy(&p->facts[i], at + numbers, sizeof p->facts[i]);
        at += fixed;
        for (int k = 0; k < LOSSES; k++)
            sum[k] += one[k];
        char **const ids[] = {&p->image_id[i], &p->patient_id[i], &p->facts[i].study_id};
        for (int k = 0; k < 3; k++) {
            size_t n = strnlen(at, (size_t)(end - at));
            if (n == (size_t)(end - at))
                return bad_records(r, bytes, err);
            if ((n || k < 2) && !(*ids[k] = strdup(at))) /* no study: NULL */
                return chex_error_memory(err, "the predictions");
            at += n + 1;
        }
    }
    if (at != end)
        return bad_records(r, bytes, err);
    *loss_out = (struct chex_eval_loss){sum[0] / (double)rows, sum[1] / (double)rows};
    return CHEX_OK;
}

enum chex_status chex_eval_run(struct chex_engine *engine, const struct chex_set *set,
                               struct chex_coll *coll, const struct chex_eval_config *config,
                               struct chex_predictions **predictions_out,
                               struct chex_eval_loss *loss_out, struct chex_error *err) {
    struct run r = {.engine = engine,
                    .set = set,
                    .config = config,
                    .image_px = engine->config.image_size,
                    .classes = engine->config.net->classes};
    r.ensemble = config->ensemble ? *config->ensemble : (struct chex_ensemble){&r.engine, 1, 0};
    r.members = r.ensemble.count > 1 ? r.ensemble.count : 0;
    r.width = LOSSES + (size_t)(1 + r.members) * (size_t)r.classes;
    CHEX_AUTO_PREDICTIONS struct chex_predictions *predictions = NULL;
    CHEX_AUTO_FREE void *all = NULL;
    size_t from, to, bytes = 0;
    struct chex_eval_loss loss = {NAN, NAN};
    chex_eval_rows(set->rows, coll->rank, coll->size, &from, &to);
    enum chex_status st = run_rows(&r, coll, from, to, err);
    if (r.records && fclose(r.records) != 0 && st == CHEX_OK)
        st = chex_error_memory(err, "the predictions");
    st = chex_group_agree(coll->group, st, err);
    if (st == CHEX_OK)
        st = chex_group_gather(coll->group, r.out, r.out_bytes, &all, &bytes, err);
    if (st == CHEX_OK && coll->rank == 0)
        st = unpack(&r, all, bytes, &predictions, &loss, err);
    /* Only rank 0 unpacks. If that fails, all ranks must return its error. */
    st = chex_group_follow(coll->group, 0, st, err);
    if (st == CHEX_OK)
        st = chex_group_broadcast(coll->group, &loss, sizeof loss, 0, err);
    run_release(&r);
    CHEX_TRY(st);
    *predictions_out = predictions;
    predictions = NULL;
    *loss_out = loss;
    return CHEX_OK;
}
