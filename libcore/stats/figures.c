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
    CHEX_ALLOCATED(out->score, err, "%zu calibrated probabilities", r->tie_count);
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
};

static enum chex_status run_class(void *arg, size_t c, int worker, struct chex_error *err) {
    const struct job *j = arg;
    struct chex_ranking calibrated = {0};
    const struct chex_ranking *r = j->scores->rankings[c];
    (void)worker;
    if (j->figures->calibrated) {
        CHEX_TRY(calibrate(r, &j->figures->config.calibration[c], &calibrated, err));
        r = &calibrated;
    }
    enum chex_status st = compute(r, &j->clusters, j->figures, (int)c, err);
    free(calibrated.score);
    return st;
}

enum chex_status chex_figures_create(const struct chex_scores *scores,
                                     const struct chex_figures_config *config,
                                     struct chex_figures **out, struct chex_error *err) {
    const size_t classes = (size_t)scores->classes;
    struct chex_figures *f = chex_alloc_zeroed(1, sizeof *f);
    CHEX_ALLOCATED(f, err, "%zu findings", classes);
    *f = (struct chex_figures){.config = *config,
                               .classes = scores->classes,
                               .probabilities = config->probabilities,
                               .calibrated = config->calibration && config->probabilities,
                               .per_class = chex_alloc_zeroed(classes, sizeof *f->per_class)};
    struct job job = {
        scores, f, {scores->cluster, scores->clusters, scores->config.replicates > 0}};
    enum chex_status st = f->per_class
                              ? chex_pool_try_on(scores->config.pool, classes, run_class, &job, err)
                              : chex_error_memory(err, "%zu findings", classes);
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
