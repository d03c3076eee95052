/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored rows of a set on their way into batches.
 *
 * What is asked for is read in the order of the disk, neighbours in one pread, and compared with
 * its checksums at the first read of a run. With `keep` rows stay in memory from then on: a thread
 * of the reader goes through the shards from front to back, and a row that is wanted before the
 * thread has come to it is read by whoever wants it.
 */
#ifndef CHEX_INPUT_READER_H
#define CHEX_INPUT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/shard.h"

struct chex_reader;
struct chex_reader_lane; /* what one thread needs to read with */

struct chex_reader_config {
    const struct chex_set *set; /* borrowed; its shards with rows of [first, end) are open */
    size_t first, end;          /* rows that can be asked for; both below 2^32 */
    bool keep;
};

/* CHEX_E_RESOURCE where the memory cannot be had, CHEX_E_ENV without a thread. */
enum chex_status chex_reader_create(const struct chex_reader_config *config,
                                    struct chex_reader **reader_out, struct chex_error *err);
/* Bytes of the rows that such a reader keeps. */
uint64_t chex_reader_memory_bytes(const struct chex_reader_config *config);
void chex_reader_destroy(struct chex_reader *r); /* NULL allowed; no lane may be in use */

/* For calls of up to `most` rows. NULL: out of memory. Released with free(). */
struct chex_reader_lane *chex_reader_lane_create(const struct chex_reader *r, size_t most);

/* One row: number i of those that were asked for; pixels (size, size) and labels (classes) are
 * borrowed for the call. */
typedef void (*chex_reader_fn)(void *arg, size_t i, const uint8_t *pixels, const int8_t *labels);

/* Calls fn once for each of rows[0..n), in the order of the disk. Any number of threads, each with
 * a lane of its own. CHEX_E_DATA names file, row and image. */
enum chex_status chex_reader_each(struct chex_reader *r, struct chex_reader_lane *lane,
                                  const size_t *rows, size_t n, chex_reader_fn fn, void *arg,
                                  struct chex_error *err);

/* As before, but into memory of the caller: pixels (n, size, size) in the order of the disk,
 * slots_out[i] says where row i of those asked for has come to. */
enum chex_status chex_reader_load(struct chex_reader *r, struct chex_reader_lane *lane,
                                  const size_t *rows, size_t n, uint8_t *pixels, size_t *slots_out,
                                  struct chex_error *err);

/* Tells the kernel which rows will be read soon; the lane's content is lost. */
void chex_reader_announce(struct chex_reader *r, struct chex_reader_lane *lane, const size_t *rows,
                          size_t n);

/* Bytes of pixels read from files so far. */
uint64_t chex_reader_bytes(const struct chex_reader *r);

#endif
