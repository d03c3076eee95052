/* SPDX-License-Identifier: Apache-2.0
 *
 * Precision-recall curves, as steps: between two recalls that thresholds reach, the precision is
 * that of the higher recall, as in the sum of the average precision and in scikit-learn's display.
 * A straight line would promise values that no threshold reaches. The dashed line is the share of
 * positives: the precision of a network that knows nothing.
 */
#include <math.h>

#include "base/alloc.h"
#include "report/html.h"
#include "report/svg.h"

static const struct chex_svg_scale unit = {0, 1};

static void put_title(FILE *to, const char *name, const struct chex_class_figures *f) {
    const struct chex_figure *a = &f->average_precision;
    char value[64] = "undefined: no positive", range[64] = "";
    if (!isnan(a->value))
        snprintf(value, sizeof value, "avg. precision %.3f", a->value);
    if (!isnan(a->interval.low))
        snprintf(range, sizeof range, "95 %%: %.3f to %.3f", a->interval.low, a->interval.high);
    chex_svg_title(to, name, value, range);
}

/* Draws (recall before, precision), (recall, precision) for each threshold. */
static enum chex_status put_steps(FILE *to, const struct chex_precision_recall *k,
                                  struct chex_error *err) {
    CHEX_AUTO_FREE double *x = chex_alloc_zeroed(2 * k->count, sizeof *x);
    CHEX_AUTO_FREE double *y = chex_alloc_zeroed(2 * k->count, sizeof *y);
    CHEX_ALLOCATED(x && y, err, "the precision-recall curve");
    for (size_t i = 0; i < k->count; i++) {
        x[2 * i] = i ? k->recall[i - 1] : 0;
        x[2 * i + 1] = k->recall[i];
        y[2 * i] = y[2 * i + 1] = k->precision[i];
    }
    chex_svg_line(to, CHEX_SVG_AS_CURVE " stroke-width=\"2\"", unit, unit, x, y, 2 * k->count, 0.4);
    return CHEX_OK;
}

static enum chex_status put_panel(FILE *to, const void *report, int c, struct chex_error *err) {
    const struct chex_report *r = report;
    const struct chex_class_figures *f = &r->figures->per_class[c];
    struct chex_precision_recall *k = NULL;
    CHEX_TRY(chex_precision_recall_create(r->scores->rankings[c], &k, err));
    put_title(to, r->scores->per_class[c].name, f);
    chex_svg_axes(to, unit, unit);
    if (!isnan(f->positive_share))
        chex_svg_segment(to, CHEX_SVG_AS_REFERENCE, unit, unit, 0, f->positive_share, 1,
                         f->positive_share);
    const enum chex_status st = put_steps(to, k, err);
    chex_precision_recall_destroy(k);
    return st;
}

enum chex_status chex_svg_precision_recall(FILE *to, const struct chex_report *r,
                                           struct chex_error *err) {
    static const struct chex_svg_key keys[] = {
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_CURVE " stroke-width=\"2\""), "the network"},
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_REFERENCE), "share of positives"},
        {CHEX_SVG_AXIS("x"), "recall (sensitivity)"},
        {CHEX_SVG_AXIS("y"), "precision (PPV)"},
    };
    static const struct chex_svg_plot plot = {
        .title = "Precision and recall",
        .desc = "Precision against recall, one panel a finding, with the average precision and the "
                "share of positives.",
        .keys = keys,
        .key_count = CHEX_COUNT(keys),
        .put = put_panel};
    chex_html_note(to, "Average precision depends on the share of positives, the dashed line.");
    return chex_svg_panels(to, &plot, r->scores->classes, r, err);
}
