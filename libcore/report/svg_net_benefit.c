/* SPDX-License-Identifier: Apache-2.0
 *
 * Decision curves: the net benefit of acting on the prediction, of acting always, and of acting
 * never (which is 0), by threshold.
 */
#include <math.h>

#include "report/html.h"
#include "report/svg.h"

enum { POINTS = CHEX_NET_BENEFIT_POINTS };

#define AS_ALWAYS CHEX_SVG_AS_SECOND " stroke-width=\"1.5\" stroke-dasharray=\"5 3\""

struct curve {
    double t[POINTS], y[POINTS], low[POINTS], high[POINTS], always[POINTS];
    size_t count;
};

/* A point below the plot is NaN, so that no line runs along its edge. */
static double within(double v, double low) { return v < low ? NAN : v; }

static struct curve curve_of(const struct chex_net_benefit *n, struct chex_svg_scale y) {
    struct curve k = {.count = (size_t)n->count};
    for (size_t i = 0; i < k.count; i++) {
        const struct chex_net_benefit_point *p = &n->point[i];
        k.t[i] = p->threshold;
        k.y[i] = within(p->prediction.value, y.low);
        k.low[i] = p->prediction.interval.low;
        k.high[i] = within(p->prediction.interval.high, y.low);
        k.always[i] = within(p->treat_all.value, y.low);
    }
    return k;
}

/* Where the last positive call is: beyond it the net benefit is 0. */
static double last_threshold(const struct chex_net_benefit *n) {
    static const double ends[] = {0.1, 0.2, 0.5};
    double last = 0;
    for (int i = 0; i < n->count; i++)
        if (n->point[i].prediction.value != 0)
            last = n->point[i].threshold;
    for (size_t i = 0; i < CHEX_COUNT(ends); i++)
        if (last <= ends[i])
            return ends[i];
    return 1;
}

static enum chex_status put_panel(FILE *to, const void *report, int c, struct chex_error *err) {
    const struct chex_report *r = report;
    const struct chex_class_figures *f = &r->figures->per_class[c];
    (void)err;
    const double top = chex_svg_round_up(isnan(f->positive_share) ? 0 : f->positive_share);
    const struct chex_svg_scale x = {0, last_threshold(&f->net_benefit)}, y = {-top / 2, top};
    const struct curve k = curve_of(&f->net_benefit, y);
    size_t shown = 0;
    while (shown < k.count && k.t[shown] <= x.high + 1e-9)
        shown++;
    char share[64];
    if (isnan(f->positive_share))
        snprintf(share, sizeof share, "undefined: no image");
    else
        snprintf(share, sizeof share, "share of positives %.2g", f->positive_share);
    chex_svg_title(to, r->scores->per_class[c].name, share, NULL);
    chex_svg_axes(to, x, y);
    chex_svg_segment(to, CHEX_SVG_AS_DOTTED " stroke-width=\"1.5\"", x, y, 0, 0, x.high, 0);
    chex_svg_band(to, x, y, k.t, k.low, k.high, shown);
    chex_svg_line(to, AS_ALWAYS, x, y, k.t, k.always, shown, 0);
    chex_svg_line(to, CHEX_SVG_AS_CURVE " stroke-width=\"1.8\"", x, y, k.t, k.y, shown, 0);
    return CHEX_OK;
}

enum chex_status chex_svg_net_benefit(FILE *to, const struct chex_report *r,
                                      struct chex_error *err) {
    static const struct chex_svg_key keys[] = {
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_CURVE " stroke-width=\"1.8\""), "act on the prediction"},
        {"<rect " CHEX_SVG_AS_BAND " y=\"-6\" width=\"24\" height=\"12\"/>", "95 % interval"},
        {CHEX_SVG_SAMPLE(AS_ALWAYS), "act always"},
        {CHEX_SVG_SAMPLE(CHEX_SVG_AS_DOTTED " stroke-width=\"1.5\""), "act never"},
        {CHEX_SVG_AXIS("x"), "threshold"},
        {CHEX_SVG_AXIS("y"), "net benefit"},
    };
    static const struct chex_svg_plot plot = {
        .title = "Decision curves",
        .desc = "Net benefit of acting on the prediction, of acting always and of acting never, by "
                "threshold probability, one panel a finding.",
        .keys = keys,
        .key_count = CHEX_COUNT(keys),
        .put = put_panel};
    chex_html_note(to, "Acting at a threshold t values a false alarm at t / (1 - t) of a hit. The "
                       "prediction is useful where its line is above both others.");
    return chex_svg_panels(to, &plot, r->scores->classes, r, err);
}
