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
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/units.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors holds little-endian numbers; a big-endian host would have to swap them"
#endif

enum { LENGTH_BYTES = 8, ALIGN_BYTES = 8, MAX_IMAGE_PX = 4096 };
static const uint64_t max_header_bytes = 16u << 20, max_file_bytes = (uint64_t)2 << 30;

/* An entry of the header. */
struct entry {
    struct chex_tensor tensor; /* `name` in the header; `data` NULL */
    uint64_t from, to;         /* byte range, counted from the end of the header */
};

struct tensor_file {
    const char *path;
    char *data;
    size_t size;
    json_t *header;
    const char *body;
    uint64_t body_bytes;
    struct entry *entries;
    size_t entry_count;
};

/* The texts of the description, and their keys in the metadata. */
static const struct {
    const char *key;
    size_t at;
} texts[] = {{"model", offsetof(struct chex_safetensors_about, model)},
             {"resize", offsetof(struct chex_safetensors_about, resize)},
             {"split", offsetof(struct chex_safetensors_about, split)},
             {"source_digest", offsetof(struct chex_safetensors_about, source_digest)},
             {"members", offsetof(struct chex_safetensors_about, members)},
             {"fold", offsetof(struct chex_safetensors_about, fold)},
             {"unions", offsetof(struct chex_safetensors_about, unions)},
             {"weights", offsetof(struct chex_safetensors_about, weights)},
             {"deployment", offsetof(struct chex_safetensors_about, deployment)},
             {"ensemble", offsetof(struct chex_safetensors_about, ensemble)}};
static char **text_of(const struct chex_safetensors_about *about, size_t i) {
    return (char **)((uintptr_t)about + texts[i].at);
}

/* ---- writing ---- */

static json_t *make_entry(const char *dtype, const int *dims, int rank, uint64_t from,
                          uint64_t to) {
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
           add_text(object, "crop", "centre");
}

json_t *chex_safetensors_metadata(const struct chex_net *net,
                                  const struct chex_safetensors_about *about) {
    json_auto_t *object = json_object(), *names = json_array();
    bool good = object && names;
    for (int i = 0; i < about->classes; i++)
        good = good && json_array_append_new(names, json_string(about->class_names[i])) == 0;
    CHEX_AUTO_FREE char *classes = good && about->classes ? json_dumps(names, JSON_COMPACT) : NULL;
    good = good && (classes || !about->classes) && add_text(object, "format", "pt") &&
           add_text(object, "model", about->model) &&
           add_size(object, "image_size", about->image_size) &&
           add_size(object, "stored_size", about->stored_size) && add_input(object, net) &&
           add_text(object, "output",
                    about->ensemble ? "the mean of several networks (key ensemble), whose tensors "
                                      "begin with members.0., members.1., ..."
                    : about->deployment
                        ? "one logit for each of classes: its sigmoid is the probability, which "
                          "calibration of the key deployment corrects before its thresholds"
                        : "one logit for each of classes: its sigmoid is the probability") &&
           add_text(object, "classes", classes);
    for (size_t i = 1; i < CHEX_COUNT(texts); i++) /* all but the model */
        good = good && add_text(object, texts[i].key, *text_of(about, i));
    return good ? CHEX_TAKE(object) : NULL;
}

static size_t statistic_bytes(const struct chex_statistic *t) {
    size_t bytes = sizeof *t->data;
    for (int i = 0; i < t->rank; i++)
        bytes *= (size_t)t->dims[i];
    return bytes;
}

/* The I64 counters come first, so that every tensor is aligned to its element size. */
static enum chex_status make_header(const struct chex_net *net,
                                    const struct chex_safetensors_about *about,
                                    const struct chex_statistic *statistics, int count,
                                    char **text_out, struct chex_error *err) {
    json_auto_t *header = json_object();
    uint64_t at = 0;
    int bad =
        about ? json_object_set_new(header, "__metadata__", chex_safetensors_metadata(net, about))
              : 0;
    char name[CHEX_NET_NAME_BYTES + sizeof ".num_batches_tracked"];
    for (int i = 0; i < net->bn_count; i++, at += sizeof(int64_t)) {
        snprintf(name, sizeof name, "%s.num_batches_tracked", net->bns[i].name);
        bad |=
            json_object_set_new(header, name, make_entry("I64", NULL, 0, at, at + sizeof(int64_t)));
    }
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        uint64_t to = at + p->count * sizeof(float);
        bad |= json_object_set_new(header, p->name, make_entry("F32", p->dims, p->rank, at, to));
        at = to;
    }
    for (int i = 0; i < count; i++) {
        const struct chex_statistic *t = &statistics[i];
        uint64_t to = at + statistic_bytes(t);
        bad |= json_object_set_new(header, t->name, make_entry("F32", t->dims, t->rank, at, to));
        at = to;
    }
    if (bad || !(*text_out = json_dumps(header, JSON_COMPACT))) /* no memory, or a name not UTF-8 */
        return chex_error_set(err, CHEX_E_FAIL,
                              "safetensors: the header cannot be encoded as JSON");
    return CHEX_OK;
}

enum chex_status chex_safetensors_write(const char *path, const struct chex_net *net,
                                        const float *state, int64_t batches_tracked,
                                        const struct chex_safetensors_about *about,
                                        const struct chex_statistic *statistics, int count,
                                        struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    CHEX_TRY(make_header(net, about, statistics, count, &text, err));
    size_t length = strlen(text), padded = (length + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    size_t size = LENGTH_BYTES + padded + (size_t)net->bn_count * sizeof(int64_t) +
                  net->state_count * sizeof(float);
    for (int i = 0; i < count; i++)
        size += statistic_bytes(&statistics[i]);
    CHEX_AUTO_FREE char *file = size > max_file_bytes ? NULL : malloc(size);
    if (!file)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "%s: no memory for %zu bytes, or more than 2 GiB", path, size);
    uint64_t header_bytes = padded;
    memcpy(file, &header_bytes, LENGTH_BYTES);
    memcpy(file + LENGTH_BYTES, text, length);
    memset(file + LENGTH_BYTES + length, ' ', padded - length);
    char *at = file + LENGTH_BYTES + padded;
    for (int i = 0; i < net->bn_count; i++, at += sizeof batches_tracked)
        memcpy(at, &batches_tracked, sizeof batches_tracked);
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        memcpy(at, state + p->offset, p->count * sizeof(float));
        at += p->count * sizeof(float);
    }
    for (int i = 0; i < count; i++) {
        memcpy(at, statistics[i].data, statistic_bytes(&statistics[i]));
        at += statistic_bytes(&statistics[i]);
    }
    return chex_fs_write(path, file, size, err);
}

/* ---- reading ---- */

static enum chex_status bad_tensor(const struct tensor_file *f, const char *name, const char *what,
                                   struct chex_error *err) {
    return chex_error_data(err, "%s: tensor '%.100s': %s", f->path, name, what);
}

static bool get_size(const json_t *value, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool parse_shape(const json_t *shape, struct chex_tensor *t, size_t *count_out) {
    if (!json_is_array(shape) || json_array_size(shape) > CHEX_TENSOR_RANK)
        return false;
    t->rank = json_array_size(shape);
    *count_out = 1;
    for (size_t i = 0; i < t->rank; i++) {
        uint64_t n;
        if (!get_size(json_array_get(shape, i), &n) ||
            __builtin_mul_overflow(*count_out, n, count_out))
            return false;
        t->dims[i] = n;
    }
    return true;
}

static enum chex_status parse_entry(const struct tensor_file *f, const char *name,
                                    const json_t *value, struct entry *e, struct chex_error *err) {
    const char *type = json_string_value(json_object_get(value, "dtype"));
    size_t count;
    e->tensor.name = (char *)(uintptr_t)name;
    if (!type)
        return bad_tensor(f, name, "no dtype", err);
    const struct chex_dtype *dtype = chex_dtype_find(type);
    snprintf(e->tensor.type_name, sizeof e->tensor.type_name, "%s", type);
    if (!parse_shape(json_object_get(value, "shape"), &e->tensor, &count))
        return bad_tensor(f, name, "the shape is not a list of up to 8 sizes", err);
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !get_size(json_array_get(offsets, 0), &e->from) ||
        !get_size(json_array_get(offsets, 1), &e->to) || e->from > e->to)
        return bad_tensor(f, name, "data_offsets are not a begin and an end", err);
    if (e->to > f->body_bytes)
        return chex_error_data(err,
                               "%s: tensor '%.100s' ends at byte %" PRIu64
                               " of the data, which has %" PRIu64 ": truncated?",
                               f->path, name, e->to, f->body_bytes);
    uint64_t bytes;
    if (dtype && (__builtin_mul_overflow(count, dtype->bytes, &bytes) || bytes != e->to - e->from))
        return bad_tensor(f, name, "data_offsets disagree with dtype and shape", err);
    return CHEX_OK;
}

static int by_offset(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* The format requires that the tensors cover the data without overlaps and holes. */
static enum chex_status check_cover(struct tensor_file *f, struct chex_error *err) {
    qsort(f->entries, f->entry_count, sizeof *f->entries, by_offset);
    uint64_t end = 0;
    for (size_t i = 0; i < f->entry_count; i++) {
        const struct entry *e = &f->entries[i];
        if (e->from != end)
            return bad_tensor(f, e->tensor.name,
                              e->from < end ? "overlaps another tensor" : "unused bytes before it",
                              err);
        end = e->to;
    }
    if (end != f->body_bytes)
        return chex_error_data(
            err, "%s: the tensors end at byte %" PRIu64 " of the data, which has %" PRIu64, f->path,
            end, f->body_bytes);
    return CHEX_OK;
}

/* Ends "not a safetensors file": with what the file seems to be, by its first bytes. */
static const char *guess_kind(const char *data, size_t size) {
    const unsigned char *p = (const unsigned char *)data;
    size_t text = 0;
    while (text < size && text < 64 && p[text] && p[text] < 0x7f &&
           (p[text] >= ' ' || strchr("\t\r\n", p[text])))
        text++;
    if (size > 2 && p[0] == 8 && p[1] < 32 && (p[2] == 0x12 || p[2] == 0x3a))
        return ": it is an ONNX model";
    if (size > 3 && (!memcmp(p, "\x89PNG", 4) || !memcmp(p, "\xFF\xD8\xFF", 3)))
        return ": it is an image";
    if (size > 131 && !memcmp(p + 128, "DICM", 4))
        return ": it is an image";
    return text == 64 || text == size ? ": it is a text file" : ", or truncated";
}

static enum chex_status parse_header(struct tensor_file *f, struct chex_error *err) {
    uint64_t length;
    if (f->size < LENGTH_BYTES)
        return chex_error_data(err, "%s: %zu bytes are too few for a safetensors file", f->path,
                               f->size);
    memcpy(&length, f->data, LENGTH_BYTES);
    if (length > f->size - LENGTH_BYTES || length > max_header_bytes)
        return chex_error_data(err,
                               "%s: not a safetensors file%s; expected a checkpoint (.h5), "
                               "safetensors, or a file of torch.save",
                               f->path, guess_kind(f->data, f->size));
    f->body = f->data + LENGTH_BYTES + length;
    f->body_bytes = f->size - LENGTH_BYTES - length;
    json_error_t why;
    f->header = json_loadb(f->data + LENGTH_BYTES, length, JSON_REJECT_DUPLICATES, &why);
    if (!f->header)
        return chex_error_data(err, "%s: header, byte %d: %s", f->path, why.position, why.text);
    if (!json_is_object(f->header))
        return chex_error_data(err, "%s: the header is not a JSON object", f->path);
    f->entries = chex_alloc_zeroed(json_object_size(f->header), sizeof *f->entries);
    if (!f->entries)
        return chex_error_memory(err, "%s", f->path);
    const char *name;
    json_t *value;
    json_object_foreach(f->header, name, value) {
        if (strcmp(name, "__metadata__") != 0)
            CHEX_TRY(parse_entry(f, name, value, &f->entries[f->entry_count++], err));
    }
    return check_cover(f, err);
}

/* ---- metadata ---- */

static void warn_ignored(const char *path, const char *key, const char *text) {
    chex_warn("%s: metadata '%s' has an invalid value '%.60s'; it is ignored", path, key, text);
}

/* An empty text is unknown. */
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
    json_auto_t *list = text ? json_loads(text, 0, NULL) : NULL;
    if (!is_string_list(list)) {
        if (text)
            warn_ignored(path, "classes", text);
        return true;
    }
    const size_t count = json_array_size(list);
    bool good = (about->class_names = chex_alloc_zeroed(count, sizeof(char *))) != NULL;
    for (size_t i = 0; good && i < count; i++, about->classes++)
        good = (about->class_names[i] = strdup(json_string_value(json_array_get(list, i)))) != NULL;
    return good;
}

static enum chex_status read_about(const struct tensor_file *f,
                                   struct chex_safetensors_about *about, struct chex_error *err) {
    const json_t *metadata = json_object_get(f->header, "__metadata__");
    read_size(f->path, metadata, "image_size", &about->image_size);
    read_size(f->path, metadata, "stored_size", &about->stored_size);
    bool good = read_classes(f->path, metadata, about);
    for (size_t i = 0; good && i < CHEX_COUNT(texts); i++)
        good = read_text(metadata, texts[i].key, text_of(about, i));
    if (!good)
        return chex_error_memory(err, "%s", f->path);
    if (about->weights && strcmp(about->weights, "ema") != 0 &&
        strcmp(about->weights, "last") != 0) { /* a key of another program */
        free(about->weights);
        about->weights = NULL;
    }
    return CHEX_OK;
}

/* ---- a file as a whole ---- */

static void close_file(struct tensor_file *f) {
    json_decref(f->header);
    free(f->entries);
    free(f->data);
}

/* Moves the tensors of an open file into a set, in the order of their data. */
static enum chex_status fill_set(struct tensor_file *f, struct chex_tensor_set *set,
                                 struct chex_error *err) {
    CHEX_TRY(chex_tensor_set_begin(set, f->path, CHEX_TAKE(f->data), err));
    for (size_t i = 0; i < f->entry_count; i++) {
        struct chex_tensor *t = &f->entries[i].tensor;
        t->data = f->body + f->entries[i].from;
        CHEX_TRY(chex_tensor_set_add(set, t, NULL, err));
    }
    return CHEX_OK;
}

enum chex_status chex_safetensors_open(const char *path, struct chex_tensor_set *set_out,
                                       struct chex_safetensors_about *about_out,
                                       struct chex_error *err) {
    CHEX_AUTO(close_file) struct tensor_file f = {.path = path};
    CHEX_AUTO(chex_safetensors_about_release) struct chex_safetensors_about about = {0};
    CHEX_AUTO(chex_tensor_set_release) struct chex_tensor_set set = {0};
    CHEX_TRY(chex_fs_read(path, max_file_bytes, &f.data, &f.size, err));
    CHEX_TRY(parse_header(&f, err));
    if (about_out)
        CHEX_TRY(read_about(&f, &about, err));
    if (set_out)
        CHEX_TRY(fill_set(&f, &set, err));
    if (about_out)
        *about_out = about, about = (struct chex_safetensors_about){0};
    if (set_out)
        *set_out = set, set = (struct chex_tensor_set){0};
    return CHEX_OK;
}

void chex_safetensors_about_release(struct chex_safetensors_about *about) {
    for (int i = 0; i < about->classes; i++)
        free(about->class_names[i]);
    free(about->class_names);
    for (size_t i = 0; i < CHEX_COUNT(texts); i++)
        free(*text_of(about, i));
    free(about->training_loss);
    json_decref(about->training);
    *about = (struct chex_safetensors_about){0};
}

bool chex_safetensors_may_be(const struct chex_safetensors_about *about,
                             const char *const *class_names, int classes) {
    bool same = about->classes == classes;
    for (int i = 0; same && i < classes; i++)
        same = strcmp(about->class_names[i], class_names[i]) == 0;
    return same || about->classes == 0;
}

/* ---- statistics ---- */

enum { STATISTIC_RANK = CHEX_COUNT(((struct chex_statistic *)0)->dims) };

static enum chex_status copy_statistic(const struct chex_tensor *t, struct chex_statistic *out,
                                       const char *path, struct chex_error *err) {
    size_t count = 1;
    if (t->type != CHEX_TENSOR_F32 || t->rank > STATISTIC_RANK)
        return chex_error_data(
            err, "%s: tensor '%.100s' has %zu dimensions of %s (expected at most %d of F32)", path,
            t->name, t->rank, t->type_name, STATISTIC_RANK);
    for (size_t i = 0; i < t->rank; i++) {
        if (t->dims[i] > INT_MAX)
            return chex_error_data(err, "%s: tensor '%.100s' is too large", path, t->name);
        out->dims[i] = (int)t->dims[i];
        count *= t->dims[i];
    }
    out->rank = (int)t->rank;
    out->name = strdup(t->name);
    out->data = chex_alloc_zeroed(count, sizeof *out->data);
    if (!out->name || !out->data)
        return chex_error_memory(err, "%s", path);
    memcpy(out->data, t->data, count * sizeof *out->data);
    return CHEX_OK;
}

enum chex_status chex_statistics_read(const struct chex_tensor_set *set,
                                      struct chex_statistic **out, int *count_out,
                                      struct chex_error *err) {
    const size_t prefix = strlen(CHEX_STATISTIC_PREFIX);
    struct chex_statistic *list = chex_alloc_zeroed(set->count, sizeof *list);
    int count = 0;
    enum chex_status st = list ? CHEX_OK : chex_error_memory(err, "%s", set->path);
    for (size_t i = 0; st == CHEX_OK && i < set->count; i++)
        if (strncmp(set->tensors[i].name, CHEX_STATISTIC_PREFIX, prefix) == 0)
            st = copy_statistic(&set->tensors[i], &list[count++], set->path, err);
    const bool found = st == CHEX_OK && count;
    if (!found)
        chex_statistics_destroy(list, count);
    *out = found ? list : NULL;
    *count_out = found ? count : 0;
    return st;
}

void chex_statistics_destroy(struct chex_statistic *statistics, int count) {
    for (int i = 0; statistics && i < count; i++) {
        free(statistics[i].name);
        free(statistics[i].data);
    }
    free(statistics);
}
