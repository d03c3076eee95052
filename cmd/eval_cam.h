/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of one run of chex-eval cam, and the functions in its other files.
 */
#ifndef CHEX_CMD_EVAL_CAM_H
#define CHEX_CMD_EVAL_CAM_H

#include "eval_commands.h"
#include "image/image.h"
#include "infer/cam.h"
#include "launch/world.h"

struct eval_cam {
    const struct eval_settings *s;
    bool precision_asked;
    struct chex_world world;
    struct eval_network network;
    struct chex_engine *engine;
    const char *engine_spec;
    enum chex_precision precision;
    int stored_px, image_px, threads;
    struct chex_image image; /* at the size of the file */
    float *pixels;           /* (image_px, image_px) */
    struct chex_cam *maps;
    double *probabilities; /* (classes) */
    int *drawn, count;
};

/* ---- eval_cam_classes.c ---- */

/* Finds the classes of a comma-separated list of names, or all for "all".
 *   - Case does not matter; duplicates count once; the order is that of the list.
 *   - drawn_out has space for all classes of the network.
 *   - CHEX_E_USAGE: the network does not have a name; the text gives the nearest names. */
enum chex_status eval_cam_classes(const char *list, const struct eval_network *n, int *drawn_out,
                                  int *count_out, struct chex_error *err);

/* ---- eval_cam_results.c ---- */

/* Prints all classes as a table, or with --json as an object. */
enum chex_status eval_cam_print(const struct eval_cam *m, const struct chex_cam_view *view,
                                struct chex_error *err);

#endif
