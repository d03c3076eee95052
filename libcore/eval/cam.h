/* SPDX-License-Identifier: Apache-2.0
 *
 * Class activation maps: where in an image the evidence for a class lies (Zhou et al., Learning
 * deep features for discriminative localization, CVPR 2016; for chest radiographs Rajpurkar et al.
 * 2017).
 *
 * Both networks end in a global average and a linear layer. So what the head says of one position
 * of the last maps by itself, its *local logit* sum_k w_ck f_k(x, y) + b_c, has the image's logit
 * as its mean over all positions: nothing is approximated. *Evidence* is the local logit minus the
 * image's: above 0 where there is more of the finding than in the mean of the image.
 *
 * Coordinates are in px, the centre of the first pixel at (0, 0). A position lies at the centre of
 * its receptive field, which follows from the list of operations (Araujo, Norris and Sim, Computing
 * receptive fields of convolutional neural networks, Distill 2019); stretching the map over the
 * image instead would move what ResNet-50 sees by half a position to the lower right. Between
 * positions the local logit is interpolated bilinearly, beyond the outermost it stays as it is
 * there.
 */
#ifndef CHEX_EVAL_CAM_H
#define CHEX_EVAL_CAM_H

#include "engine/engine.h"

struct chex_cam {
    int classes, side;        /* side * side positions */
    double first_px, step_px; /* of the network's image: the first position, along both axes, and
                                 from one to the next */
    float *local;             /* (side, side, classes) */
    float *logit;             /* (classes) of the image */
};

/* Through the engine. pixels: (image_size, image_size), as of a batch. *cam_out is the caller's. */
enum chex_status chex_cam_create(struct chex_engine *engine, const float *pixels,
                                 struct chex_cam **cam_out, struct chex_error *err);
void chex_cam_destroy(struct chex_cam *cam); /* NULL allowed */

/* Where the positions of a network's last maps lie. */
void chex_cam_place(const struct chex_net *net, double *first_px_out, double *step_px_out);

/* The local logit of a class at a place of the network's image. */
double chex_cam_local(const struct chex_cam *cam, int class_index, double x, double y);

/* The position with the largest local logit, the first of equals. */
struct chex_cam_peak {
    double x, y, local;
};
struct chex_cam_peak chex_cam_peak(const struct chex_cam *cam, int class_index);

/* How a file's image came to be the network's: width x height px were squeezed to a square of
 * stored_px, of which the network saw the square of image_px that begins at (left, top). */
struct chex_cam_view {
    int width, height, stored_px, image_px, left, top;
};
struct chex_cam_view chex_cam_view_of(int width, int height, int stored_px, int image_px);

/* From a place in the file's image to the same in the network's, and back. */
void chex_cam_to_network(const struct chex_cam_view *v, double x, double y, double *x_out,
                         double *y_out);
void chex_cam_to_file(const struct chex_cam_view *v, double x, double y, double *x_out,
                      double *y_out);

#endif
