/* SPDX-License-Identifier: Apache-2.0
 *
 * AUROCs from publications, or from an earlier run, to compare with ours.
 *
 * File format (CSV):
 * - The first column is `class`. Each further column is one source.
 * - A row whose class begins with '@' describes the sources: @source (who, where), @split (which
 * images), @official (1: the NIH's official test list).
 * - An empty cell or nan means "not stated".
 * - An auroc.csv of chex-eval is accepted too: its columns `auroc` and `rows_digest` are read.
 * The bundled table is share/published-auroc.csv.
 */
#ifndef CHEX_REPORT_PUBLISHED_H
#define CHEX_REPORT_PUBLISHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct chex_published_source {
    char *name;           /* name of the column */
    char *source, *split; /* "": not stated */
    bool official;
    double *auroc; /* (classes) of the table; NaN: not stated */
};

struct chex_published {
    int classes, sources;
    char **class_names;                   /* (classes) */
    uint64_t *rows_digest;                /* (classes), as in chex_class_score; 0: not stated */
    struct chex_published_source *source; /* (sources) */
    int headline;                         /* index of the source that is compared with ours */
    char *file;                           /* NULL: the bundled table */
};

/* Reads a table. `which` is one of:
 * - "published": the bundled table; the headline is its first official column
 * - "published:NAME": the bundled table; the headline is column NAME
 * - "none": *p_out is NULL
 * - otherwise a file; the headline is column `auroc`, or the first column
 * CHEX_E_DATA: the file is invalid; the text has file, line and column.
 * CHEX_E_USAGE: NAME does not exist; the text lists all names. */
enum chex_status chex_published_read(const char *which, struct chex_published **p_out,
                                     struct chex_error *err);
void chex_published_destroy(struct chex_published *p); /* NULL allowed */

/* The value of source `s` for a class by name. NaN: not stated. */
double chex_published_auroc(const struct chex_published *p, int s, const char *class_name);

#endif
