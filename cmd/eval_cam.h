/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of chex-eval cam, and its parts that have files of their own.
 */
#ifndef CHEX_CMD_EVAL_CAM_H
#define CHEX_CMD_EVAL_CAM_H

#include "data/image.h"
#include "eval/cam.h"
#include "eval_commands.h"
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
    struct chex_image image; /* of the file's own size */
    float *pixels;           /* (image_px, image_px) */
    struct chex_cam *maps;
    double *probabilities; /* (classes) */
    int *drawn, count;
};

/* ---- eval_cam_classes.c ---- */

/* The classes of a list of names with commas between, or `all`, in the order of the list and each
 * once; capitals and small letters are alike. drawn_out has room for all classes. CHEX_E_USAGE with
 * the nearest names for one that the network does not have. */
enum chex_status eval_cam_classes(const char *list, const struct eval_network *n, int *drawn_out,
                                  int *count_out, struct chex_error *err);

/* ---- eval_cam_results.c ---- */

/* All classes to stdout: a table, or with --json an object. */
enum chex_status eval_cam_print(const struct eval_cam *m, const struct chex_cam_view *view,
                                struct chex_error *err);

#endif
