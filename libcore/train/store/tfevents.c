/* SPDX-License-Identifier: Apache-2.0
 *
 * A small encoder for TensorBoard's protocol buffers. The protobuf library would be the largest
 * dependency of the project, for a handful of fields. Field numbers, from tensorflow/core:
 *   Event: wall_time 1 (double), step 2 (varint), file_version 3 (string), summary 5 (message),
 *          session_log 7 (message)
 *   Summary: value 1 (message)
 *   Value: tag 1 (string), simple_value 2 (float)
 *   SessionLog: status 1 (varint)
 */
#include "train/store/tfevents.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "ingest/crc32c.h"

struct chex_tfevents {
    FILE *file;
    char *path;
};

enum { EVENT_BYTES = 512 };

struct message {
    uint8_t data[EVENT_BYTES];
    size_t size;
};

static void put_bytes(struct message *m, const void *data, size_t size) {
    if (m->size + size <= EVENT_BYTES) {
        memcpy(m->data + m->size, data, size);
        m->size += size;
    }
}

static void put_varint(struct message *m, uint64_t v) {
    do {
        uint8_t byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        put_bytes(m, &byte, 1);
        v >>= 7;
    } while (v);
}

enum wire { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };
static void put_key(struct message *m, int field, enum wire wire) {
    put_varint(m, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_block(struct message *m, int field, const void *data, size_t size) {
    put_key(m, field, LENGTH);
    put_varint(m, size);
    put_bytes(m, data, size);
}

static void start_event(struct message *m, int64_t step) {
    double now = chex_clock_unix_s();
    m->size = 0;
    put_key(m, 1, FIXED64);
    put_bytes(m, &now, sizeof now);
    put_key(m, 2, VARINT);
    put_varint(m, (uint64_t)step);
}

static enum chex_status write_record(struct chex_tfevents *t, const struct message *m,
                                     struct chex_error *err) {
    uint64_t length = m->size;
    uint32_t head = chex_crc32c_masked(&length, sizeof length);
    uint32_t tail = chex_crc32c_masked(m->data, m->size);
    if (fwrite(&length, sizeof length, 1, t->file) != 1 ||
        fwrite(&head, sizeof head, 1, t->file) != 1 ||
        fwrite(m->data, 1, m->size, t->file) != m->size ||
        fwrite(&tail, sizeof tail, 1, t->file) != 1 || fflush(t->file) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", t->path);
    return CHEX_OK;
}

static enum chex_status write_version(struct chex_tfevents *t, struct chex_error *err) {
    static const char version[] = "brain.Event:2";
    struct message m;
    start_event(&m, 0);
    put_block(&m, 3, version, sizeof version - 1);
    return write_record(t, &m, err);
}

/* TensorBoard treats a second START as a restart: it drops its data of this step and later ones. */
static enum chex_status write_start(struct chex_tfevents *t, int64_t step, struct chex_error *err) {
    enum { START = 1 };
    struct message m, log = {.size = 0};
    put_key(&log, 1, VARINT);
    put_varint(&log, START);
    start_event(&m, step);
    put_block(&m, 7, log.data, log.size);
    return write_record(t, &m, err);
}

/* If the name exists, another start happened in the same second: the next second is tried. */
static enum chex_status create_file(struct chex_tfevents *t, const char *dir, const char *host,
                                    struct chex_error *err) {
    long long second = (long long)chex_clock_unix_s();
    do {
        free(t->path);
        t->path = chex_fs_format("%s/events.out.tfevents.%010lld.%s", dir, second++, host);
        if (!t->path)
            return chex_error_memory(err, NULL);
        t->file = fopen(t->path, "wbxe");
    } while (!t->file && errno == EEXIST);
    return t->file ? CHEX_OK
                   : chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", t->path);
}

enum chex_status chex_tfevents_create(const char *dir, const char *host, int64_t first_step,
                                      struct chex_tfevents **out, struct chex_error *err) {
    struct chex_tfevents *t = chex_alloc_zeroed(1, sizeof *t);
    if (!t)
        return chex_error_memory(err, NULL);
    enum chex_status st = create_file(t, dir, host, err);
    if (st == CHEX_OK)
        st = write_version(t, err);
    if (st == CHEX_OK)
        st = write_start(t, first_step, err);
    if (st != CHEX_OK)
        chex_tfevents_close(t);
    else
        *out = t;
    return st;
}

enum chex_status chex_tfevents_scalar(struct chex_tfevents *t, const char *tag, int64_t step,
                                      double value, struct chex_error *err) {
    struct message entry = {.size = 0}, summary = {.size = 0}, event;
    float simple = (float)value;
    put_block(&entry, 1, tag, strnlen(tag, 128));
    put_key(&entry, 2, FIXED32);
    put_bytes(&entry, &simple, sizeof simple);
    put_block(&summary, 1, entry.data, entry.size);
    start_event(&event, step);
    put_block(&event, 5, summary.data, summary.size);
    return write_record(t, &event, err);
}

void chex_tfevents_close(struct chex_tfevents *t) {
    if (!t)
        return;
    if (t->file)
        fclose(t->file);
    free(t->path);
    free(t);
}
