/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables and notes of report.html.
 */
#include <math.h>

#include "base/textfile.h"
#include "report/html.h"

void chex_html_begin_table(FILE *to, const char *kind, const char *caption,
                           const char *const *headings, size_t count) {
    fprintf(to, "<div class=\"wide\"><table class=\"%s\">\n<caption>%s</caption>\n<thead><tr>",
            kind, caption);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "<th scope=\"col\">%s</th>", headings[i]);
    fputs("</tr></thead>\n<tbody>\n", to);
}

void chex_html_end_table(FILE *to) { fputs("</tbody></table></div>\n", to); }

void chex_html_begin_row(FILE *to, const char *name) {
    fputs("<tr><th scope=\"row\">", to);
    chex_put_xml_name(to, name);
    fputs("</th>", to);
}

static void begin_cell(FILE *to, const char *label) { fprintf(to, "<td data-l=\"%s\">", label); }

void chex_html_put_number(FILE *to, double v, int digits) {
    if (isnan(v))
        fputs("&#8211;", to);
    else
        fprintf(to, "%.*f", digits, v);
}

static void put_value(FILE *to, double v, int digits, const char *why) {
    chex_html_put_number(to, v, digits);
    if (isnan(v) && why)
        fprintf(to, " <span class=\"ci\">%s</span>", why);
}

void chex_html_text(FILE *to, const char *label, const char *text) {
    begin_cell(to, label);
    chex_put_xml(to, text);
    fputs("</td>", to);
}

void chex_html_number(FILE *to, const char *label, double v, int digits, const char *why) {
    begin_cell(to, label);
    put_value(to, v, digits, why);
    fputs("</td>", to);
}

/* An interval that is thousands wide says that nothing is known; its digits would only widen the
 * table. */
static void put_interval(FILE *to, const struct chex_interval *i, int digits) {
    const bool huge = fmax(fabs(i->low), fabs(i->high)) >= 1000;
    fprintf(to,
            huge ? " <span class=\"ci\">%.*g to %.*g</span>"
                 : " <span class=\"ci\">%.*f to %.*f</span>",
            huge ? 1 : digits, i->low, huge ? 1 : digits, i->high);
}

void chex_html_figure(FILE *to, const char *label, const struct chex_figure *f, int digits,
                      const char *why) {
    begin_cell(to, label);
    put_value(to, f->value, digits, why);
    if (!isnan(f->interval.low))
        put_interval(to, &f->interval, digits);
    fputs("</td>", to);
}

void chex_html_note(FILE *to, const char *text) { fprintf(to, "<p class=\"mut\">%s</p>\n", text); }
