/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of the checks as JSON (chex-env --json).
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "check/check.h"

/* A JSON string. Texts from the environment and from libraries may not be UTF-8; then the printable
 * form is used. */
static json_t *text(const char *s) {
    json_t *t = json_string(s);
    if (t)
        return t;
    char printable[4096];
    return json_string(chex_text_printable(s, printable, sizeof printable));
}

/* The measured figures as an object, or NULL if there are none. */
static json_t *figures(const struct chex_check *check, const struct chex_check_result *r) {
    json_t *all = NULL;
    for (int k = 0; check->figures && check->figures[k].key; k++) {
        if (r->figures[k] <= 0)
            continue;
        all = all ? all : json_object();
        json_object_set_new(all, check->figures[k].key, json_real(r->figures[k]));
    }
    return all;
}

static json_t *check_object(const struct chex_check *check, const struct chex_check_result *r) {
    json_t *object = json_pack("{s:s, s:s, s:o, s:o, s:s, s:s, s:o}", "name", check->name,
                               "question", check->question, "expected", text(r->expected), "found",
                               text(r->found), "verdict", chex_verdict_names[r->verdict], "fault",
                               chex_fault_names[r->fault], "remedy", text(r->remedy));
    json_t *measured = figures(check, r);
    if (measured)
        json_object_set_new(object, "figures", measured);
    if (measured && r->disturbed[0])
        json_object_set_new(object, "disturbed", text(r->disturbed));
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
    rank = json_pack("{s:i, s:o, s:i, s:i, s:s, s:o, s:i, s:s, s:o, s:o}", "rank", c->rank, "host",
                     text(c->host), "local_rank", c->local_rank, "node", c->node, "method",
                     c->method, "cpus", text(c->cpus), "cpu_count", c->cpu_count, "gpu", c->gpu,
                     "cuda_visible_devices", text(c->visible), "verdicts", verdicts);
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
    json_t *all =
        json_pack("{s:i, s:s, s:s, s:i, s:o, s:o}", "schema", 1, "version", CHEXNET_VERSION, "mode",
                  chex_check_mode_names[report->mode], "exit_status",
                  (int)chex_check_status(report), "checks", checks, "ranks", ranks);
    char *dump = all ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    char *line = dump ? chex_fs_format("%s\n", dump) : NULL;
    free(dump);
    json_decref(all);
    return line;
}
