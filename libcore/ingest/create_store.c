/* SPDX-License-Identifier: Apache-2.0
 *
 * States of the output folder: how a run takes it, publishes a set and undoes an unfinished
 * publish. Only rank 0 works here; all but the first checks run under the lock. The lock is a file
 * in the partial folder (base/lockfile.h); both are removed after the run.
 *
 * Files in the output folder OUT, with PARTIAL = OUT/.chex-shard-partial:
 *   PARTIAL/lock               the run that works here (base/lockfile.h)
 *   PARTIAL/NAME.DIGEST.h5     finished shards
 *   PARTIAL/spool-NAME.DIGEST  images of compressed archives (create_spool.c)
 *   PARTIAL/moves              only during publish; lines "NAME.DIGEST.h5<TAB>SPLIT/NAME.h5"
 *   OUT/SPLIT/NAME.h5, OUT/rejected.csv, OUT/manifest.json: the set
 *
 * chex_store_publish() works in this order; the manifest is the commit point:
 *   1. open every finished shard and compute the manifest in memory
 *   2. with --force: remove the old set, its manifest first
 *   3. write `moves`
 *   4. rename the shards to their final names and sync their folders
 *   5. write rejected.csv
 *   6. write the manifest (atomic rename)
 *   7. remove everything in PARTIAL, `moves` last, then the lock and PARTIAL
 *
 * A run can end at any point. The next run finds one of these states:
 *   manifest  PARTIAL           meaning, and what the next run does
 *   no        no                new output
 *   no        files, no moves   ended before step 3. --resume reuses the shards, --force removes
 *                               them, otherwise an error
 *   no        moves             ended in step 3 to 6. As above, after take_back() renamed the
 *                               shards back
 *   yes       moves             ended in step 7: the set is complete. Remove the files in PARTIAL,
 *                               then as the next line
 *   yes       no                complete set. --force replaces it, otherwise an error (--resume:
 *                               create_done.c first checks if it is already the set of this run)
 *   yes       files, no moves   --force ended before step 2: the old set is still complete. --force
 *                               starts again, --force with --resume reuses the shards
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/lockfile.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "ingest/create_private.h"
#include "shard/shard_write.h"

/* Files in the partial folder (see the head). */
static const char lock_name[] = "lock", moves_name[] = "moves";

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "the output folder");
}

static bool holds(const char *dir, const char *name) {
    return chex_fs_exists(chex_path(dir, name).text);
}

/* The next entry except the lock; NULL: there is none. */
static const char *next_entry(DIR *d) {
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, lock_name) != 0)
            return e->d_name;
    return NULL;
}

/* True if the folder holds nothing except the lock. False if it cannot be read. */
static bool is_empty(const char *dir) {
    CHEX_AUTO(chex_fs_closedir_at) DIR *d = opendir(dir);
    return d && !next_entry(d);
}

/* Removes everything in the partial folder except the lock. `moves` is the last: if this run ends
 * here, the next one still sees that the set is complete. */
static enum chex_status clear_partial(const struct chex_store *s, struct chex_error *err) {
    CHEX_AUTO(chex_fs_closedir_at) DIR *d = opendir(s->partial);
    if (!d)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", s->partial);
    for (const char *name; (name = next_entry(d));)
        if (strcmp(name, moves_name) != 0)
            CHEX_TRY(chex_fs_remove_tree(chex_path(s->partial, name).text, err));
    return chex_fs_remove_tree(chex_path(s->partial, moves_name).text, err);
}

/* ---- replacing a set, and undoing a publish ---- */

static uint64_t file_bytes(const char *dir, const char *name) {
    struct stat s;
    return stat(chex_path(dir, name).text, &s) == 0 ? (uint64_t)s.st_size : 0;
}

/* With --force: logs which set will be replaced. The removal comes in chex_store_publish(). */
static enum chex_status announce_replacement(const char *dir, struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    enum chex_status st = chex_manifest_read(dir, &m, err);
    if (st != CHEX_OK)
        return chex_error_prefix(err, st, "--force replaces only what chex-shard made");
    size_t shards = 0, rows = 0;
    uint64_t bytes = 0;
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        shards += m->splits[s].shard_count;
        rows += m->splits[s].rows;
        for (size_t i = 0; i < m->splits[s].shard_count; i++)
            bytes += file_bytes(dir, m->splits[s].shards[i].file);
    }
    char text[32];
    chex_info("--force: when the new set is complete, %s loses %zu shard%s of %zu image%s, %s (%s)",
              dir, shards, chex_text_s(shards), rows, chex_text_s(rows),
              chex_format_bytes(text, sizeof text, bytes), m->tool_version);
    return CHEX_OK;
}

static enum chex_status remove_file(const char *dir, const char *name, struct chex_error *err) {
    const struct chex_path path = chex_path(dir, name);
    if (unlink(path.text) != 0 && errno != ENOENT)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", path.text);
    return CHEX_OK;
}

/* Removes the manifest first, so that no reader takes the rest for a complete set. Removes only
 * files that the manifest lists, and folders only if they are empty. */
static enum chex_status remove_old(const char *dir, struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    CHEX_TRY(remove_file(dir, CHEX_MANIFEST_NAME, err));
    CHEX_TRY(remove_file(dir, CHEX_STORE_REJECTED, err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        const struct chex_path folder = chex_path(dir, chex_split_names[s]);
        for (size_t i = 0; i < m->splits[s].shard_count; i++)
            CHEX_TRY(remove_file(dir, m->splits[s].shards[i].file, err));
        if (m->splits[s].shard_count && rmdir(folder.text) != 0 && errno == ENOTEMPTY)
            chex_warn("%s: contains files that chex-shard did not write; they are kept",
                      folder.text);
    }
    return CHEX_OK;
}

/* Renames a shard back by its line of `moves`. */
static enum chex_status move_back(const struct chex_store *s, char *line, struct chex_error *err) {
    char *tab = strchr(line, '\t');
    if (!tab)
        return CHEX_OK;
    *tab = '\0';
    const struct chex_path from = chex_path(s->c->o->output, tab + 1),
                           to = chex_path(s->partial, line);
    if (chex_fs_exists(from.text) && !chex_fs_exists(to.text) && rename(from.text, to.text) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot rename %s to %s", from.text,
                                to.text);
    return CHEX_OK;
}

/* Undoes steps 3 to 6 of an unfinished or failed publish: renames its shards back into the partial
 * folder and removes rejected.csv and the manifest. No-op without `moves`. */
static enum chex_status take_back(const struct chex_store *s, struct chex_error *err) {
    enum { LIMIT = 1 << 30 };
    const char *dir = s->c->o->output;
    const struct chex_path path = chex_path(s->partial, moves_name);
    CHEX_AUTO_FREE char *text = NULL;
    char *rest = NULL;
    if (!chex_fs_exists(path.text))
        return CHEX_OK;
    enum chex_status st = chex_fs_read(path.text, LIMIT, &text, NULL, err);
    for (char *line = st == CHEX_OK ? strtok_r(text, "\n", &rest) : NULL; line && st == CHEX_OK;
         line = strtok_r(NULL, "\n", &rest))
        st = move_back(s, line, err);
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++)
        rmdir(chex_path(dir, chex_split_names[k]).text); /* fails if it is not empty: intended */
    remove_file(dir, CHEX_STORE_REJECTED, NULL);
    remove_file(dir, CHEX_MANIFEST_NAME, NULL);
    if (st == CHEX_OK)
        unlink(path.text);
    return st;
}

/* ---- taking the folder ---- */

static enum chex_status holds_set(const char *dir, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_USAGE,
                          "output %s holds a set of shards already; --force replaces it", dir);
}

/* Checks that change nothing. */
static enum chex_status check_folder(const struct chex_store *s, struct chex_error *err) {
    const char *dir = s->c->o->output;
    struct stat there;
    if (stat(dir, &there) != 0 && errno != ENOENT)
        return chex_error_errno(err, CHEX_E_ENV, errno, "output %s", dir);
    if (chex_fs_exists(dir) && !chex_fs_is_dir(dir))
        return chex_error_set(err, CHEX_E_USAGE, "output %s exists and is not a folder", dir);
    CHEX_TRY(chex_fs_check_mkdirs(dir, err));
    if (chex_fs_exists(dir) && !holds(dir, CHEX_MANIFEST_NAME) && !chex_fs_exists(s->partial) &&
        !is_empty(dir))
        return chex_error_set(err, CHEX_E_USAGE,
                              "output folder %s exists, is not empty and is no set of shards%s",
                              dir, s->c->o->force ? ": --force does not touch it" : "");
    return CHEX_OK;
}

static enum chex_status lock(struct chex_store *s, struct chex_error *err) {
    char subject[CHEX_ERROR_TEXT_BYTES];
    snprintf(subject, sizeof subject, "output %s", s->c->o->output);
    const enum chex_status st = chex_lockfile_take(s->partial, lock_name, subject,
                                                   "give another --output", &s->lock_fd, err);
    if (st != CHEX_OK)
        rmdir(s->partial); /* fails, as intended, if it is not empty */
    return st;
}

/* No-op without the lock. */
static void unlock(struct chex_store *s) {
    if (s->lock_fd < 0)
        return;
    /* Close before rmdir: on NFS an open file keeps its folder non-empty. */
    chex_lockfile_release(s->partial, lock_name, s->lock_fd, true);
    s->lock_fd = -1;
    rmdir(s->partial); /* fails, as intended, if it is not empty */
}

/* Decides from the state of the output (see the head) whether the run may continue, and cleans up.
 * Requires the lock. */
static enum chex_status check_existing(const struct chex_store *s, struct chex_error *err) {
    const char *dir = s->c->o->output;
    const bool force = s->c->o->force, resume = s->c->o->resume;
    bool set = holds(dir, CHEX_MANIFEST_NAME), partial = !is_empty(s->partial);
    if (set && partial && holds(s->partial, moves_name)) {
        /* The run that published this set ended before it removed the partial files. */
        CHEX_TRY(clear_partial(s, err));
        partial = false;
    }
    if (set && !force)
        return holds_set(dir, err);
    if (set)
        CHEX_TRY(announce_replacement(dir, err));
    if (partial && (force || resume))
        CHEX_TRY(take_back(s, err));
    if (partial && force && !resume)
        return clear_partial(s, err);
    if (partial && !resume)
        return chex_error_set(err, CHEX_E_USAGE,
                              "output %s holds an interrupted run; --resume continues it, "
                              "--force starts again",
                              dir);
    return CHEX_OK;
}

/* Removes the temporary files of a killed run. Requires the lock: no other run writes here. */
static void remove_temporaries(const struct chex_store *s) {
    static const char *const names[] = {CHEX_MANIFEST_NAME, CHEX_STORE_REJECTED};
    CHEX_AUTO(chex_fs_closedir_at) DIR *d = opendir(s->partial);
    for (const char *name; d && (name = next_entry(d));)
        if (chex_fs_is_temp(name, NULL))
            unlinkat(dirfd(d), name, 0);
    for (int i = 0; i < 2; i++)
        chex_fs_remove_temps(chex_path(s->c->o->output, names[i]).text);
}

static enum chex_status take_output(struct chex_store *s, struct chex_error *err) {
    const char *dir = s->c->o->output;
    CHEX_TRY(check_folder(s, err));
    s->made_output = !chex_fs_exists(dir);
    if (holds(dir, CHEX_MANIFEST_NAME) && !chex_fs_exists(s->partial) && !s->c->o->force)
        return holds_set(dir, err);
    CHEX_TRY(lock(s, err));
    const enum chex_status st = check_existing(s, err);
    if (st == CHEX_OK)
        remove_temporaries(s);
    else
        unlock(s);
    return st;
}

/* ---- space ---- */

bool chex_store_stripe_hint(uint64_t fs_type, uint64_t shard_bytes, const char *dir, char *buf,
                            size_t size) {
    enum { LUSTRE_MAGIC = 0x0BD00BD0, MOST = 8 };
    const uint64_t per_server = 1 << 30;
    if (fs_type != LUSTRE_MAGIC)
        return false;
    uint64_t count = shard_bytes / per_server + 1;
    char bytes[32];
    snprintf(buf, size,
             "%s is on Lustre: 'lfs setstripe -c %llu -S 4M %s' on the empty folder before the run "
             "lays shards of %s on %s, whatever the default layout is; locks are not needed",
             dir, (unsigned long long)(count > MOST ? MOST : count), dir,
             chex_format_bytes(bytes, sizeof bytes, shard_bytes),
             count > 1 ? "several servers each" : "one server each and spreads them over all");
    return true;
}

static enum chex_status check_free(const struct chex_store *s, const char *what, uint64_t need,
                                   struct chex_error *err) {
    uint64_t have = 0;
    char a[32], b[32];
    CHEX_TRY(chex_fs_free_bytes(s->c->o->output, &have, err));
    if (need <= have)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_RESOURCE,
                          "%s take %s and %s has only %s free: make room, or give another --output",
                          what, chex_format_bytes(a, sizeof a, need), s->c->o->output,
                          chex_format_bytes(b, sizeof b, have));
}

/* Bytes of the longest ids of a row. */
static size_t widest_ids(const struct chex_label_table *t) {
    size_t widest = 0;
    for (size_t r = 0; r < t->count; r++) {
        const struct chex_label_row *row = &t->rows[r];
        size_t n = strlen(row->image_id) + strlen(row->patient_id) +
                   (row->study_id ? strlen(row->study_id) : 0);
        widest = n > widest ? n : widest;
    }
    return widest;
}

enum chex_status chex_store_check_space(const struct chex_store *s, struct chex_error *err) {
    /* for the manifest, folders and file system metadata */
    const uint64_t margin = 1 << 20;
    const struct chex_label_table *t = s->c->table;
    const size_t widest = widest_ids(t);
    uint64_t need = 0, largest = 0;
    struct statfs fs;
    char hint[1024];
    for (size_t i = 0; i < s->shard_count; i++) {
        uint64_t bytes = chex_shard_file_bytes(s->shards[i].layout->row_count, (int)s->c->o->size,
                                               (int)t->class_count, widest);
        need += chex_fs_exists(s->shards[i].path) ? 0 : bytes;
        largest = bytes > largest ? bytes : largest;
    }
    CHEX_TRY(check_free(s, "the shards", need ? need + margin : 0, err));
    if (statfs(s->c->o->output, &fs) == 0 &&
        chex_store_stripe_hint((uint64_t)fs.f_type, largest, s->c->o->output, hint, sizeof hint))
        chex_info("%s", hint);
    return CHEX_OK;
}

/* ---- publishing ---- */

static enum chex_status write_moves(const struct chex_store *s, struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    for (size_t i = 0; f && i < s->shard_count; i++)
        fprintf(f, "%s\t%s\n", chex_fs_name(s->shards[i].path), s->shards[i].file);
    if (!f || fclose(f) != 0)
        return no_memory(err);
    return chex_fs_write(chex_path(s->partial, moves_name).text, text, size, err);
}

static enum chex_status move_shard(const struct chex_store *s, const struct chex_store_shard *shard,
                                   struct chex_error *err) {
    const struct chex_layout_shard *l = shard->layout;
    const struct chex_path folder = chex_path(s->c->o->output, chex_split_names[l->split]),
                           to = chex_path(s->c->o->output, shard->file);
    if (l->index == 0)
        CHEX_TRY(chex_fs_mkdirs(folder.text, err));
    if (rename(shard->path, to.text) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot rename %s to %s", shard->path,
                                to.text);
    if (l->index + 1 == l->count)
        chex_fs_sync_folder(folder.text);
    return CHEX_OK;
}

/* Steps 2 to 6 of the head. */
static enum chex_status move_and_describe(const struct chex_store *s, const struct chex_manifest *m,
                                          struct chex_error *err) {
    const char *dir = s->c->o->output;
    if (s->c->o->force && holds(dir, CHEX_MANIFEST_NAME))
        CHEX_TRY(remove_old(dir, err));
    CHEX_TRY(write_moves(s, err));
    for (size_t i = 0; i < s->shard_count; i++)
        CHEX_TRY(move_shard(s, &s->shards[i], err));
    CHEX_TRY(chex_store_write_rejected(s->c, err));
    return chex_manifest_write(dir, m, err);
}

static enum chex_status publish(struct chex_store *s, struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_TRY(chex_store_make_manifest(s, &m, err));
    enum chex_status st = move_and_describe(s, m, err);
    if (st != CHEX_OK)
        take_back(s, NULL); /* if this fails too, the next run does it */
    CHEX_TRY(st);
    CHEX_TRY(clear_partial(s, err));
    CHEX_AUTO_FREE char *failed = s->c->origin ? NULL : chex_store_failed_list(s->c);
    if (failed)
        unlink(failed); /* of an earlier run: this one succeeded */
    unlock(s);
    return CHEX_OK;
}

/* ---- the calls of all ranks ---- */

enum chex_status chex_store_open(const struct chex_create *c, struct chex_store **store_out,
                                 struct chex_error *err) {
    struct chex_store *s = calloc(1, sizeof *s);
    if (s) {
        *s = (struct chex_store){.c = c, .lock_fd = -1};
        s->partial = chex_fs_join(c->o->output, CHEX_CREATE_PARTIAL);
    }
    enum chex_status st = s && s->partial ? CHEX_OK : no_memory(err);
    st = chex_group_agree(c->group, st, err);
    if (st == CHEX_OK)
        st = chex_group_follow(c->group, 0, c->group->rank == 0 ? check_folder(s, err) : CHEX_OK,
                               err);
    if (st != CHEX_OK) {
        chex_store_close(s, false);
        return st;
    }
    *store_out = s;
    return CHEX_OK;
}

/* Removes the partial folder of a run that ended after it wrote the manifest. */
static enum chex_status tidy(struct chex_store *s, struct chex_error *err) {
    if (!chex_fs_exists(s->partial))
        return CHEX_OK;
    CHEX_TRY(lock(s, err));
    const enum chex_status st = holds(s->partial, moves_name) ? clear_partial(s, err) : CHEX_OK;
    unlock(s);
    return st;
}

enum chex_status chex_store_find_done(struct chex_store *s, bool *done_out,
                                      struct chex_error *err) {
    const struct chex_create *c = s->c;
    enum chex_status st = CHEX_OK;
    *done_out = false;
    if (!c->o->resume || c->o->force)
        return CHEX_OK;
    if (c->group->rank == 0)
        st = chex_store_compare_done(c, done_out, err);
    if (st == CHEX_OK && *done_out)
        st = tidy(s, err);
    CHEX_TRY(chex_group_follow(c->group, 0, st, err));
    return chex_group_broadcast(c->group, done_out, sizeof *done_out, 0, err);
}

enum chex_status chex_store_lock(struct chex_store *s, uint64_t spool_bytes,
                                 struct chex_error *err) {
    const bool ours = s->c->group->rank == 0;
    enum chex_status st = ours && s->lock_fd < 0 ? take_output(s, err) : CHEX_OK;
    if (st == CHEX_OK && ours && spool_bytes)
        st = check_free(s, "the shards and the images of compressed archives that wait for them",
                        spool_bytes, err);
    return chex_group_follow(s->c->group, 0, st, err);
}

enum chex_status chex_store_publish(struct chex_store *s, struct chex_error *err) {
    const enum chex_status st = s->c->group->rank == 0 ? publish(s, err) : CHEX_OK;
    return chex_group_follow(s->c->group, 0, st, err);
}

static void discard(struct chex_store *s) {
    struct chex_error err = {0};
    if (s->c->o->resume)
        remove_temporaries(s);
    else if (clear_partial(s, &err) != CHEX_OK)
        chex_warn("%s", err.text);
    unlock(s);
    if (s->made_output)
        rmdir(s->c->o->output); /* fails, as intended, if it is not empty */
}

void chex_store_close(struct chex_store *s, bool failed) {
    if (!s)
        return;
    if (failed && s->lock_fd >= 0)
        discard(s);
    chex_store_free_shards(s);
    free(s->partial);
    free(s);
}
