/* SPDX-License-Identifier: Apache-2.0
 *
 * Reliability diagrams: observed frequency against mean probability in bins of equal count, with
 * the interval of each frequency as a band.
 */
#include <math.h>

#include "report/report.h"
#include "report/svg.h"

enum { BINS = CHEX_CALIBRATION_BINS };

struct curve {
    double x[BINS], y[BINS], low[BINS], high[BINS];
    size_t count;
    double top; /* of both axes */
};

static struct curve curve_of(const struct chex_reliability *r) {
    struct curve k = {.count = (size_t)r->bins};
    double most = 0;
    for (int b = 0; b < r->bins; b++) {
        const struct chex_reliability_bin *bin = &r->bin[b];
        k.x[b] = bin->predicted;
        k.y[b] = bin->observed.value;
        k.low[b] = bin->observed.interval.low;
        k.high[b] = bin->observed.interval.high;
        most = fmax(most, fmax(k.x[b], k.y[b])); /* fmax ignores NaN */
    }
    k.top = fmin(chex_svg_round_up(most), 1);
    return k;
}

static enum chex_status put_panel(FILE *to, const void *report, int c, struct chex_error *err) {
    const struct chex_report *r = report;
    const struct chex_class_figures *f = &r->figures->per_class[c];
    (void)err;
    const struct curve k = curve_of(&f->calibration.reliability);
    const struct chex_svg_scale scale = {0, k.top};
    char share[64], ece[64] = "";
    if (isnan(f->positive_share))
        snprintf(share, sizeof share, "undefined: no image");
    else
        snprintf(share, sizeof share, "share of positives %.2g", f->positive_share);
    if (!isnan(f->calibration.ece.value))
        snprintf(ece, sizeof ece, "calibration error %.2g", f->calibration.ece.value);
    chex_svg_title(to, r->scores->per_class[c].name, share, ece);
    chex_svg_axes(to, scale, scale);
    chex_svg_segment(to, CHEX_SVG_AS_REFERENCE, scale, scale, 0, 0, k.top, k.top);
    chex_svg_band(to, scale, scale, k.x, k.low, k.high, k.count);
    chex_svg_line(to, CHEX_SVG_AS_CURVE " stroke-width=\"1.2\"", scale, scale, k.x, k.y, k.count,
                  0);
    for (size_t b = 0; b < k.count; b++)
        if (!isnan(k.y[b]))
            fprintf(to, "<circle " CHEX_SVG_AS_DOT " r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>\n",
                    chex_svg_x(scale, k.x[b]), chex_svg_y(scale, k.y[b]));
    return CHEX_OK;
}

enum chex_status chex_svg_reliability(FILE *to, const struct chex_report *r,
                                      struct chex_error *err) {
    static const struct chex_svg_key keys[] = {
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_CURVE " stroke-width=\"1.2\"") "<circle " CHEX_SVG_AS_DOT
                                                                    " r=\"3\" cx=\"12\"/>",
         "a tenth of the images"},
        {"<rect " CHEX_SVG_AS_BAND " y=\"-6\" width=\"24\" height=\"12\"/>", "95 % interval"},
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_REFERENCE), "calibrated"},
        {CHEX_SVG_AXIS("x"), "mean predicted"},
        {CHEX_SVG_AXIS("y"), "share of positives"},
    };
    static const struct chex_svg_plot plot = {
        .title = "Reliability",
        .desc = "Share of positive images against the mean predicted probability, in ten bins of "
                "equal count, one panel a finding. The table below has the figures.",
        .first = "axes fit the data",
        .keys = keys,
        .key_count = CHEX_COUNT(keys),
        .put = put_panel};
    return chex_svg_panels(to, &plot, r->scores->classes, r, err);
}
