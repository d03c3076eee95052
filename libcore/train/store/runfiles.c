/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl and the JSON documents of a run's folder. A resumed run first removes the lines of
 * steps that it will do again, so the file reads as if the run had never stopped.
 */
#include "train/store/runfiles.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
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
    remove_temporaries(dir);
    remove_temporaries(chex_path(dir, "checkpoints").text);
}

enum chex_status chex_runfiles_init(struct chex_runfiles *f, const char *dir,
                                    struct chex_error *err) {
    *f = (struct chex_runfiles){.dir = dir};
    return chex_fs_mkdirs(chex_path(dir, "checkpoints").text, err);
}

void chex_runfiles_release(struct chex_runfiles *f) {
    if (f->metrics)
        fclose(f->metrics);
    json_decref(f->epochs);
    *f = (struct chex_runfiles){0};
}

static bool has(const char *dir, const char *name) {
    return chex_fs_exists(chex_path(dir, name).text);
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

static const uint64_t max_bytes = (uint64_t)1 << 32;

enum chex_status chex_runfiles_read(const char *dir, const char *name, char **data_out,
                                    size_t *size_out, struct chex_error *err) {
    const struct chex_path path = chex_path(dir, name);
    *data_out = NULL;
    return chex_fs_exists(path.text) ? chex_fs_read(path.text, max_bytes, data_out, size_out, err)
                                     : CHEX_OK;
}

enum chex_status chex_runfiles_read_json(const char *dir, const char *name, json_t **out,
                                         struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    *out = NULL;
    CHEX_TRY(chex_runfiles_read(dir, name, &text, NULL, err));
    if (text && !(*out = json_loads(text, 0, NULL)))
        return chex_error_set(err, CHEX_E_DATA, "%s is damaged (expected a JSON object)",
                              chex_path(dir, name).text);
    return CHEX_OK;
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
    json_auto_t *line = object;
    CHEX_AUTO_FREE char *text =
        line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9)) : NULL;
    CHEX_ALLOCATED(text, err, NULL);
    if (fprintf(f->metrics, "%s\n", text) < 0)
        return metrics_fault(f, err);
    return is_epoch(line) && json_array_append(f->epochs, line) != 0 ? chex_error_memory(err, NULL)
                                                                     : CHEX_OK;
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

/* Rewrites the file `path` with the lines that stay of `data`. */
static enum chex_status rewind_file(const char *path, const char *data, size_t size, uint64_t step,
                                    bool validation_due, json_t *epochs, struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    size_t text_size = 0;
    struct bad_lines bad = {0};
    FILE *kept = open_memstream(&text, &text_size);
    enum chex_status st =
        kept ? keep_lines(data, size, step, validation_due, kept, epochs, &bad, err)
             : chex_error_memory(err, NULL);
    if (kept && fclose(kept) != 0)
        st = chex_error_memory(err, NULL);
    CHEX_TRY(st);
    if (text_size != size)
        CHEX_TRY(chex_fs_write(path, text, text_size, err));
    if (bad.count)
        chex_warn("%s: %zu damaged line%s dropped (line %s; expected one JSON object a line)", path,
                  bad.count, bad.count == 1 ? " is" : "s are", bad.numbers);
    return CHEX_OK;
}

enum chex_status chex_runfiles_open(const char *dir, const char *name, uint64_t step,
                                    bool validation_due, json_t *epochs, FILE **out,
                                    struct chex_error *err) {
    const struct chex_path path = chex_path(dir, name);
    CHEX_AUTO_FREE char *data = NULL;
    size_t size = 0;
    CHEX_TRY(chex_runfiles_read(dir, name, &data, &size, err));
    if (data)
        CHEX_TRY(rewind_file(path.text, data, size, step, validation_due, epochs, err));
    if (!(*out = fopen(path.text, "ae")))
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path.text);
    /* Line-buffered: `tail -f` sees each line at once, and a kill loses none. */
    setvbuf(*out, NULL, _IOLBF, 0);
    return CHEX_OK;
}

enum chex_status chex_runfiles_open_metrics(struct chex_runfiles *f, uint64_t step,
                                            bool validation_due, struct chex_error *err) {
    f->epochs = json_array();
    return f->epochs ? chex_runfiles_open(f->dir, "metrics.jsonl", step, validation_due, f->epochs,
                                          &f->metrics, err)
                     : chex_error_memory(err, NULL);
}

enum chex_status chex_runfiles_json(const struct chex_runfiles *f, const char *name, json_t *object,
                                    struct chex_error *err) {
    json_auto_t *o = object;
    CHEX_AUTO_FREE char *dump = o ? json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    CHEX_AUTO_FREE char *text = dump ? chex_fs_format("%s\n", dump) : NULL;
    return text ? chex_fs_write(chex_path(f->dir, name).text, text, strlen(text), err)
                : chex_error_memory(err, NULL);
}
