/* SPDX-License-Identifier: Apache-2.0
 *
 * An RGB picture to draw on: areas, lines with smooth edges, lettering. The letters are strokes of
 * our own, since a compute node has no fonts; what is not ASCII is a box.
 */
#ifndef CHEX_EVAL_CANVAS_H
#define CHEX_EVAL_CANVAS_H

#include <stdint.h>

#include "base/error.h"

struct chex_colour {
    uint8_t r, g, b;
};

/* Coordinates in px, the centre of the first pixel at (0, 0). What lies outside is not drawn. */
struct chex_canvas {
    uint8_t *rgb; /* (height, width, 3) */
    int width, height;
};

/* Filled with one colour. Released by chex_canvas_release, which leaves {0}. */
enum chex_status chex_canvas_create(struct chex_canvas *c, int64_t width, int64_t height,
                                    struct chex_colour colour, struct chex_error *err);
void chex_canvas_release(struct chex_canvas *c);

/* To a PNG file, whole or not at all; texts as of chex_image_write_png_rgb. */
enum chex_status chex_canvas_write(const struct chex_canvas *c, const char *path,
                                   const char *const *texts, struct chex_error *err);

/* Mixes `alpha` (0 to 1) of the colour into a pixel. */
void chex_canvas_mix(struct chex_canvas *c, int x, int y, struct chex_colour colour, double alpha);
void chex_canvas_line(struct chex_canvas *c, double x0, double y0, double x1, double y1,
                      double thick, struct chex_colour colour);

/* A line of text whose capitals are `height` px high and stand on `y`; it begins at `x`, and is
 * squeezed as a whole where it is wider than `width` (0: any). Returns its width. */
double chex_canvas_text(struct chex_canvas *c, double x, double y, double height, double width,
                        const char *text, struct chex_colour colour);
double chex_canvas_text_width(double height, const char *text);

#endif
