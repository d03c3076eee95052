/* SPDX-License-Identifier: Apache-2.0 */
#include "train/runfiles.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
}

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

static void remove_temporaries(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".tmp."))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

enum chex_status chex_runfiles_init(struct chex_runfiles *f, const char *dir, int keep,
                                    struct chex_error *err) {
    *f = (struct chex_runfiles){.dir = strdup(dir), .keep = keep};
    char *sub = chex_fs_join(dir, "checkpoints");
    enum chex_status st = f->dir && sub ? chex_fs_mkdirs(sub, err) : no_memory(err);
    if (st == CHEX_OK) {
        remove_temporaries(dir);
        remove_temporaries(sub);
    } else {
        chex_runfiles_release(f);
    }
    free(sub);
    return st;
}

void chex_runfiles_release(struct chex_runfiles *f) {
    if (f->metrics)
        fclose(f->metrics);
    free(f->dir);
    *f = (struct chex_runfiles){0};
}

static bool has(const char *dir, const char *name) {
    char *path = chex_fs_join(dir, name);
    bool there = path && chex_fs_exists(path);
    free(path);
    return there;
}

bool chex_runfiles_has_run(const char *dir) {
    return has(dir, "last.h5") || has(dir, "metrics.jsonl") || has(dir, "checkpoints");
}

bool chex_runfiles_is_foreign(const char *dir, char **name_out) {
    if (chex_runfiles_has_run(dir))
        return false;
    DIR *d = opendir(dir);
    bool foreign = false;
    for (struct dirent *e; d && !foreign && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            foreign = true;
            *name_out = strdup(e->d_name);
        }
    if (d)
        closedir(d);
    return foreign;
}

/* Makes `name` another name of `file`: a hard link under a temporary name, renamed into place. */
static enum chex_status point_at(const struct chex_runfiles *f, const char *name, const char *file,
                                 struct chex_error *err) {
    char *path = chex_fs_join(f->dir, name), *temp = path ? chex_fs_temp_name(path) : NULL;
    enum chex_status st = CHEX_OK;
    if (!temp) {
        st = no_memory(err);
    } else if (link(file, temp) == 0) {
        st = chex_fs_commit(temp, path, err);
    } else {
        /* A file system without hard links: copy. */
        char *data;
        size_t size;
        st = chex_fs_read(file, UINT64_MAX, &data, &size, err);
        if (st == CHEX_OK) {
            st = chex_fs_write(path, data, size, err);
            free(data);
        }
    }
    free(temp);
    free(path);
    return st;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the numbered checkpoints, oldest first; the caller frees all. */
static size_t list_numbered(const char *sub, char ***names_out) {
    char **names = NULL;
    size_t count = 0;
    DIR *d = opendir(sub);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "step-", 5) != 0 || !ends_with(e->d_name, ".h5"))
            continue;
        char **grown = realloc(names, (count + 1) * sizeof *grown);
        char *copy = strdup(e->d_name);
        if (grown)
            names = grown;
        if (!grown || !copy) {
            free(copy);
            break;
        }
        names[count++] = copy;
    }
    if (d)
        closedir(d);
    if (count)
        qsort(names, count, sizeof *names, by_name);
    *names_out = names;
    return count;
}

static void free_names(char **names, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static void prune(const struct chex_runfiles *f, const char *sub) {
    char **names;
    size_t count = list_numbered(sub, &names);
    for (size_t i = 0; f->keep > 0 && i + (size_t)f->keep < count; i++) {
        char *path = chex_fs_join(sub, names[i]);
        if (path)
            unlink(path);
        free(path);
    }
    free_names(names, count);
}

enum chex_status chex_runfiles_save(const struct chex_runfiles *f, const struct chex_net *net,
                                    const struct chex_checkpoint *c, uint64_t step, bool best,
                                    struct chex_error *err) {
    char *sub = chex_fs_join(f->dir, "checkpoints");
    char *path = sub ? chex_fs_format("%s/step-%010llu.h5", sub, (unsigned long long)step) : NULL;
    enum chex_status st = path ? chex_checkpoint_write(path, net, c, err) : no_memory(err);
    if (st == CHEX_OK)
        st = point_at(f, "last.h5", path, err);
    if (st == CHEX_OK && best)
        st = point_at(f, "best.h5", path, err);
    if (st == CHEX_OK)
        prune(f, sub);
    free(path);
    free(sub);
    return st;
}

enum chex_status chex_runfiles_newest(const char *dir, struct chex_net **net_out,
                                      struct chex_checkpoint **c_out, char **path_out,
                                      struct chex_error *err) {
    *c_out = NULL;
    char *sub = chex_fs_join(dir, "checkpoints"), **names = NULL;
    size_t count = sub ? list_numbered(sub, &names) : 0;
    enum chex_status st = CHEX_OK;
    for (size_t i = count; i > 0; i--) {
        char *path = chex_fs_join(sub, names[i - 1]);
        struct chex_error fault = {0};
        st = path ? chex_checkpoint_read(path, true, net_out, c_out, &fault) : no_memory(&fault);
        if (st == CHEX_OK) {
            *path_out = path;
            break;
        }
        free(path);
        if (st != CHEX_E_DATA || i == 1) {
            chex_error_set(err, st, "%s", fault.text);
            break;
        }
        chex_warn("%s; going on from the one before", fault.text);
    }
    free_names(names, count);
    free(sub);
    return st;
}

static enum chex_status metrics_fault(const struct chex_runfiles *f, struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s/metrics.jsonl", f->dir);
}

enum chex_status chex_runfiles_metric(const struct chex_runfiles *f, json_t *object,
                                      struct chex_error *err) {
    char *text =
        object ? json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9))
               : NULL;
    enum chex_status st = text ? CHEX_OK : no_memory(err);
    if (st == CHEX_OK && (fprintf(f->metrics, "%s\n", text) < 0 || fflush(f->metrics) != 0))
        st = metrics_fault(f, err);
    free(text);
    json_decref(object);
    return st;
}

enum chex_status chex_runfiles_step(const struct chex_runfiles *f, uint64_t epoch, uint64_t step,
                                    double loss, double lr, double step_ms, double images_per_s,
                                    struct chex_error *err) {
    if (fprintf(f->metrics,
                "{\"schema\":1,\"kind\":\"step\",\"epoch\":%llu,\"step\":%llu,\"loss\":%.9g,"
                "\"lr\":%.9g,\"step_ms\":%.3f,\"images_per_s\":%.2f}\n",
                (unsigned long long)epoch, (unsigned long long)step, loss, lr, step_ms,
                images_per_s) < 0)
        return metrics_fault(f, err);
    return CHEX_OK;
}

/* Keeps the whole lines up to `step`; a line that does not parse was torn by the kill. */
static enum chex_status keep_lines(char *data, uint64_t step, FILE *kept, struct chex_error *err) {
    for (char *line = data, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        json_t *o = json_loads(line, 0, NULL);
        json_int_t at = json_integer_value(json_object_get(o, "step"));
        bool keep = o && (uint64_t)at <= step;
        json_decref(o);
        if (keep && fprintf(kept, "%s\n", line) < 0)
            return no_memory(err);
    }
    return CHEX_OK;
}

static enum chex_status rewind_metrics(const char *path, uint64_t step, struct chex_error *err) {
    char *data = NULL, *text = NULL;
    size_t size = 0, text_size = 0;
    enum chex_status st = chex_fs_read(path, (uint64_t)1 << 32, &data, &size, err);
    if (st != CHEX_OK)
        return st;
    FILE *kept = open_memstream(&text, &text_size);
    st = kept ? keep_lines(data, step, kept, err) : no_memory(err);
    if (kept && fclose(kept) != 0)
        st = no_memory(err);
    if (st == CHEX_OK && text_size != size)
        st = chex_fs_write(path, text, text_size, err);
    free(text);
    free(data);
    return st;
}

enum chex_status chex_runfiles_open_metrics(struct chex_runfiles *f, uint64_t step,
                                            struct chex_error *err) {
    char *path = chex_fs_join(f->dir, "metrics.jsonl");
    enum chex_status st = path ? CHEX_OK : no_memory(err);
    if (st == CHEX_OK && chex_fs_exists(path))
        st = rewind_metrics(path, step, err);
    if (st == CHEX_OK && !(f->metrics = fopen(path, "ae")))
        st = metrics_fault(f, err);
    free(path);
    return st;
}

enum chex_status chex_runfiles_json(const struct chex_runfiles *f, const char *name, json_t *object,
                                    struct chex_error *err) {
    char *path = chex_fs_join(f->dir, name);
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    enum chex_status st =
        path && text ? chex_fs_write(path, text, strlen(text), err) : no_memory(err);
    free(text);
    free(path);
    json_decref(object);
    return st;
}
