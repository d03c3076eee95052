/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of class activation maps over their radiograph, one tile per class: a PNG file with the
 * tiles alone, and an SVG file that contains the PNG and adds the text.
 *
 * A tile:
 * - The radiograph stays grey.
 * - Evidence (infer/cam.h) above 0 is drawn over it in the colours of inferno, without their ends.
 *   More evidence is more opaque.
 * - The colour fades where the local logit also says that the finding is improbable: from one half
 *   down to 2 %. The scale in the SVG file fades in the same way. A map without evidence therefore
 *   looks empty.
 * - A line marks half of the scale. A cross marks a peak beyond that line where the finding is more
 *   likely than not.
 * - A frame shows the part that the network saw, if that is not the whole image.
 *
 * The SVG file names each tile's class and probability. Its legend gives the top of the scale as
 * odds relative to the whole image, the number of positions of the map, and the note that the
 * picture is not for clinical use.
 */
#ifndef CHEX_INFER_CAM_PICTURE_H
#define CHEX_INFER_CAM_PICTURE_H

#include "image/image.h"
#include "infer/cam.h"

struct chex_cam_picture {
    const struct chex_cam *cam;
    const struct chex_image *image; /* grey, in the size of the file */
    struct chex_cam_view view;
    const char *const *class_names; /* (cam->classes) */
    const double *probabilities;    /* (cam->classes) */
    const int *drawn;               /* (count) classes, in the order of the tiles */
    int count;
    double alpha; /* opacity of the strongest evidence, 0 to 1 */
    double top;   /* evidence at the top of the scale; 0: chex_cam_top of each class */
    bool overlay; /* only the map, on a transparent ground, in the size of `image`, whose pixels are
                     not used; count is 1 */
};

/* The findings of the tiles, in their order: "Mass 0.8120, Nodule 0.2040". For the caller to free.
 * NULL: out of memory. */
char *chex_cam_title(const struct chex_cam_picture *p);

/* A map with fewer positions per side is too coarse to locate a finding. */
enum { CHEX_CAM_FEWEST_POSITIONS = 5 };

/* The largest evidence of a class, but at least 1 logit (a factor of e in the odds). The minimum
 * keeps weak evidence from looking like a finding. */
double chex_cam_top(const struct chex_cam *cam, int class_index);

/* The tiles in rows of `columns`, CHEX_CAM_GAP_PX apart. */
struct chex_cam_sheet {
    uint8_t *rgb; /* (height, width, channels) */
    int channels; /* 3, or 4 with opacity for an overlay */
    int width, height, tile_width, tile_height, columns;
};
enum { CHEX_CAM_GAP_PX = 8 };

/* Draws the tiles. The caller frees out->rgb.
 * - One tile: the image keeps its size. If the longer side is under 512 px, an integer factor
 *   enlarges it.
 * - Several tiles: the longer side of each is 512 px. */
enum chex_status chex_cam_draw(const struct chex_cam_picture *p, struct chex_cam_sheet *out,
                               struct chex_error *err);

/* Writes the PNG file, atomically. texts: as for chex_image_write_png_rgb. */
enum chex_status chex_cam_write_png(const struct chex_cam_sheet *s, const char *path,
                                    const char *const *texts, struct chex_error *err);

/* Writes the SVG file, atomically. png: the file that chex_cam_write_png wrote. */
enum chex_status chex_cam_write_svg(const struct chex_cam_picture *p,
                                    const struct chex_cam_sheet *s, const char *png,
                                    const char *path, struct chex_error *err);

/* The colour map inferno at t in [0, 1]. */
struct chex_colour {
    uint8_t r, g, b;
};
struct chex_colour chex_inferno(double t);

/* The colour and its opacity at share `t` of the scale. */
struct chex_colour chex_cam_tint(const struct chex_cam_picture *p, int class_index, double t,
                                 double *opacity_out);

#endif
