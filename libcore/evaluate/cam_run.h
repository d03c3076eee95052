/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one run of chex-eval cam, and the functions in its other files.
 */
#ifndef CHEX_EVALUATE_CAM_RUN_H
#define CHEX_EVALUATE_CAM_RUN_H

#include "evaluate/run_engine.h"
#include "image/image.h"
#include "infer/cam.h"
#include "infer/cam_picture.h"

struct chex_eval_cam {
    const struct chex_eval_settings *s;
    const struct chex_opt_set *set;
    struct chex_world world;
    struct chex_eval_network network;
    struct chex_eval_engine engine;
    int stored_px, image_px;
    struct chex_image image; /* at the size of the file */
    float *pixels;           /* (image_px, image_px) */
    struct chex_cam *maps;
    double *probabilities; /* (classes) */
    int *drawn, count;
};

/* ---- cam_results.c ---- */

/* Prints all classes as a table, or with --json as an object. */
enum chex_status chex_eval_cam_print(const struct chex_eval_cam *m,
                                     const struct chex_cam_view *view, FILE *out,
                                     struct chex_error *err);

#endif
