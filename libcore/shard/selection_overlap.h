/* SPDX-License-Identifier: Apache-2.0
 *
 * Do several sets that are trained on together share images or patients across their splits? Each
 * set keeps its patients in one split. Two sets of one hospital may hold the same patient in train
 * and in val: the validation would then be of training images.
 */
#ifndef CHEX_SHARD_SELECTION_OVERLAP_H
#define CHEX_SHARD_SELECTION_OVERLAP_H

#include "shard/selection.h"

/* Compares the chosen training rows of each set with the validation and test rows of the others.
 * Opens every shard once, and calls opened(arg) after each. With one set it does nothing.
 * - CHEX_E_DATA: an image with equal stored pixels (equal checksum) is on both sides. The text
 *   names the first one.
 * - warning (size): patient ids on both sides, "" if there are none. This is no error: hospitals
 *   that number their patients may have equal ids for different people. */
enum chex_status chex_selection_check_overlap(const struct chex_selection *s,
                                              void (*opened)(void *arg), void *arg, char *warning,
                                              size_t size, struct chex_error *err);

#endif
