/* SPDX-License-Identifier: Apache-2.0
 *
 * Text files of results: a temporary file, then one rename. Escaping for XML, base64.
 */
#include "base/textfile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/text.h"

enum chex_status chex_textfile_open(const char *path, struct chex_textfile *t,
                                    struct chex_error *err) {
    *t = (struct chex_textfile){.path = strdup(path)};
    if (!t->path)
        return chex_error_memory(err, "%s", path);
    enum chex_status st = chex_fs_temp_stream(path, &t->temp, &t->f, err);
    if (st == CHEX_OK)
        return CHEX_OK;
    free(t->path);
    *t = (struct chex_textfile){0};
    return st;
}

enum chex_status chex_textfile_open_in(const char *dir, const char *name, struct chex_textfile *t,
                                       struct chex_error *err) {
    char *path = chex_fs_join(dir, name);
    *t = (struct chex_textfile){0};
    enum chex_status st =
        path ? chex_textfile_open(path, t, err) : chex_error_memory(err, "%s/%s", dir, name);
    free(path);
    return st;
}

enum chex_status chex_textfile_close(struct chex_textfile *t, enum chex_status st,
                                     struct chex_error *err) {
    if (!t->f)
        return st;
    bool bad = fflush(t->f) != 0 || ferror(t->f);
    int saved = errno;
    if (fclose(t->f) != 0 && !bad) {
        bad = true;
        saved = errno;
    }
    if (st == CHEX_OK && bad)
        st = chex_error_errno(err, CHEX_E_ENV, saved, "cannot write %s", t->path);
    if (st == CHEX_OK)
        st = chex_fs_commit(t->temp, t->path, err);
    else
        unlink(t->temp);
    free(t->path);
    free(t->temp);
    *t = (struct chex_textfile){0};
    return st;
}

static void put_escaped(FILE *to, char c) {
    switch (c) {
    case '&': fputs("&amp;", to); break;
    case '<': fputs("&lt;", to); break;
    case '>': fputs("&gt;", to); break;
    case '"': fputs("&quot;", to); break;
    case '\'': fputs("&#39;", to); break;
    default: putc(c, to);
    }
}

/* Character by character. A character is a byte and the continuation bytes that follow it. */
static void put_xml(FILE *to, const char *text, char underscore) {
    while (*text) {
        char character[5] = "", shown[32];
        int n = 1;
        while (n < 4 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n++;
        memcpy(character, text, (size_t)n);
        chex_text_printable(character, shown, sizeof shown);
        for (const char *c = shown; *c; c++)
            put_escaped(to, (char)(*c == '_' ? underscore : *c));
        text += n;
    }
}

void chex_put_xml_between(FILE *to, const char *before, const char *text, const char *after) {
    fputs(before, to);
    chex_put_xml(to, text);
    fputs(after, to);
}

void chex_put_name_between(FILE *to, const char *before, const char *name, const char *after) {
    fputs(before, to);
    chex_put_xml_name(to, name);
    fputs(after, to);
}

void chex_put_xml(FILE *to, const char *text) { put_xml(to, text, '_'); }

void chex_put_xml_name(FILE *to, const char *name) { put_xml(to, name, ' '); }

void chex_put_base64(FILE *to, const void *data, size_t bytes) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t left = bytes - i;
        const unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                           (left > 2 ? p[i + 2] : 0);
        putc(letters[v >> 18], to);
        putc(letters[v >> 12 & 63], to);
        putc(left > 1 ? letters[v >> 6 & 63] : '=', to);
        putc(left > 2 ? letters[v & 63] : '=', to);
    }
}
