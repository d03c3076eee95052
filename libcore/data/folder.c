/* SPDX-License-Identifier: Apache-2.0 */
#include "data/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

enum { MAX_DEPTH = 16 };

struct chex_folder {
    struct chex_folder_file *files; /* in the order of by_name() */
    size_t count, capacity;
};

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

/* Files of one name stand by what is before it, the nearest folder first: those whose paths end
 * alike follow each other. */
static int by_name(const void *a, const void *b) {
    const struct chex_folder_file *x = a, *y = b;
    int order = strcmp(name_of(x->path), name_of(y->path));
    return order ? order : compare_backwards(x->path, y->path);
}

static enum chex_status add(struct chex_folder *f, char *path, const struct stat *info,
                            struct chex_error *err) {
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 1024;
        struct chex_folder_file *grown = realloc(f->files, capacity * sizeof *grown);
        if (!grown) {
            free(path);
            return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of images");
        }
        f->files = grown;
        f->capacity = capacity;
    }
    f->files[f->count++] = (struct chex_folder_file){path, (uint64_t)info->st_size,
                                                     (int64_t)info->st_mtim.tv_sec * 1000000000 +
                                                         info->st_mtim.tv_nsec};
    return CHEX_OK;
}

static enum chex_status walk(struct chex_folder *f, const char *dir, int depth,
                             struct chex_error *err) {
    DIR *d = opendir(dir);
    if (!d)
        return chex_error_errno(err, CHEX_E_DATA, errno, "cannot read image folder %s", dir);
    enum chex_status st = CHEX_OK;
    for (struct dirent *e; st == CHEX_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        char *path = chex_fs_join(dir, e->d_name);
        struct stat info;
        if (!path) {
            st = chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of images");
        } else if (stat(path, &info) != 0) {
            free(path); /* a dangling link is as good as no file */
        } else if (S_ISDIR(info.st_mode)) {
            st = depth < MAX_DEPTH ? walk(f, path, depth + 1, err) : CHEX_OK;
            free(path);
        } else {
            st = add(f, path, &info, err);
        }
    }
    closedir(d);
    return st;
}

enum chex_status chex_folder_open(const char *dir, struct chex_folder **folder_out,
                                  struct chex_error *err) {
    struct chex_folder *f = calloc(1, sizeof *f);
    if (!f)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of images");
    enum chex_status st = walk(f, dir, 0, err);
    if (st != CHEX_OK) {
        chex_folder_close(f);
        return st;
    }
    if (f->count)
        qsort(f->files, f->count, sizeof *f->files, by_name);
    *folder_out = f;
    return CHEX_OK;
}

void chex_folder_close(struct chex_folder *f) {
    if (!f)
        return;
    for (size_t i = 0; i < f->count; i++)
        free((char *)f->files[i].path);
    free(f->files);
    free(f);
}

size_t chex_folder_count(const struct chex_folder *f) { return f->count; }

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

const struct chex_folder_file *chex_folder_find(const struct chex_folder *f, const char *path,
                                                const struct chex_folder_file **rival_out) {
    const char *name = name_of(path);
    struct range all = {f->files, f->files + f->count}, fit = part(all, name_order, name);
    struct range exact = part(fit, tail_order, path);
    if (fit.first == fit.stop && !strchr(name, '.'))
        fit = part(all, stem_order, name);
    if (exact.first < exact.stop)
        fit = exact;
    if (rival_out)
        *rival_out = fit.stop - fit.first > 1 ? fit.first + 1 : NULL;
    return fit.first < fit.stop ? fit.first : NULL;
}
