/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: all ranks predict their rows, rank 0 computes the AUROC and broadcasts the result. So
 * the schedule has the same values on all ranks.
 */
#include "train/validate.h"

#include "base/alloc.h"
#include "infer/split_run.h"
#include "stats/scores.h"

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
        CHEX_AUTO_RANKING struct chex_ranking *ranking = NULL;
        CHEX_TRY(
            chex_ranking_create(table->score + c, masked + c, table->rows, classes, &ranking, err));
        aurocs[c] = chex_ranking_auroc(ranking);
    }
    return CHEX_OK;
}

/* Of several sets also the AUROCs of each, after those of all. */
static enum chex_status score_sources(const struct chex_predictions *table,
                                      const struct chex_selection *selection, double *aurocs,
                                      struct chex_error *err) {
    const size_t classes = (size_t)table->classes;
    const int count = selection->sources.count;
    CHEX_AUTO_FREE int8_t *masked = chex_alloc_zeroed(table->rows, classes);
    CHEX_ALLOCATED(masked, err, "the AUROC of each set");
    for (int i = 0; i < count; i++)
        CHEX_TRY(
            score_source(table, selection, i, masked, aurocs + (size_t)(i + 1) * classes, err));
    return CHEX_OK;
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
static void advanced(void *session, bool waits) {
    struct chex_session *s = session;
    if (waits)
        chex_watchdog_wait(s->world.watchdog);
    else
        chex_watchdog_beat(s->world.watchdog, CHEX_PHASE_VALIDATE, s->at.step);
    chex_time_left_check(&s->time_left, s->world.stop);
    chex_rapl_sample(s->energy.rapl);
}

static enum chex_status validate(struct chex_session *s, double *aurocs,
                                 struct chex_validation *out, struct chex_error *err) {
    const struct chex_eval_config config = {.workers = s->config.workers,
                                            .logits = true,
                                            .advanced = advanced,
                                            .advanced_arg = s,
                                            .stop = s->world.stop,
                                            .features = s->input.val_features,
                                            .loss = &s->engine->config.loss};
    CHEX_AUTO_PREDICTIONS struct chex_predictions *table = NULL;
    struct chex_eval_loss loss;
    CHEX_TRY(chex_eval_run(s->engine, s->input.val, s->world.coll, &config, &table, &loss, err));
    struct chex_validation v = {.loss = loss.bce, .training_loss = loss.training};
    if (s->rank == 0 && s->config.loss_mean == CHEX_LOSS_MEAN_STATED)
        v.loss = mean_over_stated(table);
    advanced(s, false);
    enum chex_status st =
        s->rank == 0 ? score(table, s->input.selection, aurocs, &v, err) : CHEX_OK;
    CHEX_TRY(chex_watchdog_agree(s->world.watchdog, s->world.coll->group, st, err));
    CHEX_TRY(chex_group_broadcast(s->world.coll->group, &v, sizeof v, 0, err));
    *out = v;
    return CHEX_OK;
}

enum chex_status chex_session_validate(struct chex_session *s, double *aurocs,
                                       struct chex_validation *out, struct chex_error *err) {
    const bool average = s->config.ema_decay > 0;
    if (average)
        CHEX_TRY(chex_session_agree(s, chex_engine_swap_ema(s->engine, err), err));
    enum chex_status st = validate(s, aurocs, out, err);
    if (average && st == CHEX_OK)
        st = chex_engine_swap_ema(s->engine, err);
    return chex_session_agree(s, st, err);
}
