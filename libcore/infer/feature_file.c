/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files of features, and finds the rows of images in them (feature_file.h).
 */
#include "infer/feature_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/h5_private.h"
#include "base/hash.h"
#include "base/text.h"
#include "label/csv.h"
#include "label/table_file.h"
#include "model/tensor_set.h"

static enum chex_status allocate(struct chex_feature_file *f, uint64_t rows, uint64_t count,
                                 struct chex_error *err) {
    if (rows < 1 || rows > UINT32_MAX || count < 1 || count > CHEX_NET_FEATURES_MOST)
        return chex_error_set(err, CHEX_E_DATA, "%s: %llu rows of %llu numbers, expected 1 to %d",
                              f->path, (unsigned long long)rows, (unsigned long long)count,
                              (int)CHEX_NET_FEATURES_MOST);
    f->rows = rows;
    f->count = count;
    f->ids = chex_alloc_zeroed(rows, sizeof *f->ids);
    f->numbers = chex_alloc_aligned(rows, count * sizeof *f->numbers);
    return f->ids && f->numbers ? CHEX_OK : chex_error_memory(err, "%s", f->path);
}

static enum chex_status check_ids(const struct chex_feature_file *f, size_t ids,
                                  struct chex_error *err) {
    return ids == f->rows
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_DATA, "%s: %zu rows of features, and %zu image ids",
                                f->path, f->rows, ids);
}

/* ---- npy ---- */

char *chex_feature_csv_path(const char *npy) {
    const size_t n = strlen(npy);
    return chex_fs_format("%.*s.csv", (int)(chex_text_ends_with(npy, ".npy") ? n - 4 : n), npy);
}

/* The value of a key of the header, a Python dictionary; "" if it has none. */
static const char *value_of(const char *header, const char *key) {
    const char *at = strstr(header, key);
    at = at ? at + strlen(key) : "";
    return at + strspn(at, "': ");
}

/* Converts {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and `bytes` of numbers. */
static enum chex_status convert(struct chex_feature_file *f, const char *header,
                                const char *numbers, size_t bytes, struct chex_error *err) {
    const char *type = value_of(header, "'descr'"), *shape = value_of(header, "'shape'");
    unsigned long long rows = 0, count = 0;
    int end = 0;
    if (strncmp(type, "<f", 2) != 0 || strspn(type + 2, "248") != 1 || type[3] != '\'' ||
        strncmp(value_of(header, "'fortran_order'"), "False", 5) != 0 ||
        sscanf(shape, "(%llu, %llu%n", &rows, &count, &end) != 2 || shape[end] != ')')
        return chex_error_set(
            err, CHEX_E_DATA,
            "%s: an array of %.*s}, expected (images, numbers) of <f2, <f4 or <f8 "
            "in C order: write numpy.ascontiguousarray(x, \"float32\")",
            f->path, (int)strcspn(header, "}"), header);
    if (bytes != rows * count * (size_t)(type[2] - '0'))
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: truncated or damaged: %zu bytes for %llu rows of %llu numbers",
                              f->path, bytes, rows, count);
    CHEX_TRY(allocate(f, rows, count, err));
    const struct chex_tensor t = {.type = type[2] == '2'   ? CHEX_TENSOR_F16
                                          : type[2] == '4' ? CHEX_TENSOR_F32
                                                           : CHEX_TENSOR_F64,
                                  .rank = 1,
                                  .dims = {rows * count},
                                  .strides = {1},
                                  .data = numbers};
    chex_tensor_values(&t, f->numbers);
    return CHEX_OK;
}

static enum chex_status parse_ids(struct chex_feature_file *f, struct chex_csv *csv,
                                  struct chex_error *err) {
    int column;
    bool more = true;
    CHEX_TRY(chex_csv_header(csv, err));
    CHEX_TRY(chex_csv_find(csv, "image_id", "the ids of the images", &column, err));
    for (size_t row = 0;; row++) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            return check_ids(f, row, err);
        if (row < f->rows && !(f->ids[row].text = strdup(chex_text_of_cell(csv->fields[column]))))
            return chex_error_memory(err, "%s", csv->path);
    }
}

/* Version 1: 8 bytes, the length of the header in 16 bits, the header, the numbers. */
static enum chex_status read_npy(struct chex_feature_file *f, struct chex_error *err) {
    CHEX_AUTO_FREE char *path = chex_feature_csv_path(f->path);
    CHEX_AUTO_FREE char *data = NULL, *text = NULL;
    struct chex_csv csv;
    size_t size;
    CHEX_TRY(chex_fs_read(f->path, UINT64_MAX, &data, &size, err));
    const size_t at = size < 10 ? 0 : 10 + (unsigned char)data[8] + ((unsigned char)data[9] << 8);
    if (at <= 10 || at > size || data[6] != 1)
        return chex_error_set(err, CHEX_E_DATA, "%s: truncated, or not npy version 1", f->path);
    data[at - 1] = '\0'; /* the line feed after the header */
    CHEX_TRY(convert(f, data + 10, data + at, size - at, err));
    enum chex_status st =
        path ? chex_table_read(path, UINT32_MAX, &text, &size, err) : chex_error_memory(err, NULL);
    if (st != CHEX_OK)
        return chex_error_prefix(err, st, "%s: its table of image ids", f->path);
    chex_csv_init(&csv, path, text, size);
    st = parse_ids(f, &csv, err);
    chex_csv_release(&csv);
    return st;
}

/* ---- HDF5 ---- */

#define H5_CALL(call) CHEX_H5(call, CHEX_E_DATA, err, "%s", f->path)

struct dataset {
    hid_t set, type, space;
    hsize_t dims[2];
};

static enum chex_status open_dataset(const struct chex_feature_file *f, hid_t file,
                                     const char *name, int rank, H5T_class_t class,
                                     struct dataset *d, struct chex_error *err) {
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0)
        return chex_error_set(err, CHEX_E_DATA, "%s: no dataset '%s'", f->path, name);
    CHEX_TRY(H5_CALL(d->set = H5Dopen2(file, name, H5P_DEFAULT)));
    CHEX_TRY(H5_CALL(d->type = H5Dget_type(d->set)));
    CHEX_TRY(H5_CALL(d->space = H5Dget_space(d->set)));
    if (H5Sget_simple_extent_ndims(d->space) != rank || H5Tget_class(d->type) != class)
        return chex_error_set(err, CHEX_E_DATA, "%s: dataset '%s' is not a %s", f->path, name,
                              rank == 2 ? "table of floating-point numbers (2 dimensions)"
                                        : "list of strings (1 dimension)");
    return H5_CALL(H5Sget_simple_extent_dims(d->space, d->dims, NULL));
}

/* Strings have a fixed length, or a variable one as h5py writes them. */
static enum chex_status read_strings(struct chex_feature_file *f, const struct dataset *d,
                                     struct chex_error *err) {
    const bool variable = H5Tis_variable_str(d->type) > 0;
    const size_t width = variable ? sizeof(char *) : H5Tget_size(d->type);
    CHEX_AUTO_FREE char *data = chex_alloc_zeroed(f->rows, width);
    bool all = data != NULL;
    CHEX_TRY(all ? H5_CALL(H5Dread(d->set, d->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data))
                 : chex_error_memory(err, "%s", f->path));
    for (size_t i = 0; i < f->rows; i++) {
        char *text = variable ? ((char **)(void *)data)[i] : data + i * width;
        f->ids[i].text = strndup(text ? text : "", variable ? SIZE_MAX : width);
        all = all && f->ids[i].text;
        if (variable)
            H5free_memory(text);
    }
    return all ? CHEX_OK : chex_error_memory(err, "%s", f->path);
}

static enum chex_status read_datasets(struct chex_feature_file *f, hid_t *file, struct dataset d[2],
                                      struct chex_error *err) {
    if (H5Fis_hdf5(f->path) <= 0)
        return chex_error_set(err, CHEX_E_DATA, "%s: neither npy nor HDF5", f->path);
    CHEX_TRY(chex_h5_file_open(f->path, CHEX_H5_READ_ANY, file, err));
    CHEX_TRY(open_dataset(f, *file, "features", 2, H5T_FLOAT, &d[0], err));
    CHEX_TRY(open_dataset(f, *file, "image_id", 1, H5T_STRING, &d[1], err));
    CHEX_TRY(allocate(f, d[0].dims[0], d[0].dims[1], err));
    CHEX_TRY(check_ids(f, d[1].dims[0], err));
    CHEX_TRY(read_strings(f, &d[1], err));
    return H5_CALL(H5Dread(d[0].set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, f->numbers));
}

static enum chex_status read_h5(struct chex_feature_file *f, struct chex_error *err) {
    const hid_t none = H5I_INVALID_HID;
    struct dataset d[2] = {{none, none, none, {0}}, {none, none, none, {0}}};
    hid_t file = none;
    chex_h5_enter();
    const enum chex_status st = read_datasets(f, &file, d, err);
    const hid_t ids[] = {d[0].set, d[0].type, d[0].space, d[1].set, d[1].type, d[1].space, file};
    for (size_t i = 0; i < CHEX_COUNT(ids); i++)
        chex_h5_close(ids[i]);
    return chex_h5_finish(st, f->path, err);
}

/* ---- both ---- */

/* CHEX_E_DATA if there are bad rows. */
static enum chex_status judge(const struct chex_feature_file *f, size_t bad, const char *what,
                              const char *example, struct chex_error *err) {
    return !bad ? CHEX_OK
                : chex_error_set(err, CHEX_E_DATA, "%s: %zu of %zu rows %s, such as '%s'", f->path,
                                 bad, f->rows, what, example);
}

/* Checks all numbers and makes the digest. The ids are in the order of the rows. */
static enum chex_status check_numbers(struct chex_feature_file *f, struct chex_error *err) {
    uint64_t digest = 0;
    size_t bad = 0, first = 0;
    for (size_t row = 0, finite = 0; row < f->rows; row++, finite = 0) {
        const float *one = f->numbers + row * f->count;
        while (finite < f->count && isfinite(one[finite]))
            finite++;
        if (finite < f->count && !bad++)
            first = row;
        digest +=
            chex_hash64_mix(chex_hash64_mix_text(0, f->ids[row].text), one, f->count * sizeof *one);
    }
    snprintf(f->digest, sizeof f->digest, "%016" PRIx64, digest);
    return judge(f, bad, "hold a number that is not finite in fp32", f->ids[first].text, err);
}

static int compare_ids(const void *a, const void *b) {
    return strcmp(((const struct chex_feature_id *)a)->text,
                  ((const struct chex_feature_id *)b)->text);
}

static enum chex_status sort_ids(struct chex_feature_file *f, struct chex_error *err) {
    size_t again = 0, first = 0;
    for (size_t i = 0; i < f->rows; i++)
        f->ids[i].row = i;
    qsort(f->ids, f->rows, sizeof *f->ids, compare_ids);
    for (size_t i = 1; i < f->rows; i++)
        if (compare_ids(&f->ids[i - 1], &f->ids[i]) == 0 && !again++)
            first = i;
    return judge(f, again, "have the image id of another row", f->ids[first].text, err);
}

static enum chex_status read_file(struct chex_feature_file *f, struct chex_error *err) {
    static const char magic[] = "\x93NUMPY";
    char start[sizeof magic] = "";
    int fd = -1;
    CHEX_TRY(chex_fs_open(f->path, &fd, NULL, err));
    (void)chex_fs_pread(fd, start, sizeof start - 1, 0);
    close(fd);
    CHEX_TRY(strcmp(start, magic) == 0 ? read_npy(f, err) : read_h5(f, err));
    snprintf(f->model, sizeof f->model, CHEX_NET_FEATURES "%zu", f->count);
    CHEX_TRY(check_numbers(f, err));
    return sort_ids(f, err);
}

void chex_feature_file_close(struct chex_feature_file *f) {
    for (size_t i = 0; f && f->ids && i < f->rows; i++)
        free(f->ids[i].text);
    if (f) {
        free(f->ids);
        free(f->numbers);
        free(f->path);
    }
    free(f);
}

static const char *image_of(const struct chex_set *set, size_t row) {
    size_t at;
    const struct chex_shard *shard = chex_set_locate(set, row, &at);
    return chex_shard_image_id(shard, at);
}

/* NULL: the file has no features of the image. */
static struct chex_feature_id *find(const struct chex_feature_file *f, const struct chex_set *set,
                                    size_t row) {
    const struct chex_feature_id key = {.text = (char *)image_of(set, row)};
    return bsearch(&key, f->ids, f->rows, sizeof key, compare_ids);
}

enum chex_status chex_feature_file_copy(const struct chex_feature_file *f,
                                        const struct chex_set *set, size_t first, size_t end,
                                        float **out, struct chex_error *err) {
    const size_t bytes = f->count * sizeof **out;
    size_t missing = 0, example = 0;
    if (!(*out = chex_alloc_aligned(end - first + 1, bytes)))
        return chex_error_memory(err, "the features of %zu images", end - first);
    for (size_t i = first; i < end; i++) {
        const struct chex_feature_id *id = find(f, set, i);
        if (id)
            memcpy(*out + (i - first) * f->count, f->numbers + id->row * f->count, bytes);
        else if (!missing++)
            example = i;
    }
    if (!missing)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s: no features of %zu of %zu images of %s, such as '%s'", f->path,
                          missing, end - first, set->dir, image_of(set, example));
}

static enum chex_status check_all(struct chex_feature_file *f, const char *dir,
                                  struct chex_error *err) {
    struct chex_set *set = NULL;
    size_t unknown = 0, first = 0;
    const struct chex_splits all = {0, CHEX_SPLIT_COUNT};
    CHEX_TRY(chex_set_open_splits(dir, all, 0, SIZE_MAX, NULL, NULL, &set, err));
    for (size_t i = 0; i < set->rows; i++) {
        struct chex_feature_id *id = find(f, set, i);
        if (id)
            id->known = true;
    }
    chex_set_close(set);
    for (size_t i = 0; i < f->rows; i++)
        if (!f->ids[i].known && !unknown++)
            first = i;
    return judge(f, unknown, "belong to no image of the set", f->ids[first].text, err);
}

enum chex_status chex_feature_file_open(const char *path, const char *dir, struct chex_group *group,
                                        struct chex_feature_file **out, struct chex_error *err) {
    struct chex_feature_file *f = *out = chex_alloc_zeroed(1, sizeof *f);
    enum chex_status st =
        f && (f->path = strdup(path)) ? read_file(f, err) : chex_error_memory(err, "%s", path);
    if (st == CHEX_OK && group->rank == 0)
        st = check_all(f, dir, err);
    CHEX_TRY(chex_group_agree(group, st, err));
    CHEX_TRY(chex_group_exchange(group, "features", f->digest, sizeof f->digest, err));
    if (memcmp(f->digest, group->all, sizeof f->digest) != 0)
        st = chex_error_set(err, CHEX_E_DATA, "%s: other features than on rank 0", path);
    return chex_group_agree(group, st, err);
}
