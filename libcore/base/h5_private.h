/* SPDX-License-Identifier: Apache-2.0
 *
 * HDF5 helpers for the .c files that read or write HDF5 (shards, checkpoints). Only this header may
 * contain HDF5's types; no public header includes it.
 *
 * Rules:
 * - Every HDF5 call of the process is between chex_h5_enter() and chex_h5_finish() or
 *   chex_h5_leave(). So a library without thread safety works too. HDF5's own error printing is
 * off.
 * - Ids start as H5I_INVALID_HID and are closed by CHEX_AUTO(chex_h5_close_at) or
 *   chex_h5_close(), before the section ends.
 */
#ifndef CHEX_BASE_H5_PRIVATE_H
#define CHEX_BASE_H5_PRIVATE_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Locks the process-wide mutex (not recursive) and turns off HDF5's error printing for this thread.
 */
void chex_h5_enter(void);
void chex_h5_leave(void);

/* chex_h5_leave() after calls that may have needed memory. Returns `st`, or CHEX_E_RESOURCE with a
 * text about `path` if the process had none left: then nothing that was read or written counts. */
enum chex_status chex_h5_finish(enum chex_status st, const char *path, struct chex_error *err);

/* The reserve of HDF5 (h5_memory.c); all of the calling thread. */
void chex_h5_memory_enter(void);
void chex_h5_memory_leave(void);
bool chex_h5_memory_used(void);        /* in this section or, after it, in the last one */
size_t chex_h5_memory_refused(void);   /* the largest request that the reserve refused; 0: none */
bool chex_h5_memory_inside(void);      /* between enter and leave */
bool chex_h5_memory_has_reserve(void); /* false in builds with sanitizers */
/* For tests: in each section all allocations from the `from`-th on (1: all) are refused; 0: none.
 */
void chex_h5_memory_refuse(size_t from);

/* Writes "TEXT: HDF5's innermost message" into err, clears HDF5's error stack and returns the
 * status.
 * - CHEX_E_RESOURCE if HDF5 reports a full disk.
 * - CHEX_E_RESOURCE if HDF5 reports no memory, unless `status` is CHEX_E_DATA.
 * - Otherwise `status`.
 * - Expression and place go to the debug log. */
enum chex_status chex_h5_error(struct chex_error *err, enum chex_status status, const char *expr,
                               const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* CHEX_OK if the call returns a value >= 0, and memory has not run out:
 *   CHEX_TRY(CHEX_H5(file = H5Fopen(...), CHEX_E_DATA, err, "shard %s", path)); */
#define CHEX_H5(call, status, err, ...)                                                            \
    ((call) < 0 || chex_h5_memory_used()                                                           \
         ? chex_h5_error((err), (status), #call, __FILE__, __LINE__, __VA_ARGS__)                  \
         : CHEX_OK)

/* Closes an id of any kind; ignores negative ids. Close files that were written with
 * chex_h5_file_close, which reports errors. */
void chex_h5_close(hid_t id);
static inline void chex_h5_close_at(hid_t *id) { chex_h5_close(*id); } /* for CHEX_AUTO */

/* Opens a file without HDF5's file locks, which fail on some network file systems.
 * - READ: the file is compared with its seal before HDF5 reads it. READ_ANY: it needs none, because
 *   another program wrote it.
 * - CHEX_E_DATA: the file is missing, no regular file, not HDF5, truncated, damaged or without a
 *   seal. */
enum chex_h5_mode { CHEX_H5_READ, CHEX_H5_WRITE, CHEX_H5_READ_ANY };
enum chex_status chex_h5_file_open(const char *path, enum chex_h5_mode mode, hid_t *file_out,
                                   struct chex_error *err);

/* Creates or truncates a file. align_bytes > 0: objects of 1 MiB or more start at a multiple of it.
 */
enum chex_status chex_h5_file_create(const char *path, uint64_t align_bytes, hid_t *file_out,
                                     struct chex_error *err);

/* Flushes and closes a file and reports errors. *file always becomes H5I_INVALID_HID. */
enum chex_status chex_h5_file_close(hid_t *file, const char *path, struct chex_error *err);

/* The seal: a record after the HDF5 data with a digest of the file (see h5_seal.c). It is written
 * last. If HDF5 changes the file afterwards, the seal is lost. */
enum { CHEX_H5_SEAL_BYTES = 56 };

/* Appends the seal to a closed file. The digest leaves out [skip_from, skip_to). */
enum chex_status chex_h5_seal_file(int fd, const char *path, uint64_t skip_from, uint64_t skip_to,
                                   struct chex_error *err);
/* Computes the seal of a file in memory. The caller writes it after the file. */
void chex_h5_seal_memory(const void *file, size_t bytes, unsigned char out[CHEX_H5_SEAL_BYTES]);
/* Compares a file with its seal. CHEX_E_DATA: it does not match, or the file has none. */
enum chex_status chex_h5_check_seal(int fd, const char *path, uint64_t file_bytes,
                                    struct chex_error *err);

/* Creates a fixed-length string type: NUL-padded, UTF-8. */
enum chex_status chex_h5_fixed_string(size_t bytes, hid_t *type_out, struct chex_error *err);

/* Creates dataset `name` and writes `data`.
 * - rank, dims: shape. type: type in the file. memory: type of `data`.
 * - NULL `data` or a dimension of 0 writes nothing.
 * - Layout: contiguous, allocated at creation, never filled, no time stamps. Equal content gives
 *   equal files, and H5Dget_offset is known after creation.
 * - path: the file's name for errors, here and below. */
enum chex_status chex_h5_write_dataset(hid_t where, const char *name, hid_t type, hid_t memory,
                                       int rank, const hsize_t *dims, const void *data,
                                       const char *path, struct chex_error *err);

/* The same for `rows` strings of a fixed length: data is (rows, width), NUL-padded. */
enum chex_status chex_h5_write_strings(hid_t where, const char *name, size_t width, size_t rows,
                                       const char *data, const char *path, struct chex_error *err);

/* Attributes. Text has a fixed length (UTF-8, NUL-terminated). An attribute holds at most 64 KiB,
 * so longer text (hundreds of long class names) has variable length. Both kinds can be read. */
bool chex_h5_has_attr(hid_t where, const char *name);
enum chex_status chex_h5_write_text(hid_t where, const char *name, const char *value,
                                    const char *path, struct chex_error *err);
enum chex_status chex_h5_write_texts(hid_t where, const char *name, const char *const *values,
                                     size_t count, const char *path, struct chex_error *err);
enum chex_status chex_h5_write_i64(hid_t where, const char *name, int64_t value, const char *path,
                                   struct chex_error *err);
enum chex_status chex_h5_write_u64(hid_t where, const char *name, uint64_t value, const char *path,
                                   struct chex_error *err);

/* CHEX_E_DATA: the attribute is missing or of another kind. The caller frees the string. */
enum chex_status chex_h5_read_text(hid_t where, const char *name, const char *path, char **out,
                                   struct chex_error *err);
/* A one-dimensional array of strings; free with chex_h5_free_texts. */
enum chex_status chex_h5_read_texts(hid_t where, const char *name, const char *path, char ***out,
                                    size_t *count_out, struct chex_error *err);
void chex_h5_free_texts(char **texts, size_t count); /* NULL allowed */
enum chex_status chex_h5_read_i64(hid_t where, const char *name, const char *path, int64_t *out,
                                  struct chex_error *err);

#endif
