/* SPDX-License-Identifier: Apache-2.0
 *
 * Which row stands at which place of which epoch: a pure function of (seed, epoch, position).
 *
 * `rows` rows are shared by V logical ranks. local: logical rank v owns rows
 * [v * rows / V, (v + 1) * rows / V) and permutes them anew each epoch. global: one permutation of
 * all rows is dealt out each epoch in equal runs. Every logical rank has the same number of steps,
 * floor(floor(rows / V) / batch); the tail differs each epoch.
 *
 * With shuffle_block N, for disks with slow seeks, runs of N rows are permuted instead of rows, and
 * then the rows of each window of so many steps that they hold 16 runs and 1,024 rows. Who reads a
 * window at once reads whole runs.
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
    size_t shuffle_block; /* runs of this many rows share a window; where they begin
                             differs each epoch; 0 or 1: none */
    uint64_t seed;
};

/* CHEX_E_USAGE where a logical rank would have no full batch, naming rows, ranks and batch. */
enum chex_status chex_order_check(const struct chex_order_config *c, struct chex_error *err);

size_t chex_order_steps(const struct chex_order_config *c); /* per epoch, of every logical rank */

/* The first and last + 1 row that logical ranks [from, to) can ever be given. */
void chex_order_range(const struct chex_order_config *c, int from, int to, size_t *first_out,
                      size_t *end_out);

/* Rows of the whole epoch for logical rank v, in order: rows_out has steps * batch entries;
 * scratch has `rows` entries. */
void chex_order_epoch(const struct chex_order_config *c, int v, uint64_t epoch, size_t *rows_out,
                      size_t *scratch);

/* Steps of a window; 0 without shuffle_block. The last window of an epoch may be short. */
size_t chex_order_window_steps(const struct chex_order_config *c);

/* How wide the shuffle is, in rows: a row may stand anywhere among so many. With shuffle_block that
 * is the window; its runs come from all rows. */
size_t chex_order_width(const struct chex_order_config *c);

/* A shuffle buffer as the old pipeline has it: which of the `held` records goes out as number k of
 * logical rank v's epoch. */
size_t chex_order_buffer_pick(uint64_t seed, uint64_t epoch, int v, size_t k, size_t held);

#endif
