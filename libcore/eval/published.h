/* SPDX-License-Identifier: Apache-2.0
 *
 * AUROCs that others have published, or that an earlier run wrote, to set beside ours.
 *
 * The file is CSV: the first column `class`, each further column one source. Rows whose class
 * begins with '@' say something about the source: @source (who, where), @split (of which images),
 * @official (1 where those are the NIH's official test list). An empty cell is "not stated", and so
 * is nan. The bundled table is share/published-auroc.csv. An auroc.csv of chex-eval is such a file
 * too: of it the column `auroc` is taken.
 */
#ifndef CHEX_EVAL_PUBLISHED_H
#define CHEX_EVAL_PUBLISHED_H

#include <stdbool.h>

#include "base/error.h"

struct chex_published_source {
    char *name;           /* the column's */
    char *source, *split; /* "" where the file does not say */
    bool official;
    double *auroc; /* (classes) of the table; NaN where not stated */
};

struct chex_published {
    int classes, sources;
    char **class_names;                   /* (classes) */
    struct chex_published_source *source; /* (sources) */
    int headline;                         /* the source that is set beside ours */
};

/* `which`: "published" for the bundled table (headline: the first official column),
 * "published:NAME" for another column of it, else a file (headline: `auroc`, or its first column).
 * CHEX_E_DATA with file, line and column; CHEX_E_USAGE for a NAME that is none, with all names. */
enum chex_status chex_published_read(const char *which, struct chex_published **p_out,
                                     struct chex_error *err);
void chex_published_destroy(struct chex_published *p); /* NULL allowed */

/* The value of source `s` for a class by name; NaN where there is none. */
double chex_published_auroc(const struct chex_published *p, int s, const char *class_name);

#endif
