/* SPDX-License-Identifier: Apache-2.0
 *
 * `chex-shard audit`: compares the patients, images and positives of two sides.
 */
#ifndef CHEX_SHARD_AUDIT_H
#define CHEX_SHARD_AUDIT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The label file that supplies labels and patients for lists of file names. All may be NULL. */
struct chex_audit_labels {
    const char *path, *format, *columns; /* chex_labels_load */
};

struct chex_audit_row {
    const char *image, *patient;
    const int8_t *labels; /* (class_count of the side); NULL: unknown */
};

/* All pointers are borrowed. */
struct chex_audit_side {
    const struct chex_audit_row *rows; /* (count) */
    size_t count;
    const char *const *class_names; /* (class_count); 0: the labels are unknown */
    size_t class_count;
};

/* Positives of a class that both sides have: in all images, and in the images of shared patients.
 */
struct chex_audit_class {
    const char *name; /* side a's */
    size_t positives_a, positives_b, shared_a, shared_b;
};

struct chex_audit {
    size_t images_a, images_b, patients_a, patients_b; /* distinct */
    size_t shared_images, shared_patients;
    size_t shared_patient_images_a, shared_patient_images_b; /* images of the shared patients */
    const char *first_image, *first_patient; /* the alphabetically first shared ones; NULL: none */
    struct chex_audit_class *classes;        /* (class_count) in a's order */
    size_t class_count;
    struct chex_audit_inputs *inputs; /* own the names; NULL after chex_audit_compare() */
};

/* Opens two sides and compares them.
 * - A side is a set's folder, the folder of one split, a shard file, a label file or a list of file
 *   names. Format and columns of `labels` also apply to a side that is a label file.
 * - A file of unknown type is read as HDF5 if it begins with the HDF5 signature. Otherwise it is
 *   read as a label file, and if that fails as a list of file names.
 * - Shared patients are not a failure. Free the result with chex_audit_release().
 * - CHEX_E_DATA: a side that cannot be read, a list with names that `labels` does not have. */
enum chex_status chex_audit_run(const char *a, const char *b,
                                const struct chex_audit_labels *labels,
                                struct chex_audit *audit_out, struct chex_error *err);

/* The comparison alone. The result borrows its names from the sides. The only failure is
 * CHEX_E_RESOURCE. */
enum chex_status chex_audit_compare(const struct chex_audit_side *a,
                                    const struct chex_audit_side *b, struct chex_audit *audit_out,
                                    struct chex_error *err);
void chex_audit_release(struct chex_audit *audit);

#endif
