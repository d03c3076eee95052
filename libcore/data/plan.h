/* SPDX-License-Identifier: Apache-2.0
 *
 * Which row of the label table goes where: order within a split, and shards.
 *
 * A pure function of the table, the splits, the rows that are out, the shard count and the seed, so
 * every rank makes the same plan by itself. See "Order of rows" in share/doc/shard-format.md.
 */
#ifndef CHEX_DATA_PLAN_H
#define CHEX_DATA_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/labels.h"
#include "data/shard.h"

struct chex_plan_shard {
    enum chex_split split;
    size_t index, count; /* shard `index` of `count` of the split */
    size_t *rows;        /* (row_count) numbers in the label table, in the shard's order */
    size_t row_count;
};

struct chex_plan {
    struct chex_plan_shard *shards; /* train, val, test, all; by index within a split */
    size_t shard_count;
    size_t rows[CHEX_SPLIT_COUNT]; /* rows of each split */
};

/* split (table->count): where each row belongs; rows with out[row] set are left out (out may be
 * NULL). A split of fewer rows than `shards` gets one shard a row; an empty one gets none. */
enum chex_status chex_plan_create(const struct chex_label_table *table,
                                  const enum chex_split *split, const bool *out, size_t shards,
                                  uint64_t seed, struct chex_plan **plan_out,
                                  struct chex_error *err);
void chex_plan_free(struct chex_plan *plan); /* NULL allowed */

/* "train-00000-of-00016" in fresh memory; NULL only when out of memory. */
char *chex_plan_shard_name(const struct chex_plan_shard *shard);

#endif
