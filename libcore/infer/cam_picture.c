/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws class activation maps over a radiograph. infer/cam_picture.h says what a tile shows.
 */
#include "infer/cam_picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "image/resize.h"

enum { TILE_PX = 512 };

static const struct chex_colour ground = {16, 18, 22}, white = {255, 255, 255}, black = {0, 0, 0};

/* darkest, palest: the part of inferno that is used. Its dark end looks like the shadows of the
 * radiograph, and its pale end like the bones.
 * opaque_at, line_at: shares of the scale at which the opacity is full, and where the line runs. */
static const double darkest = 0.3, palest = 0.92, opaque_at = 0.6, line_at = 0.5;

/* Nothing is drawn below this local logit: a probability of 2 %. */
static const double silent = -4;

/* One tile: its class and its place on the sheet. */
struct tile {
    const struct chex_cam_picture *p;
    const struct chex_cam_sheet *to;
    const uint8_t *grey; /* the radiograph at the size of a tile; NULL for an overlay */
    int c, left, top;
    double logit, top_evidence; /* of the class; evidence at the top of the scale */
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

static double top_of(const struct chex_cam_picture *p, int c) {
    return p->top > 0 ? p->top : chex_cam_top(p->cam, c);
}

/* Visibility, 0 to 1, of a local logit: 0 where it makes the finding improbable (2 % or less), 1
 * where it is more likely than not. */
static double visibility(double local) { return smooth_step((local - silent) / (0 - silent)); }

struct chex_colour chex_cam_tint(const struct chex_cam_picture *p, int c, double t,
                                 double *opacity_out) {
    const double local = (double)p->cam->logit[c] + t * top_of(p, c);
    *opacity_out = p->alpha * smooth_step(t / opaque_at) * visibility(local);
    return chex_inferno(darkest + (palest - darkest) * fmin(fmax(t, 0), 1));
}

/* ---- pixels ---- */

static uint8_t blend(uint8_t from, uint8_t to, double alpha) {
    return (uint8_t)(from + alpha * (to - from) + 0.5);
}

/* Blends a colour into the pixel (x, y) of the tile. Pixels outside the tile are left alone. */
static void mix(const struct tile *f, int x, int y, struct chex_colour colour, double alpha) {
    if (x < 0 || y < 0 || x >= f->to->tile_width || y >= f->to->tile_height || !(alpha > 0))
        return;
    const size_t at = (size_t)(f->top + y) * (size_t)f->to->width + (size_t)(f->left + x);
    uint8_t *p = f->to->rgb + (size_t)f->to->channels * at;
    if (f->to->channels == 4) { /* paint over what is there, if it is opaque at all */
        const double under = p[3] / 255.0 * (1 - alpha), whole = alpha + under;
        p[3] = (uint8_t)(whole * 255 + 0.5);
        alpha /= whole;
    }
    p[0] = blend(p[0], colour.r, alpha);
    p[1] = blend(p[1], colour.g, alpha);
    p[2] = blend(p[2], colour.b, alpha);
}

/* The rectangle from (x0, y0) to (x1, y1), both included. */
static void fill(const struct tile *f, int x0, int y0, int x1, int y1, struct chex_colour colour,
                 double alpha) {
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++)
            mix(f, x, y, colour, alpha);
}

/* ---- a tile ---- */

static double file_x(const struct tile *f, double x) {
    return (x + 0.5) * f->p->view.width / f->to->tile_width - 0.5;
}
static double file_y(const struct tile *f, double y) {
    return (y + 0.5) * f->p->view.height / f->to->tile_height - 0.5;
}

/* The share of the scale at a pixel of the panel. -1: the network did not see this pixel. */
static double share_at(const struct tile *f, double x, double y) {
    double nx, ny;
    chex_cam_to_network(&f->p->view, file_x(f, x), file_y(f, y), &nx, &ny);
    const double end = f->p->view.image_px - 0.5;
    if (nx < -0.5 || ny < -0.5 || nx > end || ny > end)
        return -1;
    return (chex_cam_local(f->p->cam, f->c, nx, ny) - f->logit) / f->top_evidence;
}

/* The share of a pixel that the line at half of the scale covers. The distance from the line is the
 * difference in value divided by the slope. */
static double line_share(const struct tile *f, int x, int y, double t, double thick) {
    const double right = share_at(f, x + 1, y) - t, down = share_at(f, x, y + 1) - t;
    const double slope = hypot(right, down);
    if (!(slope > 0) || slope > 0.5) /* flat, or at the edge of the network's input */
        return 0;
    return fmin(fmax(thick / 2 + 0.5 - fabs(t - line_at) / slope, 0), 1);
}

static void put_radiograph(const struct tile *f, double thick) {
    for (int y = 0; y < f->to->tile_height; y++)
        for (int x = 0; x < f->to->tile_width; x++) {
            const uint8_t v =
                f->grey ? f->grey[(size_t)y * (size_t)f->to->tile_width + (size_t)x] : 0;
            const double t = share_at(f, x, y);
            double opacity;
            if (f->grey)
                mix(f, x, y, (struct chex_colour){v, v, v}, 1);
            if (!(t > 0))
                continue;
            const struct chex_colour colour = chex_cam_tint(f->p, f->c, t, &opacity);
            mix(f, x, y, colour, opacity);
            if (fabs(t - line_at) < 0.2)
                mix(f, x, y, white,
                    0.8 * visibility(f->logit + t * f->top_evidence) *
                        line_share(f, x, y, t, thick));
        }
}

/* The pixel of the tile at a point of the network's image. */
static void to_tile(const struct tile *f, double nx, double ny, int *x_out, int *y_out) {
    double x, y;
    chex_cam_to_file(&f->p->view, nx, ny, &x, &y);
    *x_out = (int)((x + 0.5) * f->to->tile_width / f->p->view.width);
    *y_out = (int)((y + 0.5) * f->to->tile_height / f->p->view.height);
}

static void put_frame(const struct tile *f) {
    const int px = f->p->view.image_px;
    int x0, y0, x1, y1;
    if (px == f->p->view.stored_px)
        return;
    to_tile(f, -0.5, -0.5, &x0, &y0);
    to_tile(f, px - 0.5, px - 0.5, &x1, &y1);
    fill(f, x0, y0, x1, y0, white, 0.35);
    fill(f, x0, y1, x1, y1, white, 0.35);
    fill(f, x0, y0 + 1, x0, y1 - 1, white, 0.35);
    fill(f, x1, y0 + 1, x1, y1 - 1, white, 0.35);
}

/* White arms with a black edge, `half` px to each side of their middle. The cross is open in the
 * middle, so that it does not cover the finding. */
static void put_cross(const struct tile *f, int half) {
    const struct chex_cam_peak peak = chex_cam_peak(f->p->cam, f->c);
    const int in = 5 * half, out = 12 * half;
    int x, y;
    if (peak.local < 0 || peak.local - f->logit < line_at * f->top_evidence)
        return;
    to_tile(f, peak.x, peak.y, &x, &y);
    for (int edge = 1; edge >= 0; edge--) {
        const struct chex_colour colour = edge ? black : white;
        const int wide = half + edge, from = in - edge, to = out + edge;
        fill(f, x - to, y - wide, x - from, y + wide, colour, 1);
        fill(f, x + from, y - wide, x + to, y + wide, colour, 1);
        fill(f, x - wide, y - to, x + wide, y - from, colour, 1);
        fill(f, x - wide, y + from, x + wide, y + to, colour, 1);
    }
}

static void put_tile(struct tile *f, int c) {
    const double side = fmin(f->to->tile_width, f->to->tile_height);
    f->c = c;
    f->logit = (double)f->p->cam->logit[c];
    f->top_evidence = top_of(f->p, c);
    put_radiograph(f, fmax(side / 400, 1));
    put_frame(f);
    put_cross(f, (int)fmax(side / 512, 1));
}

/* ---- the sheet ---- */

static void choose_size(const struct chex_cam_picture *p, struct chex_cam_sheet *s) {
    const int w = p->image->width, h = p->image->height, longest = w > h ? w : h;
    const int times = p->overlay ? 1 : (TILE_PX + longest - 1) / longest;
    s->tile_width = w * times;
    s->tile_height = h * times;
    if (p->count > 1) {
        s->tile_width = (int)fmax(round((double)w * TILE_PX / longest), 1);
        s->tile_height = (int)fmax(round((double)h * TILE_PX / longest), 1);
    }
    s->columns = p->count >= 10 ? 5 : p->count >= 6 ? 4 : p->count < 3 ? p->count : 3;
}

static enum chex_status create_sheet(const struct chex_cam_picture *p, struct chex_cam_sheet *s,
                                     struct chex_error *err) {
    choose_size(p, s);
    const int rows = (p->count + s->columns - 1) / s->columns;
    const int64_t width = (int64_t)s->columns * (s->tile_width + CHEX_CAM_GAP_PX) - CHEX_CAM_GAP_PX;
    const int64_t height = (int64_t)rows * (s->tile_height + CHEX_CAM_GAP_PX) - CHEX_CAM_GAP_PX;
    if (width > CHEX_IMAGE_MAX_SIDE_PX || height > CHEX_IMAGE_MAX_SIDE_PX ||
        width * height > CHEX_IMAGE_MAX_PIXELS)
        return chex_error_set(err, CHEX_E_DATA,
                              "a picture of %lld x %lld pixels: the limits are %d a side and %d in "
                              "all",
                              (long long)width, (long long)height, CHEX_IMAGE_MAX_SIDE_PX,
                              CHEX_IMAGE_MAX_PIXELS);
    s->width = (int)width;
    s->height = (int)height;
    s->channels = p->overlay ? 4 : 3;
    if (!(s->rgb = calloc((size_t)(width * height), (size_t)s->channels)))
        return chex_error_memory(err, "a picture of %d x %d pixels", s->width, s->height);
    for (int64_t i = 0; i < width * height && !p->overlay; i++)
        memcpy(s->rgb + 3 * i, &ground, 3);
    return CHEX_OK;
}

/* The caller frees *grey_out, after an error too. */
static enum chex_status resize(const struct chex_image *image, int width, int height,
                               uint8_t **grey_out, struct chex_error *err) {
    struct chex_resizer *resizer = NULL;
    if (!(*grey_out = chex_alloc_aligned((size_t)width, (size_t)height)))
        return chex_error_memory(err, "a picture of %d x %d pixels", width, height);
    CHEX_TRY(chex_resizer_create(&resizer, err));
    const enum chex_status st = chex_resize(resizer, image->pixels, image->width, image->height,
                                            *grey_out, width, height, err);
    chex_resizer_destroy(resizer);
    return st;
}

enum chex_status chex_cam_draw(const struct chex_cam_picture *p, struct chex_cam_sheet *out,
                               struct chex_error *err) {
    struct chex_cam_sheet s = {0};
    CHEX_TRY(create_sheet(p, &s, err));
    CHEX_AUTO_FREE uint8_t *grey = NULL, *unused = s.rgb;
    if (!p->overlay)
        CHEX_TRY(resize(p->image, s.tile_width, s.tile_height, &grey, err));
    for (int i = 0; i < p->count; i++) {
        struct tile f = {.p = p, .to = &s, .grey = grey};
        f.left = i % s.columns * (s.tile_width + CHEX_CAM_GAP_PX);
        f.top = i / s.columns * (s.tile_height + CHEX_CAM_GAP_PX);
        put_tile(&f, p->drawn[i]);
    }
    *out = s;
    unused = NULL;
    return CHEX_OK;
}

char *chex_cam_title(const struct chex_cam_picture *p) {
    char *title = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&title, &size);
    for (int i = 0; to && i < p->count; i++)
        fprintf(to, "%s%s %.4f", i ? ", " : "", p->class_names[p->drawn[i]],
                p->probabilities[p->drawn[i]]);
    return to && fclose(to) == 0 ? title : NULL;
}

enum chex_status chex_cam_write_png(const struct chex_cam_sheet *s, const char *path,
                                    const char *const *texts, struct chex_error *err) {
    CHEX_AUTO_FREE char *temp = NULL;
    int fd = -1;
    CHEX_TRY(chex_fs_temp(path, &temp, &fd, err));
    const enum chex_status st =
        chex_image_write_png_rgb(fd, path, s->rgb, s->width, s->height, texts, err);
    if (st == CHEX_OK)
        return chex_fs_commit(temp, path, err);
    unlink(temp);
    return st;
}
