/* SPDX-License-Identifier: Apache-2.0
 *
 * Inference of all members of an ensemble, and their mean (ensemble.h).
 */
#include "infer/ensemble.h"

#include <math.h>
#include <string.h>

#include "infer/split_run.h"

const char *const chex_ensemble_names[] = {"auto", "mean-probability", "mean-logit", NULL};

static const double most_logit = 700; /* of a probability that a double can hold */

static size_t logits_of(const struct chex_ensemble *e) {
    const struct chex_engine_config *c = &e->engine[0]->config;
    return (size_t)c->batch * (size_t)c->net->classes;
}

enum chex_status chex_ensemble_begin(const struct chex_ensemble *e, const struct chex_batch *batch,
                                     float *logits_out, struct chex_error *err) {
    for (int m = 0; m < e->count; m++, logits_out += logits_of(e))
        CHEX_TRY(chex_engine_infer_begin(e->engine[m], batch, logits_out, err));
    return CHEX_OK;
}

enum chex_status chex_ensemble_end(const struct chex_ensemble *e, struct chex_error *err) {
    for (int m = 0; m < e->count; m++)
        CHEX_TRY(chex_engine_infer_end(e->engine[m], err));
    return CHEX_OK;
}

/* The logit of the mean p is log p - log (1 - p). Sums of sigmoid(z) and of sigmoid(-z) keep the
 * digits of both. */
static float combine(const struct chex_ensemble *e, const float *z, size_t stride) {
    double sum = 0, positive = 0, negative = 0;
    for (int m = 0; m < e->count; m++) {
        const double logit = (double)z[(size_t)m * stride];
        sum += logit;
        positive += chex_eval_probability(logit);
        negative += chex_eval_probability(-logit);
    }
    if (e->mean == CHEX_MEAN_LOGIT || !isfinite(sum))
        return (float)(sum / e->count);
    return (float)fmax(fmin(log(positive) - log(negative), most_logit), -most_logit);
}

void chex_ensemble_combine(const struct chex_ensemble *e, const float *logits, int n, float *out) {
    const size_t count = (size_t)n * (size_t)e->engine[0]->config.net->classes;
    if (e->count == 1)
        memcpy(out, logits, count * sizeof *out);
    for (size_t i = 0; e->count > 1 && i < count; i++)
        out[i] = combine(e, logits + i, logits_of(e));
}
