/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: write_tfrecord IMAGES LIST OUTPUT
 * Writes the images that a CheXNet list names, which lie in the folder IMAGES, as TFRecords with
 * the labels in the order of the list.
 */
#include "base/fs.h"
#include "ingest/crc32c.h"
#include "label/classes.h"
#include "label/labels.h"
#include "tool.h"

/* A protocol buffer under way. */
struct message {
    uint8_t *bytes;
    size_t size, capacity;
};

static void add(struct message *m, const void *bytes, size_t size) {
    while (m->size + size > m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 4096;
        if (!(m->bytes = realloc(m->bytes, m->capacity)))
            abort();
    }
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static void put_varint(struct message *m, uint64_t v) {
    for (; v > 127; v >>= 7)
        add(m, &(uint8_t){(uint8_t)(v | 128)}, 1);
    add(m, &(uint8_t){(uint8_t)v}, 1);
}

/* Field `number` with bytes. */
static void put_bytes(struct message *m, int number, const void *bytes, size_t size) {
    put_varint(m, (uint64_t)number << 3 | 2);
    put_varint(m, size);
    add(m, bytes, size);
}

/* An entry of Features' map: the key and a Feature with one list, whose kind is its number. */
static void put_feature(struct message *features, const char *key, int kind, const void *values,
                        size_t size) {
    struct message list = {0}, feature = {0}, entry = {0};
    put_bytes(&list, 1, values, size);
    put_bytes(&feature, kind, list.bytes, list.size);
    put_bytes(&entry, 1, key, strlen(key));
    put_bytes(&entry, 2, feature.bytes, feature.size);
    put_bytes(features, 1, entry.bytes, entry.size);
    free(list.bytes);
    free(feature.bytes);
    free(entry.bytes);
}

static uint32_t masked(const void *bytes, size_t size) {
    uint32_t c = chex_crc32c(bytes, size);
    return (c >> 15 | c << 17) + 0xA282EAD8u;
}

static void put_little(struct message *m, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++)
        add(m, &(uint8_t){(uint8_t)(v >> 8 * i)}, 1);
}

static void put_record(struct message *file, const struct message *example) {
    size_t head = file->size;
    put_little(file, example->size, 8);
    put_little(file, masked(file->bytes + head, 8), 4);
    add(file, example->bytes, example->size);
    put_little(file, masked(example->bytes, example->size), 4);
}

static void add_row(struct message *file, const char *dir, const struct chex_label_row *row) {
    enum { MOST = 1 << 30 };
    struct message features = {0}, example = {0}, labels = {0};
    struct chex_error err = {0};
    char *image = NULL, *path = chex_fs_join(dir, row->path);
    size_t bytes = 0;
    need(path, CHEX_E_RESOURCE, "memory", "out of memory");
    must(chex_fs_read(path, MOST, &image, &bytes, &err), &err);
    for (int c = 0; c < CHEX_CLASS_COUNT; c++)
        put_varint(&labels, (uint64_t)(int64_t)row->labels[c]);
    put_feature(&features, "image/encoded", 1, image, bytes);
    put_feature(&features, "image/filename", 1, row->path, strlen(row->path));
    put_feature(&features, "image/label", 3, labels.bytes, labels.size);
    put_bytes(&example, 1, features.bytes, features.size);
    put_record(file, &example);
    free(labels.bytes);
    free(features.bytes);
    free(example.bytes);
    free(image);
    free(path);
}

int main(int argc, char **argv) {
    struct chex_label_table *table = NULL;
    struct chex_error err = {0};
    struct message file = {0};
    if (argc != 4) {
        fprintf(stderr, "usage: write_tfrecord IMAGES LIST OUTPUT\n");
        return 2;
    }
    must(chex_labels_load(argv[2], "list", NULL, &table, &err), &err);
    for (size_t i = 0; i < table->count; i++)
        add_row(&file, argv[1], &table->rows[i]);
    must(chex_fs_write(argv[3], file.bytes, file.size, &err), &err);
    chex_labels_free(table);
    free(file.bytes);
    return 0;
}
