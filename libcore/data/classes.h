/* SPDX-License-Identifier: Apache-2.0
 *
 * The 14 findings of ChestX-ray14 in the order of the CheXNet lists, how others spell them, and the
 * findings of other sets.
 *
 * A finding of another set that is one of the 14 goes by our name; any other keeps its own. Words
 * for two findings at once (VinDr's "Nodule/Mass") or for a wider one ("Lung Opacity", "Lung
 * Lesion", "Enlarged Cardiomediastinum") are findings of their own.
 */
#ifndef CHEX_DATA_CLASSES_H
#define CHEX_DATA_CLASSES_H

#include <stdbool.h>

enum { CHEX_CLASS_COUNT = 14, CHEX_CLASS_NAME_BYTES = 64 };

extern const char *const chex_class_names[CHEX_CLASS_COUNT + 1]; /* NULL at the end */

/* The 14 columns of CheXpert's label file, and of MIMIC-CXR's, as those write them. */
enum { CHEX_CHEXPERT_COUNT = 14 };
extern const char *const chex_class_chexpert[CHEX_CHEXPERT_COUNT + 1]; /* NULL at the end */

/* Whether label files mean one name by both: case, blanks, '_' and '-' do not count. */
bool chex_names_match(const char *a, const char *b);

/* The class of a name as label files write it: case, blanks, '_' and '-' do not count, and other
 * data sets' names for the same finding are known ("Pleural Effusion"). -1 where it is none. */
int chex_class_find(const char *name);

/* The class whose name is closest to a misspelt one; -1 where none is close. For error texts. */
int chex_class_nearest(const char *name);

/* The name a finding is kept under: ours where it is one of ours, "No_Finding", else as written
 * with '_' for blanks and '/'. False, and out is "", where that cannot be a class name: empty, too
 * long, or with a character that would need quoting in a CSV header. */
bool chex_class_canonical(const char *name, char out[CHEX_CLASS_NAME_BYTES]);

#endif
