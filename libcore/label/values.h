/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a row besides its pixels: split, view, and labels that are neither positive (1) nor
 * negative (0). Label tables, shards and manifests use the same values.
 */
#ifndef CHEX_LABEL_VALUES_H
#define CHEX_LABEL_VALUES_H

enum chex_split { CHEX_TRAIN, CHEX_VAL, CHEX_TEST, CHEX_ALL, CHEX_SPLIT_COUNT };
extern const char *const chex_split_names[]; /* "train", "val", "test", "all", NULL */

enum chex_view { CHEX_VIEW_UNKNOWN, CHEX_VIEW_PA, CHEX_VIEW_AP, CHEX_VIEW_LATERAL };

enum { CHEX_LABEL_UNCERTAIN = -1, CHEX_LABEL_NOT_STATED = -2 };

enum {
    CHEX_MAX_CLASSES = 1024,  /* of a set */
    CHEX_MAX_ID_BYTES = 4095, /* of an image or patient id, without its NUL */
};

#endif
