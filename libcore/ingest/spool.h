/* SPDX-License-Identifier: Apache-2.0
 *
 * A spool: a temporary file with the resized images of one archive, until their shards are built.
 * It has rows of equal size and an index with the name of each row, or why the image is bad.
 *
 * - A spool lies in the partial folder of a run. Only the version that wrote it reads it, so its
 *   format is native-endian and has no compatibility rules.
 * - A spool has a temporary name until it is complete. A killed run leaves only complete spools and
 *   temporary files.
 */
#ifndef CHEX_INGEST_SPOOL_H
#define CHEX_INGEST_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* `bytes` of a row whose member cannot be read; its `reason` says why. */
#define CHEX_SPOOL_UNREAD UINT64_MAX

struct chex_spool_row {
    const char *name;   /* of the archive's member */
    const char *reason; /* why the image is bad; NULL if the row has pixels */
    uint64_t bytes;     /* of the image file */
    uint64_t hash[2];   /* XXH3-128 of the image file, the high half first */
    int width, height;  /* of the image file */
};

struct chex_spool_writer;

/* Creates a temporary file beside `path`. */
enum chex_status chex_spool_create(const char *path, size_t row_bytes,
                                   struct chex_spool_writer **writer_out, struct chex_error *err);

/* Adds a row and returns its number. Only one thread may call it. */
enum chex_status chex_spool_add(struct chex_spool_writer *w, const char *name, uint64_t bytes,
                                size_t *row_out, struct chex_error *err);

/* Call exactly one of the two for each row. Thread-safe. width and height: of the image file. */
enum chex_status chex_spool_put(struct chex_spool_writer *w, size_t row, const uint8_t *pixels,
                                const uint64_t hash[2], int width, int height,
                                struct chex_error *err);
enum chex_status chex_spool_reject(struct chex_spool_writer *w, size_t row, const char *reason,
                                   struct chex_error *err);

/* Writes the index, syncs the file and renames it to its final name.
 * - fault: what was wrong with the archive after the last row; NULL if it was intact.
 * - Frees the writer, also on failure. On failure the temporary file is removed. */
enum chex_status chex_spool_finish(struct chex_spool_writer *w, const char *fault,
                                   struct chex_error *err);
void chex_spool_abandon(struct chex_spool_writer *w); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_spool_writer, chex_spool_abandon)

struct chex_spool;

/* Reads the index. CHEX_E_FAIL: not a spool with rows of row_bytes, or damaged. */
enum chex_status chex_spool_open(const char *path, size_t row_bytes, struct chex_spool **spool_out,
                                 struct chex_error *err);
void chex_spool_close(struct chex_spool *spool); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_spool, chex_spool_close)

size_t chex_spool_count(const struct chex_spool *s);
const struct chex_spool_row *chex_spool_get(const struct chex_spool *s, size_t row);
const char *chex_spool_fault(const struct chex_spool *s); /* NULL: the archive was intact */

/* Reads the pixels of a row without `reason` and verifies their checksum. Thread-safe. */
enum chex_status chex_spool_read(const struct chex_spool *s, size_t row, uint8_t *pixels,
                                 struct chex_error *err);

#endif
