/* SPDX-License-Identifier: Apache-2.0
 *
 * Subgroups in report.html: for each attribute the sizes of the groups, a forest plot of the
 * AUROCs, and one table for each figure.
 */
#include <math.h>

#include "base/textfile.h"
#include "report/html.h"

/* A forest plot with more groups cannot be read; the tables have them all. */
enum { FOREST_GROUPS = 8 };

static const char *const figure_names[CHEX_SUBGROUP_FIGURES] = {
    [CHEX_SUBGROUP_AUROC] = "AUROC",
    [CHEX_SUBGROUP_SENSITIVITY] = "Sensitivity at the threshold",
    [CHEX_SUBGROUP_FPR] = "False positive rate at the threshold",
};

static void put_groups(FILE *to, const struct chex_subgroups *s,
                       const struct chex_subgroup_attribute *a) {
    fputs("<p>Images: ", to);
    for (int g = 0; g < a->groups.count; g++) {
        fputs(g ? ", " : "", to);
        chex_put_xml(to, a->groups.name[g]);
        fprintf(to, " %zu", a->groups.rows[g]);
    }
    if (a->groups.unknown)
        fprintf(to, "; not stated %zu", a->groups.unknown);
    fprintf(to, ". The unit of the intervals: %s.</p>\n",
            chex_cluster_names[s->scores->config.cluster]);
}

static const char *why(const struct chex_group_score *k, int figure) {
    return !k->positives && figure != CHEX_SUBGROUP_FPR           ? "no positive"
           : !k->negatives && figure != CHEX_SUBGROUP_SENSITIVITY ? "no negative"
           : figure != CHEX_SUBGROUP_AUROC                        ? "no threshold"
                                                                  : "undefined";
}

/* One figure in one group. The label of the cell is the name of the group, which is data. */
static void put_cell(FILE *to, const char *group, const struct chex_group_score *k, int figure) {
    const struct chex_figure *f = &k->figure[figure];
    chex_html_begin_cell(to, group);
    chex_html_put_number(to, f->value, 3);
    if (isnan(f->value))
        chex_html_aside(to, "%s", why(k, figure));
    else if (k->too_small)
        chex_html_aside(to, "too small: %zu / %zu", k->positives, k->negatives);
    else
        chex_html_put_interval(to, &f->interval, 3);
    fputs("</td>", to);
}

static void put_gap(FILE *to, const struct chex_subgroup_attribute *a,
                    const struct chex_subgroup_gap *gap) {
    const double value = gap->high < 0 ? NAN : gap->gap.value;
    chex_html_begin_cell(to, "largest gap");
    chex_html_put_number(to, value, 3);
    if (isnan(value)) {
        chex_html_aside(to, "fewer than two groups");
    } else {
        chex_html_put_interval(to, &gap->gap.interval, 3);
        chex_put_xml_between(to, " <span class=\"ci\">", a->groups.name[gap->high], " over ");
        chex_put_xml(to, a->groups.name[gap->low]);
        fputs("</span>", to);
    }
    fputs("</td>", to);
}

static void put_table(FILE *to, const struct chex_subgroups *s,
                      const struct chex_subgroup_attribute *a, int figure) {
    char caption[96];
    snprintf(caption, sizeof caption, "%s by %s", figure_names[figure],
             chex_attribute_names[a->attribute]);
    chex_html_open_table(to, "stack", caption);
    for (int g = 0; g < a->groups.count; g++)
        chex_html_heading(to, a->groups.name[g]);
    chex_html_heading(to, "largest gap");
    chex_html_open_rows(to);
    for (int c = 0; c < s->scores->classes; c++) {
        const struct chex_subgroup_class *k = &a->per_class[c];
        chex_html_begin_row(to, s->scores->per_class[c].name);
        for (int g = 0; g < a->groups.count; g++)
            put_cell(to, a->groups.name[g], &k->group[g], figure);
        put_gap(to, a, &k->gap[figure]);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

static enum chex_status put_attribute(FILE *to, const struct chex_subgroups *s,
                                      const struct chex_subgroup_attribute *a,
                                      struct chex_error *err) {
    fprintf(to, "<h3>By %s</h3>\n", chex_attribute_names[a->attribute]);
    put_groups(to, s, a);
    if (a->groups.count <= FOREST_GROUPS)
        CHEX_TRY(chex_svg_forest(to, s, a, err));
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++) {
        if (f != CHEX_SUBGROUP_AUROC && !s->thresholds)
            continue;
        fprintf(to, "<details%s><summary>%s by %s</summary>\n",
                f == CHEX_SUBGROUP_AUROC && a->groups.count > FOREST_GROUPS ? " open=\"open\"" : "",
                figure_names[f], chex_attribute_names[a->attribute]);
        put_table(to, s, a, f);
        fputs("</details>\n", to);
    }
    return CHEX_OK;
}

enum chex_status chex_html_subgroups(FILE *to, const struct chex_report *r,
                                     struct chex_error *err) {
    fprintf(to,
            "<p class=\"mut\">A group is too small if fewer than %d %ss have a positive, or a "
            "negative (the counts of images are shown). It has no interval and takes no part in "
            "gaps. The largest gap is the largest of several, so its interval is optimistic. A "
            "group can do worse because its images are harder, not only because the network "
            "treats it worse.</p>\n",
            CHEX_SUBGROUP_MIN_CLUSTERS, chex_cluster_names[r->scores->config.cluster]);
    for (int a = 0; a < r->subgroups->count; a++)
        CHEX_TRY(put_attribute(to, r->subgroups, &r->subgroups->attribute[a], err));
    return CHEX_OK;
}
