/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing one shard v1 file (share/doc/shard-format.md).
 *
 * The file has a temporary name until chex_shard_finish() succeeds, and its space is reserved when
 * it is created. Rows are pwritten by any number of threads; the content depends on what each row
 * holds, never on the order of the calls.
 */
#ifndef CHEX_DATA_SHARD_WRITE_H
#define CHEX_DATA_SHARD_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/shard.h"

enum { CHEX_SHARD_VERSION = 1, CHEX_SHARD_MAX_SIZE_PX = 16384, CHEX_SHARD_MAX_CLASSES = 1024 };

/* Borrowed: everything here must live until the writer ends. */
struct chex_shard_row {
    const char *image_id, *patient_id; /* not empty */
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
    /* Fills row i; called for each row in create and in chex_shard_finish(). */
    void (*row)(const void *arg, size_t i, struct chex_shard_row *out);
    const void *arg;
};

struct chex_shard_writer;

/* Creates `path`.tmp.PID with room for everything. CHEX_E_RESOURCE where the disk has not got it;
 * nothing stays behind on failure. */
enum chex_status chex_shard_create(const char *path, const struct chex_shard_spec *spec,
                                   struct chex_shard_writer **writer_out, struct chex_error *err);

/* Writes the pixels (size, size) of one row and keeps their checksum. Thread-safe for different
 * rows. */
enum chex_status chex_shard_put(struct chex_shard_writer *w, size_t row, const uint8_t *pixels,
                                struct chex_error *err);

/* Writes tables and attributes, flushes, renames to the final name. Every row must have been put.
 * The writer is gone afterwards, and on failure the temporary file too. */
enum chex_status chex_shard_finish(struct chex_shard_writer *w, const char *source_digest,
                                   struct chex_error *err);

/* Removes the temporary file and frees the writer. NULL allowed. */
void chex_shard_abandon(struct chex_shard_writer *w);

/* Upper bound of a shard file's bytes, for the check of free space. id_bytes: sum of the longest
 * image id and the longest patient id. */
uint64_t chex_shard_file_bytes(size_t rows, int size, int classes, size_t id_bytes);

#endif
