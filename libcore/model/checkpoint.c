/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints. The HDF5 file is made in memory and then written as one block: a full disk is then
 * an error of write(2), which we handle, and not one of H5Fclose, after which HDF5 1.10 keeps the
 * file open and tries again for ever. Creation times are not recorded, so equal states make equal
 * files, byte for byte.
 */
#include "model/checkpoint.h"

#include <errno.h>
#include <hdf5.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"

enum { VERSION = 1, MOST_CLASSES = 4096, MOST_IMAGE_PX = 65536 };
static const size_t most_text_bytes = 64u << 20;
static const char format_name[] = "chexnet-checkpoint";

/* ---- HDF5 ---- */

static herr_t innermost(unsigned n, const H5E_error2_t *e, void *text) {
    if (n == 0 && e->desc)
        snprintf(text, 256, "%s", e->desc);
    return 0;
}

/* "PATH: what: HDF5's innermost message". Right after the call that failed: the next one clears
 * HDF5's stack of errors. */
static enum chex_status h5_error(struct chex_error *err, enum chex_status status, const char *path,
                                 const char *what) {
    char text[256] = "no reason given";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, text);
    return chex_error_set(err, status, "%s: %s: HDF5: %s", path, what, text);
}

/* Leaves the stack of errors as it is, so that a failed writer may close its ids before its caller
 * makes the text. */
static void close_id(hid_t id) {
    if (id < 0)
        return;
    hid_t kept = H5Eget_current_stack();
    H5Idec_ref(id);
    H5Eset_current_stack(kept);
}

/* A fixed string type for `bytes`, or one of variable length for 0. */
static hid_t string_type(size_t bytes) {
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, bytes ? bytes : H5T_VARIABLE) < 0 ||
                      H5Tset_cset(type, H5T_CSET_UTF8) < 0 ||
                      (bytes && H5Tset_strpad(type, H5T_STR_NULLPAD) < 0))) {
        H5Tclose(type);
        type = H5I_INVALID_HID;
    }
    return type;
}

/* ---- writing ---- */

static bool put_attr(hid_t at, const char *name, hid_t file_type, hid_t memory_type, hsize_t count,
                     const void *value) {
    hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
    hid_t attr = H5Acreate2(at, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = attr >= 0 && H5Awrite(attr, memory_type, value) >= 0;
    close_id(attr);
    close_id(space);
    return ok;
}

static bool put_int(hid_t at, const char *name, int value) {
    return put_attr(at, name, H5T_STD_I32LE, H5T_NATIVE_INT, 0, &value);
}

static bool put_hash(hid_t at, const char *name, const void *data, size_t bytes) {
    uint64_t hash = chex_hash64(data, bytes);
    return put_attr(at, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, 0, &hash);
}

static bool put_text(hid_t at, const char *name, const char *text) {
    hid_t type = string_type(strlen(text) ? strlen(text) : 1);
    bool ok = type >= 0 && put_attr(at, name, type, type, 0, text);
    close_id(type);
    return ok;
}

/* A variable-length string lies outside the object header, whose limit is 64 KiB. */
static bool put_long_text(hid_t at, const char *name, const char *text) {
    hid_t type = string_type(0);
    bool ok = type >= 0 && put_attr(at, name, type, type, 0, &text);
    close_id(type);
    return ok;
}

static bool put_texts(hid_t at, const char *name, char *const *texts, int count) {
    size_t widest = 1;
    for (int i = 0; i < count; i++)
        widest = strlen(texts[i]) > widest ? strlen(texts[i]) : widest;
    char *block = chex_mem_zalloc((size_t)count, widest);
    hid_t type = string_type(widest);
    for (int i = 0; block && i < count; i++)
        memcpy(block + (size_t)i * widest, texts[i], strlen(texts[i]));
    bool ok = block && type >= 0 && put_attr(at, name, type, type, (hsize_t)count, block);
    close_id(type);
    free(block);
    return ok;
}

static bool put_param(hid_t group, hid_t create, const struct chex_param *p, const float *values) {
    hsize_t dims[4];
    for (int i = 0; i < p->rank; i++)
        dims[i] = (hsize_t)p->dims[i];
    hid_t space = H5Screate_simple(p->rank, dims, NULL);
    hid_t set = H5Dcreate2(group, p->name, H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    bool ok = set >= 0 &&
              H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0 &&
              put_hash(set, "xxh3", values, p->count * sizeof *values);
    close_id(set);
    close_id(space);
    return ok;
}

static bool put_part(hid_t file, const char *name, const struct chex_net *net, const float *state) {
    if (!state)
        return true;
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = group >= 0 && H5Pset_obj_track_times(create, false) >= 0 &&
              H5Pset_fill_time(create, H5D_FILL_TIME_NEVER) >= 0;
    for (int i = 0; ok && i < net->param_total; i++)
        ok = put_param(group, create, &net->params[i], state + net->params[i].offset);
    close_id(group);
    close_id(create);
    return ok;
}

static bool put_all(hid_t file, const struct chex_net *net, const struct chex_checkpoint *c) {
    return put_text(file, "format", format_name) && put_int(file, "version", VERSION) &&
           put_text(file, "model", c->model) &&
           put_texts(file, "classes", c->class_names, c->classes) &&
           put_int(file, "image_size", c->image_size) && put_long_text(file, "meta", c->meta) &&
           put_hash(file, "meta_xxh3", c->meta, strlen(c->meta)) &&
           put_part(file, "params", net, c->params) && put_part(file, "moment1", net, c->moment1) &&
           put_part(file, "moment2", net, c->moment2);
}

/* The whole file in fresh memory. */
static enum chex_status make_image(const char *path, const struct chex_net *net,
                                   const struct chex_checkpoint *c, void **image_out,
                                   size_t *bytes_out, struct chex_error *err) {
    size_t parts = 1 + (c->moment1 != NULL) + (c->moment2 != NULL);
    enum chex_status st = CHEX_OK;
    void *image = NULL;
    ssize_t bytes = 0;
    hid_t file = H5I_INVALID_HID, access = H5Pcreate(H5P_FILE_ACCESS);
    /* One step of growth holds it all: names and headers take under a kilobyte a dataset. */
    size_t step = parts * (net->state_count * sizeof(float) + (size_t)net->param_total * 1024);
    if (H5Pset_fapl_core(access, step, false) >= 0)
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (file < 0 || !put_all(file, net, c) || H5Fflush(file, H5F_SCOPE_LOCAL) < 0 ||
        (bytes = H5Fget_file_image(file, NULL, 0)) <= 0)
        st = h5_error(err, CHEX_E_FAIL, path, "cannot make the checkpoint");
    else if (!(image = malloc((size_t)bytes)))
        st = chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "%s", path);
    else if (H5Fget_file_image(file, image, (size_t)bytes) != bytes)
        st = h5_error(err, CHEX_E_FAIL, path, "cannot make the checkpoint");
    close_id(file);
    close_id(access);
    if (st != CHEX_OK) {
        free(image);
        return st;
    }
    *image_out = image;
    *bytes_out = (size_t)bytes;
    return CHEX_OK;
}

enum chex_status chex_checkpoint_write(const char *path, const struct chex_net *net,
                                       const struct chex_checkpoint *c, struct chex_error *err) {
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    void *image = NULL;
    size_t bytes = 0;
    CHEX_TRY(make_image(path, net, c, &image, &bytes, err));
    enum chex_status st = chex_fs_write(path, image, bytes, err);
    free(image);
    return st;
}

/* ---- reading ---- */

struct reader {
    const char *path;
    hid_t file;
    struct chex_error *err;
};

static enum chex_status bad_attr(const struct reader *r, const char *name, const char *want) {
    return chex_error_set(r->err, CHEX_E_DATA, "%s: attribute %s: expected %s", r->path, name,
                          want);
}

static enum chex_status get_int(const struct reader *r, const char *name, int least, int most,
                                int *out) {
    enum chex_status st = CHEX_OK;
    int64_t value = 0;
    hid_t space = H5I_INVALID_HID, type = H5I_INVALID_HID;
    hid_t attr = H5Aopen(r->file, name, H5P_DEFAULT);
    if (attr < 0)
        return bad_attr(r, name, "a whole number, but there is none");
    space = H5Aget_space(attr);
    type = H5Aget_type(attr);
    if (H5Sget_simple_extent_npoints(space) != 1 || H5Tget_class(type) != H5T_INTEGER)
        st = bad_attr(r, name, "one whole number");
    else if (H5Aread(attr, H5T_NATIVE_INT64, &value) < 0)
        st = h5_error(r->err, CHEX_E_DATA, r->path, name);
    else if (value < least || value > most)
        st = chex_error_set(r->err, CHEX_E_DATA,
                            "%s: attribute %s is %" PRId64 ", expected %d to %d", r->path, name,
                            value, least, most);
    else
        *out = (int)value;
    close_id(type);
    close_id(space);
    close_id(attr);
    return st;
}

/* Strings of either kind into one fresh block of `count` pointers and their texts. */
static char **copy_texts(char *const *texts, const char *block, size_t width, size_t count) {
    size_t bytes = count * sizeof(char *);
    for (size_t i = 0; i < count; i++)
        bytes += 1 + (texts ? strlen(texts[i] ? texts[i] : "") : strnlen(block + i * width, width));
    char **out = malloc(bytes);
    char *at = out ? (char *)(out + count) : NULL;
    for (size_t i = 0; out && i < count; i++) {
        const char *text = texts ? (texts[i] ? texts[i] : "") : block + i * width;
        size_t n = texts ? strlen(text) : strnlen(text, width);
        out[i] = memcpy(at, text, n);
        at[n] = '\0';
        at += n + 1;
    }
    return out;
}

static enum chex_status read_texts(const struct reader *r, const char *name, hid_t attr, hid_t type,
                                   hid_t space, size_t count, char ***out) {
    bool variable = H5Tis_variable_str(type) > 0;
    size_t width = variable ? sizeof(char *) : H5Tget_size(type);
    if (width > most_text_bytes / count)
        return bad_attr(r, name, "shorter text");
    char *block = chex_mem_zalloc(count, width);
    char **copy = NULL;
    enum chex_status st = CHEX_OK;
    if (!block)
        st = chex_error_errno(r->err, CHEX_E_FAIL, ENOMEM, "%s", r->path);
    else if (H5Aread(attr, type, block) < 0)
        st = h5_error(r->err, CHEX_E_DATA, r->path, name);
    else {
        copy = variable ? copy_texts((char **)(void *)block, NULL, 0, count)
                        : copy_texts(NULL, block, width, count);
        if (variable)
            H5Dvlen_reclaim(type, space, H5P_DEFAULT, block);
        if (!copy)
            st = chex_error_errno(r->err, CHEX_E_FAIL, ENOMEM, "%s", r->path);
    }
    free(block);
    if (st == CHEX_OK)
        *out = copy;
    return st;
}

/* 1 to `most` strings in one fresh block: (*out)[i], freed with one free. */
static enum chex_status get_texts(const struct reader *r, const char *name, size_t most,
                                  char ***out, int *count_out) {
    hid_t attr = H5Aopen(r->file, name, H5P_DEFAULT);
    if (attr < 0)
        return bad_attr(r, name, "text, but there is none");
    enum chex_status st;
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    hssize_t count = H5Sget_simple_extent_npoints(space);
    if (H5Tget_class(type) != H5T_STRING || count < 1 || (size_t)count > most)
        st = bad_attr(r, name, most == 1 ? "one text" : "1 to 4096 texts");
    else
        st = read_texts(r, name, attr, type, space, (size_t)count, out);
    if (st == CHEX_OK)
        *count_out = (int)count;
    close_id(space);
    close_id(type);
    close_id(attr);
    return st;
}

static enum chex_status get_text(const struct reader *r, const char *name, char **out) {
    char **texts = NULL;
    int count;
    CHEX_TRY(get_texts(r, name, 1, &texts, &count));
    char *copy = strdup(texts[0]);
    free(texts);
    if (!copy)
        return chex_error_errno(r->err, CHEX_E_FAIL, ENOMEM, "%s", r->path);
    *out = copy;
    return CHEX_OK;
}

static bool hash_matches(hid_t at, const char *name, const void *data, size_t bytes) {
    uint64_t want = 0;
    hid_t attr = H5Aopen(at, name, H5P_DEFAULT);
    hid_t space = attr >= 0 ? H5Aget_space(attr) : H5I_INVALID_HID;
    bool ok = attr >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
              H5Aread(attr, H5T_NATIVE_UINT64, &want) >= 0 && want == chex_hash64(data, bytes);
    close_id(space);
    close_id(attr);
    return ok;
}

static bool same_shape(hid_t space, const struct chex_param *p, char *got, size_t size) {
    hsize_t dims[H5S_MAX_RANK];
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    bool same = rank == p->rank;
    size_t at = (size_t)snprintf(got, size, "[");
    for (int i = 0; i < rank && at < size; i++) {
        same = same && dims[i] == (hsize_t)p->dims[i];
        at += (size_t)snprintf(got + at, size - at, "%s%llu", i ? "," : "",
                               (unsigned long long)dims[i]);
    }
    if (at < size)
        snprintf(got + at, size - at, "]");
    return same;
}

static enum chex_status get_param(const struct reader *r, hid_t group, const char *group_name,
                                  const struct chex_param *p, float *values) {
    char where[CHEX_NET_NAME_BYTES + 32], got[96];
    snprintf(where, sizeof where, "dataset /%s/%s", group_name, p->name);
    if (H5Lexists(group, p->name, H5P_DEFAULT) == 0)
        return chex_error_set(r->err, CHEX_E_DATA, "%s: no %s", r->path, where);
    hid_t set = H5Dopen2(group, p->name, H5P_DEFAULT);
    if (set < 0)
        return h5_error(r->err, CHEX_E_DATA, r->path, where);
    hid_t space = H5Dget_space(set), type = H5Dget_type(set);
    enum chex_status st = CHEX_OK;
    if (H5Tequal(type, H5T_IEEE_F32LE) <= 0)
        st = chex_error_set(r->err, CHEX_E_DATA, "%s: %s is not little-endian 32-bit float",
                            r->path, where);
    else if (!same_shape(space, p, got, sizeof got))
        st = chex_error_set(r->err, CHEX_E_DATA,
                            "%s: %s has shape %s, expected [%d,%d,%d,%d]"
                            " of which the first %d",
                            r->path, where, got, p->dims[0], p->dims[1], p->dims[2], p->dims[3],
                            p->rank);
    else if (H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        st = h5_error(r->err, CHEX_E_DATA, r->path, where);
    else if (!hash_matches(set, "xxh3", values, p->count * sizeof *values))
        st = chex_error_set(r->err, CHEX_E_DATA,
                            "%s: %s is damaged: its bytes do not match its xxh3", r->path, where);
    close_id(type);
    close_id(space);
    close_id(set);
    return st;
}

/* *state_out stays NULL where an optional group is absent. */
static enum chex_status get_part(const struct reader *r, const char *name, bool optional,
                                 const struct chex_net *net, float **state_out) {
    if (H5Lexists(r->file, name, H5P_DEFAULT) <= 0)
        return optional ? CHEX_OK
                        : chex_error_set(r->err, CHEX_E_DATA, "%s: no group /%s", r->path, name);
    hid_t group = H5Gopen2(r->file, name, H5P_DEFAULT);
    if (group < 0)
        return h5_error(r->err, CHEX_E_DATA, r->path, name);
    float *state = chex_mem_alloc_aligned(net->state_count, sizeof *state);
    enum chex_status st = CHEX_OK;
    if (!state)
        st = chex_error_errno(r->err, CHEX_E_FAIL, ENOMEM, "%s", r->path);
    for (int i = 0; st == CHEX_OK && i < net->param_total; i++)
        st = get_param(r, group, name, &net->params[i], state + net->params[i].offset);
    close_id(group);
    if (st == CHEX_OK)
        *state_out = state;
    else
        free(state);
    return st;
}

static enum chex_status check_format(const struct reader *r) {
    char *format = NULL;
    int version;
    if (H5Aexists(r->file, "format") <= 0)
        return chex_error_set(r->err, CHEX_E_DATA,
                              "%s: not a checkpoint: no attribute format=\"%s\"", r->path,
                              format_name);
    CHEX_TRY(get_text(r, "format", &format));
    enum chex_status st = CHEX_OK;
    if (strcmp(format, format_name) != 0)
        st = chex_error_set(r->err, CHEX_E_DATA, "%s: not a checkpoint: its format is \"%.64s\"",
                            r->path, format);
    free(format);
    if (st == CHEX_OK)
        st = get_int(r, "version", 1, INT32_MAX, &version);
    if (st == CHEX_OK && version > VERSION)
        st = chex_error_set(r->err, CHEX_E_DATA,
                            "%s: version %d of the checkpoint format, this build reads up to %d",
                            r->path, version, VERSION);
    return st;
}

static enum chex_status get_head(const struct reader *r, struct chex_checkpoint *c) {
    char *model = NULL;
    CHEX_TRY(check_format(r));
    CHEX_TRY(get_text(r, "model", &model));
    snprintf(c->model, sizeof c->model, "%.*s", (int)sizeof c->model - 1, model);
    free(model);
    CHEX_TRY(get_int(r, "image_size", 1, MOST_IMAGE_PX, &c->image_size));
    CHEX_TRY(get_texts(r, "classes", MOST_CLASSES, &c->class_names, &c->classes));
    CHEX_TRY(get_text(r, "meta", &c->meta));
    if (!hash_matches(r->file, "meta_xxh3", c->meta, strlen(c->meta)))
        return chex_error_set(r->err, CHEX_E_DATA,
                              "%s: attribute meta is damaged: it does not match meta_xxh3",
                              r->path);
    return CHEX_OK;
}

static enum chex_status get_all(const struct reader *r, bool with_moments, struct chex_net **net,
                                struct chex_checkpoint *c) {
    CHEX_TRY(get_head(r, c));
    if (chex_net_create(c->model, c->classes, net, r->err) != CHEX_OK) {
        if (r->err && r->err->status == CHEX_E_USAGE)
            r->err->status = CHEX_E_DATA;
        return chex_error_prefix(r->err, CHEX_E_DATA, "%s", r->path);
    }
    CHEX_TRY(get_part(r, "params", false, *net, &c->params));
    if (with_moments)
        CHEX_TRY(get_part(r, "moment1", true, *net, &c->moment1));
    if (with_moments)
        CHEX_TRY(get_part(r, "moment2", true, *net, &c->moment2));
    return CHEX_OK;
}

static enum chex_status open_file(const char *path, hid_t *file_out, struct chex_error *err) {
    /* HDF5's own text for a missing file speaks of "errno = 2". */
    if (!chex_fs_exists(path))
        return chex_error_errno(err, CHEX_E_DATA, errno, "cannot open checkpoint %s", path);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* Locks fail on some network file systems, and nobody writes under this name. */
    H5Pset_file_locking(access, false, true);
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, access);
    enum chex_status st = CHEX_OK;
    if (file < 0)
        st = h5_error(err, CHEX_E_DATA, path, "not an HDF5 file, or truncated");
    else
        *file_out = file;
    close_id(access);
    return st;
}

enum chex_status chex_checkpoint_read(const char *path, bool with_moments,
                                      struct chex_net **net_out, struct chex_checkpoint **c_out,
                                      struct chex_error *err) {
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    struct reader r = {.path = path, .file = H5I_INVALID_HID, .err = err};
    CHEX_TRY(open_file(path, &r.file, err));
    struct chex_net *net = NULL;
    struct chex_checkpoint *c = chex_mem_zalloc(1, sizeof *c);
    enum chex_status st = c ? get_all(&r, with_moments, &net, c)
                            : chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "%s", path);
    close_id(r.file);
    if (st != CHEX_OK) {
        chex_net_destroy(net);
        chex_checkpoint_destroy(c);
        return st;
    }
    *net_out = net;
    *c_out = c;
    return CHEX_OK;
}

void chex_checkpoint_destroy(struct chex_checkpoint *c) {
    if (!c)
        return;
    free(c->class_names);
    free(c->meta);
    free(c->params);
    free(c->moment1);
    free(c->moment2);
    free(c);
}
