/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a label file, plain or as gzip: PhysioNet and BIMCV ship theirs compressed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "data/archive_gz.h"
#include "data/labels_format.h"

enum { MAX_FILE_BYTES = 1 << 30 };

struct text {
    char *data; /* (size) and room for a NUL */
    size_t size, room;
};

static enum chex_status append(struct text *t, const char *path, const uint8_t *data, size_t bytes,
                               struct chex_error *err) {
    if (bytes > MAX_FILE_BYTES - t->size)
        return chex_error_set(err, CHEX_E_DATA, "%s: unpacks to more than the limit of %d bytes",
                              path, (int)MAX_FILE_BYTES);
    if (t->size + bytes >= t->room) {
        size_t room = 2 * (t->size + bytes) + 1;
        char *grown = realloc(t->data, room);
        if (!grown)
            return chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "%s", path);
        t->data = grown;
        t->room = room;
    }
    memcpy(t->data + t->size, data, bytes);
    t->size += bytes;
    t->data[t->size] = '\0';
    return CHEX_OK;
}

static enum chex_status unpack(struct chex_gunzip *gz, const char *path, struct text *t,
                               struct chex_error *err) {
    for (;;) {
        const uint8_t *data = NULL;
        size_t bytes = 0;
        enum chex_status st = chex_gunzip_read(gz, &data, &bytes, err);
        if (st != CHEX_OK)
            return chex_error_prefix(err, st, "%s", path);
        CHEX_TRY(append(t, path, data, bytes, err));
        if (bytes == 0)
            return CHEX_OK;
    }
}

static enum chex_status read_gzip(const char *path, struct text *t, struct chex_error *err) {
    struct chex_gunzip *gz = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return chex_error_errno(err, CHEX_E_DATA, errno, "cannot open %s", path);
    enum chex_status st = chex_gunzip_open(fd, false, &gz, err);
    if (st == CHEX_OK)
        st = unpack(gz, path, t, err);
    chex_gunzip_close(gz);
    close(fd);
    return st;
}

/* Files that hold a table, but not as text. */
static enum chex_status refuse_other(const char *path, const struct text *t,
                                     struct chex_error *err) {
    if (t->size >= 4 && !memcmp(t->data, "PK\3\4", 4))
        return chex_error_set(
            err, CHEX_E_DATA,
            "%s: a zip archive or a spreadsheet, expected CSV: unpack it, or save "
            "it as CSV",
            path);
    if (t->size >= 2 && (!memcmp(t->data, "\xFF\xFE", 2) || !memcmp(t->data, "\xFE\xFF", 2)))
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: UTF-16, expected UTF-8: convert the file with iconv", path);
    return CHEX_OK;
}

enum chex_status chex_labels_read(const char *path, char **text_out, size_t *size_out,
                                  struct chex_error *err) {
    struct text t = {0};
    CHEX_TRY(chex_fs_read(path, MAX_FILE_BYTES, &t.data, &t.size, err));
    enum chex_status st = CHEX_OK;
    if (t.size >= 2 && !memcmp(t.data, "\x1F\x8B", 2)) {
        free(t.data);
        t = (struct text){0};
        st = read_gzip(path, &t, err);
    }
    if (st == CHEX_OK)
        st = refuse_other(path, &t, err);
    if (st != CHEX_OK) {
        free(t.data);
        return st;
    }
    *text_out = t.data;
    *size_out = t.size;
    return CHEX_OK;
}
