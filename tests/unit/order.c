/* SPDX-License-Identifier: Apache-2.0
 *
 * The order as a pure function: every epoch a permutation, equal steps, independent of how logical
 * ranks are spread over processes. order_uniform.c has how well it mixes.
 */
#include "input/order.h"

#include "tap.h"

static struct chex_error err;
static size_t *scratch, *rows;
enum { MOST = 20000 };

static struct chex_order_config config(size_t n, int ranks, size_t batch, enum chex_order_kind kind,
                                       size_t block) {
    return (struct chex_order_config){.rows = n,
                                      .logical_ranks = ranks,
                                      .batch = batch,
                                      .kind = kind,
                                      .shuffle_block = block,
                                      .seed = 11};
}

/* Each row at most once over all ranks, and within the range of its rank. */
static bool is_permutation(const struct chex_order_config *c, uint64_t epoch, size_t *used_out) {
    unsigned char *seen = calloc(c->rows, 1);
    BAIL_UNLESS(seen, "memory");
    bool good = true;
    size_t used = 0, n = chex_order_steps(c) * c->batch;
    for (int v = 0; v < c->logical_ranks; v++) {
        size_t first, end;
        chex_order_range(c, v, v + 1, &first, &end);
        chex_order_epoch(c, v, epoch, rows, scratch);
        for (size_t i = 0; i < n; i++) {
            good = good && rows[i] >= first && rows[i] < end && rows[i] < c->rows && !seen[rows[i]];
            if (rows[i] < c->rows)
                used += !seen[rows[i]]++;
        }
    }
    free(seen);
    *used_out = used;
    return good;
}

static void test_permutations(void) {
    static const size_t sizes[] = {1, 2, 7, 64, 1000, 1003};
    static const size_t blocks[] = {0, 1, 2, 5, 64, 5000};
    bool good = true, full = true;
    int count = 0;
    for (size_t i = 0; i < 6; i++)
        for (int ranks = 1; ranks <= 5; ranks++)
            for (size_t batch = 1; batch <= 16; batch += 5)
                for (size_t b = 0; b < 6; b++)
                    for (int kind = 0; kind < 2; kind++) {
                        struct chex_order_config c =
                            config(sizes[i], ranks, batch, (enum chex_order_kind)kind, blocks[b]);
                        size_t used;
                        if (chex_order_check(&c, NULL) != CHEX_OK)
                            continue;
                        for (uint64_t epoch = 0; epoch < 3; epoch++, count++) {
                            good = is_permutation(&c, epoch, &used) && good;
                            full = full && used == chex_order_steps(&c) * batch * (size_t)ranks;
                        }
                    }
    OK(good && count > 500, "each row at most once and in its range, %d epochs", count);
    OK(full, "all rows but the tail");
}

static void test_tail(void) {
    struct chex_order_config c = config(103, 1, 10, CHEX_ORDER_LOCAL, 0);
    unsigned left_out[103] = {0}, epochs = 200;
    for (uint64_t e = 0; e < epochs; e++) {
        bool seen[103] = {false};
        chex_order_epoch(&c, 0, e, rows, scratch);
        for (size_t i = 0; i < 100; i++)
            seen[rows[i]] = true;
        for (size_t i = 0; i < 103; i++)
            left_out[i] += !seen[i];
    }
    unsigned most = 0, never = 0;
    for (size_t i = 0; i < 103; i++) {
        most = left_out[i] > most ? left_out[i] : most;
        never += left_out[i] == 0;
    }
    /* 200 * 3 / 103 = 5.8 times each on average; 25 would be eight deviations off. */
    OK(most < 25 && never < 10, "the tail is another one each epoch (most %u, never %u)", most,
       never);
}

/* What logical rank 2 of 4 sees is a matter of (seed, epoch, 2) and not of how often or in which
 * company it is asked for. */
static void test_pure(void) {
    struct chex_order_config c = config(4000, 4, 16, CHEX_ORDER_LOCAL, 0);
    size_t n = chex_order_steps(&c) * c.batch, bytes = n * sizeof *rows;
    size_t *kept = malloc(bytes);
    BAIL_UNLESS(kept, "memory");
    for (int kind = 0; kind < 2; kind++) {
        c.kind = (enum chex_order_kind)kind;
        c.seed = 11;
        chex_order_epoch(&c, 2, 9, kept, scratch);
        for (int v = 0; v < 4; v++)
            chex_order_epoch(&c, v, 8, rows, scratch);
        OK(memcmp(kept, rows, bytes) != 0, "%s: another epoch is another order",
           chex_order_names[kind]);
        chex_order_epoch(&c, 2, 9, rows, scratch);
        OK(memcmp(kept, rows, bytes) == 0, "%s: the same epoch again is the same",
           chex_order_names[kind]);
        c.seed = 12;
        chex_order_epoch(&c, 2, 9, rows, scratch);
        OK(memcmp(kept, rows, bytes) != 0, "%s: another seed is another order",
           chex_order_names[kind]);
    }
    free(kept);
}

static int by_row(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static size_t joined(size_t n) {
    size_t count = 0;
    for (size_t i = 1; i < n; i++)
        count += rows[i] == rows[i - 1] + 1;
    return count;
}

static void test_blocks(void) {
    struct chex_order_config c = config(10000, 2, 10, CHEX_ORDER_LOCAL, 25);
    size_t window = chex_order_window_steps(&c) * c.batch, runs = 0;
    OK(window == 1030, "windows are whole steps: %zu rows for 1024", window);
    OK(chex_order_width(&c) == window, "which is how wide the shuffle is");
    chex_order_epoch(&c, 1, 3, rows, scratch);
    OK(joined(5000) < 50, "rows that are neighbours on the disk are parted: %zu of 5000 are not",
       joined(5000));
    for (size_t at = 0; at < 5000; at += window) {
        size_t n = 5000 - at < window ? 5000 - at : window;
        qsort(rows + at, n, sizeof *rows, by_row);
        runs++;
    }
    /* Each window cuts two runs more, and each epoch one. */
    OK(joined(5000) >= 5000 - 200 - 2 * runs - 2, "but each window holds whole runs of 25: %zu",
       joined(5000));
    size_t first = rows[0];
    chex_order_epoch(&c, 1, 4, rows, scratch);
    qsort(rows, window, sizeof *rows, by_row);
    OK(rows[0] != first, "and other ones in another epoch");
    c = config(1000, 2, 10, CHEX_ORDER_LOCAL, 25);
    OK(chex_order_width(&c) == 500, "no wider than a logical rank's rows");
    c.shuffle_block = 0;
    OK(chex_order_width(&c) == 500, "width of the local order: 500 rows");
    c.kind = CHEX_ORDER_GLOBAL;
    OK(chex_order_width(&c) == 1000, "width of the global order: 1000 rows");
}

static void test_limits(void) {
    struct chex_order_config c = config(31, 4, 8, CHEX_ORDER_LOCAL, 0);
    OK_STATUS(chex_order_check(&c, &err), CHEX_E_USAGE, err,
              "31 rows over 4 logical ranks are 7 each, less than one batch of 8");
    c.rows = 32;
    OK_CALL(chex_order_check(&c, &err));
    OK(chex_order_steps(&c) == 1, "one step");
    c.logical_ranks = 0;
    OK_STATUS(chex_order_check(&c, &err), CHEX_E_USAGE, err, "--logical-ranks 0");
    c = config((size_t)1 << 33, 1, 1, CHEX_ORDER_LOCAL, 0);
    OK_STATUS(chex_order_check(&c, &err), CHEX_E_USAGE, err, "fewer than 2^32");
    size_t first, end;
    c = config(10, 3, 1, CHEX_ORDER_LOCAL, 0);
    chex_order_range(&c, 0, 3, &first, &end);
    OK(first == 0 && end == 10, "all ranks together own all rows");
    chex_order_range(&c, 1, 2, &first, &end);
    OK(first == 3 && end == 6, "rank 1 of 3 owns rows 3 to 5 of 10");
}

int main(void) {
    rows = malloc(MOST * sizeof *rows);
    scratch = malloc(MOST * sizeof *scratch);
    BAIL_UNLESS(rows && scratch, "memory");
    test_permutations();
    test_tail();
    test_pure();
    test_blocks();
    test_limits();
    free(rows);
    free(scratch);
    return tap_done();
}
