/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration in report.html: the reliability diagrams and the table of figures.
 */
#include <string.h>

#include "base/textfile.h"
#include "report/figures_text.h"
#include "report/html.h"

static void put_table(FILE *to, const struct chex_report *r) {
    chex_html_open_table(to, "stack", "Calibration of each finding, with 95 % intervals");
    chex_html_headings(to, &chex_class_columns[1], CHEX_CLASS_COLUMNS - 1); /* after the AP */
    chex_html_heading(to, "ECE if calibrated");
    chex_html_open_rows(to);
    for (int c = 0; c < r->scores->classes; c++) {
        const struct chex_class_figures *f = &r->figures->per_class[c];
        const struct chex_class_score *s = &r->scores->per_class[c];
        const char *reason = !s->positives   ? "no positive"
                             : !s->negatives ? "no negative"
                                             : "not fitted";
        chex_html_begin_row(to, s->name);
        for (int i = 1; i < CHEX_CLASS_COLUMNS; i++) {
            const bool fitted = strncmp(chex_class_columns[i].key, "calibration_", 12) == 0;
            chex_html_figure(to, &chex_class_columns[i], f,
                             fitted || s->positives || s->negatives ? reason : "no image");
        }
        chex_html_number(to, "ECE if calibrated", f->calibration.ece_expected, 4, NULL);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

enum chex_status chex_html_calibration(FILE *to, const struct chex_report *r,
                                       struct chex_error *err) {
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
    CHEX_TRY(chex_svg_reliability(to, r, err));
    put_table(to, r);
    chex_html_note(to, "A calibrated network has slope 1 and intercept 0. A slope below 1: "
                       "probabilities are too extreme. An intercept in the large above 0: they "
                       "are too low on average. ECE is the mean distance from the diagonal; even "
                       "a calibrated network has the value of the last column. Brier score: mean "
                       "squared error of the probability. Without an interval: too few patients, a "
                       "figure that a single patient decides, or none was asked for.");
    return CHEX_OK;
}
