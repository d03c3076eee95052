/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows of a label table train, validate and test: by patient always, so that no patient is
 * seen on two sides; and the audit that counts those who are.
 *
 * Every function fills split_out (table->count) of the caller. The result depends on the table's
 * rows, the seed and the fractions only.
 */
#ifndef CHEX_DATA_SPLIT_H
#define CHEX_DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/labels.h"

/* A row that no list names, with official lists: it goes nowhere. */
#define CHEX_SPLIT_UNUSED CHEX_SPLIT_COUNT

struct chex_fractions {
    double train, val, test;
};

/* "0.7,0.1,0.2". CHEX_E_USAGE: not three numbers of 0..1, or a sum that is not 1. */
enum chex_status chex_split_parse_fractions(const char *text, struct chex_fractions *out,
                                            struct chex_error *err);

/* Every row is CHEX_ALL. */
void chex_split_none(const struct chex_label_table *table, enum chex_split *split_out);

/* Patients in the order of a hash of (seed, patient id), the first to test, the next to val, the
 * rest to train, so that each split comes as close to its fraction of the images as whole patients
 * allow. Rows that join or leave the table move patients near the two borders only. CHEX_E_USAGE as
 * in chex_split_parse_fractions; CHEX_E_DATA with the counts where a split with a fraction above 0
 * stays empty. */
enum chex_status chex_split_by_patient(const struct chex_label_table *table,
                                       const struct chex_fractions *fractions, uint64_t seed,
                                       enum chex_split *split_out, struct chex_error *err);

/* What becomes of a patient whom lists, or a label file's own splits, put on two sides. */
enum chex_shared_patients {
    CHEX_SHARED_REFUSE,
    CHEX_SHARED_DROP, /* the images of the lesser side go nowhere: test before val before train */
};
extern const char *const chex_shared_patients_names[]; /* "refuse", "drop", NULL */

/* The NIH's own lists for all of ChestX-ray14. */
enum { CHEX_NIH_IMAGES = 112120, CHEX_NIH_TRAIN_VAL = 86524, CHEX_NIH_TEST = 25596 };

struct chex_split_lists {
    /* All NULL: what the label file itself states of its rows, else train_val_list.txt and
     * test_list.txt beside it. Otherwise those that are given and no others, so that without `test`
     * there is no test split; val needs train. Where nothing says val, it is cut from train by
     * patient. */
    const char *train, *val, *test;
    enum chex_shared_patients shared_patients;
    /* The part of the train list to cut for validation: val / (train + val). */
    struct chex_fractions fractions;
    uint64_t seed;
};

struct chex_split_report {
    size_t count[CHEX_SPLIT_COUNT]; /* rows of each split */
    size_t unused;                  /* rows that no list names */
    size_t unknown;                 /* names in the lists that the label file does not have */
    size_t shared_patients, shared_images;      /* dropped: patients of two sides, their images */
    char first_unused[128], first_unknown[128]; /* image ids; "" where there is none */
    char text[512];                             /* what was used, for the log */
    char warning[256]; /* lists beside the whole NIH table that are not the NIH's; "" for nothing */
};

/* CHEX_E_DATA: no list found, a name twice in one list or in two, patients on two sides unless they
 * are to be dropped (how many and the first few), a list of which the table holds nothing, an empty
 * split. *report_out may be NULL. */
enum chex_status chex_split_official(const struct chex_label_table *table,
                                     const struct chex_split_lists *lists,
                                     enum chex_split *split_out,
                                     struct chex_split_report *report_out, struct chex_error *err);

/* One side of an audit: (count) image and patient ids, borrowed. */
struct chex_audit_side {
    const char *const *image_ids, *const *patient_ids;
    size_t count;
    /* (count) rows of (class_count) labels; or NULL, and a row may be NULL: nothing is known. */
    const int8_t *const *labels;
    const char *const *class_names;
    size_t class_count;
};

/* Positives of a class that both sides have: of all images, and of the shared patients' images. */
struct chex_audit_class {
    const char *name; /* side a's */
    size_t positives_a, positives_b, shared_a, shared_b;
};

struct chex_audit {
    size_t images_a, images_b, patients_a, patients_b; /* distinct */
    size_t shared_images, shared_patients;
    size_t shared_patient_images_a, shared_patient_images_b; /* images of the shared patients */
    char first_image[128], first_patient[128]; /* the first shared in order of names, or "" */
    struct chex_audit_class *classes; /* (class_count) in a's order; chex_audit_release() */
    size_t class_count;
};

/* Frees the classes. */
void chex_audit_release(struct chex_audit *audit);

/* Fails for lack of memory only. The names of classes are borrowed from `a`. */
enum chex_status chex_split_audit(const struct chex_audit_side *a, const struct chex_audit_side *b,
                                  struct chex_audit *audit_out, struct chex_error *err);

#endif
