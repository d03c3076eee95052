/* SPDX-License-Identifier: Apache-2.0
 *
 * Class activation maps: where in an image the evidence for a class lies.
 *
 * Source: Zhou et al., Learning deep features for discriminative localization, CVPR 2016. For chest
 * radiographs: Rajpurkar et al. 2017.
 *
 * All networks here end in a global average and a linear layer. The head can therefore be applied
 * to a single position of the last feature maps. Its value there is the *local logit*: sum_k w_ck
 * f_k(x, y) + b_c. The mean of the local logits over all positions is exactly the image's logit.
 * *Evidence* is the local logit minus the image's logit. It is above 0 where there is more of the
 * finding than in the mean of the image.
 *
 * Coordinates are in px; the centre of the first pixel is (0, 0). A position lies at the centre of
 * its receptive field, which follows from the list of operations (Araujo, Norris and Sim, Computing
 * receptive fields of convolutional neural networks, Distill 2019). Stretching the map over the
 * image instead would shift the map of ResNet-50 by half a position to the lower right. Local
 * logits are interpolated bilinearly between positions and are constant beyond the outermost.
 */
#ifndef CHEX_INFER_CAM_H
#define CHEX_INFER_CAM_H

#include "engine/engine.h"

struct chex_cam {
    int classes, side;        /* side * side positions */
    double first_px, step_px; /* first position, and distance between two, along both axes, in px
                                 of the network's image */
    float *local;             /* (side, side, classes) */
    float *logit;             /* (classes) of the image */
};

/* Runs one image through the engine. pixels: (image_size, image_size), as in a batch. The caller
 * destroys *cam_out. */
enum chex_status chex_cam_create(struct chex_engine *engine, const float *pixels,
                                 struct chex_cam **cam_out, struct chex_error *err);

/* The same for an image of the batch of the engine's last infer. logit: (classes) of this image. */
enum chex_status chex_cam_of_batch(struct chex_engine *engine, int image, const float *logit,
                                   struct chex_cam **cam_out, struct chex_error *err);
void chex_cam_destroy(struct chex_cam *cam); /* NULL allowed */

/* Computes `side` of struct chex_cam for the engine's image size. */
enum chex_status chex_cam_side(const struct chex_engine *e, int *side_out, struct chex_error *err);

/* Computes first_px and step_px of struct chex_cam from the network's operations. */
void chex_cam_place(const struct chex_net *net, double *first_px_out, double *step_px_out);

/* The local logit of a class at a point of the network's image. */
double chex_cam_local(const struct chex_cam *cam, int class_index, double x, double y);

/* The position with the largest local logit; the first of several equal ones. */
struct chex_cam_peak {
    double x, y, local;
};
struct chex_cam_peak chex_cam_peak(const struct chex_cam *cam, int class_index);

/* How the image of a file became the input of the network. The width x height px of the file were
 * resized to a square of stored_px. The network saw the square of image_px at (left, top) in it. */
struct chex_cam_view {
    int width, height, stored_px, image_px, left, top;
};
struct chex_cam_view chex_cam_view_of(int width, int height, int stored_px, int image_px);

/* Convert a point of the file's image to the network's image, and back. */
void chex_cam_to_network(const struct chex_cam_view *v, double x, double y, double *x_out,
                         double *y_out);
void chex_cam_to_file(const struct chex_cam_view *v, double x, double y, double *x_out,
                      double *y_out);

#endif
