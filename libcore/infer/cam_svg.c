/* SPDX-License-Identifier: Apache-2.0
 *
 * The SVG file of infer/cam_picture.h: each tile of the PNG with class, probability, scale and
 * legend. The PNG is embedded once; a nested <svg> shows one tile of it.
 */
#include <math.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/textfile.h"
#include "infer/cam_picture.h"

enum { STOPS = 32, MAX_PNG_BYTES = 1 << 30 };

/* Geometry in px of the sheet; em: size of the title's letters. */
struct geometry {
    double em, cell_width, cell_height, width, height;
};

static struct geometry geometry_of(const struct chex_cam_picture *p,
                                   const struct chex_cam_sheet *s) {
    const double em = fmax(fmin(s->tile_width, 1.25 * s->tile_height) / 26, 11);
    const int rows = (p->count + s->columns - 1) / s->columns;
    struct geometry g = {.em = em};
    g.cell_width = fmax(s->tile_width, 24 * em) + em;
    g.cell_height = s->tile_height + 9 * em;
    g.width = s->columns * g.cell_width + em;
    g.height = rows * g.cell_height;
    return g;
}

static void put_scale(FILE *to, const struct chex_cam_picture *p, int c, double y, double width,
                      double em) {
    fprintf(to, "<linearGradient id=\"scale%d\">", c);
    for (int i = 0; i <= STOPS; i++) {
        double opacity;
        const struct chex_colour k = chex_cam_tint(p, c, (double)i / STOPS, &opacity);
        fprintf(to, "<stop offset=\"%g\" stop-color=\"#%02x%02x%02x\" stop-opacity=\"%.3f\"/>",
                (double)i / STOPS, k.r, k.g, k.b, opacity);
    }
    fputs("</linearGradient>\n", to);
    for (int top = 0; top < 2; top++) {
        fprintf(to, "<rect y=\"%g\" width=\"%g\" height=\"%g\" fill=\"", y, width, 0.9 * em);
        fprintf(to, top ? "url(#scale%d)\"/>\n" : "#404040\"/>\n", c);
    }
    fprintf(to, "<path d=\"M%g %gv%g\" stroke=\"#fff\"/>\n", width / 2, y, 0.9 * em);
}

/* The text below a scale. y: of the scale's lower end. */
static void put_legend(FILE *to, const struct chex_cam_picture *p, int c, double y, double width,
                       double em) {
    const int side = p->cam->side;
    const bool coarse = side < CHEX_CAM_FEWEST_POSITIONS;
    const double times = exp(p->top > 0 ? p->top : chex_cam_top(p->cam, c)), step = 1.4 * em;
    fprintf(to, "<g font-size=\"%g\" fill=\"#969ca4\">\n", 0.85 * em);
    fprintf(to, "<text y=\"%g\">odds of the whole image</text>\n", y += step);
    fprintf(to, "<text y=\"%g\" x=\"%g\" text-anchor=\"end\">", y, width);
    if (times <= 1e6)
        fprintf(to, times < 10 ? "%.1f times as high" : "%.0f times as high", times);
    else
        fputs("over a million times as high", to);
    fprintf(to,
            "</text>\n<text y=\"%g\">line: half of the scale; cross: peak; frame: input</text>\n",
            y += step);
    fprintf(to, "<text y=\"%g\">%s%d x %d position%s%s</text>\n", y += step, coarse ? "only " : "",
            side, side, side == 1 ? "" : "s",
            coarse ? ": too coarse to say where" : ", interpolated in between");
    fprintf(to, "<text y=\"%g\">For research. Not for clinical use.</text>\n</g>\n", y + step);
}

static void put_cell(FILE *to, const struct chex_cam_picture *p, const struct chex_cam_sheet *s,
                     const struct geometry *g, int i) {
    const int c = p->drawn[i], column = i % s->columns, row = i / s->columns;
    const double em = g->em, width = g->cell_width - em;
    fprintf(to, "<g transform=\"translate(%g %g)\">\n", em + column * g->cell_width,
            row * g->cell_height);
    fprintf(to, "<text y=\"%g\" font-size=\"%g\" fill=\"#e8eaed\">", 1.3 * em, em);
    chex_put_xml_name(to, p->class_names[c]);
    fprintf(to,
            "</text>\n<text y=\"%g\" x=\"%g\" text-anchor=\"end\" font-size=\"%g\" "
            "fill=\"#e8eaed\">probability %.3f</text>\n",
            1.3 * em, width, em, p->probabilities[c]);
    fprintf(to,
            "<svg y=\"%g\" width=\"%d\" height=\"%d\" viewBox=\"%d %d %d %d\">"
            "<use xlink:href=\"#tiles\"/></svg>\n",
            1.8 * em, s->tile_width, s->tile_height, column * (s->tile_width + CHEX_CAM_GAP_PX),
            row * (s->tile_height + CHEX_CAM_GAP_PX), s->tile_width, s->tile_height);
    const double scale_y = 1.8 * em + s->tile_height + 0.4 * em;
    put_scale(to, p, c, scale_y, s->tile_width, em);
    put_legend(to, p, c, scale_y + 0.7 * em, width, em);
    fputs("</g>\n", to);
}

enum chex_status chex_cam_write_svg(const struct chex_cam_picture *p,
                                    const struct chex_cam_sheet *s, const char *png,
                                    const char *path, struct chex_error *err) {
    const struct geometry g = geometry_of(p, s);
    struct chex_textfile file;
    CHEX_AUTO_FREE char *data = NULL;
    size_t bytes = 0;
    CHEX_TRY(chex_fs_read(png, MAX_PNG_BYTES, &data, &bytes, err));
    CHEX_TRY(chex_textfile_open(path, &file, err));
    fprintf(file.f,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"%g\" height=\"%g\" "
            "viewBox=\"0 0 %g %g\" font-family=\"system-ui,'DejaVu Sans',sans-serif\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#101216\"/>\n"
            "<defs><image id=\"tiles\" width=\"%d\" height=\"%d\" "
            "xlink:href=\"data:image/png;base64,",
            g.width, g.height, g.width, g.height, s->width, s->height);
    chex_put_base64(file.f, data, bytes);
    fputs("\"/></defs>\n", file.f);
    for (int i = 0; i < p->count; i++)
        put_cell(file.f, p, s, &g, i);
    fputs("</svg>\n", file.f);
    return chex_textfile_close(&file, CHEX_OK, err);
}
