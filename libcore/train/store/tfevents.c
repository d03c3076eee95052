/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard's messages (model/protobuf.h). Field numbers, from tensorflow/core:
 *   Event: wall_time 1 (double), step 2 (varint), file_version 3 (string), summary 5 (message),
 *          session_log 7 (message)
 *   Summary: value 1 (message)
 *   Value: tag 1 (string), simple_value 2 (float)
 *   SessionLog: status 1 (varint)
 */
#include "train/store/tfevents.h"

#include <errno.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "ingest/crc32c.h"
#include "model/protobuf.h"

struct chex_tfevents {
    FILE *file;
    char *path;
};

/* Writes an event of now, with `data` as the field `field`. */
static enum chex_status write_event(struct chex_tfevents *t, int64_t step, int field,
                                    const void *data, size_t bytes, struct chex_error *err) {
    struct chex_protobuf event = {0};
    chex_protobuf_double(&event, 1, chex_clock_unix_s());
    chex_protobuf_int(&event, 2, step);
    chex_protobuf_bytes(&event, field, data, bytes);
    CHEX_AUTO_FREE char *record = event.data;
    const uint64_t length = event.bytes;
    if (event.failed)
        return chex_error_memory(err, NULL);
    const uint32_t head = chex_crc32c_masked(&length, sizeof length);
    const uint32_t tail = chex_crc32c_masked(record, event.bytes);
    if (fwrite(&length, sizeof length, 1, t->file) != 1 ||
        fwrite(&head, sizeof head, 1, t->file) != 1 ||
        fwrite(record, 1, event.bytes, t->file) != event.bytes ||
        fwrite(&tail, sizeof tail, 1, t->file) != 1 || fflush(t->file) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", t->path);
    return CHEX_OK;
}

/* The version of the format, then a start: TensorBoard treats a second one as a restart, and drops
 * its data of this step and later ones. */
static enum chex_status write_head(struct chex_tfevents *t, int64_t step, struct chex_error *err) {
    static const char version[] = "brain.Event:2";
    static const char start[] = {1 << 3, 1}; /* a SessionLog with the status START */
    CHEX_TRY(write_event(t, 0, 3, version, sizeof version - 1, err));
    return write_event(t, step, 7, start, sizeof start, err);
}

/* If the name exists, another start happened in the same second: the next second is tried. */
static enum chex_status create_file(struct chex_tfevents *t, const char *dir, const char *host,
                                    struct chex_error *err) {
    long long second = (long long)chex_clock_unix_s();
    do {
        free(t->path);
        t->path = chex_fs_format("%s/events.out.tfevents.%010lld.%s", dir, second++, host);
        CHEX_ALLOCATED(t->path, err, NULL);
        t->file = fopen(t->path, "wbxe");
    } while (!t->file && errno == EEXIST);
    return t->file ? CHEX_OK
                   : chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", t->path);
}

enum chex_status chex_tfevents_create(const char *dir, const char *host, int64_t first_step,
                                      struct chex_tfevents **out, struct chex_error *err) {
    struct chex_tfevents *t = chex_alloc_zeroed(1, sizeof *t);
    CHEX_ALLOCATED(t, err, NULL);
    enum chex_status st = create_file(t, dir, host, err);
    if (st == CHEX_OK)
        st = write_head(t, first_step, err);
    if (st != CHEX_OK)
        chex_tfevents_close(t);
    else
        *out = t;
    return st;
}

enum chex_status chex_tfevents_scalar(struct chex_tfevents *t, const char *tag, int64_t step,
                                      double value, struct chex_error *err) {
    struct chex_protobuf entry = {0}, summary = {0};
    chex_protobuf_text(&entry, 1, tag);
    chex_protobuf_float(&entry, 2, (float)value);
    chex_protobuf_message(&summary, 1, &entry);
    CHEX_AUTO_FREE char *data = summary.data;
    return summary.failed ? chex_error_memory(err, NULL)
                          : write_event(t, step, 5, data, summary.bytes, err);
}

void chex_tfevents_close(struct chex_tfevents *t) {
    if (!t)
        return;
    if (t->file)
        fclose(t->file);
    free(t->path);
    free(t);
}
