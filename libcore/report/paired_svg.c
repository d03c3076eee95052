/* SPDX-License-Identifier: Apache-2.0
 *
 * The forest plot of compare.svg: for each comparison a block with a row for each finding, from
 * left to right its name, its difference as a point with its interval on a shared scale, and
 * numbers.
 *
 * Presentation attributes draw the light scheme, so that librsvg, LaTeX tools and browsers draw the
 * same picture. Viewers with a dark scheme use the style instead.
 */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/text.h"
#include "base/textfile.h"
#include "report/paired_report.h"
#include "report/svg.h"
#include "stats/figure.h"

/* Geometry, in units of the drawing. */
enum {
    MARGIN = 16,
    NAMES = 168, /* width of the names */
    PLOT = 300,
    NUMBERS = 276,
    WIDTH = 2 * MARGIN + NAMES + PLOT + NUMBERS,
    ROW = 22,
    HEAD = 74, /* above the rows: three lines and the headings */
    FOOT = 46, /* below the rows: ticks, and which side is better */
    NAME_BYTES = 30,
    PATH_COLUMNS = 84,
    LINE_COLUMNS = 112,
};

#define AS_TITLE "class=\"t\" fill=\"" CHEX_SVG_INK "\" font-weight=\"600\" font-size=\"13\""
#define AS_GRID "class=\"f\" stroke=\"" CHEX_SVG_LINE "\" stroke-dasharray=\"1 3\""
#define AS_ZERO "class=\"z\" stroke=\"" CHEX_SVG_MUTED "\""
#define AS_MARGIN "class=\"z\" stroke=\"" CHEX_SVG_MUTED "\" stroke-dasharray=\"5 4\""
#define AS_INTERVAL                                                                                \
    "class=\"c\" stroke=\"" CHEX_SVG_FIRST "\" stroke-width=\"1.6\" stroke-linejoin=\"round\" "    \
    "fill=\"none\""
#define AS_FULL                                                                                    \
    "class=\"c p\" stroke=\"" CHEX_SVG_FIRST "\" stroke-width=\"1.6\" fill=\"" CHEX_SVG_FIRST "\""
#define AS_EMPTY "class=\"c b\" stroke=\"" CHEX_SVG_FIRST "\" stroke-width=\"1.6\" fill=\"#ffffff\""

static const char style[] =
    "<style>@media (prefers-color-scheme:dark){.b{fill:#0d1117}.t{fill:#e6edf3}.m{fill:#9aa7b4}"
    ".f{stroke:#3a4653}.z{stroke:#9aa7b4}.c{stroke:#6fb1ff}.p{fill:#6fb1ff}}</style>\n";

/* The scale: differences from -top to top, with a tick at each multiple of step. */
struct scale {
    double top, step;
};

/* The farthest end of the interval from 0; 0 without interval. */
static double reach_of(const struct chex_paired_class *k) {
    return isnan(k->interval.low) ? 0 : fmax(fabs(k->interval.low), fabs(k->interval.high));
}

/* Covers all intervals, but at most 3 times the median one: a finding with few positives must not
 * flatten all others. Longer intervals end in arrows. */
static double span_of(const struct chex_paired_report *r) {
    double most = 0, middle = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct chex_paired *p = r->compared[i];
        CHEX_AUTO_FREE double *reach = calloc((size_t)p->classes, sizeof *reach);
        size_t n = 0;
        for (int c = 0; reach && c < p->classes; c++) {
            if (!isnan(p->per_class[c].interval.low))
                reach[n++] = reach_of(&p->per_class[c]);
            most = fmax(most, fmax(reach_of(&p->per_class[c]), fabs(p->per_class[c].difference)));
        }
        if (n) {
            qsort(reach, n, sizeof *reach, chex_by_value);
            middle = fmax(middle, reach[n / 2]);
        }
    }
    const double span = middle > 0 ? fmin(most, 3 * middle) : most;
    return fmax(span, isnan(r->config->margin) ? 0 : 1.1 * r->config->margin);
}

/* The distance of two ticks: the smallest of 0.001, 0.002, 0.005, 0.01, ... that needs at most 4
 * ticks a side. */
static struct scale scale_of(const struct chex_paired_report *r) {
    static const double steps[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25};
    const double span = span_of(r);
    size_t i = 0;
    while (i + 1 < CHEX_COUNT(steps) && 4 * steps[i] < span)
        i++;
    return (struct scale){fmin(1, steps[i] * ceil(fmax(span, steps[i]) / steps[i] - 1e-9)),
                          steps[i]};
}

static double x_of(const struct scale *s, double difference) {
    return (1 + fmin(fmax(difference / s->top, -1), 1)) * PLOT / 2;
}

static void put_text(FILE *to, const char *as, double x, double y, const char *anchor,
                     const char *text) {
    fprintf(to, "<text %s x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", as, x, y, anchor);
    chex_put_xml(to, text);
    fputs("</text>\n", to);
}

/* The end of a long path says more than its start. */
static const char *end_of_path(const char *path, char *buf, size_t size) {
    char printable[1024];
    const char *text = chex_text_printable(path, printable, sizeof printable);
    const char *from = text;
    for (int columns = chex_text_columns(text); columns > PATH_COLUMNS; columns--)
        do
            from++;
        while (((unsigned char)*from & 0xc0) == 0x80);
    snprintf(buf, size, "%s%s", from > text ? "..." : "", from);
    return buf;
}

/* The first columns of a long line. */
static const char *start_of(const char *text, char *buf, size_t size) {
    char printable[1024];
    const char *all = chex_text_printable(text, printable, sizeof printable), *end = all;
    for (int columns = 0; *end && columns < LINE_COLUMNS; columns++)
        do
            end++;
        while (((unsigned char)*end & 0xc0) == 0x80);
    snprintf(buf, size, "%.*s%s", (int)(end - all), all, *end ? "..." : "");
    return buf;
}

static void put_head(FILE *to, const struct chex_paired_report *r, size_t i) {
    static const char *const roles[] = {"First", "Second"};
    char path[1100], line[1200];
    for (size_t k = 0; k < 2; k++) {
        const int n =
            snprintf(line, sizeof line, "%s: %s", roles[k],
                     end_of_path(chex_paired_side(r, i, (int)k)->path, path, sizeof path));
        if (r->runs[k] > 1 && n < (int)sizeof line)
            snprintf(line + n, sizeof line - (size_t)n, " and %zu more", r->runs[k] - 1);
        put_text(to, AS_TITLE, 0, k ? 28 : 12, "start", line);
    }
    CHEX_AUTO_FREE char *differs = chex_paired_training_text(&chex_paired_side(r, i, 0)->training,
                                                             &chex_paired_side(r, i, 1)->training);
    put_text(to, CHEX_SVG_AS_TEXT, 0, 44, "start",
             differs ? start_of(differs, line, sizeof line) : "");
    put_text(to, CHEX_SVG_AS_NOTE, NAMES + PLOT + 160, HEAD - 9, "end", "difference, 95 %");
    put_text(to, CHEX_SVG_AS_NOTE, NAMES + PLOT + 212, HEAD - 9, "end", "p Holm");
    put_text(to, CHEX_SVG_AS_NOTE, NAMES + PLOT + NUMBERS, HEAD - 9, "end", "patients");
}

static void put_scale(FILE *to, const struct scale *s, double margin, double height) {
    const int ticks = (int)(s->top / s->step + 0.5);
    char text[32];
    for (int t = -ticks; t <= ticks; t++) {
        const double x = NAMES + x_of(s, t * s->step);
        fprintf(to, "<path %s d=\"M%.1f %dV%.1f\"/>\n", t ? AS_GRID : AS_ZERO, x, HEAD, height);
        snprintf(text, sizeof text, t ? "%+.3g" : "0", t * s->step);
        if (ticks <= 4 || t % 2 == 0)
            put_text(to, CHEX_SVG_AS_NOTE, x, height + 15, "middle", text);
    }
    for (int side = -1; side <= 1 && !isnan(margin); side += 2)
        fprintf(to, "<path " AS_MARGIN " d=\"M%.1f %dV%.1f\"/>\n", NAMES + x_of(s, side * margin),
                HEAD, height);
    put_text(to, CHEX_SVG_AS_NOTE, NAMES + PLOT / 2.0 - 12, height + 32, "end", "second better");
    put_text(to, CHEX_SVG_AS_NOTE, NAMES + PLOT / 2.0 + 12, height + 32, "start", "first better");
}

/* A line from end to end, an arrow at an end beyond the scale. */
static void put_interval(FILE *to, const struct scale *s, const struct chex_interval *i, double y) {
    fprintf(to, "<path " AS_INTERVAL " d=\"M%.1f %.1fH%.1f\"/>\n", NAMES + x_of(s, i->low), y,
            NAMES + x_of(s, i->high));
    const double ends[] = {i->low, i->high};
    for (int k = 0; k < 2; k++) {
        const double x = NAMES + x_of(s, ends[k]);
        if (fabs(ends[k]) <= s->top + 1e-12)
            fprintf(to, "<path " AS_INTERVAL " d=\"M%.1f %.1fv8\"/>\n", x, y - 4);
        else
            fprintf(to, "<path " AS_INTERVAL " d=\"M%.1f %.1fl%d 4l%d 4\"/>\n", x + (k ? -5 : 5),
                    y - 4, k ? 5 : -5, k ? -5 : 5);
    }
}

/* A finding: a point, full if p Holm is below 0.05. The mean: a diamond as wide as its interval. */
static void put_mark(FILE *to, const struct scale *s, const struct chex_paired_class *k, double y) {
    const double x = NAMES + x_of(s, k->difference);
    if (k->name) {
        if (!isnan(k->interval.low))
            put_interval(to, s, &k->interval, y);
        if (fabs(k->difference) <= s->top)
            fprintf(to, "<circle %s cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\"/>\n",
                    k->p_holm < 0.05 ? AS_FULL : AS_EMPTY, x, y);
    } else if (!isnan(k->interval.low)) {
        const double low = NAMES + x_of(s, k->interval.low);
        fprintf(to, "<path %s d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fL%.1f %.1fZ\"/>\n",
                k->p_value < 0.05 ? AS_FULL : AS_EMPTY, low, y, x, y - 6,
                NAMES + x_of(s, k->interval.high), y, x, y + 6);
    }
}

static void put_numbers(FILE *to, const struct chex_paired_class *k, bool patients, double y) {
    char text[64];
    if (isnan(k->difference))
        snprintf(text, sizeof text, "undefined");
    else if (isnan(k->interval.low))
        snprintf(text, sizeof text, "%+.3f, too few", k->difference);
    else
        snprintf(text, sizeof text, "%+.3f (%+.3f, %+.3f)", k->difference, k->interval.low,
                 k->interval.high);
    put_text(to, CHEX_SVG_AS_TEXT, NAMES + PLOT + 160, y, "end", text);
    if (!isnan(k->p_holm)) {
        snprintf(text, sizeof text, k->p_holm < 0.001 ? "<0.001" : "%.3f", k->p_holm);
        put_text(to, CHEX_SVG_AS_TEXT, NAMES + PLOT + 212, y, "end", text);
    }
    if (k->name && patients) {
        snprintf(text, sizeof text, "%zu", k->positive_patients);
        put_text(to, CHEX_SVG_AS_TEXT, NAMES + PLOT + NUMBERS, y, "end", text);
    }
}

static void put_row(FILE *to, const struct scale *s, const struct chex_paired *p,
                    const struct chex_paired_class *k, double y) {
    char name[NAME_BYTES + 4];
    if (k->name)
        chex_text_printable(k->name, name, sizeof name);
    else
        snprintf(name, sizeof name, "Mean of %d finding%s", p->defined,
                 chex_text_s((uint64_t)p->defined));
    fprintf(to, "<text %s x=\"0\" y=\"%.1f\"%s>", CHEX_SVG_AS_TEXT, y + 4,
            k->name ? "" : " font-weight=\"600\"");
    chex_put_xml_name(to, name);
    fputs("</text>\n", to);
    if (!isnan(k->difference))
        put_mark(to, s, k, y);
    put_numbers(to, k, p->patients > 0, y + 4);
}

static double height_of(const struct chex_paired *p) { return HEAD + (p->classes + 1) * ROW; }

static void put_block(FILE *to, const struct chex_paired_report *r, size_t i,
                      const struct scale *s) {
    const struct chex_paired *p = r->compared[i];
    put_head(to, r, i);
    put_scale(to, s, r->config->margin, height_of(p));
    for (int c = 0; c < p->classes; c++)
        put_row(to, s, p, &p->per_class[c], HEAD + (c + 0.5) * ROW);
    put_row(to, s, p, &p->mean, HEAD + (p->classes + 0.5) * ROW);
}

static void begin(FILE *to, const struct chex_paired_report *r, double height) {
    fprintf(to,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\" "
            "font-size=\"11\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" role=\"img\">\n"
            "<title>Differences of AUROCs on the same images</title>\n<desc>%zu comparison%s, a "
            "row for each finding: first minus second with its 95 %% interval. A full mark: p "
            "below 0.05, for findings after Holm's correction.</desc>\n%s"
            "<rect class=\"b\" fill=\"#ffffff\" width=\"%d\" height=\"%.0f\"/>\n",
            WIDTH, height, WIDTH, height, r->count, chex_text_s(r->count), style, WIDTH, height);
}

enum chex_status chex_paired_svg(FILE *to, const struct chex_paired_report *r,
                                 struct chex_error *err) {
    (void)err;
    const struct scale scale = scale_of(r);
    double height = 2 * MARGIN + 18, y = MARGIN;
    for (size_t i = 0; i < r->count; i++)
        height += height_of(r->compared[i]) + FOOT;
    begin(to, r, height);
    for (size_t i = 0; i < r->count; i++) {
        fprintf(to, "<g transform=\"translate(%d %.0f)\">\n", MARGIN, y);
        put_block(to, r, i, &scale);
        fputs("</g>\n", to);
        y += height_of(r->compared[i]) + FOOT;
    }
    fprintf(to, "<g transform=\"translate(%d %.0f)\">\n", MARGIN, y);
    put_text(to, CHEX_SVG_AS_NOTE, 0, 12, "start",
             isnan(r->config->margin)
                 ? "AUROC, first minus second. Full mark: p below 0.05, for findings after Holm's "
                   "correction."
                 : "AUROC, first minus second. Full mark: p below 0.05, for findings after Holm's "
                   "correction. Dashed: the margin.");
    fputs("</g>\n</svg>\n", to);
    return CHEX_OK;
}
