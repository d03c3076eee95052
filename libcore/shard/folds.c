/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterative stratification of patients (folds.h). Needs are counted in K-ths, so that they are
 * whole numbers.
 */
#include "shard/folds.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

struct item {
    uint64_t key; /* hash of seed and patient */
    size_t row;
};

struct patient {
    size_t images;
    uint64_t hashes; /* the sum over the images */
    uint8_t fold;    /* 0: not yet */
    bool chosen;
};

struct division {
    size_t classes, patients;
    int folds;
    struct item *items; /* (rows) by key */
    uint32_t *of_row;   /* (rows) number of the patient, in the order of the keys */
    struct patient *of; /* (patients); allocated: (rows), as `positive` */
    uint8_t *positive;  /* (patients, classes) */
    size_t *left;       /* (classes) positive patients without a fold */
    int64_t *need;      /* (folds, classes + 1) of positive patients; the last of images */
};

static int by_key(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* Numbers the patients, and counts what they have. */
static void read_records(struct division *d, const uint8_t *records, size_t rows, uint64_t seed) {
    const size_t bytes = CHEX_FOLD_RECORD_HEAD + d->classes;
    for (size_t i = 0; i < rows; i++)
        d->items[i] =
            (struct item){chex_hash64_mix(seed, records + i * bytes + 1, sizeof(uint64_t)), i};
    qsort(d->items, rows, sizeof *d->items, by_key);
    for (size_t i = 0; i < rows; i++) {
        const uint8_t *record = records + d->items[i].row * bytes;
        d->patients += i == 0 || d->items[i].key != d->items[i - 1].key;
        const size_t p = d->patients - 1;
        uint64_t hash;
        memcpy(&hash, record + 1, sizeof hash);
        d->of_row[d->items[i].row] = (uint32_t)p;
        d->of[p].images++;
        d->of[p].hashes += hash;
        d->of[p].chosen = d->of[p].chosen || record[0];
        for (size_t c = 0; c < d->classes; c++)
            if (record[CHEX_FOLD_RECORD_HEAD + c] == 1)
                d->positive[p * d->classes + c] = 1;
    }
    for (size_t p = 0; p < d->patients; p++)
        for (size_t c = 0; c < d->classes; c++)
            d->left[c] += d->positive[p * d->classes + c];
    for (int f = 0; f < d->folds; f++) {
        int64_t *need = d->need + (size_t)f * (d->classes + 1);
        for (size_t c = 0; c < d->classes; c++)
            need[c] = (int64_t)d->left[c];
        need[d->classes] = (int64_t)rows;
    }
}

/* The fold that needs most of `what`: a finding, or d->classes for images. */
static int neediest(const struct division *d, size_t what) {
    int best = 0;
    for (int f = 1; f < d->folds; f++) {
        const int64_t *a = d->need + (size_t)f * (d->classes + 1);
        const int64_t *b = d->need + (size_t)best * (d->classes + 1);
        if (a[what] > b[what] || (a[what] == b[what] && a[d->classes] > b[d->classes]))
            best = f;
    }
    return best;
}

/* The finding with the fewest positive patients left; d->classes: none is left. */
static size_t rarest(const struct division *d) {
    size_t best = d->classes;
    for (size_t c = 0; c < d->classes; c++)
        if (d->left[c] && (best == d->classes || d->left[c] < d->left[best]))
            best = c;
    return best;
}

static void divide(struct division *d) {
    size_t what;
    do {
        what = rarest(d);
        for (size_t p = 0; p < d->patients; p++) {
            const uint8_t *positive = d->positive + p * d->classes;
            if (d->of[p].fold || (what < d->classes && !positive[what]))
                continue;
            const int fold = neediest(d, what);
            int64_t *need = d->need + (size_t)fold * (d->classes + 1);
            d->of[p].fold = (uint8_t)(fold + 1);
            need[d->classes] -= (int64_t)d->of[p].images * d->folds;
            for (size_t c = 0; c < d->classes; c++) {
                need[c] -= positive[c] * d->folds;
                d->left[c] -= positive[c];
            }
        }
    } while (what < d->classes);
}

enum chex_status chex_folds_assign(const uint8_t *records, size_t rows, size_t classes,
                                   struct chex_fold fold, uint64_t seed, uint8_t *fold_out,
                                   struct chex_fold_facts *facts_out, struct chex_error *err) {
    CHEX_AUTO_FREE struct item *items = chex_alloc_zeroed(rows, sizeof *items);
    CHEX_AUTO_FREE uint32_t *of_row = chex_alloc_zeroed(rows, sizeof *of_row);
    CHEX_AUTO_FREE struct patient *of = chex_alloc_zeroed(rows, sizeof *of);
    CHEX_AUTO_FREE uint8_t *positive = chex_alloc_zeroed(rows, classes);
    CHEX_AUTO_FREE size_t *left = chex_alloc_zeroed(classes, sizeof *left);
    CHEX_AUTO_FREE int64_t *need =
        chex_alloc_zeroed((size_t)fold.folds, (classes + 1) * sizeof *need);
    if (!items || !of_row || !of || !positive || !left || !need)
        return chex_error_memory(err, "the folds of %zu images", rows);
    struct division d = {classes, 0, fold.folds, items, of_row, of, positive, left, need};
    read_records(&d, records, rows, seed);
    if (d.patients < (size_t)fold.folds)
        return chex_error_data(err, "--folds %d: the set has %zu patients", fold.folds, d.patients);
    divide(&d);
    *facts_out = (struct chex_fold_facts){0};
    for (size_t p = 0; p < d.patients; p++) {
        const bool held = of[p].fold == fold.number;
        facts_out->digest += held ? of[p].hashes : 0;
        facts_out->patients += held && of[p].chosen;
        facts_out->in_training += !held && of[p].chosen;
    }
    for (size_t i = 0; i < rows; i++)
        fold_out[i] = of[of_row[i]].fold;
    return CHEX_OK;
}
