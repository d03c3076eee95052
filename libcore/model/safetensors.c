/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes safetensors files.
 *
 * A file to be read is not trusted. Every length, offset and shape in the header is checked against
 * the file before it is used. The caller's state changes only after the whole file was read without
 * an error.
 */
#include "model/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/units.h"
#include "model/foreign.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors holds little-endian numbers; a big-endian host would have to swap them"
#endif

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8, MAX_RANK = 8, MAX_IMAGE_PX = 4096 };
static const uint64_t max_header_bytes = 16u << 20, max_file_bytes = (uint64_t)2 << 30;

/* An entry of the header. */
struct tensor {
    const char *name;
    const char *dtype;
    size_t item_bytes; /* 0: unknown type */
    size_t rank, dims[MAX_RANK], count;
    uint64_t from, to; /* byte range, counted from the end of the header */
};

struct tensor_file {
    const char *path;
    char *data;
    size_t size;
    json_t *header;
    const char *body;
    uint64_t body_bytes;
    struct tensor *tensors;
    size_t tensor_count;
    const char *extra; /* name of the first of extra_count tensors that are not parameters */
    size_t extra_count;
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U8", 1},  {"BOOL", 1},
};

/* ---- writing ---- */

static json_t *entry(const char *dtype, const int *dims, int rank, uint64_t from, uint64_t to) {
    json_t *shape = json_array();
    for (int i = 0; i < rank; i++)
        json_array_append_new(shape, json_integer(dims[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype, "shape", shape, "data_offsets",
                     (json_int_t)from, (json_int_t)to);
}

static bool add_text(json_t *object, const char *key, const char *text) {
    return !text || json_object_set_new(object, key, json_string(text)) == 0;
}

static bool add_size(json_t *object, const char *key, int px) {
    char text[16];
    snprintf(text, sizeof text, "%d", px);
    return add_text(object, key, px ? text : NULL);
}

static bool add_channels(json_t *object, const char *key, const float values[3]) {
    char text[64];
    snprintf(text, sizeof text, "[%.6g,%.6g,%.6g]", (double)values[0], (double)values[1],
             (double)values[2]);
    return add_text(object, key, text);
}

/* Describes the preprocessing of images, for other programs (doc/export.md). */
static bool add_input(json_t *object, const struct chex_net *net) {
    return add_text(object, "input",
                    "grey image of 8 bits, resized to stored_size x stored_size by resize, centre "
                    "crop of image_size, divided by 255, repeated in 3 channels, minus mean, "
                    "divided by std") &&
           add_channels(object, "mean", net->mean) && add_channels(object, "std", net->std) &&
           add_text(object, "crop", "centre") &&
           add_text(object, "output",
                    "one logit for each of classes: its sigmoid is the probability");
}

/* Metadata values are strings: numbers are written in decimal, the list of classes as JSON. */
static json_t *metadata_of(const struct chex_net *net, const struct chex_safetensors_about *about) {
    json_t *object = json_object(), *names = json_array();
    bool good = object && names;
    for (int i = 0; i < about->classes; i++)
        good = good && json_array_append_new(names, json_string(about->class_names[i])) == 0;
    char *classes = good && about->classes ? json_dumps(names, JSON_COMPACT) : NULL;
    good = good && (classes || !about->classes) && add_text(object, "format", "pt") &&
           add_text(object, "model", about->model) &&
           add_size(object, "image_size", about->image_size) &&
           add_size(object, "stored_size", about->stored_size) && add_input(object, net) &&
           add_text(object, "classes", classes) && add_text(object, "resize", about->resize) &&
           add_text(object, "split", about->split) &&
           add_text(object, "source_digest", about->source_digest) &&
           add_text(object, "members", about->members);
    free(classes);
    json_decref(names);
    if (good)
        return object;
    json_decref(object);
    return NULL;
}

/* The I64 counters come first, so that every tensor is aligned to its element size. */
static enum chex_status make_header(const struct chex_net *net,
                                    const struct chex_safetensors_about *about, char **text_out,
                                    struct chex_error *err) {
    json_t *header = json_object();
    uint64_t at = 0;
    int bad = about ? json_object_set_new(header, "__metadata__", metadata_of(net, about)) : 0;
    char name[CHEX_NET_NAME_BYTES + sizeof ".num_batches_tracked"];
    for (int i = 0; i < net->bn_count; i++, at += sizeof(int64_t)) {
        snprintf(name, sizeof name, "%s.num_batches_tracked", net->bns[i].name);
        bad |= json_object_set_new(header, name, entry("I64", NULL, 0, at, at + sizeof(int64_t)));
    }
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        uint64_t to = at + p->count * sizeof(float);
        bad |= json_object_set_new(header, p->name, entry("F32", p->dims, p->rank, at, to));
        at = to;
    }
    char *text = bad ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (!text) /* out of memory, or a name that is not UTF-8 */
        return chex_error_set(err, CHEX_E_FAIL,
                              "safetensors: the header cannot be encoded as JSON");
    *text_out = text;
    return CHEX_OK;
}

enum chex_status chex_safetensors_write(const char *path, const struct chex_net *net,
                                        const float *state, int64_t batches_tracked,
                                        const struct chex_safetensors_about *about,
                                        struct chex_error *err) {
    char *text = NULL;
    CHEX_TRY(make_header(net, about, &text, err));
    size_t length = strlen(text), padded = (length + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    size_t size = LENGTH_BYTES + padded + (size_t)net->bn_count * sizeof(int64_t) +
                  net->state_count * sizeof(float);
    char *file = malloc(size);
    if (!file) {
        free(text);
        return chex_error_memory(err, "%s", path);
    }
    uint64_t header_bytes = padded;
    memcpy(file, &header_bytes, LENGTH_BYTES);
    memcpy(file + LENGTH_BYTES, text, length);
    memset(file + LENGTH_BYTES + length, ' ', padded - length);
    free(text);
    char *at = file + LENGTH_BYTES + padded;
    for (int i = 0; i < net->bn_count; i++, at += sizeof batches_tracked)
        memcpy(at, &batches_tracked, sizeof batches_tracked);
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        memcpy(at, state + p->offset, p->count * sizeof(float));
        at += p->count * sizeof(float);
    }
    enum chex_status st = chex_fs_write(path, file, size, err);
    free(file);
    return st;
}

/* ---- reading ---- */

static enum chex_status bad_tensor(const struct tensor_file *f, const char *name, const char *what,
                                   struct chex_error *err) {
    return chex_error_set(err, CHEX_E_DATA, "%s: tensor '%.100s': %s", f->path, name, what);
}

static bool get_size(const json_t *value, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool parse_shape(const json_t *shape, struct tensor *t) {
    if (!json_is_array(shape) || json_array_size(shape) > MAX_RANK)
        return false;
    t->rank = json_array_size(shape);
    t->count = 1;
    for (size_t i = 0; i < t->rank; i++) {
        uint64_t n;
        if (!get_size(json_array_get(shape, i), &n) ||
            __builtin_mul_overflow(t->count, n, &t->count))
            return false;
        t->dims[i] = n;
    }
    return true;
}

static enum chex_status parse_tensor(const struct tensor_file *f, const char *name,
                                     const json_t *value, struct tensor *t,
                                     struct chex_error *err) {
    t->name = name;
    t->dtype = json_string_value(json_object_get(value, "dtype"));
    if (!t->dtype)
        return bad_tensor(f, name, "no dtype", err);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, t->dtype) == 0)
            t->item_bytes = dtypes[i].bytes;
    if (!parse_shape(json_object_get(value, "shape"), t))
        return bad_tensor(f, name, "the shape is not a list of up to 8 sizes", err);
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !get_size(json_array_get(offsets, 0), &t->from) ||
        !get_size(json_array_get(offsets, 1), &t->to) || t->from > t->to)
        return bad_tensor(f, name, "data_offsets are not a begin and an end", err);
    if (t->to > f->body_bytes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: tensor '%.100s' ends at byte %" PRIu64
                              " of the data, which has %" PRIu64 ": truncated?",
                              f->path, name, t->to, f->body_bytes);
    uint64_t bytes;
    if (t->item_bytes &&
        (__builtin_mul_overflow(t->count, t->item_bytes, &bytes) || bytes != t->to - t->from))
        return bad_tensor(f, name, "data_offsets disagree with dtype and shape", err);
    return CHEX_OK;
}

static int by_offset(const void *a, const void *b) {
    const struct tensor *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* The format requires that the tensors cover the data without overlaps and holes. */
static enum chex_status check_cover(struct tensor_file *f, struct chex_error *err) {
    qsort(f->tensors, f->tensor_count, sizeof *f->tensors, by_offset);
    uint64_t end = 0;
    for (size_t i = 0; i < f->tensor_count; i++) {
        const struct tensor *t = &f->tensors[i];
        if (t->from < end)
            return bad_tensor(f, t->name, "overlaps another tensor", err);
        if (t->from > end)
            return bad_tensor(f, t->name, "unused bytes before it", err);
        end = t->to;
    }
    if (end != f->body_bytes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: the tensors end at byte %" PRIu64 " of the data, which has "
                              "%" PRIu64,
                              f->path, end, f->body_bytes);
    return CHEX_OK;
}

static enum chex_status parse_header(struct tensor_file *f, struct chex_error *err) {
    uint64_t length;
    if (f->size < LENGTH_BYTES)
        return chex_error_set(err, CHEX_E_DATA, "%s: %zu bytes are too few for a safetensors file",
                              f->path, f->size);
    memcpy(&length, f->data, LENGTH_BYTES);
    if (length > f->size - LENGTH_BYTES || length > max_header_bytes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: not a safetensors file or truncated: a header of %" PRIu64
                              " bytes in a file of %zu (at most %" PRIu64 ")",
                              f->path, length, f->size, max_header_bytes);
    f->body = f->data + LENGTH_BYTES + length;
    f->body_bytes = f->size - LENGTH_BYTES - length;
    json_error_t why;
    f->header = json_loadb(f->data + LENGTH_BYTES, length, JSON_REJECT_DUPLICATES, &why);
    if (!f->header)
        return chex_error_set(err, CHEX_E_DATA, "%s: header, byte %d: %s", f->path, why.position,
                              why.text);
    if (!json_is_object(f->header))
        return chex_error_set(err, CHEX_E_DATA, "%s: the header is not a JSON object", f->path);
    f->tensors = chex_alloc_zeroed(json_object_size(f->header), sizeof *f->tensors);
    if (!f->tensors)
        return chex_error_memory(err, "%s", f->path);
    const char *name;
    json_t *value;
    json_object_foreach(f->header, name, value) {
        if (strcmp(name, "__metadata__") != 0)
            CHEX_TRY(parse_tensor(f, name, value, &f->tensors[f->tensor_count++], err));
    }
    return check_cover(f, err);
}

/* Converts a name in a file to torchvision's present name:
 * - drops the prefix "module." of DataParallel
 * - "denselayer3.norm.1.weight" (torchvision until 2018) becomes "denselayer3.norm1.weight"
 * False: the name is longer than `size`, so it is not one of ours. */
static bool canonical_name(const char *name, char *out, size_t size) {
    if (strncmp(name, "module.", 7) == 0)
        name += 7;
    if (strlen(name) >= size)
        return false;
    strcpy(out, name);
    char *layer = strstr(out, "denselayer");
    char *part = layer ? strchr(layer, '.') : NULL;
    if (!part || (strncmp(part, ".norm.", 6) != 0 && strncmp(part, ".conv.", 6) != 0))
        return true;
    if ((part[6] == '1' || part[6] == '2') && part[7] == '.')
        memmove(part + 5, part + 6, strlen(part + 6) + 1);
    return true;
}

static bool is_head(const struct chex_param *p) {
    return p->kind == CHEX_PARAM_FC_WEIGHT || p->kind == CHEX_PARAM_FC_BIAS;
}

static bool same_shape(const struct tensor *t, const struct chex_param *p) {
    bool same = t->rank == (size_t)p->rank;
    for (int i = 0; same && i < p->rank; i++)
        same = t->dims[i] == (size_t)p->dims[i];
    return same;
}

static void print_shape(const struct tensor *t, char *out, size_t size) {
    size_t at = (size_t)snprintf(out, size, "[");
    for (size_t i = 0; i < t->rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%zu", i ? "," : "", t->dims[i]);
    if (at < size)
        snprintf(out + at, size - at, "]");
}

static float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    uint32_t bits;
    if (exponent == 0) {
        float f = (float)fraction * 0x1p-24f; /* zero and subnormal: exact in fp32 */
        return sign ? -f : f;
    }
    bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void convert(const struct tensor *t, const char *in, float *out) {
    if (t->item_bytes == sizeof(float)) {
        memcpy(out, in, t->count * sizeof(float));
        return;
    }
    bool half = t->dtype[0] == 'F';
    for (size_t i = 0; i < t->count; i++) {
        uint16_t raw;
        memcpy(&raw, in + i * sizeof raw, sizeof raw);
        uint32_t bits = (uint32_t)raw << 16;
        if (half)
            out[i] = half_to_float(raw);
        else
            memcpy(&out[i], &bits, sizeof bits);
    }
}

static enum chex_status load_tensor(const struct tensor_file *f, const struct tensor *t,
                                    const struct chex_param *p, float *state,
                                    struct chex_error *err) {
    if (!same_shape(t, p)) {
        char got[96], want[96];
        struct tensor expected = {.rank = (size_t)p->rank};
        for (int i = 0; i < p->rank; i++)
            expected.dims[i] = (size_t)p->dims[i];
        print_shape(t, got, sizeof got);
        print_shape(&expected, want, sizeof want);
        return chex_error_set(err, CHEX_E_DATA, "%s: tensor '%.100s' has shape %s, expected %s",
                              f->path, t->name, got, want);
    }
    if (strcmp(t->dtype, "F32") != 0 && strcmp(t->dtype, "F16") != 0 &&
        strcmp(t->dtype, "BF16") != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: tensor '%.100s' is %.16s, expected F32, F16 or BF16", f->path,
                              t->name, t->dtype);
    convert(t, f->body + t->from, state + p->offset);
    for (size_t i = 0; i < p->count; i++)
        if (!(state[p->offset + i] - state[p->offset + i] == 0)) /* infinite or NaN */
            return chex_error_set(err, CHEX_E_DATA, "%s: tensor '%.100s': element %zu is %g",
                                  f->path, t->name, i, (double)state[p->offset + i]);
    return CHEX_OK;
}

/* found[i]: the tensor for parameter i of the network, or NULL. */
static enum chex_status match(struct tensor_file *f, const struct chex_net *net,
                              const struct tensor **found, struct chex_error *err) {
    for (size_t i = 0; i < f->tensor_count; i++) {
        const struct tensor *t = &f->tensors[i];
        char name[2 * CHEX_NET_NAME_BYTES];
        int at = canonical_name(t->name, name, sizeof name) ? chex_net_find_param(net, name) : -1;
        if (at >= 0 && found[at])
            return chex_error_set(err, CHEX_E_DATA, "%s: '%.100s' and '%.100s' are one parameter",
                                  f->path, found[at]->name, t->name);
        if (at >= 0) {
            found[at] = t;
        } else if (!strstr(t->name, "num_batches_tracked")) {
            f->extra = f->extra ? f->extra : t->name;
            f->extra_count++;
        }
    }
    return CHEX_OK;
}

static enum chex_status load_all(const struct tensor_file *f, const struct chex_net *net,
                                 const struct tensor **found, float *state, bool *head_out,
                                 struct chex_error *err) {
    bool head = head_out != NULL;
    for (int i = 0; i < net->param_total; i++)
        if (is_head(&net->params[i]))
            head = head && found[i] && same_shape(found[i], &net->params[i]);
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        if (is_head(p) && !head)
            continue;
        if (!found[i])
            return chex_error_set(err, CHEX_E_DATA, "%s: no tensor '%s' (required by %s)%s%.100s%s",
                                  f->path, p->name, net->model,
                                  f->extra ? "; the file has an unknown tensor '" : "",
                                  f->extra ? f->extra : "", f->extra ? "'" : "");
        CHEX_TRY(load_tensor(f, found[i], p, state, err));
    }
    if (head_out)
        *head_out = head;
    return CHEX_OK;
}

/* Reads the whole file and checks its header. */
static enum chex_status open_file(const char *path, struct tensor_file *f, struct chex_error *err) {
    *f = (struct tensor_file){.path = path};
    CHEX_TRY(chex_model_refuse_pytorch(path, err));
    CHEX_TRY(chex_model_refuse_hdf5(path, err));
    CHEX_TRY(chex_fs_read(path, max_file_bytes, &f->data, &f->size, err));
    return parse_header(f, err);
}

static void close_file(struct tensor_file *f) {
    json_decref(f->header);
    free(f->tensors);
    free(f->data);
}

enum chex_status chex_safetensors_read(const char *path, const struct chex_net *net, float *state,
                                       bool *head_loaded_out, struct chex_error *err) {
    struct tensor_file f;
    bool head = false;
    const struct tensor **found = chex_alloc_zeroed((size_t)net->param_total, sizeof *found);
    float *fresh = chex_alloc_zeroed(net->state_count, sizeof *fresh);
    enum chex_status st = open_file(path, &f, err);
    if (st == CHEX_OK && (!found || !fresh))
        st = chex_error_memory(err, "%s", path);
    if (st == CHEX_OK)
        st = match(&f, net, found, err);
    if (st == CHEX_OK) {
        memcpy(fresh, state, net->state_count * sizeof *fresh);
        st = load_all(&f, net, found, fresh, head_loaded_out ? &head : NULL, err);
    }
    if (st == CHEX_OK && f.extra_count)
        chex_warn(
            "%s: %zu tensors are not parameters of %s and are ignored (the first is '%.100s')",
            path, f.extra_count, net->model, f.extra);
    if (st == CHEX_OK) {
        memcpy(state, fresh, net->state_count * sizeof *fresh);
        if (head_loaded_out)
            *head_loaded_out = head;
    }
    close_file(&f);
    free(found);
    free(fresh);
    return st;
}

/* ---- metadata ---- */

static void warn_ignored(const char *path, const char *key, const char *text) {
    chex_warn("%s: metadata '%s' has an invalid value '%.60s'; it is ignored", path, key, text);
}

/* Older exports have "" for an unknown resize. */
static bool read_text(const json_t *metadata, const char *key, char **out) {
    const char *text = json_string_value(json_object_get(metadata, key));
    if (!text || !*text)
        return true;
    *out = strdup(text);
    return *out != NULL;
}

static void read_size(const char *path, const json_t *metadata, const char *key, int *out) {
    const char *text = json_string_value(json_object_get(metadata, key));
    int64_t size;
    if (!text)
        return;
    if (chex_parse_i64(text, &size) && size > 0 && size <= MAX_IMAGE_PX)
        *out = (int)size;
    else
        warn_ignored(path, key, text);
}

static bool is_string_list(const json_t *list) {
    size_t i;
    const json_t *name;
    bool good = json_array_size(list) > 0;
    json_array_foreach(list, i, name) good = good && json_is_string(name);
    return good;
}

static bool read_classes(const char *path, const json_t *metadata,
                         struct chex_safetensors_about *about) {
    const char *text = json_string_value(json_object_get(metadata, "classes"));
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    if (!is_string_list(list)) {
        if (text)
            warn_ignored(path, "classes", text);
        json_decref(list);
        return true;
    }
    const size_t count = json_array_size(list);
    bool good = (about->class_names = chex_alloc_zeroed(count, sizeof(char *))) != NULL;
    for (size_t i = 0; good && i < count; i++, about->classes++)
        good = (about->class_names[i] = strdup(json_string_value(json_array_get(list, i)))) != NULL;
    json_decref(list);
    return good;
}

enum chex_status chex_safetensors_about(const char *path, struct chex_safetensors_about *about_out,
                                        struct chex_error *err) {
    struct tensor_file f;
    struct chex_safetensors_about about = {0};
    enum chex_status st = open_file(path, &f, err);
    const json_t *metadata = json_object_get(f.header, "__metadata__");
    if (st == CHEX_OK) {
        read_size(path, metadata, "image_size", &about.image_size);
        read_size(path, metadata, "stored_size", &about.stored_size);
        if (!read_text(metadata, "model", &about.model) ||
            !read_text(metadata, "resize", &about.resize) ||
            !read_text(metadata, "split", &about.split) ||
            !read_text(metadata, "source_digest", &about.source_digest) ||
            !read_text(metadata, "members", &about.members) ||
            !read_classes(path, metadata, &about))
            st = chex_error_memory(err, "%s", path);
    }
    close_file(&f);
    if (st == CHEX_OK)
        *about_out = about;
    else
        chex_safetensors_about_release(&about);
    return st;
}

void chex_safetensors_about_release(struct chex_safetensors_about *about) {
    for (int i = 0; i < about->classes; i++)
        free(about->class_names[i]);
    free(about->class_names);
    free(about->model);
    free(about->resize);
    free(about->split);
    free(about->source_digest);
    free(about->members);
    *about = (struct chex_safetensors_about){0};
}

bool chex_safetensors_may_be(const struct chex_safetensors_about *about,
                             const char *const *class_names, int classes) {
    bool same = about->classes == classes;
    for (int i = 0; same && i < classes; i++)
        same = strcmp(about->class_names[i], class_names[i]) == 0;
    return same || about->classes == 0;
}
