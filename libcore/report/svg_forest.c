/* SPDX-License-Identifier: Apache-2.0
 *
 * Forest plots of subgroups: the AUROC of each group with its interval, one panel a class. The
 * dashed line is the AUROC of all images. A group that is too small has a hollow mark and no
 * interval.
 */
#include <math.h>

#include "base/textfile.h"
#include "report/report.h"
#include "report/svg.h"

enum { PLOT = CHEX_SVG_PLOT };

static double left_end(const struct chex_subgroups *s, const struct chex_subgroup_attribute *a) {
    double low = 0.5;
    for (int c = 0; c < s->scores->classes; c++)
        for (int g = 0; g < a->groups.count; g++) {
            const struct chex_figure *f = &a->per_class[c].group[g].figure[CHEX_SUBGROUP_AUROC];
            low = fmin(low, fmin(f->value, f->interval.low)); /* fmin ignores NaN */
        }
    return floor(low * 10) / 10;
}

static void put_scale(FILE *to, struct chex_svg_scale x) {
    for (int k = 0; k <= 2; k++)
        fprintf(to,
                "<text " CHEX_SVG_AS_NOTE " text-anchor=\"middle\" x=\"%d\" y=\"%d\">%.3g</text>\n",
                k * PLOT / 2, PLOT + 15, x.low + (x.high - x.low) * k / 2);
    fprintf(to, "<rect " CHEX_SVG_AS_FRAME " width=\"%d\" height=\"%d\"/>\n", PLOT, PLOT);
}

/* The name of the group above its mark, at the end of the plot that the mark leaves free. */
static void put_group(FILE *to, struct chex_svg_scale x, double y, double height, const char *name,
                      const struct chex_group_score *k) {
    const struct chex_figure *f = &k->figure[CHEX_SUBGROUP_AUROC];
    const double mark = y + 0.72 * height;
    fprintf(to, "<text " CHEX_SVG_AS_TEXT " font-size=\"%.1f\" x=\"4\" y=\"%.1f\">",
            fmin(12, 0.5 * height), y + 0.45 * height);
    chex_put_xml(to, name);
    fputs(isnan(f->value) ? ": undefined</text>\n" : "</text>\n", to);
    if (!isnan(f->interval.low))
        fprintf(to,
                "<path class=\"c\" fill=\"none\" stroke=\"" CHEX_SVG_FIRST
                "\" stroke-width=\"2\" d=\"M%.1f %.1fH%.1f\"/>\n",
                chex_svg_x(x, f->interval.low), mark, chex_svg_x(x, f->interval.high));
    if (!isnan(f->value))
        fprintf(to,
                k->too_small ? "<circle class=\"c\" fill=\"none\" stroke=\"" CHEX_SVG_FIRST
                               "\" r=\"3.5\" cx=\"%.1f\" cy=\"%.1f\"/>\n"
                             : "<circle " CHEX_SVG_AS_DOT " r=\"3.5\" cx=\"%.1f\" cy=\"%.1f\"/>\n",
                chex_svg_x(x, f->value), mark);
}

static void put_panel(FILE *to, const struct chex_subgroups *s,
                      const struct chex_subgroup_attribute *a, int c, struct chex_svg_scale x) {
    const struct chex_class_score *all = &s->scores->per_class[c];
    const double height = (double)PLOT / a->groups.count;
    char value[64] = "undefined";
    if (!isnan(all->auroc))
        snprintf(value, sizeof value, "all images: %.3f", all->auroc);
    chex_svg_title(to, all->name, value, NULL);
    put_scale(to, x);
    if (!isnan(all->auroc))
        fprintf(to, "<path " CHEX_SVG_AS_REFERENCE " d=\"M%.1f 0V%d\"/>\n",
                chex_svg_x(x, all->auroc), PLOT);
    for (int g = 0; g < a->groups.count; g++)
        put_group(to, x, g * height, height, a->groups.name[g], &a->per_class[c].group[g]);
}

void chex_svg_forest(FILE *to, const struct chex_subgroups *s,
                     const struct chex_subgroup_attribute *a) {
    static const struct chex_svg_key keys[] = {
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_CURVE " stroke-width=\"2\"") "<circle " CHEX_SVG_AS_DOT
                                                                  " r=\"3.5\" cx=\"12\"/>",
         "group, 95 % interval"},
        {"<circle class=\"c\" fill=\"none\" stroke=\"" CHEX_SVG_FIRST "\" r=\"3.5\" cx=\"12\"/>",
         "group is too small"},
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_REFERENCE), "all images"},
        {CHEX_SVG_AXIS("x"), "AUROC"},
    };
    const int classes = s->scores->classes;
    const struct chex_svg_scale x = {left_end(s, a), 1};
    const struct chex_svg_sheet sheet = chex_svg_begin(
        to, classes + 1, "Subgroups",
        "AUROC of each group with its interval, one panel a finding. The table below has the "
        "figures.",
        false);
    chex_svg_end_defs(&sheet);
    for (int c = 0; c < classes; c++) {
        chex_svg_open_panel(&sheet, c);
        put_panel(to, s, a, c, x);
        chex_svg_close_panel(&sheet);
    }
    chex_svg_open_panel(&sheet, classes);
    chex_svg_legend(to, NULL, NULL, keys, sizeof keys / sizeof keys[0]);
    chex_svg_close_panel(&sheet);
    chex_svg_end(&sheet);
}
