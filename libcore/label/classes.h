/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of classes: the 14 findings of ChestX-ray14 in the order of the CheXNet lists, their
 * spellings in other data sets, and the findings of other data sets.
 *
 * - A finding of another data set that is one of the 14 gets the name used here.
 * - Any other finding keeps its own name. A name for two findings (VinDr's "Nodule/Mass") or for a
 *   wider one ("Lung Opacity", "Lung Lesion", "Enlarged Cardiomediastinum") is not one of the 14.
 */
#ifndef CHEX_LABEL_CLASSES_H
#define CHEX_LABEL_CLASSES_H

#include <stdbool.h>

#include "base/error.h"

enum { CHEX_CLASS_COUNT = 14, CHEX_CLASS_NAME_BYTES = 64 };

extern const char *const chex_class_names[CHEX_CLASS_COUNT + 1]; /* NULL at the end */

/* The 14 columns of the label files of CheXpert and MIMIC-CXR, spelled as in those files. */
enum { CHEX_CHEXPERT_COUNT = 14 };
extern const char *const chex_class_chexpert[CHEX_CHEXPERT_COUNT + 1]; /* NULL at the end */

/* True if two names are equal without case, blanks, '_' and '-'. */
bool chex_names_match(const char *a, const char *b);

/* Returns the class (0 to 13) of a name in a label file; -1 if it is none of the 14. Ignores case,
 * blanks, '_' and '-', and knows the names of other data sets ("Pleural Effusion"). */
int chex_class_find(const char *name);

/* Returns the class with the name closest to a misspelt one, for error texts; -1: none is close. */
int chex_class_nearest(const char *name);

/* Returns the index in names (count) of a finding that a user typed; -1 if it is not there.
 * Compares without case, blanks, '_' and '-', and knows the names of other data sets. */
int chex_class_in_list(const char *typed, const char *const *names, int count);

/* CHEX_E_USAGE: `option` names a finding that is not in the list. The text has the closest name, or
 * the first names. whose: the list: "the data". */
enum chex_status chex_class_not_in_list(const char *option, const char *whose, const char *typed,
                                        const char *const *names, int count,
                                        struct chex_error *err);

/* Writes the canonical name of a finding: the name used here if it is one of the 14, "No_Finding",
 * else the name itself with '_' for blanks and '/'.
 * - False, with out "": chex_class_name_fault(). */
bool chex_class_canonical(const char *name, char out[CHEX_CLASS_NAME_BYTES]);

/* Returns why a name that is none of the 14 cannot be the name of a finding, or NULL. It is empty
 * or too long, begins or ends with a blank, has a control character, a quote or a comma, or begins
 * with = + - or @, which a spreadsheet would read as a formula. */
const char *chex_class_name_fault(const char *name);

#endif
