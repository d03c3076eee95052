/* SPDX-License-Identifier: Apache-2.0
 *
 * The sample order: which row is at which position of which epoch. It is a pure function of (seed,
 * epoch, position), so every rank computes it without communication and a run can resume anywhere.
 *
 * V logical ranks share `rows` rows:
 * - local: logical rank v owns rows [v * rows / V, (v + 1) * rows / V) and permutes them each
 *   epoch.
 * - global: each epoch has one permutation of all rows, cut into equal parts, one per logical rank.
 *   Every logical rank has the same number of steps, floor(floor(rows / V) / batch). The rows left
 *   over differ in each epoch.
 *
 * shuffle_block N is for disks with slow seeks. It permutes runs of N rows instead of rows. Then
 * rows are shuffled in windows of at least 16 runs and 1,024 rows (less if the epoch is shorter).
 * Reading a whole window touches only whole runs.
 */
#ifndef CHEX_INPUT_ORDER_H
#define CHEX_INPUT_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum chex_order_kind { CHEX_ORDER_LOCAL, CHEX_ORDER_GLOBAL };
extern const char *const chex_order_names[];

struct chex_order_config {
    size_t rows;
    int logical_ranks;
    size_t batch;
    enum chex_order_kind kind;
    size_t shuffle_block; /* rows of a run; the first run of an epoch has a random length.
                             0 or 1: no runs and no windows */
    uint64_t seed;
};

/* CHEX_E_USAGE: a logical rank would have less than one batch, or a value is out of range. */
enum chex_status chex_order_check(const struct chex_order_config *c, struct chex_error *err);

size_t chex_order_steps(const struct chex_order_config *c); /* per epoch and logical rank */

/* The range of rows, [*first_out, *end_out), that logical ranks [from, to) can get in any epoch. */
void chex_order_range(const struct chex_order_config *c, int from, int to, size_t *first_out,
                      size_t *end_out);

/* Rows of the whole epoch for logical rank v, in order. rows_out: (steps * batch); scratch: (rows).
 */
void chex_order_epoch(const struct chex_order_config *c, int v, uint64_t epoch, size_t *rows_out,
                      size_t *scratch);

/* Steps of a window; 0 without shuffle_block. The last window of an epoch may be short. */
size_t chex_order_window_steps(const struct chex_order_config *c);

/* Width of the shuffle in rows: the number of positions that a row can take. With shuffle_block it
 * is the window, whose runs come from all rows. */
size_t chex_order_width(const struct chex_order_config *c);

/* Shuffle buffer of the old pipeline: index, below `resident`, of the buffered record that leaves
 * as number k of logical rank v's epoch. */
size_t chex_order_buffer_pick(uint64_t seed, uint64_t epoch, int v, size_t k, size_t resident);

#endif
