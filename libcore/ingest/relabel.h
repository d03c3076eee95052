/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a set with the images of an existing set and the labels of another label file. No image is
 * decoded or resized again.
 *
 * - From the new file: findings and labels. From the set: images, splits, order of rows, patients,
 *   studies, views, ages and sexes. So no image changes its split.
 * - Images are matched by image id, then by the path in the label file.
 * - If the new file has all images of the set, and the same facts, the result is byte-identical to
 *   that of chex_create() with the new file and the splits of the set.
 * - Pixels are copied row by row and compared with their checksums. Sharing their blocks with the
 *   old file (reflink) would be faster, but would carry damage on unseen.
 */
#ifndef CHEX_INGEST_RELABEL_H
#define CHEX_INGEST_RELABEL_H

#include "ingest/create.h"

enum chex_relabel_missing { CHEX_RELABEL_REFUSE, CHEX_RELABEL_DROP };
extern const char *const chex_relabel_missing_names[]; /* "refuse", "drop", NULL */

struct chex_relabel_options {
    struct chex_create_options create; /* set, labels and how they are read, and the output */
    int missing;                       /* enum chex_relabel_missing: images that the file lacks */
    bool plan; /* only count the changes: nothing is written, and output may be NULL */
};

/* Values of a label, as the plan counts them. */
enum chex_relabel_value {
    CHEX_RELABEL_POSITIVE,
    CHEX_RELABEL_NEGATIVE,
    CHEX_RELABEL_UNCERTAIN,
    CHEX_RELABEL_NOT_STATED,
    CHEX_RELABEL_VALUES
};

/* The labels of one finding in all kept images. A finding that one side does not have is not stated
 * there. */
struct chex_relabel_finding {
    char *name;
    bool in_set, in_file;
    size_t before[CHEX_RELABEL_VALUES], after[CHEX_RELABEL_VALUES];
    size_t changed; /* images whose label differs */
};

struct chex_relabel_plan {
    size_t images, kept;   /* of the set; of the result */
    size_t changed;        /* kept images with a label that differs */
    size_t unused;         /* images of the label file that the set does not have */
    size_t other_patients; /* kept images with another patient in the label file */
    int size;              /* side of the images, px */
    /* (finding_count) those of the file, then those that only the set has. NULL: the label file
     * could not be read. */
    struct chex_relabel_finding *findings;
    size_t finding_count;
};

void chex_relabel_release(struct chex_relabel_plan *plan);

/* Collective, as chex_reshard(). Fills *plan_out in all cases; free its content with
 * chex_relabel_release().
 * - CHEX_E_USAGE: as chex_labels_load(); the output is the input or holds other files.
 * - CHEX_E_DATA: the input is no set or is damaged; the label file is faulty; it has none of the
 *   images, or, with CHEX_RELABEL_REFUSE, not all of them; a split would lose all images. */
enum chex_status chex_relabel(const struct chex_relabel_options *options, struct chex_group *group,
                              struct chex_relabel_plan *plan_out,
                              struct chex_create_result *result_out, struct chex_error *err);

#endif
