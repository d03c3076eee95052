/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables and notes of report.html.
 */
#include <math.h>
#include <stdarg.h>

#include "base/textfile.h"
#include "report/html.h"

static void open_table(FILE *to, const char *kind, const char *caption) {
    fprintf(to, "<div class=\"wide\"><table class=\"%s\">\n<caption>%s</caption>\n<thead><tr>",
            kind, caption);
}

void chex_html_open_table(FILE *to, const char *kind, const char *caption) {
    open_table(to, kind, caption);
    chex_html_heading(to, "finding");
}

void chex_html_heading(FILE *to, const char *text) {
    chex_put_xml_between(to, "<th scope=\"col\">", text, "</th>");
}

void chex_html_headings(FILE *to, const struct chex_column *columns, size_t count) {
    for (size_t i = 0; i < count; i++)
        chex_html_heading(to, columns[i].heading);
}

void chex_html_open_rows(FILE *to) { fputs("</tr></thead>\n<tbody>\n", to); }

void chex_html_begin_table(FILE *to, const char *kind, const char *caption,
                           const char *const *headings, size_t count) {
    open_table(to, kind, caption);
    for (size_t i = 0; i < count; i++)
        chex_html_heading(to, headings[i]);
    chex_html_open_rows(to);
}

void chex_html_end_table(FILE *to) { fputs("</tbody></table></div>\n", to); }

void chex_html_begin_row(FILE *to, const char *name) {
    chex_put_name_between(to, "<tr><th scope=\"row\">", name, "</th>");
}

void chex_html_begin_cell(FILE *to, const char *label) {
    chex_put_xml_between(to, "<td data-l=\"", label, "\">");
}

void chex_html_put_number(FILE *to, double v, int digits) {
    if (isnan(v))
        fputs("&#8211;", to);
    else
        fprintf(to, "%.*f", digits, v);
}

void chex_html_aside(FILE *to, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fputs(" <span class=\"ci\">", to);
    vfprintf(to, fmt, args);
    fputs("</span>", to);
    va_end(args);
}

/* An interval that is thousands wide says that nothing is known; its digits would only widen the
 * table. */
void chex_html_put_interval(FILE *to, const struct chex_interval *i, int digits) {
    const bool huge = fmax(fabs(i->low), fabs(i->high)) >= 1000;
    if (!isnan(i->low))
        chex_html_aside(to, huge ? "%.*g to %.*g" : "%.*f to %.*f", huge ? 1 : digits, i->low,
                        huge ? 1 : digits, i->high);
}

void chex_html_text(FILE *to, const char *label, const char *text) {
    chex_html_begin_cell(to, label);
    chex_put_xml(to, text);
    fputs("</td>", to);
}

void chex_html_number(FILE *to, const char *label, double v, int digits, const char *why) {
    chex_html_begin_cell(to, label);
    chex_html_put_number(to, v, digits);
    if (isnan(v) && why)
        chex_html_aside(to, "%s", why);
    fputs("</td>", to);
}

void chex_html_figure(FILE *to, const struct chex_column *column, const void *row,
                      const char *why) {
    const struct chex_figure *f = chex_column_figure(column, row);
    chex_html_begin_cell(to, column->heading);
    chex_html_put_number(to, f->value, column->digits);
    if (isnan(f->value))
        chex_html_aside(to, "%s", why);
    chex_html_put_interval(to, &f->interval, column->digits);
    fputs("</td>", to);
}

void chex_html_note(FILE *to, const char *text) { fprintf(to, "<p class=\"mut\">%s</p>\n", text); }
