/* SPDX-License-Identifier: Apache-2.0
 *
 * Wrappers around HDF5: one process-wide lock, errors as chex_status, files, datasets and
 * attributes.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/h5_private.h"
#include "base/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* HDF5 calls exit() where a large allocation fails. */
static void after_exit(void) {
    if (!chex_h5_memory_inside())
        return;
    chex_err("out of memory: HDF5 ended the process");
    _exit(CHEX_E_RESOURCE);
}

/* H5dont_atexit: a file that HDF5 could not close stays open in the library, and HDF5's exit
 * handler then crashes. All data has been written before. */
void chex_h5_enter(void) {
    static bool begun;
    pthread_mutex_lock(&lock);
    chex_h5_memory_enter();
    if (!begun) {
        H5dont_atexit();
        atexit(after_exit);
    }
    begun = true;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void chex_h5_leave(void) {
    chex_h5_memory_leave();
    pthread_mutex_unlock(&lock);
}

enum chex_status chex_h5_finish(enum chex_status st, const char *path, struct chex_error *err) {
    if (chex_h5_memory_used())
        st = chex_error_memory(err, "%s", path);
    chex_h5_leave();
    return st;
}

/* The first entry of an upward walk is the place where the fault was found. */
static herr_t innermost(unsigned n, const H5E_error2_t *entry, void *arg) {
    char *text = arg;
    if (n == 0 && entry->desc)
        snprintf(text, CHEX_ERROR_TEXT_BYTES, "%s", entry->desc);
    return 0;
}

static bool means_out_of_space(const char *text) {
    return strstr(text, "No space left") || strstr(text, "Disk quota") ||
           strstr(text, "memory allocation failed") || strstr(text, "Cannot allocate memory") ||
           strstr(text, "unable to allocate memory");
}

/* HDF5 allocates the size that a file states before it compares it with the file size. The metadata
 * of a sound chexnet file takes kilobytes. */
static bool means_absurd_size(enum chex_status status, const char *text) {
    enum { ABSURD_BYTES = 64 << 20 };
    const size_t refused = chex_h5_memory_refused();
    return status == CHEX_E_DATA && (!refused || refused >= ABSURD_BYTES) &&
           strstr(text, "memory allocation failed");
}

enum chex_status chex_h5_error(struct chex_error *err, enum chex_status status, const char *expr,
                               const char *file, int line, const char *fmt, ...) {
    char head[CHEX_ERROR_TEXT_BYTES], cause[CHEX_ERROR_TEXT_BYTES] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(head, sizeof head, fmt, ap);
    va_end(ap);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, cause);
    H5Eclear2(H5E_DEFAULT);
    for (char *c = cause; *c; c++)
        if (*c == '\n')
            *c = ' ';
    chex_debug("hdf5: %s at %s:%d: %s", expr, file, line, cause);
    if (means_absurd_size(status, cause))
        return chex_error_set(
            err, status, "%s: damaged: a length in its metadata is too large (%s)", head, cause);
    if (means_out_of_space(cause))
        status = CHEX_E_RESOURCE;
    return chex_error_set(err, status, "%s: %s", head, cause[0] ? cause : "HDF5 gives no reason");
}

void chex_h5_close(hid_t id) {
    if (id < 0)
        return;
    switch (H5Iget_type(id)) {
    case H5I_FILE: H5Fclose(id); break;
    case H5I_GROUP: H5Gclose(id); break;
    case H5I_DATATYPE: H5Tclose(id); break;
    case H5I_DATASPACE: H5Sclose(id); break;
    case H5I_DATASET: H5Dclose(id); break;
    case H5I_ATTR: H5Aclose(id); break;
    case H5I_GENPROP_LST: H5Pclose(id); break;
    default: H5Oclose(id); break;
    }
}

static enum chex_status access_list(hid_t *fapl_out, struct chex_error *err) {
    hid_t fapl = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(fapl = H5Pcreate(H5P_FILE_ACCESS), CHEX_E_FAIL, err, "file access list"));
#if H5_VERSION_GE(1, 12, 1) || (H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 7)
    H5Pset_file_locking(fapl, 0, 1);
#endif
    /* Small datasets would wait in a buffer until they are closed, and a failed write be lost. */
    H5Pset_sieve_buf_size(fapl, 0);
    /* HDF5 2 would write newer structures, which hold the times at which groups were made. */
    H5Pset_libver_bounds(fapl, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
    /* An id that was forgotten shows as a failing close instead of a file that stays open. */
    H5Pset_fclose_degree(fapl, H5F_CLOSE_SEMI);
    *fapl_out = fapl;
    return CHEX_OK;
}

enum chex_status chex_h5_file_open(const char *path, enum chex_h5_mode mode, hid_t *file_out,
                                   struct chex_error *err) {
    const bool writable = mode == CHEX_H5_WRITE;
    int fd = -1;
    uint64_t bytes = 0;
    CHEX_TRY(chex_fs_open(path, &fd, &bytes, err));
    enum chex_status st = CHEX_OK;
    if (H5Fis_hdf5(path) == 0)
        st = chex_error_set(err, CHEX_E_DATA, "%s: not an HDF5 file", path);
    else if (mode == CHEX_H5_READ)
        st = chex_h5_check_seal(fd, path, bytes, err);
    close(fd);
    CHEX_TRY(st);
    if (writable && access(path, W_OK) != 0)
        return chex_error_errno(err, CHEX_E_DATA, errno, "cannot open %s", path);
    hid_t fapl = H5I_INVALID_HID, file = H5I_INVALID_HID;
    CHEX_TRY(access_list(&fapl, err));
    st = CHEX_H5(file = H5Fopen(path, writable ? H5F_ACC_RDWR : H5F_ACC_RDONLY, fapl), CHEX_E_DATA,
                 err, "%s", path);
    chex_h5_close(fapl);
    if (st == CHEX_OK)
        *file_out = file;
    return st;
}

enum chex_status chex_h5_file_create(const char *path, uint64_t align_bytes, hid_t *file_out,
                                     struct chex_error *err) {
    hid_t fapl = H5I_INVALID_HID, file = H5I_INVALID_HID;
    CHEX_TRY(access_list(&fapl, err));
    if (align_bytes)
        H5Pset_alignment(fapl, 1 << 20, align_bytes);
    enum chex_status st = CHEX_H5(file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl),
                                  CHEX_E_ENV, err, "cannot create %s", path);
    chex_h5_close(fapl);
    if (st == CHEX_OK)
        *file_out = file;
    return st;
}

enum chex_status chex_h5_file_close(hid_t *file, const char *path, struct chex_error *err) {
    if (*file < 0)
        return CHEX_OK;
    hid_t id = *file;
    *file = H5I_INVALID_HID;
    enum chex_status st =
        CHEX_H5(H5Fflush(id, H5F_SCOPE_LOCAL), CHEX_E_ENV, err, "cannot write %s", path);
    if (H5Fclose(id) < 0 && st == CHEX_OK)
        return chex_h5_error(err, CHEX_E_ENV, "H5Fclose", __FILE__, __LINE__, "cannot close %s",
                             path);
    return st;
}

static enum chex_status contiguous(hid_t *dcpl_out, struct chex_error *err) {
    hid_t dcpl = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(dcpl = H5Pcreate(H5P_DATASET_CREATE), CHEX_E_FAIL, err, "creation list"));
    if (H5Pset_layout(dcpl, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY) < 0 ||
        H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER) < 0 || H5Pset_obj_track_times(dcpl, 0) < 0) {
        chex_h5_close(dcpl);
        return chex_h5_error(err, CHEX_E_FAIL, "H5Pset_*", __FILE__, __LINE__, "creation list");
    }
    *dcpl_out = dcpl;
    return CHEX_OK;
}

/* bytes: of a text, or H5T_VARIABLE. Each text needs a new type: setting H5T_VARIABLE twice on one
 * type writes strings that cannot be read. */
static enum chex_status make_string(size_t bytes, H5T_str_t pad, hid_t *type_out,
                                    struct chex_error *err) {
    hid_t type = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(type = H5Tcopy(H5T_C_S1), CHEX_E_FAIL, err, "string type"));
    if (H5Tset_size(type, bytes) < 0 || H5Tset_strpad(type, pad) < 0 ||
        H5Tset_cset(type, H5T_CSET_UTF8) < 0) {
        chex_h5_close(type);
        return chex_h5_error(err, CHEX_E_FAIL, "H5Tset_*", __FILE__, __LINE__, "string type");
    }
    *type_out = type;
    return CHEX_OK;
}

enum chex_status chex_h5_fixed_string(size_t bytes, hid_t *type_out, struct chex_error *err) {
    return make_string(bytes ? bytes : 1, H5T_STR_NULLPAD, type_out, err);
}

enum chex_status chex_h5_write_dataset(hid_t where, const char *name, hid_t type, hid_t memory,
                                       int rank, const hsize_t *dims, const void *data,
                                       const char *path, struct chex_error *err) {
    hid_t dcpl = H5I_INVALID_HID, space = H5I_INVALID_HID, set = H5I_INVALID_HID;
    hsize_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= dims[i];
    enum chex_status st = contiguous(&dcpl, err);
    if (st == CHEX_OK)
        st = CHEX_H5(space = H5Screate_simple(rank, dims, NULL), CHEX_E_FAIL, err, "%s: dataset %s",
                     path, name);
    if (st == CHEX_OK)
        st = CHEX_H5(set = H5Dcreate2(where, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT),
                     CHEX_E_ENV, err, "%s: cannot create dataset %s", path, name);
    if (st == CHEX_OK && data && count)
        st = CHEX_H5(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), CHEX_E_ENV, err,
                     "%s: cannot write dataset %s", path, name);
    chex_h5_close(set);
    chex_h5_close(space);
    chex_h5_close(dcpl);
    return st;
}

enum chex_status chex_h5_write_strings(hid_t where, const char *name, size_t width, size_t rows,
                                       const char *data, const char *path, struct chex_error *err) {
    const hsize_t dim = rows;
    hid_t type = H5I_INVALID_HID;
    CHEX_TRY(chex_h5_fixed_string(width, &type, err));
    const enum chex_status st =
        chex_h5_write_dataset(where, name, type, type, 1, &dim, data, path, err);
    chex_h5_close(type);
    return st;
}

bool chex_h5_has_attr(hid_t where, const char *name) { return H5Aexists(where, name) > 0; }

static enum chex_status write_attr(hid_t where, const char *name, hid_t type, hid_t memory,
                                   hid_t space, const void *data, const char *path,
                                   struct chex_error *err) {
    hid_t attr = H5I_INVALID_HID;
    enum chex_status st =
        CHEX_H5(attr = H5Acreate2(where, name, type, space, H5P_DEFAULT, H5P_DEFAULT), CHEX_E_ENV,
                err, "%s: cannot create attribute %s", path, name);
    if (st == CHEX_OK)
        st = CHEX_H5(H5Awrite(attr, memory, data), CHEX_E_ENV, err, "%s: cannot write attribute %s",
                     path, name);
    chex_h5_close(attr);
    return st;
}

static enum chex_status write_scalar(hid_t where, const char *name, hid_t type, hid_t memory,
                                     const void *data, const char *path, struct chex_error *err) {
    hid_t space = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(space = H5Screate(H5S_SCALAR), CHEX_E_FAIL, err, "%s: %s", path, name));
    enum chex_status st = write_attr(where, name, type, memory, space, data, path, err);
    chex_h5_close(space);
    return st;
}

/* Bytes of the longest text including its NUL. */
static size_t widest(const char *const *values, size_t count) {
    size_t width = 1;
    for (size_t i = 0; i < count; i++)
        width = strlen(values[i]) >= width ? strlen(values[i]) + 1 : width;
    return width;
}

static enum chex_status write_fixed(hid_t where, const char *name, const char *const *values,
                                    size_t count, size_t width, hid_t space, const char *path,
                                    struct chex_error *err) {
    hid_t type = H5I_INVALID_HID;
    char *flat = calloc(count, width);
    if (!flat)
        return chex_error_memory(err, "%s: attribute %s", path, name);
    for (size_t i = 0; i < count; i++)
        memcpy(flat + i * width, values[i], strlen(values[i]));
    /* NULLTERM, because h5dump prints the padding of NULLPAD texts */
    enum chex_status st = make_string(width, H5T_STR_NULLTERM, &type, err);
    if (st == CHEX_OK)
        st = write_attr(where, name, type, type, space, flat, path, err);
    chex_h5_close(type);
    free(flat);
    return st;
}

static enum chex_status write_variable(hid_t where, const char *name, const char *const *values,
                                       hid_t space, const char *path, struct chex_error *err) {
    hid_t type = H5I_INVALID_HID;
    CHEX_TRY(make_string(H5T_VARIABLE, H5T_STR_NULLTERM, &type, err));
    enum chex_status st = write_attr(where, name, type, type, space, values, path, err);
    chex_h5_close(type);
    return st;
}

/* Writes one text (dim NULL) or an array of texts. */
static enum chex_status write_strings(hid_t where, const char *name, const char *const *values,
                                      const hsize_t *dim, const char *path,
                                      struct chex_error *err) {
    enum { MOST_FIXED_BYTES = 60000 }; /* an attribute and its header have 64 KiB */
    const size_t count = dim ? (size_t)*dim : 1, width = widest(values, count);
    hid_t space = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(space = dim ? H5Screate_simple(1, dim, NULL) : H5Screate(H5S_SCALAR),
                     CHEX_E_FAIL, err, "%s: attribute %s", path, name));
    enum chex_status st = width <= MOST_FIXED_BYTES / (count ? count : 1)
                              ? write_fixed(where, name, values, count, width, space, path, err)
                              : write_variable(where, name, values, space, path, err);
    chex_h5_close(space);
    return st;
}

enum chex_status chex_h5_write_text(hid_t where, const char *name, const char *value,
                                    const char *path, struct chex_error *err) {
    return write_strings(where, name, &value, NULL, path, err);
}

enum chex_status chex_h5_write_texts(hid_t where, const char *name, const char *const *values,
                                     size_t count, const char *path, struct chex_error *err) {
    const hsize_t dim = count;
    return write_strings(where, name, values, &dim, path, err);
}

enum chex_status chex_h5_write_i64(hid_t where, const char *name, int64_t value, const char *path,
                                   struct chex_error *err) {
    return write_scalar(where, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value, path, err);
}

enum chex_status chex_h5_write_u64(hid_t where, const char *name, uint64_t value, const char *path,
                                   struct chex_error *err) {
    return write_scalar(where, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &value, path, err);
}

/* An open attribute with its type and space. The caller closes all three, also after a failure of
 * attr_open. */
struct attr {
    hid_t id, type, space;
    hssize_t points;
    int rank;
};

#define ATTRIBUTE(call) CHEX_H5(call, CHEX_E_DATA, err, "%s: attribute '%s'", path, name)

static enum chex_status attr_open(hid_t where, const char *name, const char *path, struct attr *a,
                                  struct chex_error *err) {
    *a = (struct attr){H5I_INVALID_HID, H5I_INVALID_HID, H5I_INVALID_HID, 0, 0};
    if (!chex_h5_has_attr(where, name)) {
        H5Eclear2(H5E_DEFAULT);
        return chex_error_set(err, CHEX_E_DATA, "%s: no attribute '%s'", path, name);
    }
    CHEX_TRY(ATTRIBUTE(a->id = H5Aopen(where, name, H5P_DEFAULT)));
    CHEX_TRY(ATTRIBUTE(a->type = H5Aget_type(a->id)));
    CHEX_TRY(ATTRIBUTE(a->space = H5Aget_space(a->id)));
    a->points = H5Sget_simple_extent_npoints(a->space);
    a->rank = H5Sget_simple_extent_ndims(a->space);
    return CHEX_OK;
}

static void attr_close(struct attr *a) {
    chex_h5_close(a->space);
    chex_h5_close(a->type);
    chex_h5_close(a->id);
}

static enum chex_status texts_fixed(const struct attr *a, size_t count, char **out) {
    size_t width = H5Tget_size(a->type);
    if (!width || width > (1u << 20) / count)
        return CHEX_E_DATA;
    char *flat = calloc(count, width);
    enum chex_status st = flat ? CHEX_OK : CHEX_E_RESOURCE;
    if (st == CHEX_OK && H5Aread(a->id, a->type, flat) < 0)
        st = CHEX_E_DATA;
    for (size_t i = 0; st == CHEX_OK && i < count; i++)
        if (!(out[i] = strndup(flat + i * width, width)))
            st = CHEX_E_RESOURCE;
    free(flat);
    return st;
}

/* HDF5 allocates the texts with malloc, and gives NULL for an empty one. */
static enum chex_status texts_variable(const struct attr *a, size_t count, char **out) {
    if (H5Aread(a->id, a->type, out) < 0)
        return CHEX_E_DATA;
    for (size_t i = 0; i < count; i++)
        if (!out[i] && !(out[i] = strdup("")))
            return CHEX_E_RESOURCE;
    return CHEX_OK;
}

static enum chex_status attr_texts(const struct attr *a, const char *name, const char *path,
                                   char ***out, size_t *count_out, struct chex_error *err) {
    enum { LIMIT = 4096 };
    if (H5Tget_class(a->type) != H5T_STRING)
        return chex_error_set(err, CHEX_E_DATA, "%s: attribute '%s' is not text", path, name);
    if (a->points < 1 || a->points > LIMIT)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: attribute '%s' has %lld values, expected 1 to %d", path, name,
                              (long long)a->points, (int)LIMIT);
    size_t count = (size_t)a->points;
    char **texts = calloc(count, sizeof *texts);
    enum chex_status st = CHEX_E_RESOURCE;
    if (texts)
        st = H5Tis_variable_str(a->type) > 0 ? texts_variable(a, count, texts)
                                             : texts_fixed(a, count, texts);
    if (st != CHEX_OK) {
        chex_h5_free_texts(texts, count);
        if (st == CHEX_E_RESOURCE)
            return chex_error_memory(err, "%s: attribute '%s'", path, name);
        return chex_h5_error(err, st, "H5Aread", __FILE__, __LINE__, "%s: attribute '%s'", path,
                             name);
    }
    *out = texts;
    *count_out = count;
    return CHEX_OK;
}

enum chex_status chex_h5_read_texts(hid_t where, const char *name, const char *path, char ***out,
                                    size_t *count_out, struct chex_error *err) {
    struct attr a;
    enum chex_status st = attr_open(where, name, path, &a, err);
    if (st == CHEX_OK && a.rank != 1)
        st = chex_error_set(err, CHEX_E_DATA, "%s: attribute '%s' has %d dimensions, expected 1",
                            path, name, a.rank);
    if (st == CHEX_OK)
        st = attr_texts(&a, name, path, out, count_out, err);
    attr_close(&a);
    return st;
}

enum chex_status chex_h5_read_text(hid_t where, const char *name, const char *path, char **out,
                                   struct chex_error *err) {
    struct attr a;
    char **texts = NULL;
    size_t count = 0;
    enum chex_status st = attr_open(where, name, path, &a, err);
    if (st == CHEX_OK && a.points != 1)
        st = chex_error_set(err, CHEX_E_DATA, "%s: attribute '%s' has %lld values, expected 1",
                            path, name, (long long)a.points);
    if (st == CHEX_OK)
        st = attr_texts(&a, name, path, &texts, &count, err);
    attr_close(&a);
    if (st != CHEX_OK)
        return st;
    *out = texts[0];
    free(texts);
    return CHEX_OK;
}

void chex_h5_free_texts(char **texts, size_t count) {
    for (size_t i = 0; texts && i < count; i++)
        free(texts[i]);
    free(texts);
}

enum chex_status chex_h5_read_i64(hid_t where, const char *name, const char *path, int64_t *out,
                                  struct chex_error *err) {
    struct attr a;
    enum chex_status st = attr_open(where, name, path, &a, err);
    if (st == CHEX_OK && (a.points != 1 || H5Tget_class(a.type) != H5T_INTEGER))
        st = chex_error_set(err, CHEX_E_DATA, "%s: attribute '%s' is not one integer", path, name);
    if (st == CHEX_OK)
        st = ATTRIBUTE(H5Aread(a.id, H5T_NATIVE_INT64, out));
    attr_close(&a);
    return st;
}
