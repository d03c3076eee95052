/* SPDX-License-Identifier: Apache-2.0
 *
 * --threshold and --prevalence: where the thresholds of the classes come from.
 */
#include "evaluate/thresholds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/units.h"

/* ---- --prevalence ---- */

static enum chex_status bad_prevalence(const char *text, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_USAGE,
                          "--prevalence %.100s: expected a number above 0 and below 1, or a list "
                          "CLASS=X,...",
                          text);
}

static bool parse_prevalence(const char *text, double *out) {
    return chex_parse_f64(text, out) && *out > 0 && *out < 1;
}

struct classes {
    int count;
    char *const *names;
    double *prevalence;
};

/* name NULL: all classes. k NULL: nothing is set. */
static enum chex_status set_prevalence(const struct classes *k, const char *name, double value,
                                       struct chex_error *err) {
    bool found = !name || !k;
    for (int c = 0; k && c < k->count; c++)
        if (!name || strcmp(k->names[c], name) == 0) {
            k->prevalence[c] = value;
            found = true;
        }
    if (!found)
        return chex_error_set(err, CHEX_E_USAGE, "--prevalence: no finding is named '%.60s'", name);
    return CHEX_OK;
}

/* Sets the parts of "A=0.1,B=0.2", or "0.1" for all classes. k NULL: checks only. */
static enum chex_status read_prevalence(const char *text, const struct classes *k,
                                        struct chex_error *err) {
    double value;
    if (!strchr(text, '='))
        return parse_prevalence(text, &value) ? set_prevalence(k, NULL, value, err)
                                              : bad_prevalence(text, err);
    CHEX_AUTO_FREE char *copy = strdup(text);
    char *rest = copy;
    CHEX_ALLOCATED(copy, err, "--prevalence");
    for (char *part; (part = strsep(&rest, ",")) != NULL;) {
        char *equals = strrchr(part, '=');
        if (!equals || equals == part || !parse_prevalence(equals + 1, &value))
            return bad_prevalence(text, err);
        *equals = '\0';
        CHEX_TRY(set_prevalence(k, part, value, err));
    }
    return CHEX_OK;
}

/* ---- --threshold ---- */

enum chex_status chex_eval_figures_check(const struct chex_eval_settings *s,
                                         struct chex_error *err) {
    struct chex_threshold_rule rule;
    double value;
    const char *text = s->threshold;
    if (s->prevalence)
        CHEX_TRY(read_prevalence(s->prevalence, NULL, err));
    if (!text || chex_fs_exists(text))
        return CHEX_OK;
    if (chex_threshold_is_rule(text))
        return chex_threshold_parse(text, &rule, err);
    if (chex_parse_f64(text, &value)) {
        if (s->scores == CHEX_SCORE_PROBABILITY && !(value >= 0 && value <= 1))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--threshold %s: expected a probability from 0 to 1", text);
        return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_USAGE,
                          "--threshold %.200s: no such file, and not a rule (expected youden, f1, "
                          "sensitivity=X, specificity=X, a number or a file of chex-eval deploy)",
                          text);
}

/* The thresholds of a file with a deployment part, or of the network's own. */
static void take(const struct chex_deployment *d, enum chex_threshold_source source,
                 const char *file, struct chex_eval_figures *f) {
    f->config.source = source;
    f->config.rule_text = d->rule;
    f->config.file = file;
    f->config.threshold = d->threshold;
}

static void take_calibration(const struct chex_deployment *d, struct chex_eval_figures *f) {
    f->config.calibration = chex_deployment_recalibrates(d) ? d->calibration : NULL;
    f->config.recalibration = d->recalibration;
}

static enum chex_status read_file(const struct chex_eval_settings *s,
                                  const struct chex_eval_network *n, int classes,
                                  char *const *class_names, struct chex_eval_figures *f,
                                  struct chex_error *err) {
    char digest[17] = "";
    if (s->scores == CHEX_SCORE_ANY)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--threshold %s: its thresholds are probabilities, and --scores any "
                              "has none",
                              s->threshold);
    CHEX_TRY(chex_deployment_thresholds(s->threshold, classes, class_names, &f->file, err));
    if (n)
        chex_deployment_digest(n->net, n->state, digest);
    if (n && f->file->parameters_digest[0] && strcmp(f->file->parameters_digest, digest) != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: its thresholds are those of other parameters than %s (digest "
                              "%s, not %s)",
                              s->threshold, s->checkpoint, f->file->parameters_digest, digest);
    take(f->file, CHEX_THRESHOLD_FILE, s->threshold, f);
    take_calibration(f->file, f);
    return CHEX_OK;
}

static enum chex_status give_number(double value, int classes, struct chex_eval_figures *f,
                                    struct chex_error *err) {
    f->number = chex_alloc_zeroed((size_t)classes, sizeof *f->number);
    CHEX_ALLOCATED(f->number, err, "%d thresholds", classes);
    for (int c = 0; c < classes; c++)
        f->number[c] = value;
    f->config.source = CHEX_THRESHOLD_GIVEN;
    f->config.threshold = f->number;
    return CHEX_OK;
}

static enum chex_status choose_rule(const char *text, struct chex_eval_figures *f,
                                    struct chex_error *err) {
    f->config.source = CHEX_THRESHOLD_CHOSEN;
    CHEX_TRY(chex_threshold_parse(text, &f->config.rule, err));
    chex_threshold_text(&f->config.rule, f->rule_text);
    f->config.rule_text = f->rule_text;
    return CHEX_OK;
}

static enum chex_status find_thresholds(const struct chex_eval_settings *s,
                                        const struct chex_eval_network *n, int classes,
                                        char *const *class_names, struct chex_eval_figures *f,
                                        struct chex_error *err) {
    const struct chex_deployment *deployed = n ? n->deployment : NULL;
    const char *text = s->threshold;
    double value;
    if (deployed)
        take_calibration(deployed, f);
    if (deployed && !text) {
        take(deployed, CHEX_THRESHOLD_DEPLOYED, s->checkpoint, f);
        return CHEX_OK;
    }
    if (deployed)
        chex_info("--threshold %s: the thresholds in %s are not used", text, s->checkpoint);
    if (text && chex_fs_exists(text))
        return read_file(s, n, classes, class_names, f, err);
    if (text && !chex_threshold_is_rule(text) && chex_parse_f64(text, &value))
        return give_number(value, classes, f, err);
    return choose_rule(text ? text : "youden", f, err);
}

enum chex_status chex_eval_figures_open(const struct chex_eval_settings *s,
                                        const struct chex_eval_network *n, int classes,
                                        char *const *class_names, struct chex_eval_figures *f,
                                        struct chex_error *err) {
    f->config.probabilities = s->scores == CHEX_SCORE_PROBABILITY;
    if (s->prevalence) {
        f->prevalence = chex_alloc_zeroed((size_t)classes, sizeof *f->prevalence);
        CHEX_ALLOCATED(f->prevalence, err, "--prevalence");
        for (int c = 0; c < classes; c++)
            f->prevalence[c] = NAN;
        const struct classes k = {classes, class_names, f->prevalence};
        CHEX_TRY(read_prevalence(s->prevalence, &k, err));
        f->config.prevalence = f->prevalence;
    }
    return find_thresholds(s, n, classes, class_names, f, err);
}

void chex_eval_figures_release(struct chex_eval_figures *f) {
    free(f->number);
    free(f->prevalence);
    chex_deployment_destroy(f->file);
}
