/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens one shard file, checks its content and reads its rows (shard.h).
 *
 * A shard may be untrusted. Opening therefore checks type and shape of every
 * dataset, the range of every value, and that no dataset refers to another file.
 *
 * Images are read with pread at the offset of the image block. If the images are not one contiguous
 * block (another program wrote the file), the HDF5 file stays open and HDF5 reads the rows, one
 * thread at a time.
 */
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
#include "base/log.h"
#include "label/labels_map.h"
#include "shard/shard.h"
#include "shard/shard_write.h"

struct chex_shard {
    char *path;
    int fd;            /* for pread; -1: HDF5 reads the rows */
    uint64_t offset;   /* of the image block in the file */
    hid_t file, image; /* open only if HDF5 reads the rows */
    size_t rows, row_bytes, class_count;
    int size, classes;
    char **class_names;
    char *resize, *split, *source_digest, *tool_version;
    int8_t *labels;                // (rows, classes)
    char *image_ids, *patient_ids; // (rows, width), each ends in NUL
    char *study_ids;               // the same; NULL: the shard has none
    size_t study_width;
    uint16_t *original;                // (rows, 2): height and width; NULL: the shard has none
    size_t image_width, patient_width; // NUL included
    uint8_t *view, *sex;               // (rows)
    int16_t *age;                      // (rows)
    uint64_t *checksum;                // (rows)
};

/* The columns of numbers, one line for each, as in doc/shard-format.md. */
enum column { LABEL, VIEW, AGE, SEX, CHECKSUM, ORIGINAL, COLUMNS };
static const struct {
    const char *name, *type;
    size_t bytes;
    bool is_signed;
} columns[COLUMNS] = {[LABEL] = {"label", "i8", 1, true},
                      [VIEW] = {"view", "u8", 1, false},
                      [AGE] = {"age_years", "i16", 2, true},
                      [SEX] = {"sex", "u8", 1, false},
                      [CHECKSUM] = {"checksum", "u64", 8, false},
                      [ORIGINAL] = {"original_size", "u16", 2, false}}; /* optional */

static hid_t memory_type(enum column c) {
    switch (c) {
    case LABEL: return H5T_NATIVE_INT8;
    case AGE: return H5T_NATIVE_INT16;
    case CHECKSUM: return H5T_NATIVE_UINT64;
    case ORIGINAL: return H5T_NATIVE_UINT16;
    default: return H5T_NATIVE_UINT8;
    }
}

/* An open dataset with its type and shape. */
struct dataset {
    hid_t id, type, space;
    int rank;
    hsize_t dims[3];
};

static void dataset_close(struct dataset *d) {
    chex_h5_close(d->space);
    chex_h5_close(d->type);
    chex_h5_close(d->id);
    d->id = d->type = d->space = H5I_INVALID_HID;
}

#define DATASET(call) CHEX_H5(call, CHEX_E_DATA, err, "%s: dataset '%s'", s->path, name)

/* The error of a shard that is not valid. */
#define BAD(format, ...) chex_error_data(err, "%s: " format, s->path, __VA_ARGS__)

/* Refuses datasets that HDF5 would read from another file (virtual or external storage), and those
 * that were never written. */
static enum chex_status check_storage(const struct chex_shard *s, const char *name,
                                      const struct dataset *d, struct chex_error *err) {
    hid_t dcpl = H5I_INVALID_HID;
    CHEX_TRY(DATASET(dcpl = H5Dget_create_plist(d->id)));
    bool elsewhere = H5Pget_layout(dcpl) == H5D_VIRTUAL ||
                     (H5Pget_layout(dcpl) == H5D_CONTIGUOUS && H5Pget_external_count(dcpl) > 0);
    bool unwritten = H5Sget_simple_extent_npoints(d->space) > 0 && H5Dget_storage_size(d->id) == 0;
    chex_h5_close(dcpl);
    H5Eclear2(H5E_DEFAULT);
    if (elsewhere)
        return BAD("dataset '%s' lies in another file", name);
    return unwritten ? BAD("dataset '%s' was never written", name) : CHEX_OK;
}

/* Opens a dataset and checks its rank. The caller calls dataset_close(), on failure too. */
static enum chex_status dataset_open(const struct chex_shard *s, const char *name, int rank,
                                     struct dataset *d, struct chex_error *err) {
    *d = (struct dataset){H5I_INVALID_HID, H5I_INVALID_HID, H5I_INVALID_HID, 0, {0}};
    htri_t there = 0;
    CHEX_TRY(DATASET(there = H5Lexists(s->file, name, H5P_DEFAULT)));
    if (!there)
        return BAD("no dataset '%s'", name);
    CHEX_TRY(DATASET(d->id = H5Dopen2(s->file, name, H5P_DEFAULT)));
    CHEX_TRY(DATASET(d->type = H5Dget_type(d->id)));
    CHEX_TRY(DATASET(d->space = H5Dget_space(d->id)));
    d->rank = H5Sget_simple_extent_ndims(d->space);
    if (d->rank != rank)
        return BAD("dataset '%s' has %d dimensions, expected %d", name, d->rank, rank);
    H5Sget_simple_extent_dims(d->space, d->dims, NULL);
    return check_storage(s, name, d, err);
}

static enum chex_status check_rows(const struct chex_shard *s, const char *name,
                                   const struct dataset *d, struct chex_error *err) {
    if (d->dims[0] != s->rows)
        return BAD("dataset '%s' has %llu rows, 'image' has %zu", name,
                   (unsigned long long)d->dims[0], s->rows);
    return CHEX_OK;
}

static bool is_integer(const struct dataset *d, size_t bytes, bool is_signed) {
    return H5Tget_class(d->type) == H5T_INTEGER && H5Tget_size(d->type) == bytes &&
           (H5Tget_sign(d->type) == H5T_SGN_2) == is_signed;
}

static enum chex_status read_column(const struct chex_shard *s, enum column c, void **out,
                                    struct chex_error *err) {
    CHEX_AUTO(dataset_close) struct dataset d;
    CHEX_AUTO_FREE void *data = NULL;
    const char *name = columns[c].name;
    const size_t per_row = c == LABEL ? s->class_count : c == ORIGINAL ? 2 : 1;
    const bool wide = c == LABEL || c == ORIGINAL;
    CHEX_TRY(dataset_open(s, name, wide ? 2 : 1, &d, err));
    CHEX_TRY(check_rows(s, name, &d, err));
    if (c == LABEL && d.dims[1] != per_row)
        return BAD("dataset 'label' has %llu columns for %zu findings",
                   (unsigned long long)d.dims[1], per_row);
    if (c == ORIGINAL && d.dims[1] != per_row)
        return BAD("dataset '%s' has %llu columns, expected height and width", name,
                   (unsigned long long)d.dims[1]);
    if (!is_integer(&d, columns[c].bytes, columns[c].is_signed))
        return BAD("dataset '%s' is not of type %s", name, columns[c].type);
    if (!(data = chex_alloc_zeroed(s->rows, per_row * columns[c].bytes)))
        return chex_error_memory(err, "%s", s->path);
    CHEX_TRY(DATASET(H5Dread(d.id, memory_type(c), H5S_ALL, H5S_ALL, H5P_DEFAULT, data)));
    *out = CHEX_TAKE(data);
    return CHEX_OK;
}

/* Reads fixed-length strings and adds a NUL to each: data is (rows, width), width with the NUL.
 * required: no string may be empty. */
static enum chex_status read_ids(const struct chex_shard *s, const char *name, bool required,
                                 char **out, size_t *width_out, struct chex_error *err) {
    enum { LIMIT = CHEX_MAX_ID_BYTES + 1 };
    CHEX_AUTO(dataset_close) struct dataset d;
    CHEX_AUTO_FREE char *data = NULL;
    size_t width = 0;
    CHEX_AUTO(chex_h5_close_at) hid_t memory = H5I_INVALID_HID;
    CHEX_TRY(dataset_open(s, name, 1, &d, err));
    CHEX_TRY(check_rows(s, name, &d, err));
    if (H5Tget_class(d.type) != H5T_STRING || H5Tis_variable_str(d.type) != 0 ||
        (width = H5Tget_size(d.type) + 1) > LIMIT)
        return BAD("dataset '%s' does not hold strings of a fixed length", name);
    if (!(data = chex_alloc_zeroed(s->rows, width)))
        return chex_error_memory(err, "%s", s->path);
    CHEX_TRY(chex_h5_fixed_string(width, &memory, err));
    H5Tset_cset(memory, H5Tget_cset(d.type));
    CHEX_TRY(DATASET(H5Dread(d.id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data)));
    for (size_t i = 0; required && i < s->rows; i++)
        if (!data[i * width])
            return BAD("row %zu: empty %s", i, name);
    *out = CHEX_TAKE(data);
    *width_out = width;
    return CHEX_OK;
}

static enum chex_status check_classes(const struct chex_shard *s, struct chex_error *err) {
    for (int a = 0; a < s->classes; a++) {
        if (!s->class_names[a][0])
            return BAD("finding %d has no name", a);
        for (int b = 0; b < a; b++)
            if (strcmp(s->class_names[a], s->class_names[b]) == 0)
                return BAD("findings %d and %d are both '%.60s'", b, a, s->class_names[a]);
    }
    return CHEX_OK;
}

static enum chex_status read_attributes(struct chex_shard *s, struct chex_error *err) {
    int64_t version = 0, size = 0;
    CHEX_AUTO_FREE char *format = NULL;
    if (!chex_h5_has_attr(s->file, "format")) {
        H5Eclear2(H5E_DEFAULT);
        return BAD("not a shard: no attribute '%s'", "format");
    }
    CHEX_TRY(chex_h5_read_text(s->file, "format", s->path, &format, err));
    if (strcmp(format, "chexnet-shard") != 0)
        return BAD("not a shard: format is '%.60s', expected '%s'", format, "chexnet-shard");
    CHEX_TRY(chex_h5_read_i64(s->file, "version", s->path, &version, err));
    if (version != CHEX_SHARD_VERSION)
        return BAD("shard version %lld, this program reads version %d%s", (long long)version,
                   (int)CHEX_SHARD_VERSION,
                   version > CHEX_SHARD_VERSION ? ": a newer chexnet wrote it" : "");
    CHEX_TRY(chex_h5_read_i64(s->file, "size", s->path, &size, err));
    if (size < 1 || size > CHEX_SHARD_MAX_SIZE_PX)
        return BAD("size is %lld px, expected 1 to %d", (long long)size,
                   (int)CHEX_SHARD_MAX_SIZE_PX);
    s->size = (int)size;
    s->row_bytes = (size_t)size * (size_t)size;
    CHEX_TRY(
        chex_h5_read_texts(s->file, "classes", s->path, &s->class_names, &s->class_count, err));
    if (s->class_count > CHEX_MAX_CLASSES)
        return BAD("%zu findings, expected at most %d", s->class_count, (int)CHEX_MAX_CLASSES);
    s->classes = (int)s->class_count;
    CHEX_TRY(check_classes(s, err));
    CHEX_TRY(chex_h5_read_text(s->file, "resize", s->path, &s->resize, err));
    CHEX_TRY(chex_h5_read_text(s->file, "split", s->path, &s->split, err));
    CHEX_TRY(chex_h5_read_text(s->file, "source_digest", s->path, &s->source_digest, err));
    if (strlen(s->source_digest) != 32 || strspn(s->source_digest, "0123456789abcdef") != 32)
        return BAD("%s is not 32 hex digits", "source_digest");
    return chex_h5_read_text(s->file, "tool_version", s->path, &s->tool_version, err);
}

/* True if the images are one contiguous block of the file; then its offset. */
static bool one_block(const struct chex_shard *s, hid_t image, uint64_t *offset_out) {
    hid_t dcpl = H5Dget_create_plist(image);
    bool plain = dcpl >= 0 && H5Pget_layout(dcpl) == H5D_CONTIGUOUS &&
                 H5Dget_storage_size(image) == (hsize_t)s->rows * s->row_bytes;
    chex_h5_close(dcpl);
    if (!plain)
        return false;
    haddr_t at = H5Dget_offset(image);
    *offset_out = at;
    return at != HADDR_UNDEF;
}

static void warn_slow_once(const struct chex_shard *s) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&warned))
        chex_warn("%s: the images are not one contiguous block; they are read through HDF5, one "
                  "thread at a time",
                  s->path);
}

/* Chooses how rows are read: pread (sets fd and offset) or HDF5 (takes over *image). */
static enum chex_status place_images(struct chex_shard *s, hid_t *image, struct chex_error *err) {
    if (!one_block(s, *image, &s->offset)) {
        H5Eclear2(H5E_DEFAULT);
        warn_slow_once(s);
        s->image = *image;
        *image = H5I_INVALID_HID;
        return CHEX_OK;
    }
    uint64_t need = s->rows * (uint64_t)s->row_bytes, have = 0;
    CHEX_TRY(chex_fs_open(s->path, &s->fd, &have, err));
    if (s->offset > have || need > have - s->offset)
        return BAD("truncated: images end at byte %llu, the file has %llu",
                   (unsigned long long)(s->offset + need), (unsigned long long)have);
    return CHEX_OK;
}

static enum chex_status open_images(struct chex_shard *s, struct chex_error *err) {
    enum { ROW_LIMIT = 1 << 30 };
    CHEX_AUTO(dataset_close) struct dataset d;
    CHEX_TRY(dataset_open(s, "image", 3, &d, err));
    if (!is_integer(&d, 1, false))
        return BAD("dataset '%s' is not of type u8", "image");
    hsize_t side = (hsize_t)s->size;
    if (d.dims[1] != side || d.dims[2] != side)
        return BAD("images of %llu x %llu px, but attribute 'size' is %d",
                   (unsigned long long)d.dims[1], (unsigned long long)d.dims[2], s->size);
    if (d.dims[0] < 1 || d.dims[0] > ROW_LIMIT)
        return BAD("%llu rows, expected 1 to %d", (unsigned long long)d.dims[0], (int)ROW_LIMIT);
    s->rows = d.dims[0];
    return place_images(s, &d.id, err);
}

static enum chex_status check_views_and_sexes(const struct chex_shard *s, struct chex_error *err) {
    for (size_t i = 0; i < s->rows; i++) {
        if (s->view[i] > CHEX_VIEW_LATERAL)
            return BAD("row %zu: view %d, expected 0 to %d", i, s->view[i], (int)CHEX_VIEW_LATERAL);
        if (s->sex[i] != 0 && s->sex[i] != 'M' && s->sex[i] != 'F')
            return BAD("row %zu: sex %d, expected %d, %d or 0", i, s->sex[i], 'M', 'F');
    }
    return CHEX_OK;
}

static enum chex_status check_unique(const struct chex_shard *s, struct chex_error *err) {
    CHEX_AUTO(chex_label_map_release) struct chex_label_map rows = {0};
    for (size_t i = 0, first; i < s->rows; i++) {
        const char *id = chex_shard_image_id(s, i);
        CHEX_TRY(chex_label_map_add(&rows, id, i, &first, err));
        if (first != i)
            return BAD("rows %zu and %zu have one image_id: %s", first, i, id);
    }
    return CHEX_OK;
}

static enum chex_status check_labels(const struct chex_shard *s, struct chex_error *err) {
    for (size_t i = 0; i < s->rows * s->class_count; i++)
        if (s->labels[i] < CHEX_LABEL_NOT_STATED || s->labels[i] > 1)
            return BAD("row %zu: label %d of %s, expected -2 to 1", i / s->class_count,
                       s->labels[i], s->class_names[i % s->class_count]);
    return CHEX_OK;
}

/* Reads the datasets that a shard may lack. */
static enum chex_status read_optional(struct chex_shard *s, struct chex_error *err) {
    const char *name = "study_id";
    htri_t studies = 0, sizes = 0;
    void *data = NULL;
    CHEX_TRY(DATASET(studies = H5Lexists(s->file, name, H5P_DEFAULT)));
    if (studies)
        CHEX_TRY(read_ids(s, name, false, &s->study_ids, &s->study_width, err));
    name = columns[ORIGINAL].name;
    CHEX_TRY(DATASET(sizes = H5Lexists(s->file, name, H5P_DEFAULT)));
    if (sizes)
        CHEX_TRY(read_column(s, ORIGINAL, &data, err));
    s->original = data;
    return CHEX_OK;
}

static enum chex_status read_all(struct chex_shard *s, struct chex_error *err) {
    CHEX_TRY(chex_h5_file_open(s->path, CHEX_H5_READ, &s->file, err));
    CHEX_TRY(read_attributes(s, err));
    CHEX_TRY(open_images(s, err));
    void *data[ORIGINAL] = {NULL};
    enum chex_status st = CHEX_OK;
    for (int c = 0; st == CHEX_OK && c < ORIGINAL; c++)
        st = read_column(s, (enum column)c, &data[c], err);
    s->labels = data[LABEL], s->view = data[VIEW], s->age = data[AGE], s->sex = data[SEX];
    s->checksum = data[CHECKSUM];
    CHEX_TRY(st);
    CHEX_TRY(read_ids(s, "image_id", true, &s->image_ids, &s->image_width, err));
    CHEX_TRY(read_ids(s, "patient_id", true, &s->patient_ids, &s->patient_width, err));
    CHEX_TRY(read_optional(s, err));
    CHEX_TRY(check_labels(s, err));
    CHEX_TRY(check_views_and_sexes(s, err));
    return check_unique(s, err);
}

enum chex_status chex_shard_open(const char *path, struct chex_shard **shard_out,
                                 struct chex_error *err) {
    struct chex_shard *s = calloc(1, sizeof *s);
    if (s)
        s->path = strdup(path);
    if (!s || !s->path) {
        free(s);
        return chex_error_memory(err, "%s", path);
    }
    s->fd = -1;
    s->file = s->image = H5I_INVALID_HID;
    chex_h5_enter();
    enum chex_status st = read_all(s, err);
    if (s->image < 0) {
        chex_h5_close(s->file);
        s->file = H5I_INVALID_HID;
    }
    st = chex_h5_finish(st, path, err);
    if (st != CHEX_OK) {
        chex_shard_close(s);
        return st;
    }
    *shard_out = s;
    return CHEX_OK;
}

void chex_shard_close(struct chex_shard *s) {
    if (!s)
        return;
    if (s->file >= 0 || s->image >= 0) {
        chex_h5_enter();
        chex_h5_close(s->image);
        chex_h5_close(s->file);
        chex_h5_leave();
    }
    if (s->fd >= 0)
        close(s->fd);
    chex_h5_free_texts(s->class_names, s->class_count);
    CHEX_FREE(s->resize, s->split, s->source_digest, s->tool_version, s->labels, s->image_ids,
              s->patient_ids, s->study_ids, s->original, s->view, s->sex, s->age, s->checksum,
              s->path, s);
}

const char *chex_shard_path(const struct chex_shard *s) { return s->path; }
size_t chex_shard_rows(const struct chex_shard *s) { return s->rows; }
int chex_shard_size(const struct chex_shard *s) { return s->size; }
int chex_shard_classes(const struct chex_shard *s) { return s->classes; }
const char *chex_shard_class(const struct chex_shard *s, int c) { return s->class_names[c]; }
const char *chex_shard_resize(const struct chex_shard *s) { return s->resize; }
const char *chex_shard_split(const struct chex_shard *s) { return s->split; }
const char *chex_shard_source_digest(const struct chex_shard *s) { return s->source_digest; }
void chex_shard_add_source(const struct chex_shard *s, uint64_t sum[2]) {
    char half[17] = "";
    memcpy(half, s->source_digest, 16);
    sum[0] += strtoull(half, NULL, 16);
    sum[1] += strtoull(s->source_digest + 16, NULL, 16);
}
const char *chex_shard_tool_version(const struct chex_shard *s) { return s->tool_version; }
const int8_t *chex_shard_labels(const struct chex_shard *s, size_t row) {
    return s->labels + row * s->class_count;
}
const char *chex_shard_image_id(const struct chex_shard *s, size_t row) {
    return s->image_ids + row * s->image_width;
}
const char *chex_shard_patient_id(const struct chex_shard *s, size_t row) {
    return s->patient_ids + row * s->patient_width;
}
const char *chex_shard_study_id(const struct chex_shard *s, size_t row) {
    const char *id = s->study_ids ? s->study_ids + row * s->study_width : "";
    return *id ? id : NULL;
}
int chex_shard_original_height(const struct chex_shard *s, size_t row) {
    return s->original ? s->original[2 * row] : 0;
}
int chex_shard_original_width(const struct chex_shard *s, size_t row) {
    return s->original ? s->original[2 * row + 1] : 0;
}
enum chex_view chex_shard_view(const struct chex_shard *s, size_t row) {
    return (enum chex_view)s->view[row];
}
int chex_shard_age_years(const struct chex_shard *s, size_t row) { return s->age[row]; }
char chex_shard_sex(const struct chex_shard *s, size_t row) { return (char)s->sex[row]; }
uint64_t chex_shard_checksum(const struct chex_shard *s, size_t row) { return s->checksum[row]; }

static uint64_t mix_ids(uint64_t h, const char *ids, size_t width, size_t rows) {
    for (size_t i = 0; i < rows; i++)
        h = chex_hash64_mix(h, ids + i * width, strlen(ids + i * width) + 1);
    return h;
}

uint64_t chex_shard_digest(const struct chex_shard *s) {
    uint64_t h = chex_hash64_mix(0, s->checksum, s->rows * sizeof *s->checksum);
    h = chex_hash64_mix(h, s->labels, s->rows * s->class_count);
    h = mix_ids(h, s->image_ids, s->image_width, s->rows);
    h = mix_ids(h, s->patient_ids, s->patient_width, s->rows);
    h = chex_hash64_mix(h, s->view, s->rows);
    h = chex_hash64_mix(h, s->age, s->rows * sizeof *s->age);
    h = chex_hash64_mix(h, s->sex, s->rows);
    if (s->study_ids)
        h = mix_ids(h, s->study_ids, s->study_width, s->rows);
    if (s->original)
        h = chex_hash64_mix(h, s->original, 2 * s->rows * sizeof *s->original);
    return h;
}

static enum chex_status pread_rows(const struct chex_shard *s, size_t row, size_t n,
                                   uint8_t *pixels, struct chex_error *err) {
    const size_t want = n * s->row_bytes;
    const size_t got = chex_fs_pread(s->fd, pixels, want, s->offset + (uint64_t)row * s->row_bytes);
    if (got == want)
        return CHEX_OK;
    row += got / s->row_bytes;
    if (errno)
        return chex_error_errno(err, CHEX_E_ENV, errno, "%s: cannot read row %zu", s->path, row);
    return BAD("row %zu (%s): the file ends here", row, chex_shard_image_id(s, row));
}

/* Between chex_h5_enter() and chex_h5_finish(). */
static enum chex_status hdf5_rows(const struct chex_shard *s, size_t row, size_t n, uint8_t *pixels,
                                  struct chex_error *err) {
    hsize_t side = (hsize_t)s->size, start[3] = {row, 0, 0}, count[3] = {n, side, side};
    CHEX_AUTO(chex_h5_close_at) hid_t space = H5I_INVALID_HID, memory = H5I_INVALID_HID;
#define ROW(call, status) CHEX_H5(call, status, err, "%s: cannot read row %zu", s->path, row)
    CHEX_TRY(ROW(space = H5Dget_space(s->image), CHEX_E_DATA));
    CHEX_TRY(ROW(memory = H5Screate_simple(3, count, NULL), CHEX_E_FAIL));
    CHEX_TRY(
        ROW(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL), CHEX_E_DATA));
    return ROW(H5Dread(s->image, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, pixels),
               CHEX_E_DATA);
#undef ROW
}

enum chex_status chex_shard_read(const struct chex_shard *s, size_t row, size_t n, bool verify,
                                 uint8_t *pixels, struct chex_error *err) {
    if (row > s->rows || n > s->rows - row)
        return chex_error_set(err, CHEX_E_FAIL, "%s: rows %zu to %zu of %zu", s->path, row, row + n,
                              s->rows);
    if (n == 0)
        return CHEX_OK;
    if (s->fd >= 0) {
        CHEX_TRY(pread_rows(s, row, n, pixels, err));
    } else {
        chex_h5_enter();
        CHEX_TRY(chex_h5_finish(hdf5_rows(s, row, n, pixels, err), s->path, err));
    }
    for (size_t i = 0; verify && i < n; i++) {
        uint64_t got = chex_hash64(pixels + i * s->row_bytes, s->row_bytes);
        if (got != s->checksum[row + i])
            return BAD(
                "row %zu (%s): pixels do not match their checksum: %016llx, expected %016llx",
                row + i, chex_shard_image_id(s, row + i), (unsigned long long)got,
                (unsigned long long)s->checksum[row + i]);
    }
    return CHEX_OK;
}

void chex_shard_will_need(const struct chex_shard *s, size_t row, size_t n) {
    if (s->fd >= 0)
        posix_fadvise(s->fd, (off_t)(s->offset + (uint64_t)row * s->row_bytes),
                      (off_t)(n * s->row_bytes), POSIX_FADV_WILLNEED);
}
