/* SPDX-License-Identifier: Apache-2.0
 *
 * run.html: the progress of a run in one file that any browser opens without a network. It has no
 * scripts, a light and a dark scheme, and fits phones. The drawing is that of report.html
 * (eval/svg.h, eval/html.h).
 */
#ifndef CHEX_TRAIN_RUN_PAGE_H
#define CHEX_TRAIN_RUN_PAGE_H

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"

struct chex_run_page {
    const char *dir, *model;
    int64_t epochs;     /* --epochs */
    json_t *options;    /* object: texts of the options by name; NULL: unknown */
    const json_t *rows; /* array: the lines of metrics.jsonl of kind epoch, in order; not empty.
                           Members that older versions did not write count as unknown. */
};

/* Writes DIR/run.html by a temporary file and a rename. Rank 0 only. */
enum chex_status chex_run_page_write(const struct chex_run_page *page, struct chex_error *err);

#endif
