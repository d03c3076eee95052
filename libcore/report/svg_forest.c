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

struct plot {
    const struct chex_subgroups *s;
    const struct chex_subgroup_attribute *a;
    struct chex_svg_scale x;
};

static enum chex_status put_panel(FILE *to, const void *plot, int c, struct chex_error *err) {
    const struct plot *p = plot;
    const struct chex_subgroup_attribute *a = p->a;
    const struct chex_class_score *all = &p->s->scores->per_class[c];
    (void)err;
    const double height = (double)PLOT / a->groups.count;
    char value[64] = "undefined";
    if (!isnan(all->auroc))
        snprintf(value, sizeof value, "all images: %.3f", all->auroc);
    chex_svg_title(to, all->name, value, NULL);
    put_scale(to, p->x);
    if (!isnan(all->auroc))
        fprintf(to, "<path " CHEX_SVG_AS_REFERENCE " d=\"M%.1f 0V%d\"/>\n",
                chex_svg_x(p->x, all->auroc), PLOT);
    for (int g = 0; g < a->groups.count; g++)
        put_group(to, p->x, g * height, height, a->groups.name[g], &a->per_class[c].group[g]);
    return CHEX_OK;
}

enum chex_status chex_svg_forest(FILE *to, const struct chex_subgroups *s,
                                 const struct chex_subgroup_attribute *a, struct chex_error *err) {
    static const struct chex_svg_key keys[] = {
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_CURVE " stroke-width=\"2\"") "<circle " CHEX_SVG_AS_DOT
                                                                  " r=\"3.5\" cx=\"12\"/>",
         "group, 95 % interval"},
        {"<circle class=\"c\" fill=\"none\" stroke=\"" CHEX_SVG_FIRST "\" r=\"3.5\" cx=\"12\"/>",
         "group is too small"},
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_REFERENCE), "all images"},
        {CHEX_SVG_AXIS("x"), "AUROC"},
    };
    static const struct chex_svg_plot plot = {
        .title = "Subgroups",
        .desc = "AUROC of each group with its interval, one panel a finding. The table below has "
                "the figures.",
        .keys = keys,
        .key_count = CHEX_COUNT(keys),
        .put = put_panel};
    const struct plot context = {s, a, {left_end(s, a), 1}};
    return chex_svg_panels(to, &plot, s->scores->classes, &context, err);
}
