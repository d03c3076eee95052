/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: all ranks predict their rows, rank 0 computes the AUROC and broadcasts the result. So
 * the schedule has the same values on all ranks.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "infer/predict_split.h"
#include "stats/scores.h"
#include "train/session.h"

/* What `advanced` needs. */
struct beat {
    struct chex_watchdog *watchdog;
    uint64_t step;
    struct chex_time_left *time_left;
    volatile sig_atomic_t *stop;
};

/* The AUROC of each class over the rows of one source. masked: (rows, classes) scratch. */
static enum chex_status score_source(const struct chex_predictions *table,
                                     const struct chex_selection *selection, int source,
                                     int8_t *masked, double *aurocs, struct chex_error *err) {
    const size_t classes = (size_t)table->classes;
    for (size_t row = 0; row < table->rows; row++)
        for (size_t c = 0; c < classes; c++)
            masked[row * classes + c] =
                chex_selection_source_of(selection, CHEX_PART_VAL, row) == source
                    ? table->label[row * classes + c]
                    : CHEX_LABEL_NOT_STATED;
    for (size_t c = 0; c < classes; c++) {
        struct chex_ranking *ranking = NULL;
        CHEX_TRY(
            chex_ranking_create(table->score + c, masked + c, table->rows, classes, &ranking, err));
        aurocs[c] = chex_ranking_auroc(ranking);
        chex_ranking_destroy(ranking);
    }
    return CHEX_OK;
}

/* Of several sets also the AUROCs of each, after those of all. */
static enum chex_status score_sources(const struct chex_predictions *table,
                                      const struct chex_selection *selection, double *aurocs,
                                      struct chex_error *err) {
    const size_t classes = (size_t)table->classes;
    const int count = selection->sources.count;
    int8_t *masked = chex_alloc_zeroed(table->rows, classes);
    enum chex_status st = masked ? CHEX_OK : chex_error_memory(err, "the AUROC of each set");
    for (int i = 0; st == CHEX_OK && i < count; i++)
        st = score_source(table, selection, i, masked, aurocs + (size_t)(i + 1) * classes, err);
    free(masked);
    return st;
}

static enum chex_status score(const struct chex_predictions *table,
                              const struct chex_selection *selection, double *aurocs,
                              struct chex_validation *out, struct chex_error *err) {
    const struct chex_scores_config config = {.cluster = CHEX_CLUSTER_IMAGE};
    struct chex_scores *scores = NULL;
    CHEX_TRY(chex_scores_create(table, &config, &scores, err));
    out->auroc = scores->mean;
    out->defined = scores->defined;
    for (int c = 0; c < scores->classes; c++)
        aurocs[c] = scores->per_class[c].auroc;
    chex_scores_destroy(scores);
    return selection->sources.count > 1 ? score_sources(table, selection, aurocs, err) : CHEX_OK;
}

/* --loss-mean stated: of each finding the mean over the labels that its images state, 0 if they
 * state none; then the mean over the findings. The scores of the table are logits. */
static double mean_over_stated(const struct chex_predictions *table) {
    static const struct chex_loss plain;
    const size_t classes = (size_t)table->classes;
    double sum = 0;
    for (size_t c = 0; c < classes; c++) {
        double of_class = 0;
        size_t stated = 0;
        for (size_t i = c; i < table->rows * classes; i += classes) {
            of_class += chex_loss_value(&plain, (int)c, table->label[i], table->score[i]);
            stated += table->label[i] >= 0;
        }
        sum += stated ? of_class / (double)stated : 0;
    }
    return sum / (double)classes;
}

/* A validation may take longer than any stall limit, so each batch is a beat. */
static void advanced(void *arg, bool waits) {
    const struct beat *b = arg;
    if (waits)
        chex_watchdog_wait(b->watchdog);
    else
        chex_watchdog_beat(b->watchdog, CHEX_PHASE_VALIDATE, b->step);
    chex_time_left_check(b->time_left, b->stop);
}

enum chex_status chex_train_validate(const struct chex_train_world *w, struct chex_engine *engine,
                                     const struct chex_train_input *input,
                                     const struct chex_train_config *train, uint64_t step,
                                     struct chex_time_left *time_left, double *aurocs,
                                     struct chex_validation *out, struct chex_error *err) {
    struct beat beat = {w->watchdog, step, time_left, w->stop};
    const struct chex_eval_config config = {.workers = train->workers,
                                            .logits = true,
                                            .advanced = advanced,
                                            .advanced_arg = &beat,
                                            .stop = w->stop,
                                            .features = input->val_features,
                                            .loss = &engine->config.loss};
    struct chex_predictions *table = NULL;
    struct chex_eval_loss loss;
    CHEX_TRY(chex_eval_run(engine, input->val, w->coll, &config, &table, &loss, err));
    struct chex_validation v = {.loss = loss.bce, .training_loss = loss.training};
    if (w->launch->rank == 0 && train->loss_mean == CHEX_LOSS_MEAN_STATED)
        v.loss = mean_over_stated(table);
    advanced(&beat, false);
    enum chex_status st =
        w->launch->rank == 0 ? score(table, input->selection, aurocs, &v, err) : CHEX_OK;
    chex_predictions_destroy(table);
    CHEX_TRY(chex_watchdog_agree(w->watchdog, w->coll->group, st, err));
    CHEX_TRY(chex_group_broadcast(w->coll->group, &v, sizeof v, 0, err));
    *out = v;
    return CHEX_OK;
}
