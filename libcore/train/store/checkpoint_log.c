/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and reads checkpoints.jsonl.
 */
#include "train/store/checkpoint_log.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/result.h"
#include "train/store/runfiles.h"

/* To 0.1 ms. */
static double rounded(double seconds) { return round(seconds * 1e4) / 1e4; }

enum chex_status chex_checkpoint_log_add(FILE *log, const char *dir,
                                         const struct chex_checkpoint_line *line,
                                         struct chex_error *err) {
    json_auto_t *o =
        chex_result(CHEX_FIELD("schema", 1), CHEX_MEMBER(line, step), CHEX_MEMBER(line, epoch),
                    CHEX_MEMBER(line, validation_due), CHEX_MEMBER(line, best),
                    CHEX_FIELD("file", (const char *)line->file),
                    CHEX_FIELD("digest", (const char *)line->digest),
                    CHEX_FIELD("time_unix_s", rounded(line->time_unix_s)),
                    CHEX_FIELD("stall_s", rounded(line->stall_s)),
                    CHEX_FIELD("write_s", rounded(line->write_s)));
    CHEX_AUTO_FREE char *text =
        o ? json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(14)) : NULL;
    CHEX_ALLOCATED(text, err, NULL);
    return fprintf(log, "%s\n", text) < 0
               ? chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s/" CHEX_CHECKPOINT_LOG,
                                  dir)
               : CHEX_OK;
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
        json_auto_t *o = json_loadb(from, (size_t)(end - from), 0, NULL);
        if (parse(o, &one)) {
            while (n && lines[n - 1].step >= one.step)
                n--;
            lines[n++] = one;
        }
    }
    return n;
}

enum chex_status chex_checkpoint_log_read(const char *dir, struct chex_checkpoint_line **lines_out,
                                          size_t *count_out, struct chex_error *err) {
    CHEX_AUTO_FREE char *data = NULL;
    CHEX_TRY(chex_runfiles_read(dir, CHEX_CHECKPOINT_LOG, &data, NULL, err));
    const char *text = data ? data : "";
    if (!(*lines_out = chex_alloc_zeroed(count_lines(text), sizeof **lines_out)))
        return chex_error_memory(err, NULL);
    *count_out = parse_all(text, *lines_out);
    return CHEX_OK;
}
