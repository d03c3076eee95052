/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts a list of images (ingest/image_list.h) on all ranks.
 *
 * - The images of each rank follow from the list, the finished images and the number of ranks:
 *   blocks of 64 images that can be read by themselves go round the ranks, and archive i goes to
 *   rank i mod size.
 * - Each rank decodes on worker threads (image_loader.h) while its engine infers, and appends one
 *   line for each image to its part of the unfinished results (predict_partial.h).
 * - Rank 0 then writes the tables in the order of the list.
 * The probabilities are those of chex_eval_run on shards of the same images, bit for bit. The
 * tables do not depend on ranks, threads, or interruptions.
 *
 * predictions.csv: `image_id`, `study_id` and `series_id` if a file states them, `p_<Class>`; with
 * a deployment `d_<Class>` (1 if the calibrated probability is at least the threshold, else 0;
 * empty without a threshold) and, if it recalibrates, `c_<Class>` (calibrated probability); of an
 * ensemble `s_<Class>` (standard deviation of the members' probabilities); with feature statistics
 * `distance`; `flags` (image_flags.h).
 * rejected.csv: `image_id`, `reason`.
 */
#ifndef CHEX_INFER_PREDICT_IMAGES_H
#define CHEX_INFER_PREDICT_IMAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/engine.h"
#include "infer/deployment.h"
#include "infer/ensemble.h"
#include "infer/image_flags.h"
#include "infer/predict_partial.h"
#include "ingest/image_list.h"
#include "launch/group.h"

struct chex_predict_config {
    const struct chex_image_list *list;
    struct chex_engine *engine; /* of an ensemble its first: features are those of this network */
    const struct chex_ensemble *ensemble;
    struct chex_group *group;
    const struct chex_deployment *deployment; /* NULL: none */
    char *const *class_names;
    const char *out; /* folder of the unfinished results, made by chex_partial_begin */
    int stored_px, workers, threads;
    size_t pictures; /* the first images of the list get a heat map; 0 for an ensemble */
    size_t thumbs;   /* the first images of the list get a thumbnail */
    size_t max_bad;  /* more images that cannot be used are CHEX_E_DATA; SIZE_MAX: no limit */
    bool progress;
};

struct chex_predict_result {
    size_t images, rejected; /* in the tables */
    size_t kept;             /* of them from an interrupted run */
    size_t flags[CHEX_FLAG_COUNT];
    double seconds;
    char first_bad[CHEX_ERROR_TEXT_BYTES]; /* reason of the first rejected image */
};

/* Predicts the images without a line. Collective; all ranks return the same status.
 * CHEX_E_DIVERGED: a logit is not finite. */
enum chex_status chex_predict_images(const struct chex_predict_config *config,
                                     struct chex_predict_result *result_out,
                                     struct chex_error *err);

/* Writes predictions.csv, rejected.csv and, with thumbnails, contact-sheet.html into `folder`, and
 * adds the counts to the result. Only rank 0, after chex_predict_images. CHEX_E_DATA: no image
 * could be used, or more than max_bad could not. */
enum chex_status chex_predict_write(const struct chex_predict_config *config, const char *folder,
                                    struct chex_predict_result *result, struct chex_error *err);

/* ---- predict_map.c ---- */

/* Draws the heat map of a predicted image (infer/cam_picture.h) into a file maps/NNNNNNN-NAME.png
 * of the unfinished results. NNNNNNN is the place in the list, from 1; NAME is the file's name
 * without its ending, with '_' for characters other than letters, digits, '.', '_' and '-'. It
 * shows the findings whose decision is 1, or the most probable one if there is none.
 * - index: in the list. image: in the batch of the engine's last infer. logits: (classes) of it.
 * - picture: the image with the sides of the file in proportion. */
enum chex_status chex_predict_draw(const struct chex_predict_config *config, size_t index,
                                   const struct chex_image *picture, int image, const float *logits,
                                   struct chex_error *err);

#endif
