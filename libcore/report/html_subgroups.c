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
    fputs("<td data-l=\"", to);
    chex_put_xml(to, group);
    fputs("\">", to);
    chex_html_put_number(to, f->value, 3);
    if (isnan(f->value))
        fprintf(to, " <span class=\"ci\">%s</span>", why(k, figure));
    else if (k->too_small)
        fprintf(to, " <span class=\"ci\">too small: %zu / %zu</span>", k->positives, k->negatives);
    else if (!isnan(f->interval.low))
        fprintf(to, " <span class=\"ci\">%.3f to %.3f</span>", f->interval.low, f->interval.high);
    fputs("</td>", to);
}

static void put_gap(FILE *to, const struct chex_subgroup_attribute *a,
                    const struct chex_subgroup_gap *gap) {
    fputs("<td data-l=\"largest gap\">", to);
    if (gap->high < 0 || isnan(gap->gap.value)) {
        fputs("&#8211; <span class=\"ci\">fewer than two groups</span></td>", to);
        return;
    }
    fprintf(to, "%.3f", gap->gap.value);
    if (!isnan(gap->gap.interval.low))
        fprintf(to, " <span class=\"ci\">%.3f to %.3f</span>", gap->gap.interval.low,
                gap->gap.interval.high);
    fputs(" <span class=\"ci\">", to);
    chex_put_xml(to, a->groups.name[gap->high]);
    fputs(" over ", to);
    chex_put_xml(to, a->groups.name[gap->low]);
    fputs("</span></td>", to);
}

static void put_table(FILE *to, const struct chex_subgroups *s,
                      const struct chex_subgroup_attribute *a, int figure) {
    fprintf(to,
            "<div class=\"wide\"><table class=\"stack\">\n<caption>%s by %s</caption>\n<thead><tr>"
            "<th scope=\"col\">finding</th>",
            figure_names[figure], chex_attribute_names[a->attribute]);
    for (int g = 0; g < a->groups.count; g++) {
        fputs("<th scope=\"col\">", to);
        chex_put_xml(to, a->groups.name[g]);
        fputs("</th>", to);
    }
    fputs("<th scope=\"col\">largest gap</th></tr></thead>\n<tbody>\n", to);
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

static void put_attribute(FILE *to, const struct chex_subgroups *s,
                          const struct chex_subgroup_attribute *a) {
    fprintf(to, "<h3>By %s</h3>\n", chex_attribute_names[a->attribute]);
    put_groups(to, s, a);
    if (a->groups.count <= FOREST_GROUPS)
        chex_svg_forest(to, s, a);
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++) {
        if (f != CHEX_SUBGROUP_AUROC && !s->thresholds)
            continue;
        fprintf(to, "<details%s><summary>%s by %s</summary>\n",
                f == CHEX_SUBGROUP_AUROC && a->groups.count > FOREST_GROUPS ? " open=\"open\"" : "",
                figure_names[f], chex_attribute_names[a->attribute]);
        put_table(to, s, a, f);
        fputs("</details>\n", to);
    }
}

enum chex_status chex_html_subgroups(FILE *to, const struct chex_report *r,
                                     struct chex_error *err) {
    (void)err;
    fprintf(to,
            "<p class=\"mut\">A group is too small if fewer than %d %ss have a positive, or a "
            "negative (the counts of images are shown). It has no interval and takes no part in "
            "gaps. The largest gap is the largest of several, so its interval is optimistic. A "
            "group can do worse because its images are harder, not only because the network "
            "treats it worse.</p>\n",
            CHEX_SUBGROUP_MIN_CLUSTERS, chex_cluster_names[r->scores->config.cluster]);
    for (int a = 0; a < r->subgroups->count; a++)
        put_attribute(to, r->subgroups, &r->subgroups->attribute[a]);
    return CHEX_OK;
}
