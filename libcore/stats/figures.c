/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the figures of all classes, one class per task of the thread pool.
 */
#include "stats/figures.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

const char *const chex_threshold_source_names[] = {"none",     "chosen", "given",
                                                   "deployed", "file",   NULL};

/* The ranking of the calibrated probabilities: the same rows with other scores. The caller frees
 * out->score. */
static enum chex_status calibrate(const struct chex_ranking *r, const struct chex_calibration *c,
                                  struct chex_ranking *out, struct chex_error *err) {
    *out = *r;
    out->score = chex_alloc_zeroed(r->tie_count, sizeof *out->score);
    if (!out->score)
        return chex_error_memory(err, "%zu calibrated probabilities", r->tie_count);
    for (size_t g = 0; g < r->tie_count; g++)
        out->score[g] = chex_calibrate(c, r->score[g]);
    return CHEX_OK;
}

static enum chex_status compute(const struct chex_ranking *r, const struct chex_clusters *k,
                                const struct chex_figures *f, int c, struct chex_error *err) {
    const struct chex_figures_config *config = &f->config;
    struct chex_class_figures *out = &f->per_class[c];
    const double prevalence = config->prevalence ? config->prevalence[c] : NAN;
    const double threshold = config->threshold ? config->threshold[c]
                             : config->source == CHEX_THRESHOLD_CHOSEN
                                 ? chex_threshold_choose(r, &config->rule)
                                 : NAN;
    out->positive_share = r->count ? (double)r->positives / (double)r->count : NAN;
    CHEX_TRY(chex_average_precision(r, k, &out->average_precision, err));
    CHEX_TRY(chex_operating_create(r, k, threshold, prevalence, &out->operating, err));
    if (!f->probabilities) {
        const struct chex_ranking none = {0};
        CHEX_TRY(chex_calibration_create(&none, k, &out->calibration, err));
        return chex_net_benefit_create(&none, k, &out->net_benefit, err);
    }
    CHEX_TRY(chex_calibration_create(r, k, &out->calibration, err));
    return chex_net_benefit_create(r, k, &out->net_benefit, err);
}

struct job {
    const struct chex_scores *scores;
    const struct chex_figures *figures;
    struct chex_clusters clusters;
    struct chex_error *errors; /* (classes) */
};

static void run_class(void *arg, size_t c, int worker) {
    const struct job *j = arg;
    struct chex_error *err = &j->errors[c];
    struct chex_ranking calibrated = {0};
    const struct chex_ranking *r = j->scores->rankings[c];
    (void)worker;
    if (j->figures->calibrated) {
        if (calibrate(r, &j->figures->config.calibration[c], &calibrated, err) != CHEX_OK)
            return;
        r = &calibrated;
    }
    compute(r, &j->clusters, j->figures, (int)c, err);
    free(calibrated.score);
}

enum chex_status chex_figures_create(const struct chex_scores *scores,
                                     const struct chex_figures_config *config,
                                     struct chex_figures **out, struct chex_error *err) {
    const size_t classes = (size_t)scores->classes;
    struct chex_figures *f = chex_alloc_zeroed(1, sizeof *f);
    struct chex_error *errors = chex_alloc_zeroed(classes, sizeof *errors);
    enum chex_status st = CHEX_OK;
    if (f) {
        f->config = *config;
        f->classes = scores->classes;
        f->probabilities = config->probabilities;
        f->calibrated = config->calibration && config->probabilities;
        f->per_class = chex_alloc_zeroed(classes, sizeof *f->per_class);
    }
    if (!f || !f->per_class || !errors)
        st = chex_error_memory(err, "%zu findings", classes);
    struct job job = {
        scores, f, {scores->cluster, scores->clusters, scores->config.replicates > 0}, errors};
    if (st == CHEX_OK && scores->config.pool)
        chex_pool_run(scores->config.pool, classes, run_class, &job);
    for (size_t c = 0; st == CHEX_OK && !scores->config.pool && c < classes; c++)
        run_class(&job, c, 0);
    for (size_t c = 0; st == CHEX_OK && c < classes; c++)
        if (errors[c].status != CHEX_OK)
            st = chex_error_set(err, errors[c].status, "%s", errors[c].text);
    free(errors);
    if (st == CHEX_OK)
        *out = f;
    else
        chex_figures_destroy(f);
    return st;
}

void chex_figures_destroy(struct chex_figures *f) {
    if (!f)
        return;
    free(f->per_class);
    free(f);
}
