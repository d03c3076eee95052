/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit of shortcuts in report.html: one table for each attribute of the images.
 */
#include <math.h>

#include "base/textfile.h"
#include "report/html.h"

static const char *direction(const struct chex_shortcut *k) {
    return k->direction > 0   ? "larger in positives"
           : k->direction < 0 ? "smaller in positives"
                              : "";
}

/* A drop whose whole interval is above 0 is bold. */
static void put_drop(FILE *to, const char *attribute, const struct chex_shortcut *k) {
    const struct chex_figure *f = &k->drop;
    const bool marked = f->interval.low > 0;
    fprintf(to, "<td data-l=\"%s\">%s", attribute, marked ? "<b>" : "");
    chex_html_put_number(to, f->value, 3);
    fputs(marked ? "</b>" : "", to);
    if (!isnan(f->interval.low))
        fprintf(to, " <span class=\"ci\">%.3f to %.3f</span>", f->interval.low, f->interval.high);
    if (!isnan(k->alone.value))
        fprintf(to, " <span class=\"ci\">alone %.3f</span>", k->alone.value);
    fputs("</td>", to);
}

/* One row a class, one column an attribute: how much the network loses without it. */
static void put_overview(FILE *to, const struct chex_report *r) {
    fputs("<div class=\"wide\"><table class=\"stack\">\n<caption>Drop of the AUROC without the "
          "attribute, with 95 % intervals; below it what the attribute reaches alone</caption>\n"
          "<thead><tr><th scope=\"col\">finding</th>",
          to);
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++)
        if (r->shortcuts->attribute[a].known)
            fprintf(to, "<th scope=\"col\">%s</th>", chex_shortcut_names[a]);
    fputs("</tr></thead>\n<tbody>\n", to);
    for (int c = 0; c < r->scores->classes; c++) {
        chex_html_begin_row(to, r->scores->per_class[c].name);
        for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++)
            if (r->shortcuts->attribute[a].known)
                put_drop(to, chex_shortcut_names[a], &r->shortcuts->attribute[a].per_class[c]);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

static void put_attribute(FILE *to, const struct chex_report *r, int a) {
    static const char *const headings[] = {"finding", "attribute alone", "network",
                                           "network within", "drop"};
    const struct chex_shortcut_table *t = &r->shortcuts->attribute[a];
    char caption[128];
    snprintf(caption, sizeof caption, "AUROC with and without what %s tells, with 95 %% intervals",
             chex_shortcut_names[a]);
    fprintf(to, "<details><summary>All figures: %s</summary>\n", chex_shortcut_names[a]);
    if (t->unknown)
        fprintf(to, "<p class=\"mut\">Not stated for %zu image%s, which are left out.</p>\n",
                t->unknown, t->unknown == 1 ? "" : "s");
    chex_html_begin_table(to, "stack", caption, headings, sizeof headings / sizeof headings[0]);
    for (int c = 0; c < r->scores->classes; c++) {
        const struct chex_shortcut *k = &t->per_class[c];
        const char *why = !k->positives   ? "no positive"
                          : !k->negatives ? "no negative"
                                          : "no pair in a stratum";
        chex_html_begin_row(to, r->scores->per_class[c].name);
        fputs("<td data-l=\"attribute alone\">", to);
        chex_html_put_number(to, k->alone.value, 3);
        fprintf(to, " <span class=\"ci\">%s</span>", isnan(k->alone.value) ? why : direction(k));
        if (!isnan(k->alone.interval.low))
            fprintf(to, " <span class=\"ci\">%.3f to %.3f</span>", k->alone.interval.low,
                    k->alone.interval.high);
        fputs("</td>", to);
        chex_html_figure(to, "network", &k->network, 3, why);
        chex_html_figure(to, "network within", &k->within, 3, why);
        chex_html_figure(to, "drop", &k->drop, 3, why);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
    fputs("</details>\n", to);
}

enum chex_status chex_html_shortcuts(FILE *to, const struct chex_report *r,
                                     struct chex_error *err) {
    (void)err;
    chex_html_note(to, "Could the network do without the lungs? &quot;Attribute alone&quot; is the "
                       "AUROC of the attribute without any network. &quot;Network within&quot; "
                       "compares only images with the same value of the attribute (numbers: the "
                       "same fifth). A network that leans on the attribute drops there. An "
                       "attribute can also be a legitimate part of the finding, such as age.");
    put_overview(to, r);
    chex_html_note(to, "Bold: the whole interval of the drop is above 0.");
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++)
        if (r->shortcuts->attribute[a].known)
            put_attribute(to, r, a);
    return CHEX_OK;
}
