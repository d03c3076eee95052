/* SPDX-License-Identifier: Apache-2.0
 *
 * ROC curves as small multiples. One plot of 14 crossing curves cannot be read. Here each class has
 * its own panel, with all other curves faint in the background.
 */
#include <math.h>
#include <stdlib.h>

#include "report/report.h"
#include "report/svg.h"

static const struct chex_svg_scale unit = {0, 1};

static void put_curve(FILE *to, const char *attributes, const struct chex_roc *roc,
                      double min_units) {
    chex_svg_line(to, attributes, unit, unit, roc->fpr, roc->tpr, roc->count, min_units);
}

static void put_class_title(FILE *to, const struct chex_scores *s, int c) {
    const struct chex_class_score *k = &s->per_class[c];
    char value[64], range[64] = "";
    if (isnan(k->auroc))
        snprintf(value, sizeof value, "undefined, %zu positive%s", k->positives,
                 k->positives == 1 ? "" : "s");
    else
        snprintf(value, sizeof value, "AUROC %.3f", k->auroc);
    if (!isnan(k->interval.low))
        snprintf(range, sizeof range, "95 %%: %.3f to %.3f", k->interval.low, k->interval.high);
    else if (k->too_few && s->config.replicates)
        snprintf(range, sizeof range, "too few for an interval");
    chex_svg_title(to, k->name, value, range);
}

static enum chex_status make_curves(const struct chex_scores *s, struct chex_roc **roc,
                                    struct chex_error *err) {
    for (int c = 0; c < s->classes; c++)
        if (!isnan(s->per_class[c].auroc))
            CHEX_TRY(chex_roc_create(s->rankings[c], &roc[c], err));
    return CHEX_OK;
}

static void put_legend(const struct chex_svg_sheet *sheet, const struct chex_scores *s) {
    static const struct chex_svg_key keys[] = {
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_CURVE " stroke-width=\"2\""), "the finding of the panel"},
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_OTHERS " stroke-width=\"1.4\""), "the other findings"},
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_REFERENCE), "chance"},
        {CHEX_SVG_AXIS("x"), "false positive rate"},
        {CHEX_SVG_AXIS("y"), "true positive rate"},
    };
    char mean[80], of[80];
    if (isnan(s->mean))
        snprintf(mean, sizeof mean, "mean AUROC undefined");
    else
        snprintf(mean, sizeof mean, "mean AUROC %.3f", s->mean);
    snprintf(of, sizeof of, "of %d of %d findings", s->defined, s->classes);
    chex_svg_end_with_legend(sheet, mean, of, keys, CHEX_COUNT(keys));
}

static void put_panels(FILE *to, const struct chex_report *r, struct chex_roc *const *roc,
                       bool file) {
    const struct chex_scores *s = r->scores;
    char desc[160];
    snprintf(desc, sizeof desc,
             "Receiver operating characteristic of %d findings, one panel each, with the AUROC%s.",
             s->classes, s->config.replicates ? " and its 95 % interval" : "");
    const struct chex_svg_sheet sheet = chex_svg_begin(to, s->classes + 1, r->title, desc, file);
    /* Written once and reused in every panel. Otherwise the size of the file would grow with the
     * square of the number of classes. */
    fputs("<g id=\"cx-all\" stroke-width=\".7\" opacity=\".55\">\n", to);
    for (int c = 0; c < s->classes; c++)
        if (roc[c])
            put_curve(to, CHEX_SVG_AS_OTHERS, roc[c], 2);
    fputs("</g>", to);
    chex_svg_end_defs(&sheet);
    for (int c = 0; c < s->classes; c++) {
        chex_svg_open_panel(&sheet, c);
        put_class_title(to, s, c);
        fprintf(to, "<use %shref=\"#cx-all\"/>\n", file ? "xlink:" : "");
        chex_svg_axes(to, unit, unit);
        chex_svg_segment(to, CHEX_SVG_AS_REFERENCE, unit, unit, 0, 0, 1, 1);
        if (roc[c])
            put_curve(to, CHEX_SVG_AS_CURVE " stroke-width=\"2\"", roc[c], 0.4);
        chex_svg_close_panel(&sheet);
    }
    put_legend(&sheet, s);
}

enum chex_status chex_svg_roc(FILE *to, const struct chex_report *r, bool file,
                              struct chex_error *err) {
    const size_t classes = (size_t)r->scores->classes;
    struct chex_roc **roc = calloc(classes, sizeof *roc);
    CHEX_ALLOCATED(roc, err, "the curves");
    enum chex_status st = make_curves(r->scores, roc, err);
    if (st == CHEX_OK)
        put_panels(to, r, roc, file);
    for (size_t c = 0; c < classes; c++)
        chex_roc_destroy(roc[c]);
    free(roc);
    return st;
}
