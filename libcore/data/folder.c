/* SPDX-License-Identifier: Apache-2.0 */
#include "data/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "data/archive.h"

/* Holders beyond KEPT_OPEN are opened anew for each read. */
enum { MAX_DEPTH = 16, KEPT_OPEN = 256 };

struct chex_holder {
    char *path;
    int fd; /* -1: not kept open */
};

struct list {
    struct chex_folder_file *files;
    size_t count, capacity;
};

struct chex_folder {
    struct list all; /* in the order of by_name(): first the own_count files of their own */
    size_t own_count;
    struct list archives;     /* sorted by path */
    struct chex_error closed; /* a folder within that may not be read */
    struct chex_holder **holders;
    size_t holder_count;
    struct chex_spool **spools;
    size_t spool_count;
};

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of images");
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* As strcmp of the texts read from their ends. */
static int compare_backwards(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    while (m && n && a[m - 1] == b[n - 1])
        m--, n--;
    return m && n ? (a[m - 1] > b[n - 1] ? 1 : -1) : (m > 0) - (n > 0);
}

static bool is_held(const struct chex_folder_file *p) { return p->holder || p->spool; }

/* Files of their own go before held ones. Files of one name stand by what is before it, the nearest
 * folder first: those whose paths end alike follow each other. */
static int by_name(const void *a, const void *b) {
    const struct chex_folder_file *x = a, *y = b;
    int order = is_held(x) - is_held(y);
    order = order ? order : strcmp(name_of(x->path), name_of(y->path));
    return order ? order : compare_backwards(x->path, y->path);
}

static int by_path(const void *a, const void *b) {
    const struct chex_folder_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

/* Takes file->path over, on failure too. */
static enum chex_status append(struct list *list, const struct chex_folder_file *file,
                               struct chex_error *err) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 1024;
        struct chex_folder_file *grown = realloc(list->files, capacity * sizeof *grown);
        if (!grown) {
            free((char *)file->path);
            return no_memory(err);
        }
        list->files = grown;
        list->capacity = capacity;
    }
    list->files[list->count++] = *file;
    return CHEX_OK;
}

static enum chex_status add_found(struct chex_folder *f, char *path, const struct stat *info,
                                  struct chex_error *err) {
    struct chex_folder_file file = {.path = path,
                                    .bytes = (uint64_t)info->st_size,
                                    .modified_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 +
                                                   info->st_mtim.tv_nsec};
    return append(chex_archive_named(path) ? &f->archives : &f->all, &file, err);
}

static enum chex_status walk(struct chex_folder *f, const char *dir, int depth,
                             struct chex_error *err) {
    DIR *d = opendir(dir);
    enum chex_status st = CHEX_OK;
    if (!d) {
        /* A disk's own lost+found is root's, and no reason to read nothing. */
        bool closed = errno == EACCES && depth > 0;
        st = chex_error_errno(closed ? &f->closed : err, CHEX_E_DATA, errno,
                              "cannot read image folder %s", dir);
        return closed ? CHEX_OK : st;
    }
    /* What cannot be listed to its end (a disk's fault, a stale handle) would count as missing. */
    for (struct dirent *e; st == CHEX_OK;) {
        errno = 0;
        e = readdir(d);
        if (!e && errno)
            st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot read image folder %s", dir);
        if (!e)
            break;
        if (e->d_name[0] == '.')
            continue;
        char *path = chex_fs_join(dir, e->d_name);
        struct stat info;
        if (!path) {
            st = no_memory(err);
        } else if (stat(path, &info) != 0) {
            free(path); /* a dangling link is as good as no file */
        } else if (S_ISDIR(info.st_mode)) {
            st = depth < MAX_DEPTH ? walk(f, path, depth + 1, err) : CHEX_OK;
            free(path);
        } else {
            st = add_found(f, path, &info, err);
        }
    }
    closedir(d);
    return st;
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
    struct chex_folder *f = NULL;
    struct stat info;
    enum chex_status st;
    CHEX_TRY(chex_folder_create(&f, err));
    if (chex_archive_named(dir) && stat(dir, &info) == 0 && S_ISREG(info.st_mode)) {
        char *path = strdup(dir);
        st = path ? add_found(f, path, &info, err) : no_memory(err);
    } else {
        st = walk(f, dir, 0, err);
    }
    if (st != CHEX_OK) {
        chex_folder_close(f);
        return st;
    }
    chex_folder_sort(f);
    if (f->archives.count)
        qsort(f->archives.files, f->archives.count, sizeof *f->archives.files, by_path);
    *folder_out = f;
    return CHEX_OK;
}

static void free_list(struct list *list) {
    for (size_t i = 0; i < list->count; i++)
        free((char *)list->files[i].path);
    free(list->files);
}

static void free_holder(struct chex_holder *h) {
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
    for (size_t i = 0; i < f->holder_count; i++)
        free_holder(f->holders[i]);
    for (size_t i = 0; i < f->spool_count; i++)
        chex_spool_close(f->spools[i]);
    free(f->holders);
    free(f->spools);
    free(f);
}

size_t chex_folder_count(const struct chex_folder *f) { return f->all.count; }

const char *chex_folder_closed(const struct chex_folder *f) {
    return f->closed.text[0] ? f->closed.text : NULL;
}

const char *chex_folder_sample(const struct chex_folder *f) {
    return f->all.count ? f->all.files[f->all.count / 2].path : NULL;
}

const struct chex_folder_file *chex_folder_archives(const struct chex_folder *f,
                                                    size_t *count_out) {
    *count_out = f->archives.count;
    return f->archives.files;
}

enum chex_status chex_folder_add_holder(struct chex_folder *f, const char *path,
                                        const struct chex_holder **holder_out,
                                        struct chex_error *err) {
    struct chex_holder **grown = realloc(f->holders, (f->holder_count + 1) * sizeof *grown);
    struct chex_holder *h = malloc(sizeof *h);
    if (grown)
        f->holders = grown;
    if (h)
        *h = (struct chex_holder){strdup(path), -1};
    if (!grown || !h || !h->path) {
        if (h)
            free_holder(h);
        return no_memory(err);
    }
    if (f->holder_count < KEPT_OPEN)
        h->fd = open(path, O_RDONLY | O_CLOEXEC);
    f->holders[f->holder_count++] = h;
    *holder_out = h;
    return CHEX_OK;
}

enum chex_status chex_folder_add_spool(struct chex_folder *f, struct chex_spool *spool,
                                       struct chex_error *err) {
    struct chex_spool **grown = realloc(f->spools, (f->spool_count + 1) * sizeof *grown);
    if (!grown) {
        chex_spool_close(spool);
        return no_memory(err);
    }
    f->spools = grown;
    f->spools[f->spool_count++] = spool;
    return CHEX_OK;
}

enum chex_status chex_folder_add(struct chex_folder *f, const struct chex_folder_file *file,
                                 const char *holder_path, const char *name,
                                 struct chex_error *err) {
    struct chex_folder_file copy = *file;
    if (!(copy.path = chex_fs_join(holder_path, name)))
        return no_memory(err);
    return append(&f->all, &copy, err);
}

void chex_folder_sort(struct chex_folder *f) {
    if (f->all.count)
        qsort(f->all.files, f->all.count, sizeof *f->all.files, by_name);
    for (f->own_count = 0; f->own_count < f->all.count; f->own_count++)
        if (is_held(&f->all.files[f->own_count]))
            break;
}

struct range {
    const struct chex_folder_file *first, *stop;
};

/* Where order(path, key) turns from negative to zero, or with `behind` from zero to positive. */
static const struct chex_folder_file *bound(struct range r,
                                            int (*order)(const char *path, const char *key),
                                            const char *key, bool behind) {
    while (r.first < r.stop) {
        const struct chex_folder_file *mid = r.first + (r.stop - r.first) / 2;
        if (order(mid->path, key) < (behind ? 1 : 0))
            r.first = mid + 1;
        else
            r.stop = mid;
    }
    return r.first;
}

static struct range part(struct range r, int (*order)(const char *path, const char *key),
                         const char *key) {
    return (struct range){bound(r, order, key, false), bound(r, order, key, true)};
}

static int name_order(const char *path, const char *name) { return strcmp(name_of(path), name); }

/* Zero where the name is `stem`, a dot and an ending. */
static int stem_order(const char *path, const char *stem) {
    size_t n = strlen(stem);
    const char *name = name_of(path);
    int order = strncmp(name, stem, n);
    return order ? order : (name[n] > '.') - (name[n] < '.');
}

/* Zero where the path ends in `tail` behind a '/'; else as compare_backwards(). */
static int tail_order(const char *path, const char *tail) {
    size_t m = strlen(path), n = strlen(tail);
    while (m && n && path[m - 1] == tail[n - 1])
        m--, n--;
    char want = n ? tail[n - 1] : '/';
    return m ? (path[m - 1] > want) - (path[m - 1] < want) : -1;
}

/* Those of `count` files that fit best; `whole`: as chex_folder_find_whole(). */
static struct range fitting(const struct chex_folder_file *files, size_t count, const char *path,
                            bool whole) {
    const char *name = name_of(path);
    if (!count)
        return (struct range){NULL, NULL};
    struct range all = {files, files + count};
    struct range fit = part(all, name_order, name), exact = part(fit, tail_order, path);
    if (whole)
        return exact;
    if (fit.first == fit.stop && !strchr(name, '.'))
        fit = part(all, stem_order, name);
    return exact.first < exact.stop ? exact : fit;
}

/* Links to one file are that file. */
static bool same_file(const struct chex_folder_file *a, const struct chex_folder_file *b) {
    struct stat x, y;
    return !is_held(a) && !is_held(b) && stat(a->path, &x) == 0 && stat(b->path, &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static const struct chex_folder_file *find_rival(struct range fit) {
    for (const struct chex_folder_file *p = fit.first; p < fit.stop; p++)
        if (p != fit.first && !same_file(fit.first, p))
            return p;
    return NULL;
}

static const struct chex_folder_file *find(const struct chex_folder *f, const char *path,
                                           bool whole, const struct chex_folder_file **rival_out) {
    size_t held = f->all.count - f->own_count;
    struct range fit = fitting(f->all.files, f->own_count, path, whole);
    if (fit.first == fit.stop && held)
        fit = fitting(f->all.files + f->own_count, held, path, whole);
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

static int open_holder(const struct chex_holder *h) {
    return h->fd >= 0 ? h->fd : open(h->path, O_RDONLY | O_CLOEXEC);
}

static void leave_holder(const struct chex_holder *h, int fd) {
    if (h->fd < 0)
        close(fd);
}

static enum chex_status read_part(int fd, uint64_t offset, uint8_t *data, size_t bytes,
                                  const char *name, struct chex_error *err) {
    for (size_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, data + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", name);
        if (n == 0)
            return chex_error_set(err, CHEX_E_DATA, "%s: the file that holds it shrank", name);
        at += (size_t)n;
    }
    return CHEX_OK;
}

enum chex_status chex_folder_read(const struct chex_folder_file *file,
                                  struct chex_image_reader *reader, const uint8_t **data_out,
                                  size_t *size_out, struct chex_error *err) {
    const struct chex_holder *h = file->holder;
    uint8_t *data = NULL;
    if (!h)
        return chex_image_read(reader, file->path, data_out, size_out, err);
    CHEX_TRY(chex_image_room(reader, file->path, file->bytes, &data, err));
    int fd = open_holder(h);
    if (fd < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot open %s", h->path);
    enum chex_status st = read_part(fd, file->offset, data, (size_t)file->bytes, file->path, err);
    leave_holder(h, fd);
    if (st != CHEX_OK)
        return st;
    *data_out = data;
    *size_out = (size_t)file->bytes;
    return CHEX_OK;
}

void chex_folder_announce(const struct chex_folder_file *file) {
    const struct chex_holder *h = file->holder;
    if (file->spool)
        return;
    int fd = h ? open_holder(h) : open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return;
    posix_fadvise(fd, (off_t)file->offset, h ? (off_t)file->bytes : 0, POSIX_FADV_WILLNEED);
    if (h)
        leave_holder(h, fd);
    else
        close(fd);
}
