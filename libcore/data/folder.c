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
    struct chex_folder_file *files; /* sorted by name, then by path */
    size_t count, capacity;
};

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int by_name(const void *a, const void *b) {
    const struct chex_folder_file *x = a, *y = b;
    int order = strcmp(name_of(x->path), name_of(y->path));
    return order ? order : strcmp(x->path, y->path);
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

/* The first file of that name, or NULL; all of that name follow each other. */
static const struct chex_folder_file *first_of(const struct chex_folder *f, const char *name) {
    size_t low = 0, high = f->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(name_of(f->files[mid].path), name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    bool hit = low < f->count && strcmp(name_of(f->files[low].path), name) == 0;
    return hit ? &f->files[low] : NULL;
}

static bool ends_in(const char *path, const char *tail) {
    size_t n = strlen(path), k = strlen(tail);
    return k < n && path[n - k - 1] == '/' && strcmp(path + n - k, tail) == 0;
}

const struct chex_folder_file *chex_folder_find(const struct chex_folder *f, const char *path,
                                                const struct chex_folder_file **rival_out) {
    const char *name = name_of(path);
    const struct chex_folder_file *first = first_of(f, name), *end = f->files + f->count;
    const struct chex_folder_file *best[2] = {NULL, NULL}, *rival = NULL;
    if (rival_out)
        *rival_out = NULL;
    if (!first)
        return NULL;
    for (const struct chex_folder_file *p = first;
         p < end && strcmp(name_of(p->path), name) == 0 && !best[1]; p++)
        if (ends_in(p->path, path))
            best[best[0] ? 1 : 0] = p;
    if (!best[0] && first + 1 < end && strcmp(name_of(first[1].path), name) == 0)
        rival = first + 1;
    if (best[0])
        rival = best[1];
    if (rival_out)
        *rival_out = rival;
    return best[0] ? best[0] : first;
}
