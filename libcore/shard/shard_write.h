/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes one shard v1 file (doc/shard-format.md).
 *
 * The file has a temporary name until chex_shard_finish() succeeds. Its disk space is reserved when
 * it is created. Any number of threads write rows with pwrite. The bytes of the file depend on the
 * rows only, never on the order of the calls.
 */
#ifndef CHEX_SHARD_SHARD_WRITE_H
#define CHEX_SHARD_SHARD_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shard/shard.h"

enum { CHEX_SHARD_VERSION = 1, CHEX_SHARD_MAX_SIZE_PX = 16384 };

/* One row without its pixels. The pointers are borrowed until the writer is gone. */
struct chex_shard_row {
    const char *image_id, *patient_id; /* not empty */
    const char *study_id;              /* NULL or empty: unknown */
    const int8_t *labels;              /* (classes) */
    enum chex_view view;
    int age_years; /* -1 unknown */
    char sex;      /* 'M', 'F' or 0 */
};

struct chex_shard_spec {
    size_t rows; /* 1 or more */
    int size, classes;
    const char *const *class_names;
    const char *resize, *split, *tool_version;
    /* Fills row i. Called for each row by chex_shard_create() and again by chex_shard_finish(). */
    void (*row)(const void *arg, size_t i, struct chex_shard_row *out);
    const void *arg;
};

struct chex_shard_writer;

/* Creates a temporary file in the folder of `path` and reserves the space of the whole shard.
 * - Borrows everything that `spec` points to until the writer is gone.
 * - After a failure no file is left.
 * - CHEX_E_RESOURCE: the disk is full. CHEX_E_DATA: no rows, an empty id. CHEX_E_USAGE: size or
 *   classes out of range. */
enum chex_status chex_shard_create(const char *path, const struct chex_shard_spec *spec,
                                   struct chex_shard_writer **writer_out, struct chex_error *err);

/* Writes the pixels (size, size) of one row and computes their checksum. Call it once for each row.
 * Thread-safe for different rows. */
enum chex_status chex_shard_put(struct chex_shard_writer *w, size_t row, const uint8_t *pixels,
                                struct chex_error *err);

/* States the size in pixels of the image file of one row. Thread-safe for different rows. A row
 * without this call has an unknown size. */
void chex_shard_set_original(struct chex_shard_writer *w, size_t row, int width, int height);

/* Writes tables and attributes, flushes the file and renames it to its final name.
 * - Every row must have been written with chex_shard_put().
 * - Frees the writer in all cases. After a failure the temporary file is removed. */
enum chex_status chex_shard_finish(struct chex_shard_writer *writer, const char *source_digest,
                                   struct chex_error *err);

/* Removes the temporary file and frees the writer. NULL allowed. */
void chex_shard_abandon(struct chex_shard_writer *w);
CHEX_AUTO_POINTER(struct chex_shard_writer, chex_shard_abandon)

/* Returns an upper bound of a shard file's bytes, for the check of free disk space. id_bytes: sum
 * of the lengths of the longest image id, patient id and study id. */
uint64_t chex_shard_file_bytes(size_t rows, int size, int classes, size_t id_bytes);

#endif
