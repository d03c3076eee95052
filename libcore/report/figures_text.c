/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON, CSV files and tables of the figures.
 */
#include "report/figures_text.h"

#include <math.h>
#include <stddef.h>

#include "base/result.h"
#include "base/text.h"
#include "report/report.h"

#define OF_CLASS(member) offsetof(struct chex_class_figures, member)
const struct chex_column chex_class_columns[CHEX_CLASS_COLUMNS] = {
    {"average_precision", "ap", OF_CLASS(average_precision), "average precision", 3, true},
    {"brier", "brier", OF_CLASS(calibration.brier), "Brier score", 4, true},
    {"calibration_slope", "calibration_slope", OF_CLASS(calibration.slope), "slope", 2, true},
    {"calibration_intercept", "calibration_intercept", OF_CLASS(calibration.intercept), "intercept",
     2, false},
    {"calibration_in_the_large", "calibration_in_the_large", OF_CLASS(calibration.in_the_large),
     "in the large", 2, true},
    {"ece", "ece", OF_CLASS(calibration.ece), "ECE", 4, true},
};
const struct chex_column chex_operating_columns[CHEX_OPERATING_COLUMNS] = {
    {"sensitivity", "sensitivity", OF_CLASS(operating.sensitivity), "sensitivity", 3, true},
    {"specificity", "specificity", OF_CLASS(operating.specificity), "specificity", 3, true},
    {"ppv", "ppv", OF_CLASS(operating.ppv), "PPV", 3, true},
    {"npv", "npv", OF_CLASS(operating.npv), "NPV", 3, true},
    {"f1", "f1", OF_CLASS(operating.f1), "F1", 3, false},
    {"ppv_at_prevalence", "ppv_at_prevalence", OF_CLASS(operating.ppv_at), "PPV there", 3, false},
    {"npv_at_prevalence", "npv_at_prevalence", OF_CLASS(operating.npv_at), "NPV there", 3, false},
};

/* ---- JSON ---- */

static json_t *calibration_json(const struct chex_figures *f, int c) {
    if (!f->calibrated)
        return json_null();
    const struct chex_calibration *with = &f->config.calibration[c];
    return chex_result(CHEX_MEMBER(with, slope), CHEX_MEMBER(with, intercept));
}

static json_t *operating_json(const struct chex_figures *f, int c) {
    const struct chex_operating *at = &f->per_class[c].operating;
    const bool decided = !isnan(at->threshold);
    json_t *o =
        chex_result(CHEX_MEMBER(at, threshold), CHEX_FIELD_IF(decided, "tp", at->tp),
                    CHEX_FIELD_IF(decided, "fp", at->fp), CHEX_FIELD_IF(decided, "tn", at->tn),
                    CHEX_FIELD_IF(decided, "fn", at->fn), CHEX_MEMBER(at, prevalence),
                    CHEX_FIELD("calibration", calibration_json(f, c)));
    chex_columns_set(&o, chex_operating_columns, CHEX_OPERATING_COLUMNS, &f->per_class[c]);
    return o;
}

void chex_figures_class_json(const struct chex_figures *f, int c, json_t **object) {
    const struct chex_class_figures *k = &f->per_class[c];
    chex_json_set(object, "positive_share", chex_json_real(k->positive_share));
    chex_json_set(object, "ece_expected", chex_json_real(k->calibration.ece_expected));
    chex_json_set(object, "operating", operating_json(f, c));
    chex_columns_set(object, chex_class_columns, CHEX_CLASS_COLUMNS, k);
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

enum chex_status chex_figures_put_csv(FILE *to, const struct chex_report *r,
                                      struct chex_error *err) {
    json_t *classes = chex_report_classes_json(r);
    char names[CHEX_COLUMN_NAMES_BYTES] = "";
    struct chex_text_line line = {names, sizeof names, 0};
    json_t *k;
    size_t i;
    json_array_foreach(classes, i, k) json_object_update(k, json_object_get(k, "operating"));
    chex_text_append(&line, "class=name,positives,negatives,positive_share");
    chex_columns_names(&line, chex_class_columns, CHEX_CLASS_COLUMNS);
    chex_text_append(&line, ",ece_expected,threshold,tp,fp,tn,fn,prevalence");
    chex_columns_names(&line, chex_operating_columns, CHEX_OPERATING_COLUMNS);
    return chex_csv_write(to, names, classes, err);
}

static void add_point(json_t **rows, const char *class, const char *curve, double x,
                      const struct chex_figure *f) {
    chex_json_append(rows, chex_result(CHEX_FIELD("class", class), CHEX_FIELD("curve", curve),
                                       CHEX_FIELD("x", x), CHEX_MEMBER(f, value),
                                       CHEX_FIELD("ci_low", f->interval.low),
                                       CHEX_FIELD("ci_high", f->interval.high)));
}

static void add_histogram(json_t **rows, const char *class, const char *curve,
                          const size_t *counts) {
    for (int b = 0; b < CHEX_HISTOGRAM_BINS; b++) {
        struct chex_figure f = chex_figure_none();
        f.value = (double)counts[b];
        add_point(rows, class, curve, (double)b / CHEX_HISTOGRAM_BINS, &f);
    }
}

enum chex_status chex_figures_put_curves(FILE *to, const struct chex_report *report,
                                         struct chex_error *err) {
    const struct chex_figures *f = report->figures;
    json_t *rows = json_array();
    for (int c = 0; f->probabilities && c < f->classes; c++) {
        const char *class = report->scores->per_class[c].name;
        const struct chex_class_figures *k = &f->per_class[c];
        const struct chex_reliability *r = &k->calibration.reliability;
        for (int b = 0; b < r->bins; b++)
            add_point(&rows, class, "reliability", r->bin[b].predicted, &r->bin[b].observed);
        for (int i = 0; i < k->net_benefit.count; i++) {
            const struct chex_net_benefit_point *p = &k->net_benefit.point[i];
            add_point(&rows, class, "net_benefit", p->threshold, &p->prediction);
            add_point(&rows, class, "treat_all", p->threshold, &p->treat_all);
        }
        add_histogram(&rows, class, "positives", k->calibration.histogram.positives);
        add_histogram(&rows, class, "negatives", k->calibration.histogram.negatives);
    }
    return chex_csv_write(to, "class,curve,x,value,ci_low,ci_high", rows, err);
}

/* ---- tables ---- */

/* How the thresholds were chosen, as a sentence without full stop: "thresholds by youden on these
 * images: ...". */
static void describe_source(const struct chex_figures *f, char *buf, size_t size) {
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

static void print_table(FILE *to, const struct chex_scores *s, const struct chex_figures *f,
                        const struct chex_column *columns, int count, bool threshold) {
    const int width = chex_names_width(s->table->class_names, s->classes, 20);
    fprintf(to, "%-*s", width, "finding");
    if (threshold)
        fprintf(to, "  %-9s", "threshold");
    for (int i = 0; i < count; i++)
        fprintf(to, i + 1 < count ? "  %-22s" : "  %s", columns[i].key);
    putc('\n', to);
    for (int c = 0; c < s->classes; c++) {
        const struct chex_class_figures *k = &f->per_class[c];
        fprintf(to, "%-*s", chex_text_field(s->per_class[c].name, width), s->per_class[c].name);
        if (threshold && isnan(k->operating.threshold))
            fprintf(to, "  %-9s", "-");
        else if (threshold)
            fprintf(to, "  %-9.4g", k->operating.threshold);
        for (int i = 0; i < count; i++)
            put_cell(to, chex_column_figure(&columns[i], k), why_none(s, c));
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
    describe_source(f, source, sizeof source);
    fprintf(to, "%s\n", source);
    if (f->calibrated)
        fprintf(to, "probabilities are recalibrated (%s)\n", f->config.recalibration);
}

void chex_figures_print_operating(FILE *to, const struct chex_scores *s,
                                  const struct chex_figures *f) {
    const bool at = f->config.prevalence != NULL;
    print_table(to, s, f, chex_operating_columns, CHEX_OPERATING_COLUMNS - (at ? 0 : 2), true);
    print_notes(to, s, f);
}

void chex_figures_print_calibration(FILE *to, const struct chex_scores *s,
                                    const struct chex_figures *f) {
    print_table(to, s, f, chex_class_columns, CHEX_CLASS_COLUMNS, false);
    print_notes(to, s, f);
}
