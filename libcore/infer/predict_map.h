/* SPDX-License-Identifier: Apache-2.0
 *
 * The heat map of a predicted image (infer/cam_picture.h), as a file maps/NNNNNNN-NAME.png of the
 * unfinished results. NNNNNNN is the place in the list, from 1; NAME is the file's name
 * without its ending, with '_' for characters other than letters, digits, '.', '_' and '-'.
 */
#ifndef CHEX_INFER_PREDICT_MAP_H
#define CHEX_INFER_PREDICT_MAP_H

#include "infer/predict_images.h"

/* Draws the findings whose decision is 1, or the most probable one if there is none.
 * - index: in the list. image: in the batch of the engine's last infer. logits: (classes) of it.
 * - picture: the image with the sides of the file in proportion. */
enum chex_status chex_predict_draw(const struct chex_predict_config *config, size_t index,
                                   const struct chex_image *picture, int image, const float *logits,
                                   struct chex_error *err);

#endif
