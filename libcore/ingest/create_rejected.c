/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the lists of rejected images as CSV with the columns image and reason: OUT/rejected.csv of
 * a complete set, and OUT.rejected.csv of a run that failed because of bad images.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "ingest/create_private.h"

/* Reshard: the new set has the same rejected images as the old one. */
static enum chex_status copy_rejected(const struct chex_create *c, const char *to,
                                      struct chex_error *err) {
    char *from = chex_fs_join(c->origin->dir, CHEX_STORE_REJECTED), *text = NULL;
    size_t size = 0;
    enum chex_status st = from ? chex_fs_read(from, CHEX_LABELS_MAX_BYTES, &text, &size, err)
                               : chex_error_memory(err, "the list of images left out");
    if (st == CHEX_OK)
        st = chex_fs_write(to, text, size, err);
    free(text);
    free(from);
    return st;
}

/* Reasons are always quoted because they contain commas; names only if necessary. */
static enum chex_status write_list(const struct chex_create *c, const char *path,
                                   struct chex_error *err) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return chex_error_memory(err, "the list of images left out");
    fputs("image,reason\n", f);
    for (size_t r = 0; r < c->table->count; r++) {
        const char *id = c->table->rows[r].image_id;
        if (!c->bad[r])
            continue;
        chex_text_put_cell(f, id);
        fputc(',', f);
        chex_text_put_quoted_cell(f, c->reasons[r]);
        fputc('\n', f);
    }
    enum chex_status st = fclose(f) != 0 ? chex_error_memory(err, "the list of images left out")
                                         : chex_fs_write(path, text, size, err);
    free(text);
    return st;
}

enum chex_status chex_store_write_rejected(const struct chex_create *c, struct chex_error *err) {
    char *path = chex_fs_join(c->o->output, CHEX_STORE_REJECTED);
    if (!path)
        return chex_error_memory(err, "the list of images left out");
    enum chex_status st = c->origin ? copy_rejected(c, path, err) : write_list(c, path, err);
    free(path);
    return st;
}

/* The output's path without trailing slashes, in new memory. "." and ".." are resolved, because
 * otherwise the list would be inside the folder. */
static char *plain_name(const char *output) {
    char *name = strdup(output);
    for (size_t n = name ? strlen(name) : 0; n > 1 && name[n - 1] == '/'; n--)
        name[n - 1] = '\0';
    const char *slash = name ? strrchr(name, '/') : NULL, *last = slash ? slash + 1 : name;
    if (name && (strcmp(last, ".") == 0 || strcmp(last, "..") == 0)) {
        char *real = realpath(name, NULL);
        free(name);
        name = real;
    }
    return name;
}

char *chex_store_failed_list(const struct chex_create *c) {
    char *name = plain_name(c->o->output);
    char *path = name ? chex_fs_format("%s." CHEX_STORE_REJECTED, name) : NULL;
    free(name);
    return path;
}

enum chex_status chex_store_write_failed_list(const struct chex_create *c, const char *path,
                                              struct chex_error *err) {
    CHEX_TRY(chex_fs_make_folder_of(path, err));
    return write_list(c, path, err);
}
