/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks scores and walks the ranking for the AUROC and the ROC curve.
 *
 * A radix sort orders (score, row) items by the bits of the score. Equal scores form a tie group.
 * One pass from the lowest score to the highest then counts, for each positive, the negatives below
 * it.
 */
#include "stats/auroc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* One row to sort. Keys compare as unsigned integers in the order of the scores. `tag` carries the
 * row number and, in its lowest bit, the label. */
struct item {
    uint64_t key;
    uint32_t tag; /* row << 1 | positive */
};

/* Maps a double to an unsigned key of the same order: the top bit is set in positive values, and
 * negative values are complemented. -0 is mapped to 0 first, because the two compare equal. */
static uint64_t key_of(double score) {
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits;
    memcpy(&bits, &score, sizeof bits);
    if (bits == sign)
        bits = 0;
    return bits & sign ? ~bits : bits | sign;
}

static double score_of(uint64_t key) {
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits = key & sign ? key & ~sign : ~key;
    double score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

/* Stable radix sort, least significant digit first: 5 digits of 11 bits and one of 9. The result is
 * in `a`; `b` is scratch. A digit that is the same in all keys is skipped. The scores of a network
 * are fp32, so 2 of their digits are skipped. */
static void sort_items(struct item *a, struct item *b, size_t n) {
    enum { BITS = 11, RADIX = 1 << BITS, DIGITS = 6 };
    size_t at[DIGITS][RADIX];
    memset(at, 0, sizeof at);
    for (size_t i = 0; i < n; i++)
        for (int d = 0; d < DIGITS; d++)
            at[d][a[i].key >> (d * BITS) & (RADIX - 1)]++;
    struct item *const home = a;
    for (int d = 0; d < DIGITS; d++) {
        size_t sum = 0;
        if (n && at[d][a[0].key >> (d * BITS) & (RADIX - 1)] == n)
            continue;
        for (int v = 0; v < RADIX; v++) {
            size_t here = at[d][v];
            at[d][v] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; i++)
            b[at[d][a[i].key >> (d * BITS) & (RADIX - 1)]++] = a[i];
        struct item *t = a;
        a = b;
        b = t;
    }
    if (a != home)
        memcpy(home, a, n * sizeof *home);
}

static enum chex_status collect(const double *score, const int8_t *label, size_t rows,
                                size_t stride, struct item *items, size_t *count_out,
                                struct chex_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < rows; i++) {
        double s = score[i * stride];
        int y = label[i * stride];
        if (y < 0)
            continue;
        if (y > 1)
            return chex_error_set(err, CHEX_E_DATA, "row %zu: label %d, expected 0, 1 or below 0",
                                  i, y);
        if (isnan(s))
            return chex_error_set(err, CHEX_E_DATA, "row %zu: the score is not a number", i);
        items[n++] = (struct item){key_of(s), (uint32_t)i << 1 | (uint32_t)y};
    }
    *count_out = n;
    return CHEX_OK;
}

/* Writes the rows of one tie group to `row`, negatives first. */
static struct chex_tie fill_tie(const struct item *items, size_t from, size_t to, uint32_t *row) {
    size_t negatives = 0;
    for (size_t i = from; i < to; i++)
        negatives += !(items[i].tag & 1);
    size_t n = from, p = from + negatives;
    for (size_t i = from; i < to; i++)
        row[items[i].tag & 1 ? p++ : n++] = items[i].tag >> 1;
    return (struct chex_tie){(uint32_t)from, (uint32_t)negatives,
                             (uint32_t)(to - from - negatives)};
}

static enum chex_status build(const struct item *items, size_t n, struct chex_ranking *r,
                              struct chex_error *err) {
    size_t groups = 0;
    for (size_t i = 0; i < n; i++)
        groups += i == 0 || items[i].key != items[i - 1].key;
    r->row = chex_alloc_zeroed(n, sizeof *r->row);
    r->ties = chex_alloc_zeroed(groups, sizeof *r->ties);
    r->score = chex_alloc_zeroed(groups, sizeof *r->score);
    CHEX_ALLOCATED(r->row && r->ties && r->score, err, "%zu scores", n);
    r->count = n;
    r->tie_count = groups;
    for (size_t g = 0, from = 0, to; from < n; g++, from = to) {
        for (to = from + 1; to < n && items[to].key == items[from].key;)
            to++;
        r->ties[g] = fill_tie(items, from, to, r->row);
        r->score[g] = score_of(items[from].key);
        r->positives += r->ties[g].positives;
        r->negatives += r->ties[g].negatives;
    }
    return CHEX_OK;
}

enum chex_status chex_ranking_create(const double *score, const int8_t *label, size_t rows,
                                     size_t stride, struct chex_ranking **ranking_out,
                                     struct chex_error *err) {
    if (rows > CHEX_RANKING_MAX_ROWS)
        return chex_error_set(err, CHEX_E_DATA, "%zu rows to rank, the limit is %d", rows,
                              (int)CHEX_RANKING_MAX_ROWS);
    CHEX_AUTO_FREE struct item *items = malloc((rows ? rows : 1) * 2 * sizeof *items);
    size_t n = 0;
    CHEX_ALLOCATED(items, err, "%zu scores", rows);
    CHEX_TRY(collect(score, label, rows, stride, items, &n, err));
    sort_items(items, items + rows, n);
    CHEX_AUTO_RANKING struct chex_ranking *r = calloc(1, sizeof *r);
    CHEX_TRY(r ? build(items, n, r, err) : chex_error_memory(err, "%zu scores", rows));
    *ranking_out = r;
    r = NULL;
    return CHEX_OK;
}

void chex_ranking_destroy(struct chex_ranking *r) {
    if (!r)
        return;
    free(r->row);
    free(r->ties);
    free(r->score);
    free(r);
}

enum chex_status chex_ranking_filter(const struct chex_ranking *r, const uint8_t *group_of,
                                     const bool *keep, struct chex_ranking **ranking_out,
                                     struct chex_error *err) {
    struct chex_ranking *f = calloc(1, sizeof *f);
    if (f) {
        f->row = chex_alloc_zeroed(r->count, sizeof *f->row);
        f->ties = chex_alloc_zeroed(r->tie_count, sizeof *f->ties);
        f->score = chex_alloc_zeroed(r->tie_count, sizeof *f->score);
    }
    if (!f || !f->row || !f->ties || !f->score) {
        chex_ranking_destroy(f);
        return chex_error_memory(err, "a ranking of %zu images", r->count);
    }
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *from = &r->ties[g];
        struct chex_tie *t = &f->ties[f->tie_count];
        *t = (struct chex_tie){.start = (uint32_t)f->count};
        for (size_t i = 0; i < (size_t)from->negatives + from->positives; i++) {
            const uint32_t row = r->row[from->start + i];
            if (!keep[group_of[row]])
                continue;
            f->row[f->count++] = row;
            t->negatives += i < from->negatives;
            t->positives += i >= from->negatives;
        }
        f->negatives += t->negatives;
        f->positives += t->positives;
        if (t->negatives + t->positives)
            f->score[f->tie_count++] = r->score[g];
    }
    *ranking_out = f;
    return CHEX_OK;
}

double chex_ranking_auroc(const struct chex_ranking *r) {
    if (!r->positives || !r->negatives)
        return NAN;
    uint64_t below = 0, sum = 0; /* sum: 2 * (pairs in the right order) */
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        sum += t->positives * (2 * below + t->negatives);
        below += t->negatives;
    }
    return (double)sum / (2.0 * (double)r->positives * (double)r->negatives);
}

enum chex_status chex_roc_create(const struct chex_ranking *r, struct chex_roc **roc_out,
                                 struct chex_error *err) {
    struct chex_roc *roc = calloc(1, sizeof *roc);
    if (roc) {
        roc->fpr = chex_alloc_zeroed(r->tie_count + 1, sizeof *roc->fpr);
        roc->tpr = chex_alloc_zeroed(r->tie_count + 1, sizeof *roc->tpr);
    }
    if (!roc || !roc->fpr || !roc->tpr) {
        chex_roc_destroy(roc);
        return chex_error_memory(err, "a curve of %zu points", r->tie_count);
    }
    const double P = r->positives ? (double)r->positives : 1;
    const double N = r->negatives ? (double)r->negatives : 1;
    uint64_t n = 0, p = 0, step_n = 0, step_p = 0;
    roc->count = 1; /* the origin */
    for (size_t g = r->tie_count; g-- > 0;) {
        const struct chex_tie *t = &r->ties[g];
        /* The segment continues the previous one: move its end point instead of adding one. */
        bool straight = roc->count > 1 && step_n * t->positives == step_p * t->negatives;
        n += t->negatives;
        p += t->positives;
        step_n = straight ? step_n + t->negatives : t->negatives;
        step_p = straight ? step_p + t->positives : t->positives;
        size_t at = straight ? roc->count - 1 : roc->count++;
        roc->fpr[at] = (double)n / N;
        roc->tpr[at] = (double)p / P;
    }
    *roc_out = roc;
    return CHEX_OK;
}

void chex_roc_destroy(struct chex_roc *roc) {
    if (!roc)
        return;
    free(roc->fpr);
    free(roc->tpr);
    free(roc);
}
