/* SPDX-License-Identifier: Apache-2.0
 *
 * Class activation maps over their radiograph, as a picture: one panel a class, each with the
 * class's name, its probability, and a scale of its own in logits.
 *
 * The radiograph stays grey. Evidence (eval/cam.h) above 0 is laid over it in inferno without its
 * ends, the more opaque the more there is of it, and fading where the local logit too calls the
 * finding improbable (from one half down to 2 %), as does the scale below. A line runs through half
 * of the scale, and a cross marks a peak beyond it where the finding is more likely than not. So a
 * map without evidence looks like none. A frame shows what the network saw where that is not all of
 * the image.
 */
#ifndef CHEX_EVAL_CAM_PICTURE_H
#define CHEX_EVAL_CAM_PICTURE_H

#include "data/image.h"
#include "eval/cam.h"
#include "eval/canvas.h"

struct chex_cam_picture {
    const struct chex_cam *cam;
    const struct chex_image *image; /* grey, of the file's own size */
    struct chex_cam_view view;
    const char *const *class_names; /* (cam->classes) */
    const double *probabilities;    /* (cam->classes) */
    const int *drawn;               /* (count) classes, in the order of the panels */
    int count;
    double alpha; /* opacity of the strongest evidence, 0 to 1 */
    double top;   /* evidence at the top of the scale; 0: chex_cam_top of each class */
};

/* The most evidence that a class has, but at least 1 logit, a factor of e in the odds: less is not
 * blown up to look like a finding. */
double chex_cam_top(const struct chex_cam *cam, int class_index);

/* One panel keeps the image's own size (where the longer side is under 512 px it is enlarged by a
 * whole factor); of several the longer side of each is 512 px. The caller releases *out. */
enum chex_status chex_cam_draw(const struct chex_cam_picture *p, struct chex_canvas *out,
                               struct chex_error *err);

/* Inferno at t in [0, 1]. */
struct chex_colour chex_inferno(double t);

#endif
