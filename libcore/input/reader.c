/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads rows for many threads at once. Two atomic bits per row synchronise them, without locks:
 * - whole: the row was read and its checksum is right. With `keep` it is in memory.
 * - taken (only with `keep`): a thread is reading the row into memory, or has done so.
 * The thread that sets `taken` reads the row into memory. A thread that finds a row taken but not
 * whole reads it into its own lane. So no thread waits for another; at worst a row is read more
 * than once.
 */
#include "input/reader.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/thread.h"

enum { READ_BYTES = 1 << 20 /* largest pread(); larger ones are not faster */ };

typedef atomic_uint_fast64_t bits;

struct chex_reader {
    struct chex_reader_config c;
    size_t row_bytes, run; /* run: largest number of rows of one read */
    bits *whole, *claimed; /* ((end - first) / 64 + 1) */
    uint8_t *memory;       /* (end - first, row_bytes), with `keep` */
    size_t memory_bytes;
    atomic_uint_fast64_t bytes;
    pthread_t sweep;
    bool sweeping;
    atomic_bool stop;
};

struct chex_reader_lane {
    uint8_t *pixels; /* (run, row_bytes) */
    uint64_t keys[]; /* (max_rows): upper 32 bits: row; lower 32 bits: index in the request */
};

static size_t row_of(uint64_t key) { return (size_t)(key >> 32); }
static size_t place_of(uint64_t key) { return (size_t)(uint32_t)key; }

static bool test(const bits *b, size_t i) {
    return atomic_load_explicit(&b[i / 64], memory_order_acquire) >> i % 64 & 1;
}

/* Sets the bit; true if it was set before. */
static bool test_and_set(bits *b, size_t i) {
    uint64_t one = (uint64_t)1 << i % 64;
    return atomic_fetch_or_explicit(&b[i / 64], one, memory_order_acq_rel) & one;
}

/* ---- disk order ---- */

static int by_key(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns at once if the keys are sorted, as in an evaluation. */
static void sort(uint64_t *keys, size_t n) {
    size_t sorted = 1;
    while (sorted < n && keys[sorted - 1] < keys[sorted])
        sorted++;
    if (sorted < n)
        qsort(keys, n, sizeof *keys, by_key);
}

static void sort_rows(struct chex_reader_lane *lane, const size_t *rows, size_t n) {
    for (size_t i = 0; i < n; i++)
        lane->keys[i] = (uint64_t)rows[i] << 32 | i;
    sort(lane->keys, n);
}

/* The number of leading keys[0..n) that are neighbours in one shard and fit into one read. */
static size_t neighbours(const struct chex_reader *r, const struct chex_shard *shard,
                         size_t row_in_shard, const uint64_t *keys, size_t n) {
    const size_t max = n < r->run ? n : r->run;
    size_t count = 1;
    while (count < max && row_of(keys[count]) == row_of(keys[0]) + count)
        count++;
    return chex_set_neighbours(r->c.set, shard, row_in_shard, row_of(keys[0]), count);
}

/* ---- reading ---- */

static enum chex_status read_rows(struct chex_reader *r, const struct chex_shard *shard,
                                  size_t row_in_shard, size_t n, bool verify, uint8_t *pixels,
                                  struct chex_error *err) {
    CHEX_TRY(chex_shard_read(shard, row_in_shard, n, verify, pixels, err));
    atomic_fetch_add_explicit(&r->bytes, n * r->row_bytes, memory_order_relaxed);
    return CHEX_OK;
}

/* Reads n rows from `row` on. Verifies the checksums unless all rows were verified before. */
static enum chex_status read_checked(struct chex_reader *r, const struct chex_shard *shard,
                                     size_t row_in_shard, size_t row, size_t n, uint8_t *pixels,
                                     struct chex_error *err) {
    bool all = true;
    for (size_t i = row - r->c.first; i < row - r->c.first + n; i++)
        all = all && test(r->whole, i);
    CHEX_TRY(read_rows(r, shard, row_in_shard, n, !all, pixels, err));
    for (size_t i = row - r->c.first; !all && i < row - r->c.first + n; i++)
        test_and_set(r->whole, i);
    return CHEX_OK;
}

/* Takes up to n rows from `row` on for this thread and returns their number. 0: another thread has
 * the first one. */
static size_t claim(struct chex_reader *r, size_t row, size_t n) {
    size_t count = 0;
    while (count < n && !test_and_set(r->claimed, row - r->c.first + count))
        count++;
    return count;
}

static enum chex_status read_into_memory(struct chex_reader *r, const struct chex_shard *shard,
                                         size_t row_in_shard, size_t row, size_t n,
                                         struct chex_error *err) {
    size_t at = row - r->c.first;
    CHEX_TRY(read_rows(r, shard, row_in_shard, n, true, r->memory + at * r->row_bytes, err));
    for (size_t i = at; i < at + n; i++)
        test_and_set(r->whole, i);
    return CHEX_OK;
}

/* Reads 1 to *n neighbouring rows. *n: number of rows; *pixels_out: their pixels. */
static enum chex_status get(struct chex_reader *r, struct chex_reader_lane *lane,
                            const struct chex_shard *shard, size_t row_in_shard, size_t row,
                            size_t *n, const uint8_t **pixels_out, struct chex_error *err) {
    if (!r->c.keep) {
        *pixels_out = lane->pixels;
        return read_checked(r, shard, row_in_shard, row, *n, lane->pixels, err);
    }
    size_t at = row - r->c.first, ready = 0;
    *pixels_out = r->memory + at * r->row_bytes;
    while (ready < *n && test(r->whole, at + ready))
        ready++;
    if (ready) {
        *n = ready;
        return CHEX_OK;
    }
    size_t ours = claim(r, row, *n);
    if (ours) {
        *n = ours;
        return read_into_memory(r, shard, row_in_shard, row, ours, err);
    }
    *n = 1;
    *pixels_out = lane->pixels;
    return read_rows(r, shard, row_in_shard, 1, true, lane->pixels, err);
}

enum chex_status chex_reader_each(struct chex_reader *r, struct chex_reader_lane *lane,
                                  const size_t *rows, size_t n, chex_reader_fn fn, void *arg,
                                  struct chex_error *err) {
    sort_rows(lane, rows, n);
    for (size_t i = 0, count; i < n; i += count) {
        size_t in_shard, row = row_of(lane->keys[i]);
        const struct chex_shard *shard = chex_set_locate(r->c.set, row, &in_shard);
        const uint8_t *pixels;
        count = neighbours(r, shard, in_shard, lane->keys + i, n - i);
        CHEX_TRY(get(r, lane, shard, in_shard, row, &count, &pixels, err));
        for (size_t k = 0; k < count; k++)
            fn(arg, place_of(lane->keys[i + k]), pixels + k * r->row_bytes);
    }
    return CHEX_OK;
}

enum chex_status chex_reader_load(struct chex_reader *r, struct chex_reader_lane *lane,
                                  const size_t *rows, size_t n, uint8_t *pixels, size_t *slots_out,
                                  struct chex_error *err) {
    sort_rows(lane, rows, n);
    for (size_t i = 0, count; i < n; i += count) {
        size_t in_shard, row = row_of(lane->keys[i]);
        const struct chex_shard *shard = chex_set_locate(r->c.set, row, &in_shard);
        count = neighbours(r, shard, in_shard, lane->keys + i, n - i);
        CHEX_TRY(read_checked(r, shard, in_shard, row, count, pixels + i * r->row_bytes, err));
        for (size_t k = i; k < i + count; k++)
            slots_out[place_of(lane->keys[k])] = k;
    }
    return CHEX_OK;
}

void chex_reader_prefetch(struct chex_reader *r, struct chex_reader_lane *lane, const size_t *rows,
                          size_t n) {
    size_t wanted = 0;
    for (size_t i = 0; i < n; i++)
        if (!r->c.keep || !test(r->whole, rows[i] - r->c.first))
            lane->keys[wanted++] = (uint64_t)rows[i] << 32;
    sort(lane->keys, wanted);
    for (size_t i = 0, count; i < wanted; i += count) {
        size_t in_shard;
        const struct chex_shard *shard =
            chex_set_locate(r->c.set, row_of(lane->keys[i]), &in_shard);
        count = neighbours(r, shard, in_shard, lane->keys + i, wanted - i);
        chex_shard_will_need(shard, in_shard, count);
    }
}

uint64_t chex_reader_bytes(const struct chex_reader *r) {
    return atomic_load_explicit(&r->bytes, memory_order_relaxed);
}

/* ---- the thread that fills the memory ---- */

/* Reads all rows into memory. A row that cannot be read stays taken but not whole: a caller that
 * needs it reads it again and returns the error. */
static void *sweep(void *arg) {
    struct chex_reader *r = arg;
    for (size_t row = r->c.first, n; row < r->c.end && !atomic_load(&r->stop); row += n) {
        size_t in_shard;
        const struct chex_shard *shard = chex_set_locate(r->c.set, row, &in_shard);
        const size_t left = r->c.end - row, max = left < r->run ? left : r->run;
        n = claim(r, row, chex_set_neighbours(r->c.set, shard, in_shard, row, max));
        if (n)
            read_into_memory(r, shard, in_shard, row, n, NULL);
        else
            n = 1;
    }
    return NULL;
}

uint64_t chex_reader_memory_bytes(const struct chex_reader_config *c) {
    const uint64_t px = (uint64_t)c->set->size;
    return c->keep ? (c->end - c->first) * px * px : 0;
}

static bool allocate(struct chex_reader *r) {
    size_t rows = r->c.end - r->c.first;
    r->whole = chex_alloc_zeroed(rows / 64 + 1, sizeof *r->whole);
    if (!r->whole || !r->c.keep)
        return r->whole;
    r->claimed = chex_alloc_zeroed(rows / 64 + 1, sizeof *r->claimed);
    r->memory_bytes = (size_t)chex_reader_memory_bytes(&r->c);
    r->memory = r->claimed ? chex_alloc_map(r->memory_bytes) : NULL;
    return r->memory;
}

enum chex_status chex_reader_create(const struct chex_reader_config *config,
                                    struct chex_reader **reader_out, struct chex_error *err) {
    CHEX_AUTO(chex_reader_destroy_at) struct chex_reader *r = calloc(1, sizeof *r);
    if (!r)
        return chex_error_memory(err, "input reader");
    r->c = *config;
    r->c.keep = config->keep && config->end > config->first;
    r->row_bytes = (size_t)config->set->size * (size_t)config->set->size;
    r->run = READ_BYTES / r->row_bytes ? READ_BYTES / r->row_bytes : 1;
    if (!allocate(r))
        return chex_error_memory(
            err, "%s: rows %zu to %zu of %zu bytes%s", config->set->dir, config->first, config->end,
            r->row_bytes, config->keep ? " in memory (--cache none reads them as needed)" : "");
    const int rc = r->c.keep ? chex_thread_start(&r->sweep, sweep, r) : 0;
    r->sweeping = r->c.keep && rc == 0;
    if (rc)
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start the input reader");
    *reader_out = CHEX_TAKE(r);
    return CHEX_OK;
}

void chex_reader_destroy(struct chex_reader *r) {
    if (!r)
        return;
    atomic_store(&r->stop, true);
    if (r->sweeping)
        pthread_join(r->sweep, NULL);
    chex_alloc_unmap(r->memory, r->memory_bytes);
    free((void *)r->whole);
    free((void *)r->claimed);
    free(r);
}

struct chex_reader_lane *chex_reader_lane_create(const struct chex_reader *r, size_t max_rows) {
    size_t keys =
        (sizeof(struct chex_reader_lane) + max_rows * sizeof(uint64_t) + CHEX_ALLOC_ALIGN - 1) /
        CHEX_ALLOC_ALIGN * CHEX_ALLOC_ALIGN;
    size_t rows = r->run < max_rows ? r->run : max_rows;
    struct chex_reader_lane *lane = chex_alloc_aligned(1, keys + rows * r->row_bytes);
    if (lane)
        lane->pixels = (uint8_t *)lane + keys;
    return lane;
}
