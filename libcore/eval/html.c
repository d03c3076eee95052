/* SPDX-License-Identifier: Apache-2.0
 *
 * report.html: one file that opens anywhere, years later and without a network.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
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
    "main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}\n"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}\n"
    "p{margin:.3rem 0}.mut{color:var(--mut)}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:12px;margin:18px 0}\n"
    ".card{background:var(--soft);border:1px solid var(--line);border-radius:8px;padding:10px "
    "16px}\n"
    ".card b{display:block;font-size:1.6rem;line-height:1.25}.card.main b{color:var(--acc)}\n"
    ".wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 12px;text-align:right;border-bottom:1px solid var(--line);"
    "white-space:nowrap}\n"
    "th{font-weight:600;color:var(--mut);font-size:.85rem}td:first-child,th:first-child{"
    "text-align:left}tbody th{color:var(--fg);font-size:1rem;font-weight:400}\n"
    "tfoot th,tfoot td{font-weight:600;color:var(--fg);font-size:1rem;border-bottom:0}\n"
    ".bar line{stroke:var(--acc);stroke-width:3}.bar circle{fill:var(--acc)}"
    ".bar .ax{stroke:var(--line);stroke-width:1}.bar path{fill:none;stroke:var(--pub);"
    "stroke-width:2}\n"
    /* Panels that can still be read, two or more in a row: two on a phone, five on a wide page. */
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

enum { BAR_W = 220, BAR_H = 18 };

struct page {
    FILE *to;
    const struct chex_report *r;
    double low; /* left end of the bars' scale; the right end is 1 */
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
    return 4 + (v - p->low) / (1 - p->low) * (BAR_W - 8);
}

/* Interval, value, published value and a line at one half. */
static void put_bar(const struct page *p, double value, const struct chex_interval *i,
                    double other) {
    FILE *to = p->to;
    fprintf(to, "<svg class=\"bar\" width=\"%d\" height=\"%d\" aria-hidden=\"true\">", BAR_W,
            BAR_H);
    fprintf(to, "<line class=\"ax\" x1=\"0\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>", BAR_W, BAR_H / 2,
            BAR_H / 2);
    fprintf(to, "<line class=\"ax\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\"/>", at(p, 0.5),
            at(p, 0.5), BAR_H);
    if (!isnan(i->low))
        fprintf(to, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", at(p, i->low),
                at(p, i->high), BAR_H / 2, BAR_H / 2);
    if (!isnan(value))
        fprintf(to, "<circle r=\"4.5\" cx=\"%.1f\" cy=\"%d\"/>", at(p, value), BAR_H / 2);
    if (!isnan(other))
        fprintf(to, "<path d=\"M%.1f 2v%d\"/>", at(p, other), BAR_H - 4);
    fputs("</svg>", to);
}

static void put_row(const struct page *p, const char *name, const char *positives, double auroc,
                    double se, const struct chex_interval *i, double other) {
    FILE *to = p->to;
    fputs("<tr><th scope=\"row\">", to);
    chex_put_xml(to, name);
    fprintf(to, "</th><td>%s</td><td>", positives);
    if (isnan(auroc))
        fputs("undefined", to);
    else
        put_number(to, auroc, 4);
    fputs("</td><td>", to);
    if (!isnan(i->low)) {
        put_number(to, i->low, 3);
        fputs(" to ", to);
        put_number(to, i->high, 3);
    } else {
        fputs("&#8211;", to);
    }
    fputs("</td><td>", to);
    put_bar(p, auroc, i, other);
    fputs("</td><td>", to);
    put_number(to, se, 4);
    fputs("</td>", to);
    if (p->r->published) {
        fputs("<td>", to);
        put_number(to, other, 4);
        fputs("</td>", to);
    }
    fputs("</tr>\n", to);
}

static void put_table(const struct page *p) {
    const struct chex_scores *s = p->r->scores;
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    fputs("<h2>AUROC by class</h2>\n<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">class"
          "</th><th scope=\"col\">positives</th><th scope=\"col\">AUROC</th><th scope=\"col\">95 % "
          "interval</th>",
          to);
    fprintf(to, "<th scope=\"col\">scale %g to 1</th><th scope=\"col\">DeLong s.e.</th>", p->low);
    if (pub) {
        fputs("<th scope=\"col\">", to);
        chex_put_xml(to, pub->source[pub->headline].name);
        fputs("</th>", to);
    }
    fputs("</tr></thead>\n<tbody>\n", to);
    for (int c = 0; c < s->classes; c++) {
        const struct chex_class_score *k = &s->per_class[c];
        char positives[32];
        snprintf(positives, sizeof positives, "%zu", k->positives);
        put_row(p, k->name, positives, k->auroc, k->delong_se, &k->interval,
                pub ? chex_published_auroc(pub, pub->headline, k->name) : NAN);
    }
    char mean[48];
    snprintf(mean, sizeof mean, "mean of %d of %d", s->defined, s->classes);
    fputs("</tbody>\n<tfoot>\n", to);
    put_row(p, mean, "", s->mean, NAN, &s->mean_interval, chex_report_shared_mean(p->r).published);
    fputs("</tfoot></table></div>\n", to);
    if (s->defined < s->classes)
        fputs("<p class=\"mut\">Undefined: no positive or no negative image; left out of the "
              "mean.</p>\n",
              to);
    if (s->config.replicates)
        fprintf(
            to,
            "<p class=\"mut\">Intervals: percentiles of %zu bootstrap replicates by %s. DeLong's "
            "standard error takes images as independent.</p>\n",
            s->config.replicates, chex_cluster_names[s->config.cluster]);
}

static void put_note(const struct page *p, const struct chex_published_source *s) {
    fputs("<p class=\"mut\">Upright mark: ", p->to);
    chex_put_xml(p->to, s->source[0] ? s->source : s->name);
    fputs("; split: ", p->to);
    chex_put_xml(p->to, s->split[0] ? s->split : "not stated");
    fputs(". ", p->to);
    if (chex_report_shares_fewer(p->r)) {
        const struct chex_report_shared m = chex_report_shared_mean(p->r);
        fprintf(p->to, "Mean of the %d class%s that both have; over %s ours is %.4f. ", m.classes,
                m.classes == 1 ? "" : "es", m.classes == 1 ? "it" : "them", m.ours);
    }
    fputs("AUROCs of different splits do not compare.</p>\n", p->to);
}

/* All sources of the comparison, with the split of each. */
static void put_published(const struct page *p) {
    const struct chex_published *pub = p->r->published;
    FILE *to = p->to;
    put_note(p, &pub->source[pub->headline]);
    fprintf(to, "<details><summary>All %d column%s of the comparison and their splits</summary>\n",
            pub->sources, pub->sources == 1 ? "" : "s");
    fputs("<div class=\"wide\"><table><thead><tr><th scope=\"col\">column</th><th scope=\"col\">"
          "source</th><th scope=\"col\">split</th>",
          to);
    for (int c = 0; c < pub->classes; c++) {
        fputs("<th scope=\"col\">", to);
        chex_put_xml(to, pub->class_names[c]);
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
    fputs("</p>\n<div class=\"cards\">\n", p->to);
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
    /* json_object_foreach wants a mutable object; nothing is changed. */
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
    fputs("<p class=\"mut\">Labels are mined from reports; AUROC tells how well the network orders "
          "images by these labels, not how well it reads them.</p>\n</main>\n</body>\n</html>\n",
          to);
    return CHEX_OK;
}
