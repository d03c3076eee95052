/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the .c files that read or write HDF5 (shards, checkpoints): the only header in which
 * HDF5's types may appear. No public header includes it.
 *
 * Rules: every HDF5 call of the process runs between chex_h5_enter() and chex_h5_leave(), so a
 * library built without thread safety is as good as one with it, and HDF5's own printing is off.
 * Ids start as H5I_INVALID_HID and are closed under one `out:` label with chex_h5_close().
 */
#ifndef CHEX_BASE_H5_PRIVATE_H
#define CHEX_BASE_H5_PRIVATE_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Takes the process-wide lock (not recursive) and silences HDF5's error stack for this thread. */
void chex_h5_enter(void);
void chex_h5_leave(void);

/* Writes "TEXT: HDF5's innermost message" into err, clears HDF5's error stack and returns the
 * status: CHEX_E_RESOURCE where HDF5 reports a full disk or no memory, else `status`. Expression
 * and place go to the debug log. */
enum chex_status chex_h5_error(struct chex_error *err, enum chex_status status, const char *expr,
                               const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* CHEX_OK where the call gives a value >= 0:
 *   CHEX_TRY(CHEX_H5(file = H5Fopen(...), CHEX_E_DATA, err, "shard %s", path)); */
#define CHEX_H5(call, status, err, ...)                                                            \
    ((call) < 0 ? chex_h5_error((err), (status), #call, __FILE__, __LINE__, __VA_ARGS__) : CHEX_OK)

/* Closes an id of any kind; negative ids are ignored. For files that were written use
 * chex_h5_file_close, which reports. */
void chex_h5_close(hid_t id);

/* Opens without HDF5's file locks, which fail on some network file systems. CHEX_E_DATA tells a
 * missing file, one that is not HDF5, and a truncated one apart. */
enum chex_status chex_h5_file_open(const char *path, bool writable, hid_t *file_out,
                                   struct chex_error *err);

/* Creates or truncates. align_bytes > 0: objects from 1 MiB on start on such a boundary. */
enum chex_status chex_h5_file_create(const char *path, uint64_t align_bytes, hid_t *file_out,
                                     struct chex_error *err);

/* Flushes, closes and reports; *file becomes H5I_INVALID_HID whatever happens. */
enum chex_status chex_h5_file_close(hid_t *file, const char *path, struct chex_error *err);

/* Fixed-length string type, NUL-padded, UTF-8. */
enum chex_status chex_h5_fixed_string(size_t bytes, hid_t *type_out, struct chex_error *err);

/* Creates dataset `name` (rank dims, file type `type`) and writes `data` (memory type `memory`); a
 * NULL `data` or a dimension of 0 writes nothing. It is contiguous, allocated at once and never
 * filled, without time stamps: equal content makes equal files, and H5Dget_offset is known after
 * creation. `path` names the file in errors here and below. */
enum chex_status chex_h5_write_dataset(hid_t where, const char *name, hid_t type, hid_t memory,
                                       int rank, const hsize_t *dims, const void *data,
                                       const char *path, struct chex_error *err);

/* Attributes. Text is written with variable length, as h5py and other tools give it back as text;
 * both kinds are read. */
bool chex_h5_has_attr(hid_t where, const char *name);
enum chex_status chex_h5_write_text(hid_t where, const char *name, const char *value,
                                    const char *path, struct chex_error *err);
enum chex_status chex_h5_write_texts(hid_t where, const char *name, const char *const *values,
                                     size_t count, const char *path, struct chex_error *err);
enum chex_status chex_h5_write_i64(hid_t where, const char *name, int64_t value, const char *path,
                                   struct chex_error *err);

/* CHEX_E_DATA where the attribute is missing or of another kind. The caller frees the string. */
enum chex_status chex_h5_read_text(hid_t where, const char *name, const char *path, char **out,
                                   struct chex_error *err);
/* A one-dimensional array of strings; free with chex_h5_free_texts. */
enum chex_status chex_h5_read_texts(hid_t where, const char *name, const char *path, char ***out,
                                    size_t *count_out, struct chex_error *err);
void chex_h5_free_texts(char **texts, size_t count); /* NULL allowed */
enum chex_status chex_h5_read_i64(hid_t where, const char *name, const char *path, int64_t *out,
                                  struct chex_error *err);

#endif
