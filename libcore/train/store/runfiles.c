/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl and the JSON documents of a run's folder. A resumed run first removes the lines of
 * steps that it will do again, so the file reads as if the run had never stopped.
 */
#include "train/store/runfiles.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"

/* Patterns of the names that a run may overwrite in its folder. */
static const char *const own_names[] = {
    "last.h5",   "best.h5",  "metrics.jsonl",     "config.json",     "ranks.json", "checkpoints",
    "step-*.h5", "run.html", "checkpoints.jsonl", "provenance.json", NULL};

static bool is_own(const char *name) {
    for (int i = 0; own_names[i]; i++)
        if (fnmatch(own_names[i], name, 0) == 0)
            return true;
    return false;
}

/* A temporary file of one of our names. */
static bool is_temporary(const char *name) {
    char bare[256];
    size_t bytes = 0;
    if (!chex_fs_is_temp(name, &bytes) || bytes >= sizeof bare)
        return false;
    memcpy(bare, name, bytes);
    bare[bytes] = '\0';
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
    enum chex_status st = f->dir && sub ? chex_fs_mkdirs(sub, err) : chex_error_memory(err, NULL);
    if (st != CHEX_OK)
        chex_runfiles_release(f);
    free(sub);
    return st;
}

void chex_runfiles_release(struct chex_runfiles *f) {
    if (f->metrics)
        fclose(f->metrics);
    json_decref(f->epochs);
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

/* Files that a folder may hold before its first run: hidden files such as the lock, temporaries of
 * a killed start, and logs, because Slurm often writes a job's output there. */
static bool may_precede(const char *name) {
    static const char *const logs[] = {"*.out", "*.err", "*.log", NULL};
    for (int i = 0; logs[i]; i++)
        if (fnmatch(logs[i], name, 0) == 0)
            return true;
    return name[0] == '.' || is_temporary(name);
}

bool chex_runfiles_is_foreign(const char *dir, char **name_out) {
    if (chex_runfiles_has_run(dir))
        return false;
    DIR *d = opendir(dir);
    bool foreign = false;
    for (struct dirent *e; d && !foreign && (e = readdir(d));)
        if (!may_precede(e->d_name)) {
            foreign = true;
            *name_out = strdup(e->d_name);
        }
    if (d)
        closedir(d);
    return foreign;
}

static const uint64_t max_metrics_bytes = (uint64_t)1 << 32;

bool chex_runfiles_had_epochs(const char *dir) {
    static const char epoch[] = "\"kind\":\"epoch\"";
    char *path = chex_fs_join(dir, "metrics.jsonl"), *data = NULL;
    size_t size = 0;
    bool yes = path && chex_fs_read(path, max_metrics_bytes, &data, &size, NULL) == CHEX_OK &&
               memmem(data, size, epoch, strlen(epoch));
    free(data);
    free(path);
    return yes;
}

static enum chex_status metrics_fault(const struct chex_runfiles *f, struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s/metrics.jsonl", f->dir);
}

static bool is_epoch(const json_t *line) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    return kind && strcmp(kind, "epoch") == 0;
}

enum chex_status chex_runfiles_metric(const struct chex_runfiles *f, json_t *object,
                                      struct chex_error *err) {
    char *text =
        object ? json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9))
               : NULL;
    enum chex_status st = text ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK && fprintf(f->metrics, "%s\n", text) < 0)
        st = metrics_fault(f, err);
    if (st == CHEX_OK && is_epoch(object) && json_array_append(f->epochs, object) != 0)
        st = chex_error_memory(err, NULL);
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

/* Lines that are no JSON: how many, and the numbers of the first ones as text. */
struct bad_lines {
    size_t count;
    char numbers[80];
};

static void add_bad_line(struct bad_lines *bad, size_t number) {
    enum { MAX_NAMED = 6 };
    const size_t at = strlen(bad->numbers);
    if (bad->count++ < MAX_NAMED)
        snprintf(bad->numbers + at, sizeof bad->numbers - at, "%s%zu", at ? ", " : "", number);
    else if (bad->count == MAX_NAMED + 1)
        snprintf(bad->numbers + at, sizeof bad->numbers - at, ", ...");
}

/* Writes the lines up to `step` to `kept`. A last line without a newline is dropped: the run was
 * killed while it wrote it. */
static enum chex_status keep_lines(const char *data, size_t size, uint64_t step,
                                   bool validation_due, FILE *kept, json_t *epochs,
                                   struct bad_lines *bad, struct chex_error *err) {
    const char *const stop = data + size;
    size_t number = 0;
    bool kept_all = true;
    for (const char *line = data, *end; (end = memchr(line, '\n', (size_t)(stop - line)));
         line = end + 1) {
        const size_t bytes = (size_t)(end - line);
        json_t *o = json_loadb(line, bytes, 0, NULL);
        const bool keep = keeps(o, step, validation_due);
        number++;
        if (!o)
            add_bad_line(bad, number);
        if (keep && epochs && is_epoch(o) && json_array_append(epochs, o) != 0)
            kept_all = false;
        json_decref(o);
        if (keep && fwrite(line, 1, bytes + 1, kept) != bytes + 1)
            return chex_error_memory(err, NULL);
    }
    return kept_all ? CHEX_OK : chex_error_memory(err, NULL);
}

static void report_bad_lines(const char *path, const struct bad_lines *bad) {
    if (bad->count)
        chex_warn("%s: %zu damaged line%s dropped (line %s; expected one JSON object a line)", path,
                  bad->count, bad->count == 1 ? " is" : "s are", bad->numbers);
}

enum chex_status chex_runfiles_rewind(const char *path, uint64_t step, bool validation_due,
                                      json_t *epochs, struct chex_error *err) {
    char *data = NULL, *text = NULL;
    size_t size = 0, text_size = 0;
    if (!chex_fs_exists(path))
        return CHEX_OK;
    enum chex_status st = chex_fs_read(path, max_metrics_bytes, &data, &size, err);
    if (st != CHEX_OK)
        return st;
    struct bad_lines bad = {0};
    FILE *kept = open_memstream(&text, &text_size);
    st = kept ? keep_lines(data, size, step, validation_due, kept, epochs, &bad, err)
              : chex_error_memory(err, NULL);
    if (kept && fclose(kept) != 0)
        st = chex_error_memory(err, NULL);
    if (st == CHEX_OK && text_size != size)
        st = chex_fs_write(path, text, text_size, err);
    if (st == CHEX_OK)
        report_bad_lines(path, &bad);
    free(text);
    free(data);
    return st;
}

enum chex_status chex_runfiles_open_metrics(struct chex_runfiles *f, uint64_t step,
                                            bool validation_due, struct chex_error *err) {
    char *path = chex_fs_join(f->dir, "metrics.jsonl");
    f->epochs = json_array();
    enum chex_status st = path && f->epochs ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK)
        st = chex_runfiles_rewind(path, step, validation_due, f->epochs, err);
    if (st == CHEX_OK && !(f->metrics = fopen(path, "ae")))
        st = metrics_fault(f, err);
    /* Line-buffered: `tail -f` sees each line at once, and a kill loses none. */
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
        path && text ? chex_fs_write(path, text, strlen(text), err) : chex_error_memory(err, NULL);
    free(dump);
    free(text);
    free(path);
    json_decref(object);
    return st;
}
