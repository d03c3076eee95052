/* SPDX-License-Identifier: Apache-2.0
 *
 * States of the output folder: how a run takes it, publishes a set and undoes an unfinished
 * publish. Only rank 0 calls these functions. All of them except the first checks run under the
 * lock.
 *
 * Files in the output folder OUT, with PARTIAL = OUT/.chex-shard-partial:
 *   PARTIAL/lock               the run that works here (create_lock.c)
 *   PARTIAL/NAME.DIGEST.h5     finished shards
 *   PARTIAL/spool-NAME.DIGEST  images of compressed archives (create_spool.c)
 *   PARTIAL/moves              only during publish; lines "NAME.DIGEST.h5<TAB>SPLIT/NAME.h5"
 *   OUT/SPLIT/NAME.h5, OUT/rejected.csv, OUT/manifest.json: the set
 *
 * chex_create_publish() works in this order; the manifest is the commit point:
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

#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "ingest/create_private.h"
#include "shard/shard_write.h"

/* File in the partial folder, present while shards are renamed (see the head). */
static const char moves_name[] = "moves";

static bool holds(const char *dir, const char *name) {
    char *path = chex_fs_join(dir, name);
    bool yes = path && chex_fs_exists(path);
    free(path);
    return yes;
}

/* True if the folder holds nothing except the lock. False if it cannot be read. */
static bool is_empty(const char *dir) {
    DIR *d = opendir(dir);
    if (!d)
        return false;
    size_t n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
             strcmp(e->d_name, CHEX_CREATE_LOCK) != 0;
    closedir(d);
    return n == 0;
}

static enum chex_status remove_partial(const struct chex_create *c, const char *name,
                                       struct chex_error *err) {
    char *path = chex_fs_join(c->partial, name);
    enum chex_status st =
        path ? chex_fs_remove_tree(path, err) : chex_error_memory(err, "the output folder");
    free(path);
    return st;
}

/* Removes everything in the partial folder except the lock. `moves` is the last: if this run ends
 * here, the next one still sees that the set is complete. */
static enum chex_status clear_partial(const struct chex_create *c, struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    DIR *d = opendir(c->partial);
    if (!d)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", c->partial);
    for (struct dirent *e; st == CHEX_OK && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, CHEX_CREATE_LOCK) != 0 && strcmp(e->d_name, moves_name) != 0)
            st = remove_partial(c, e->d_name, err);
    closedir(d);
    return st == CHEX_OK ? remove_partial(c, moves_name, err) : st;
}

static uint64_t file_bytes(const char *dir, const char *name) {
    struct stat s = {0};
    char *path = chex_fs_join(dir, name);
    if (!path || stat(path, &s) != 0)
        s.st_size = 0;
    free(path);
    return (uint64_t)s.st_size;
}

/* With --force: logs which set will be replaced. The removal comes in chex_create_publish(). */
static enum chex_status announce_replacement(const char *dir, struct chex_error *err) {
    struct chex_manifest *m = NULL;
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
    chex_manifest_free(m);
    return CHEX_OK;
}

static enum chex_status remove_path(const char *dir, const char *name, struct chex_error *err) {
    char *path = chex_fs_join(dir, name);
    enum chex_status st = CHEX_OK;
    if (!path)
        return chex_error_memory(err, "the output folder");
    if (unlink(path) != 0 && errno != ENOENT)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", path);
    free(path);
    return st;
}

static void remove_quietly(const char *dir, const char *name) {
    char *path = chex_fs_join(dir, name);
    if (path)
        unlink(path);
    free(path);
}

/* Removes the manifest first, so that no reader takes the rest for a complete set. Removes only
 * files that the manifest lists, and folders only if they are empty. */
static enum chex_status remove_old(const char *dir, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    enum chex_status st = remove_path(dir, CHEX_MANIFEST_NAME, err);
    if (st == CHEX_OK)
        st = remove_path(dir, CHEX_CREATE_REJECTED, err);
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        for (size_t i = 0; st == CHEX_OK && i < m->splits[s].shard_count; i++)
            st = remove_path(dir, m->splits[s].shards[i].file, err);
        char *folder = chex_fs_join(dir, chex_split_names[s]);
        if (folder && m->splits[s].shard_count && rmdir(folder) != 0 && errno == ENOTEMPTY)
            chex_warn("%s: contains files that chex-shard did not write; they are kept", folder);
        free(folder);
    }
    chex_manifest_free(m);
    return st;
}

static enum chex_status move_back(const struct chex_create *c, char *line, struct chex_error *err) {
    char *tab = strchr(line, '\t');
    if (!tab)
        return CHEX_OK;
    *tab = '\0';
    char *from = chex_fs_join(c->o->output, tab + 1), *to = chex_fs_join(c->partial, line);
    enum chex_status st = from && to ? CHEX_OK : chex_error_memory(err, "the output folder");
    if (st == CHEX_OK && chex_fs_exists(from) && !chex_fs_exists(to) && rename(from, to) != 0)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot rename %s to %s", from, to);
    free(from);
    free(to);
    return st;
}

/* Undoes steps 3 to 6 of an unfinished or failed publish: renames its shards back into the partial
 * folder and removes rejected.csv and the manifest. No-op without `moves`. */
static enum chex_status take_back(const struct chex_create *c, struct chex_error *err) {
    enum { LIMIT = 1 << 30 };
    char *text = NULL, *rest = NULL, *path = chex_fs_join(c->partial, moves_name);
    if (!path)
        return chex_error_memory(err, "the output folder");
    enum chex_status st = CHEX_OK;
    if (chex_fs_exists(path)) {
        st = chex_fs_read(path, LIMIT, &text, NULL, err);
        for (char *line = st == CHEX_OK ? strtok_r(text, "\n", &rest) : NULL; line && st == CHEX_OK;
             line = strtok_r(NULL, "\n", &rest))
            st = move_back(c, line, err);
        for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
            char *folder = chex_fs_join(c->o->output, chex_split_names[s]);
            if (folder)
                rmdir(folder); /* fails, as intended, if it is not empty */
            free(folder);
        }
        remove_quietly(c->o->output, CHEX_CREATE_REJECTED);
        remove_quietly(c->o->output, CHEX_MANIFEST_NAME);
        if (st == CHEX_OK)
            unlink(path);
    }
    free(text);
    free(path);
    return st;
}

static enum chex_status holds_set(const char *dir, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_USAGE,
                          "output %s holds a set of shards already; --force replaces it", dir);
}

enum chex_status chex_create_check_folder(const struct chex_create *c, struct chex_error *err) {
    const char *dir = c->o->output;
    struct stat there;
    if (stat(dir, &there) != 0 && errno != ENOENT)
        return chex_error_errno(err, CHEX_E_ENV, errno, "output %s", dir);
    if (chex_fs_exists(dir) && !chex_fs_is_dir(dir))
        return chex_error_set(err, CHEX_E_USAGE, "output %s exists and is not a folder", dir);
    CHEX_TRY(chex_fs_check_mkdirs(dir, err));
    if (chex_fs_exists(dir) && !holds(dir, CHEX_MANIFEST_NAME) && !chex_fs_exists(c->partial) &&
        !is_empty(dir))
        return chex_error_set(err, CHEX_E_USAGE,
                              "output folder %s exists, is not empty and is no set of shards%s",
                              dir, c->o->force ? ": --force does not touch it" : "");
    return CHEX_OK;
}

/* Checks that change nothing. They run before the lock is taken. */
static enum chex_status check_output(struct chex_create *c, struct chex_error *err) {
    const char *dir = c->o->output;
    CHEX_TRY(chex_create_check_folder(c, err));
    c->made_output = !chex_fs_exists(dir);
    if (holds(dir, CHEX_MANIFEST_NAME) && !chex_fs_exists(c->partial) && !c->o->force)
        return holds_set(dir, err);
    return CHEX_OK;
}

/* Decides from the state of the output (see the head) whether the run may continue, and cleans up.
 * Requires the lock. */
static enum chex_status check_existing(struct chex_create *c, struct chex_error *err) {
    const char *dir = c->o->output;
    bool set = holds(dir, CHEX_MANIFEST_NAME), partial = !is_empty(c->partial);
    if (set && partial && holds(c->partial, moves_name)) {
        /* The run that published this set ended before it removed the partial files. */
        CHEX_TRY(clear_partial(c, err));
        partial = false;
    }
    if (set && !c->o->force)
        return holds_set(dir, err);
    if (set)
        CHEX_TRY(announce_replacement(dir, err));
    if (partial && (c->o->force || c->o->resume))
        CHEX_TRY(take_back(c, err));
    if (partial && c->o->force && !c->o->resume)
        return clear_partial(c, err);
    if (partial && !c->o->resume)
        return chex_error_set(err, CHEX_E_USAGE,
                              "output %s holds an interrupted run; --resume continues it, "
                              "--force starts again",
                              dir);
    return CHEX_OK;
}

static void remove_temporaries_of(const char *dir, const char *name) {
    char *path = chex_fs_join(dir, name);
    if (path)
        chex_fs_remove_temps(path);
    free(path);
}

/* Removes the temporary files of a killed run. Requires the lock: no other run writes here. */
static void remove_temporaries(const struct chex_create *c) {
    DIR *d = opendir(c->partial);
    for (struct dirent *e; d && (e = readdir(d));)
        if (chex_fs_is_temp(e->d_name, NULL))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    remove_temporaries_of(c->o->output, CHEX_MANIFEST_NAME);
    remove_temporaries_of(c->o->output, CHEX_CREATE_REJECTED);
}

bool chex_create_stripe_hint(uint64_t fs_type, uint64_t shard_bytes, const char *dir, char *buf,
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

/* *need_out: bytes of the shards that are not finished yet. *largest_out: of the largest shard. */
static enum chex_status measure(const struct chex_create *c, uint64_t *need_out,
                                uint64_t *largest_out, struct chex_error *err) {
    uint64_t need = 0, largest = 0;
    size_t widest = 0;
    for (size_t r = 0; r < c->table->count; r++) {
        const struct chex_label_row *row = &c->table->rows[r];
        size_t n = strlen(row->image_id) + strlen(row->patient_id) +
                   (row->study_id ? strlen(row->study_id) : 0);
        widest = n > widest ? n : widest;
    }
    for (size_t i = 0; i < c->layout->shard_count; i++) {
        const struct chex_layout_shard *s = &c->layout->shards[i];
        uint64_t bytes =
            chex_shard_file_bytes(s->row_count, c->o->size, (int)c->table->class_count, widest);
        char *path = chex_create_shard_path(c, s);
        if (!path)
            return chex_error_memory(err, "the output folder");
        need += chex_fs_exists(path) ? 0 : bytes;
        largest = bytes > largest ? bytes : largest;
        free(path);
    }
    *need_out = need;
    *largest_out = largest;
    return CHEX_OK;
}

static enum chex_status check_space(const struct chex_create *c, struct chex_error *err) {
    /* for the manifest, folders and file system metadata */
    const uint64_t margin = 1 << 20;
    uint64_t need = 0, largest = 0, have = 0;
    struct statfs fs;
    char a[32], b[32], hint[1024];
    CHEX_TRY(measure(c, &need, &largest, err));
    CHEX_TRY(chex_fs_free_bytes(c->o->output, &have, err));
    if (need && need + margin > have)
        return chex_error_set(
            err, CHEX_E_RESOURCE,
            "the shards take %s and %s has only %s free: make room, or give another --output",
            chex_format_bytes(a, sizeof a, need + margin), c->o->output,
            chex_format_bytes(b, sizeof b, have));
    if (statfs(c->o->output, &fs) == 0 &&
        chex_create_stripe_hint((uint64_t)fs.f_type, largest, c->o->output, hint, sizeof hint))
        chex_info("%s", hint);
    return CHEX_OK;
}

static enum chex_status take_output(struct chex_create *c, struct chex_error *err) {
    enum chex_status st = check_output(c, err);
    if (st == CHEX_OK)
        st = chex_create_lock(c, err);
    if (st == CHEX_OK)
        st = check_existing(c, err);
    if (st != CHEX_OK) {
        chex_create_unlock(c);
        return st;
    }
    remove_temporaries(c);
    return CHEX_OK;
}

enum chex_status chex_create_tidy(struct chex_create *c, struct chex_error *err) {
    if (!chex_fs_exists(c->partial))
        return CHEX_OK;
    CHEX_TRY(chex_create_lock(c, err));
    enum chex_status st = CHEX_OK;
    if (holds(c->partial, moves_name))
        st = clear_partial(c, err);
    chex_create_unlock(c);
    return st;
}

enum chex_status chex_create_occupy(struct chex_create *c, struct chex_error *err) {
    uint64_t need = 0, have = 0;
    char a[32], b[32];
    CHEX_TRY(take_output(c, err));
    CHEX_TRY(chex_create_spool_bytes(c, &need, err));
    CHEX_TRY(chex_fs_free_bytes(c->o->output, &have, err));
    if (need > have)
        return chex_error_set(
            err, CHEX_E_RESOURCE,
            "the shards and the images of compressed archives that wait for them "
            "take %s and %s has only %s free: make room, or give another --output",
            chex_format_bytes(a, sizeof a, need), c->o->output,
            chex_format_bytes(b, sizeof b, have));
    return CHEX_OK;
}

enum chex_status chex_create_prepare(struct chex_create *c, struct chex_error *err) {
    if (c->lock_fd < 0)
        CHEX_TRY(take_output(c, err));
    return check_space(c, err);
}

void chex_create_discard(struct chex_create *c) {
    struct chex_error err = {0};
    if (c->o->resume)
        remove_temporaries(c);
    else if (clear_partial(c, &err) != CHEX_OK)
        chex_warn("%s", err.text);
    chex_create_unlock(c);
    if (c->made_output)
        rmdir(c->o->output); /* fails, as intended, if it is not empty */
}

static enum chex_status write_moves(const struct chex_create *c, const struct chex_manifest *m,
                                    struct chex_error *err) {
    char *text = NULL, *path = chex_fs_join(c->partial, moves_name);
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    bool whole = f && path;
    for (size_t i = 0; whole && i < c->layout->shard_count; i++) {
        const struct chex_layout_shard *p = &c->layout->shards[i];
        char *from = chex_create_shard_path(c, p);
        whole = from != NULL;
        if (whole)
            fprintf(f, "%s\t%s\n", strrchr(from, '/') + 1,
                    m->splits[p->split].shards[p->index].file);
        free(from);
    }
    if (f && fclose(f) != 0)
        whole = false;
    enum chex_status st =
        whole ? chex_fs_write(path, text, size, err) : chex_error_memory(err, "the output folder");
    free(text);
    free(path);
    return st;
}

static enum chex_status move_shards(const struct chex_create *c, const struct chex_manifest *m,
                                    struct chex_error *err) {
    for (size_t i = 0; i < c->layout->shard_count; i++) {
        const struct chex_layout_shard *p = &c->layout->shards[i];
        char *from = chex_create_shard_path(c, p);
        char *folder = chex_fs_join(c->o->output, chex_split_names[p->split]);
        char *to = chex_fs_join(c->o->output, m->splits[p->split].shards[p->index].file);
        enum chex_status st =
            from && folder && to ? CHEX_OK : chex_error_memory(err, "the output folder");
        if (st == CHEX_OK && p->index == 0)
            st = chex_fs_mkdirs(folder, err);
        if (st == CHEX_OK && rename(from, to) != 0)
            st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot rename %s to %s", from, to);
        if (st == CHEX_OK && p->index + 1 == p->count)
            chex_fs_sync_folder(folder);
        free(from);
        free(folder);
        free(to);
        CHEX_TRY(st);
    }
    return CHEX_OK;
}

/* Removes OUT.rejected.csv of an earlier failed run: this run succeeded. */
static void remove_failed_list(const struct chex_create *c) {
    char *path = c->origin ? NULL : chex_create_failed_list(c);
    if (path)
        unlink(path);
    free(path);
}

enum chex_status chex_create_publish(struct chex_create *c, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    CHEX_TRY(chex_create_make_manifest(c, &m, err));
    enum chex_status st = CHEX_OK;
    if (c->o->force && holds(c->o->output, CHEX_MANIFEST_NAME))
        st = remove_old(c->o->output, err);
    if (st == CHEX_OK)
        st = write_moves(c, m, err);
    if (st == CHEX_OK)
        st = move_shards(c, m, err);
    if (st == CHEX_OK)
        st = chex_create_write_rejected(c, err);
    if (st == CHEX_OK)
        st = chex_manifest_write(c->o->output, m, err);
    if (st == CHEX_OK)
        st = clear_partial(c, err);
    else
        take_back(c, NULL); /* if this fails too, the next run does it */
    if (st == CHEX_OK) {
        remove_failed_list(c);
        chex_create_unlock(c);
    }
    chex_manifest_free(m);
    return st;
}
