/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributions of the predicted probabilities of positive and of negative images. Each is divided
 * by its own number of images, because positives are few.
 */
#include <math.h>

#include "report/html.h"
#include "report/svg.h"

enum { BINS = CHEX_HISTOGRAM_BINS };

#define AS_POSITIVES "class=\"c\" fill=\"none\" stroke=\"" CHEX_SVG_FIRST "\" stroke-width=\"1.8\""
#define AS_NEGATIVES                                                                               \
    "class=\"c2\" fill=\"none\" stroke=\"" CHEX_SVG_SECOND                                         \
    "\" stroke-width=\"1.5\" stroke-dasharray=\"4 2\""

struct shares {
    double positives[BINS], negatives[BINS], most;
    int used; /* bins up to the last one with an image */
};

static struct shares shares_of(const struct chex_histogram *h) {
    struct shares s = {.used = 1};
    double positives = 0, negatives = 0;
    for (int b = 0; b < BINS; b++) {
        positives += (double)h->positives[b];
        negatives += (double)h->negatives[b];
        if (h->positives[b] + h->negatives[b])
            s.used = b + 1;
    }
    for (int b = 0; b < BINS; b++) {
        s.positives[b] = positives > 0 ? (double)h->positives[b] / positives : 0;
        s.negatives[b] = negatives > 0 ? (double)h->negatives[b] / negatives : 0;
        s.most = fmax(s.most, fmax(s.positives[b], s.negatives[b]));
    }
    return s;
}

/* The outline of the bars. */
static void put_outline(FILE *to, const char *attributes, struct chex_svg_scale x,
                        struct chex_svg_scale y, const double *share, int used) {
    fprintf(to, "<path %s d=\"M0 %d", attributes, CHEX_SVG_PLOT);
    for (int b = 0; b < used; b++)
        fprintf(to, "V%.1fH%.1f", chex_svg_y(y, share[b]), chex_svg_x(x, (b + 1.0) / BINS));
    fprintf(to, "V%d\"/>\n", CHEX_SVG_PLOT);
}

static size_t sum(const size_t *counts) {
    size_t n = 0;
    for (int b = 0; b < BINS; b++)
        n += counts[b];
    return n;
}

static enum chex_status put_panel(FILE *to, const void *report, int c, struct chex_error *err) {
    const struct chex_report *r = report;
    const struct chex_histogram *h = &r->figures->per_class[c].calibration.histogram;
    (void)err;
    const struct shares s = shares_of(h);
    const struct chex_svg_scale x = {0, (double)s.used / BINS},
                                y = {0, fmin(chex_svg_round_up(s.most), 1)};
    const size_t positives = sum(h->positives), negatives = sum(h->negatives);
    char first[64], second[64];
    snprintf(first, sizeof first, "%zu positive%s", positives, positives == 1 ? "" : "s");
    snprintf(second, sizeof second, "%zu negative%s", negatives, negatives == 1 ? "" : "s");
    chex_svg_title(to, r->scores->per_class[c].name, first, second);
    chex_svg_axes(to, x, y);
    if (negatives)
        put_outline(to, AS_NEGATIVES, x, y, s.negatives, s.used);
    if (positives)
        put_outline(to, AS_POSITIVES, x, y, s.positives, s.used);
    return CHEX_OK;
}

enum chex_status chex_svg_histogram(FILE *to, const struct chex_report *r, struct chex_error *err) {
    static const struct chex_svg_key keys[] = {
        {CHEX_SVG_SAMPLE(AS_POSITIVES), "positive images"},
        {CHEX_SVG_SAMPLE(AS_NEGATIVES), "negative images"},
        {CHEX_SVG_AXIS("x"), "predicted probability"},
        {CHEX_SVG_AXIS("y"), "share of these images"},
    };
    static const struct chex_svg_plot plot = {
        .title = "Distribution of probabilities",
        .desc = "Share of the positive and of the negative images by predicted probability, one "
                "panel a finding.",
        .first = "axes fit the data",
        .keys = keys,
        .key_count = CHEX_COUNT(keys),
        .put = put_panel};
    chex_html_note(to, "The less the two outlines overlap, the better a threshold separates them.");
    return chex_svg_panels(to, &plot, r->scores->classes, r, err);
}
