/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of the checks as JSON (chex-env --json).
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
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

char *chex_check_json(const struct chex_check_report *report) {
    json_t *checks = json_array(), *ranks = json_array();
    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(checks, check_object(report->checks[i], &report->merged[i]));
    for (int k = 0; k < report->ranks; k++)
        json_array_append_new(ranks, rank_object(report, k));
    json_t *all = chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("version", CHEXNET_VERSION),
                              CHEX_FIELD("mode", chex_check_mode_names[report->mode]),
                              CHEX_FIELD("exit_status", (int)chex_check_status(report)),
                              CHEX_FIELD("checks", checks), CHEX_FIELD("ranks", ranks));
    char *dump = all ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    char *line = dump ? chex_fs_format("%s\n", dump) : NULL;
    free(dump);
    json_decref(all);
    return line;
}
