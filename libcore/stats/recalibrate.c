/* SPDX-License-Identifier: Apache-2.0
 *
 * Temperature scaling and Platt's recalibration of probabilities.
 */
#include <math.h>

#include "base/alloc.h"
#include "stats/calibration.h"
#include "stats/logistic.h"

const char *const chex_recalibration_names[] = {"none", "temperature", "platt", NULL};

double chex_calibrate(const struct chex_calibration *c, double probability) {
    if (c->slope == 1 && c->intercept == 0)
        return probability;
    const double x = log(probability) - log1p(-probability); /* infinite at 0 and 1 */
    return 1 / (1 + exp(-(c->slope * x + c->intercept)));
}

/* Fits one slope, and one intercept if `kind` says so, to these rankings. */
static bool fit(const struct chex_logits *logits, int count, enum chex_logistic_kind kind,
                struct chex_calibration *out) {
    struct chex_logistic l = {1, 0};
    if (!chex_logistic_fit(logits, count, kind, &l) || !(l.slope > 0))
        return false;
    *out = (struct chex_calibration){l.slope, l.intercept};
    return true;
}

enum chex_status chex_recalibrate(const struct chex_ranking *const *rankings, int classes,
                                  enum chex_recalibration method, struct chex_calibration *out,
                                  bool *fitted_out, struct chex_error *err) {
    CHEX_AUTO_FREE struct chex_logits *logits = chex_alloc_zeroed((size_t)classes, sizeof *logits);
    enum chex_status st = logits ? CHEX_OK : chex_error_memory(err, "%d findings", classes);
    for (int c = 0; c < classes; c++) {
        out[c] = (struct chex_calibration){1, 0};
        fitted_out[c] = method == CHEX_RECALIBRATE_NONE;
        if (st == CHEX_OK)
            st = chex_logits_create(rankings[c], &logits[c], err);
    }
    if (st == CHEX_OK && method == CHEX_RECALIBRATE_TEMPERATURE) {
        const bool fitted = fit(logits, classes, CHEX_LOGISTIC_SLOPE, &out[0]);
        for (int c = 0; c < classes; c++) {
            out[c] = out[0];
            fitted_out[c] = fitted;
        }
    }
    for (int c = 0; st == CHEX_OK && method == CHEX_RECALIBRATE_PLATT && c < classes; c++)
        fitted_out[c] = fit(&logits[c], 1, CHEX_LOGISTIC_BOTH, &out[c]);
    for (int c = 0; logits && c < classes; c++)
        chex_logits_release(&logits[c]);
    return st;
}
