/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints in a run's folder. A function first lists all names (numbered files, last.h5,
 * best.h5) with their steps, then acts on the list. Two names of one file have equal device and
 * inode; the second one in the list is marked as `twin`.
 */
#include "train/store/checkpoint_store.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/units.h"

const char *chex_checkpoint_store_name(uint64_t step, char name[CHEX_CHECKPOINT_NAME_BYTES]) {
    snprintf(name, CHEX_CHECKPOINT_NAME_BYTES, "checkpoints/step-%010llu.h5",
             (unsigned long long)step);
    return name;
}

/* ---- list of the existing checkpoints ---- */

struct saved {
    char *path;
    uint64_t step;
    int rank; /* 0 numbered, 1 last.h5, 2 best.h5; of equal steps the lowest is read first */
    dev_t dev;
    ino_t ino;
    bool twin; /* another name of a file that is already in the list */
};

struct list {
    struct saved *at;
    size_t count;
    struct chex_error fault; /* of last.h5 and best.h5, if their steps cannot be read */
};

/* Lists release themselves: struct list l RELEASED. */
#define RELEASED __attribute__((cleanup(release_list))) = {0}
static void release_list(struct list *l) {
    for (size_t i = 0; i < l->count; i++)
        free(l->at[i].path);
    free(l->at);
}

/* Takes ownership of `path`; NULL counts as out of memory. */
static enum chex_status add(struct list *l, char *path, struct saved one, struct chex_error *err) {
    struct saved *grown = path ? realloc(l->at, (l->count + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(path);
        return chex_error_memory(err, NULL);
    }
    one.path = path;
    l->at = grown;
    l->at[l->count++] = one;
    return CHEX_OK;
}

/* True if the whole name is step-N.h5. */
static bool numbered(const char *name, uint64_t *step_out) {
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return false;
    char *end;
    *step_out = strtoull(name + 5, &end, 10);
    return strcmp(end, ".h5") == 0;
}

static enum chex_status add_numbered(struct list *l, const char *dir, struct chex_error *err) {
    const struct chex_path sub = chex_path(dir, "checkpoints");
    DIR *d = opendir(sub.text);
    enum chex_status st = CHEX_OK;
    if (!d && errno == ENOENT)
        return CHEX_OK;
    for (struct dirent *e; d && st == CHEX_OK;) {
        struct saved one = {0};
        struct stat s;
        errno = 0;
        if (!(e = readdir(d)))
            break;
        if (!numbered(e->d_name, &one.step) || fstatat(dirfd(d), e->d_name, &s, 0) != 0)
            continue;
        one.dev = s.st_dev;
        one.ino = s.st_ino;
        st = add(l, chex_fs_join(sub.text, e->d_name), one, err);
    }
    if (st == CHEX_OK && errno) /* with a partial list an older checkpoint would be the newest */
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", sub.text);
    if (d)
        closedir(d);
    return st;
}

static enum chex_status read_step(const char *path, uint64_t *step_out, struct chex_error *err) {
    CHEX_AUTO_FREE char *meta = NULL;
    CHEX_TRY(chex_checkpoint_read_meta(path, &meta, err));
    json_auto_t *o = json_loads(meta, 0, NULL);
    const json_t *step = json_object_get(json_object_get(o, "position"), "step");
    *step_out = (uint64_t)json_integer_value(step);
    return json_is_integer(step)
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_DATA,
                                "%s: its meta holds no position of a training run", path);
}

static enum chex_status add_named(struct list *l, const char *dir, const char *name, int rank,
                                  struct chex_error *err) {
    struct saved one = {.rank = rank};
    struct stat s;
    const struct chex_path path = chex_path(dir, name);
    if (stat(path.text, &s) != 0)
        return CHEX_OK;
    one.dev = s.st_dev;
    one.ino = s.st_ino;
    for (size_t i = 0; i < l->count && !one.twin; i++) {
        one.twin = l->at[i].dev == one.dev && l->at[i].ino == one.ino;
        one.step = l->at[i].step;
    }
    const enum chex_status st = one.twin ? CHEX_OK : read_step(path.text, &one.step, err);
    if (st == CHEX_OK)
        return add(l, strdup(path.text), one, err);
    if (st != CHEX_E_DATA)
        return st;
    const struct chex_error before = l->fault;
    chex_error_set(&l->fault, st, "%s%s%s", before.text, before.text[0] ? "; " : "", err->text);
    return CHEX_OK;
}

static int by_step(const void *a, const void *b) {
    const struct saved *x = a, *y = b;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step) : y->rank - x->rank;
}

/* All checkpoints, oldest first. */
static enum chex_status list_all(const char *dir, struct list *l, struct chex_error *err) {
    CHEX_TRY(add_numbered(l, dir, err));
    CHEX_TRY(add_named(l, dir, "last.h5", 1, err));
    CHEX_TRY(add_named(l, dir, "best.h5", 2, err));
    if (l->count)
        qsort(l->at, l->count, sizeof *l->at, by_step);
    return CHEX_OK;
}

/* A file with the state after `step`; NULL: none. */
static const char *find_step(const struct list *l, uint64_t step) {
    for (size_t i = l->count; i > 0; i--)
        if (l->at[i - 1].step == step)
            return l->at[i - 1].path;
    return NULL;
}

enum chex_status chex_checkpoint_store_find(const char *dir, uint64_t step, char **path_out,
                                            struct chex_error *err) {
    struct list l RELEASED;
    *path_out = NULL;
    CHEX_TRY(list_all(dir, &l, err));
    const char *path = find_step(&l, step);
    return !path || (*path_out = strdup(path)) ? CHEX_OK : chex_error_memory(err, NULL);
}

enum chex_status chex_checkpoint_store_steps(const char *dir, uint64_t **steps_out,
                                             size_t *count_out, struct chex_error *err) {
    struct list l RELEASED;
    CHEX_TRY(list_all(dir, &l, err));
    *count_out = 0;
    if (!(*steps_out = chex_alloc_zeroed(l.count, sizeof **steps_out)))
        return chex_error_memory(err, NULL);
    for (size_t i = 0; i < l.count; i++)
        if (!i || l.at[i - 1].step != l.at[i].step)
            (*steps_out)[(*count_out)++] = l.at[i].step;
    return CHEX_OK;
}

/* ---- writing ---- */

static enum chex_status point_at(const char *dir, const char *name, const char *file,
                                 struct chex_error *err) {
    return chex_fs_alias(file, chex_path(dir, name).text, err);
}

void chex_checkpoint_store_prune(const char *dir, int keep, uint64_t audited) {
    struct list l RELEASED;
    struct chex_error err;
    size_t later = 0; /* the first one after `audited` */
    if (keep == 0 || add_numbered(&l, dir, &err) != CHEX_OK || !l.count)
        return;
    qsort(l.at, l.count, sizeof *l.at, by_step);
    while (later < l.count && l.at[later].step <= audited)
        later++;
    for (size_t i = 0; i + (size_t)keep < l.count; i++)
        if (i != later && i + 1 != later)
            unlink(l.at[i].path);
}

/* Asked before the write: a write that fills the file system would take the space of the metrics
 * for a moment, and the steps go on meanwhile. */
static enum chex_status check_room(const char *path, const struct chex_net *net,
                                   const struct chex_checkpoint *c, struct chex_error *err) {
    uint64_t vectors = 0;
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        vectors += c->vectors[i] != NULL;
    const uint64_t bytes = vectors * net->state_count * sizeof(float);
    uint64_t have = 0;
    char a[32], b[32];
    if (chex_fs_free_bytes(path, &have, NULL) != CHEX_OK || have >= bytes)
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_RESOURCE, "cannot write %s: No space left on device (%s free; %s needed)", path,
        chex_format_bytes(a, sizeof a, have), chex_format_bytes(b, sizeof b, bytes));
}

enum chex_status chex_checkpoint_store_write(const char *dir, int keep, const struct chex_net *net,
                                             const struct chex_checkpoint *c, uint64_t step,
                                             bool best, struct chex_error *err) {
    char name[CHEX_CHECKPOINT_NAME_BYTES];
    const struct chex_path path = chex_path(dir, chex_checkpoint_store_name(step, name));
    CHEX_TRY(check_room(path.text, net, c, err));
    CHEX_TRY(chex_checkpoint_write(path.text, net, c, err));
    CHEX_TRY(point_at(dir, "last.h5", path.text, err));
    if (best)
        CHEX_TRY(point_at(dir, "best.h5", path.text, err));
    chex_checkpoint_store_prune(dir, keep, UINT64_MAX);
    return CHEX_OK;
}

/* ---- resuming ---- */

/* Appends to the fault of a file that other names of it are the same file. */
static void name_twins(const struct list *l, const struct saved *one, struct chex_error *fault) {
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].twin && l->at[i].dev == one->dev && l->at[i].ino == one->ino) {
            const size_t n = strlen(fault->text);
            snprintf(fault->text + n, sizeof fault->text - n, "; %s is the same file",
                     l->at[i].path);
        }
}

/* Reads the newest intact checkpoint of the list. */
static enum chex_status read_newest(const char *dir, const struct list *l,
                                    struct chex_net **net_out, struct chex_checkpoint **c_out,
                                    char **path_out, struct chex_error *err) {
    struct chex_error fault = l->fault;
    for (size_t i = l->count; i > 0; i--) {
        struct saved *one = &l->at[i - 1];
        if (one->twin)
            continue;
        if (fault.text[0])
            chex_warn("%s; going on from %s", fault.text, one->path);
        enum chex_status st = chex_checkpoint_read(one->path, true, net_out, c_out, &fault);
        if (st == CHEX_OK) {
            *path_out = one->path;
            one->path = NULL;
            return CHEX_OK;
        }
        if (st != CHEX_E_DATA)
            return chex_error_set(err, st, "%s", fault.text);
        name_twins(l, one, &fault);
    }
    if (!fault.text[0])
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s; no other checkpoint in %s can be read: bring one back, or name a "
                          "new folder with --output",
                          fault.text, dir);
}

enum chex_status chex_checkpoint_store_newest(const char *dir, struct chex_net **net_out,
                                              struct chex_checkpoint **c_out, char **path_out,
                                              struct chex_error *err) {
    struct list l RELEASED;
    *c_out = NULL;
    CHEX_TRY(list_all(dir, &l, err));
    return read_newest(dir, &l, net_out, c_out, path_out, err);
}

/* PATH.abandoned, or PATH.abandoned.N if that exists. The caller frees it. */
static char *aside_name(const char *path) {
    char *name = chex_fs_format("%s.abandoned", path);
    for (int n = 2; name && chex_fs_exists(name); n++) {
        free(name);
        name = chex_fs_format("%s.abandoned.%d", path, n);
    }
    return name;
}

static enum chex_status set_aside(const struct saved *one, uint64_t step, struct chex_error *err) {
    if (one->twin) { /* the file is kept under its other name */
        if (unlink(one->path) != 0)
            return chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", one->path);
        chex_warn("%s was a name of the same checkpoint", one->path);
        return CHEX_OK;
    }
    CHEX_AUTO_FREE char *name = aside_name(one->path);
    CHEX_ALLOCATED(name, err, NULL);
    if (rename(one->path, name) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot rename %s", one->path);
    chex_warn("%s is of step %llu, and the run goes on from step %llu: kept as %s", one->path,
              (unsigned long long)one->step, (unsigned long long)step, name);
    return CHEX_OK;
}

static enum chex_status copy_lines(const char *dir, const char *file, struct chex_error *err) {
    const struct chex_path path = chex_path(dir, file);
    CHEX_AUTO_FREE char *name = aside_name(path.text);
    CHEX_ALLOCATED(name, err, NULL);
    return chex_fs_exists(path.text) ? chex_fs_alias(path.text, name, err) : CHEX_OK;
}

/* Sets aside the checkpoints of later steps, latest first. */
static enum chex_status abandon_later(const char *dir, const struct list *l, uint64_t step,
                                      struct chex_error *err) {
    if (!l->count || l->at[l->count - 1].step <= step)
        return CHEX_OK;
    CHEX_TRY(copy_lines(dir, "metrics.jsonl", err));
    CHEX_TRY(copy_lines(dir, "checkpoints.jsonl", err));
    for (size_t i = l->count; i > 0 && l->at[i - 1].step > step; i--)
        CHEX_TRY(set_aside(&l->at[i - 1], step, err));
    return CHEX_OK;
}

enum chex_status chex_checkpoint_store_abandon(const char *dir, uint64_t step, uint64_t *kept_out,
                                               struct chex_error *err) {
    struct list l RELEASED;
    *kept_out = 0;
    CHEX_TRY(list_all(dir, &l, err));
    for (size_t i = 0; i < l.count && l.at[i].step <= step; i++)
        *kept_out = l.at[i].step;
    CHEX_TRY(abandon_later(dir, &l, *kept_out, err));
    CHEX_AUTO_FREE char *kept = NULL;
    if (*kept_out)
        CHEX_TRY(chex_checkpoint_store_find(dir, *kept_out, &kept, err));
    if (kept && strcmp(chex_fs_name(kept), "last.h5") != 0)
        return point_at(dir, "last.h5", kept, err);
    if (!*kept_out && l.count) {
        unlink(chex_path(dir, "metrics.jsonl").text);
        unlink(chex_path(dir, "checkpoints.jsonl").text);
    }
    return CHEX_OK;
}

static const struct saved *find_named(const struct list *l, int rank) {
    for (size_t i = 0; i < l->count; i++)
        if (l->at[i].rank == rank)
            return &l->at[i];
    return NULL;
}

static enum chex_status set_best(const char *dir, const struct list *l, const char *path,
                                 uint64_t step, uint64_t best_step, bool *best_out,
                                 struct chex_error *err) {
    const struct saved *best = find_named(l, 2);
    *best_out = best != NULL;
    if (best_step == 0 || best_step > step || (best && best->step == best_step))
        return CHEX_OK;
    const char *file = best_step == step ? path : find_step(l, best_step);
    if (!file) /* the checkpoint no longer exists */
        return CHEX_OK;
    *best_out = true;
    return point_at(dir, "best.h5", file, err);
}

enum chex_status chex_checkpoint_store_set_names(const char *dir, const char *path, uint64_t step,
                                                 uint64_t best_step, bool *best_out,
                                                 struct chex_error *err) {
    struct list l RELEASED;
    CHEX_TRY(list_all(dir, &l, err));
    const struct saved *last = find_named(&l, 1);
    if (!last || !chex_fs_same(last->path, path))
        CHEX_TRY(point_at(dir, "last.h5", path, err));
    return set_best(dir, &l, path, step, best_step, best_out, err);
}

enum chex_status chex_checkpoint_store_go_on_from(const char *dir, const char *path, uint64_t step,
                                                  uint64_t best_step, bool *best_out,
                                                  struct chex_error *err) {
    struct list l RELEASED;
    CHEX_TRY(list_all(dir, &l, err));
    CHEX_TRY(abandon_later(dir, &l, step, err));
    return chex_checkpoint_store_set_names(dir, path, step, best_step, best_out, err);
}

/* ---- space ---- */

enum chex_status chex_checkpoint_store_check_space(const char *dir, int keep, uint64_t bytes,
                                                   struct chex_checkpoint_space *space_out,
                                                   struct chex_error *err) {
    struct list l RELEASED;
    uint64_t have = 0;
    char a[32], b[32];
    CHEX_TRY(add_numbered(&l, dir, err));
    CHEX_TRY(chex_fs_free_bytes(dir, &have, err));
    if (have < bytes)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "a checkpoint takes %s and %s has only %s free: make room, or name "
                              "another folder with --output",
                              chex_format_bytes(a, sizeof a, bytes), dir,
                              chex_format_bytes(b, sizeof b, have));
    const int more = keep + 2 - (int)l.count;
    *space_out = (struct chex_checkpoint_space){
        .file_bytes = bytes, .free_bytes = have, .more = keep && more > 0 ? more : 0};
    if (keep > 0 && more > 1 && have / bytes < (uint64_t)more)
        snprintf(
            space_out->warning, sizeof space_out->warning,
            "%.96s has %s free, and the checkpoints of this run take up to %s more: make room, "
            "or lower --checkpoint-keep (%d)",
            dir, chex_format_bytes(b, sizeof b, have),
            chex_format_bytes(a, sizeof a, (uint64_t)more * bytes), keep);
    return CHEX_OK;
}
