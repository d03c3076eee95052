/* SPDX-License-Identifier: Apache-2.0
 *
 * run.html: the progress of a run in one file that any browser opens without a network. It has no
 * scripts, a light and a dark scheme, and fits phones. The drawing is that of report.html
 * (report/svg.h, report/html.h).
 */
#ifndef CHEX_REPORT_RUN_PAGE_H
#define CHEX_REPORT_RUN_PAGE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Losses of steps while no epoch is complete. If it is full, every second one goes, and from then
 * on every second one of those added is kept. */
struct chex_run_losses {
    size_t count;
    uint64_t added, every; /* every: 0 at the beginning */
    double step[256], loss[256];
};

struct chex_run_page {
    const char *dir, *model;
    int64_t epochs;     /* --epochs */
    json_t *options;    /* object: texts of the options by name; NULL: unknown */
    const json_t *rows; /* array: the lines of metrics.jsonl of kind epoch, in order */
    /* Shown as long as `rows` is empty; not empty itself. */
    const struct chex_run_losses *losses;
    uint64_t epoch, step, steps; /* epoch from 1; steps done in it, and steps of an epoch */
};

void chex_run_losses_add(struct chex_run_losses *l, uint64_t step, double loss);

/* Writes DIR/run.html by a temporary file and a rename. Rank 0 only. */
enum chex_status chex_run_page_write(const struct chex_run_page *page, struct chex_error *err);

#endif
