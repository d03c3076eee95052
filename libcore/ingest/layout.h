/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout: which row of the label table is stored in which shard, and in which order.
 *
 * It is a pure function of the table, the splits, the excluded rows, the shard count and the seed.
 * So every rank computes the same layout without communication. See "Order of rows" in
 * doc/shard-format.md.
 */
#ifndef CHEX_INGEST_LAYOUT_H
#define CHEX_INGEST_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "label/labels.h"
#include "shard/shard.h"

struct chex_layout_shard {
    enum chex_split split;
    size_t index, count; /* shard `index` of `count` of the split */
    size_t *rows;        /* (row_count) row numbers of the label table, in the shard's order */
    size_t row_count;
};

struct chex_layout {
    struct chex_layout_shard *shards; /* splits in the order train, val, test, all; then by index */
    size_t shard_count;
    size_t rows[CHEX_SPLIT_COUNT]; /* rows of each split */
};

/* Computes the layout.
 * - split: (table->count) the split of each row
 * - out: (table->count) true for rows to exclude; NULL: none
 * - shards: number of shards per split. A split with fewer rows gets one shard per row; an empty
 *   split gets none. */
enum chex_status chex_layout_create(const struct chex_label_table *table,
                                    const enum chex_split *split, const bool *out, size_t shards,
                                    uint64_t seed, struct chex_layout **layout_out,
                                    struct chex_error *err);
void chex_layout_free(struct chex_layout *layout); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_layout, chex_layout_free)

/* "train-00000-of-00016" in new memory; NULL if out of memory. */
char *chex_layout_shard_name(const struct chex_layout_shard *shard);

#endif
