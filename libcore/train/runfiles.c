/* SPDX-License-Identifier: Apache-2.0 */
#include "train/runfiles.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
}

/* What a run writes over in its folder, as patterns. */
static const char *const own_names[] = {"last.h5",    "best.h5",     "metrics.jsonl", "config.json",
                                        "ranks.json", "checkpoints", "step-*.h5",     NULL};

static bool is_own(const char *name) {
    for (int i = 0; own_names[i]; i++)
        if (fnmatch(own_names[i], name, 0) == 0)
            return true;
    return false;
}

/* OWN-NAME.tmp.PID, as chex_fs_temp_name makes them. */
static bool is_temporary(const char *name) {
    char bare[256];
    const char *tail = strstr(name, ".tmp.");
    if (!tail || !tail[5] || tail[5 + strspn(tail + 5, "0123456789")] ||
        (size_t)(tail - name) >= sizeof bare)
        return false;
    memcpy(bare, name, (size_t)(tail - name));
    bare[tail - name] = '\0';
    return is_own(bare);
}

static void remove_temporaries(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_temporary(e->d_name))
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

void chex_runfiles_sweep(const char *dir) {
    char *sub = chex_fs_join(dir, "checkpoints");
    remove_temporaries(dir);
    if (sub)
        remove_temporaries(sub);
    free(sub);
}

enum chex_status chex_runfiles_init(struct chex_runfiles *f, const char *dir,
                                    struct chex_error *err) {
    *f = (struct chex_runfiles){.dir = strdup(dir)};
    char *sub = chex_fs_join(dir, "checkpoints");
    enum chex_status st = f->dir && sub ? chex_fs_mkdirs(sub, err) : no_memory(err);
    if (st != CHEX_OK)
        chex_runfiles_release(f);
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
        if (is_own(e->d_name)) {
            foreign = true;
            *name_out = strdup(e->d_name);
        }
    if (d)
        closedir(d);
    return foreign;
}

static const uint64_t most_metrics_bytes = (uint64_t)1 << 32;

bool chex_runfiles_had_epochs(const char *dir) {
    char *path = chex_fs_join(dir, "metrics.jsonl"), *data = NULL;
    bool yes = path && chex_fs_read(path, most_metrics_bytes, &data, NULL, NULL) == CHEX_OK &&
               strstr(data, "\"kind\":\"epoch\"");
    free(data);
    free(path);
    return yes;
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
    if (st == CHEX_OK && fprintf(f->metrics, "%s\n", text) < 0)
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

static bool keeps(const json_t *line, uint64_t step, bool validation_due) {
    const uint64_t at = (uint64_t)json_integer_value(json_object_get(line, "step"));
    const char *kind = json_string_value(json_object_get(line, "kind"));
    bool validation = kind && strcmp(kind, "step") != 0;
    return line && (at < step || (at == step && !(validation && validation_due)));
}

/* Keeps the whole lines up to `step`; a line that does not parse was torn by the kill. */
static enum chex_status keep_lines(char *data, uint64_t step, bool validation_due, FILE *kept,
                                   struct chex_error *err) {
    for (char *line = data, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        json_t *o = json_loads(line, 0, NULL);
        bool keep = keeps(o, step, validation_due);
        json_decref(o);
        if (keep && fprintf(kept, "%s\n", line) < 0)
            return no_memory(err);
    }
    return CHEX_OK;
}

static enum chex_status rewind_metrics(const char *path, uint64_t step, bool validation_due,
                                       struct chex_error *err) {
    char *data = NULL, *text = NULL;
    size_t size = 0, text_size = 0;
    enum chex_status st = chex_fs_read(path, most_metrics_bytes, &data, &size, err);
    if (st != CHEX_OK)
        return st;
    FILE *kept = open_memstream(&text, &text_size);
    st = kept ? keep_lines(data, step, validation_due, kept, err) : no_memory(err);
    if (kept && fclose(kept) != 0)
        st = no_memory(err);
    if (st == CHEX_OK && text_size != size)
        st = chex_fs_write(path, text, text_size, err);
    free(text);
    free(data);
    return st;
}

enum chex_status chex_runfiles_open_metrics(struct chex_runfiles *f, uint64_t step,
                                            bool validation_due, struct chex_error *err) {
    char *path = chex_fs_join(f->dir, "metrics.jsonl");
    enum chex_status st = path ? CHEX_OK : no_memory(err);
    if (st == CHEX_OK && chex_fs_exists(path))
        st = rewind_metrics(path, step, validation_due, err);
    if (st == CHEX_OK && !(f->metrics = fopen(path, "ae")))
        st = metrics_fault(f, err);
    /* Each line is there for whoever follows the run, and survives its end. */
    if (st == CHEX_OK)
        setvbuf(f->metrics, NULL, _IOLBF, 0);
    free(path);
    return st;
}

enum chex_status chex_runfiles_json(const struct chex_runfiles *f, const char *name, json_t *object,
                                    struct chex_error *err) {
    char *path = chex_fs_join(f->dir, name);
    char *dump = object ? json_dumps(object, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    char *text = dump ? chex_fs_format("%s\n", dump) : NULL;
    enum chex_status st =
        path && text ? chex_fs_write(path, text, strlen(text), err) : no_memory(err);
    free(dump);
    free(text);
    free(path);
    json_decref(object);
    return st;
}
