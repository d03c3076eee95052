/* SPDX-License-Identifier: Apache-2.0
 *
 * The canvas of eval/canvas.h: pixels, lines and the PNG file. lettering.c draws the text.
 */
#include "eval/canvas.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "image/image.h"

enum chex_status chex_canvas_create(struct chex_canvas *c, int64_t width, int64_t height,
                                    struct chex_colour colour, struct chex_error *err) {
    if (width > CHEX_IMAGE_MAX_SIDE_PX || height > CHEX_IMAGE_MAX_SIDE_PX ||
        width * height > CHEX_IMAGE_MAX_PIXELS)
        return chex_error_set(err, CHEX_E_DATA,
                              "a picture of %lld x %lld pixels: the limits are %d a side and %d in "
                              "all",
                              (long long)width, (long long)height, CHEX_IMAGE_MAX_SIDE_PX,
                              CHEX_IMAGE_MAX_PIXELS);
    const size_t pixels = (size_t)width * (size_t)height;
    c->rgb = chex_alloc_zeroed(pixels, 3);
    if (!c->rgb)
        return chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "a picture of %lld x %lld pixels",
                                (long long)width, (long long)height);
    c->width = (int)width;
    c->height = (int)height;
    for (size_t i = 0; i < pixels; i++) {
        c->rgb[3 * i] = colour.r;
        c->rgb[3 * i + 1] = colour.g;
        c->rgb[3 * i + 2] = colour.b;
    }
    return CHEX_OK;
}

void chex_canvas_release(struct chex_canvas *c) {
    free(c->rgb);
    *c = (struct chex_canvas){0};
}

enum chex_status chex_canvas_write(const struct chex_canvas *c, const char *path,
                                   const char *const *texts, struct chex_error *err) {
    char *temp = NULL;
    int fd = -1;
    CHEX_TRY(chex_fs_temp(path, &temp, &fd, err));
    enum chex_status st =
        chex_image_write_png_rgb(fd, path, c->rgb, c->width, c->height, texts, err);
    if (st == CHEX_OK)
        st = chex_fs_commit(temp, path, err);
    else
        unlink(temp);
    free(temp);
    return st;
}

static uint8_t blend(uint8_t from, uint8_t to, double alpha) {
    return (uint8_t)(from + alpha * (to - from) + 0.5);
}

void chex_canvas_mix(struct chex_canvas *c, int x, int y, struct chex_colour colour, double alpha) {
    if (x < 0 || y < 0 || x >= c->width || y >= c->height || !(alpha > 0))
        return;
    uint8_t *p = c->rgb + 3 * ((size_t)y * (size_t)c->width + (size_t)x);
    alpha = fmin(alpha, 1);
    p[0] = blend(p[0], colour.r, alpha);
    p[1] = blend(p[1], colour.g, alpha);
    p[2] = blend(p[2], colour.b, alpha);
}

static int clamped(double v, int last) { return v < 0 ? 0 : v > last ? last : (int)v; }

/* Sets the opacity of each pixel by its distance from the line. The edge is 1 px wide. */
void chex_canvas_line(struct chex_canvas *c, double x0, double y0, double x1, double y1,
                      double thick, struct chex_colour colour) {
    const double reach = thick / 2 + 0.5, dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
    const int left = clamped(fmin(x0, x1) - reach, c->width - 1);
    const int right = clamped(fmax(x0, x1) + reach + 1, c->width - 1);
    const int top = clamped(fmin(y0, y1) - reach, c->height - 1);
    const int bottom = clamped(fmax(y0, y1) + reach + 1, c->height - 1);
    for (int y = top; y <= bottom; y++)
        for (int x = left; x <= right; x++) {
            double t = length2 > 0 ? ((x - x0) * dx + (y - y0) * dy) / length2 : 0;
            t = fmin(fmax(t, 0), 1);
            chex_canvas_mix(c, x, y, colour, reach - hypot(x - x0 - t * dx, y - y0 - t * dy));
        }
}
