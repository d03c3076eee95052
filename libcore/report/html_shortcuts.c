/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit of shortcuts in report.html: one table for each attribute of the images.
 */
#include <math.h>

#include "report/figures_text.h"
#include "report/html.h"

static const char *direction(const struct chex_shortcut *k) {
    return k->direction > 0   ? "larger in positives"
           : k->direction < 0 ? "smaller in positives"
                              : "";
}

/* A drop whose whole interval is above 0 is bold. */
static void put_drop(FILE *to, const char *attribute, const struct chex_shortcut *k) {
    const bool marked = k->drop.interval.low > 0;
    chex_html_begin_cell(to, attribute);
    fputs(marked ? "<b>" : "", to);
    chex_html_put_number(to, k->drop.value, 3);
    fputs(marked ? "</b>" : "", to);
    chex_html_put_interval(to, &k->drop.interval, 3);
    if (!isnan(k->alone.value))
        chex_html_aside(to, "alone %.3f", k->alone.value);
    fputs("</td>", to);
}

/* One row a class, one column an attribute: how much the network loses without it. */
static void put_overview(FILE *to, const struct chex_report *r) {
    const struct chex_shortcut_table *t = r->shortcuts->attribute;
    chex_html_open_table(to, "stack",
                         "Drop of the AUROC without the attribute, with 95 % intervals; below it "
                         "what the attribute reaches alone");
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++)
        if (t[a].known)
            chex_html_heading(to, chex_shortcut_names[a]);
    chex_html_open_rows(to);
    for (int c = 0; c < r->scores->classes; c++) {
        chex_html_begin_row(to, r->scores->per_class[c].name);
        for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++)
            if (t[a].known)
                put_drop(to, chex_shortcut_names[a], &t[a].per_class[c]);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

static void put_row(FILE *to, const char *name, const struct chex_shortcut *k) {
    const char *why = !k->positives   ? "no positive"
                      : !k->negatives ? "no negative"
                                      : "no pair in a stratum";
    chex_html_begin_row(to, name);
    chex_html_begin_cell(to, chex_shortcut_columns[0].heading);
    chex_html_put_number(to, k->alone.value, 3);
    chex_html_aside(to, "%s", isnan(k->alone.value) ? why : direction(k));
    chex_html_put_interval(to, &k->alone.interval, 3);
    fputs("</td>", to);
    for (int i = 1; i < CHEX_SHORTCUT_COLUMNS; i++)
        chex_html_figure(to, &chex_shortcut_columns[i], k, why);
    fputs("</tr>\n", to);
}

static void put_attribute(FILE *to, const struct chex_report *r, int a) {
    const struct chex_shortcut_table *t = &r->shortcuts->attribute[a];
    char caption[128];
    snprintf(caption, sizeof caption, "AUROC with and without what %s tells, with 95 %% intervals",
             chex_shortcut_names[a]);
    fprintf(to, "<details><summary>All figures: %s</summary>\n", chex_shortcut_names[a]);
    if (t->unknown)
        fprintf(to, "<p class=\"mut\">Not stated for %zu image%s, which are left out.</p>\n",
                t->unknown, t->unknown == 1 ? "" : "s");
    chex_html_open_table(to, "stack", caption);
    chex_html_headings(to, chex_shortcut_columns, CHEX_SHORTCUT_COLUMNS);
    chex_html_open_rows(to);
    for (int c = 0; c < r->scores->classes; c++)
        put_row(to, r->scores->per_class[c].name, &t->per_class[c]);
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
