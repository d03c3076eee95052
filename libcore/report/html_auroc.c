/* SPDX-License-Identifier: Apache-2.0
 *
 * The AUROC table of report.html, with a bar for each interval, and the published figures.
 */
#include <math.h>
#include <string.h>

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
        const struct chex_class_score *k = &r->scores->per_class[c];
        double v = isnan(k->interval.low) ? k->auroc : k->interval.low;
        if (!isnan(v))
            low = fmin(low, v);
        if (r->published) {
            v = chex_published_auroc(r->published, r->published->headline, k->name);
            if (!isnan(v))
                low = fmin(low, v);
        }
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
static void put_bar(const struct page *p, double value, const struct chex_interval *i,
                    double other) {
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
    if (!isnan(value))
        fprintf(to, "<circle fill=\"#0b62c4\" r=\"4.5\" cx=\"%.1f\" cy=\"%d\"/>", at(p, value),
                BAR_H / 2);
    if (!isnan(other))
        fprintf(to, "<path stroke=\"#b4540a\" stroke-width=\"2\" d=\"M%.1f 2v%d\"/>", at(p, other),
                BAR_H - 4);
    fputs("</svg>", to);
}

/* The heading of the last column. */
static const char *published_name(const struct chex_published *p) {
    return p->file ? "compared" : p->source[p->headline].name;
}

struct row {
    const char *name;
    double auroc, se, other;
    const struct chex_interval *interval;
    size_t positives, patients;
    bool counts; /* the row has positives and patients; the row of the mean has not */
    bool too_few;
};

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

static void put_counts(const struct page *p, const struct row *r) {
    fprintf(p->to, "<td class=\"pos\"%s>", r->counts ? " data-l=\"positives\"" : "");
    if (r->counts)
        fprintf(p->to, "%zu", r->positives);
    if (p->r->scores->patients) {
        begin_cell(p->to, "pat", r->counts ? "patients" : NULL);
        if (r->counts)
            fprintf(p->to, "%zu", r->patients);
    }
}

static void put_interval(const struct page *p, const struct row *r) {
    FILE *to = p->to;
    if (!isnan(r->interval->low)) {
        chex_html_put_number(to, r->interval->low, 3);
        fputs(" to ", to);
        chex_html_put_number(to, r->interval->high, 3);
    } else {
        fputs(r->too_few && p->r->scores->config.replicates ? "too few" : "&#8211;", to);
    }
}

static void put_row(const struct page *p, const struct row *r) {
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    fputs("<tr><th scope=\"row\">", to);
    chex_put_xml_name(to, r->name);
    fputs("</th>", to);
    put_counts(p, r);
    begin_cell(to, "auc", NULL);
    if (isnan(r->auroc))
        fputs("undefined", to);
    else
        chex_html_put_number(to, r->auroc, 4);
    begin_cell(to, "ci", NULL);
    put_interval(p, r);
    begin_cell(to, "bar", NULL);
    put_bar(p, r->auroc, r->interval, r->other);
    begin_cell(to, "se", r->counts ? "s.e." : NULL);
    if (r->counts)
        chex_html_put_number(to, r->se, 4);
    if (pub) {
        begin_cell(to, "pub", published_name(pub));
        chex_html_put_number(to, r->other, 4);
    }
    fputs("</td></tr>\n", to);
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
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    fprintf(
        to,
        "<div class=\"wide\"><table class=\"scores\">\n<caption>AUROC of each finding%s</caption>\n"
        "<thead><tr><th scope=\"col\">finding</th><th scope=\"col\">positives</th>%s<th "
        "scope=\"col\">AUROC</th><th scope=\"col\">95 %% interval</th><th scope=\"col\" "
        "class=\"bar\">",
        p->r->scores->config.replicates ? " with its 95 % interval" : "",
        p->r->scores->patients ? "<th scope=\"col\">patients</th>" : "");
    put_axis(p);
    fputs("</th><th scope=\"col\">DeLong s.e.</th>", to);
    if (pub) {
        fputs("<th scope=\"col\">", to);
        chex_put_xml(to, published_name(pub));
        fputs("</th>", to);
    }
    fputs("</tr></thead>\n<tbody>\n", to);
}

static void put_table(const struct page *p) {
    const struct chex_scores *s = p->r->scores;
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    put_table_head(p);
    for (int c = 0; c < s->classes; c++) {
        const struct chex_class_score *k = &s->per_class[c];
        put_row(
            p, &(struct row){.name = k->name,
                             .auroc = k->auroc,
                             .se = k->delong_se,
                             .other = pub ? chex_published_auroc(pub, pub->headline, k->name) : NAN,
                             .interval = &k->interval,
                             .positives = k->positives,
                             .patients = k->positive_patients,
                             .counts = true,
                             .too_few = k->too_few});
    }
    char mean[48];
    snprintf(mean, sizeof mean, "mean of %d of %d", s->defined, s->classes);
    fputs("</tbody>\n<tfoot>\n", to);
    put_row(p, &(struct row){.name = mean,
                             .auroc = s->mean,
                             .other = chex_report_shared_mean(p->r).published,
                             .interval = &s->mean_interval,
                             .too_few = s->too_few > 0});
    fputs("</tfoot></table></div>\n", to);
    if (s->defined < s->classes)
        fputs("<p class=\"mut\">Undefined: no positive or no negative image; left out of the "
              "mean.</p>\n",
              to);
    put_interval_notes(s, to);
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
        fputs("<th scope=\"col\">", to);
        chex_put_xml_name(to, pub->class_names[c]);
        fputs("</th>", to);
    }
    fputs("</tr></thead><tbody>\n", to);
    for (int i = 0; i < pub->sources; i++) {
        const struct chex_published_source *s = &pub->source[i];
        fputs("<tr><th scope=\"row\">", to);
        chex_put_xml(to, s->name);
        fputs("</th><td class=\"l\">", to);
        chex_put_xml(to, s->source);
        fputs("</td><td class=\"l\">", to);
        chex_put_xml(to, s->split[0] ? s->split : "not stated");
        fputs("</td>", to);
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
