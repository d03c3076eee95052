/* SPDX-License-Identifier: Apache-2.0
 *
 * Assigns the rows of a label table to train, val and test.
 *
 * All images of a patient are in the same split: a network would otherwise be evaluated on patients
 * that it was trained on.
 *
 * Every function fills split_out (table->count) of the caller. The result depends only on the
 * table's rows, the seed, the fractions and the lists.
 */
#ifndef CHEX_LABEL_SPLIT_H
#define CHEX_LABEL_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "label/labels.h"

/* With official lists: a row that is in no list. It is not used. */
#define CHEX_SPLIT_UNUSED CHEX_SPLIT_COUNT

struct chex_fractions {
    double train, val, test;
};

/* Parses "0.7,0.1,0.2" (train, val, test). CHEX_E_USAGE: not three numbers of 0 to 1, or a sum that
 * is not 1. */
enum chex_status chex_split_parse_fractions(const char *text, struct chex_fractions *out,
                                            struct chex_error *err);

/* Assigns every row to CHEX_ALL. */
void chex_split_none(const struct chex_label_table *table, enum chex_split *split_out);

/* Splits at random by patient. Patients are ordered by a hash of (seed, patient id). The first go
 * to test, the next to val, the rest to train.
 * - Each split is as close to its fraction of the images as whole patients allow.
 * - If rows are added or removed, only patients near the two borders change their split.
 * - CHEX_E_USAGE: as chex_split_parse_fractions().
 * - CHEX_E_DATA: a split with a fraction above 0 is empty; the text has the counts. */
enum chex_status chex_split_by_patient(const struct chex_label_table *table,
                                       const struct chex_fractions *fractions, uint64_t seed,
                                       enum chex_split *split_out, struct chex_error *err);

/* --shared-patients: what to do with a patient that lists, or the splits of a label file, put in
 * two splits. */
enum chex_shared_patients {
    CHEX_SHARED_REFUSE,
    CHEX_SHARED_DROP, /* keep only the images of one split: test, else val, else train */
};
extern const char *const chex_shared_patients_names[]; /* "refuse", "drop", NULL */

/* Sizes of the NIH's official lists for the whole of ChestX-ray14. */
enum { CHEX_NIH_IMAGES = 112120, CHEX_NIH_TRAIN_VAL = 86524, CHEX_NIH_TEST = 25596 };

struct chex_split_lists {
    /* Paths of the lists.
     * - All NULL: use the splits that the label file states, or else train_val_list.txt and
     *   test_list.txt in its folder.
     * - Otherwise only the given lists are used: without `test` there is no test split.
     * - `val` requires `train`. Without validation rows, val is cut from train by patient. */
    const char *train, *val, *test;
    enum chex_shared_patients shared_patients;
    /* The fraction of the train list that becomes val is val / (train + val). */
    struct chex_fractions fractions;
    uint64_t seed;
};

struct chex_split_report {
    size_t count[CHEX_SPLIT_COUNT]; /* rows of each split */
    size_t unused;                  /* rows that are in no list */
    size_t unknown;                 /* names in the lists that the label file does not have */
    size_t shared_patients, shared_images;      /* patients in two splits; their dropped images */
    char first_unused[128], first_unknown[128]; /* image ids, or "" */
    char text[512];                             /* the sources of the splits, for the log */
    char warning[256]; /* the lists in the folder of the whole NIH table are not the NIH's; or "" */
};

/* Splits by lists or by the splits in the label file. *report_out may be NULL.
 * - CHEX_E_USAGE: wrong fractions; `val` without `train`.
 * - CHEX_E_DATA: no list found, a name that is in the lists twice, a list without any image of the
 *   table, an empty split, patients in two splits (unless shared_patients is CHEX_SHARED_DROP). */
enum chex_status chex_split_official(const struct chex_label_table *table,
                                     const struct chex_split_lists *lists,
                                     enum chex_split *split_out,
                                     struct chex_split_report *report_out, struct chex_error *err);

#endif
