/* SPDX-License-Identifier: Apache-2.0
 *
 * Small multiples: the grid, the axes, the curves and the legend of all plots.
 */
#include "report/svg.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "base/textfile.h"

/* Geometry, in units of the drawing. */
enum {
    PLOT = CHEX_SVG_PLOT,
    LEFT = 36,    /* left of the plot: tick labels */
    HEAD = 60,    /* above the plot: a title and two lines */
    FOOT = 34,    /* below the plot: tick labels */
    CELL_W = 202, /* width of a cell of the grid */
    CELL_H = HEAD + PLOT + FOOT,
    MARGIN = 14,
    NAME_BYTES = 28, /* a longer title is cut */
    NAME_FITS = 18,  /* a title with more letters gets a smaller font */
};

#define AS_TITLE "class=\"t\" fill=\"" CHEX_SVG_INK "\" font-weight=\"600\""
#define AS_GRID "class=\"f\" fill=\"none\" stroke=\"" CHEX_SVG_LINE "\" stroke-dasharray=\"1 3\""

/* ---- the grid ---- */

static void begin_file(const struct chex_svg_sheet *s, const char *title, const char *desc) {
    const int rows = (s->cells + s->cols - 1) / s->cols;
    const int w = 2 * MARGIN + s->cols * CELL_W, h = 2 * MARGIN + rows * CELL_H;
    fprintf(s->to,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "xmlns:xlink=\"http://www.w3.org/1999/xlink\" " CHEX_SVG_FONT
            " viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n<title>",
            w, h, w, h);
    chex_put_xml(s->to, title);
    fputs("</title>\n<desc>", s->to);
    chex_put_xml(s->to, desc);
    fprintf(s->to, "</desc>\n<rect fill=\"#ffffff\" width=\"%d\" height=\"%d\"/>\n<defs>", w, h);
}

/* The first drawing is invisible. It holds the definitions that all panels use. */
static void begin_page(const struct chex_svg_sheet *s, const char *title, const char *desc) {
    fprintf(s->to, "<div class=\"cxs\" role=\"img\" style=\"max-width:%dpx%s\" aria-label=\"",
            s->cols * CELL_W, s->cols == 1 ? ";grid-template-columns:1fr" : "");
    chex_put_xml(s->to, title);
    chex_put_xml_between(
        s->to, ": ", desc,
        "\">\n<svg class=\"cx\" style=\"position:absolute;width:0;height:0\">\n<defs>");
}

struct chex_svg_sheet chex_svg_begin(FILE *to, int cells, const char *title, const char *desc,
                                     bool file) {
    const int cols = cells >= 9 ? 5 : cells >= 6 ? (cells + 1) / 2 : cells;
    const struct chex_svg_sheet s = {to, cells, cols, file};
    if (file)
        begin_file(&s, title, desc);
    else
        begin_page(&s, title, desc);
    return s;
}

void chex_svg_end_defs(const struct chex_svg_sheet *s) {
    fputs(s->file ? "</defs>\n" : "</defs>\n</svg>\n", s->to);
}

void chex_svg_open_panel(const struct chex_svg_sheet *s, int i) {
    if (s->file)
        fprintf(s->to, "<g transform=\"translate(%d %d)\">\n", MARGIN + i % s->cols * CELL_W + LEFT,
                MARGIN + i / s->cols * CELL_H + HEAD);
    else
        fprintf(s->to, "<svg class=\"cx\" " CHEX_SVG_FONT " viewBox=\"%d %d %d %d\">\n", -LEFT,
                -HEAD, CELL_W, CELL_H);
}

void chex_svg_close_panel(const struct chex_svg_sheet *s) {
    fputs(s->file ? "</g>\n" : "</svg>\n", s->to);
}

void chex_svg_end(const struct chex_svg_sheet *s) {
    fputs(s->file ? "</svg>\n" : "</div>\n", s->to);
}

/* ---- a panel ---- */

void chex_svg_title(FILE *to, const char *name, const char *first, const char *second) {
    const char *const lines[] = {first, second};
    char cut[NAME_BYTES + 1];
    snprintf(cut, sizeof cut, "%s", name);
    if (strlen(name) >= sizeof cut) {
        size_t end = sizeof cut - 4;
        while (end > 0 && ((unsigned char)cut[end] & 0xc0) == 0x80)
            end--; /* do not cut within a UTF-8 sequence */
        memcpy(cut + end, "...", 4);
    }
    const int letters = chex_text_columns(cut);
    fprintf(to, "<text " AS_TITLE " font-size=\"%.1f\" y=\"-38\">",
            letters > NAME_FITS ? 13.5 * NAME_FITS / letters : 13.5);
    chex_put_xml_name(to, cut);
    fputs("</text>\n", to);
    for (int i = 0; i < 2; i++) {
        if (!lines[i])
            continue;
        fprintf(to, "<text " CHEX_SVG_AS_NOTE " y=\"%d\">", i ? -8 : -23);
        chex_put_xml(to, lines[i]);
        fputs("</text>\n", to);
    }
}

static double clip(double v) { return fmin(fmax(v, 0), PLOT); }

double chex_svg_x(struct chex_svg_scale s, double v) {
    return clip((v - s.low) / (s.high - s.low) * PLOT);
}

double chex_svg_y(struct chex_svg_scale s, double v) { return PLOT - chex_svg_x(s, v); }

double chex_svg_round_up(double v) {
    static const double steps[] = {1, 2, 5, 10};
    if (!(v > 0))
        return 1;
    v = fmax(v, 1e-4);
    const double power = pow(10, floor(log10(v)));
    for (size_t i = 0; i < CHEX_COUNT(steps); i++)
        if (v <= steps[i] * power * (1 + 1e-9))
            return steps[i] * power;
    return 10 * power;
}

void chex_svg_axes(FILE *to, struct chex_svg_scale x, struct chex_svg_scale y) {
    for (int k = 0; k <= 4; k++) {
        const int at = k * PLOT / 4;
        if (k % 4 != 0)
            fprintf(to, "<path " AS_GRID " d=\"M%d 0V%dM0 %dH%d\"/>\n", at, PLOT, at, PLOT);
        if (k % 2 != 0)
            continue;
        fprintf(to,
                "<text " CHEX_SVG_AS_NOTE " text-anchor=\"middle\" x=\"%d\" y=\"%d\">%.3g</text>\n",
                at, PLOT + 15, x.low + (x.high - x.low) * k / 4);
        fprintf(to,
                "<text " CHEX_SVG_AS_NOTE " text-anchor=\"end\" x=\"-5\" y=\"%d\">%.3g</text>\n",
                PLOT - at + 4, y.low + (y.high - y.low) * k / 4);
    }
    fprintf(to, "<rect " CHEX_SVG_AS_FRAME " width=\"%d\" height=\"%d\"/>\n", PLOT, PLOT);
}

void chex_svg_line(FILE *to, const char *attributes, struct chex_svg_scale sx,
                   struct chex_svg_scale sy, const double *x, const double *y, size_t count,
                   double min_units) {
    double x0 = 0, y0 = 0;
    bool open = false, any = false;
    for (size_t i = 0; i < count; i++) {
        if (isnan(x[i]) || isnan(y[i])) {
            open = false;
            continue;
        }
        const double px = chex_svg_x(sx, x[i]), py = chex_svg_y(sy, y[i]);
        if (open && i + 1 < count && fabs(px - x0) + fabs(py - y0) < min_units)
            continue;
        if (!any)
            fprintf(to, "<path %s d=\"", attributes);
        fprintf(to, "%c%.1f %.1f", open ? 'L' : 'M', px, py);
        any = open = true;
        x0 = px;
        y0 = py;
    }
    fputs(any ? "\"/>\n" : "", to);
}

void chex_svg_band(FILE *to, struct chex_svg_scale sx, struct chex_svg_scale sy, const double *x,
                   const double *low, const double *high, size_t count) {
    size_t points = 0;
    for (size_t i = 0; i < 2 * count; i++) {
        const size_t k = i < count ? i : 2 * count - 1 - i;
        if (isnan(x[k]) || isnan(low[k]) || isnan(high[k]))
            continue;
        fprintf(to, points ? "L" : "<path " CHEX_SVG_AS_BAND " d=\"M");
        fprintf(to, "%.1f %.1f", chex_svg_x(sx, x[k]),
                chex_svg_y(sy, i < count ? high[k] : low[k]));
        points++;
    }
    fputs(points ? "Z\"/>\n" : "", to);
}

void chex_svg_segment(FILE *to, const char *attributes, struct chex_svg_scale sx,
                      struct chex_svg_scale sy, double x0, double y0, double x1, double y1) {
    fprintf(to, "<path %s d=\"M%.1f %.1fL%.1f %.1f\"/>\n", attributes, chex_svg_x(sx, x0),
            chex_svg_y(sy, y0), chex_svg_x(sx, x1), chex_svg_y(sy, y1));
}

void chex_svg_end_with_legend(const struct chex_svg_sheet *s, const char *first, const char *second,
                              const struct chex_svg_key *k, size_t count) {
    chex_svg_open_panel(s, s->cells - 1);
    chex_svg_title(s->to, "Legend", first, second);
    for (size_t i = 0; i < count; i++)
        fprintf(s->to,
                "<g transform=\"translate(-28 %d)\">%s<text " CHEX_SVG_AS_TEXT
                " x=\"32\" y=\"4\">%s</text></g>\n",
                12 + (int)i * 24, k[i].sample, k[i].meaning);
    chex_svg_close_panel(s);
    chex_svg_end(s);
}

enum chex_status chex_svg_panels(FILE *to, const struct chex_svg_plot *plot, int classes,
                                 const void *context, struct chex_error *err) {
    const struct chex_svg_sheet sheet =
        chex_svg_begin(to, classes + 1, plot->title, plot->desc, false);
    chex_svg_end_defs(&sheet);
    for (int c = 0; c < classes; c++) {
        chex_svg_open_panel(&sheet, c);
        CHEX_TRY(plot->put(to, context, c, err));
        chex_svg_close_panel(&sheet);
    }
    chex_svg_end_with_legend(&sheet, plot->first, NULL, plot->keys, plot->key_count);
    return CHEX_OK;
}
