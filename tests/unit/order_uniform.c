/* SPDX-License-Identifier: Apache-2.0
 *
 * How well each order mixes, against a shuffle buffer of 500 records: rank correlation of the place
 * in an epoch with the row and with the place in the next epoch, and chi-square of rows by shard
 * against places by tenth of the epoch.
 */
#include "input/order.h"

#include "tap.h"

enum { ROWS = 20000, SHARDS = 16, TENTHS = 10, EPOCHS = 6, BUFFER = 500, SEED = 5 };

/* Fills place[row] for an epoch; rows that are left out keep SIZE_MAX. */
typedef void (*epoch_fn)(uint64_t epoch, size_t *place);

static size_t seq[ROWS], scratch[ROWS];

static void by_order(const struct chex_order_config *c, uint64_t epoch, size_t *place) {
    size_t n = chex_order_steps(c) * c->batch;
    for (size_t i = 0; i < ROWS; i++)
        place[i] = SIZE_MAX;
    /* All logical ranks go on at the same time: step s of all is before step s + 1 of any. */
    for (int v = 0; v < c->logical_ranks; v++) {
        chex_order_epoch(c, v, epoch, seq, scratch);
        for (size_t i = 0; i < n; i++)
            place[seq[i]] = i * (size_t)c->logical_ranks + (size_t)v;
    }
}

static struct chex_order_config order(enum chex_order_kind kind, int ranks, size_t block) {
    return (struct chex_order_config){.rows = ROWS,
                                      .logical_ranks = ranks,
                                      .batch = 16,
                                      .kind = kind,
                                      .shuffle_block = block,
                                      .seed = SEED};
}

static void global(uint64_t epoch, size_t *place) {
    struct chex_order_config c = order(CHEX_ORDER_GLOBAL, 4, 0);
    by_order(&c, epoch, place);
}
static void local(uint64_t epoch, size_t *place) {
    struct chex_order_config c = order(CHEX_ORDER_LOCAL, 4, 0);
    by_order(&c, epoch, place);
}
static void windows(uint64_t epoch, size_t *place) {
    struct chex_order_config c = order(CHEX_ORDER_LOCAL, 1, 16);
    by_order(&c, epoch, place);
}

/* The old pipeline's: records in the order of the disk through a buffer. */
static void buffer(uint64_t epoch, size_t *place) {
    size_t resident[BUFFER], n = 0, gone = 0;
    for (size_t row = 0; row < ROWS || n; row++) {
        if (row < ROWS)
            resident[n++] = row;
        if (n < BUFFER && row < ROWS)
            continue;
        size_t at = chex_order_buffer_pick(SEED, epoch, 0, gone, n);
        place[resident[at]] = gone++;
        resident[at] = resident[--n];
    }
}

/* Places are ranks already, so Spearman's coefficient is Pearson's; rows left out do not count. */
static double correlation(const size_t *a, const size_t *b) {
    double n = 0, sa = 0, sb = 0, saa = 0, sbb = 0, sab = 0;
    for (size_t i = 0; i < ROWS; i++) {
        if (a[i] == SIZE_MAX || b[i] == SIZE_MAX)
            continue;
        double x = (double)a[i] / ROWS, y = (double)b[i] / ROWS;
        n++, sa += x, sb += y, saa += x * x, sbb += y * y, sab += x * y;
    }
    return (sab - sa * sb / n) / sqrt((saa - sa * sa / n) * (sbb - sb * sb / n));
}

static double chi_square(const size_t *place) {
    double count[SHARDS][TENTHS] = {{0}}, in_shard[SHARDS] = {0}, in_tenth[TENTHS] = {0}, n = 0;
    for (size_t i = 0; i < ROWS; i++) {
        if (place[i] == SIZE_MAX)
            continue;
        size_t s = i * SHARDS / ROWS, t = place[i] * TENTHS / ROWS;
        count[s][t]++, in_shard[s]++, in_tenth[t]++, n++;
    }
    double sum = 0;
    for (int s = 0; s < SHARDS; s++)
        for (int t = 0; t < TENTHS; t++) {
            double expected = in_shard[s] * in_tenth[t] / n;
            sum += (count[s][t] - expected) * (count[s][t] - expected) / expected;
        }
    return sum;
}

struct mixing {
    double to_row, to_next, chi; /* the worst of the epochs */
};

static struct mixing measure(epoch_fn fn) {
    static size_t rows[ROWS], now[ROWS], next[ROWS];
    struct mixing m = {0};
    for (size_t i = 0; i < ROWS; i++)
        rows[i] = i;
    for (uint64_t e = 0; e < EPOCHS; e++) {
        fn(e, now);
        fn(e + 1, next);
        m.to_row = fmax(m.to_row, fabs(correlation(rows, now)));
        m.to_next = fmax(m.to_next, fabs(correlation(now, next)));
        m.chi = fmax(m.chi, chi_square(now));
    }
    return m;
}

/* Without structure, the coefficient of n independent things deviates by 1 / sqrt(n), and
 * chi-square with f degrees of freedom is f +- sqrt(2 f). Five deviations are allowed. Rows that
 * come in runs of k are n / k things, and add up k-fold in chi-square. */
static void uniform(const char *name, epoch_fn fn, double run) {
    const double f = (SHARDS - 1) * (TENTHS - 1);
    double coefficient = 5 / sqrt(ROWS / run), chi = run * (f + 5 * sqrt(2 * f));
    struct mixing m = measure(fn);
    OK(m.to_row < coefficient, "%s: correlation with the row %.4f, bound %.4f", name, m.to_row,
       coefficient);
    OK(m.to_next < coefficient, "%s: with the next epoch %.4f, bound %.4f", name, m.to_next,
       coefficient);
    OK(m.chi < chi, "%s: chi-square of shards and tenths %.0f, bound %.0f", name, m.chi, chi);
}

int main(void) {
    uniform("global", global, 1);
    uniform("local, 4 ranks", local, 1);
    uniform("runs of 16 in windows", windows, 16);
    /* A record waits 500 others long on average: its place is its row, give or take that. */
    struct mixing m = measure(buffer);
    OK(m.to_row > 0.99 && m.to_next > 0.99 && m.chi > 50 * (SHARDS - 1) * (TENTHS - 1),
       "a buffer of 500 mixes little: %.4f with the row, %.4f with the next epoch, chi-square %.0f",
       m.to_row, m.to_next, m.chi);
    return tap_done();
}
