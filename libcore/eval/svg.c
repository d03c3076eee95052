/* SPDX-License-Identifier: Apache-2.0
 *
 * Plots as small multiples. One plot of 14 crossing curves cannot be read; here each class has its
 * panel, with all others faint behind it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/report.h"
#include "eval/textfile.h"

/* Geometry in px of the drawing's own coordinates. */
enum {
    PLOT = 150,   /* side of a panel's square */
    LEFT = 34,    /* to the left of it: tick labels */
    HEAD = 46,    /* above it: two lines of title */
    FOOT = 34,    /* below it: tick labels */
    CELL_W = 206, /* of the grid */
    CELL_H = HEAD + PLOT + FOOT,
    MARGIN = 14,
};

/* Colours for both schemes. Inside report.html the rules hold for the page too, hence the names;
 * cxo stands alone because what <use> repeats has no ancestors for a selector to look at. */
static const char style[] =
    "<style>\n"
    ".cx{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:11px;"
    "--fg:#1c2733;--mut:#5b6875;--line:#c3ccd5;--bg:#fff;--acc:#0b62c4;--ghost:#b9c4cf}\n"
    ".cx text{fill:var(--fg)}.cx .m{fill:var(--mut)}.cx .t{font-size:13px;font-weight:600}\n"
    ".cx .bg{fill:var(--bg)}.cx .f{fill:none;stroke:var(--line)}\n"
    ".cx .g{stroke:var(--line);stroke-dasharray:1 3}\n"
    ".cx .d{stroke:var(--mut);stroke-dasharray:5 4}\n"
    ".cxo{fill:none;stroke:var(--ghost);stroke-width:.7;opacity:.55}\n"
    ".cx .c{fill:none;stroke:var(--acc);stroke-width:2;stroke-linejoin:round}\n"
    ".cx .p{fill:var(--acc)}\n"
    "@media (prefers-color-scheme:dark){.cx{--fg:#e6edf3;--mut:#9aa7b4;--line:#3a4653;--bg:#10161d;"
    "--acc:#6fb1ff;--ghost:#4a5866}}\n"
    "</style>\n";

/* Panels in a grid: one drawing as a file; in report.html one drawing a panel, and the width of the
 * page says how many stand in a row. */
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
            "class=\"cx\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n<title>",
            w, h, w, h);
    chex_put_xml(s->to, title);
    fputs("</title>\n<desc>", s->to);
    chex_put_xml(s->to, desc);
    fprintf(s->to, "</desc>\n%s<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n<defs>", style, w,
            h);
}

/* The first drawing shows nothing; it holds what all panels use. */
static void begin_page(const struct sheet *s, const char *title, const char *desc) {
    fprintf(s->to, "<div class=\"cxs\" role=\"img\" style=\"max-width:%dpx\" aria-label=\"",
            s->cols * CELL_W);
    chex_put_xml(s->to, title);
    fputs(": ", s->to);
    chex_put_xml(s->to, desc);
    fprintf(s->to,
            "\">\n<svg class=\"cx\" "
            "style=\"position:absolute;width:0;height:0\">\n%s<defs>",
            style);
}

/* What follows, up to end_defs, can be shown by <use>. */
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

/* Opens panel i; inside it (0, 0) is the plot's top left corner. */
static void open_panel(const struct sheet *s, int i) {
    if (s->file)
        fprintf(s->to, "<g transform=\"translate(%d %d)\">\n", MARGIN + i % s->cols * CELL_W + LEFT,
                MARGIN + i / s->cols * CELL_H + HEAD);
    else
        fprintf(s->to, "<svg class=\"cx\" viewBox=\"%d %d %d %d\">\n", -LEFT, -HEAD, CELL_W,
                CELL_H);
}

static void close_panel(const struct sheet *s) { fputs(s->file ? "</g>\n" : "</svg>\n", s->to); }

static void end(const struct sheet *s) { fputs(s->file ? "</svg>\n" : "</div>\n", s->to); }

static void put_title(FILE *to, const char *name, const char *line) {
    fputs("<text class=\"t\" y=\"-24\">", to);
    /* What is wider than the panel would run into the next one. */
    char cut[26];
    snprintf(cut, sizeof cut, "%s", name);
    if (strlen(name) >= sizeof cut) {
        size_t end = sizeof cut - 4;
        while (end > 0 && ((unsigned char)cut[end] & 0xc0) == 0x80)
            end--; /* not within a UTF-8 sequence */
        memcpy(cut + end, "...", 4);
    }
    chex_put_xml(to, cut);
    fputs("</text>\n<text class=\"m\" y=\"-9\">", to);
    chex_put_xml(to, line);
    fputs("</text>\n", to);
}

/* Frame, grid, diagonal and ticks at 0, half and the whole of `top`. */
static void put_axes(FILE *to, double top) {
    for (int k = 0; k <= 4; k++) {
        const int at = k * PLOT / 4;
        if (k % 4 != 0)
            fprintf(to, "<path class=\"g\" d=\"M%d 0V%dM0 %dH%d\"/>\n", at, PLOT, at, PLOT);
        if (k % 2 != 0)
            continue;
        fprintf(to, "<text class=\"m\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">%.3g</text>\n", at,
                PLOT + 14, top * k / 4);
        fprintf(to, "<text class=\"m\" text-anchor=\"end\" x=\"-5\" y=\"%d\">%.3g</text>\n",
                PLOT - at + 4, top * k / 4);
    }
    fprintf(
        to,
        "<path class=\"d\" d=\"M0 %dL%d 0\"/>\n<rect class=\"f\" width=\"%d\" height=\"%d\"/>\n",
        PLOT, PLOT, PLOT, PLOT);
}

/* Points nearer than this to the last one drawn are left out. */
static void put_curve(FILE *to, const char *kind, const struct chex_roc *roc, double least_px) {
    double x0 = 0, y0 = 0;
    fprintf(to, "<path class=\"%s\" d=\"M0 %d", kind, PLOT);
    for (size_t i = 1; i < roc->count; i++) {
        double x = roc->fpr[i] * PLOT, y = roc->tpr[i] * PLOT;
        if (i + 1 < roc->count && fabs(x - x0) + fabs(y - y0) < least_px)
            continue;
        fprintf(to, "L%.1f %.1f", x, PLOT - y);
        x0 = x;
        y0 = y;
    }
    fputs("\"/>\n", to);
}

static void class_line(const struct chex_class_score *k, char *buf, size_t size) {
    if (isnan(k->auroc))
        snprintf(buf, size, "undefined, %zu positive%s", k->positives,
                 k->positives == 1 ? "" : "s");
    else if (isnan(k->interval.low))
        snprintf(buf, size, "AUROC %.3f, %zu pos.", k->auroc, k->positives);
    else
        snprintf(buf, size, "AUROC %.3f (%.3f to %.3f)", k->auroc, k->interval.low,
                 k->interval.high);
}

static void put_legend(FILE *to, const char *subtitle, const char *const lines[][2], size_t count) {
    put_title(to, "Legend", subtitle);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "<g transform=\"translate(-26 %d)\">%s<text x=\"32\" y=\"4\">%s</text></g>\n",
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
        {"<path class=\"c\" d=\"M0 0H24\"/>", "the class of the panel"},
        {"<path class=\"cxo\" style=\"stroke-width:1.4;opacity:1\" d=\"M0 0H24\"/>",
         "the other classes"},
        {"<path class=\"d\" d=\"M0 0H24\"/>", "chance"},
        {"<text class=\"m\" x=\"4\" y=\"4\">x</text>", "false positive rate"},
        {"<text class=\"m\" x=\"4\" y=\"4\">y</text>", "true positive rate"},
    };
    const struct chex_scores *s = r->scores;
    const int cells = s->classes + 1;
    char line[80], desc[160];
    struct chex_roc **roc = calloc((size_t)s->classes, sizeof *roc);
    if (!roc)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for the curves");
    enum chex_status st = make_curves(s, roc, err);
    if (st != CHEX_OK)
        goto out;
    snprintf(desc, sizeof desc,
             "Receiver operating characteristic of %d classes, one panel each, with the AUROC%s.",
             s->classes, s->config.replicates ? " and its 95 % interval" : "");
    const struct sheet sheet = begin(to, cells, r->title, desc, file);
    /* Drawn once and used in every panel, or the file grows with the square of the classes. */
    fputs("<g id=\"cx-all\">\n", to);
    for (int c = 0; c < s->classes; c++)
        if (roc[c])
            put_curve(to, "cxo", roc[c], 2);
    fputs("</g>", to);
    end_defs(&sheet);
    for (int c = 0; c < s->classes; c++) {
        open_panel(&sheet, c);
        class_line(&s->per_class[c], line, sizeof line);
        put_title(to, s->per_class[c].name, line);
        fputs("<use href=\"#cx-all\"/>\n", to);
        put_axes(to, 1);
        if (roc[c])
            put_curve(to, "c", roc[c], 0.4);
        close_panel(&sheet);
    }
    open_panel(&sheet, cells - 1);
    if (isnan(s->mean))
        snprintf(line, sizeof line, "mean AUROC undefined");
    else
        snprintf(line, sizeof line, "mean AUROC %.3f, %d of %d", s->mean, s->defined, s->classes);
    put_legend(to, line, legend, sizeof legend / sizeof legend[0]);
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
    double score, observed; /* means */
};

/* Bins of equal count over the ranking; a tie group may be cut, its share being spread evenly. */
static int fill_bins(const struct chex_ranking *r, struct bin *bins) {
    const int count = r->count < BINS ? (int)r->count : BINS;
    const double each = count ? (double)r->count / count : 0;
    double sum = 0, positives = 0, filled = 0;
    int b = 0;
    for (size_t g = 0; g < r->tie_count; g++) {
        const double n = (double)r->ties[g].negatives + (double)r->ties[g].positives;
        const double rate = (double)r->ties[g].positives / n;
        for (double rest = n; rest > 1e-9 && b < count;) {
            double take = fmin(rest, each - filled);
            sum += take * r->score[g];
            positives += take * rate;
            filled += take;
            rest -= take;
            if (filled >= each - 1e-9) {
                bins[b++] = (struct bin){sum / filled, positives / filled};
                sum = positives = filled = 0;
            }
        }
    }
    return b;
}

static void put_reliability(FILE *to, const struct bin *bins, int count, double top) {
    fputs("<path class=\"c\" style=\"stroke-width:1.2\" d=\"", to);
    for (int b = 0; b < count; b++)
        fprintf(to, "%c%.1f %.1f", b ? 'L' : 'M', bins[b].score / top * PLOT,
                PLOT - bins[b].observed / top * PLOT);
    fputs("\"/>\n", to);
    for (int b = 0; b < count; b++)
        fprintf(to, "<circle class=\"p\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>\n",
                bins[b].score / top * PLOT, PLOT - bins[b].observed / top * PLOT);
}

/* The next of 1, 0.5, 0.2, 0.1, ... that holds all bins. */
static double axis_top(const struct bin *bins, int count) {
    static const double tops[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5};
    double most = 0;
    for (int b = 0; b < count; b++)
        most = fmax(most, fmax(bins[b].score, bins[b].observed));
    for (size_t i = 0; i < sizeof tops / sizeof tops[0]; i++)
        if (most <= tops[i])
            return tops[i];
    return 1;
}

enum chex_status chex_svg_reliability(FILE *to, const struct chex_report *r,
                                      struct chex_error *err) {
    static const char *const legend[][2] = {
        {"<path class=\"c\" style=\"stroke-width:1.2\" d=\"M0 0H24\"/><circle class=\"p\" r=\"3\" "
         "cx=\"12\"/>",
         "predictions in order"},
        {"<path class=\"d\" d=\"M0 0H24\"/>", "calibrated"},
        {"<text class=\"m\" x=\"4\" y=\"4\">x</text>", "mean predicted"},
        {"<text class=\"m\" x=\"4\" y=\"4\">y</text>", "share of positives"},
        {"", "axes end where the data do"},
    };
    (void)err;
    const struct chex_scores *s = r->scores;
    const int cells = s->classes + 1;
    char line[80];
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
        snprintf(line, sizeof line, "predicted %.2g, observed %.2g", mean,
                 k->count ? (double)k->positives / (double)k->count : 0.0);
        open_panel(&sheet, c);
        put_title(to, s->per_class[c].name, line);
        put_axes(to, top);
        if (count)
            put_reliability(to, bins, count, top);
        close_panel(&sheet);
    }
    open_panel(&sheet, cells - 1);
    put_legend(to, "dots: tenths of the images", legend, sizeof legend / sizeof legend[0]);
    close_panel(&sheet);
    end(&sheet);
    return CHEX_OK;
}
