/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of paired comparisons, for people and for programs: the table on stdout, compare.json,
 * compare.csv and compare.svg. The first file is the reference; each other file is compared with
 * it. Of two recipes the files are their trainings, and there is one comparison.
 */
#ifndef CHEX_REPORT_PAIRED_REPORT_H
#define CHEX_REPORT_PAIRED_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "base/hash.h"
#include "report/paired_training.h"
#include "stats/paired.h"

struct chex_paired_file {
    char *path; /* owned by the caller */
    size_t rows;
    char digest[CHEX_HASH128_HEX_BYTES]; /* XXH3 of the bytes of the file */
    struct chex_paired_training training;
};

struct chex_paired_report {
    const struct chex_paired_config *config;
    size_t count;                        /* comparisons; at least 1 */
    const struct chex_paired_file *file; /* (count + 1), the reference first; (all runs) */
    struct chex_paired *const *compared; /* (count): file[0] with file[1 + i] */
    size_t runs[2];                      /* trainings of each recipe; 0: no recipes */
    bool paired_seeds;                   /* of recipes */
};

/* Side 0 or 1 of a comparison; of a recipe its first training. */
static inline const struct chex_paired_file *chex_paired_side(const struct chex_paired_report *r,
                                                              size_t i, int side) {
    return &r->file[!side ? 0 : r->runs[0] ? r->runs[0] : 1 + i];
}

/* The files that chex_paired_report_write creates, NULL-terminated. The first one is written last
 * of report/publish.h. */
extern const char *const chex_paired_report_files[];

/* Prints a table for each comparison, and notes that explain the columns. */
void chex_paired_report_print(const struct chex_paired_report *r, FILE *to);

/* The object of compare.json, for the caller to release. Undefined numbers are null. NULL: out of
 * memory. */
json_t *chex_paired_report_json(const struct chex_paired_report *r);

/* Writes all files to an existing folder, each atomically. In compare.csv an undefined number is
 * "nan". */
enum chex_status chex_paired_report_write(const struct chex_paired_report *r, const char *dir,
                                          struct chex_error *err);

/* ---- paired_svg.c ---- */

/* Writes the forest plot: a row for each finding and one for the mean, with the difference and its
 * interval. It has a light and a dark scheme. */
enum chex_status chex_paired_svg(FILE *to, const struct chex_paired_report *r,
                                 struct chex_error *err);

#endif
