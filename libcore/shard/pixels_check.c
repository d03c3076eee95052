/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads every row of several shards and compares it with its checksum, on a thread pool.
 *
 * An item of the parallel loop is a block of 64 rows of one shard. All blocks are numbered across
 * shards; a binary search finds the shard of a block. Each worker has one row buffer and asks the
 * kernel for the next block before it reads its own.
 */
#include "shard/pixels_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/pool.h"
#include "base/search.h"

enum { BLOCK_ROWS = 64 };

/* State of one check. The items of the parallel loop are blocks of rows. */
struct reading {
    struct chex_shard *const *shards; // (shard_count), none of them NULL
    size_t *first;                    // (shard_count + 1) number of the first block of each shard
    size_t shard_count;
    uint8_t *rows; // (threads, row_bytes)
    size_t row_bytes;
    struct chex_progress *progress;
    atomic_size_t done;
    pthread_mutex_t lock;            /* protects `faults` */
    struct chex_pixel_fault *faults; // (shard_count)
};

static void record_fault(struct reading *r, size_t shard, size_t row,
                         const struct chex_error *err) {
    pthread_mutex_lock(&r->lock);
    struct chex_pixel_fault *f = &r->faults[shard];
    if (f->rows++ == 0 || row < f->first_row) {
        f->first_row = row;
        f->first = *err;
    }
    pthread_mutex_unlock(&r->lock);
}

static enum chex_status read_block(void *arg, size_t item, int worker, struct chex_error *err) {
    struct reading *r = arg;
    const size_t s = chex_search_run(r->first, r->shard_count, item);
    const struct chex_shard *shard = r->shards[s];
    size_t from = (item - r->first[s]) * BLOCK_ROWS, rows = chex_shard_rows(shard);
    size_t to = from + BLOCK_ROWS < rows ? from + BLOCK_ROWS : rows;
    chex_shard_will_need(shard, to, rows - to < BLOCK_ROWS ? rows - to : BLOCK_ROWS);
    for (size_t i = from; i < to; i++) {
        enum chex_status st =
            chex_shard_read(shard, i, 1, true, r->rows + (size_t)worker * r->row_bytes, err);
        if (st == CHEX_E_DATA)
            record_fault(r, s, i, err);
        else if (st != CHEX_OK)
            return st;
    }
    chex_progress_set(r->progress, atomic_fetch_add(&r->done, to - from) + to - from, NULL);
    return CHEX_OK;
}

enum chex_status chex_pixels_check(struct chex_shard *const *shards, size_t count, int threads,
                                   struct chex_progress *progress, size_t done,
                                   struct chex_pixel_fault *faults_out, struct chex_error *err) {
    struct reading r = {
        .shards = shards, .shard_count = count, .progress = progress, .faults = faults_out};
    const size_t side = (size_t)chex_shard_size(shards[0]);
    r.row_bytes = side * side;
    CHEX_AUTO_FREE size_t *first = r.first = chex_alloc_zeroed(count + 1, sizeof *first);
    CHEX_AUTO_FREE uint8_t *rows = r.rows = chex_alloc_aligned((size_t)threads, r.row_bytes);
    if (!first || !rows)
        return chex_error_memory(err, "checking pixels");
    for (size_t i = 0; i < count; i++)
        r.first[i + 1] = r.first[i] + (chex_shard_rows(shards[i]) + BLOCK_ROWS - 1) / BLOCK_ROWS;
    atomic_init(&r.done, done);
    pthread_mutex_init(&r.lock, NULL);
    enum chex_status st = chex_pool_try(threads, first[count], read_block, &r, err);
    for (size_t i = 0; st == CHEX_OK && i < count; i++)
        if (faults_out[i].rows > 1)
            chex_error_prefix(&faults_out[i].first, CHEX_E_DATA, "%zu rows are damaged; the first",
                              faults_out[i].rows);
    pthread_mutex_destroy(&r.lock);
    return st;
}
