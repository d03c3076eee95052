/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawing vocabulary of the plots: small multiples, which are a grid of equal panels with axes,
 * curves and a legend. The plots themselves are svg_*.c.
 *
 * Coordinates in a panel: the origin is the top left corner of the plot, which is a square of
 * CHEX_SVG_PLOT units. Scales convert values to units.
 *
 * Looks are presentation attributes instead of CSS, so that librsvg, LaTeX tools and browsers draw
 * the same picture. The classes are for the dark scheme of report.html. Lines that mean different
 * things differ in colour and in dashes, so that a plot can be read without colours.
 *
 * Write errors: ferror(to).
 */
#ifndef CHEX_REPORT_SVG_H
#define CHEX_REPORT_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

enum { CHEX_SVG_PLOT = 150 };

#define CHEX_SVG_INK "#1c2733"
#define CHEX_SVG_MUTED "#5b6875"
#define CHEX_SVG_LINE "#c3ccd5"
#define CHEX_SVG_FIRST "#0b62c4"  /* blue: this network */
#define CHEX_SVG_SECOND "#b4540a" /* orange: what it is compared with */
#define CHEX_SVG_FONT                                                                              \
    "font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\" font-size=\"12\""
#define CHEX_SVG_AS_TEXT "class=\"t\" fill=\"" CHEX_SVG_INK "\""
#define CHEX_SVG_AS_NOTE "class=\"m\" fill=\"" CHEX_SVG_MUTED "\""
#define CHEX_SVG_AS_FRAME "class=\"f\" fill=\"none\" stroke=\"" CHEX_SVG_LINE "\""
#define CHEX_SVG_AS_REFERENCE                                                                      \
    "class=\"d\" fill=\"none\" stroke=\"" CHEX_SVG_MUTED "\" stroke-dasharray=\"5 4\""
#define CHEX_SVG_AS_DOTTED                                                                         \
    "class=\"d\" fill=\"none\" stroke=\"" CHEX_SVG_MUTED "\" stroke-dasharray=\"1.5 3\""
#define CHEX_SVG_AS_OTHERS "class=\"cxo\" fill=\"none\" stroke=\"#b9c4cf\""
#define CHEX_SVG_AS_CURVE                                                                          \
    "class=\"c\" fill=\"none\" stroke=\"" CHEX_SVG_FIRST "\" stroke-linejoin=\"round\""
#define CHEX_SVG_AS_SECOND                                                                         \
    "class=\"c2\" fill=\"none\" stroke=\"" CHEX_SVG_SECOND "\" stroke-linejoin=\"round\""
#define CHEX_SVG_AS_BAND "class=\"p\" fill=\"" CHEX_SVG_FIRST "\" fill-opacity=\".16\""
#define CHEX_SVG_AS_DOT "class=\"p\" fill=\"" CHEX_SVG_FIRST "\""

/* A grid of panels. A file is one drawing. In report.html each panel is one drawing, and the width
 * of the page sets the panels per row. */
struct chex_svg_sheet {
    FILE *to;
    int cells, cols;
    bool file;
};

/* Begins a sheet of `cells` panels, with a text for those who cannot see it.
 * - file true: a complete SVG file with XML declaration. false: an element of report.html.
 * - Elements written before chex_svg_end_defs() are definitions for <use>. */
struct chex_svg_sheet chex_svg_begin(FILE *to, int cells, const char *title, const char *desc,
                                     bool file);
void chex_svg_end_defs(const struct chex_svg_sheet *s);
void chex_svg_open_panel(const struct chex_svg_sheet *s, int i);
void chex_svg_close_panel(const struct chex_svg_sheet *s);
void chex_svg_end(const struct chex_svg_sheet *s);

/* Writes the name of a class, cut and shrunk to the panel, and up to two lines below (NULL: none).
 */
void chex_svg_title(FILE *to, const char *name, const char *first, const char *second);

/* The values at the two ends of an axis. */
struct chex_svg_scale {
    double low, high;
};
double chex_svg_x(struct chex_svg_scale s, double v); /* in units, clipped to the plot */
double chex_svg_y(struct chex_svg_scale s, double v);

/* A round number, 1, 2 or 5 times a power of ten, at least `v` and at least 1e-4. 1 if `v` is not
 * above 0. */
double chex_svg_round_up(double v);

/* Writes frame, grid, and ticks at the ends and the middle of both axes. */
void chex_svg_axes(FILE *to, struct chex_svg_scale x, struct chex_svg_scale y);

/* Draws the points (x[i], y[i]) as a line. A point nearer than `min_units` to the last one drawn is
 * skipped, except the last. NaN ends a piece. */
void chex_svg_line(FILE *to, const char *attributes, struct chex_svg_scale sx,
                   struct chex_svg_scale sy, const double *x, const double *y, size_t count,
                   double min_units);

/* Fills the area between low[i] and high[i]. Points at which one of them is NaN are left out. */
void chex_svg_band(FILE *to, struct chex_svg_scale sx, struct chex_svg_scale sy, const double *x,
                   const double *low, const double *high, size_t count);

/* Draws a straight line between two points of the scales. */
void chex_svg_segment(FILE *to, const char *attributes, struct chex_svg_scale sx,
                      struct chex_svg_scale sy, double x0, double y0, double x1, double y1);

/* A line of the legend: a sample of what is drawn, 24 units wide around y = 0, and its meaning. */
struct chex_svg_key {
    const char *sample, *meaning;
};
#define CHEX_SVG_AXIS(letter) "<text " CHEX_SVG_AS_NOTE " x=\"4\" y=\"4\">" letter "</text>"
#define CHEX_SVG_SAMPLE(attributes) "<path " attributes " d=\"M0 0H24\"/>"

/* Ends a sheet of panels: writes panel i, with up to two lines below its title, as the legend. */
void chex_svg_end_with_legend(const struct chex_svg_sheet *s, const char *first, const char *second,
                              const struct chex_svg_key *k, size_t count);

/* Writes an element of report.html with a panel for each class and a legend.
 * - put: writes panel c. An error ends the panels.
 * - first: a line of the legend; NULL: none */
struct chex_svg_plot {
    const char *title, *desc, *first;
    const struct chex_svg_key *keys;
    size_t key_count;
    enum chex_status (*put)(FILE *to, const void *context, int c, struct chex_error *err);
};
enum chex_status chex_svg_panels(FILE *to, const struct chex_svg_plot *plot, int classes,
                                 const void *context, struct chex_error *err);

#endif
