/* SPDX-License-Identifier: Apache-2.0
 *
 * TFRecords: checksums, forms of the lists, and what is refused. The records are written here; what
 * TensorFlow wrote is in tests/cmd/0131-import-tfrecord.t.
 */
#include "ingest/tfrecord.h"
#include "ingest/crc32c.h"
#include "tap.h"

struct text {
    uint8_t at[4096];
    size_t n;
};

static void add(struct text *t, const void *data, size_t n) {
    BAIL_UNLESS(n <= sizeof t->at - t->n, "too long");
    memcpy(t->at + t->n, data, n);
    t->n += n;
}

static void add_varint(struct text *t, uint64_t v) {
    for (; v > 127; v >>= 7)
        add(t, &(uint8_t){(uint8_t)(v | 128)}, 1);
    add(t, &(uint8_t){(uint8_t)v}, 1);
}

static void add_bytes(struct text *t, unsigned number, const void *data, size_t n) {
    add_varint(t, number << 3 | 2);
    add_varint(t, n);
    add(t, data, n);
}

static void add_feature(struct text *to, const char *key, unsigned kind, const struct text *list) {
    struct text feature = {.n = 0}, entry = {.n = 0};
    add_bytes(&feature, kind, list->at, list->n);
    add_bytes(&entry, 1, key, strlen(key));
    add_bytes(&entry, 2, feature.at, feature.n);
    add_bytes(to, 1, entry.at, entry.n);
}

static struct text one_bytes(const char *value) {
    struct text list = {.n = 0};
    add_bytes(&list, 1, value, strlen(value));
    return list;
}

static struct text numbers(bool is_float, bool packed, int count) {
    struct text list = {.n = 0}, values = {.n = 0};
    for (int i = 0; i < count; i++) {
        float f = i == 3 ? -1.0f : (float)(i % 2);
        struct text *to = packed ? &values : &list;
        if (!packed)
            add_varint(to, 1 << 3 | (is_float ? 5 : 0));
        if (is_float)
            add(to, &f, 4);
        else
            add_varint(to, (uint64_t)(int64_t)f);
    }
    if (packed)
        add_bytes(&list, 1, values.at, values.n);
    return list;
}

/* An example of the three lists; a NULL one is left out. */
static struct text example(const struct text *image, const struct text *name,
                           const struct text *label, unsigned kind) {
    struct text features = {.n = 0}, out = {.n = 0}, other = one_bytes("x");
    add_feature(&features, "image/format", 1, &other);
    if (label)
        add_feature(&features, "image/label", kind, label);
    if (image)
        add_feature(&features, "image/encoded", 1, image);
    if (name)
        add_feature(&features, "image/filename", 1, name);
    add_bytes(&out, 1, features.at, features.n);
    return out;
}

static struct chex_error err;

static void refused(const struct text *t, const char *needle) {
    struct chex_tfrecord_example e;
    OK_STATUS(chex_tfrecord_parse(t->at, t->n, &e, &err), CHEX_E_DATA, err, needle);
}

static void check_forms(const struct text *image, const struct text *name) {
    for (int form = 0; form < 4; form++) {
        struct text label = numbers(form & 1, form & 2, 14), t;
        struct chex_tfrecord_example e;
        t = example(image, name, &label, form & 1 ? 2 : 3);
        bool fine = chex_tfrecord_parse(t.at, t.n, &e, &err) == CHEX_OK && e.image_bytes == 5 &&
                    memcmp(e.image, "bytes", 5) == 0 && e.name_bytes == 9 &&
                    memcmp(e.name, "a/b_1.png", 9) == 0;
        for (int i = 0; i < 14; i++)
            fine = fine && e.labels[i] == (i == 3 ? -1 : i % 2);
        OK(fine, "%s labels, %s", form & 1 ? "float" : "int64", form & 2 ? "packed" : "one by one");
    }
}

static void check_refusals(const struct text *image, const struct text *name) {
    struct text label = numbers(false, true, 14), t = example(NULL, name, &label, 3), other;
    refused(&t, "it has no image/encoded");
    t = example(image, NULL, &label, 3);
    refused(&t, "it has no image/filename");
    t = example(image, name, NULL, 3);
    refused(&t, "it has no image/label");
    t = example(image, name, name, 1);
    refused(&t, "image/label holds bytes, expected numbers");
    other = numbers(false, true, 13);
    t = example(image, name, &other, 3);
    refused(&t, "image/label holds 13 values, expected 14");
    other = numbers(false, true, 1);
    t = example(image, name, &other, 3);
    refused(&t, "image/label holds 1 values, expected 14");
    other = label;
    other.at[2] = 5;
    t = example(image, name, &other, 3);
    refused(&t, "value 1 of image/label is 5, expected 0, 1 or -1");
    other = one_bytes("a b.png");
    t = example(image, &other, &label, 3);
    refused(&t, "image/filename holds byte 32");
    other = one_bytes("a/");
    t = example(image, &other, &label, 3);
    refused(&t, "a name of 0 bytes, expected 1 to 255");
    other = one_bytes("x");
    add_bytes(&other, 1, "y", 1);
    t = example(&other, name, &label, 3);
    refused(&t, "image/encoded holds 2 values, expected 1");
    refused(&(struct text){.n = 0}, "it has no image/encoded");
    t = example(image, name, &label, 3);
    size_t whole = t.n, wrong = 0;
    for (t.n = 1; t.n < whole; t.n++) {
        struct chex_tfrecord_example e;
        wrong += chex_tfrecord_parse(t.at, t.n, &e, &err) != CHEX_E_DATA;
    }
    OK(wrong == 0, "a record cut anywhere is refused");
}

static void check_crc(void) {
    uint8_t data[300];
    size_t wrong = 0;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31 + 7);
    /* RFC 3720, B.4: 32 bytes of zeros, of ones, and "123456789" of the common check value. */
    static const uint8_t zeros[32];
    OK(chex_crc32c(zeros, 32) == 0x8A9136AAu && chex_crc32c("123456789", 9) == 0xE3069283u,
       "CRC-32C of known data");
    for (size_t from = 0; from < 16; from++)
        for (size_t n = 0; n + from <= sizeof data; n++)
            wrong += chex_crc32c(data + from, n) != chex_crc32c_table(data + from, n);
    OK(wrong == 0, "the table gives the same at any length and place");
}

int main(void) {
    struct text image = one_bytes("bytes"), name = one_bytes("a/b_1.png");
    int class_of[CHEX_CLASS_COUNT];
    check_crc();
    check_forms(&image, &name);
    check_refusals(&image, &name);
    OK(chex_tfrecord_parse_order("dell", class_of, &err) == CHEX_OK &&
           class_of[0] == chex_class_find("Cardiomegaly") &&
           class_of[13] == chex_class_find("Pneumonia"),
       "Dell's order");
    OK(chex_tfrecord_parse_order("chexnet", class_of, &err) == CHEX_OK && class_of[13] == 13,
       "ours");
    return tap_done();
}
