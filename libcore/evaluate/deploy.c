/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval deploy: fixes what a network needs to decide on new images. It predicts the validation
 * split, chooses a threshold for each class, fits a recalibration, and writes one safetensors file
 * with the parameters and all of that (doc/deployment.md).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "evaluate/ensemble_files.h"
#include "evaluate/evaluate.h"
#include "evaluate/output.h"
#include "evaluate/subcommands.h"
#include "infer/features.h"
#include "infer/split_run.h"
#include "report/figures_text.h"
#include "shard/shard.h"

/* ---- what is decided ---- */

/* Results of the validation split. Only on rank 0. */
struct decided {
    struct chex_pool *pool;
    struct chex_scores *scores;
    struct chex_figures *figures;
    struct chex_deployment *deployment;
};

static void release(struct decided *d) {
    chex_deployment_destroy(d->deployment);
    chex_figures_destroy(d->figures);
    chex_scores_destroy(d->scores);
    chex_pool_destroy(d->pool);
}

static void warn_unfitted(const struct chex_deployment *d, const bool *fitted) {
    for (int c = 0; c < d->classes; c++)
        if (!fitted[c])
            chex_warn(
                "finding %s is not recalibrated: its labels do not rise with its probability, "
                "or all are equal",
                d->class_names[c]);
}

static enum chex_status recalibrate(const struct chex_eval_settings *s, struct decided *d,
                                    struct chex_error *err) {
    CHEX_AUTO_FREE bool *fitted = chex_alloc_zeroed((size_t)d->deployment->classes, sizeof *fitted);
    CHEX_ALLOCATED(fitted, err, "the recalibration");
    enum chex_status st = chex_recalibrate(
        (const struct chex_ranking *const *)d->scores->rankings, d->deployment->classes,
        (enum chex_recalibration)s->recalibrate, d->deployment->calibration, fitted, err);
    if (st == CHEX_OK)
        warn_unfitted(d->deployment, fitted);
    for (int c = 0;
         st == CHEX_OK && s->recalibrate == CHEX_RECALIBRATE_PLATT && c < d->deployment->classes;
         c++)
        if (fitted[c] && d->scores->per_class[c].positives < CHEX_CALIBRATION_MIN_CLUSTERS)
            chex_warn(
                "finding %s is recalibrated on %zu positive image%s: its probabilities may be "
                "worse than before",
                d->deployment->class_names[c], d->scores->per_class[c].positives,
                chex_text_s(d->scores->per_class[c].positives));
    return st;
}

static void warn_undecided(const struct decided *d, const char *rule, const char *split) {
    for (int c = 0; c < d->deployment->classes; c++) {
        const struct chex_class_score *k = &d->scores->per_class[c];
        if (!isnan(d->deployment->threshold[c]))
            continue;
        if (k->positives && k->negatives)
            chex_warn("finding %s gets no threshold: no score reaches %s", k->name, rule);
        else
            chex_warn("finding %s gets no threshold: no %s image in split %s", k->name,
                      k->positives ? "negative" : "positive", split);
    }
}

/* The threshold of a class, on the calibrated probability. */
static double threshold_of(const struct decided *d, const struct chex_threshold_rule *rule, int c) {
    const double score = chex_threshold_choose(d->scores->rankings[c], rule);
    return isnan(score) ? NAN : chex_calibrate(&d->deployment->calibration[c], score);
}

static enum chex_status choose(const struct chex_eval_split *e, struct decided *d,
                               struct chex_error *err) {
    const struct chex_eval_settings *s = e->s;
    struct chex_figures_config config = {.source = CHEX_THRESHOLD_CHOSEN, .probabilities = true};
    char rule[CHEX_THRESHOLD_TEXT_BYTES];
    CHEX_TRY(chex_threshold_parse(s->threshold, &config.rule, err));
    chex_threshold_text(&config.rule, rule);
    CHEX_TRY(chex_pool_create(e->threads, &d->pool, err));
    const struct chex_scores_config by = {
        .replicates = 1, .cluster = (enum chex_cluster)s->cluster, .pool = d->pool};
    CHEX_TRY(chex_scores_create(e->table, &by, &d->scores, err));
    CHEX_TRY(chex_deployment_create(e->table->classes, e->table->class_names, &d->deployment, err));
    d->deployment->rule = strdup(rule);
    d->deployment->recalibration = strdup(chex_recalibration_names[s->recalibrate]);
    CHEX_ALLOCATED(d->deployment->rule && d->deployment->recalibration, err, "the thresholds");
    CHEX_TRY(recalibrate(s, d, err));
    config.rule_text = d->deployment->rule;
    config.recalibration = d->deployment->recalibration;
    config.calibration = s->recalibrate ? d->deployment->calibration : NULL;
    for (int c = 0; c < d->deployment->classes; c++)
        d->deployment->threshold[c] = threshold_of(d, &config.rule, c);
    config.threshold = d->deployment->threshold;
    CHEX_TRY(chex_figures_create(d->scores, &config, &d->figures, err));
    warn_undecided(d, rule, chex_split_names[e->split]);
    if (e->split == CHEX_TEST)
        chex_warn("thresholds are chosen on the test split: decisions on these images look better "
                  "than on new ones; --split val keeps the test images for the evaluation");
    return CHEX_OK;
}

/* ---- the training images ---- */

/* The split that the network was trained on, as far as its file says so. */
static enum chex_split training_split(const struct chex_eval_split *e) {
    const char *name = e->network->about.split;
    for (int k = 0; name && k < CHEX_SPLIT_COUNT; k++)
        if (strcmp(name, chex_split_names[k]) == 0)
            return (enum chex_split)k;
    return CHEX_TRAIN;
}

/* Counts the views of the training images. */
static enum chex_status count_views(const struct chex_eval_split *e, enum chex_split split,
                                    struct chex_deployment *d, struct chex_error *err) {
    struct chex_set *set = NULL;
    size_t row;
    CHEX_TRY(chex_set_open(e->s->data, split, 0, SIZE_MAX, &set, err));
    for (size_t i = 0; i < set->rows; i++) {
        const struct chex_shard *shard = chex_set_locate(set, i, &row);
        d->views[chex_shard_view(shard, row)]++;
    }
    chex_set_close(set);
    return CHEX_OK;
}

/* Pooled features, on rank 0. */
struct vectors {
    float *of_training, *of_split;
    size_t training, split;
};

/* Collective. */
static enum chex_status infer_features(const struct chex_eval_split *e, enum chex_split split,
                                       struct vectors *v, struct chex_error *err) {
    const size_t limit = (size_t)e->s->distribution_images;
    struct chex_group *group = e->coll->group;
    struct chex_set *set = NULL;
    size_t rows, from, to;
    enum chex_status st = chex_set_rows(e->s->data, split, &rows, err);
    if (st == CHEX_OK) {
        chex_eval_rows(rows, e->coll->rank, e->coll->size, &from, &to);
        st = chex_set_open(e->s->data, split, from, to, &set, err);
    }
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK)
        st = chex_features_of_split(e->engine, set, group, limit, &v->of_training, &v->training,
                                    err);
    if (st == CHEX_OK)
        st = chex_features_of_split(e->engine, e->set, group, limit, &v->of_split, &v->split, err);
    chex_set_close(set);
    return st;
}

/* Fits the statistics of unusual images, on rank 0. */
static enum chex_status fit_features(const struct chex_eval_split *e, const struct vectors *v,
                                     struct decided *d, struct chex_error *err) {
    const int count = chex_features_count(e->engine->config.net);
    struct chex_features **features = &d->deployment->features;
    CHEX_TRY(chex_features_fit(v->of_training, v->training, count, d->pool, features, err));
    return chex_features_validate(*features, v->of_split, v->split, d->pool, err);
}

/* Describes the training images: views, and statistics of features. Collective. */
static enum chex_status describe_training(const struct chex_eval_split *e, struct decided *d,
                                          struct chex_error *err) {
    const enum chex_split split = training_split(e);
    const bool first = e->coll->rank == 0;
    struct vectors v = {0};
    size_t rows;
    CHEX_TRY(chex_group_agree(e->coll->group, chex_set_rows(e->s->data, split, &rows, err), err));
    if (!rows) {
        if (first)
            chex_warn("%s has no split %s: the file will know neither views nor features of the "
                      "training images",
                      e->s->data, chex_split_names[split]);
        return CHEX_OK;
    }
    enum chex_status st = first ? count_views(e, split, d->deployment, err) : CHEX_OK;
    st = chex_group_follow(e->coll->group, 0, st, err);
    if (st != CHEX_OK || !e->s->distribution_images)
        return st;
    st = infer_features(e, split, &v, err);
    if (st == CHEX_OK)
        st = chex_group_follow(e->coll->group, 0, first ? fit_features(e, &v, d, err) : CHEX_OK,
                               err);
    free(v.of_training);
    free(v.of_split);
    return st;
}

/* ---- the file ---- */

static json_t *counts_of(const struct decided *d, bool positives) {
    json_t *o = json_object();
    for (int c = 0; c < d->deployment->classes; c++) {
        const struct chex_class_score *k = &d->scores->per_class[c];
        json_object_set_new(o, k->name,
                            json_integer((json_int_t)(positives ? k->positives : k->negatives)));
    }
    return o;
}

static json_t *provenance_of(const struct chex_eval_split *e, const struct decided *d) {
    json_t *o = chex_result(
        CHEX_FIELD("images", e->table->rows), CHEX_FIELD("patients", d->scores->patients),
        CHEX_FIELD("positives", counts_of(d, true)), CHEX_FIELD("negatives", counts_of(d, false)));
    if (o && json_object_update_missing(o, e->provenance) != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* Adds to the description of the parameters what only the data says. Borrows all texts. */
static void add_data(const struct chex_eval_split *e, struct chex_safetensors_about *about) {
    if (!about->classes) {
        about->classes = e->set->classes;
        about->class_names = e->set->class_names;
    }
    about->resize = about->resize ? about->resize : e->set->resize;
    about->image_size = e->image_size;
    about->stored_size = about->stored_size ? about->stored_size : e->set->size;
}

static enum chex_status write_file(const struct chex_eval_split *e, struct chex_deployment *d,
                                   struct chex_error *err) {
    const struct chex_eval_network *n = e->network;
    struct chex_safetensors_about about;
    int lock = -1;
    CHEX_TRY(chex_eval_network_about(n, &about, err));
    add_data(e, &about);
    enum chex_status st = chex_eval_file_lock(e->s->output, &lock, err);
    if (st == CHEX_OK)
        st = chex_deployment_write(e->s->output, n->net, n->state, n->step, &about, d, err);
    chex_eval_file_unlock(e->s->output, lock);
    free(about.ensemble);
    int decided = 0;
    for (int k = 0; k < d->classes; k++)
        decided += !isnan(d->threshold[k]);
    if (st == CHEX_OK)
        chex_info("%s: %zu parameters of %s with thresholds of %d of %d findings", e->s->output,
                  n->net->param_count, n->net->model, decided, d->classes);
    return st;
}

static enum chex_status finish(const struct chex_eval_split *e, struct decided *d,
                               struct chex_error *err) {
    d->deployment->provenance = provenance_of(e, d);
    CHEX_ALLOCATED(d->deployment->provenance, err, "the results");
    CHEX_TRY(write_file(e, d->deployment, err));
    if (e->s->common.json)
        return chex_result_print(e->out, chex_deployment_json(d->deployment), NULL, JSON_COMPACT,
                                 err);
    chex_figures_print_operating(e->out, d->scores, d->figures);
    return CHEX_OK;
}

/* Collective. */
static enum chex_status deploy(const struct chex_eval_split *e, struct chex_error *err) {
    const bool first = e->coll->rank == 0;
    struct decided d = {0};
    enum chex_status st =
        chex_group_follow(e->coll->group, 0, first ? choose(e, &d, err) : CHEX_OK, err);
    if (st == CHEX_OK)
        st = describe_training(e, &d, err);
    if (st == CHEX_OK)
        st = chex_group_follow(e->coll->group, 0, first ? finish(e, &d, err) : CHEX_OK, err);
    release(&d);
    return st;
}

enum chex_status chex_evaluate_deploy(const struct chex_opt_set *set,
                                      const struct chex_eval_settings *s, FILE *out,
                                      struct chex_error *err) {
    static const struct chex_eval_split_use use = {chex_eval_files_check, deploy};
    struct chex_threshold_rule rule;
    if (!s->data || !s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval deploy needs --%s",
                              !s->data         ? "data DIR"
                              : !s->checkpoint ? "checkpoint FILE"
                                               : "output FILE.safetensors");
    if (!chex_text_ends_with(s->output, ".safetensors"))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--output %s: expected a name that ends in .safetensors", s->output);
    CHEX_TRY(chex_threshold_parse(s->threshold, &rule, err));
    return chex_eval_split_run(set, s, &use, out, err);
}
