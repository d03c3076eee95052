/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads TFRecord files and parses tf.train.Example without TensorFlow or protobuf.
 *
 * A record is: length (8 bytes), masked CRC-32C of the length (4), data, masked CRC-32C of the data
 * (4); all little-endian. The data is one protocol buffer message:
 *   Example { features = 1: Features { feature = 1: map<string, Feature> } }
 *   Feature { one of bytes_list = 1, float_list = 2, int64_list = 3, each with repeated value = 1 }
 * Unknown fields are skipped, as protobuf requires. No length in a file is trusted: each is
 * compared with the bytes that are left.
 */
#include "ingest/tfrecord.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "image/image.h"
#include "ingest/crc32c.h"

enum { HEAD_BYTES = CHEX_TFRECORD_HEAD_BYTES, TAIL_BYTES = 4, MAX_NAME_BYTES = 255 };

/* An image file and 1 MiB for the other fields. */
static const uint64_t MAX_RECORD_BYTES = (uint64_t)CHEX_IMAGE_MAX_FILE_BYTES + (1 << 20);

struct chex_tfrecord {
    char *path;
    int fd;
    uint64_t file_bytes, at;
    size_t number; /* of the record at `at`, from 1 */
    uint8_t *data;
    size_t capacity;
};

static uint64_t little(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

enum chex_status chex_tfrecord_open(const char *path, struct chex_tfrecord **reader_out,
                                    struct chex_error *err) {
    CHEX_AUTO(chex_tfrecord_close_at) struct chex_tfrecord *r = chex_alloc_zeroed(1, sizeof *r);
    if (!r)
        return chex_error_memory(err, "%s", path);
    r->number = 1;
    r->fd = -1;
    if (!(r->path = strdup(path)))
        return chex_error_memory(err, "%s", path);
    CHEX_TRY(chex_fs_open(path, &r->fd, &r->file_bytes, err));
    *reader_out = CHEX_TAKE(r);
    return CHEX_OK;
}

void chex_tfrecord_close(struct chex_tfrecord *r) {
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->data);
    free(r->path);
    free(r);
}

static enum chex_status fault(const struct chex_tfrecord *r, const char *what,
                              struct chex_error *err) {
    return chex_error_data(err, "%s: record %zu at byte %llu: %s", r->path, r->number,
                           (unsigned long long)r->at, what);
}

static enum chex_status read_at(const struct chex_tfrecord *r, void *data, size_t bytes,
                                uint64_t offset, struct chex_error *err) {
    if (chex_fs_pread(r->fd, data, bytes, offset) == bytes)
        return CHEX_OK;
    return errno ? chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", r->path)
                 : fault(r, "the file shrank while it was read", err);
}

/* The length of the record at r->at, checked with its CRC and the file size. */
static enum chex_status read_head(struct chex_tfrecord *r, size_t *bytes_out,
                                  struct chex_error *err) {
    uint8_t head[HEAD_BYTES];
    uint64_t left = r->file_bytes - r->at;
    if (left < HEAD_BYTES)
        return fault(r, "the file ends in the record's head", err);
    CHEX_TRY(read_at(r, head, sizeof head, r->at, err));
    if (r->at == 0 && head[0] == 0x1f && head[1] == 0x8b)
        return fault(r, "this is a gzip file, expected TFRecords without compression: gunzip it",
                     err);
    if (chex_crc32c_masked(head, 8) != (uint32_t)little(head + 8, 4))
        return fault(r, "the checksum of its length is wrong, expected a TFRecord", err);
    uint64_t bytes = little(head, 8);
    if (bytes > MAX_RECORD_BYTES)
        return fault(r, "it is longer than an image may be", err);
    if (left - HEAD_BYTES < bytes + TAIL_BYTES)
        return fault(r, "the file ends in the middle of it", err);
    *bytes_out = (size_t)bytes;
    return CHEX_OK;
}

static enum chex_status reserve(struct chex_tfrecord *r, size_t bytes, struct chex_error *err) {
    if (bytes <= r->capacity)
        return CHEX_OK;
    uint8_t *data = malloc(bytes);
    if (!data)
        return chex_error_memory(err, "%s", r->path);
    free(r->data);
    r->data = data;
    r->capacity = bytes;
    return CHEX_OK;
}

enum chex_status chex_tfrecord_next(struct chex_tfrecord *r, const uint8_t **data_out,
                                    size_t *bytes_out, uint64_t *offset_out,
                                    struct chex_error *err) {
    size_t bytes = 0;
    if (r->at == r->file_bytes) {
        *data_out = NULL;
        return CHEX_OK;
    }
    CHEX_TRY(read_head(r, &bytes, err));
    CHEX_TRY(reserve(r, bytes + TAIL_BYTES, err));
    CHEX_TRY(read_at(r, r->data, bytes + TAIL_BYTES, r->at + HEAD_BYTES, err));
    if (chex_crc32c_masked(r->data, bytes) != (uint32_t)little(r->data + bytes, TAIL_BYTES))
        return fault(r, "the checksum of its data is wrong", err);
    *data_out = r->data;
    *bytes_out = bytes;
    *offset_out = r->at + HEAD_BYTES;
    r->at += HEAD_BYTES + bytes + TAIL_BYTES;
    r->number++;
    return CHEX_OK;
}

/* ---- protocol buffers ---- */

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct span {
    const uint8_t *at, *end;
};

struct field {
    uint64_t number, value; /* value: only VARINT */
    enum wire wire;
    struct span bytes; /* content of the other wire types */
};

static bool take_varint(struct span *s, uint64_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && s->at < s->end; shift += 7) {
        uint8_t b = *s->at++;
        if (shift == 63 && b > 1)
            return false;
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool take_bytes(struct span *s, uint64_t n, struct span *out) {
    if (n > (uint64_t)(s->end - s->at))
        return false;
    *out = (struct span){s->at, s->at + n};
    s->at += n;
    return true;
}

/* Reads the next field. Groups (wire types 3 and 4, deprecated) are an error. */
static bool take_field(struct span *s, struct field *f) {
    uint64_t tag, n;
    if (!take_varint(s, &tag) || tag >> 3 == 0)
        return false;
    f->number = tag >> 3;
    f->wire = (enum wire)(tag & 7);
    f->value = 0;
    f->bytes = (struct span){NULL, NULL};
    switch (tag & 7) {
    case VARINT: return take_varint(s, &f->value);
    case FIXED64: return take_bytes(s, 8, &f->bytes);
    case FIXED32: return take_bytes(s, 4, &f->bytes);
    case BYTES: return take_varint(s, &n) && take_bytes(s, n, &f->bytes);
    default: return false;
    }
}

static bool is_text(struct span s, const char *text) {
    size_t n = strlen(text);
    return (size_t)(s.end - s.at) == n && memcmp(s.at, text, n) == 0;
}

/* ---- tf.train.Example ---- */

/* Feature's three kinds of list. */
enum kind { NO_LIST = 0, BYTES_LIST = 1, FLOAT_LIST = 2, INT64_LIST = 3 };

struct feature {
    enum kind kind;
    struct span list;
};

struct features {
    struct feature image, name, label;
};

static enum chex_status broken(const char *what, struct chex_error *err) {
    return chex_error_data(err, "%s is no valid tf.train.Example", what);
}

static bool read_feature(struct span s, struct feature *out) {
    struct field f;
    *out = (struct feature){NO_LIST, {NULL, NULL}};
    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return false;
        if (f.wire == BYTES && f.number >= BYTES_LIST && f.number <= INT64_LIST)
            *out = (struct feature){(enum kind)f.number, f.bytes};
    }
    return true;
}

/* One entry of the feature map: key = 1, feature = 2. */
static bool read_entry(struct span s, struct features *out) {
    struct field f;
    struct span key = {NULL, NULL}, value = {NULL, NULL};
    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return false;
        if (f.wire == BYTES && f.number == 1)
            key = f.bytes;
        if (f.wire == BYTES && f.number == 2)
            value = f.bytes;
    }
    struct feature *to = !key.at                          ? NULL
                         : is_text(key, "image/encoded")  ? &out->image
                         : is_text(key, "image/filename") ? &out->name
                         : is_text(key, "image/label")    ? &out->label
                                                          : NULL;
    return !to || read_feature(value, to);
}

static bool read_features(struct span s, struct features *out) {
    struct field f;
    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return false;
        if (f.wire == BYTES && f.number == 1 && !read_entry(f.bytes, out))
            return false;
    }
    return true;
}

/* The one value of a list of bytes. */
static enum chex_status one_value(const struct feature *feature, const char *key,
                                  struct span *value_out, struct chex_error *err) {
    struct span s = feature->list;
    struct field f;
    size_t count = 0;
    if (feature->kind == NO_LIST)
        return chex_error_data(err, "it has no %s", key);
    if (feature->kind != BYTES_LIST)
        return chex_error_data(err, "%s holds numbers, expected bytes", key);
    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return broken(key, err);
        if (f.wire != BYTES || f.number != 1)
            continue;
        *value_out = f.bytes;
        count++;
    }
    if (count != 1)
        return chex_error_data(err, "%s holds %zu values, expected 1", key, count);
    return CHEX_OK;
}

struct labels {
    int8_t *values;
    size_t count; /* may pass CHEX_CLASS_COUNT; those beyond are not kept */
};

static enum chex_status add_label(struct labels *l, double value, struct chex_error *err) {
    if (value != 0 && value != 1 && value != -1)
        return chex_error_data(err, "value %zu of image/label is %g, expected 0, 1 or -1",
                               l->count + 1, value);
    if (l->count < CHEX_CLASS_COUNT)
        l->values[l->count] = (int8_t)value;
    l->count++;
    return CHEX_OK;
}

/* Packed encoding: values without tags. */
static enum chex_status add_packed(struct labels *l, enum kind kind, struct span s,
                                   struct chex_error *err) {
    while (s.at < s.end) {
        uint64_t bits;
        struct span raw;
        float value;
        if (kind == INT64_LIST && take_varint(&s, &bits)) {
            CHEX_TRY(add_label(l, (double)(int64_t)bits, err));
        } else if (kind == FLOAT_LIST && take_bytes(&s, 4, &raw)) {
            uint32_t word = (uint32_t)little(raw.at, 4);
            memcpy(&value, &word, sizeof value);
            CHEX_TRY(add_label(l, (double)value, err));
        } else {
            return broken("image/label", err);
        }
    }
    return CHEX_OK;
}

static enum chex_status read_labels(const struct feature *feature, int8_t *values,
                                    struct chex_error *err) {
    struct labels l = {values, 0};
    struct span s = feature->list;
    struct field f;
    if (feature->kind == NO_LIST)
        return chex_error_data(err, "it has no image/label");
    if (feature->kind == BYTES_LIST)
        return chex_error_data(err, "image/label holds bytes, expected numbers");
    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return broken("image/label", err);
        if (f.number != 1)
            continue;
        if (f.wire == BYTES || (f.wire == FIXED32 && feature->kind == FLOAT_LIST))
            CHEX_TRY(add_packed(&l, feature->kind, f.bytes, err));
        else if (f.wire == VARINT && feature->kind == INT64_LIST)
            CHEX_TRY(add_label(&l, (double)(int64_t)f.value, err));
        else
            return broken("image/label", err);
    }
    if (l.count != CHEX_CLASS_COUNT)
        return chex_error_data(err, "image/label holds %zu values, expected %d", l.count,
                               CHEX_CLASS_COUNT);
    return CHEX_OK;
}

/* The name must fit into a label table: a file name of 1 to 255 bytes, without bytes that end a
 * line or a field. */
static enum chex_status check_name(struct span name, struct chex_error *err) {
    size_t last = 0;
    for (const uint8_t *p = name.at; p < name.end; p++) {
        if (*p <= ' ' || *p == 127)
            return chex_error_data(err,
                                   "image/filename holds byte %d, expected a file name without "
                                   "blanks and control characters",
                                   *p);
        last = *p == '/' ? 0 : last + 1;
    }
    if (last == 0 || last > MAX_NAME_BYTES)
        return chex_error_data(err, "image/filename is a name of %zu bytes, expected 1 to %d", last,
                               MAX_NAME_BYTES);
    return CHEX_OK;
}

enum chex_status chex_tfrecord_parse(const uint8_t *record, size_t bytes,
                                     struct chex_tfrecord_example *example_out,
                                     struct chex_error *err) {
    struct span s = {record, record + bytes}, image, name;
    struct chex_tfrecord_example e;
    struct features features = {0};
    struct field f;
    while (s.at < s.end) {
        if (!take_field(&s, &f))
            return broken("it", err);
        if (f.wire == BYTES && f.number == 1 && !read_features(f.bytes, &features))
            return broken("it", err);
    }
    CHEX_TRY(one_value(&features.image, "image/encoded", &image, err));
    CHEX_TRY(one_value(&features.name, "image/filename", &name, err));
    CHEX_TRY(check_name(name, err));
    CHEX_TRY(read_labels(&features.label, e.labels, err));
    e.image = image.at;
    e.image_bytes = (size_t)(image.end - image.at);
    e.name = (const char *)name.at;
    e.name_bytes = (size_t)(name.end - name.at);
    *example_out = e;
    return CHEX_OK;
}
