/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders the rows of each split and distributes them over its shards.
 *
 * 1. Each row gets a random key from (seed, image id, split). The rows are sorted by key. A row's
 *    key does not depend on other rows, so adding or removing a row does not reorder the others.
 * 2. The sorted rows are cut into runs of equal length (+-1), one for each shard.
 * 3. Excluded rows (bad images) are removed from their runs. The largest shard then gives its last
 *    row to the smallest until their sizes differ by at most 1. So one bad image changes at most
 *    two shards, and a later build round builds only these again.
 */
#include "ingest/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/rng.h"

struct keyed {
    uint64_t key;
    const char *id;
    size_t row;
};

static int by_key(const void *a, const void *b) {
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return strcmp(x->id, y->id);
}

void chex_layout_free(struct chex_layout *layout) {
    if (!layout)
        return;
    for (size_t i = 0; layout->shards && i < layout->shard_count; i++)
        free(layout->shards[i].rows);
    free(layout->shards);
    free(layout);
}

char *chex_layout_shard_name(const struct chex_layout_shard *s) {
    return chex_fs_format("%s-%05zu-of-%05zu", chex_split_names[s->split], s->index, s->count);
}

/* Step 1: all rows of the split in the order of their keys. Returns their number. */
static size_t order(const struct chex_label_table *table, const enum chex_split *split,
                    enum chex_split which, uint64_t seed, struct keyed *out) {
    size_t n = 0;
    for (size_t r = 0; r < table->count; r++) {
        if (split[r] != which)
            continue;
        const char *id = table->rows[r].image_id;
        struct chex_rng4 v =
            chex_rng(seed, CHEX_RNG_SHARD, chex_hash64(id, strlen(id)), (uint32_t)which);
        out[n++] = (struct keyed){(uint64_t)v.v[0] << 32 | v.v[1], id, r};
    }
    qsort(out, n, sizeof *out, by_key);
    return n;
}

/* Step 3. No shard grows beyond the longest run, which is what deal() allocates. */
static void balance(struct chex_layout_shard *shards, size_t count) {
    for (;;) {
        size_t low = 0, high = 0;
        for (size_t i = 1; i < count; i++) {
            if (shards[i].row_count < shards[low].row_count)
                low = i;
            if (shards[i].row_count > shards[high].row_count)
                high = i;
        }
        if (shards[high].row_count - shards[low].row_count <= 1)
            return;
        shards[low].rows[shards[low].row_count++] = shards[high].rows[--shards[high].row_count];
    }
}

/* Steps 2 and 3. Excluded rows count when the runs are cut: without that, one excluded row would
 * shift all rows after it into other shards. */
static enum chex_status deal(const struct keyed *keyed, size_t n, const bool *out,
                             enum chex_split which, size_t count, struct chex_layout *layout,
                             struct chex_error *err) {
    struct chex_layout_shard *shards = layout->shards + layout->shard_count;
    size_t base = n / count, rest = n % count, at = 0;
    layout->shard_count += count;
    for (size_t i = 0; i < count; i++) {
        struct chex_layout_shard *s = &shards[i];
        *s = (struct chex_layout_shard){.split = which, .index = i, .count = count};
        s->rows = chex_alloc_zeroed(base + 1, sizeof *s->rows);
        if (!s->rows)
            return chex_error_memory(err, "the layout of %zu rows", n);
        for (size_t k = base + (i < rest); k > 0; k--, at++)
            if (!out || !out[keyed[at].row])
                s->rows[s->row_count++] = keyed[at].row;
    }
    balance(shards, count);
    return CHEX_OK;
}

enum chex_status chex_layout_create(const struct chex_label_table *table,
                                    const enum chex_split *split, const bool *out, size_t shards,
                                    uint64_t seed, struct chex_layout **layout_out,
                                    struct chex_error *err) {
    CHEX_AUTO(chex_layout_free_at) struct chex_layout *layout = calloc(1, sizeof *layout);
    CHEX_AUTO_FREE struct keyed *keyed = chex_alloc_zeroed(table->count, sizeof *keyed);
    if (layout)
        layout->shards = chex_alloc_zeroed(shards * CHEX_SPLIT_COUNT, sizeof *layout->shards);
    if (!layout || !keyed || !layout->shards)
        return chex_error_memory(err, "the layout of %zu rows", table->count);
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        size_t n = order(table, split, (enum chex_split)s, seed, keyed), good = 0;
        for (size_t i = 0; i < n; i++)
            good += !out || !out[keyed[i].row];
        layout->rows[s] = good;
        if (good)
            CHEX_TRY(deal(keyed, n, out, (enum chex_split)s, good < shards ? good : shards, layout,
                          err));
    }
    *layout_out = CHEX_TAKE(layout);
    return CHEX_OK;
}
