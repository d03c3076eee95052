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

/* ---- cam_classes.c ---- */

/* Finds the classes of a comma-separated list of names, or all for "all".
 *   - Case does not matter; duplicates count once; the order is that of the list.
 *   - drawn_out has space for all classes of the network.
 *   - CHEX_E_USAGE: the network does not have a name; the text gives the nearest one. */
enum chex_status chex_eval_cam_classes(const char *list, const struct chex_eval_network *n,
                                       int *drawn_out, int *count_out, struct chex_error *err);

/* ---- cam_results.c ---- */

/* Prints all classes as a table, or with --json as an object. */
enum chex_status chex_eval_cam_print(const struct chex_eval_cam *m,
                                     const struct chex_cam_view *view, FILE *out,
                                     struct chex_error *err);

#endif
