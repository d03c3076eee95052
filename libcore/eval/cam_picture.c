/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws class activation maps over a radiograph. eval/cam_picture.h says what the picture shows.
 */
#include "eval/cam_picture.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "image/resize.h"

enum { PANEL_PX = 512, LETTERS = 36, LEAST_LETTER_PX = 9 };

static const struct chex_colour ground = {16, 18, 22}, paper = {232, 234, 237},
                                quiet = {150, 156, 164}, white = {255, 255, 255}, black = {0, 0, 0},
                                under = {64, 64, 64};

/* darkest, palest: the part of inferno that is used. Its dark end looks like the shadows of the
 * radiograph, and its pale end like the bones.
 * opaque_at, line_at: shares of the scale at which the opacity is full, and where the line runs. */
static const double darkest = 0.3, palest = 0.92, opaque_at = 0.6, line_at = 0.5;

/* Nothing is drawn below this local logit: a probability of 2 %. */
static const double silent = -4;

/* One panel: its class, its scale, and the place of its radiograph on the canvas. */
struct panel {
    const struct chex_cam_picture *p;
    int c;
    double logit, top_evidence; /* of the class; evidence at the top of the scale */
    int width, height;          /* of the radiograph, in px of the canvas */
    const uint8_t *grey;
    int left, top; /* position of the radiograph on the canvas */
    double letter; /* height of capital letters in px */
};

/* Polynomials of degree six fitted to inferno (van der Walt and Smith, matplotlib, CC0) by Matt
 * Zucker, www.shadertoy.com/view/WlfXRN (CC0); within 5 of 255. */
struct chex_colour chex_inferno(double t) {
    static const double k[3][7] = {
        {0.00021894037, 0.1065134194856116, 11.60249308247187, -41.70399613139459, 77.162935699427,
         -71.31942824499214, 25.13112622477341},
        {0.001651004631, 0.5639564367884091, -3.972853965665698, 17.43639888205313,
         -33.40235894210092, 32.62606426397723, -12.24266895238567},
        {-0.01948089844, 3.932712388889277, -15.9423941062914, 44.35414519872813,
         -81.80730925738993, 73.20951985803202, -23.07032500287172}};
    uint8_t v[3];
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int n = 6; n >= 0; n--)
            sum = sum * t + k[i][n];
        v[i] = (uint8_t)(fmin(fmax(sum, 0), 1) * 255 + 0.5);
    }
    return (struct chex_colour){v[0], v[1], v[2]};
}

double chex_cam_top(const struct chex_cam *cam, int class_index) {
    return fmax(chex_cam_peak(cam, class_index).local - (double)cam->logit[class_index], 1);
}

/* 0 for t <= 0, 1 for t >= 1, a smooth step between. */
static double smooth_step(double t) {
    t = fmin(fmax(t, 0), 1);
    return t * t * (3 - 2 * t);
}

/* Visibility, 0 to 1, of share `t` of the scale: 0 where the local logit makes the finding
 * improbable (2 % or less), 1 where it is more likely than not. */
static double visibility(const struct panel *f, double t) {
    return smooth_step((f->logit + t * f->top_evidence - silent) / (0 - silent));
}

/* Draws the colour of share `t` of the scale over one pixel of the canvas. */
static void tint(const struct panel *f, struct chex_canvas *to, int x, int y, double t) {
    const double shade = darkest + (palest - darkest) * fmin(fmax(t, 0), 1);
    chex_canvas_mix(to, x, y, chex_inferno(shade),
                    f->p->alpha * smooth_step(t / opaque_at) * visibility(f, t));
}

/* ---- the radiograph ---- */

static double file_x(const struct panel *f, double x) {
    return (x + 0.5) * f->p->view.width / f->width - 0.5;
}
static double file_y(const struct panel *f, double y) {
    return (y + 0.5) * f->p->view.height / f->height - 0.5;
}

/* The share of the scale at a pixel of the panel. -1: the network did not see this pixel. */
static double share_at(const struct panel *f, double x, double y) {
    double nx, ny;
    chex_cam_to_network(&f->p->view, file_x(f, x), file_y(f, y), &nx, &ny);
    const double end = f->p->view.image_px - 0.5;
    if (nx < -0.5 || ny < -0.5 || nx > end || ny > end)
        return -1;
    return (chex_cam_local(f->p->cam, f->c, nx, ny) - f->logit) / f->top_evidence;
}

/* The share of a pixel that the line at half of the scale covers. The distance from the line is the
 * difference in value divided by the slope. */
static double line_share(const struct panel *f, int x, int y, double t, double thick) {
    const double right = share_at(f, x + 1, y) - t, down = share_at(f, x, y + 1) - t;
    const double slope = hypot(right, down);
    if (!(slope > 0) || slope > 0.5) /* flat, or at the edge of the network's input */
        return 0;
    return fmin(fmax(thick / 2 + 0.5 - fabs(t - line_at) / slope, 0), 1);
}

static void put_radiograph(const struct panel *f, struct chex_canvas *to) {
    const double thick = fmax(f->letter / 12, 1);
    for (int y = 0; y < f->height; y++)
        for (int x = 0; x < f->width; x++) {
            const uint8_t v = f->grey[(size_t)y * (size_t)f->width + (size_t)x];
            const double t = share_at(f, x, y);
            chex_canvas_mix(to, f->left + x, f->top + y, (struct chex_colour){v, v, v}, 1);
            if (!(t > 0))
                continue;
            tint(f, to, f->left + x, f->top + y, t);
            if (fabs(t - line_at) < 0.2)
                chex_canvas_mix(to, f->left + x, f->top + y, white,
                                0.8 * visibility(f, t) * line_share(f, x, y, t, thick));
        }
}

/* Converts a point of the network's image to the canvas. */
static void to_canvas(const struct panel *f, double nx, double ny, double *x, double *y) {
    chex_cam_to_file(&f->p->view, nx, ny, x, y);
    *x = (*x + 0.5) * f->width / f->p->view.width - 0.5 + f->left;
    *y = (*y + 0.5) * f->height / f->p->view.height - 0.5 + f->top;
}

static void put_frame(const struct panel *f, struct chex_canvas *to) {
    const int px = f->p->view.image_px;
    double x0, y0, x1, y1;
    if (px == f->p->view.stored_px)
        return;
    to_canvas(f, -0.5, -0.5, &x0, &y0);
    to_canvas(f, px - 0.5, px - 0.5, &x1, &y1);
    for (int x = (int)x0; x <= (int)x1; x++) {
        chex_canvas_mix(to, x, (int)y0, white, 0.35);
        chex_canvas_mix(to, x, (int)y1, white, 0.35);
    }
    for (int y = (int)y0 + 1; y < (int)y1; y++) {
        chex_canvas_mix(to, (int)x0, y, white, 0.35);
        chex_canvas_mix(to, (int)x1, y, white, 0.35);
    }
}

/* The cross is open in the middle, so that it does not cover the finding. */
static void put_cross(const struct panel *f, struct chex_canvas *to) {
    static const int direction[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    const struct chex_cam_peak peak = chex_cam_peak(f->p->cam, f->c);
    const double in = f->letter * 0.5, out = f->letter * 1.3, thick = fmax(f->letter / 8, 1.5);
    double x, y;
    if (peak.local < 0 || peak.local - f->logit < line_at * f->top_evidence)
        return;
    to_canvas(f, peak.x, peak.y, &x, &y);
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < 4; k++)
            chex_canvas_line(to, x + direction[k][0] * in, y + direction[k][1] * in,
                             x + direction[k][0] * out, y + direction[k][1] * out,
                             pass ? thick : thick + 2, pass ? white : black);
}

/* ---- title, scale and legend ---- */

static double head_px(const struct panel *f) { return f->letter * 2.4; }
static double foot_px(const struct panel *f) { return f->letter * 7.8; }

static void put_title(const struct panel *f, struct chex_canvas *to) {
    char text[64];
    snprintf(text, sizeof text, "probability %.3f", f->p->probabilities[f->c]);
    const double y = f->top - f->letter * 0.8;
    const double width = fmin(chex_canvas_text_width(f->letter, text), f->width * 0.5);
    chex_canvas_text(to, f->left + f->width - 1 - width, y, f->letter, width, text, paper);
    char name[128];
    snprintf(name, sizeof name, "%s", f->p->class_names[f->c]);
    for (char *c = name; *c; c++)
        if (*c == '_')
            *c = ' ';
    chex_canvas_text(to, f->left + 1, y, f->letter, f->width - width - 2 * f->letter, name, paper);
}

static double small_px(const struct panel *f) { return f->letter * 0.8; }

/* Labels of both ends of the scale. */
static void put_ends(const struct panel *f, struct chex_canvas *to, double y) {
    const double small = small_px(f), half = f->width * 0.5 - f->letter;
    const double times = exp(f->top_evidence);
    char most[48] = "over a million times as high";
    if (times <= 1e6)
        snprintf(most, sizeof most, times < 10 ? "%.1f times as high" : "%.0f times as high",
                 times);
    const double width = fmin(chex_canvas_text_width(small, most), half);
    chex_canvas_text(to, f->left + 1, y, small, half, "odds of the whole image", quiet);
    chex_canvas_text(to, f->left + f->width - 2 - width, y, small, half, most, quiet);
}

static void put_line(const struct panel *f, struct chex_canvas *to, double y, const char *text) {
    chex_canvas_text(to, f->left + 1, y, small_px(f), f->width - 2, text, quiet);
}

static void put_legend(const struct panel *f, struct chex_canvas *to, double y) {
    const int side = f->p->cam->side;
    const double step = small_px(f) * 1.7;
    char positions[96];
    snprintf(positions, sizeof positions, "%s%d x %d position%s%s",
             side < CHEX_CAM_FEWEST_POSITIONS ? "only " : "", side, side, side == 1 ? "" : "s",
             side < CHEX_CAM_FEWEST_POSITIONS ? ": too coarse to say where"
                                              : ", interpolated in between");
    put_ends(f, to, y);
    put_line(f, to, y + step, "line: half of the scale; cross: peak; frame: input");
    put_line(f, to, y + 2 * step, positions);
    put_line(f, to, y + 3 * step, "For research. Not for clinical use.");
}

static void put_scale(const struct panel *f, struct chex_canvas *to) {
    const int y0 = f->top + f->height + (int)(f->letter * 0.8), high = (int)(f->letter * 0.9);
    const int line = f->left + (int)(line_at * (f->width - 1));
    for (int y = y0; y < y0 + high; y++) {
        for (int x = 0; x < f->width; x++) {
            chex_canvas_mix(to, f->left + x, y, under, 1);
            tint(f, to, f->left + x, y, (double)x / (f->width - 1));
        }
        chex_canvas_mix(to, line, y, white, 0.8 * visibility(f, line_at));
    }
    put_legend(f, to, y0 + high + small_px(f) * 1.5);
}

static void put_panel(struct panel *f, int c, struct chex_canvas *to) {
    f->c = c;
    f->logit = (double)f->p->cam->logit[c];
    f->top_evidence = f->p->top > 0 ? f->p->top : chex_cam_top(f->p->cam, c);
    put_title(f, to);
    put_radiograph(f, to);
    put_frame(f, to);
    put_cross(f, to);
    put_scale(f, to);
}

/* ---- the sheet ---- */

static void choose_size(const struct chex_cam_picture *p, int *width_out, int *height_out) {
    const int w = p->image->width, h = p->image->height, most = w > h ? w : h;
    const int times = (PANEL_PX + most - 1) / most;
    *width_out = w * times;
    *height_out = h * times;
    if (p->count > 1) {
        *width_out = (int)fmax(round((double)w * PANEL_PX / most), 1);
        *height_out = (int)fmax(round((double)h * PANEL_PX / most), 1);
    }
}

static enum chex_status resize(const struct chex_image *image, int width, int height,
                               uint8_t **grey_out, struct chex_error *err) {
    struct chex_resizer *resizer = NULL;
    uint8_t *grey = chex_alloc_aligned((size_t)width, (size_t)height);
    if (!grey)
        return chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "a picture of %d x %d pixels", width,
                                height);
    enum chex_status st = chex_resizer_create(&resizer, err);
    if (st == CHEX_OK)
        st = chex_resize(resizer, image->pixels, image->width, image->height, grey, width, height,
                         err);
    chex_resizer_destroy(resizer);
    if (st == CHEX_OK)
        *grey_out = grey;
    else
        free(grey);
    return st;
}

enum chex_status chex_cam_draw(const struct chex_cam_picture *p, struct chex_canvas *out,
                               struct chex_error *err) {
    const int columns = p->count >= 10 ? 5 : p->count >= 6 ? 4 : p->count < 3 ? p->count : 3;
    const int rows = (p->count + columns - 1) / columns;
    struct panel f = {.p = p};
    uint8_t *grey = NULL;
    choose_size(p, &f.width, &f.height);
    f.letter = fmax(fmin(f.width, 1.25 * f.height) / LETTERS, LEAST_LETTER_PX);
    const int margin = (int)(f.letter * 1.2), head = (int)ceil(head_px(&f));
    const int cell_w = f.width + margin, cell_h = head + f.height + (int)ceil(foot_px(&f));
    CHEX_TRY(chex_canvas_create(out, (int64_t)columns * cell_w + margin,
                                (int64_t)rows * cell_h + margin, ground, err));
    enum chex_status st = resize(p->image, f.width, f.height, &grey, err);
    f.grey = grey;
    for (int i = 0; i < p->count && st == CHEX_OK; i++) {
        f.left = margin + i % columns * cell_w;
        f.top = margin / 2 + i / columns * cell_h + head;
        put_panel(&f, p->drawn[i], out);
    }
    free(grey);
    if (st != CHEX_OK)
        chex_canvas_release(out);
    return st;
}
