/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the files below a folder and finds the one that a label file means.
 *
 * The list is sorted so that every search is a binary search (by_name): first files, then images in
 * containers and spools; within these by file name; files of one name by their folders, read from
 * the end of the path to its start. So all paths that end in "b/x.png" are neighbours, and the
 * files that match rule 1, 2 or 3 of chex_folder_find() are a range of the list. A second file in
 * the range is a rival.
 */
#include "ingest/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "ingest/archive.h"

/* Limits of open files. The first MAX_OPEN containers stay open; others are opened for each read.
 * While the tree is read, each level of folders has one open file. */
enum { MAX_DEPTH = 64, MAX_OPEN = 256 };

struct chex_container {
    char *path;
    int fd; /* -1: not kept open */
};

struct list {
    struct chex_folder_file *files;
    size_t count, capacity;
};

struct chex_folder {
    struct list all; /* in the order of by_name(); the first own_count entries are files */
    size_t own_count;
    struct list archives;                /* sorted by path */
    struct list unread;                  /* in the order of by_name(); own their reasons */
    struct chex_error closed;            /* a subfolder without read permission */
    char skipped[CHEX_ERROR_TEXT_BYTES]; /* the first folder that was not followed, and why */
    size_t skipped_count;
    struct chex_container **containers;
    struct chex_spool **spools;
    size_t container_count, container_capacity, spool_count, spool_capacity;
};

static bool is_contained(const struct chex_folder_file *p) { return p->container || p->spool; }

/* The order of the list (see the head). */
static int by_name(const void *a, const void *b) {
    const struct chex_folder_file *x = a, *y = b;
    int order = is_contained(x) - is_contained(y);
    order = order ? order : strcmp(chex_fs_name(x->path), chex_fs_name(y->path));
    return order ? order : chex_text_compare_ends(x->path, y->path);
}

static int by_path(const void *a, const void *b) {
    const struct chex_folder_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "the list of images");
}

/* Takes ownership of file->path, also on failure. */
static enum chex_status append(struct list *list, const struct chex_folder_file *file,
                               struct chex_error *err) {
    if (!chex_alloc_grow(&list->files, list->count, &list->capacity, sizeof *list->files)) {
        free((char *)file->path);
        return no_memory(err);
    }
    list->files[list->count++] = *file;
    return CHEX_OK;
}

static enum chex_status add_found(struct chex_folder *f, char *path, size_t below,
                                  const struct stat *info, struct chex_error *err) {
    struct chex_folder_file file = {.path = path,
                                    .below = below,
                                    .bytes = (uint64_t)info->st_size,
                                    .modified_ns = chex_fs_modified_ns(info)};
    return append(chex_archive_named(path) ? &f->archives : &f->all, &file, err);
}

/* A folder on the way down from the image folder. */
struct level {
    const struct level *above; /* NULL: this is the image folder */
    const char *path;
    dev_t device;
    ino_t inode;
    int depth;
    size_t below; /* where paths below the image folder begin; 0 at the image folder itself */
};

/* Lists an entry that cannot be read. Takes ownership of path and reason; NULL: out of memory. */
static enum chex_status add_unread(struct chex_folder *f, char *path, size_t below, char *reason,
                                   struct chex_error *err) {
    const struct chex_folder_file file = {.path = path, .below = below, .unread = reason};
    if (!path || !reason) {
        free(path);
        free(reason);
        return no_memory(err);
    }
    const enum chex_status st = append(&f->unread, &file, err);
    if (st != CHEX_OK)
        free(reason);
    return st;
}

static void skip(struct chex_folder *f, const char *path, const char *why, const char *other) {
    if (f->skipped_count++ == 0)
        snprintf(f->skipped, sizeof f->skipped, "%.200s%s%.200s", path, why, other);
}

/* False for a link to a folder above it, which would never end, and below MAX_DEPTH. */
static bool may_enter(struct chex_folder *f, const struct level *from, const char *path,
                      const struct stat *info) {
    for (const struct level *l = from; l; l = l->above)
        if (l->device == info->st_dev && l->inode == info->st_ino) {
            skip(f, path, " is the folder above it, ", l->path);
            return false;
        }
    if (from->depth < MAX_DEPTH)
        return true;
    skip(f, path, " is too deep, expected 64 levels of folders at most", "");
    return false;
}

static enum chex_status walk(struct chex_folder *f, const struct level *level,
                             struct chex_error *err);

/* stat() of an entry has failed with `why`. */
static enum chex_status add_unstatable(struct chex_folder *f, char *path, size_t below, int why,
                                       struct chex_error *err) {
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        return add_unread(f, path, below,
                          strdup(why == ENOENT  ? "a link to a file that does not exist"
                                 : why == ELOOP ? "a link to itself"
                                                : "a link that cannot be followed"),
                          err);
    return add_unread(f, path, below, strdup(strerror(why)), err);
}

/* One entry of a folder. Takes ownership of `path`. */
static enum chex_status visit(struct chex_folder *f, const struct level *level, char *path,
                              const char *name, struct chex_error *err) {
    const size_t below = level->above ? level->below : strlen(path) - strlen(name);
    struct stat info;
    enum chex_status st = CHEX_OK;
    if (stat(path, &info) != 0)
        return add_unstatable(f, path, below, errno, err);
    if (!S_ISDIR(info.st_mode))
        return add_found(f, path, below, &info, err);
    if (may_enter(f, level, path, &info)) {
        const struct level next = {level, path, info.st_dev, info.st_ino, level->depth + 1, below};
        st = walk(f, &next, err);
    } else {
        return add_unread(f, path, below, strdup("a folder that contains itself, or is too deep"),
                          err);
    }
    free(path);
    return st;
}

static enum chex_status walk(struct chex_folder *f, const struct level *level,
                             struct chex_error *err) {
    CHEX_AUTO(chex_fs_closedir_at) DIR *d = opendir(level->path);
    if (!d) {
        /* A subfolder without permission, such as lost+found, is left out and reported. */
        bool closed = errno == EACCES && level->above;
        const enum chex_status st = chex_error_errno(closed ? &f->closed : err, CHEX_E_DATA, errno,
                                                     "cannot read image folder %s", level->path);
        return closed ? add_unread(f, strdup(level->path), level->below,
                                   strdup("a folder without permission to read"), err)
                      : st;
    }
    /* A readdir() error (disk fault, stale NFS handle) must fail: the files after it would
     * otherwise count as missing. */
    for (struct dirent *e;;) {
        errno = 0;
        e = readdir(d);
        if (!e && errno)
            return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read image folder %s",
                                    level->path);
        if (!e)
            return CHEX_OK;
        if (e->d_name[0] == '.')
            continue;
        char *path = chex_fs_join(level->path, e->d_name);
        CHEX_TRY(path ? visit(f, level, path, e->d_name, err) : no_memory(err));
    }
}

static enum chex_status walk_from(struct chex_folder *f, const char *dir, struct chex_error *err) {
    struct stat info = {0};
    struct level top = {.path = dir};
    if (stat(dir, &info) == 0) {
        top.device = info.st_dev;
        top.inode = info.st_ino;
    }
    return walk(f, &top, err);
}

enum chex_status chex_folder_create(struct chex_folder **folder_out, struct chex_error *err) {
    struct chex_folder *f = calloc(1, sizeof *f);
    if (!f)
        return no_memory(err);
    *folder_out = f;
    return CHEX_OK;
}

enum chex_status chex_folder_open(const char *dir, struct chex_folder **folder_out,
                                  struct chex_error *err) {
    CHEX_AUTO(chex_folder_close_at) struct chex_folder *f = NULL;
    struct stat info;
    CHEX_TRY(chex_folder_create(&f, err));
    if (chex_archive_named(dir) && stat(dir, &info) == 0 && S_ISREG(info.st_mode)) {
        char *path = strdup(dir);
        CHEX_TRY(path ? add_found(f, path, strlen(path), &info, err) : no_memory(err));
    } else {
        CHEX_TRY(walk_from(f, dir, err));
    }
    chex_folder_sort(f);
    if (f->archives.count)
        qsort(f->archives.files, f->archives.count, sizeof *f->archives.files, by_path);
    *folder_out = CHEX_TAKE(f);
    return CHEX_OK;
}

static void free_list(struct list *list) {
    for (size_t i = 0; i < list->count; i++) {
        free((char *)list->files[i].path);
        free((char *)list->files[i].unread);
    }
    free(list->files);
}

static void free_container(struct chex_container *h) {
    if (h->fd >= 0)
        close(h->fd);
    free(h->path);
    free(h);
}

void chex_folder_close(struct chex_folder *f) {
    if (!f)
        return;
    free_list(&f->all);
    free_list(&f->archives);
    free_list(&f->unread);
    for (size_t i = 0; i < f->container_count; i++)
        free_container(f->containers[i]);
    for (size_t i = 0; i < f->spool_count; i++)
        chex_spool_close(f->spools[i]);
    CHEX_FREE(f->containers, f->spools, f);
}

size_t chex_folder_count(const struct chex_folder *f) { return f->all.count; }

const struct chex_folder_file *chex_folder_files(const struct chex_folder *f, size_t *count_out) {
    *count_out = f->all.count;
    return f->all.files;
}

const char *chex_folder_closed(const struct chex_folder *f) {
    return f->closed.text[0] ? f->closed.text : NULL;
}

const char *chex_folder_skipped(const struct chex_folder *f, size_t *count_out) {
    *count_out = f->skipped_count;
    return f->skipped_count ? f->skipped : NULL;
}

const struct chex_folder_file *chex_folder_archives(const struct chex_folder *f,
                                                    size_t *count_out) {
    *count_out = f->archives.count;
    return f->archives.files;
}

const struct chex_folder_file *chex_folder_unread(const struct chex_folder *f, size_t *count_out) {
    *count_out = f->unread.count;
    return f->unread.files;
}

enum chex_status chex_folder_add_container(struct chex_folder *f, const char *path,
                                           const struct chex_container **container_out,
                                           struct chex_error *err) {
    struct chex_container *h = malloc(sizeof *h);
    if (h)
        *h = (struct chex_container){strdup(path), -1};
    if (!h || !h->path ||
        !chex_alloc_grow(&f->containers, f->container_count, &f->container_capacity, sizeof h)) {
        if (h)
            free_container(h);
        return no_memory(err);
    }
    if (f->container_count < MAX_OPEN)
        chex_fs_open(path, &h->fd, NULL, NULL); /* a failure is reported by the first reading */
    f->containers[f->container_count++] = h;
    *container_out = h;
    return CHEX_OK;
}

enum chex_status chex_folder_add_spool(struct chex_folder *f, struct chex_spool *spool,
                                       struct chex_error *err) {
    if (!chex_alloc_grow(&f->spools, f->spool_count, &f->spool_capacity, sizeof spool)) {
        chex_spool_close(spool);
        return no_memory(err);
    }
    f->spools[f->spool_count++] = spool;
    return CHEX_OK;
}

enum chex_status chex_folder_add(struct chex_folder *f, const struct chex_folder_file *file,
                                 const char *container_path, const char *name,
                                 struct chex_error *err) {
    struct chex_folder_file copy = *file;
    if (!(copy.path = chex_fs_join(container_path, name)))
        return no_memory(err);
    copy.below = strlen(copy.path) - strlen(name);
    if (file->unread)
        return add_unread(f, (char *)copy.path, copy.below, strdup(file->unread), err);
    return append(&f->all, &copy, err);
}

void chex_folder_sort(struct chex_folder *f) {
    if (f->all.count)
        qsort(f->all.files, f->all.count, sizeof *f->all.files, by_name);
    if (f->unread.count)
        qsort(f->unread.files, f->unread.count, sizeof *f->unread.files, by_name);
    for (f->own_count = 0; f->own_count < f->all.count; f->own_count++)
        if (is_contained(&f->all.files[f->own_count]))
            break;
}

struct range {
    const struct chex_folder_file *first, *stop;
};

/* The first entry with order(path, key) >= 0, or with `upper` > 0. */
static const struct chex_folder_file *bound(struct range r,
                                            int (*order)(const char *path, const char *key),
                                            const char *key, bool upper) {
    while (r.first < r.stop) {
        const struct chex_folder_file *mid = r.first + (r.stop - r.first) / 2;
        if (order(mid->path, key) < (upper ? 1 : 0))
            r.first = mid + 1;
        else
            r.stop = mid;
    }
    return r.first;
}

/* The entries with order(path, key) == 0. */
static struct range part(struct range r, int (*order)(const char *path, const char *key),
                         const char *key) {
    return (struct range){bound(r, order, key, false), bound(r, order, key, true)};
}

static int name_order(const char *path, const char *name) {
    return strcmp(chex_fs_name(path), name);
}

/* Zero if the file name is `stem`, a dot and an extension. */
static int stem_order(const char *path, const char *stem) {
    size_t n = strlen(stem);
    const char *name = chex_fs_name(path);
    int order = strncmp(name, stem, n);
    return order ? order : (name[n] > '.') - (name[n] < '.');
}

/* Length of the folder part of a path, with the last '/'. */
static size_t folders_of(const char *path) { return (size_t)(chex_fs_name(path) - path); }

/* For paths with the same file name. Zero if the folders of `path` equal those of `tail` or end in
 * them; otherwise the order of chex_text_compare_ends(). */
static int tail_order(const char *path, const char *tail) {
    size_t m = folders_of(path), n = folders_of(tail);
    while (m && n && path[m - 1] == tail[n - 1])
        m--, n--;
    if (!m)
        return n ? -1 : 0;
    char want = n ? tail[n - 1] : '/';
    return (path[m - 1] > want) - (path[m - 1] < want);
}

static bool same_folders(const char *a, const char *b) {
    return folders_of(a) == folders_of(b) && memcmp(a, b, folders_of(a)) == 0;
}

/* `named` are files of one name. Returns those whose folders equal those of `path` or end in them
 * (rule 2), or only the one whose whole path below the image folder is `path` (rule 1). */
static struct range ending(struct range named, const char *path) {
    struct range fit = part(named, tail_order, path);
    if (fit.stop - fit.first > 1 && folders_of(path))
        for (const struct chex_folder_file *p = fit.first; p < fit.stop; p++)
            if (!is_contained(p) && same_folders(p->path + p->below, path))
                return (struct range){p, p + 1};
    return fit;
}

/* The same for files of several names (any extension). If two names match, returns all of `named`,
 * so that the caller sees a rival. */
static struct range ending_of_any(struct range named, const char *path) {
    struct range found = {named.first, named.first};
    for (const struct chex_folder_file *p = named.first; p < named.stop;) {
        struct range same = part((struct range){p, named.stop}, name_order, chex_fs_name(p->path));
        struct range fit = ending(same, path);
        if (fit.first < fit.stop && found.first < found.stop)
            return named;
        found = fit.first < fit.stop ? fit : found;
        p = same.stop;
    }
    return found;
}

/* The best matches among `count` files. `whole`: without rule 3. */
static struct range fitting(const struct chex_folder_file *files, size_t count, const char *path,
                            bool whole) {
    const char *name = chex_fs_name(path);
    if (!count)
        return (struct range){NULL, NULL};
    struct range all = {files, files + count};
    struct range fit = part(all, name_order, name), exact = ending(fit, path);
    if (fit.first == fit.stop && !strchr(name, '.')) {
        fit = part(all, stem_order, name);
        exact = ending_of_any(fit, path);
    }
    return exact.first < exact.stop || whole ? exact : fit;
}

/* True if both are links to the same file. */
static bool same_file(const struct chex_folder_file *a, const struct chex_folder_file *b) {
    return !is_contained(a) && !is_contained(b) && chex_fs_same(a->path, b->path);
}

static const struct chex_folder_file *find_rival(struct range fit) {
    for (const struct chex_folder_file *p = fit.first; p < fit.stop; p++)
        if (p != fit.first && !same_file(fit.first, p))
            return p;
    return NULL;
}

static const struct chex_folder_file *find(const struct chex_folder *f, const char *path,
                                           bool whole, const struct chex_folder_file **rival_out) {
    size_t contained = f->all.count - f->own_count;
    struct range fit = fitting(f->all.files, f->own_count, path, whole);
    if (fit.first == fit.stop && contained)
        fit = fitting(f->all.files + f->own_count, contained, path, whole);
    if (rival_out)
        *rival_out = find_rival(fit);
    return fit.first < fit.stop ? fit.first : NULL;
}

const struct chex_folder_file *chex_folder_find(const struct chex_folder *f, const char *path,
                                                const struct chex_folder_file **rival_out) {
    return find(f, path, false, rival_out);
}

const struct chex_folder_file *chex_folder_find_whole(const struct chex_folder *f, const char *path,
                                                      const struct chex_folder_file **rival_out) {
    return find(f, path, true, rival_out);
}

const struct chex_folder_file *chex_folder_find_unread(const struct chex_folder *f,
                                                       const char *path) {
    const struct range fit = fitting(f->unread.files, f->unread.count, path, false);
    return fit.first < fit.stop ? fit.first : NULL;
}

static enum chex_status open_container(const struct chex_container *h, int *fd_out,
                                       struct chex_error *err) {
    *fd_out = h->fd;
    return h->fd >= 0 ? CHEX_OK : chex_fs_open(h->path, fd_out, NULL, err);
}

/* Closes fd unless the container keeps it open. */
static void close_container(const struct chex_container *h, int fd) {
    if (h->fd < 0)
        close(fd);
}

enum chex_status chex_folder_read(const struct chex_folder_file *file,
                                  struct chex_image_reader *reader, const uint8_t **data_out,
                                  size_t *size_out, struct chex_error *err) {
    const struct chex_container *h = file->container;
    uint8_t *data = NULL;
    if (!h)
        return chex_image_read(reader, file->path, data_out, size_out, err);
    CHEX_TRY(chex_image_capacity(reader, file->path, file->bytes, &data, err));
    int fd = -1;
    enum chex_status st = open_container(h, &fd, err);
    if (st != CHEX_OK) /* not CHEX_E_DATA: the image itself is not bad */
        return chex_error_prefix(err, st == CHEX_E_DATA ? CHEX_E_ENV : st, "%s", file->path);
    if (chex_fs_pread(fd, data, (size_t)file->bytes, file->offset) != file->bytes)
        st = errno ? chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", file->path)
                   : chex_error_data(err, "%s: the file that holds it shrank", file->path);
    close_container(h, fd);
    if (st != CHEX_OK)
        return st;
    *data_out = data;
    *size_out = (size_t)file->bytes;
    return CHEX_OK;
}

void chex_folder_prefetch(const struct chex_folder_file *file) {
    const struct chex_container *h = file->container;
    if (file->spool)
        return;
    int fd = -1;
    if ((h ? open_container(h, &fd, NULL) : chex_fs_open(file->path, &fd, NULL, NULL)) != CHEX_OK)
        return;
    posix_fadvise(fd, (off_t)file->offset, h ? (off_t)file->bytes : 0, POSIX_FADV_WILLNEED);
    if (h)
        close_container(h, fd);
    else
        close(fd);
}
