/* SPDX-License-Identifier: Apache-2.0
 *
 * Publishes a set of result files in two steps. report/publish.h describes the protocol.
 */
#include "report/publish.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"

#define TEMPORARY ".eval.tmp."
#define READY ".eval.ready"
#define REPLACE ".replace." /* + NAME: a marker of chex_publish_replace */

bool chex_publish_pending(const char *dir) { return chex_fs_is_dir(chex_path(dir, READY).text); }

/* Removes the old key file, unless the new one has already been moved (a resumed publish). Files of
 * DIR that the new set does not contain stay: chex-eval score keeps an existing predictions.csv. */
static enum chex_status remove_old_key(const char *ready, const char *dir, const char *key,
                                       struct chex_error *err) {
    const struct chex_path old = chex_path(dir, key);
    if (chex_fs_exists(chex_path(ready, key).text) && unlink(old.text) != 0 && errno != ENOENT)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot replace %s", old.text);
    return CHEX_OK;
}

#define FOLDER_KEY "auroc.json" /* of a folder within a set of results */

static enum chex_status move_all(const char *ready, const char *dir, const char *key,
                                 struct chex_error *err);

/* Moves a file, or the files of a folder into the folder of the same name. A missing file is no
 * error: a run that was killed had already moved it. */
static enum chex_status move_entry(const char *ready, const char *dir, const char *name,
                                   struct chex_error *err) {
    const struct chex_path from = chex_path(ready, name), to = chex_path(dir, name);
    if (chex_fs_is_dir(from.text)) {
        CHEX_TRY(chex_fs_mkdirs(to.text, err));
        CHEX_TRY(move_all(from.text, to.text, FOLDER_KEY, err));
        chex_fs_sync_folder(to.text);
    } else if (rename(from.text, to.text) != 0 && errno != ENOENT) {
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot finish %s", to.text);
    }
    return CHEX_OK;
}

/* Moves every file of `ready` to `dir`, in order of names, the key file last. */
static enum chex_status move_all(const char *ready, const char *dir, const char *key,
                                 struct chex_error *err) {
    struct dirent **list = NULL;
    const int n = scandir(ready, &list, NULL, alphasort);
    if (n < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", ready);
    enum chex_status st = remove_old_key(ready, dir, key, err);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        if (st == CHEX_OK && name[0] != '.' && strcmp(name, key) != 0)
            st = move_entry(ready, dir, name, err);
        free(list[i]);
    }
    free(list);
    return st == CHEX_OK ? move_entry(ready, dir, key, err) : st;
}

/* Removes DIR/NAME, then its marker. */
static enum chex_status replace_one(const char *ready, const char *dir, const char *marker,
                                    struct chex_error *err) {
    const struct chex_path mark = chex_path(ready, marker);
    CHEX_TRY(chex_fs_remove_tree(chex_path(dir, marker + sizeof REPLACE - 1).text, err));
    if (rmdir(mark.text) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", mark.text);
    return CHEX_OK;
}

static int is_marker(const struct dirent *e) {
    return strncmp(e->d_name, REPLACE, sizeof REPLACE - 1) == 0;
}

/* The old key file goes first: without it no reader takes the other files for a complete set. */
static enum chex_status remove_replaced(const char *ready, const char *dir, const char *key,
                                        struct chex_error *err) {
    struct dirent **list = NULL;
    const int n = scandir(ready, &list, is_marker, alphasort);
    if (n < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", ready);
    enum chex_status st = n ? remove_old_key(ready, dir, key, err) : CHEX_OK;
    for (int i = 0; i < n; i++) {
        if (st == CHEX_OK)
            st = replace_one(ready, dir, list[i]->d_name, err);
        free(list[i]);
    }
    free(list);
    return st;
}

static enum chex_status publish(const char *dir, const char *key, struct chex_error *err) {
    const struct chex_path ready = chex_path(dir, READY);
    CHEX_TRY(remove_replaced(ready.text, dir, key, err));
    CHEX_TRY(move_all(ready.text, dir, key, err));
    chex_fs_sync_folder(dir);
    return chex_fs_remove_tree(ready.text, err);
}

static enum chex_status remove_incomplete(const char *dir, struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    DIR *d = opendir(dir);
    if (!d)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", dir);
    for (struct dirent *e; st == CHEX_OK && (e = readdir(d));)
        if (strncmp(e->d_name, TEMPORARY, sizeof TEMPORARY - 1) == 0)
            st = chex_fs_remove_tree(chex_path(dir, e->d_name).text, err);
    closedir(d);
    return st;
}

enum chex_status chex_publish_recover(const char *dir, const char *key, struct chex_error *err) {
    CHEX_TRY(remove_incomplete(dir, err));
    return chex_publish_pending(dir) ? publish(dir, key, err) : CHEX_OK;
}

enum chex_status chex_publish_begin(const char *dir, const char *key, struct chex_publish *s,
                                    struct chex_error *err) {
    *s = (struct chex_publish){.dir = dir, .key = key};
    CHEX_AUTO_FREE char *path = chex_fs_join(dir, TEMPORARY "XXXXXX");
    CHEX_ALLOCATED(path, err, "%s: the results", dir);
    if (!mkdtemp(path))
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write into folder %s", dir);
    s->path = path;
    path = NULL;
    return CHEX_OK;
}

enum chex_status chex_publish_replace(const struct chex_publish *s, const char *name,
                                      struct chex_error *err) {
    CHEX_AUTO_FREE char *mark = chex_fs_format("%s/" REPLACE "%s", s->path, name);
    return mark ? chex_fs_mkdirs(mark, err) : chex_error_memory(err, "%s: the results", s->dir);
}

/* Step 2 of report/publish.h. */
static enum chex_status make_ready(const struct chex_publish *s, struct chex_error *err) {
    if (rename(s->path, chex_path(s->dir, READY).text) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot finish the results in %s", s->dir);
    chex_fs_sync_folder(s->dir);
    return CHEX_OK;
}

/* DIR/.eval.tmp.XXXXXX/NAME in an error text becomes DIR/NAME. */
static void name_as_published(const struct chex_publish *s, struct chex_error *err) {
    char *at = strstr(err->text, s->path);
    if (!at)
        return;
    const size_t dir = strlen(s->dir), path = strlen(s->path);
    const bool slash = dir && s->dir[dir - 1] == '/' && at[path] == '/';
    memmove(at + dir, at + path + slash, strlen(at + path + slash) + 1);
}

enum chex_status chex_publish_end(struct chex_publish *s, enum chex_status st,
                                  struct chex_error *err) {
    struct chex_error ignored;
    if (!s->path)
        return st;
    if (st == CHEX_OK)
        st = make_ready(s, err);
    if (st == CHEX_OK) {
        st = publish(s->dir, s->key, err);
    } else {
        name_as_published(s, err);
        chex_fs_remove_tree(s->path, &ignored);
    }
    free(s->path);
    s->path = NULL;
    return st;
}
