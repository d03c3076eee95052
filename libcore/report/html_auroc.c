/* SPDX-License-Identifier: Apache-2.0
 *
 * The AUROC table of report.html, with a bar for each interval, and the published figures.
 */
#include <math.h>

#include "base/textfile.h"
#include "report/html.h"
#include "stats/delong.h"

enum { BAR_W = 220, BAR_H = 18, AXIS_H = 16 };

struct page {
    FILE *to;
    const struct chex_report *r;
    double low; /* left end of the scale of the interval bars; the right end is 1 */
};

static double left_end(const struct chex_report *r) {
    double low = 0.5;
    for (int c = 0; c < r->scores->classes; c++) {
        const struct chex_report_row row = chex_report_row(r, c);
        const double v = isnan(row.interval.low) ? row.auroc : row.interval.low;
        low = fmin(low, fmin(v, row.published)); /* fmin ignores NaN */
    }
    return floor(low * 10) / 10;
}

static double at(const struct page *p, double v) {
    return 12 + (v - p->low) / (1 - p->low) * (BAR_W - 24);
}

static void begin_bar(const struct page *p, int height) {
    fprintf(p->to, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" aria-hidden=\"true\">",
            BAR_W, height, BAR_W, height);
}

/* Distance between two ticks of the scale, in tenths. */
static int tick_step(const struct page *p) { return p->low < 0.45 ? 2 : 1; }

/* Writes the tick labels of the scale, in the head of the table. */
static void put_axis(const struct page *p) {
    begin_bar(p, AXIS_H);
    for (int tenths = 10; tenths >= (int)lround(p->low * 10); tenths -= tick_step(p))
        fprintf(p->to,
                "<text fill=\"#56626e\" font-size=\"13\" text-anchor=\"middle\" x=\"%.1f\" "
                "y=\"12\">%g</text>",
                at(p, tenths / 10.0), tenths / 10.0);
    fputs("</svg>", p->to);
}

/* Writes one bar: interval, value and published value, over the tick lines of the scale. */
static void put_bar(const struct page *p, const struct chex_report_row *r) {
    const struct chex_interval *i = &r->interval;
    FILE *to = p->to;
    begin_bar(p, BAR_H);
    for (int tenths = 10; tenths >= (int)lround(p->low * 10); tenths -= tick_step(p))
        fprintf(
            to,
            "<line class=\"ax\" stroke=\"#d5dce3\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\"/>",
            at(p, tenths / 10.0), at(p, tenths / 10.0), BAR_H);
    if (!isnan(i->low))
        fprintf(to,
                "<line stroke=\"#0b62c4\" stroke-width=\"3\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" "
                "y2=\"%d\"/>",
                at(p, i->low), at(p, i->high), BAR_H / 2, BAR_H / 2);
    if (!isnan(r->auroc))
        fprintf(to, "<circle fill=\"#0b62c4\" r=\"4.5\" cx=\"%.1f\" cy=\"%d\"/>", at(p, r->auroc),
                BAR_H / 2);
    if (!isnan(r->published))
        fprintf(to, "<path stroke=\"#b4540a\" stroke-width=\"2\" d=\"M%.1f 2v%d\"/>",
                at(p, r->published), BAR_H - 4);
    fputs("</svg>", to);
}

/* The heading of the last column. */
static const char *published_name(const struct chex_published *p) {
    return p->file ? "compared" : p->source[p->headline].name;
}

/* `label` names the cell on a phone, where the table has no head. */
static void begin_cell(FILE *to, const char *kind, const char *label) {
    fprintf(to, "</td><td class=\"%s\"", kind);
    if (label) {
        fputs(" data-l=\"", to);
        chex_put_xml(to, label);
        putc('"', to);
    }
    putc('>', to);
}

static void put_counts(const struct page *p, const struct chex_class_score *k) {
    fprintf(p->to, "<td class=\"pos\"%s>", k ? " data-l=\"positives\"" : "");
    if (k)
        fprintf(p->to, "%zu", k->positives);
    if (p->r->scores->patients) {
        begin_cell(p->to, "pat", k ? "patients" : NULL);
        if (k)
            fprintf(p->to, "%zu", k->positive_patients);
    }
}

/* c: a class, or the number of classes for the mean. */
static void put_row(const struct page *p, int c) {
    const struct chex_report_row r = chex_report_row(p->r, c);
    const struct chex_published *pub = p->r->published;
    const struct chex_scores *s = p->r->scores;
    FILE *to = p->to;
    char mean[48];
    snprintf(mean, sizeof mean, "mean of %d of %d", s->defined, s->classes);
    chex_html_begin_row(to, r.score ? r.score->name : mean);
    put_counts(p, r.score);
    begin_cell(to, "auc", NULL);
    if (isnan(r.auroc))
        fputs("undefined", to);
    else
        chex_html_put_number(to, r.auroc, 4);
    begin_cell(to, "ci", NULL);
    if (isnan(r.interval.low))
        fputs(r.too_few ? "too few" : "&#8211;", to);
    else
        fprintf(to, "%.3f to %.3f", r.interval.low, r.interval.high);
    begin_cell(to, "bar", NULL);
    put_bar(p, &r);
    begin_cell(to, "se", r.score ? "s.e." : NULL);
    if (r.score)
        chex_html_put_number(to, r.score->delong_se, 4);
    if (s->folds) {
        begin_cell(to, "pub", "within folds");
        fputs(chex_figure_format(r.within, false, mean, sizeof mean), to);
    }
    if (pub) {
        begin_cell(to, "pub", published_name(pub));
        chex_html_put_number(to, r.published, 4);
    }
    fputs("</td>", to);
    if (p->r->gains)
        chex_html_gain_cells(to, &p->r->gains->gain[c]);
    fputs("</tr>\n", to);
}

static void put_interval_notes(const struct chex_scores *s, FILE *to) {
    char method[100], sentence[CHEX_REPORT_METHODS_BYTES];
    if (!s->config.replicates)
        return;
    chex_report_method(s, method, sizeof method);
    chex_report_methods(s, sentence);
    fprintf(to, "<p class=\"mut\">Intervals: %s. For a methods section: %s</p>\n", method,
            sentence);
    if (s->too_few)
        fprintf(
            to,
            "<p class=\"mut\">Too few: positives or negatives of fewer than %d %ss. There is no "
            "interval, nor for the mean.</p>\n",
            CHEX_DELONG_MIN_CLUSTERS, chex_cluster_names[s->config.cluster]);
    for (int c = 0; c < s->classes; c++)
        if (!isnan(s->per_class[c].auroc) && s->per_class[c].interval.undefined) {
            fputs("<p class=\"mut\">", to);
            chex_put_xml_name(to, s->per_class[c].name);
            fprintf(to, ": %zu of %zu replicates had no positive or no negative.</p>\n",
                    s->per_class[c].interval.undefined, s->config.replicates);
        }
}

static void put_table_head(const struct page *p) {
    const struct chex_scores *s = p->r->scores;
    FILE *to = p->to;
    chex_html_open_table(to, "scores",
                         s->config.replicates ? "AUROC of each finding with its 95 % interval"
                                              : "AUROC of each finding");
    chex_html_heading(to, "positives");
    if (s->patients)
        chex_html_heading(to, "patients");
    chex_html_heading(to, "AUROC");
    chex_html_heading(to, "95 % interval");
    fputs("<th scope=\"col\" class=\"bar\">", to);
    put_axis(p);
    fputs("</th>", to);
    chex_html_heading(to, "DeLong s.e.");
    if (s->folds)
        chex_html_heading(to, "within folds");
    if (p->r->published)
        chex_html_heading(to, published_name(p->r->published));
    if (p->r->gains)
        chex_html_gain_headings(to);
    chex_html_open_rows(to);
}

static void put_table(const struct page *p) {
    const struct chex_scores *s = p->r->scores;
    FILE *to = p->to;
    put_table_head(p);
    for (int c = 0; c < s->classes; c++)
        put_row(p, c);
    fputs("</tbody>\n<tfoot>\n", to);
    put_row(p, s->classes);
    fputs("</tfoot></table></div>\n", to);
    if (s->defined < s->classes)
        chex_html_note(to, "Undefined: no positive or no negative image; left out of the mean.");
    if (s->folds)
        fprintf(to, "<p class=\"mut\">Within folds: %s.</p>\n", chex_report_folds);
    put_interval_notes(s, to);
    if (p->r->gains) {
        fputs("<pre>", to);
        chex_gains_print(to, p->r->gains);
        fputs("</pre>\n", to);
    }
}

static void put_note(const struct page *p) {
    fputs("<p class=\"mut\">Upright mark: ", p->to);
    chex_report_put_source(p->r, p->to, chex_put_xml);
    fputs(". ", p->to);
    if (chex_report_shares_fewer(p->r)) {
        const struct chex_report_shared m = chex_report_shared_mean(p->r);
        fprintf(p->to, "Mean of the %d finding%s that both have; over %s ours is %.4f. ", m.classes,
                m.classes == 1 ? "" : "s", m.classes == 1 ? "it" : "them", m.ours);
    }
    if (chex_report_rows(p->r) != CHEX_ROWS_SAME)
        fputs("AUROCs of different images are not comparable.", p->to);
    fputs("</p>\n", p->to);
}

/* Writes all sources of the comparison, with their splits. */
static void put_published(const struct page *p) {
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    put_note(p);
    fprintf(to, "<details><summary>All %d column%s of the comparison and their splits</summary>\n",
            pub->sources, pub->sources == 1 ? "" : "s");
    fputs("<div class=\"wide\"><table class=\"all\"><caption>Published figures: AUROC of each "
          "finding</caption><thead><tr><th scope=\"col\">column</th><th scope=\"col\">"
          "source</th><th scope=\"col\">split</th>",
          to);
    for (int c = 0; c < pub->classes; c++) {
        chex_put_name_between(to, "<th scope=\"col\">", pub->class_names[c], "</th>");
    }
    fputs("</tr></thead><tbody>\n", to);
    for (int i = 0; i < pub->sources; i++) {
        const struct chex_published_source *s = &pub->source[i];
        const char *const texts[] = {s->source, s->split[0] ? s->split : "not stated"};
        chex_put_xml_between(to, "<tr><th scope=\"row\">", s->name, "</th>");
        for (int k = 0; k < 2; k++) {
            chex_put_xml_between(to, "<td class=\"l\">", texts[k], "</td>");
        }
        for (int c = 0; c < pub->classes; c++) {
            fputs("<td>", to);
            chex_html_put_number(to, s->auroc[c], 4);
            fputs("</td>", to);
        }
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div></details>\n", to);
}

enum chex_status chex_html_auroc(FILE *to, const struct chex_report *r, struct chex_error *err) {
    const struct page p = {to, r, left_end(r)};
    (void)err;
    put_table(&p);
    if (r->published)
        put_published(&p);
    return CHEX_OK;
}
