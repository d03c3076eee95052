/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: all ranks predict their rows, rank 0 computes the AUROC and broadcasts the result. So
 * the schedule has the same values on all ranks.
 */
#include "eval/predict_split.h"
#include "eval/scores.h"
#include "train/session.h"

struct outcome {
    double loss, auroc;
    int64_t defined;
};

static enum chex_status score(const struct chex_predictions *table, struct outcome *out,
                              struct chex_error *err) {
    const struct chex_scores_config config = {.cluster = CHEX_CLUSTER_IMAGE};
    struct chex_scores *scores = NULL;
    CHEX_TRY(chex_scores_create(table, &config, &scores, err));
    out->auroc = scores->mean;
    out->defined = scores->defined;
    chex_scores_destroy(scores);
    return CHEX_OK;
}

/* A validation may take longer than any stall limit, so each batch is a beat. */
static void advanced(void *arg, bool waits) {
    struct chex_session *s = arg;
    if (waits)
        chex_watchdog_wait(s->world.watchdog);
    else
        chex_watchdog_beat(s->world.watchdog, CHEX_PHASE_VALIDATE, s->at.step);
}

enum chex_status chex_session_validate(struct chex_session *s, double *loss_out, double *auroc_out,
                                       int *defined_out, struct chex_error *err) {
    const struct chex_eval_config config = {.workers = s->config.workers,
                                            .advanced = advanced,
                                            .advanced_arg = s,
                                            .stop = s->world.stop};
    struct chex_predictions *table = NULL;
    struct outcome out = {0};
    enum chex_status st =
        chex_eval_run(s->engine, s->input.val, s->world.coll, &config, &table, &out.loss, err);
    if (st != CHEX_OK) {
        s->together = !s->world.coll->group->broken;
        return st;
    }
    advanced(s, false);
    if (s->rank == 0)
        st = score(table, &out, err);
    chex_predictions_destroy(table);
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(chex_group_broadcast(s->world.coll->group, &out, sizeof out, 0, err));
    *loss_out = out.loss;
    *auroc_out = out.auroc;
    *defined_out = (int)out.defined;
    return CHEX_OK;
}
