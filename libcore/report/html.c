/* SPDX-License-Identifier: Apache-2.0
 *
 * report.html: one file that any browser opens, without a network and years later. This file has
 * the page and the list of its sections.
 */
#include "report/html.h"

#include "base/textfile.h"

/* report.css. libcore/CMakeLists.txt compiles it in. */
extern const unsigned char chex_report_css[];
extern const unsigned long chex_report_css_bytes;

static bool has_figures(const struct chex_report *r) { return r->figures; }
static bool has_probabilities(const struct chex_report *r) {
    return r->figures && r->figures->probabilities;
}
static bool has_thresholds(const struct chex_report *r) {
    return r->figures && r->figures->config.source != CHEX_THRESHOLD_NONE;
}
static bool has_subgroups(const struct chex_report *r) {
    return r->subgroups && r->subgroups->count > 0;
}
static bool has_shortcuts(const struct chex_report *r) {
    for (int a = 0; r->shortcuts && a < CHEX_SHORTCUT_COUNT; a++)
        if (r->shortcuts->attribute[a].known)
            return true;
    return false;
}
static bool has_cases(const struct chex_report *r) { return r->cases; }
static bool has_command(const struct chex_report *r) { return r->command; }

static enum chex_status put_roc(FILE *to, const struct chex_report *r, struct chex_error *err) {
    return chex_svg_roc(to, r, false, err);
}

/* In the order of the page. */
static const struct chex_html_section sections[] = {
    {"summary", "Summary", NULL, chex_html_summary},
    {"auroc", "AUROC by finding", NULL, chex_html_auroc},
    {"roc", "ROC curves", NULL, put_roc},
    {"precision-recall", "Precision and recall", has_figures, chex_svg_precision_recall},
    {"operating", "Operating points", has_thresholds, chex_html_operating},
    {"calibration", "Calibration", has_probabilities, chex_html_calibration},
    {"distributions", "Distribution of probabilities", has_probabilities, chex_svg_histogram},
    {"decision-curves", "Decision curves", has_probabilities, chex_svg_net_benefit},
    {"subgroups", "Subgroups", has_subgroups, chex_html_subgroups},
    {"shortcuts", "Audit of shortcuts", has_shortcuts, chex_html_shortcuts},
    {"hardest", "Hardest cases", has_cases, chex_html_cases},
    {"provenance", "Provenance", NULL, chex_html_provenance},
    {"command", "Reproduce this report", has_command, chex_html_command},
};
enum { SECTIONS = CHEX_COUNT(sections) };

static bool is_there(const struct chex_html_section *s, const struct chex_report *r) {
    return !s->is_there || s->is_there(r);
}

void chex_html_open_page(FILE *to, const char *kind, const char *title, const char *heading) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta "
          "name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
          to);
    fprintf(to, "%s: ", kind);
    chex_put_xml_between(to, "", title, "</title>\n");
    fputs("<style>\n", to);
    fwrite(chex_report_css, 1, chex_report_css_bytes, to);
    fprintf(to, "</style>\n</head>\n<body>\n<main>\n<h1>%s</h1>\n", heading);
    chex_put_xml_between(to, "<p>", title, "</p>\n");
}

void chex_html_close_page(FILE *to) { fputs("</main>\n</body>\n</html>\n", to); }

static void put_contents(FILE *to, const struct chex_report *r) {
    fputs("<nav aria-label=\"Contents\"><ol>\n", to);
    for (int i = 0; i < SECTIONS; i++)
        if (is_there(&sections[i], r))
            fprintf(to, "<li><a href=\"#%s\">%s</a></li>\n", sections[i].id, sections[i].title);
    fputs("</ol></nav>\n", to);
}

enum chex_status chex_html_write(FILE *to, const struct chex_report *r, struct chex_error *err) {
    chex_html_open_page(to, "AUROC", r->title, "Chest X-ray findings, AUROC");
    fputs("<p class=\"warn\">For research. Not for clinical use.</p>\n", to);
    put_contents(to, r);
    for (int i = 0; i < SECTIONS; i++) {
        const struct chex_html_section *s = &sections[i];
        if (!is_there(s, r))
            continue;
        fprintf(to, "<section aria-labelledby=\"%s\">\n<h2 id=\"%s\">%s</h2>\n", s->id, s->id,
                s->title);
        CHEX_TRY(s->put(to, r, err));
        fputs("</section>\n", to);
    }
    chex_html_close_page(to);
    return CHEX_OK;
}
