/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks and locks what --output of chex-eval names.
 */
#include "evaluate/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/lockfile.h"
#include "report/publish.h"
#include "report/report.h"

#define LOCK_NAME ".eval.lock"

struct chex_eval_output chex_eval_output_of(const struct chex_eval_settings *s, const char *key,
                                            const char *const *files, const char *const *dirs) {
    return (struct chex_eval_output){
        .dir = s->output, .key = key, .files = files, .dirs = dirs, .force = s->force, .lock = -1};
}

struct chex_eval_output chex_eval_output_of_report(const struct chex_eval_settings *s,
                                                   bool network) {
    return chex_eval_output_of(s, CHEX_REPORT_KEY, &chex_report_files[network ? 0 : 1], NULL);
}

/* Adds the names that exist in `dir` to the list `found`. Files are also checked for being
 * writable. */
static enum chex_status look_for(const char *dir, const char *const *names, bool files, char *found,
                                 size_t size, struct chex_error *err) {
    for (size_t i = 0; names && names[i]; i++) {
        const struct chex_path path = chex_path(dir, names[i]);
        const size_t n = strlen(found);
        if (!chex_fs_exists(path.text))
            continue;
        snprintf(found + n, size - n, "%s%s", n ? ", " : "", names[i]);
        CHEX_TRY(files ? chex_fs_check_create(path.text, err) : CHEX_OK);
    }
    return CHEX_OK;
}

enum chex_status chex_eval_output_check(const struct chex_eval_output *o, struct chex_error *err) {
    char found[200] = "";
    if (chex_fs_exists(o->dir) && !chex_fs_is_dir(o->dir))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is no folder", o->dir);
    if (chex_publish_pending(o->dir)) /* checked again after chex_publish_recover */
        return CHEX_OK;
    CHEX_TRY(look_for(o->dir, o->files, true, found, sizeof found, err));
    CHEX_TRY(look_for(o->dir, o->dirs, false, found, sizeof found, err));
    if (found[0] && !o->force)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "output folder %s already holds %s: name a new folder, or say --force "
            "to replace them",
            o->dir, found);
    return CHEX_OK;
}

enum chex_status chex_eval_output_begin(struct chex_eval_output *o, struct chex_error *err) {
    char subject[CHEX_ERROR_TEXT_BYTES];
    const bool made = !chex_fs_exists(o->dir);
    CHEX_TRY(chex_fs_mkdirs(o->dir, err));
    if (access(o->dir, W_OK | X_OK) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno,
                                "output folder %s: nothing can be written into it", o->dir);
    o->made = made;
    snprintf(subject, sizeof subject, "output folder %s", o->dir);
    CHEX_TRY(chex_lockfile_take(o->dir, LOCK_NAME, subject, "name a new folder with --output",
                                &o->lock, err));
    CHEX_TRY(chex_publish_recover(o->dir, o->key, err));
    return chex_eval_output_check(o, err);
}

void chex_eval_output_end(const struct chex_eval_output *o, enum chex_status status) {
    if (o->lock >= 0)
        chex_lockfile_release(o->dir, LOCK_NAME, o->lock, true);
    if (status != CHEX_OK && o->made)
        rmdir(o->dir);
}

/* ---- one file ---- */

enum chex_status chex_eval_file_check(const struct chex_eval_settings *s, const char *path,
                                      const char *const *read, struct chex_error *err) {
    const char *option = s->features_output ? "features" : "output";
    for (size_t i = 0; read[i]; i++)
        if (chex_fs_same(path, read[i]))
            return chex_error_set(err, CHEX_E_USAGE, "--%s %s is what is read: name another file",
                                  option, path);
    if (chex_fs_is_dir(path))
        return chex_error_set(err, CHEX_E_USAGE, "--%s %s is a folder: name a file in it", option,
                              path);
    if (chex_fs_exists(path) && !s->force)
        return chex_error_set(err, CHEX_E_USAGE, "--%s %s exists: say --force to replace it",
                              option, path);
    return chex_fs_check_create(path, err);
}

static char *lock_name_of(const char *path) {
    return chex_fs_format(".%s.lock", chex_fs_name(path));
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? chex_fs_format("%.*s", slash == path ? 1 : (int)(slash - path), path)
                 : chex_fs_format(".");
}

enum chex_status chex_eval_file_lock(const char *path, int *lock_out, struct chex_error *err) {
    CHEX_AUTO_FREE char *name = lock_name_of(path), *dir = folder_of(path);
    *lock_out = -1;
    CHEX_TRY(name && dir ? chex_fs_make_folder_of(path, err) : chex_error_memory(err, NULL));
    CHEX_TRY(chex_lockfile_take(dir, name, path, "name another file with --output", lock_out, err));
    chex_fs_remove_temps(path);
    return CHEX_OK;
}

void chex_eval_file_unlock(const char *path, int lock) {
    CHEX_AUTO_FREE char *name = lock_name_of(path), *dir = folder_of(path);
    if (lock >= 0 && name && dir)
        chex_lockfile_release(dir, name, lock, true);
}
