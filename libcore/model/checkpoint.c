/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and reads checkpoints.
 *
 * The HDF5 file is built in memory and then written as one block. So a full disk is an error of
 * write(2), which we can handle. If H5Fclose fails instead, HDF5 1.10 keeps the file open and
 * retries for ever.
 *
 * Creation times are not recorded, so equal states give identical files.
 */
#include "model/checkpoint.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/h5_private.h"
#include "base/hash.h"
#include "model/weights.h"

enum { VERSION = 1, MAX_IMAGE_PX = 65536 };
static const char format_name[] = "chexnet-checkpoint";

/* ---- writing ---- */

static enum chex_status put_param(hid_t group, const char *path, const struct chex_param *p,
                                  const float *values, struct chex_error *err) {
    hsize_t dims[4];
    CHEX_AUTO(chex_h5_close_at) hid_t set = H5I_INVALID_HID;
    for (int i = 0; i < p->rank; i++)
        dims[i] = (hsize_t)p->dims[i];
    CHEX_TRY(chex_h5_write_dataset(group, p->name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, p->rank, dims,
                                   values, path, err));
    CHEX_TRY(CHEX_H5(set = H5Dopen2(group, p->name, H5P_DEFAULT), CHEX_E_FAIL, err,
                     "%s: dataset %s", path, p->name));
    return chex_h5_write_u64(set, "xxh3", chex_hash64(values, p->count * sizeof *values), path,
                             err);
}

static enum chex_status put_part(hid_t file, const char *path, const char *name,
                                 const struct chex_net *net, const float *state,
                                 struct chex_error *err) {
    if (!state)
        return CHEX_OK;
    CHEX_AUTO(chex_h5_close_at) hid_t group = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                     CHEX_E_FAIL, err, "%s: group /%s", path, name));
    for (int i = 0; i < net->param_total; i++)
        CHEX_TRY(put_param(group, path, &net->params[i], state + net->params[i].offset, err));
    return CHEX_OK;
}

static const char *const vector_names[CHEX_CHECKPOINT_VECTORS] = {"params", "moment1", "moment2",
                                                                  "ema"};

static enum chex_status put_all(hid_t file, const char *path, const struct chex_net *net,
                                const struct chex_checkpoint *c, struct chex_error *err) {
    CHEX_TRY(chex_h5_write_text(file, "format", format_name, path, err));
    CHEX_TRY(chex_h5_write_i64(file, "version", VERSION, path, err));
    CHEX_TRY(chex_h5_write_text(file, "model", c->model, path, err));
    CHEX_TRY(chex_h5_write_texts(file, "classes", (const char *const *)c->class_names,
                                 (size_t)c->classes, path, err));
    CHEX_TRY(chex_h5_write_i64(file, "image_size", c->image_size, path, err));
    CHEX_TRY(chex_h5_write_text(file, "meta", c->meta, path, err));
    CHEX_TRY(
        chex_h5_write_u64(file, "meta_xxh3", chex_hash64(c->meta, strlen(c->meta)), path, err));
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        CHEX_TRY(put_part(file, path, vector_names[i], net, c->vectors[i], err));
    return CHEX_OK;
}

/* Creates an HDF5 file in memory. */
static enum chex_status open_image(const char *path, size_t step_bytes, hid_t *file_out,
                                   struct chex_error *err) {
    CHEX_AUTO(chex_h5_close_at) hid_t access = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(access = H5Pcreate(H5P_FILE_ACCESS), CHEX_E_FAIL, err, "%s", path));
    H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST); /* as in base/h5.c */
    CHEX_TRY(CHEX_H5(H5Pset_fapl_core(access, step_bytes, false), CHEX_E_FAIL, err, "%s", path));
    return CHEX_H5(*file_out = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access), CHEX_E_FAIL,
                   err, "%s", path);
}

/* Builds the file's bytes. *image_out has space for the seal after *bytes_out bytes. */
static enum chex_status make_image(const char *path, const struct chex_net *net,
                                   const struct chex_checkpoint *c, void **image_out,
                                   size_t *bytes_out, struct chex_error *err) {
    size_t parts = 0;
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        parts += c->vectors[i] != NULL;
    /* The memory grows once: names and headers take less than a kilobyte per dataset. */
    size_t step = parts * (net->state_count * sizeof(float) + (size_t)net->param_total * 1024);
    CHEX_AUTO_FREE void *image = NULL;
    ssize_t bytes = 0;
    CHEX_AUTO(chex_h5_close_at) hid_t file = H5I_INVALID_HID;
    CHEX_TRY(open_image(path, step, &file, err));
    CHEX_TRY(put_all(file, path, net, c, err));
    CHEX_TRY(CHEX_H5(H5Fflush(file, H5F_SCOPE_LOCAL), CHEX_E_FAIL, err, "%s", path));
    CHEX_TRY(CHEX_H5(bytes = H5Fget_file_image(file, NULL, 0), CHEX_E_FAIL, err, "%s", path));
    if (!(image = malloc((size_t)bytes + CHEX_H5_SEAL_BYTES)))
        return chex_error_memory(err, "%s", path);
    CHEX_TRY(CHEX_H5(H5Fget_file_image(file, image, (size_t)bytes), CHEX_E_FAIL, err, "%s", path));
    *image_out = CHEX_TAKE(image);
    *bytes_out = (size_t)bytes;
    return CHEX_OK;
}

enum chex_status chex_checkpoint_write(const char *path, const struct chex_net *net,
                                       const struct chex_checkpoint *c, struct chex_error *err) {
    CHEX_AUTO_FREE void *image = NULL;
    size_t bytes = 0;
    chex_h5_enter();
    CHEX_TRY(chex_h5_finish(make_image(path, net, c, &image, &bytes, err), path, err));
    chex_h5_seal_memory(image, bytes, (unsigned char *)image + bytes);
    return chex_fs_write(path, image, bytes + CHEX_H5_SEAL_BYTES, err);
}

void chex_checkpoint_digest(const struct chex_net *net, const struct chex_checkpoint *c,
                            char out[CHEX_HASH128_HEX_BYTES]) {
    struct chex_hash_part parts[CHEX_CHECKPOINT_VECTORS];
    size_t count = 0;
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        if (c->vectors[i])
            parts[count++] =
                (struct chex_hash_part){c->vectors[i], net->state_count * sizeof(float)};
    chex_hash128_hex_of_parts(parts, count, out);
}

/* ---- reading ---- */

struct reader {
    const char *path;
    hid_t file;
    struct chex_error *err;
};

/* The error of a file that is not valid. */
#define BAD(r, format, ...) chex_error_data((r)->err, "%s: " format, (r)->path, __VA_ARGS__)

static bool hash_matches(hid_t at, const char *name, const void *data, size_t bytes) {
    uint64_t want = 0;
    CHEX_AUTO(chex_h5_close_at) hid_t attr = H5Aopen(at, name, H5P_DEFAULT);
    CHEX_AUTO(chex_h5_close_at) hid_t space = attr >= 0 ? H5Aget_space(attr) : H5I_INVALID_HID;
    return attr >= 0 && H5Sget_simple_extent_npoints(space) == 1 &&
           H5Aread(attr, H5T_NATIVE_UINT64, &want) >= 0 && want == chex_hash64(data, bytes);
}

static void append(char *text, size_t size, int i, unsigned long long n) {
    size_t at = strlen(text);
    snprintf(text + at, size - at, "%s%llu", i ? "," : "", n);
}

static enum chex_status check_shape(const struct reader *r, const char *where, hid_t space,
                                    const struct chex_param *p) {
    hsize_t dims[H5S_MAX_RANK];
    char got[96] = "", want[96] = "";
    int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    bool same = rank == p->rank;
    for (int i = 0; i < rank; i++) {
        same = same && dims[i] == (hsize_t)p->dims[i];
        append(got, sizeof got, i, dims[i]);
    }
    for (int i = 0; i < p->rank; i++)
        append(want, sizeof want, i, (unsigned long long)p->dims[i]);
    if (same)
        return CHEX_OK;
    return BAD(r, "%s has shape [%s], expected [%s]", where, got, want);
}

/* Whether a compact dataset holds fewer bytes than its shape needs. One flipped bit turns a
 * contiguous dataset into a compact one. HDF5 1.10 does not check the size of compact data and
 * reads memory after its end. */
static bool is_cut(hid_t set, size_t bytes) {
    CHEX_AUTO(chex_h5_close_at) hid_t how = H5Dget_create_plist(set);
    return how >= 0 && H5Pget_layout(how) == H5D_COMPACT && H5Dget_storage_size(set) < bytes;
}

static enum chex_status get_values(const struct reader *r, const char *where, hid_t set, hid_t type,
                                   hid_t space, const struct chex_param *p, float *values) {
    const size_t bytes = p->count * sizeof *values;
    if (H5Tequal(type, H5T_IEEE_F32LE) <= 0)
        return BAD(r, "%s is not little-endian 32-bit float", where);
    CHEX_TRY(check_shape(r, where, space, p));
    if (is_cut(set, bytes))
        return BAD(r, "%s is damaged: its data is cut short", where);
    CHEX_TRY(CHEX_H5(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values),
                     CHEX_E_DATA, r->err, "%s: %s", r->path, where));
    if (!hash_matches(set, "xxh3", values, bytes))
        return BAD(r, "%s is damaged: its bytes do not match its xxh3", where);
    return CHEX_OK;
}

static enum chex_status get_param(const struct reader *r, hid_t group, const char *group_name,
                                  const struct chex_param *p, float *values) {
    char where[CHEX_NET_NAME_BYTES + 32];
    snprintf(where, sizeof where, "dataset /%s/%s", group_name, p->name);
    if (H5Lexists(group, p->name, H5P_DEFAULT) == 0)
        return BAD(r, "no %s", where);
    CHEX_AUTO(chex_h5_close_at) hid_t set = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(set = H5Dopen2(group, p->name, H5P_DEFAULT), CHEX_E_DATA, r->err, "%s: %s",
                     r->path, where));
    CHEX_AUTO(chex_h5_close_at) hid_t space = H5Dget_space(set), type = H5Dget_type(set);
    return get_values(r, where, set, type, space, p, values);
}

/* Reads a group. If an optional group is absent, *state_out is unchanged. */
static enum chex_status get_part(const struct reader *r, const char *name, bool optional,
                                 const struct chex_net *net, float **state_out) {
    if (H5Lexists(r->file, name, H5P_DEFAULT) <= 0)
        return optional ? CHEX_OK : BAD(r, "no group /%s", name);
    CHEX_AUTO(chex_h5_close_at) hid_t group = H5I_INVALID_HID;
    CHEX_TRY(CHEX_H5(group = H5Gopen2(r->file, name, H5P_DEFAULT), CHEX_E_DATA, r->err,
                     "%s: group /%s", r->path, name));
    CHEX_AUTO_FREE float *state = chex_alloc_aligned(net->state_count, sizeof *state);
    if (!state)
        return chex_error_memory(r->err, "%s", r->path);
    for (int i = 0; i < net->param_total; i++)
        CHEX_TRY(get_param(r, group, name, &net->params[i], state + net->params[i].offset));
    *state_out = CHEX_TAKE(state);
    return CHEX_OK;
}

static enum chex_status check_format(const struct reader *r) {
    CHEX_AUTO_FREE char *format = NULL;
    int64_t version = 0;
    if (!chex_h5_has_attr(r->file, "format"))
        return chex_error_data(r->err, "%s: not a checkpoint: no attribute 'format'", r->path);
    CHEX_TRY(chex_h5_read_text(r->file, "format", r->path, &format, r->err));
    if (strcmp(format, format_name) != 0)
        return BAD(r, "not a checkpoint: its format is '%.64s', expected '%s'", format,
                   format_name);
    CHEX_TRY(chex_h5_read_i64(r->file, "version", r->path, &version, r->err));
    if (version != VERSION)
        return BAD(r, "version %lld of the checkpoint format, this build reads %d",
                   (long long)version, (int)VERSION);
    return CHEX_OK;
}

/* Class names must be UTF-8, because JSON, CSV and safetensors allow nothing else. */
static enum chex_status check_class_names(const struct reader *r, const struct chex_checkpoint *c) {
    for (int i = 0; i < c->classes; i++) {
        json_auto_t *text = json_string(c->class_names[i]);
        if (!text || !c->class_names[i][0])
            return BAD(r, "the name of finding %d is damaged (expected UTF-8 text)", i);
    }
    return CHEX_OK;
}

static enum chex_status get_head(const struct reader *r, struct chex_checkpoint *c) {
    CHEX_AUTO_FREE char *model = NULL;
    int64_t size = 0;
    size_t classes = 0;
    CHEX_TRY(check_format(r));
    CHEX_TRY(chex_h5_read_text(r->file, "model", r->path, &model, r->err));
    snprintf(c->model, sizeof c->model, "%.*s", (int)sizeof c->model - 1, model);
    CHEX_TRY(chex_h5_read_i64(r->file, "image_size", r->path, &size, r->err));
    if (size < 1 || size > MAX_IMAGE_PX)
        return BAD(r, "image_size %lld, expected 1 to %d", (long long)size, (int)MAX_IMAGE_PX);
    c->image_size = (int)size;
    CHEX_TRY(chex_h5_read_texts(r->file, "classes", r->path, &c->class_names, &classes, r->err));
    c->classes = (int)classes;
    CHEX_TRY(check_class_names(r, c));
    CHEX_TRY(chex_h5_read_text(r->file, "meta", r->path, &c->meta, r->err));
    if (!hash_matches(r->file, "meta_xxh3", c->meta, strlen(c->meta)))
        return chex_error_data(r->err, "%s: attribute meta is damaged: it does not match meta_xxh3",
                               r->path);
    return CHEX_OK;
}

static enum chex_status get_all(const struct reader *r, bool with_moments, struct chex_net **net,
                                struct chex_checkpoint *c) {
    CHEX_TRY(get_head(r, c));
    enum chex_status st = chex_net_create(c->model, c->classes, net, r->err);
    if (st != CHEX_OK) {
        /* An unknown model is a usage error on the command line, but bad data in a file. */
        st = st == CHEX_E_USAGE ? CHEX_E_DATA : st;
        if (r->err)
            r->err->status = st;
        return chex_error_prefix(r->err, st, "%s", r->path);
    }
    CHEX_TRY(get_part(r, "params", false, *net, &c->params));
    CHEX_TRY(get_part(r, "ema", true, *net, &c->ema));
    if (with_moments)
        CHEX_TRY(get_part(r, "moment1", true, *net, &c->moment1));
    if (with_moments)
        CHEX_TRY(get_part(r, "moment2", true, *net, &c->moment2));
    return CHEX_OK;
}

/* net NULL: reads only the root attributes. */
static enum chex_status read_file(const char *path, bool with_moments, struct chex_net **net,
                                  struct chex_checkpoint **c_out, struct chex_error *err) {
    struct reader r = {.path = path, .file = H5I_INVALID_HID, .err = err};
    CHEX_AUTO(chex_checkpoint_destroy_at) struct chex_checkpoint *c = calloc(1, sizeof *c);
    if (!c)
        return chex_error_memory(err, "%s", path);
    CHEX_TRY(chex_weights_refuse_torch(path, err));
    chex_h5_enter();
    enum chex_status st = chex_h5_file_open(path, CHEX_H5_READ, &r.file, err);
    if (st == CHEX_OK)
        st = net ? get_all(&r, with_moments, net, c) : get_head(&r, c);
    chex_h5_close(r.file);
    CHEX_TRY(chex_h5_finish(st, path, err));
    *c_out = CHEX_TAKE(c);
    return CHEX_OK;
}

enum chex_status chex_checkpoint_read(const char *path, bool with_moments,
                                      struct chex_net **net_out, struct chex_checkpoint **c_out,
                                      struct chex_error *err) {
    CHEX_AUTO(chex_net_destroy_at) struct chex_net *net = NULL;
    CHEX_TRY(read_file(path, with_moments, &net, c_out, err));
    *net_out = CHEX_TAKE(net);
    return CHEX_OK;
}

enum chex_status chex_checkpoint_read_meta(const char *path, char **meta_out,
                                           struct chex_error *err) {
    CHEX_AUTO(chex_checkpoint_destroy_at) struct chex_checkpoint *c = NULL;
    CHEX_TRY(read_file(path, false, NULL, &c, err));
    *meta_out = CHEX_TAKE(c->meta);
    return CHEX_OK;
}

static enum chex_status check_triple(const char *path, const json_t *meta, const char *key,
                                     const float ours[3], struct chex_error *err) {
    const json_t *list = json_object_get(meta, key);
    for (size_t i = 0; i < json_array_size(list) && i < 3; i++) {
        const double v = json_number_value(json_array_get(list, i));
        if (!(fabs(v - (double)ours[i]) < 1e-6))
            return chex_error_data(
                err, "%s: trained on pixels normalised by a %s of %g in channel %zu, expected %g",
                path, key, v, i + 1, (double)ours[i]);
    }
    return CHEX_OK;
}

enum chex_status chex_checkpoint_check_pixels(const char *path, const json_t *meta,
                                              const struct chex_net *net, struct chex_error *err) {
    CHEX_TRY(check_triple(path, meta, "mean", net->mean, err));
    return check_triple(path, meta, "std", net->std, err);
}

void chex_checkpoint_destroy(struct chex_checkpoint *c) {
    if (!c)
        return;
    chex_h5_free_texts(c->class_names, (size_t)c->classes);
    free(c->meta);
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        free(c->vectors[i]);
    free(c);
}
