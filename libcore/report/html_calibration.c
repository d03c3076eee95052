/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration in report.html: the reliability diagrams and the table of figures.
 */
#include "base/textfile.h"
#include "report/html.h"

static void put_table(FILE *to, const struct chex_report *r) {
    static const char *const headings[] = {
        "finding", "Brier score", "slope", "intercept", "in the large", "ECE", "ECE if calibrated"};
    chex_html_begin_table(to, "stack", "Calibration of each finding, with 95 % intervals", headings,
                          sizeof headings / sizeof headings[0]);
    for (int c = 0; c < r->scores->classes; c++) {
        const struct chex_calibration_figures *k = &r->figures->per_class[c].calibration;
        const struct chex_class_score *s = &r->scores->per_class[c];
        const char *reason = !s->positives   ? "no positive"
                             : !s->negatives ? "no negative"
                                             : "not fitted";
        chex_html_begin_row(to, s->name);
        chex_html_figure(to, "Brier score", &k->brier, 4, "no image");
        chex_html_figure(to, "slope", &k->slope, 2, reason);
        chex_html_figure(to, "intercept", &k->intercept, 2, reason);
        chex_html_figure(to, "in the large", &k->in_the_large, 2, reason);
        chex_html_figure(to, "ECE", &k->ece, 4, "no image");
        chex_html_number(to, "ECE if calibrated", k->ece_expected, 4, NULL);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

enum chex_status chex_html_calibration(FILE *to, const struct chex_report *r,
                                       struct chex_error *err) {
    (void)err;
    chex_html_note(to, "Whether a predicted probability is one: the share of positive images "
                       "among images with that prediction.");
    if (r->figures->calibrated) {
        fputs("<p class=\"mut\">Of the calibrated probabilities", to);
        if (r->figures->config.recalibration) {
            fputs(" (", to);
            chex_put_xml(to, r->figures->config.recalibration);
            putc(')', to);
        }
        fputs(".</p>\n", to);
    }
    chex_svg_reliability(to, r);
    put_table(to, r);
    chex_html_note(to, "A calibrated network has slope 1 and intercept 0. A slope below 1: "
                       "probabilities are too extreme. An intercept in the large above 0: they "
                       "are too low on average. ECE is the mean distance from the diagonal; even "
                       "a calibrated network has the value of the last column. Brier score: mean "
                       "squared error of the probability. Without an interval: too few patients, a "
                       "figure that a single patient decides, or none was asked for.");
    return CHEX_OK;
}
