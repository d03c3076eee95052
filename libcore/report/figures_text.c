/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON, CSV files and tables of the figures.
 */
#include "report/figures_text.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/result.h"
#include "base/text.h"

/* A figure: its key, the key of its interval, where it is. */
struct column {
    const char *name, *interval;
    size_t at;
};

#define OF_CLASS(member) offsetof(struct chex_class_figures, member)
static const struct column class_columns[] = {
    {"average_precision", "ap", OF_CLASS(average_precision)},
    {"brier", "brier", OF_CLASS(calibration.brier)},
    {"calibration_slope", "calibration_slope", OF_CLASS(calibration.slope)},
    {"calibration_intercept", "calibration_intercept", OF_CLASS(calibration.intercept)},
    {"calibration_in_the_large", "calibration_in_the_large", OF_CLASS(calibration.in_the_large)},
    {"ece", "ece", OF_CLASS(calibration.ece)},
};
static const struct column operating_columns[] = {
    {"sensitivity", "sensitivity", OF_CLASS(operating.sensitivity)},
    {"specificity", "specificity", OF_CLASS(operating.specificity)},
    {"ppv", "ppv", OF_CLASS(operating.ppv)},
    {"npv", "npv", OF_CLASS(operating.npv)},
    {"f1", "f1", OF_CLASS(operating.f1)},
    {"ppv_at_prevalence", "ppv_at_prevalence", OF_CLASS(operating.ppv_at)},
    {"npv_at_prevalence", "npv_at_prevalence", OF_CLASS(operating.npv_at)},
};
enum {
    CLASS_COLUMNS = sizeof class_columns / sizeof class_columns[0],
    OPERATING_COLUMNS = sizeof operating_columns / sizeof operating_columns[0]
};

static const struct chex_figure *figure_at(const struct chex_class_figures *k,
                                           const struct column *column) {
    return (const struct chex_figure *)((const char *)k + column->at);
}

/* ---- JSON ---- */

static bool add_number(json_t *o, const char *name, const char *end, double value) {
    char key[64];
    snprintf(key, sizeof key, "%s%s", name, end);
    return json_object_set_new(o, key, chex_json_real(value)) == 0;
}

static bool add_columns(json_t *o, const struct column *columns, int count,
                        const struct chex_class_figures *k) {
    bool good = o != NULL;
    for (int i = 0; good && i < count; i++) {
        const struct chex_figure *f = figure_at(k, &columns[i]);
        good = add_number(o, columns[i].name, "", f->value) &&
               add_number(o, columns[i].interval, "_ci_low", f->interval.low) &&
               add_number(o, columns[i].interval, "_ci_high", f->interval.high);
    }
    return good;
}

/* Releases the object if it is not complete. */
static json_t *checked(json_t *o, bool good) {
    if (good)
        return o;
    json_decref(o);
    return NULL;
}

static json_t *calibration_json(const struct chex_figures *f, int c) {
    if (!f->calibrated)
        return json_null();
    const struct chex_calibration *with = &f->config.calibration[c];
    return chex_result(CHEX_MEMBER(with, slope), CHEX_MEMBER(with, intercept));
}

static json_t *operating_json(const struct chex_figures *f, int c) {
    const struct chex_class_figures *k = &f->per_class[c];
    const struct chex_operating *at = &k->operating;
    const bool decided = !isnan(at->threshold);
    json_t *o =
        chex_result(CHEX_MEMBER(at, threshold), CHEX_FIELD_IF(decided, "tp", at->tp),
                    CHEX_FIELD_IF(decided, "fp", at->fp), CHEX_FIELD_IF(decided, "tn", at->tn),
                    CHEX_FIELD_IF(decided, "fn", at->fn), CHEX_MEMBER(at, prevalence),
                    CHEX_FIELD("calibration", calibration_json(f, c)));
    return checked(o, add_columns(o, operating_columns, OPERATING_COLUMNS, k));
}

json_t *chex_figures_class_json(const struct chex_figures *f, int c) {
    const struct chex_class_figures *k = &f->per_class[c];
    json_t *operating = operating_json(f, c);
    if (!operating)
        return NULL;
    json_t *o = chex_result(CHEX_MEMBER(k, positive_share),
                            CHEX_FIELD("ece_expected", k->calibration.ece_expected),
                            CHEX_FIELD("operating", operating));
    return checked(o, add_columns(o, class_columns, CLASS_COLUMNS, k));
}

json_t *chex_figures_json(const struct chex_figures *f) {
    const struct chex_figures_config *k = &f->config;
    return chex_result(CHEX_FIELD("source", chex_threshold_source_names[k->source]),
                       CHEX_FIELD("rule", k->rule_text), CHEX_MEMBER(k, file),
                       CHEX_FIELD("optimistic", (bool)(k->source == CHEX_THRESHOLD_CHOSEN)),
                       CHEX_FIELD_IF(f->calibrated, "recalibration", k->recalibration),
                       CHEX_FIELD("bins", (int)CHEX_CALIBRATION_BINS));
}

/* ---- CSV ---- */

static void put_number(FILE *to, double v) {
    if (isnan(v))
        fputs(",nan", to); /* never "-nan" */
    else
        fprintf(to, ",%.9g", v);
}

static void put_header(FILE *to, const struct column *columns, int count) {
    for (int i = 0; i < count; i++)
        fprintf(to, ",%s,%s_ci_low,%s_ci_high", columns[i].name, columns[i].interval,
                columns[i].interval);
}

static void put_figure(FILE *to, const struct chex_figure *f) {
    put_number(to, f->value);
    put_number(to, f->interval.low);
    put_number(to, f->interval.high);
}

static void put_figures(FILE *to, const struct column *columns, int count,
                        const struct chex_class_figures *k) {
    for (int i = 0; i < count; i++)
        put_figure(to, figure_at(k, &columns[i]));
}

void chex_figures_put_csv(FILE *to, const struct chex_scores *s, const struct chex_figures *f) {
    fputs("class,positives,negatives,positive_share", to);
    put_header(to, class_columns, CLASS_COLUMNS);
    fputs(",ece_expected,threshold,tp,fp,tn,fn,prevalence", to);
    put_header(to, operating_columns, OPERATING_COLUMNS);
    putc('\n', to);
    for (int c = 0; c < f->classes; c++) {
        const struct chex_class_figures *k = &f->per_class[c];
        const struct chex_operating *o = &k->operating;
        chex_text_put_cell(to, s->per_class[c].name);
        fprintf(to, ",%zu,%zu", s->per_class[c].positives, s->per_class[c].negatives);
        put_number(to, k->positive_share);
        put_figures(to, class_columns, CLASS_COLUMNS, k);
        put_number(to, k->calibration.ece_expected);
        put_number(to, o->threshold);
        if (isnan(o->threshold))
            fputs(",nan,nan,nan,nan", to);
        else
            fprintf(to, ",%zu,%zu,%zu,%zu", o->tp, o->fp, o->tn, o->fn);
        put_number(to, o->prevalence);
        put_figures(to, operating_columns, OPERATING_COLUMNS, k);
        putc('\n', to);
    }
}

static void put_point(FILE *to, const char *class, const char *curve, double x,
                      const struct chex_figure *f) {
    chex_text_put_cell(to, class);
    fprintf(to, ",%s", curve);
    put_number(to, x);
    put_figure(to, f);
    putc('\n', to);
}

static void put_histogram(FILE *to, const char *class, const char *curve, const size_t *counts) {
    for (int b = 0; b < CHEX_HISTOGRAM_BINS; b++) {
        struct chex_figure f = chex_figure_none();
        f.value = (double)counts[b];
        put_point(to, class, curve, (double)b / CHEX_HISTOGRAM_BINS, &f);
    }
}

void chex_figures_put_curves(FILE *to, const struct chex_scores *s, const struct chex_figures *f) {
    fputs("class,curve,x,value,ci_low,ci_high\n", to);
    for (int c = 0; f->probabilities && c < f->classes; c++) {
        const char *class = s->per_class[c].name;
        const struct chex_class_figures *k = &f->per_class[c];
        const struct chex_reliability *r = &k->calibration.reliability;
        for (int b = 0; b < r->bins; b++)
            put_point(to, class, "reliability", r->bin[b].predicted, &r->bin[b].observed);
        for (int i = 0; i < k->net_benefit.count; i++) {
            const struct chex_net_benefit_point *p = &k->net_benefit.point[i];
            put_point(to, class, "net_benefit", p->threshold, &p->prediction);
            put_point(to, class, "treat_all", p->threshold, &p->treat_all);
        }
        put_histogram(to, class, "positives", k->calibration.histogram.positives);
        put_histogram(to, class, "negatives", k->calibration.histogram.negatives);
    }
}

/* ---- tables ---- */

void chex_figures_source(const struct chex_figures *f, char *buf, size_t size) {
    const struct chex_figures_config *k = &f->config;
    const char *rule = k->rule_text ? k->rule_text : "an unknown rule";
    switch (k->source) {
    case CHEX_THRESHOLD_NONE: snprintf(buf, size, "no thresholds"); break;
    case CHEX_THRESHOLD_CHOSEN:
        snprintf(buf, size,
                 "thresholds chosen by %s on these images: new images will have worse figures",
                 rule);
        break;
    case CHEX_THRESHOLD_GIVEN: snprintf(buf, size, "threshold given with --threshold"); break;
    case CHEX_THRESHOLD_DEPLOYED:
    case CHEX_THRESHOLD_FILE:
        snprintf(buf, size, "thresholds of %.200s, chosen by %s", k->file, rule);
    }
}

/* Why figures of class c may lack an interval: too few clusters, or enough of them, but one decides
 * the figure. */
static const char *why_none(const struct chex_scores *s, int c) {
    const struct chex_class_score *k = &s->per_class[c];
    const bool by_patient = s->config.cluster == CHEX_CLUSTER_PATIENT && s->patients;
    const size_t positive = by_patient ? k->positive_patients : k->positives;
    const size_t negative = by_patient ? k->negative_patients : k->negatives;
    if (!s->config.replicates)
        return "";
    return positive < CHEX_CALIBRATION_MIN_CLUSTERS || negative < CHEX_CALIBRATION_MIN_CLUSTERS
               ? " (too few)"
               : " (not estimable)";
}

/* "0.812 (0.745, 0.870)", or without the interval and why. */
static void put_cell(FILE *to, const struct chex_figure *f, const char *why) {
    char text[48];
    if (isnan(f->value))
        snprintf(text, sizeof text, "-");
    else if (isnan(f->interval.low))
        snprintf(text, sizeof text, "%.3f%s", f->value, why);
    else
        snprintf(text, sizeof text, "%.3f (%.3f, %.3f)", f->value, f->interval.low,
                 f->interval.high);
    fprintf(to, "  %-22s", text);
}

static int width_of(const struct chex_scores *s) {
    int width = 20;
    for (int c = 0; c < s->classes; c++) {
        const int n = chex_text_columns(s->per_class[c].name);
        width = n > width ? n : width;
    }
    return width;
}

static void print_table(FILE *to, const struct chex_scores *s, const struct chex_figures *f,
                        const struct column *columns, int count, bool threshold) {
    const int width = width_of(s);
    fprintf(to, "%-*s", width, "finding");
    if (threshold)
        fprintf(to, "  %-9s", "threshold");
    for (int i = 0; i < count; i++)
        fprintf(to, i + 1 < count ? "  %-22s" : "  %s", columns[i].name);
    putc('\n', to);
    for (int c = 0; c < s->classes; c++) {
        const struct chex_class_figures *k = &f->per_class[c];
        fprintf(to, "%-*s", chex_text_field(s->per_class[c].name, width), s->per_class[c].name);
        if (threshold && isnan(k->operating.threshold))
            fprintf(to, "  %-9s", "-");
        else if (threshold)
            fprintf(to, "  %-9.4g", k->operating.threshold);
        for (int i = 0; i < count; i++)
            put_cell(to, figure_at(k, &columns[i]), why_none(s, c));
        putc('\n', to);
    }
}

static void print_notes(FILE *to, const struct chex_scores *s, const struct chex_figures *f) {
    char source[400];
    if (s->config.replicates)
        fprintf(
            to,
            "in parentheses: 95 %% interval by %s; too few: too few %ss for one; not estimable: "
            "a single %s decides the figure\n",
            chex_cluster_names[s->config.cluster], chex_cluster_names[s->config.cluster],
            chex_cluster_names[s->config.cluster]);
    chex_figures_source(f, source, sizeof source);
    fprintf(to, "%s\n", source);
    if (f->calibrated)
        fprintf(to, "probabilities are recalibrated (%s)\n", f->config.recalibration);
}

void chex_figures_print_operating(FILE *to, const struct chex_scores *s,
                                  const struct chex_figures *f) {
    const bool at = f->config.prevalence != NULL;
    print_table(to, s, f, operating_columns, OPERATING_COLUMNS - (at ? 0 : 2), true);
    print_notes(to, s, f);
}

void chex_figures_print_calibration(FILE *to, const struct chex_scores *s,
                                    const struct chex_figures *f) {
    print_table(to, s, f, class_columns, CLASS_COLUMNS, false);
    print_notes(to, s, f);
}
