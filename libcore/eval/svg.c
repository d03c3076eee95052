/* SPDX-License-Identifier: Apache-2.0
 *
 * ROC curves and reliability diagrams as small multiples. One plot of 14 crossing curves cannot be
 * read. Here each class has its own panel, with all other curves faint in the background.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "eval/report.h"
#include "eval/textfile.h"

/* Geometry, in units of the drawing. */
enum {
    PLOT = 150,   /* side of a panel's square */
    LEFT = 34,    /* left of the plot: tick labels */
    HEAD = 60,    /* above the plot: a title and two lines */
    FOOT = 34,    /* below the plot: tick labels */
    CELL_W = 206, /* width of a cell of the grid */
    CELL_H = HEAD + PLOT + FOOT,
    MARGIN = 14,
    NAME_BYTES = 28, /* a longer title is cut */
    NAME_FITS = 18,  /* a title with more letters gets a smaller font */
};

/* Presentation attributes instead of CSS, so that librsvg, LaTeX tools and browsers draw the same
 * picture. The classes are for the dark scheme of report.html. */
#define INK "#1c2733"
#define MUTED "#5b6875"
#define LINE "#c3ccd5"
#define ACCENT "#0b62c4"
#define FONT                                                                                       \
    "font-family=\"system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif\" font-size=\"11\""
#define AS_TITLE "class=\"t\" fill=\"" INK "\" font-weight=\"600\""
#define AS_TEXT "class=\"t\" fill=\"" INK "\""
#define AS_NOTE "class=\"m\" fill=\"" MUTED "\""
#define AS_GRID "class=\"f\" fill=\"none\" stroke=\"" LINE "\" stroke-dasharray=\"1 3\""
#define AS_FRAME "class=\"f\" fill=\"none\" stroke=\"" LINE "\""
#define AS_DIAGONAL "class=\"d\" fill=\"none\" stroke=\"" MUTED "\" stroke-dasharray=\"5 4\""
#define AS_OTHERS "class=\"cxo\" fill=\"none\" stroke=\"#b9c4cf\""
#define AS_CURVE "class=\"c\" fill=\"none\" stroke=\"" ACCENT "\" stroke-linejoin=\"round\""
#define AS_DOT "class=\"p\" fill=\"" ACCENT "\""

/* Dark scheme, only in report.html. .cxo has no parent selector, because elements repeated by <use>
 * have no ancestors. */
static const char dark_style[] =
    "<style>@media (prefers-color-scheme:dark){.cx .t{fill:#e6edf3}.cx .m{fill:#9aa7b4}"
    ".cx .f{stroke:#3a4653}.cx .d{stroke:#9aa7b4}.cx .c{stroke:#6fb1ff}.cx .p{fill:#6fb1ff}"
    ".cxo{stroke:#4a5866}}</style>\n";

/* A grid of panels. A file is one drawing. In report.html each panel is one drawing, and the width
 * of the page sets the panels per row. */
struct sheet {
    FILE *to;
    int cells, cols;
    bool file;
};

static void begin_file(const struct sheet *s, const char *title, const char *desc) {
    const int rows = (s->cells + s->cols - 1) / s->cols;
    const int w = 2 * MARGIN + s->cols * CELL_W, h = 2 * MARGIN + rows * CELL_H;
    fprintf(s->to,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "xmlns:xlink=\"http://www.w3.org/1999/xlink\" " FONT
            " viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n<title>",
            w, h, w, h);
    chex_put_xml(s->to, title);
    fputs("</title>\n<desc>", s->to);
    chex_put_xml(s->to, desc);
    fprintf(s->to, "</desc>\n<rect fill=\"#ffffff\" width=\"%d\" height=\"%d\"/>\n<defs>", w, h);
}

/* The first drawing is invisible. It holds the style and the definitions that all panels use. */
static void begin_page(const struct sheet *s, const char *title, const char *desc) {
    fprintf(s->to, "<div class=\"cxs\" role=\"img\" style=\"max-width:%dpx\" aria-label=\"",
            s->cols * CELL_W);
    chex_put_xml(s->to, title);
    fputs(": ", s->to);
    chex_put_xml(s->to, desc);
    fprintf(s->to,
            "\">\n<svg class=\"cx\" "
            "style=\"position:absolute;width:0;height:0\">\n%s<defs>",
            dark_style);
}

/* Begins a sheet. Elements written before end_defs() are definitions for <use>. */
static struct sheet begin(FILE *to, int cells, const char *title, const char *desc, bool file) {
    const int cols = cells >= 10 ? 5 : cells >= 6 ? 4 : cells < 3 ? cells : 3;
    const struct sheet s = {to, cells, cols, file};
    if (file)
        begin_file(&s, title, desc);
    else
        begin_page(&s, title, desc);
    return s;
}

static void end_defs(const struct sheet *s) {
    fputs(s->file ? "</defs>\n" : "</defs>\n</svg>\n", s->to);
}

/* Opens panel i. The origin of its coordinates is the top left corner of the plot. */
static void open_panel(const struct sheet *s, int i) {
    if (s->file)
        fprintf(s->to, "<g transform=\"translate(%d %d)\">\n", MARGIN + i % s->cols * CELL_W + LEFT,
                MARGIN + i / s->cols * CELL_H + HEAD);
    else
        fprintf(s->to, "<svg class=\"cx\" " FONT " viewBox=\"%d %d %d %d\">\n", -LEFT, -HEAD,
                CELL_W, CELL_H);
}

static void close_panel(const struct sheet *s) { fputs(s->file ? "</g>\n" : "</svg>\n", s->to); }

static void end(const struct sheet *s) { fputs(s->file ? "</svg>\n" : "</div>\n", s->to); }

/* Writes a title and up to two lines below it (NULL: none). */
static void put_title(FILE *to, const char *name, const char *first, const char *second) {
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
    fprintf(to, "<text " AS_TITLE " font-size=\"%.1f\" y=\"-37\">",
            letters > NAME_FITS ? 13.0 * NAME_FITS / letters : 13.0);
    chex_report_put_name(to, cut);
    fputs("</text>\n", to);
    for (int i = 0; i < 2; i++) {
        if (!lines[i])
            continue;
        fprintf(to, "<text " AS_NOTE " y=\"%d\">", i ? -9 : -23);
        chex_put_xml(to, lines[i]);
        fputs("</text>\n", to);
    }
}

/* Writes frame, grid, diagonal, and ticks at 0, top / 2 and top. */
static void put_axes(FILE *to, double top) {
    for (int k = 0; k <= 4; k++) {
        const int at = k * PLOT / 4;
        if (k % 4 != 0)
            fprintf(to, "<path " AS_GRID " d=\"M%d 0V%dM0 %dH%d\"/>\n", at, PLOT, at, PLOT);
        if (k % 2 != 0)
            continue;
        fprintf(to, "<text " AS_NOTE " text-anchor=\"middle\" x=\"%d\" y=\"%d\">%.3g</text>\n", at,
                PLOT + 14, top * k / 4);
        fprintf(to, "<text " AS_NOTE " text-anchor=\"end\" x=\"-5\" y=\"%d\">%.3g</text>\n",
                PLOT - at + 4, top * k / 4);
    }
    fprintf(to,
            "<path " AS_DIAGONAL " d=\"M0 %dL%d 0\"/>\n<rect " AS_FRAME
            " width=\"%d\" height=\"%d\"/>\n",
            PLOT, PLOT, PLOT, PLOT);
}

/* Draws a curve. A point nearer than `min_px` to the last one drawn is skipped. */
static void put_curve(FILE *to, const char *attributes, const struct chex_roc *roc, double min_px) {
    double x0 = 0, y0 = 0;
    fprintf(to, "<path %s d=\"M0 %d", attributes, PLOT);
    for (size_t i = 1; i < roc->count; i++) {
        double x = roc->fpr[i] * PLOT, y = roc->tpr[i] * PLOT;
        if (i + 1 < roc->count && fabs(x - x0) + fabs(y - y0) < min_px)
            continue;
        fprintf(to, "L%.1f %.1f", x, PLOT - y);
        x0 = x;
        y0 = y;
    }
    fputs("\"/>\n", to);
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
    put_title(to, k->name, value, range);
}

static void put_legend(FILE *to, const char *first, const char *second,
                       const char *const lines[][2], size_t count) {
    put_title(to, "Legend", first, second);
    for (size_t i = 0; i < count; i++)
        fprintf(to,
                "<g transform=\"translate(-26 %d)\">%s<text " AS_TEXT
                " x=\"32\" y=\"4\">%s</text></g>\n",
                12 + (int)i * 26, lines[i][0], lines[i][1]);
}

static enum chex_status make_curves(const struct chex_scores *s, struct chex_roc **roc,
                                    struct chex_error *err) {
    for (int c = 0; c < s->classes; c++)
        if (!isnan(s->per_class[c].auroc))
            CHEX_TRY(chex_roc_create(s->rankings[c], &roc[c], err));
    return CHEX_OK;
}

enum chex_status chex_svg_roc(FILE *to, const struct chex_report *r, bool file,
                              struct chex_error *err) {
    static const char *const legend[][2] = {
        {"<path " AS_CURVE " stroke-width=\"2\" d=\"M0 0H24\"/>", "the class of the panel"},
        {"<path " AS_OTHERS " stroke-width=\"1.4\" d=\"M0 0H24\"/>", "the other classes"},
        {"<path " AS_DIAGONAL " d=\"M0 0H24\"/>", "chance"},
        {"<text " AS_NOTE " x=\"4\" y=\"4\">x</text>", "false positive rate"},
        {"<text " AS_NOTE " x=\"4\" y=\"4\">y</text>", "true positive rate"},
    };
    const struct chex_scores *s = r->scores;
    const int cells = s->classes + 1;
    char line[80], desc[160];
    struct chex_roc **roc = calloc((size_t)s->classes, sizeof *roc);
    if (!roc)
        return chex_error_memory(err, "the curves");
    enum chex_status st = make_curves(s, roc, err);
    if (st != CHEX_OK)
        goto out;
    snprintf(desc, sizeof desc,
             "Receiver operating characteristic of %d classes, one panel each, with the AUROC%s.",
             s->classes, s->config.replicates ? " and its 95 % interval" : "");
    const struct sheet sheet = begin(to, cells, r->title, desc, file);
    /* Written once and reused in every panel. Otherwise the size of the file would grow with the
     * square of the number of classes. */
    fputs("<g id=\"cx-all\" stroke-width=\".7\" opacity=\".55\">\n", to);
    for (int c = 0; c < s->classes; c++)
        if (roc[c])
            put_curve(to, AS_OTHERS, roc[c], 2);
    fputs("</g>", to);
    end_defs(&sheet);
    for (int c = 0; c < s->classes; c++) {
        open_panel(&sheet, c);
        put_class_title(to, s, c);
        fprintf(to, "<use %shref=\"#cx-all\"/>\n", file ? "xlink:" : "");
        put_axes(to, 1);
        if (roc[c])
            put_curve(to, AS_CURVE " stroke-width=\"2\"", roc[c], 0.4);
        close_panel(&sheet);
    }
    open_panel(&sheet, cells - 1);
    if (isnan(s->mean))
        snprintf(line, sizeof line, "mean AUROC undefined");
    else
        snprintf(line, sizeof line, "mean AUROC %.3f", s->mean);
    snprintf(desc, sizeof desc, "of %d of %d classes", s->defined, s->classes);
    put_legend(to, line, desc, legend, sizeof legend / sizeof legend[0]);
    close_panel(&sheet);
    end(&sheet);
out:
    for (int c = 0; c < s->classes; c++)
        chex_roc_destroy(roc[c]);
    free(roc);
    return st;
}

/* ---- reliability ---- */

bool chex_svg_are_probabilities(const struct chex_predictions *t) {
    for (size_t i = 0; i < t->rows * (size_t)t->classes; i++)
        if (!(t->score[i] >= 0 && t->score[i] <= 1))
            return false;
    return true;
}

enum { BINS = 10 };

struct bin {
    double score, observed; /* means of the bin */
};

/* Splits the ranking into bins of equal count. A tie group can be split: its positives are then
 * spread evenly over the bins. */
static int fill_bins(const struct chex_ranking *r, struct bin *bins) {
    const int count = r->count < BINS ? (int)r->count : BINS;
    const double each = count ? (double)r->count / count : 0;
    double sum = 0, positives = 0, filled = 0;
    int b = 0;
    for (size_t g = 0; g < r->tie_count; g++) {
        const double n = (double)r->ties[g].negatives + (double)r->ties[g].positives;
        const double rate = (double)r->ties[g].positives / n;
        for (double rest = n; rest > 1e-9 && b < count;) {
            double part = fmin(rest, each - filled);
            sum += part * r->score[g];
            positives += part * rate;
            filled += part;
            rest -= part;
            if (filled >= each - 1e-9) {
                bins[b++] = (struct bin){sum / filled, positives / filled};
                sum = positives = filled = 0;
            }
        }
    }
    return b;
}

static void put_reliability(FILE *to, const struct bin *bins, int count, double top) {
    fputs("<path " AS_CURVE " stroke-width=\"1.2\" d=\"", to);
    for (int b = 0; b < count; b++)
        fprintf(to, "%c%.1f %.1f", b ? 'L' : 'M', bins[b].score / top * PLOT,
                PLOT - bins[b].observed / top * PLOT);
    fputs("\"/>\n", to);
    for (int b = 0; b < count; b++)
        fprintf(to, "<circle " AS_DOT " r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>\n",
                bins[b].score / top * PLOT, PLOT - bins[b].observed / top * PLOT);
}

/* The least of 0.01, 0.02, 0.05, ..., 1 that is not below any bin. */
static double axis_top(const struct bin *bins, int count) {
    static const double tops[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
    double max = 0;
    for (int b = 0; b < count; b++)
        max = fmax(max, fmax(bins[b].score, bins[b].observed));
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++)
        if (max <= tops[i])
            return tops[i];
    return 1;
}

enum chex_status chex_svg_reliability(FILE *to, const struct chex_report *r,
                                      struct chex_error *err) {
    static const char *const legend[][2] = {
        {"<path " AS_CURVE " stroke-width=\"1.2\" d=\"M0 0H24\"/><circle " AS_DOT
         " r=\"3\" cx=\"12\"/>",
         "predictions in order"},
        {"<path " AS_DIAGONAL " d=\"M0 0H24\"/>", "calibrated"},
        {"<text " AS_NOTE " x=\"4\" y=\"4\">x</text>", "mean predicted"},
        {"<text " AS_NOTE " x=\"4\" y=\"4\">y</text>", "share of positives"},
        {"", "axes end where the data do"},
    };
    (void)err;
    const struct chex_scores *s = r->scores;
    const int cells = s->classes + 1;
    char line[80], share[80];
    const struct sheet sheet = begin(
        to, cells, "Reliability",
        "Share of positive images against the mean predicted probability, in ten bins of equal "
        "count, one panel a class.",
        false);
    end_defs(&sheet);
    for (int c = 0; c < s->classes; c++) {
        const struct chex_ranking *k = s->rankings[c];
        struct bin bins[BINS];
        int count = fill_bins(k, bins);
        double top = axis_top(bins, count), mean = 0;
        for (int b = 0; b < count; b++)
            mean += bins[b].score / count;
        snprintf(line, sizeof line, "mean predicted %.2g", mean);
        snprintf(share, sizeof share, "share of positives %.2g",
                 k->count ? (double)k->positives / (double)k->count : 0.0);
        open_panel(&sheet, c);
        put_title(to, s->per_class[c].name, line, share);
        put_axes(to, top);
        if (count)
            put_reliability(to, bins, count, top);
        close_panel(&sheet);
    }
    open_panel(&sheet, cells - 1);
    put_legend(to, "dots: tenths of the images", NULL, legend, sizeof legend / sizeof legend[0]);
    close_panel(&sheet);
    end(&sheet);
    return CHEX_OK;
}
