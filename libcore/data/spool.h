/* SPDX-License-Identifier: Apache-2.0
 *
 * Images of one archive that are resized already, waiting for the shards they belong to: a file of
 * rows of equal size, and an index of what each row is or why there is none.
 *
 * It lives below the partial folder of a run and is read by the version that wrote it, on machines
 * of one kind. It has a temporary name until it is whole, so a run that was killed leaves whole
 * spools and temporary files only.
 */
#ifndef CHEX_DATA_SPOOL_H
#define CHEX_DATA_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_spool_row {
    const char *name;   /* of the archive's member */
    const char *reason; /* why the image cannot be used; NULL where its row is there */
    uint64_t bytes;     /* of the image file */
    uint64_t source[2]; /* XXH3-128 of the image file, the high half first */
};

struct chex_spool_writer;

/* Creates `path`.tmp.PID. */
enum chex_status chex_spool_create(const char *path, size_t row_bytes,
                                   struct chex_spool_writer **writer_out, struct chex_error *err);

/* The next row. One thread calls it. */
enum chex_status chex_spool_add(struct chex_spool_writer *w, const char *name, uint64_t bytes,
                                size_t *row_out, struct chex_error *err);

/* One of the two for each row, by any thread. */
enum chex_status chex_spool_put(struct chex_spool_writer *w, size_t row, const uint8_t *pixels,
                                const uint64_t source[2], struct chex_error *err);
enum chex_status chex_spool_reject(struct chex_spool_writer *w, size_t row, const char *reason,
                                   struct chex_error *err);

/* Writes the index, flushes, renames. fault: what was wrong with the archive behind the last row,
 * or NULL. The writer is gone afterwards, and on failure the temporary file too. */
enum chex_status chex_spool_finish(struct chex_spool_writer *w, const char *fault,
                                   struct chex_error *err);
void chex_spool_abandon(struct chex_spool_writer *w); /* NULL allowed */

struct chex_spool;

/* Reads the index. CHEX_E_FAIL: no spool of rows of row_bytes, or a damaged one. */
enum chex_status chex_spool_open(const char *path, size_t row_bytes, struct chex_spool **spool_out,
                                 struct chex_error *err);
void chex_spool_close(struct chex_spool *spool); /* NULL allowed */

size_t chex_spool_count(const struct chex_spool *s);
const struct chex_spool_row *chex_spool_get(const struct chex_spool *s, size_t row);
const char *chex_spool_fault(const struct chex_spool *s); /* NULL: the archive was sound */

/* The pixels of a row that has no reason, checked. Thread-safe. */
enum chex_status chex_spool_read(const struct chex_spool *s, size_t row, uint8_t *pixels,
                                 struct chex_error *err);

#endif
