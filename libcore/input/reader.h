/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads stored rows of a set.
 *
 * - A request is read in disk order; neighbouring rows are read with one pread().
 * - The checksum of a row is verified at its first read.
 * - With `keep`, rows stay in memory after the first read. A thread of the reader reads all shards
 *   from front to back. If a caller needs a row before that, the caller reads it.
 */
#ifndef CHEX_INPUT_READER_H
#define CHEX_INPUT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shard/shard.h"

struct chex_reader;
struct chex_reader_lane; /* buffers of one reading thread */

struct chex_reader_config {
    const struct chex_set *set; /* borrowed; shards with rows of [first, end) must be open */
    size_t first, end;          /* rows that may be requested; both below 2^32 */
    bool keep;
};

/* Creates a reader. CHEX_E_RESOURCE: out of memory. CHEX_E_ENV: the thread cannot be started. */
enum chex_status chex_reader_create(const struct chex_reader_config *config,
                                    struct chex_reader **reader_out, struct chex_error *err);
/* Bytes of the rows that a reader with this configuration keeps. */
uint64_t chex_reader_memory_bytes(const struct chex_reader_config *config);
void chex_reader_destroy(struct chex_reader *r); /* NULL allowed; no lane may be in use */
CHEX_AUTO_POINTER(struct chex_reader, chex_reader_destroy)

/* A lane for requests of at most max_rows rows. NULL: out of memory. Release it with free(). */
struct chex_reader_lane *chex_reader_lane_create(const struct chex_reader *r, size_t max_rows);

/* Called with row i of the request. pixels (size, size) are borrowed for the call. */
typedef void (*chex_reader_fn)(void *arg, size_t i, const uint8_t *pixels);

/* Calls fn once for each of rows[0..n), in disk order. Thread-safe if each thread has its own lane.
 * CHEX_E_DATA: a row is damaged; the text has file, row and image. */
enum chex_status chex_reader_each(struct chex_reader *r, struct chex_reader_lane *lane,
                                  const size_t *rows, size_t n, chex_reader_fn fn, void *arg,
                                  struct chex_error *err);

/* Reads rows[0..n) into the caller's memory: pixels (n, size, size) in disk order. slots_out[i]:
 * index in pixels of row i of the request. */
enum chex_status chex_reader_load(struct chex_reader *r, struct chex_reader_lane *lane,
                                  const size_t *rows, size_t n, uint8_t *pixels, size_t *slots_out,
                                  struct chex_error *err);

/* Asks the kernel to prefetch rows. Overwrites the lane. */
void chex_reader_prefetch(struct chex_reader *r, struct chex_reader_lane *lane, const size_t *rows,
                          size_t n);

/* Bytes of pixels read from files so far. */
uint64_t chex_reader_bytes(const struct chex_reader *r);

#endif
