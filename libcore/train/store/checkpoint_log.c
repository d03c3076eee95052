/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and reads checkpoints.jsonl.
 */
#include "train/store/checkpoint_log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/result.h"
#include "train/store/runfiles.h"

static const uint64_t max_log_bytes = (uint64_t)1 << 30;

enum chex_status chex_checkpoint_log_open(const char *dir, uint64_t step, FILE **out,
                                          struct chex_error *err) {
    char *path = chex_fs_join(dir, CHEX_CHECKPOINT_LOG);
    enum chex_status st =
        path ? chex_runfiles_rewind(path, step, false, NULL, err) : chex_error_memory(err, NULL);
    if (st == CHEX_OK && !(*out = fopen(path, "ae")))
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    if (st == CHEX_OK)
        setvbuf(*out, NULL, _IOLBF, 0); /* a kill loses no line */
    free(path);
    return st;
}

/* To 0.1 ms. */
static double rounded(double seconds) { return round(seconds * 1e4) / 1e4; }

enum chex_status chex_checkpoint_log_add(FILE *log, const char *dir,
                                         const struct chex_checkpoint_line *line,
                                         struct chex_error *err) {
    json_t *o = chex_result(CHEX_FIELD("schema", 1), CHEX_MEMBER(line, step),
                            CHEX_MEMBER(line, epoch), CHEX_MEMBER(line, validation_due),
                            CHEX_MEMBER(line, best), CHEX_FIELD("file", (const char *)line->file),
                            CHEX_FIELD("digest", (const char *)line->digest),
                            CHEX_FIELD("time_unix_s", rounded(line->time_unix_s)),
                            CHEX_FIELD("stall_s", rounded(line->stall_s)),
                            CHEX_FIELD("write_s", rounded(line->write_s)));
    char *text =
        o ? json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(14)) : NULL;
    enum chex_status st = text ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK && fprintf(log, "%s\n", text) < 0)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s/" CHEX_CHECKPOINT_LOG, dir);
    free(text);
    json_decref(o);
    return st;
}

/* False: a key is missing or of another type. */
static bool parse(const json_t *o, struct chex_checkpoint_line *line) {
    const json_t *step = json_object_get(o, "step");
    const char *file = json_string_value(json_object_get(o, "file"));
    const char *digest = json_string_value(json_object_get(o, "digest"));
    if (!json_is_integer(step) || !file || !digest || strlen(file) >= sizeof line->file ||
        strlen(digest) != sizeof line->digest - 1)
        return false;
    *line = (struct chex_checkpoint_line){
        .step = (uint64_t)json_integer_value(step),
        .epoch = (uint64_t)json_integer_value(json_object_get(o, "epoch")),
        .validation_due = json_is_true(json_object_get(o, "validation_due")),
        .best = json_is_true(json_object_get(o, "best")),
        .time_unix_s = json_number_value(json_object_get(o, "time_unix_s")),
        .stall_s = json_number_value(json_object_get(o, "stall_s")),
        .write_s = json_number_value(json_object_get(o, "write_s"))};
    snprintf(line->file, sizeof line->file, "%s", file);
    snprintf(line->digest, sizeof line->digest, "%s", digest);
    return true;
}

static size_t count_lines(const char *data) {
    size_t n = 0;
    for (const char *end = data; (end = strchr(end, '\n')); end++)
        n++;
    return n;
}

/* lines: (count_lines(data)). Returns the number of those that were read. */
static size_t parse_all(const char *data, struct chex_checkpoint_line *lines) {
    size_t n = 0;
    for (const char *from = data, *end; (end = strchr(from, '\n')); from = end + 1) {
        struct chex_checkpoint_line one;
        json_t *o = json_loadb(from, (size_t)(end - from), 0, NULL);
        if (parse(o, &one)) {
            while (n && lines[n - 1].step >= one.step)
                n--;
            lines[n++] = one;
        }
        json_decref(o);
    }
    return n;
}

enum chex_status chex_checkpoint_log_read(const char *dir, struct chex_checkpoint_line **lines_out,
                                          size_t *count_out, struct chex_error *err) {
    char *path = chex_fs_join(dir, CHEX_CHECKPOINT_LOG), *data = NULL;
    struct chex_checkpoint_line *lines = NULL;
    size_t count = 0;
    enum chex_status st = path ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK && chex_fs_exists(path)) {
        st = chex_fs_read(path, max_log_bytes, &data, NULL, err);
        if (st == CHEX_OK && !(lines = calloc(count_lines(data) + 1, sizeof *lines)))
            st = chex_error_memory(err, NULL);
        if (st == CHEX_OK)
            count = parse_all(data, lines);
    }
    free(data);
    free(path);
    if (st != CHEX_OK)
        return st;
    *lines_out = lines;
    *count_out = count;
    return CHEX_OK;
}
