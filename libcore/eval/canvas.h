/* SPDX-License-Identifier: Apache-2.0
 *
 * An RGB picture to draw on: filled areas, anti-aliased lines, text.
 *
 * A compute node may have no fonts, so the letters are strokes that this code draws itself
 * (lettering.c). A character outside ASCII is drawn as a box.
 */
#ifndef CHEX_EVAL_CANVAS_H
#define CHEX_EVAL_CANVAS_H

#include <stdint.h>

#include "base/error.h"

struct chex_colour {
    uint8_t r, g, b;
};

/* Coordinates are in px; the centre of the first pixel is (0, 0). Points outside are not drawn. */
struct chex_canvas {
    uint8_t *rgb; /* (height, width, 3) */
    int width, height;
};

/* Creates a canvas in one colour. chex_canvas_release frees it and leaves {0}. */
enum chex_status chex_canvas_create(struct chex_canvas *c, int64_t width, int64_t height,
                                    struct chex_colour colour, struct chex_error *err);
void chex_canvas_release(struct chex_canvas *c);

/* Writes a PNG file, atomically (temporary name, then rename). texts: as for
 * chex_image_write_png_rgb. */
enum chex_status chex_canvas_write(const struct chex_canvas *c, const char *path,
                                   const char *const *texts, struct chex_error *err);

/* Blends the colour into a pixel with opacity `alpha` (0 to 1). */
void chex_canvas_mix(struct chex_canvas *c, int x, int y, struct chex_colour colour, double alpha);
void chex_canvas_line(struct chex_canvas *c, double x0, double y0, double x1, double y1,
                      double thick, struct chex_colour colour);

/* Draws one line of text and returns its width in px.
 * - Capitals are `height` px high. The baseline is `y`, the left end is `x`.
 * - Text wider than `width` px is compressed horizontally. 0: no limit. */
double chex_canvas_text(struct chex_canvas *c, double x, double y, double height, double width,
                        const char *text, struct chex_colour colour);
double chex_canvas_text_width(double height, const char *text);

#endif
