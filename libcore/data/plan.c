/* SPDX-License-Identifier: Apache-2.0 */
#include "data/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
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

void chex_plan_free(struct chex_plan *plan) {
    if (!plan)
        return;
    for (size_t i = 0; plan->shards && i < plan->shard_count; i++)
        free(plan->shards[i].rows);
    free(plan->shards);
    free(plan);
}

char *chex_plan_shard_name(const struct chex_plan_shard *s) {
    return chex_fs_format("%s-%05zu-of-%05zu", chex_split_names[s->split], s->index, s->count);
}

/* All rows of the split in the order of their keys. The key depends on the row's own id alone, so a
 * row that joins or leaves moves no other. */
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

/* Moves last rows from the fullest shard to the emptiest until they differ by one at most: no
 * shard grows beyond what the deal gave the largest. */
static void balance(struct chex_plan_shard *shards, size_t count) {
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

/* The runs are dealt with the rows that are out still in place: leaving one out then touches its
 * own shard and the one that gives a row, not all behind it. */
static enum chex_status deal(const struct keyed *keyed, size_t n, const bool *out,
                             enum chex_split which, size_t count, struct chex_plan *plan,
                             struct chex_error *err) {
    struct chex_plan_shard *shards = plan->shards + plan->shard_count;
    size_t base = n / count, rest = n % count, at = 0;
    plan->shard_count += count;
    for (size_t i = 0; i < count; i++) {
        struct chex_plan_shard *s = &shards[i];
        *s = (struct chex_plan_shard){.split = which, .index = i, .count = count};
        s->rows = chex_mem_zalloc(base + 1, sizeof *s->rows);
        if (!s->rows)
            return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the plan of %zu rows", n);
        for (size_t k = base + (i < rest); k > 0; k--, at++)
            if (!out || !out[keyed[at].row])
                s->rows[s->row_count++] = keyed[at].row;
    }
    balance(shards, count);
    return CHEX_OK;
}

enum chex_status chex_plan_create(const struct chex_label_table *table,
                                  const enum chex_split *split, const bool *out, size_t shards,
                                  uint64_t seed, struct chex_plan **plan_out,
                                  struct chex_error *err) {
    struct chex_plan *plan = calloc(1, sizeof *plan);
    struct keyed *keyed = chex_mem_zalloc(table->count, sizeof *keyed);
    if (plan)
        plan->shards = chex_mem_zalloc(shards * CHEX_SPLIT_COUNT, sizeof *plan->shards);
    enum chex_status st = CHEX_OK;
    if (!plan || !keyed || !plan->shards)
        st = chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the plan of %zu rows", table->count);
    for (int s = 0; s < CHEX_SPLIT_COUNT && st == CHEX_OK; s++) {
        size_t n = order(table, split, (enum chex_split)s, seed, keyed), good = 0;
        for (size_t i = 0; i < n; i++)
            good += !out || !out[keyed[i].row];
        plan->rows[s] = good;
        if (good)
            st = deal(keyed, n, out, (enum chex_split)s, good < shards ? good : shards, plan, err);
    }
    free(keyed);
    if (st != CHEX_OK) {
        chex_plan_free(plan);
        return st;
    }
    *plan_out = plan;
    return CHEX_OK;
}
