/* SPDX-License-Identifier: Apache-2.0
 *
 * report.html: one file that any browser opens, without a network and years later.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "eval/delong.h"
#include "eval/report.h"
#include "eval/textfile.h"

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark;--fg:#1c2733;--mut:#5b6875;--line:#d5dce3;--bg:#fff;"
    "--soft:#f4f6f8;--acc:#0b62c4;--pub:#b4540a}\n"
    "@media (prefers-color-scheme:dark){:root{--fg:#e6edf3;--mut:#9aa7b4;--line:#2d3742;"
    "--bg:#10161d;--soft:#18212b;--acc:#6fb1ff;--pub:#f0a35e}}\n"
    "body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,"
    "'Segoe UI','DejaVu Sans',sans-serif}\n"
    "main{max-width:1160px;margin:0 auto;padding:28px 20px 60px}\n"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}\n"
    "p{margin:.3rem 0}.mut{color:var(--mut)}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0}\n"
    ".card{background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:10px "
    "16px}\n"
    ".card b{display:block;font-size:1.6rem;line-height:1.25}.card.main b{color:var(--acc)}\n"
    ".wide{overflow-x:auto}.warn{border-left:4px solid var(--pub);padding-left:10px}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 9px;text-align:right;border-bottom:1px solid var(--line);"
    "white-space:nowrap}\n"
    "th{font-weight:600;color:var(--mut);font-size:.85rem;vertical-align:bottom}td:first-child,"
    "th:first-child{text-align:left}tbody "
    "th{color:var(--fg);font-size:1rem;font-weight:400;white-space:normal}\n"
    "tfoot th,tfoot td{font-weight:600;color:var(--fg);font-size:1rem;border-bottom:0}\n"
    ".bar svg{display:block}.bar line{stroke:var(--acc);stroke-width:3}.bar circle{"
    "fill:var(--acc)}.bar .ax{stroke:var(--line);stroke-width:1}.bar path{fill:none;"
    "stroke:var(--pub);stroke-width:2}.bar text{fill:var(--mut)}\n"
    /* Phones: one block per class, with the name and the AUROC first. */
    "@media (max-width:760px){.scores,.scores thead,.scores tbody,.scores tfoot{display:block}"
    ".scores thead th{display:none}.scores tr{display:flex;flex-wrap:wrap;align-items:baseline;"
    "gap:0 14px;padding:8px 0;border-bottom:1px solid var(--line)}.scores th,.scores td{padding:0;"
    "border:0;font-size:.9rem;white-space:normal}.scores th{flex:1 1 55%;font-size:1rem}"
    ".scores thead th.bar{display:block;flex:1 1 100%}.scores thead svg{margin-left:auto}"
    ".scores .auc{font-size:1.1rem;font-weight:600}.scores .ci{order:1;flex:1 1 120px;"
    "text-align:left}.scores td.bar{order:2;align-self:center}.scores .pos,.scores .pat,"
    ".scores .se,.scores .pub{order:3;color:var(--mut);font-weight:400;font-size:.85rem}"
    ".scores td[data-l]::before{content:attr(data-l) ' '}.scores td:empty{display:none}"
    ".bar svg{width:170px}main{padding:20px 14px 40px}dl{display:block!important}"
    "dd{margin:0 0 .5rem!important}}\n"
    /* Readable panels: two per row on a phone, up to five on a wide page. */
    ".cxs{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(175px,45%),1fr));"
    "padding:8px;border:1px solid var(--line);border-radius:8px}.cxs svg{width:100%;height:auto;"
    "overflow:visible}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:2px "
    "18px;margin:0}dt{color:var(--mut)}"
    "dd{margin:0;overflow-wrap:anywhere}\n"
    "summary{cursor:pointer;margin:.8rem "
    "0}td.l{text-align:left;white-space:normal;min-width:15em}\n"
    "@media print{main{max-width:none}.card,.cxs svg{break-inside:avoid}}\n"
    "</style>\n";

enum { BAR_W = 220, BAR_H = 18, AXIS_H = 16 };

struct page {
    FILE *to;
    const struct chex_report *r;
    double low; /* left end of the scale of the interval bars; the right end is 1 */
};

static void put_number(FILE *to, double v, int digits) {
    if (isnan(v))
        fputs("&#8211;", to);
    else
        fprintf(to, "%.*f", digits, v);
}

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
                "<text fill=\"#5b6875\" font-size=\"11\" text-anchor=\"middle\" x=\"%.1f\" "
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
        put_number(to, r->interval->low, 3);
        fputs(" to ", to);
        put_number(to, r->interval->high, 3);
    } else {
        fputs(r->too_few && p->r->scores->config.replicates ? "too few" : "&#8211;", to);
    }
}

static void put_row(const struct page *p, const struct row *r) {
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    fputs("<tr><th scope=\"row\">", to);
    chex_report_put_name(to, r->name);
    fputs("</th>", to);
    put_counts(p, r);
    begin_cell(to, "auc", NULL);
    if (isnan(r->auroc))
        fputs("undefined", to);
    else
        put_number(to, r->auroc, 4);
    begin_cell(to, "ci", NULL);
    put_interval(p, r);
    begin_cell(to, "bar", NULL);
    put_bar(p, r->auroc, r->interval, r->other);
    begin_cell(to, "se", r->counts ? "s.e." : NULL);
    if (r->counts)
        put_number(to, r->se, 4);
    if (pub) {
        begin_cell(to, "pub", published_name(pub));
        put_number(to, r->other, 4);
    }
    fputs("</td></tr>\n", to);
}

static void put_interval_notes(const struct chex_scores *s, FILE *to) {
    char method[100];
    if (!s->config.replicates)
        return;
    chex_report_method(s, method, sizeof method);
    fprintf(to, "<p class=\"mut\">Intervals: %s.</p>\n", method);
    if (s->too_few)
        fprintf(
            to,
            "<p class=\"mut\">Too few: positives or negatives of fewer than %d %ss. There is no "
            "interval, nor for the mean.</p>\n",
            CHEX_DELONG_MIN_CLUSTERS, chex_cluster_names[s->config.cluster]);
    for (int c = 0; c < s->classes; c++)
        if (!isnan(s->per_class[c].auroc) && s->per_class[c].interval.undefined) {
            fputs("<p class=\"mut\">", to);
            chex_report_put_name(to, s->per_class[c].name);
            fprintf(to, ": %zu of %zu replicates had no positive or no negative.</p>\n",
                    s->per_class[c].interval.undefined, s->config.replicates);
        }
}

static void put_table_head(const struct page *p) {
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    fprintf(to,
            "<h2>AUROC by class</h2>\n<div class=\"wide\"><table class=\"scores\">\n<thead><tr><th "
            "scope=\"col\">class"
            "</th><th scope=\"col\">positives</th>%s<th scope=\"col\">AUROC</th><th scope=\"col\">"
            "95 %% interval</th><th scope=\"col\" class=\"bar\">",
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
        fprintf(p->to, "Mean of the %d class%s that both have; over %s ours is %.4f. ", m.classes,
                m.classes == 1 ? "" : "es", m.classes == 1 ? "it" : "them", m.ours);
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
    fputs("<div class=\"wide\"><table><thead><tr><th scope=\"col\">column</th><th scope=\"col\">"
          "source</th><th scope=\"col\">split</th>",
          to);
    for (int c = 0; c < pub->classes; c++) {
        fputs("<th scope=\"col\">", to);
        chex_report_put_name(to, pub->class_names[c]);
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
            put_number(to, s->auroc[c], 4);
            fputs("</td>", to);
        }
        fputs("</tr>\n", to);
    }
    fputs("</tbody></table></div></details>\n", to);
}

static void put_card(FILE *to, const char *kind, const char *value, const char *what) {
    fprintf(to, "<div class=\"card%s\"><b>%s</b>", kind, value);
    chex_put_xml(to, what);
    fputs("</div>\n", to);
}

static void put_head(const struct page *p) {
    const struct chex_scores *s = p->r->scores;
    char value[48], what[96] = "mean AUROC";
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta "
          "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>AUROC: ",
          p->to);
    chex_put_xml(p->to, p->r->title);
    fprintf(p->to, "</title>\n%s</head>\n<body>\n<main>\n<h1>Chest X-ray findings, AUROC</h1>\n<p>",
            style);
    chex_put_xml(p->to, p->r->title);
    fputs("</p>\n<p class=\"warn\">For research. Not for clinical use.</p>\n<div "
          "class=\"cards\">\n",
          p->to);
    if (isnan(s->mean))
        snprintf(value, sizeof value, "undefined");
    else
        snprintf(value, sizeof value, "%.4f", s->mean);
    if (!isnan(s->mean_interval.low))
        snprintf(what, sizeof what, "mean AUROC, 95 %% interval %.3f to %.3f", s->mean_interval.low,
                 s->mean_interval.high);
    put_card(p->to, " main", value, what);
    snprintf(value, sizeof value, "%d of %d", s->defined, s->classes);
    put_card(p->to, "", value, "classes defined");
    snprintf(value, sizeof value, "%zu", s->table->rows);
    put_card(p->to, "", value, "images, each counted once");
    if (s->patients) {
        snprintf(value, sizeof value, "%zu", s->patients);
        put_card(p->to, "", value, "patients");
    }
    fputs("</div>\n", p->to);
}

static void put_provenance(const struct page *p) {
    const char *key;
    json_t *v;
    char when[40];
    fputs("<h2>Provenance</h2>\n<dl>\n", p->to);
    /* The cast is for json_object_foreach, which does not change the object. */
    json_object_foreach((json_t *)p->r->provenance, key, v) {
        fputs("<dt>", p->to);
        for (const char *c = key; *c; c++)
            putc(*c == '_' ? ' ' : *c, p->to);
        fputs("</dt><dd>", p->to);
        if (json_is_string(v))
            chex_put_xml(p->to, json_string_value(v));
        else if (json_is_integer(v))
            fprintf(p->to, "%lld", (long long)json_integer_value(v));
        else if (json_is_real(v))
            fprintf(p->to, "%.6g", json_real_value(v));
        else
            fputs("&#8211;", p->to);
        fputs("</dd>\n", p->to);
    }
    fprintf(p->to, "<dt>made by</dt><dd>chexnet %s, %s</dd>\n</dl>\n", CHEXNET_VERSION,
            chex_clock_iso8601(when, sizeof when, chex_clock_unix_s()));
}

/* A sentence on the origin of the labels, for the label formats of public data sets. */
static const char *origin_of_labels(const char *format) {
    static const struct {
        const char *format, *text;
    } known[] = {
        {"nih", "The labels of the NIH's set were mined from radiology reports by a program."},
        {"chexpert", "CheXpert's training labels were mined from radiology reports by a program."},
        {"mimic", "MIMIC-CXR's labels were mined from radiology reports by a program."},
        {"padchest", "Most of PadChest's labels were mined from radiology reports by a program."},
    };
    for (size_t i = 0; format && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(format, known[i].format) == 0)
            return known[i].text;
    return "";
}

static void put_labels_note(const struct page *p) {
    const char *format = json_string_value(json_object_get(p->r->provenance, "label_format"));
    const char *origin = origin_of_labels(format);
    fprintf(p->to,
            "<p class=\"mut\">%s%sAUROC says how well the network orders images by these labels, "
            "not whether the labels are right.</p>\n",
            origin, *origin ? " " : "");
}

enum chex_status chex_html_write(FILE *to, const struct chex_report *r, struct chex_error *err) {
    const struct page p = {to, r, left_end(r)};
    put_head(&p);
    put_table(&p);
    if (r->published)
        put_published(&p);
    fputs("<h2>ROC curves</h2>\n", to);
    CHEX_TRY(chex_svg_roc(to, r, false, err));
    if (chex_svg_are_probabilities(r->scores->table)) {
        fputs("<h2>Reliability</h2>\n<p class=\"mut\">Whether a predicted probability is one: the "
              "share of positive images among images with that prediction.</p>\n",
              to);
        CHEX_TRY(chex_svg_reliability(to, r, err));
    }
    put_provenance(&p);
    put_labels_note(&p);
    fputs("</main>\n</body>\n</html>\n", to);
    return CHEX_OK;
}
