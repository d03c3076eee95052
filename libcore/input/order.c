/* SPDX-License-Identifier: Apache-2.0
 *
 * Fisher-Yates shuffles with counter-based random numbers (Philox). The stream is keyed by (seed,
 * epoch, stream number): logical rank + 1, or 0 for the permutation of the global order. An epoch
 * does not depend on earlier epochs, so a run can start at any epoch.
 */
#include "input/order.h"

#include <stdbool.h>

#include "base/rng.h"

const char *const chex_order_names[] = {"local", "global", NULL};

enum {
    WORDS = 4,        /* random numbers of one Philox block */
    MIN_RUNS = 16,    /* runs of a window */
    MIN_WINDOW = 1024 /* rows of a window: twice the shuffle buffer of the old pipeline */
};

/* Flags of the stream number: other purposes have other streams. */
enum { IN_WINDOWS = 1 << 30, IN_BUFFER = 1 << 29 };

static uint64_t stream_item(uint64_t epoch, uint32_t run) { return epoch << 32 | run; }

static size_t owned_from(const struct chex_order_config *c, int v) {
    return (size_t)v * c->rows / (size_t)c->logical_ranks;
}

static size_t block_rows(const struct chex_order_config *c) {
    return c->shuffle_block > 1 ? c->shuffle_block : 1;
}

enum chex_status chex_order_check(const struct chex_order_config *c, struct chex_error *err) {
    if (c->rows >= UINT32_MAX)
        return chex_error_set(err, CHEX_E_USAGE, "%zu rows: an order has fewer than 2^32", c->rows);
    if (c->logical_ranks < 1 || c->batch < 1)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--logical-ranks %d with --batch-size %zu: expected 1 or more of both",
            c->logical_ranks, c->batch);
    if (chex_order_steps(c) == 0)
        return chex_error_set(err, CHEX_E_USAGE,
                              "%zu rows over %d logical ranks are %zu each, less than one batch of "
                              "%zu: lower --logical-ranks or --batch-size",
                              c->rows, c->logical_ranks, c->rows / (size_t)c->logical_ranks,
                              c->batch);
    return CHEX_OK;
}

size_t chex_order_steps(const struct chex_order_config *c) {
    return c->rows / (size_t)c->logical_ranks / c->batch;
}

void chex_order_range(const struct chex_order_config *c, int from, int to, size_t *first_out,
                      size_t *end_out) {
    bool local = c->kind == CHEX_ORDER_LOCAL;
    *first_out = local ? owned_from(c, from) : 0;
    *end_out = local ? owned_from(c, to) : c->rows;
}

size_t chex_order_window_steps(const struct chex_order_config *c) {
    size_t rows = MIN_RUNS * block_rows(c), steps = chex_order_steps(c);
    if (c->shuffle_block <= 1)
        return 0;
    rows = rows > MIN_WINDOW ? rows : MIN_WINDOW;
    size_t window = (rows + c->batch - 1) / c->batch;
    return window < steps ? window : steps;
}

size_t chex_order_width(const struct chex_order_config *c) {
    if (c->shuffle_block > 1)
        return chex_order_window_steps(c) * c->batch;
    return c->kind == CHEX_ORDER_LOCAL ? c->rows / (size_t)c->logical_ranks : c->rows;
}

size_t chex_order_buffer_pick(uint64_t seed, uint64_t epoch, int v, size_t k, size_t resident) {
    uint64_t item = stream_item(epoch, ((uint32_t)v + 1) | IN_BUFFER);
    return chex_rng_below(chex_rng(seed, CHEX_RNG_ORDER, item, (uint32_t)k).v[0],
                          (uint32_t)resident);
}

/* Fisher-Yates of n values. draw: the first block of random numbers to use. */
static void permute(uint64_t seed, uint64_t item, size_t draw, size_t *values, size_t n) {
    struct chex_rng4 r = {{0}};
    for (size_t k = 0; k + 1 < n; k++) {
        if (k % WORDS == 0)
            r = chex_rng(seed, CHEX_RNG_ORDER, item, (uint32_t)(draw + k / WORDS));
        size_t last = n - 1 - k, other = chex_rng_below(r.v[k % WORDS], (uint32_t)(last + 1));
        size_t kept = values[last];
        values[last] = values[other];
        values[other] = kept;
    }
}

/* The length of the first run, random in [1, block]. So the boundaries of the runs differ in each
 * epoch, and rows that share a run in one epoch are separated in another. */
static size_t first_block(const struct chex_order_config *c, uint64_t item, size_t n) {
    size_t block = block_rows(c);
    if (block == 1)
        return 1;
    uint32_t word = chex_rng(c->seed, CHEX_RNG_ORDER, item, UINT32_MAX).v[0];
    size_t longest = block < n ? block : n;
    return 1 + chex_rng_below(word, (uint32_t)longest);
}

/* Shuffles the rows within each window. */
static void mix_windows(const struct chex_order_config *c, int v, uint64_t epoch, size_t *rows,
                        size_t n) {
    size_t window = chex_order_window_steps(c) * c->batch;
    uint64_t item = stream_item(epoch, ((uint32_t)v + 1) | IN_WINDOWS);
    for (size_t at = 0, k = 0; window && at < n; at += window, k++)
        permute(c->seed, item, k * (window / WORDS + 1), rows + at,
                n - at < window ? n - at : window);
}

/* Permutes the runs (of one row each without shuffle_block) and concatenates their rows. The
 * logical rank takes the positions [skip, skip + want) of this sequence: skip is 0 in the local
 * order, and the start of the rank's part in the global order. Then it shuffles within windows. */
void chex_order_epoch(const struct chex_order_config *c, int v, uint64_t epoch, size_t *rows_out,
                      size_t *scratch) {
    bool local = c->kind == CHEX_ORDER_LOCAL;
    size_t base = local ? owned_from(c, v) : 0;
    size_t n = local ? owned_from(c, v + 1) - base : c->rows;
    size_t want = chex_order_steps(c) * c->batch;
    size_t skip = local ? 0 : (size_t)v * (c->rows / (size_t)c->logical_ranks);
    uint64_t item = stream_item(epoch, local ? (uint32_t)v + 1 : 0);
    size_t block = block_rows(c), first = first_block(c, item, n);
    size_t blocks = 1 + (n - first) / block + ((n - first) % block != 0);
    for (size_t i = 0; i < blocks; i++)
        scratch[i] = i;
    permute(c->seed, item, 0, scratch, blocks);
    size_t at = 0; /* position in the whole sequence */
    for (size_t i = 0; i < blocks && at < skip + want; i++) {
        size_t from = scratch[i] ? first + (scratch[i] - 1) * block : 0;
        size_t to = scratch[i] ? from + block : first;
        for (size_t row = from; row < to && row < n && at < skip + want; row++, at++)
            if (at >= skip)
                rows_out[at - skip] = base + row;
    }
    mix_windows(c, v, epoch, rows_out, want);
}
