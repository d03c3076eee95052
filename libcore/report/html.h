/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of report.html. html.c has the page and the list of its sections; each section is a file
 * html_*.c. The page is well-formed XML, so that programs can read it.
 *
 * All text from data goes through chex_put_xml or chex_put_xml_name. Write errors: ferror(to).
 */
#ifndef CHEX_REPORT_HTML_H
#define CHEX_REPORT_HTML_H

#include <stdbool.h>
#include <stdio.h>

#include "report/report.h"
#include "report/table.h"

/* One section of the page. It has a heading of level 2 and a line in the table of contents. */
struct chex_html_section {
    const char *id, *title;
    bool (*is_there)(const struct chex_report *r); /* NULL: always */
    chex_report_put_fn *put;
};

/* The page from its start to a paragraph with the title, and its end. */
void chex_html_open_page(FILE *to, const char *kind, const char *title, const char *heading);
void chex_html_close_page(FILE *to);

/* ---- tables ---- */

/* Opens a table with a caption and the heading "finding", for more headings. kind: its class;
 * "stack" makes a block of each row on a narrow page. */
void chex_html_open_table(FILE *to, const char *kind, const char *caption);
void chex_html_heading(FILE *to, const char *text);
void chex_html_headings(FILE *to, const struct chex_column *columns, size_t count);
/* Ends the headings. */
void chex_html_open_rows(FILE *to);

/* All of that for these headings alone. */
void chex_html_begin_table(FILE *to, const char *kind, const char *caption,
                           const char *const *headings, size_t count);
void chex_html_end_table(FILE *to);

/* Opens a row with the name of a class; the caller closes it with "</tr>\n". */
void chex_html_begin_row(FILE *to, const char *name);

/* A cell of text, of a number or of a figure with its interval. label: names the cell on a narrow
 * page, where the table has no head. why: the reason if the value is undefined, shown after a dash.
 */
void chex_html_text(FILE *to, const char *label, const char *text);
void chex_html_number(FILE *to, const char *label, double v, int digits, const char *why);
void chex_html_figure(FILE *to, const struct chex_column *column, const void *row, const char *why);

/* Parts of a cell, which the caller closes with "</td>": a number, or a dash if it is undefined; a
 * remark in small letters; the interval as such a remark, if there is one. */
void chex_html_begin_cell(FILE *to, const char *label);
void chex_html_put_number(FILE *to, double v, int digits);
void chex_html_aside(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void chex_html_put_interval(FILE *to, const struct chex_interval *i, int digits);

/* A paragraph of fixed text, in the colour of notes. */
void chex_html_note(FILE *to, const char *text);

/* ---- sections ---- */

chex_report_put_fn chex_html_summary, chex_html_auroc, chex_html_operating, chex_html_calibration,
    chex_html_subgroups, chex_html_shortcuts, chex_html_cases, chex_html_provenance,
    chex_html_command;

#endif
