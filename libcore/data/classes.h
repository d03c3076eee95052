/* SPDX-License-Identifier: Apache-2.0
 *
 * The 14 findings of ChestX-ray14 in the order of the CheXNet lists, and how others spell them.
 */
#ifndef CHEX_DATA_CLASSES_H
#define CHEX_DATA_CLASSES_H

enum { CHEX_CLASS_COUNT = 14 };

extern const char *const chex_class_names[CHEX_CLASS_COUNT + 1]; /* NULL at the end */

/* The class of a name as label files write it: case, blanks, '_' and '-' do not count, and other
 * data sets' names for the same finding are known ("Pleural Effusion"). -1 where it is none. */
int chex_class_find(const char *name);

/* The class whose name is closest to a misspelt one; -1 where none is close. For error texts. */
int chex_class_nearest(const char *name);

/* All names with ", " between them. */
const char *chex_class_list(void);

#endif
