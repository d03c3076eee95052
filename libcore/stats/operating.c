/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses thresholds by walking a ranking from the highest score down, and counts decisions.
 */
#include "stats/operating.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/units.h"

/* ---- rules ---- */

static const struct {
    const char *name;
    bool target;
} rules[] = {[CHEX_THRESHOLD_YOUDEN] = {"youden", false},
             [CHEX_THRESHOLD_SENSITIVITY] = {"sensitivity", true},
             [CHEX_THRESHOLD_SPECIFICITY] = {"specificity", true},
             [CHEX_THRESHOLD_F1] = {"f1", false}};
enum { RULES = CHEX_COUNT(rules) };

/* The rule whose name ends at the end of `text` or at '='. -1: none. */
static int find_rule(const char *text) {
    const size_t n = strcspn(text, "=");
    for (int i = 0; i < RULES; i++)
        if (strlen(rules[i].name) == n && strncmp(rules[i].name, text, n) == 0)
            return i;
    return -1;
}

bool chex_threshold_is_rule(const char *text) { return find_rule(text) >= 0; }

enum chex_status chex_threshold_parse(const char *text, struct chex_threshold_rule *rule_out,
                                      struct chex_error *err) {
    const int i = find_rule(text);
    const char *value = strchr(text, '=');
    if (i < 0)
        return chex_error_set(err, CHEX_E_USAGE,
                              "threshold rule '%.60s' is unknown (expected youden, f1, "
                              "sensitivity=X or specificity=X)",
                              text);
    struct chex_threshold_rule rule = {(enum chex_threshold_kind)i, NAN};
    if (rules[i].target &&
        !(value && chex_parse_f64(value + 1, &rule.target) && rule.target > 0 && rule.target <= 1))
        return chex_error_set(err, CHEX_E_USAGE,
                              "threshold rule '%.60s' needs a target above 0 and at most 1, such "
                              "as %s=0.9",
                              text, rules[i].name);
    if (!rules[i].target && value)
        return chex_error_set(err, CHEX_E_USAGE, "threshold rule '%.60s' has no target: say %s",
                              text, rules[i].name);
    *rule_out = rule;
    return CHEX_OK;
}

void chex_threshold_text(const struct chex_threshold_rule *rule,
                         char text[CHEX_THRESHOLD_TEXT_BYTES]) {
    if (rules[rule->kind].target)
        snprintf(text, CHEX_THRESHOLD_TEXT_BYTES, "%s=%.9g", rules[rule->kind].name, rule->target);
    else
        snprintf(text, CHEX_THRESHOLD_TEXT_BYTES, "%s", rules[rule->kind].name);
}

/* ---- the choice ---- */

/* A point of the ROC curve, as a fraction to be maximised. CHEX_RANKING_MAX_ROWS keeps products of
 * two fractions below 2^63. */
struct merit {
    int64_t over, under;
};

static bool is_better(struct merit a, struct merit b) {
    return a.over * b.under > b.over * a.under;
}

/* Sensitivity + specificity - 1 has the same denominator P * N at each threshold. */
static struct merit merit_of(const struct chex_ranking *r, enum chex_threshold_kind kind,
                             int64_t tp, int64_t fp) {
    const int64_t P = (int64_t)r->positives, N = (int64_t)r->negatives;
    if (kind == CHEX_THRESHOLD_F1)
        return (struct merit){2 * tp, P + tp + fp};
    return (struct merit){tp * N - fp * P, 1};
}

double chex_threshold_choose(const struct chex_ranking *r, const struct chex_threshold_rule *rule) {
    const double P = (double)r->positives, N = (double)r->negatives;
    struct merit best = {INT64_MIN, 1};
    double chosen = NAN;
    int64_t tp = 0, fp = 0;
    if (!r->positives || !r->negatives)
        return NAN;
    for (size_t g = r->tie_count; g-- > 0;) {
        tp += r->ties[g].positives;
        fp += r->ties[g].negatives;
        if (g > 0 && !(r->score[g - 1] < r->score[g]))
            continue; /* calibrated scores may be equal where the scores were not */
        if (rule->kind == CHEX_THRESHOLD_SENSITIVITY) {
            if ((double)tp / P >= rule->target)
                return r->score[g];
        } else if (rule->kind == CHEX_THRESHOLD_SPECIFICITY) {
            if ((double)((int64_t)r->negatives - fp) / N < rule->target)
                return chosen;
            chosen = r->score[g];
        } else if (chosen != chosen || is_better(merit_of(r, rule->kind, tp, fp), best)) {
            best = merit_of(r, rule->kind, tp, fp);
            chosen = r->score[g];
        }
    }
    return chosen;
}

/* ---- the decisions ---- */

struct decisions {
    uint32_t tp, fp, tn, fn;
};

static void count(const struct chex_ranking *r, const struct chex_clusters *k, double threshold,
                  struct decisions *of_cluster) {
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        const bool called = r->score[g] >= threshold;
        for (size_t i = 0; i < (size_t)t->negatives + t->positives; i++) {
            struct decisions *d = &of_cluster[chex_cluster_of(k, r->row[t->start + i])];
            const bool positive = i >= t->negatives;
            d->tp += called && positive;
            d->fp += called && !positive;
            d->fn += !called && positive;
            d->tn += !called && !positive;
        }
    }
}

static struct chex_figure figure_of(const struct chex_proportion *p,
                                    const struct chex_clusters *k) {
    struct chex_figure f = chex_proportion_figure(p);
    if (!k->intervals)
        f.interval = chex_figure_none().interval;
    return f;
}

static void add_up(const struct decisions *of_cluster, const struct chex_clusters *k,
                   struct chex_operating *o) {
    struct chex_proportion sensitivity = {0}, specificity = {0}, ppv = {0}, npv = {0},
                           jaccard = {0};
    for (size_t i = 0; i < k->count; i++) {
        const struct decisions *d = &of_cluster[i];
        const double tp = d->tp, fp = d->fp, tn = d->tn, fn = d->fn;
        o->tp += d->tp;
        o->fp += d->fp;
        o->tn += d->tn;
        o->fn += d->fn;
        chex_proportion_add(&sensitivity, tp, tp + fn);
        chex_proportion_add(&specificity, tn, tn + fp);
        chex_proportion_add(&ppv, tp, tp + fp);
        chex_proportion_add(&npv, tn, tn + fn);
        chex_proportion_add(&jaccard, tp, tp + fp + fn);
    }
    o->sensitivity = figure_of(&sensitivity, k);
    o->specificity = figure_of(&specificity, k);
    o->ppv = figure_of(&ppv, k);
    o->npv = figure_of(&npv, k);
    o->f1 = figure_of(&jaccard, k);
    o->f1.value = 2 * o->f1.value / (1 + o->f1.value);
    o->f1.interval.low = 2 * o->f1.interval.low / (1 + o->f1.interval.low);
    o->f1.interval.high = 2 * o->f1.interval.high / (1 + o->f1.interval.high);
}

/* ---- predictive values at another prevalence ---- */

/* The interval of a.value / b.value (MOVER). Infinite if b may be 0. */
static struct chex_figure ratio_of(const struct chex_figure *a, const struct chex_figure *b) {
    const double x = a->value, y = b->value;
    struct chex_figure f = {x / y, {NAN, NAN, 0}};
    if (isnan(f.value) || isnan(a->interval.low) || isnan(b->interval.low))
        return f;
    const double al = x - a->interval.low, au = a->interval.high - x;
    const double bl = y - b->interval.low, bu = b->interval.high - y;
    const double low = x * x - al * al, high = x * x - au * au; /* of x squared */
    const double under = y * y - bu * bu, over = y * y - bl * bl;
    const double root = sqrt(fmax(x * x * y * y - low * under, 0));
    f.interval.low = low > 0 ? low / (x * y + root) : 0;
    f.interval.high =
        over > 0 ? (x * y + sqrt(fmax(x * x * y * y - high * over, 0))) / over : INFINITY;
    return f;
}

static struct chex_figure complement(const struct chex_figure *f) {
    return (struct chex_figure){1 - f->value, {1 - f->interval.high, 1 - f->interval.low, 0}};
}

static void add_predictive_values(struct chex_operating *o) {
    const double odds = o->prevalence / (1 - o->prevalence);
    const struct chex_figure fpr = complement(&o->specificity), fnr = complement(&o->sensitivity);
    const struct chex_figure up = ratio_of(&o->sensitivity, &fpr);
    const struct chex_figure down = ratio_of(&fnr, &o->specificity);
    o->ppv_at = (struct chex_figure){
        1 / (1 + 1 / (odds * up.value)),
        {1 / (1 + 1 / (odds * up.interval.low)), 1 / (1 + 1 / (odds * up.interval.high)), 0}};
    o->npv_at = (struct chex_figure){
        1 / (1 + odds * down.value),
        {1 / (1 + odds * down.interval.high), 1 / (1 + odds * down.interval.low), 0}};
}

enum chex_status chex_operating_create(const struct chex_ranking *r, const struct chex_clusters *k,
                                       double threshold, double prevalence,
                                       struct chex_operating *out, struct chex_error *err) {
    const struct chex_figure none = chex_figure_none();
    *out = (struct chex_operating){.threshold = threshold,
                                   .sensitivity = none,
                                   .specificity = none,
                                   .ppv = none,
                                   .npv = none,
                                   .f1 = none,
                                   .prevalence = prevalence,
                                   .ppv_at = none,
                                   .npv_at = none};
    if (isnan(threshold))
        return CHEX_OK;
    CHEX_AUTO_FREE struct decisions *of_cluster = chex_alloc_zeroed(k->count, sizeof *of_cluster);
    CHEX_ALLOCATED(of_cluster, err, "%zu clusters", k->count);
    count(r, k, threshold, of_cluster);
    add_up(of_cluster, k, out);
    if (!isnan(prevalence))
        add_predictive_values(out);
    return CHEX_OK;
}
