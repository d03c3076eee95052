/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes spool files. Layout of the file:
 *   0                      struct header, padded to one page (ROWS_AT)
 *   ROWS_AT                rows of row_bytes each; the row of a bad image is a hole
 *   header.index_at        index: for each row a struct record, its name and its reason, both with
 *                          NUL; after the last row the archive's fault with NUL ("" if none)
 * The header is written last. The index and every row have an XXH3-64 checksum.
 */
#include "ingest/spool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"

enum { ROWS_AT = 4096 };
static const char magic[8] = {'c', 'h', 'e', 'x', 's', 'p', 'l', '2'};

struct header {
    char magic[8];
    uint64_t row_bytes, rows, index_at, index_bytes, index_hash;
};

struct record {
    uint64_t bytes, hash[2], checksum;
    uint32_t width, height;
    uint32_t name_bytes, reason_bytes; /* without the NUL; reason_bytes 0: the row has pixels */
};

struct entry {
    struct record record;
    char *name, *reason;
    bool done;
};

struct chex_spool_writer {
    char *path, *temp;
    int fd;
    size_t row_bytes;
    pthread_mutex_t lock; /* guards the members below: one thread adds rows, others put them */
    struct entry *entries;
    size_t count, capacity;
};

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "the list of spooled images");
}

static void free_writer(struct chex_spool_writer *w) {
    if (w->fd >= 0)
        close(w->fd);
    for (size_t i = 0; i < w->count; i++) {
        free(w->entries[i].name);
        free(w->entries[i].reason);
    }
    pthread_mutex_destroy(&w->lock);
    CHEX_FREE(w->entries, w->path, w->temp, w);
}

void chex_spool_abandon(struct chex_spool_writer *w) {
    if (!w)
        return;
    if (w->fd >= 0)
        unlink(w->temp);
    free_writer(w);
}

enum chex_status chex_spool_create(const char *path, size_t row_bytes,
                                   struct chex_spool_writer **writer_out, struct chex_error *err) {
    CHEX_AUTO(chex_spool_abandon_at) struct chex_spool_writer *w = calloc(1, sizeof *w);
    if (!w)
        return no_memory(err);
    pthread_mutex_init(&w->lock, NULL);
    w->fd = -1;
    w->row_bytes = row_bytes;
    if (!(w->path = strdup(path)))
        return no_memory(err);
    CHEX_TRY(chex_fs_temp(path, &w->temp, &w->fd, err));
    *writer_out = CHEX_TAKE(w);
    return CHEX_OK;
}

enum chex_status chex_spool_add(struct chex_spool_writer *w, const char *name, uint64_t bytes,
                                size_t *row_out, struct chex_error *err) {
    char *copy = strdup(name);
    pthread_mutex_lock(&w->lock);
    const bool ok =
        copy && chex_alloc_grow(&w->entries, w->count, &w->capacity, sizeof *w->entries);
    if (ok) {
        *row_out = w->count;
        w->entries[w->count++] = (struct entry){
            .name = copy, .record = {.bytes = bytes, .name_bytes = (uint32_t)strlen(name)}};
    }
    pthread_mutex_unlock(&w->lock);
    if (!ok)
        free(copy);
    return ok ? CHEX_OK : no_memory(err);
}

static enum chex_status write_all(const struct chex_spool_writer *w, const void *data, size_t bytes,
                                  uint64_t at, struct chex_error *err) {
    if (chex_fs_pwrite(w->fd, data, bytes, at) == bytes)
        return CHEX_OK;
    return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", w->temp);
}

enum chex_status chex_spool_put(struct chex_spool_writer *w, size_t row, const uint8_t *pixels,
                                const uint64_t hash[2], int width, int height,
                                struct chex_error *err) {
    CHEX_TRY(write_all(w, pixels, w->row_bytes, ROWS_AT + (uint64_t)row * w->row_bytes, err));
    uint64_t checksum = chex_hash64(pixels, w->row_bytes);
    pthread_mutex_lock(&w->lock);
    struct entry *e = &w->entries[row];
    memcpy(e->record.hash, hash, sizeof e->record.hash);
    e->record.checksum = checksum;
    e->record.width = (uint32_t)width;
    e->record.height = (uint32_t)height;
    e->done = true;
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

enum chex_status chex_spool_reject(struct chex_spool_writer *w, size_t row, const char *reason,
                                   struct chex_error *err) {
    char *copy = strdup(reason);
    if (!copy)
        return no_memory(err);
    pthread_mutex_lock(&w->lock);
    w->entries[row].reason = copy;
    w->entries[row].record.reason_bytes = (uint32_t)strlen(copy);
    w->entries[row].done = true;
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static enum chex_status make_index(const struct chex_spool_writer *w, const char *fault,
                                   char **index_out, size_t *bytes_out, struct chex_error *err) {
    FILE *f = open_memstream(index_out, bytes_out);
    for (size_t i = 0; f && i < w->count; i++) {
        const struct entry *e = &w->entries[i];
        fwrite(&e->record, sizeof e->record, 1, f);
        fwrite(e->name, e->record.name_bytes + 1, 1, f);
        fwrite(e->reason ? e->reason : "", e->record.reason_bytes + 1, 1, f);
    }
    if (f)
        fwrite(fault ? fault : "", fault ? strlen(fault) + 1 : 1, 1, f);
    return f && fclose(f) == 0 ? CHEX_OK : no_memory(err);
}

static bool all_done(const struct chex_spool_writer *w) {
    for (size_t i = 0; i < w->count; i++)
        if (!w->entries[i].done)
            return false;
    return true;
}

static enum chex_status write_index(struct chex_spool_writer *w, const char *fault,
                                    struct chex_error *err) {
    CHEX_AUTO_FREE char *index = NULL;
    size_t bytes = 0;
    if (!all_done(w))
        return chex_error_set(err, CHEX_E_FAIL, "%s: a row was never written", w->temp);
    CHEX_TRY(make_index(w, fault, &index, &bytes, err));
    struct header h = {.row_bytes = w->row_bytes,
                       .rows = w->count,
                       .index_at = ROWS_AT + (uint64_t)w->count * w->row_bytes,
                       .index_bytes = bytes,
                       .index_hash = chex_hash64(index, bytes)};
    memcpy(h.magic, magic, sizeof magic);
    CHEX_TRY(write_all(w, index, bytes, h.index_at, err));
    return write_all(w, &h, sizeof h, 0, err);
}

enum chex_status chex_spool_finish(struct chex_spool_writer *w, const char *fault,
                                   struct chex_error *err) {
    enum chex_status st = write_index(w, fault, err);
    if (st != CHEX_OK) {
        chex_spool_abandon(w);
        return st;
    }
    st = chex_fs_commit(w->temp, w->path, err);
    free_writer(w);
    return st;
}

/* ---- reading ---- */

struct chex_spool {
    char *path, *index;
    int fd;
    size_t row_bytes, count;
    struct chex_spool_row *rows; // (count), their texts lie in the index
    uint64_t *checksums;         // (count)
    const char *fault;
};

void chex_spool_close(struct chex_spool *s) {
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    CHEX_FREE(s->rows, s->checksums, s->index, s->path, s);
}

size_t chex_spool_count(const struct chex_spool *s) { return s->count; }
const struct chex_spool_row *chex_spool_get(const struct chex_spool *s, size_t row) {
    return &s->rows[row];
}
const char *chex_spool_fault(const struct chex_spool *s) { return s->fault; }

static enum chex_status damaged(const struct chex_spool *s, const char *what,
                                struct chex_error *err) {
    return chex_error_set(err, CHEX_E_FAIL, "spool %s: %s; remove it and run again", s->path, what);
}

static enum chex_status read_all(const struct chex_spool *s, void *data, size_t bytes, uint64_t at,
                                 struct chex_error *err) {
    if (chex_fs_pread(s->fd, data, bytes, at) == bytes)
        return CHEX_OK;
    return errno ? chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", s->path)
                 : damaged(s, "it ends too early", err);
}

/* The string of `bytes` bytes and a NUL at index + *at; advances *at. NULL if it is not there. */
static const char *take_text(const char *index, size_t size, size_t *at, size_t bytes) {
    const char *text = index + *at;
    if (bytes >= size - *at || text[bytes] != '\0' || memchr(text, '\0', bytes))
        return NULL;
    *at += bytes + 1;
    return text;
}

static enum chex_status parse_index(struct chex_spool *s, size_t size, struct chex_error *err) {
    size_t at = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct record r;
        if (size - at < sizeof r)
            return damaged(s, "its index is too short", err);
        memcpy(&r, s->index + at, sizeof r);
        at += sizeof r;
        const char *name = take_text(s->index, size, &at, r.name_bytes);
        const char *reason = name ? take_text(s->index, size, &at, r.reason_bytes) : NULL;
        if (!reason)
            return damaged(s, "its index is no index", err);
        s->rows[i] = (struct chex_spool_row){name,         *reason ? reason : NULL,
                                             r.bytes,      {r.hash[0], r.hash[1]},
                                             (int)r.width, (int)r.height};
        s->checksums[i] = r.checksum;
    }
    const char *fault = at < size ? take_text(s->index, size, &at, size - at - 1) : NULL;
    if (!fault)
        return damaged(s, "its index has no end", err);
    s->fault = *fault ? fault : NULL;
    return CHEX_OK;
}

static enum chex_status load_index(struct chex_spool *s, struct chex_error *err) {
    struct header h;
    CHEX_TRY(read_all(s, &h, sizeof h, 0, err));
    off_t end = lseek(s->fd, 0, SEEK_END);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.row_bytes != s->row_bytes)
        return damaged(s, "it is no spool of this run", err);
    if (end < 0 || h.index_at > (uint64_t)end || h.index_bytes != (uint64_t)end - h.index_at ||
        h.rows > h.index_bytes / sizeof(struct record) ||
        h.index_at != ROWS_AT + h.rows * h.row_bytes)
        return damaged(s, "its header does not fit its size", err);
    s->count = (size_t)h.rows;
    s->index = malloc((size_t)h.index_bytes + 1);
    s->rows = chex_alloc_zeroed(s->count, sizeof *s->rows);
    s->checksums = chex_alloc_zeroed(s->count, sizeof *s->checksums);
    if (!s->index || !s->rows || !s->checksums)
        return no_memory(err);
    CHEX_TRY(read_all(s, s->index, (size_t)h.index_bytes, h.index_at, err));
    if (chex_hash64(s->index, (size_t)h.index_bytes) != h.index_hash)
        return damaged(s, "the checksum of its index is wrong", err);
    return parse_index(s, (size_t)h.index_bytes, err);
}

enum chex_status chex_spool_open(const char *path, size_t row_bytes, struct chex_spool **spool_out,
                                 struct chex_error *err) {
    CHEX_AUTO(chex_spool_close_at) struct chex_spool *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(err);
    s->row_bytes = row_bytes;
    s->path = strdup(path);
    s->fd = -1;
    enum chex_status st = s->path ? chex_fs_open(path, &s->fd, NULL, err) : no_memory(err);
    if (st == CHEX_E_DATA) /* not user data: chexnet wrote this file */
        st = chex_error_prefix(err, CHEX_E_ENV, "spool");
    CHEX_TRY(st);
    CHEX_TRY(load_index(s, err));
    *spool_out = CHEX_TAKE(s);
    return CHEX_OK;
}

enum chex_status chex_spool_read(const struct chex_spool *s, size_t row, uint8_t *pixels,
                                 struct chex_error *err) {
    CHEX_TRY(read_all(s, pixels, s->row_bytes, ROWS_AT + (uint64_t)row * s->row_bytes, err));
    if (chex_hash64(pixels, s->row_bytes) != s->checksums[row])
        return chex_error_set(err, CHEX_E_FAIL, "spool %s: the pixels of %s are damaged", s->path,
                              s->rows[row].name);
    return CHEX_OK;
}
