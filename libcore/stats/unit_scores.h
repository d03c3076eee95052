/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of studies or patients from tables of images: the images of a unit become one row.
 *
 * - score: the maximum or the mean of the images. Each class is grouped alone.
 * - label: 1 if an image has 1; else uncertain if an image is; else 0 if an image has 0; else not
 *   stated. One image without the finding does not rule it out, one uncertain image leaves it open.
 * - facts: those that all images of the unit share; the mean brightness.
 * Rows are in the order of the first image of each unit.
 */
#ifndef CHEX_STATS_UNIT_SCORES_H
#define CHEX_STATS_UNIT_SCORES_H

#include "stats/predictions.h"

enum chex_unit { CHEX_UNIT_IMAGE, CHEX_UNIT_STUDY, CHEX_UNIT_PATIENT };
extern const char *const chex_unit_names[]; /* "image", "study", "patient", NULL */

enum chex_unit_score { CHEX_UNIT_MAX, CHEX_UNIT_MEAN };
extern const char *const chex_unit_score_names[]; /* "max", "mean", NULL */

/* Makes a table of units (study or patient). image_id is the id of the unit: PATIENT/STUDY for
 * studies, because studies of different patients may have the same name; just STUDY if it begins
 * with the patient.
 * CHEX_E_DATA: an image without study or patient; the text has the remedy. */
enum chex_status chex_units_create(const struct chex_predictions *images, enum chex_unit unit,
                                   enum chex_unit_score score, struct chex_predictions **out,
                                   struct chex_error *err);

#endif
