/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes one shard file (shard_write.h): reserve, images, tables, seal, rename.
 *
 * 1. chex_shard_create() makes a temporary file and lets HDF5 lay out the image dataset. It notes
 *    the file offset of that dataset, closes HDF5 and reserves the space of the whole shard.
 * 2. chex_shard_put() writes pixels at offset + row * row_bytes with pwrite, from any thread,
 *    without HDF5.
 * 3. chex_shard_finish() opens the file with HDF5 again and adds tables and attributes. It then
 *    appends the seal (base/h5_private.h), syncs and renames the file.
 *
 * A reader never sees a partial shard under the final name.
 */
#include "shard/shard_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/h5_private.h"
#include "base/hash.h"

enum { ALIGN_BYTES = 4096, METADATA_BYTES = 128 << 10, FLUSH_BYTES = 16 << 20 };

struct chex_shard_writer {
    struct chex_shard_spec spec;
    char *path, *temp;
    int fd;
    uint64_t offset; /* of the image block */
    size_t row_bytes;
    size_t image_width, patient_width; /* longest ids */
    size_t study_width;                /* 0: no row has a study */
    uint64_t *checksums;
    uint16_t *original; /* (rows, 2): height and width of the image files; 0: unknown */
    atomic_size_t put;  /* rows written so far */
};

uint64_t chex_shard_file_bytes(size_t rows, int size, int classes, size_t id_bytes) {
    uint64_t row = (uint64_t)size * (uint64_t)size + (uint64_t)classes + id_bytes + 16;
    return rows * row + METADATA_BYTES + 16 * (uint64_t)ALIGN_BYTES;
}

static enum chex_status check_spec(const char *path, const struct chex_shard_spec *s,
                                   struct chex_error *err) {
    if (s->rows < 1)
        return chex_error_data(err, "%s: a shard needs at least one row", path);
    if (s->size < 1 || s->size > CHEX_SHARD_MAX_SIZE_PX || s->classes < 1 ||
        s->classes > CHEX_MAX_CLASSES)
        return chex_error_set(err, CHEX_E_USAGE,
                              "%s: %d px and %d findings: expected 1 to %d px and 1 to %d findings",
                              path, s->size, s->classes, (int)CHEX_SHARD_MAX_SIZE_PX,
                              (int)CHEX_MAX_CLASSES);
    return CHEX_OK;
}

static enum chex_status measure_ids(struct chex_shard_writer *w, struct chex_error *err) {
    w->image_width = w->patient_width = 1;
    for (size_t i = 0; i < w->spec.rows; i++) {
        struct chex_shard_row row = {0};
        w->spec.row(w->spec.arg, i, &row);
        size_t a = strlen(row.image_id), b = strlen(row.patient_id);
        if (a == 0 || b == 0)
            return chex_error_data(err, "%s: row %zu has an empty image or patient id", w->path, i);
        w->image_width = a > w->image_width ? a : w->image_width;
        w->patient_width = b > w->patient_width ? b : w->patient_width;
        const size_t c = row.study_id ? strlen(row.study_id) : 0;
        w->study_width = c > w->study_width ? c : w->study_width;
    }
    return CHEX_OK;
}

/* If the file system cannot reserve space, glibc's posix_fallocate writes one byte to every block.
 * If that fails too (EOPNOTSUPP, EINVAL), the space is not reserved, and pwrite reports a full
 * disk. */
static enum chex_status reserve(int fd, const char *path, uint64_t bytes, struct chex_error *err) {
    int rc;
    do
        rc = posix_fallocate(fd, 0, (off_t)bytes);
    while (rc == EINTR);
    if (rc != 0 && rc != EOPNOTSUPP && rc != EINVAL)
        return chex_error_errno(err, CHEX_E_ENV, rc, "cannot reserve %llu bytes for %s",
                                (unsigned long long)bytes, path);
    return CHEX_OK;
}

/* Reserves space before HDF5 opens the file: HDF5 cannot close a file if its metadata does not fit
 * on the disk. HDF5 then opens the file by name. That is safe: the name is random, and O_EXCL
 * created the file. */
static enum chex_status open_temp(struct chex_shard_writer *w, uint64_t bytes,
                                  struct chex_error *err) {
    CHEX_TRY(chex_fs_temp(w->path, &w->temp, &w->fd, err));
    return reserve(w->fd, w->path, bytes, err);
}

static enum chex_status create_image(struct chex_shard_writer *w, struct chex_error *err) {
    CHEX_AUTO(chex_h5_close_at) hid_t file = H5I_INVALID_HID, image = H5I_INVALID_HID;
    hsize_t side = (hsize_t)w->spec.size, dims[3] = {w->spec.rows, side, side};
    CHEX_TRY(chex_h5_file_create(w->temp, ALIGN_BYTES, &file, err));
    CHEX_TRY(chex_h5_write_dataset(file, "image", H5T_STD_U8LE, H5T_NATIVE_UINT8, 3, dims, NULL,
                                   w->temp, err));
    CHEX_TRY(
        CHEX_H5(image = H5Dopen2(file, "image", H5P_DEFAULT), CHEX_E_FAIL, err, "%s", w->temp));
    haddr_t at = H5Dget_offset(image);
    if (at == HADDR_UNDEF)
        return chex_h5_error(err, CHEX_E_FAIL, "H5Dget_offset", __FILE__, __LINE__,
                             "%s: no place for the images", w->temp);
    w->offset = at;
    chex_h5_close(image);
    image = H5I_INVALID_HID;
    return chex_h5_file_close(&file, w->temp, err);
}

enum chex_status chex_shard_create(const char *path, const struct chex_shard_spec *spec,
                                   struct chex_shard_writer **writer_out, struct chex_error *err) {
    CHEX_TRY(check_spec(path, spec, err));
    CHEX_AUTO(chex_shard_abandon_at) struct chex_shard_writer *w = calloc(1, sizeof *w);
    if (!w)
        return chex_error_memory(err, "%s", path);
    w->spec = *spec;
    w->fd = -1;
    w->row_bytes = (size_t)spec->size * (size_t)spec->size;
    w->path = strdup(path);
    w->checksums = chex_alloc_zeroed(spec->rows, sizeof *w->checksums);
    w->original = chex_alloc_zeroed(spec->rows, 2 * sizeof *w->original);
    if (!w->path || !w->checksums || !w->original)
        return chex_error_memory(err, "%s", path);
    CHEX_TRY(measure_ids(w, err));
    uint64_t bytes = chex_shard_file_bytes(spec->rows, spec->size, spec->classes,
                                           w->image_width + w->patient_width + w->study_width);
    CHEX_TRY(open_temp(w, METADATA_BYTES, err));
    chex_h5_enter();
    CHEX_TRY(chex_h5_finish(create_image(w, err), path, err));
    CHEX_TRY(reserve(w->fd, path, bytes, err));
    *writer_out = CHEX_TAKE(w);
    return CHEX_OK;
}

enum chex_status chex_shard_put(struct chex_shard_writer *w, size_t row, const uint8_t *pixels,
                                struct chex_error *err) {
    const uint64_t at = w->offset + (uint64_t)row * w->row_bytes;
    if (chex_fs_pwrite(w->fd, pixels, w->row_bytes, at) != w->row_bytes)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", w->path);
    w->checksums[row] = chex_hash64(pixels, w->row_bytes);
    /* Start writing to disk every FLUSH_BYTES, so that fdatasync in chex_shard_finish() is short. A
     * failure is ignored: fdatasync then does all the work. */
    size_t put = atomic_fetch_add(&w->put, 1) + 1, batch = FLUSH_BYTES / w->row_bytes + 1;
    if (put % batch == 0)
        sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return CHEX_OK;
}

void chex_shard_set_original(struct chex_shard_writer *w, size_t row, int width, int height) {
    w->original[2 * row] = (uint16_t)height;
    w->original[2 * row + 1] = (uint16_t)width;
}

/* The tables of a shard: all datasets except images and checksums. */
struct columns {
    int8_t *label;
    char *image, *patient, *study; /* (rows, width), NUL-padded */
    uint8_t *view, *sex;
    int16_t *age;
};

static void columns_free(struct columns *c) {
    CHEX_FREE(c->label, c->image, c->patient, c->study, c->view, c->sex, c->age);
}

static bool columns_fill(const struct chex_shard_writer *w, struct columns *c) {
    size_t n = w->spec.rows, classes = (size_t)w->spec.classes;
    *c = (struct columns){.label = chex_alloc_zeroed(n, classes),
                          .image = chex_alloc_zeroed(n, w->image_width),
                          .patient = chex_alloc_zeroed(n, w->patient_width),
                          .study = chex_alloc_zeroed(n, w->study_width + 1),
                          .view = chex_alloc_zeroed(n, 1),
                          .sex = chex_alloc_zeroed(n, 1),
                          .age = chex_alloc_zeroed(n, sizeof *c->age)};
    if (!c->label || !c->image || !c->patient || !c->study || !c->view || !c->sex || !c->age)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct chex_shard_row row = {0};
        w->spec.row(w->spec.arg, i, &row);
        memcpy(c->label + i * classes, row.labels, classes);
        memcpy(c->image + i * w->image_width, row.image_id, strlen(row.image_id));
        memcpy(c->patient + i * w->patient_width, row.patient_id, strlen(row.patient_id));
        if (row.study_id)
            memcpy(c->study + i * w->study_width, row.study_id, strlen(row.study_id));
        c->view[i] = (uint8_t)row.view;
        c->sex[i] = (uint8_t)row.sex;
        int age = row.age_years;
        c->age[i] = (int16_t)(age < 0 ? -1 : age > INT16_MAX ? INT16_MAX : age);
    }
    return true;
}

static bool has_original(const struct chex_shard_writer *w) {
    for (size_t i = 0; i < 2 * w->spec.rows; i++)
        if (w->original[i])
            return true;
    return false;
}

/* The datasets that a shard has only if a row has a value. */
static enum chex_status write_optional(struct chex_shard_writer *w, hid_t file,
                                       const struct columns *c, struct chex_error *err) {
    const hsize_t dims[2] = {w->spec.rows, 2};
    if (w->study_width)
        CHEX_TRY(chex_h5_write_strings(file, "study_id", w->study_width, w->spec.rows, c->study,
                                       w->path, err));
    if (!has_original(w))
        return CHEX_OK;
    return chex_h5_write_dataset(file, "original_size", H5T_STD_U16LE, H5T_NATIVE_UINT16, 2, dims,
                                 w->original, w->path, err);
}

static enum chex_status write_columns(struct chex_shard_writer *w, hid_t file,
                                      const struct columns *c, struct chex_error *err) {
    hsize_t dims[2] = {w->spec.rows, (hsize_t)w->spec.classes};
    const char *p = w->path;
    CHEX_TRY(chex_h5_write_dataset(file, "label", H5T_STD_I8LE, H5T_NATIVE_INT8, 2, dims, c->label,
                                   p, err));
    CHEX_TRY(chex_h5_write_strings(file, "image_id", w->image_width, w->spec.rows, c->image,
                                   w->path, err));
    CHEX_TRY(chex_h5_write_strings(file, "patient_id", w->patient_width, w->spec.rows, c->patient,
                                   w->path, err));
    CHEX_TRY(chex_h5_write_dataset(file, "view", H5T_STD_U8LE, H5T_NATIVE_UINT8, 1, dims, c->view,
                                   p, err));
    CHEX_TRY(chex_h5_write_dataset(file, "age_years", H5T_STD_I16LE, H5T_NATIVE_INT16, 1, dims,
                                   c->age, p, err));
    CHEX_TRY(chex_h5_write_dataset(file, "sex", H5T_STD_U8LE, H5T_NATIVE_UINT8, 1, dims, c->sex, p,
                                   err));
    return chex_h5_write_dataset(file, "checksum", H5T_STD_U64LE, H5T_NATIVE_UINT64, 1, dims,
                                 w->checksums, p, err);
}

static enum chex_status write_attributes(struct chex_shard_writer *w, hid_t file,
                                         const char *source_digest, struct chex_error *err) {
    const struct chex_shard_spec *s = &w->spec;
    const char *p = w->path;
    CHEX_TRY(chex_h5_write_text(file, "format", "chexnet-shard", p, err));
    CHEX_TRY(chex_h5_write_i64(file, "version", CHEX_SHARD_VERSION, p, err));
    CHEX_TRY(chex_h5_write_texts(file, "classes", s->class_names, (size_t)s->classes, p, err));
    CHEX_TRY(chex_h5_write_i64(file, "size", s->size, p, err));
    CHEX_TRY(chex_h5_write_text(file, "resize", s->resize, p, err));
    CHEX_TRY(chex_h5_write_text(file, "split", s->split, p, err));
    CHEX_TRY(chex_h5_write_text(file, "source_digest", source_digest, p, err));
    return chex_h5_write_text(file, "tool_version", s->tool_version, p, err);
}

static enum chex_status write_tables(struct chex_shard_writer *w, const struct columns *c,
                                     const char *source_digest, struct chex_error *err) {
    CHEX_AUTO(chex_h5_close_at) hid_t file = H5I_INVALID_HID;
    const enum chex_status st = chex_h5_file_open(w->temp, CHEX_H5_WRITE, &file, err);
    if (st == CHEX_E_DATA) { /* no input: somebody has removed or changed the file meanwhile */
        const struct chex_error why = err ? *err : (struct chex_error){0};
        return chex_error_set(err, CHEX_E_ENV, "%s", why.text);
    }
    CHEX_TRY(st);
    CHEX_TRY(write_columns(w, file, c, err));
    CHEX_TRY(write_optional(w, file, c, err));
    CHEX_TRY(write_attributes(w, file, source_digest, err));
    return chex_h5_file_close(&file, w->temp, err);
}

enum chex_status chex_shard_finish(struct chex_shard_writer *writer, const char *source_digest,
                                   struct chex_error *err) {
    /* After the rename, abandoning removes no file: there is no temporary name left. */
    CHEX_AUTO(chex_shard_abandon_at) struct chex_shard_writer *w = writer;
    CHEX_AUTO(columns_free) struct columns c = {0};
    size_t put = atomic_load(&w->put);
    if (put != w->spec.rows)
        return chex_error_set(err, CHEX_E_FAIL, "%s: %zu of %zu rows written", w->path, put,
                              w->spec.rows);
    if (fdatasync(w->fd) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", w->path);
    if (!columns_fill(w, &c))
        return chex_error_memory(err, "%s", w->path);
    chex_h5_enter();
    CHEX_TRY(chex_h5_finish(write_tables(w, &c, source_digest, err), w->path, err));
    /* The rows have checksums; the seal covers the rest of the file. */
    CHEX_TRY(chex_h5_seal_file(w->fd, w->path, w->offset,
                               w->offset + (uint64_t)w->spec.rows * w->row_bytes, err));
    return chex_fs_commit(w->temp, w->path, err);
}

void chex_shard_abandon(struct chex_shard_writer *w) {
    if (!w)
        return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->temp);
    }
    CHEX_FREE(w->checksums, w->original, w->path, w->temp, w);
}
