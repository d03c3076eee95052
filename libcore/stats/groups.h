/* SPDX-License-Identifier: Apache-2.0
 *
 * Partitions of the rows of a table by what is known about the images (struct chex_row_facts).
 */
#ifndef CHEX_STATS_GROUPS_H
#define CHEX_STATS_GROUPS_H

#include "stats/predictions.h"

/* - SEX: F, M
 * - AGE: bands of years. Ages above CHEX_GROUP_MAX_AGE are mistakes and count as unknown.
 * - VIEW: PA, AP, LATERAL
 * - SOURCE: the name of the set
 * - SIZE: bands of the longer side of the original file: below 1024, 2048, 3072 px, and above
 * - FOLD: of a cross-validation */
enum chex_attribute {
    CHEX_ATTRIBUTE_SEX,
    CHEX_ATTRIBUTE_AGE,
    CHEX_ATTRIBUTE_VIEW,
    CHEX_ATTRIBUTE_SOURCE,
    CHEX_ATTRIBUTE_SIZE,
    CHEX_ATTRIBUTE_FOLD,
    CHEX_ATTRIBUTE_COUNT
};
extern const char *const chex_attribute_names[]; /* "sex", "age", "view", "source", "size", "fold",
                                                    NULL */

enum { CHEX_GROUPS_MAX = 64, CHEX_GROUP_NONE = 255, CHEX_GROUP_MAX_AGE = 120 };

/* The first ages of the bands after the first: 18, 40, 60, 80 gives 0-17, 18-39, 40-59, 60-79, 80+.
 */
struct chex_age_bands {
    int from[CHEX_GROUPS_MAX - 1], count;
};
#define CHEX_AGE_BANDS_DEFAULT "18,40,60,80"

/* Parses such a list. CHEX_E_USAGE: no number, not from 1 to CHEX_GROUP_MAX_AGE, not increasing. */
enum chex_status chex_age_bands_parse(const char *text, struct chex_age_bands *bands_out,
                                      struct chex_error *err);

/* Parses a list of attributes, such as "sex,age", to a mask of 1 << enum chex_attribute; "all" is
 * all of them, "none" is 0. CHEX_E_USAGE: an unknown word. */
enum chex_status chex_attributes_parse(const char *text, unsigned *mask_out,
                                       struct chex_error *err);

/* The group of each row. Groups without a row are left out, and the others are numbered in the
 * order of their values (sources: of first appearance). */
struct chex_groups {
    int count;
    char **name;     /* (count) "F", "18-39", "AP" */
    uint8_t *of_row; /* (rows); CHEX_GROUP_NONE: unknown */
    size_t *rows;    /* (count) */
    size_t unknown;  /* rows without a group */
};

/* Partitions the rows of a table. The caller calls chex_groups_release, after an error too.
 * CHEX_E_DATA: more than CHEX_GROUPS_MAX sources. */
enum chex_status chex_groups_create(const struct chex_predictions *table,
                                    enum chex_attribute attribute,
                                    const struct chex_age_bands *bands, struct chex_groups *out,
                                    struct chex_error *err);
void chex_groups_release(struct chex_groups *g);

#endif
