/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of the checks as JSON (chex-env --json).
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "check/check.h"

/* The measured figures as an object, or NULL if there are none. */
static json_t *figures(const struct chex_check *check, const struct chex_check_result *r) {
    json_t *all = NULL;
    for (int k = 0; check->figures[k].key; k++) {
        if (r->figures[k] <= 0)
            continue;
        all = all ? all : json_object();
        json_object_set_new(all, check->figures[k].key, json_real(r->figures[k]));
    }
    return all;
}

static json_t *check_object(const struct chex_check *check, const struct chex_check_result *r) {
    json_t *object = chex_result(
        CHEX_MEMBER(check, name), CHEX_MEMBER(check, question), CHEX_MEMBER(r, expected),
        CHEX_MEMBER(r, found), CHEX_FIELD("verdict", chex_verdict_names[r->verdict]),
        CHEX_FIELD("fault", chex_fault_names[r->fault]), CHEX_MEMBER(r, remedy));
    json_t *measured = figures(check, r);
    if (measured)
        json_object_set_new(object, "figures", measured);
    if (measured && r->disturbed[0])
        json_object_set_new(object, "disturbed", chex_json_text(r->disturbed));
    return object;
}

static json_t *rank_object(const struct chex_check_report *report, int k) {
    const struct chex_check_record *c = &report->records[k];
    const struct chex_check_result *mine = &report->all[(size_t)k * report->count];
    json_t *verdicts = json_object(), *measured = json_object(), *rank;
    for (size_t i = 0; i < report->count; i++) {
        json_t *values = figures(report->checks[i], &mine[i]);
        json_object_set_new(verdicts, report->checks[i]->name,
                            json_string(chex_verdict_names[mine[i].verdict]));
        if (values)
            json_object_set_new(measured, report->checks[i]->name, values);
    }
    rank = chex_result(CHEX_MEMBER(c, rank), CHEX_MEMBER(c, host), CHEX_MEMBER(c, local_rank),
                       CHEX_MEMBER(c, node), CHEX_MEMBER(c, method), CHEX_MEMBER(c, cpus),
                       CHEX_MEMBER(c, cpu_count), CHEX_MEMBER(c, gpu),
                       CHEX_FIELD("cuda_visible_devices", c->visible),
                       CHEX_FIELD("verdicts", verdicts));
    if (json_object_size(measured))
        json_object_set(rank, "figures", measured);
    json_decref(measured);
    return rank;
}

/* brief: only checks that warn, fail or measured, and no ranks. */
static json_t *report_object(const struct chex_check_report *report, bool brief) {
    json_t *checks = json_array(), *ranks = json_array();
    for (size_t i = 0; i < report->count; i++)
        if (!brief || report->merged[i].verdict >= CHEX_WARN ||
            chex_check_measured(report->checks[i], &report->merged[i]))
            json_array_append_new(checks, check_object(report->checks[i], &report->merged[i]));
    for (int k = 0; !brief && k < report->ranks; k++)
        json_array_append_new(ranks, rank_object(report, k));
    return chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("version", CHEXNET_VERSION),
                       CHEX_FIELD("mode", chex_check_mode_names[report->mode]),
                       CHEX_FIELD("exit_status", (int)chex_check_status(report)),
                       CHEX_FIELD("checks", checks), CHEX_FIELD("ranks", ranks));
}

/* One write with O_APPEND: the lines of several writers stay whole. A part of a line is removed. */
static enum chex_status append(const char *path, const char *line, struct chex_error *err) {
    const size_t size = strlen(line);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    const ssize_t n = fd >= 0 ? write(fd, line, size) : -1;
    const int why = n < 0 ? errno : (size_t)n < size ? ENOSPC : 0;
    if (n > 0 && why && ftruncate(fd, lseek(fd, 0, SEEK_CUR) - n) != 0)
        chex_warn("%s ends with a part of a line", path);
    if (fd >= 0)
        close(fd);
    return why ? chex_error_errno(err, CHEX_E_ENV, why, "cannot append to %s", path) : CHEX_OK;
}

enum chex_status chex_check_history_append(const char *path, const struct chex_check_report *report,
                                           const char *host, struct chex_error *err) {
    json_auto_t *all = report_object(report, true);
    json_object_update_new(all, chex_result(CHEX_FIELD("time_unix_s", chex_clock_unix_s()),
                                            CHEX_FIELD("host", host),
                                            CHEX_FIELD("slurm_job", getenv("SLURM_JOB_ID")),
                                            CHEX_FIELD("ranks", report->records->size)));
    CHEX_AUTO_FREE char *dump = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(13));
    CHEX_AUTO_FREE char *line = dump ? chex_fs_format("%s\n", dump) : NULL;
    return line ? append(path, line, err) : chex_error_memory(err, "%s", path);
}

char *chex_check_json(const struct chex_check_report *report) {
    json_t *all = report_object(report, false);
    char *dump = all ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    char *line = dump ? chex_fs_format("%s\n", dump) : NULL;
    free(dump);
    json_decref(all);
    return line;
}
