/* SPDX-License-Identifier: Apache-2.0
 *
 * Operating points in report.html: the threshold of each class and the decisions that follow.
 */
#include <math.h>

#include "base/textfile.h"
#include "report/figures_text.h"
#include "report/html.h"

enum { DECISIONS = CHEX_OPERATING_COLUMNS - 2 }; /* the last two need a prevalence */

/* Why a share is undefined. */
static const char *why(const struct chex_operating *o, size_t of, const char *none) {
    return isnan(o->threshold) ? "no threshold" : of == 0 ? none : "not computed";
}

static void put_origin(FILE *to, const struct chex_figures_config *k) {
    fputs("<p>", to);
    switch (k->source) {
    case CHEX_THRESHOLD_NONE: break;
    case CHEX_THRESHOLD_CHOSEN:
        fputs("Thresholds were chosen on these very images, so the figures are optimistic", to);
        break;
    case CHEX_THRESHOLD_GIVEN: fputs("The threshold was given on the command line", to); break;
    case CHEX_THRESHOLD_DEPLOYED:
    case CHEX_THRESHOLD_FILE:
        fputs("Thresholds were frozen before this evaluation, in ", to);
        chex_put_xml(to, k->file ? k->file : "a file");
        break;
    }
    if (k->rule_text) {
        fputs("; rule: ", to);
        chex_put_xml(to, k->rule_text);
    }
    fputs(".</p>\n", to);
}

static void put_decisions(FILE *to, const struct chex_report *r) {
    static const char counts_name[] = "TP / FP / TN / FN";
    chex_html_open_table(to, "stack", "Decisions at the threshold, with 95 % intervals");
    chex_html_heading(to, "threshold");
    chex_html_headings(to, chex_operating_columns, DECISIONS);
    chex_html_heading(to, counts_name);
    chex_html_open_rows(to);
    for (int c = 0; c < r->scores->classes; c++) {
        const struct chex_operating *o = &r->figures->per_class[c].operating;
        const char *const reasons[DECISIONS] = {
            why(o, o->tp + o->fn, "no positive"), why(o, o->tn + o->fp, "no negative"),
            why(o, o->tp + o->fp, "no image above the threshold"),
            why(o, o->tn + o->fn, "no image below the threshold"),
            why(o, o->tp + o->fp + o->fn, "no positive")};
        char counts[96] = "";
        chex_html_begin_row(to, r->scores->per_class[c].name);
        chex_html_number(to, "threshold", o->threshold, 4, NULL);
        for (int i = 0; i < DECISIONS; i++)
            chex_html_figure(to, &chex_operating_columns[i], &r->figures->per_class[c], reasons[i]);
        if (!isnan(o->threshold))
            snprintf(counts, sizeof counts, "%zu / %zu / %zu / %zu", o->tp, o->fp, o->tn, o->fn);
        chex_html_text(to, counts_name, counts);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

static bool has_prevalence(const struct chex_report *r) {
    for (int c = 0; c < r->scores->classes; c++)
        if (!isnan(r->figures->per_class[c].operating.prevalence))
            return true;
    return false;
}

static void put_prevalence(FILE *to, const struct chex_report *r) {
    chex_html_open_table(to, "stack",
                         "Predictive values at another share of positives, with 95 % intervals");
    chex_html_heading(to, "share here");
    chex_html_heading(to, "stated prevalence");
    chex_html_headings(to, &chex_operating_columns[DECISIONS], CHEX_OPERATING_COLUMNS - DECISIONS);
    chex_html_open_rows(to);
    for (int c = 0; c < r->scores->classes; c++) {
        const struct chex_class_figures *f = &r->figures->per_class[c];
        const char *reason = isnan(f->operating.threshold)    ? "no threshold"
                             : isnan(f->operating.prevalence) ? "no prevalence stated"
                                                              : "sensitivity or specificity "
                                                                "undefined";
        chex_html_begin_row(to, r->scores->per_class[c].name);
        chex_html_number(to, "share here", f->positive_share, 4, "no image");
        chex_html_number(to, "stated prevalence", f->operating.prevalence, 4, NULL);
        for (int i = DECISIONS; i < CHEX_OPERATING_COLUMNS; i++)
            chex_html_figure(to, &chex_operating_columns[i], f, reason);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

enum chex_status chex_html_operating(FILE *to, const struct chex_report *r,
                                     struct chex_error *err) {
    (void)err;
    put_origin(to, &r->figures->config);
    put_decisions(to, r);
    chex_html_note(
        to, "An image is called positive if its probability is at least the threshold. "
            "PPV: share of true ones among positive calls. NPV: share of true ones "
            "among negative calls. Both hold for the share of positives in this set "
            "and change with it. Without an interval: too few patients, or none was asked for.");
    if (r->figures->calibrated)
        chex_html_note(to, "Thresholds are those of the calibrated probabilities.");
    if (has_prevalence(r))
        put_prevalence(to, r);
    return CHEX_OK;
}
