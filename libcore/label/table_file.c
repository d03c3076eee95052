/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the text of a table, plain or gzip-compressed: PhysioNet and BIMCV publish compressed label
 * files. Refuses common files that are no text (spreadsheets, archives, images) by their first
 * bytes, and UTF-16 and UTF-32, with the command that converts them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/gunzip.h"
#include "label/table_file.h"

struct text {
    char *data; /* (size), then a NUL */
    size_t size, capacity;
    uint64_t limit; /* largest size */
};

static void release(struct text *t) { free(t->data); }

static enum chex_status append(struct text *t, const char *path, const uint8_t *data, size_t bytes,
                               struct chex_error *err) {
    if (bytes > t->limit - t->size)
        return chex_error_data(err, "%s: unpacks to more than the limit of %llu bytes", path,
                               (unsigned long long)t->limit);
    if (t->size + bytes >= t->capacity) {
        size_t capacity = 2 * (t->size + bytes) + 1;
        char *grown = realloc(t->data, capacity);
        if (!grown)
            return chex_error_memory(err, "%s", path);
        t->data = grown;
        t->capacity = capacity;
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
    CHEX_AUTO(chex_fs_close_at) int fd = -1;
    CHEX_AUTO(chex_gunzip_close_at) struct chex_gunzip *gz = NULL;
    CHEX_TRY(chex_fs_open(path, &fd, NULL, err));
    CHEX_TRY(chex_gunzip_open(fd, false, &gz, err));
    return unpack(gz, path, t, err);
}

/* Files that are no text, by their first bytes. */
static const struct {
    const char *magic, *what;
} others[] = {
    {"PK\3\4", "a zip archive or a spreadsheet, expected CSV: unpack it, or save it as CSV"},
    {"\xD0\xCF\x11\xE0", "a spreadsheet of old Excel, expected CSV: save it as CSV"},
    {"\x89PNG", "a PNG image, expected CSV"},
    {"\xFF\xD8\xFF", "a JPEG image, expected CSV"},
    {"\x89HDF", "an HDF5 file, expected CSV"},
    {"%PDF", "a PDF document, expected CSV"},
};

/* Returns iconv's name of the encoding if the text is UTF-16 or UTF-32, else NULL. Uses the byte
 * order mark, or the positions of zero bytes in ASCII characters. */
static const char *wide_encoding(const unsigned char *p, size_t n) {
    if (n >= 4 && (!memcmp(p, "\xFF\xFE\0\0", 4) || !memcmp(p, "\0\0\xFE\xFF", 4)))
        return "UTF-32";
    if (n >= 2 && (!memcmp(p, "\xFF\xFE", 2) || !memcmp(p, "\xFE\xFF", 2)))
        return "UTF-16";
    if (n < 4)
        return NULL;
    if (!p[0] && !p[1] && !p[2] && p[3])
        return "UTF-32BE";
    if (p[0] && !p[1] && !p[2] && !p[3])
        return "UTF-32LE";
    if (!p[0] && p[1] && !p[2] && p[3])
        return "UTF-16BE";
    return p[0] && !p[1] && p[2] && !p[3] ? "UTF-16LE" : NULL;
}

static enum chex_status refuse_other(const char *path, const struct text *t,
                                     struct chex_error *err) {
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const size_t n = strlen(others[i].magic);
        if (t->size >= n && !memcmp(t->data, others[i].magic, n))
            return chex_error_data(err, "%s: %s", path, others[i].what);
    }
    const char *wide = wide_encoding((const unsigned char *)t->data, t->size);
    if (!wide)
        return CHEX_OK;
    return chex_error_data(err,
                           "%s: %.6s, expected UTF-8: convert the file with iconv -f %s -t UTF-8",
                           path, wide, wide);
}

enum chex_status chex_table_read(const char *path, uint64_t limit, char **text_out,
                                 size_t *size_out, struct chex_error *err) {
    CHEX_AUTO(release) struct text t = {0};
    CHEX_TRY(chex_fs_read(path, limit, &t.data, &t.size, err));
    if (t.size >= 2 && !memcmp(t.data, "\x1F\x8B", 2)) {
        release(&t);
        t = (struct text){.limit = limit};
        CHEX_TRY(read_gzip(path, &t, err));
    }
    CHEX_TRY(refuse_other(path, &t, err));
    *text_out = CHEX_TAKE(t.data);
    *size_out = t.size;
    return CHEX_OK;
}
