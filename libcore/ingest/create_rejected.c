/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the lists of rejected images as CSV with the columns image and reason: OUT/rejected.csv of
 * a complete set, and OUT.rejected.csv of a run that failed because of bad images.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "ingest/create_private.h"

/* Reshard: the new set has the same rejected images as the old one. */
static enum chex_status copy_rejected(const struct chex_create *c, const char *to,
                                      struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    CHEX_TRY(chex_fs_read(chex_path(c->origin->dir, CHEX_STORE_REJECTED).text,
                          CHEX_LABELS_MAX_BYTES, &text, &size, err));
    return chex_fs_write(to, text, size, err);
}

/* Reasons are always quoted because they contain commas; names only if necessary. */
static enum chex_status write_list(const struct chex_create *c, const char *path,
                                   struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
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
    return fclose(f) != 0 ? chex_error_memory(err, "the list of images left out")
                          : chex_fs_write(path, text, size, err);
}

enum chex_status chex_store_write_rejected(const struct chex_create *c, struct chex_error *err) {
    const struct chex_path path = chex_path(c->o->output, CHEX_STORE_REJECTED);
    return c->origin ? copy_rejected(c, path.text, err) : write_list(c, path.text, err);
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
    CHEX_AUTO_FREE char *name = plain_name(c->o->output);
    return name ? chex_fs_format("%s." CHEX_STORE_REJECTED, name) : NULL;
}

enum chex_status chex_store_write_failed_list(const struct chex_create *c, const char *path,
                                              struct chex_error *err) {
    CHEX_TRY(chex_fs_make_folder_of(path, err));
    return write_list(c, path, err);
}
