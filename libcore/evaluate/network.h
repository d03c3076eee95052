/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of a parameter file of any format, as the options describe it, or several as an
 * ensemble.
 */
#ifndef CHEX_EVALUATE_NETWORK_H
#define CHEX_EVALUATE_NETWORK_H

#include "evaluate/settings.h"
#include "infer/deployment.h"
#include "infer/ensemble.h"
#include "model/net.h"
#include "model/safetensors.h"

/* Parameters, with the description in their file. */
struct chex_eval_network {
    struct chex_net *net;
    float *state; /* (state_count) */
    struct chex_safetensors_about about;
    int64_t step;                       /* training steps; 0: unknown */
    struct chex_deployment *deployment; /* NULL: none */
    int networks;                       /* 1: no ensemble */
    /* Of an ensemble, else NULL and AUTO: `net` is these networks, joined. */
    struct chex_net **member; /* (networks) */
    enum chex_ensemble_mean mean;
    json_t *facts; /* of chex_eval_members_parse */
};

/* The description for a new file. The caller frees `ensemble`; all else is borrowed. */
enum chex_status chex_eval_network_about(const struct chex_eval_network *n,
                                         struct chex_safetensors_about *about_out,
                                         struct chex_error *err);

/* CHEX_E_DATA if a class name is not printable UTF-8: names are printed and written into tables.
 * path: the file with the names, for the error text. */
enum chex_status chex_eval_check_class_names(const char *path, char *const *names, int count,
                                             struct chex_error *err);

/* Reads s->checkpoint: a file, or several (evaluate/ensemble_files.h). classes: number of classes
 * if the file does not name its own; with 0 such a file is CHEX_E_DATA. The caller calls
 * chex_eval_network_release, after an error too. */
enum chex_status chex_eval_network_open(const struct chex_eval_settings *s, int classes,
                                        struct chex_eval_network *n, struct chex_error *err);
void chex_eval_network_release(struct chex_eval_network *n);

/* Side of the crop in px: --image-size, else the value in the network's file, else EVAL_IMAGE_PX or
 * `stored` (side of the stored images), whichever is smaller. */
enum { EVAL_IMAGE_PX = 224 };
int chex_eval_image_size(const struct chex_eval_settings *s, const struct chex_eval_network *n,
                         int stored);

/* For commands that read image files: sides of the stored image and of the crop, as in the
 * network's training; --stored-size and --image-size come first. Also checks that the training
 * images were resized by the method of image/resize.h.
 * - warn: tells the user about values that the file does not state.
 * - CHEX_E_DATA: another method. CHEX_E_USAGE: a crop larger than the stored image. */
enum chex_status chex_eval_network_sizes(const struct chex_eval_settings *s,
                                         const struct chex_eval_network *n, bool warn,
                                         int *stored_out, int *image_out, struct chex_error *err);

#endif
