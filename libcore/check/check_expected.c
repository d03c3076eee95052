/* SPDX-License-Identifier: Apache-2.0
 *
 * Expected values: reads them (--expect), chooses those of the node's type, applies them to
 * answers, and writes them from a report (--record).
 */
#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu_features.h"
#include "base/fs.h"
#include "check/checks.h"

struct chex_check_expected {
    json_t *file, *values; /* values: a part of the file; NULL: no type of node matches */
    const char *type;      /* pattern of the node's type; "": none matches; NULL: no types */
    char *path, host[64];
};

static const char types_key[] = "node-types";

static const struct chex_check *find(const char *name) {
    for (size_t i = 0; chex_checks[i]; i++)
        if (strcmp(chex_checks[i]->name, name) == 0)
            return chex_checks[i];
    return NULL;
}

static bool has_figure(const struct chex_check *check, const char *key) {
    for (const struct chex_check_measurement *f = check->figures; f->key; f++)
        if (strcmp(f->key, key) == 0)
            return true;
    return false;
}

/* The limit of a figure: the number itself, or "limit" of an object. NULL: none. */
static const json_t *limit_of(const json_t *figure) {
    return json_is_object(figure) ? json_object_get(figure, "limit") : figure;
}

static enum chex_status validate_limits(const char *path, const struct chex_check *check,
                                        json_t *limits, struct chex_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach(limits, key, value) {
        const json_t *limit = limit_of(value);
        if (!has_figure(check, key))
            return chex_error_set(
                err, CHEX_E_USAGE,
                "expectations %s: '%s' is not a figure of '%s'; see chex-env --json", path, key,
                check->name);
        if (!json_is_number(limit) || !(json_number_value(limit) > 0))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "expectations %s: '%s' of '%s': expected a number above 0", path,
                                  key, check->name);
    }
    return CHEX_OK;
}

static enum chex_status validate(const char *path, json_t *values, struct chex_error *err) {
    const char *name, *text;
    json_t *value, *counts;
    double time_s;
    if (!json_is_object(values))
        return chex_error_set(err, CHEX_E_USAGE,
                              "expectations %s: expected an object of check names and texts", path);
    json_object_foreach(values, name, value) {
        const struct chex_check *check = find(name);
        if (!check)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "expectations %s: '%s' is not a check; see chex-env --json", path,
                                  name);
        if (check->count && json_unpack(value, "{s:s, s:s, s:F, s:o !}", "host", &text, "boot",
                                        &text, "time_s", &time_s, "counts", &counts) == 0)
            continue;
        if (json_is_object(value) && check->figures[0].key)
            CHEX_TRY(validate_limits(path, check, value, err));
        else if (!json_is_string(value))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "expectations %s: value of '%s': expected a text%s", path, name,
                                  check->count            ? ", or counts of --record"
                                  : check->figures[0].key ? ", or an object of figures"
                                                          : "");
    }
    return CHEX_OK;
}

/* The model of the first GPU is that of all. The driver's folder needs no library of the driver. */
void chex_check_node_type_text(const char *root, char *out, size_t size) {
    char processor[96], gpu[96] = "no GPU", file[128];
    struct chex_fs_name first;
    chex_cpu_name(root, processor, sizeof processor);
    if (chex_fs_names(root, "proc/driver/nvidia/gpus", &first, 1) > 0) {
        snprintf(file, sizeof file, "proc/driver/nvidia/gpus/%s/information", first.text);
        (void)chex_fs_line(root, file, "Model", gpu, sizeof gpu);
    }
    snprintf(out, size, "%s, %s", processor[0] ? processor : "unknown processor", gpu);
}

/* Validates the values of all types and takes those of the first whose pattern matches. */
static enum chex_status choose(const char *path, const char *root, struct chex_check_expected *e,
                               struct chex_error *err) {
    char node[200];
    const char *pattern;
    json_t *types = json_object_get(e->file, types_key), *values;
    chex_check_node_type_text(root, node, sizeof node);
    e->type = "";
    if (!json_is_object(types) || json_object_size(e->file) != 1)
        return chex_error_set(err, CHEX_E_USAGE,
                              "expectations %s: expected only \"%s\", an object of patterns and "
                              "expectations",
                              path, types_key);
    json_object_foreach(types, pattern, values) {
        CHEX_TRY(validate(path, values, err));
        if (e->values || fnmatch(pattern, node, 0) != 0)
            continue;
        e->values = values;
        e->type = pattern;
    }
    return CHEX_OK;
}

const char *chex_check_expected_type(const struct chex_check_expected *e) {
    return e ? e->type : NULL;
}

const json_t *chex_check_expected_value(const struct chex_check_expected *e, const char *name) {
    return e ? json_object_get(e->values, name) : NULL;
}

enum chex_status chex_check_expected_read(const char *path, const char *root,
                                          struct chex_check_expected **expected_out,
                                          struct chex_error *err) {
    char *text = NULL;
    size_t size = 0;
    json_error_t where;
    enum chex_status st = chex_fs_read(path, 1 << 20, &text, &size, err);
    if (st != CHEX_OK) {
        if (err && st != CHEX_E_RESOURCE)
            err->status = CHEX_E_USAGE;
        return st == CHEX_E_RESOURCE ? st : CHEX_E_USAGE;
    }
    struct chex_check_expected *e = chex_alloc_zeroed(1, sizeof *e);
    if (!e || !(e->path = strdup(path)))
        st = chex_error_memory(err, NULL);
    else if (!(e->file = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where)))
        st = chex_error_set(err, CHEX_E_USAGE, "expectations %s line %d: %s", path, where.line,
                            where.text);
    else if (root && json_object_get(e->file, types_key))
        st = choose(path, root, e, err);
    else
        st = validate(path, e->values = e->file, err);
    free(text);
    if (st != CHEX_OK) {
        chex_check_expected_destroy(e);
        return st;
    }
    (void)chex_fs_line(root ? root : "", "proc/sys/kernel/hostname", "", e->host, sizeof e->host);
    *expected_out = e;
    return CHEX_OK;
}

void chex_check_expected_destroy(struct chex_check_expected *e) {
    if (!e)
        return;
    json_decref(e->file);
    free(e->path);
    free(e);
}

/* A difference of less than noise_spreads spreads is noise. A recorded limit differs from the
 * measured value by at least rate_margin or time_margin (times vary more), at most max_margin. */
static const double noise_spreads = 4, rate_margin = 0.1, time_margin = 0.5, max_margin = 0.8;

/* index: of the figure, in its check. */
static void apply_limit(const struct chex_check_expected *e, const struct chex_check_measurement *f,
                        int index, double limit, struct chex_check_result *r) {
    const double value = r->figures[index], noise = noise_spreads * r->spread[index];
    if (value <= 0 || (f->lower_is_better ? value <= limit : value >= limit))
        return;
    chex_check_expect(r, "%s %.4g %s or %s (from %s)", f->key, limit, f->unit,
                      f->lower_is_better ? "less" : "more", e->path);
    if (r->disturbed[0])
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "%s meanwhile: measure again when the node is idle, in a job with srun "
                          "--exclusive",
                          r->disturbed);
    else if (f->lower_is_better ? value * (1 - noise) <= limit : value * (1 + noise) >= limit)
        chex_check_worsen(r, CHEX_WARN, r->fault,
                          "the measurement varies by %.0f %%, so this may be noise: measure again",
                          100 * r->spread[index]);
    else
        chex_check_worsen(r, CHEX_FAIL, r->fault, "fix the cause, or change the value in %s",
                          e->path);
}

static void add_name(const char *name, char *buf, size_t size) {
    const size_t at = strlen(buf);
    snprintf(buf + at, size - at, "%s%s", at ? ", " : "", name);
}

/* Each item of the list `want`, up to a semicolon, must be in r->found. The probe may have said
 * already what is wrong. */
static void apply_list(const struct chex_check_expected *e, const char *want,
                       struct chex_check_result *r) {
    char items[sizeof r->found], missing[256] = "", *rest;
    snprintf(items, sizeof items, "%.*s", (int)strcspn(want, ";"), want);
    for (char *i = strtok_r(items, ",", &rest); i; i = strtok_r(NULL, ",", &rest))
        if (!strstr(r->found, i))
            add_name(i + (*i == ' '), missing, sizeof missing);
    chex_check_expect(r, "each of: %s (from %s)", want, e->path);
    if (missing[0] && r->verdict != CHEX_FAIL)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "%s lacks %s: fix the cause, or record the node again in %s", e->host,
                          missing, e->path);
}

static const char own_version[] = "chexnet " CHEXNET_VERSION ", "; /* before a digest */

void chex_check_expected_apply(const struct chex_check_expected *e, const struct chex_check *check,
                               struct chex_check_result *r) {
    json_t *value = json_object_get(e->values, check->name);
    for (int k = 0; json_is_object(value) && check->figures[k].key; k++) {
        const json_t *limit = limit_of(json_object_get(value, check->figures[k].key));
        if (limit)
            apply_limit(e, &check->figures[k], k, json_number_value(limit), r);
    }
    const char *want = json_string_value(value);
    char found[sizeof r->found + sizeof own_version];
    snprintf(found, sizeof found, "%s%s", own_version, r->found);
    if (!want || strcmp(want, r->found) == 0 || (check->is_count && atoi(r->found) >= atoi(want)))
        return;
    if (check->is_list) {
        apply_list(e, want, r);
        return;
    }
    if (check->is_digest && strncmp(want, "chexnet ", 8) == 0 &&
        (strcmp(want, found) == 0 || strncmp(want, found, strcspn(found, ":")) != 0))
        return;
    r->fault = check->is_count ? check->fault : r->fault;
    chex_check_expect(r, "%s%s (from %s)", want, check->is_count ? " or more" : "", e->path);
    chex_check_worsen(r, CHEX_FAIL, r->fault, "fix the cause, or change the value in %s", e->path);
}

static const struct chex_check_result *answer_to(const struct chex_check *check,
                                                 const struct chex_check_report *report) {
    for (size_t i = 0; i < report->count; i++)
        if (report->checks[i] == check)
            return &report->merged[i];
    return NULL;
}

/* Whether every limit of the check had a measured figure. A failed check needs no figure. */
static bool was_compared(const struct chex_check *check, const json_t *value,
                         const struct chex_check_result *r) {
    if (!r || r->verdict == CHEX_FAIL || !json_is_object(value))
        return r != NULL;
    for (int k = 0; check->figures[k].key; k++)
        if (json_object_get(value, check->figures[k].key) && r->figures[k] <= 0)
            return false;
    return true;
}

int chex_check_expected_left_out(const struct chex_check_expected *e,
                                 const struct chex_check_report *report, char *buf, size_t size) {
    int level = 0;
    const char *name;
    json_t *value;
    buf[0] = '\0';
    json_object_foreach(e->values, name, value) {
        const struct chex_check *check = find(name);
        if (!(check->modes & (1u << report->mode)) ||
            was_compared(check, value, answer_to(check, report)))
            continue;
        add_name(name, buf, size);
        level = check->level > level ? check->level : level;
    }
    return level;
}

/* Rounds to three digits. No measurement is more precise. */
static double rounded(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.3g", value);
    return strtod(text, NULL);
}

static bool is_disturbed(const json_t *figures) {
    const char *key;
    json_t *figure;
    json_object_foreach((json_t *)(uintptr_t)figures, key, figure) {
        if (json_is_true(json_object_get(figure, "disturbed")))
            return true;
    }
    return false;
}

void chex_check_expected_weak(const struct chex_check_expected *e, char *buf, size_t size) {
    const char *name;
    json_t *value;
    buf[0] = '\0';
    json_object_foreach(e->values, name, value) {
        if (json_is_object(value) && is_disturbed(value))
            add_name(name, buf, size);
    }
}

void chex_check_disturbed(const struct chex_check_report *report, char *buf, size_t size) {
    buf[0] = '\0';
    for (size_t i = 0; i < report->count; i++)
        if (chex_check_measured(report->checks[i], &report->merged[i]) &&
            report->merged[i].disturbed[0])
            add_name(report->checks[i]->name, buf, size);
}

static json_t *record_of(const struct chex_check_measurement *f, double value, double spread,
                         bool disturbed) {
    double margin = f->margin > 0 ? f->margin : f->lower_is_better ? time_margin : rate_margin;
    margin = fmin(fmax(margin, noise_spreads * spread), max_margin);
    const double limit = f->lower_is_better ? value / (1 - margin) : value * (1 - margin);
    json_t *record = json_pack("{s:f, s:f, s:f}", "limit", rounded(limit), "measured",
                               rounded(value), "spread", rounded(spread));
    if (disturbed)
        json_object_set_new(record, "disturbed", json_true());
    return record;
}

static json_t *records_of(const struct chex_check *check, const struct chex_check_result *r) {
    json_t *records = json_object();
    for (int k = 0; check->figures[k].key; k++)
        if (r->figures[k] > 0)
            json_object_set_new(
                records, check->figures[k].key,
                record_of(&check->figures[k], r->figures[k], r->spread[k], r->disturbed[0]));
    return records;
}

/* What --record keeps of a check; NULL: nothing. mine: the answer of this rank. */
static json_t *kept_of(const struct chex_check *check, const struct chex_check_result *merged,
                       const struct chex_check_result *mine, const struct chex_check_context *c) {
    if (check->count)
        return mine->verdict == CHEX_SKIP ? NULL : chex_check_counts_kept(c, check);
    if (check->is_digest)
        return mine->verdict == CHEX_PASS ? json_sprintf("%s%s", own_version, mine->found) : NULL;
    if (merged->verdict == CHEX_FAIL || (check->is_list && mine->verdict == CHEX_SKIP))
        return NULL;
    return check->is_list || check->is_count ? json_string(mine->found)
           : check->figures[0].key           ? records_of(check, merged)
                                             : NULL;
}

enum chex_status chex_check_expected_write(const char *path, const struct chex_check_report *report,
                                           const struct chex_check_context *context,
                                           struct chex_error *err) {
    json_t *all = json_object();
    const struct chex_check_result *mine =
        report->all + (size_t)context->launch->rank * report->count;
    for (size_t i = 0; i < report->count; i++) {
        json_t *kept = kept_of(report->checks[i], &report->merged[i], &mine[i], context);
        if (json_is_string(kept) || json_object_size(kept))
            json_object_set(all, report->checks[i]->name, kept);
        json_decref(kept);
    }
    const size_t count = json_object_size(all);
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(all);
    enum chex_status st = !text ? chex_error_memory(err, NULL)
                          : count == 0
                              ? chex_error_set(err, CHEX_E_USAGE,
                                               "%s: nothing was measured: use --level 2, and a "
                                               "longer --timeout if it is too short",
                                               path)
                              : chex_fs_write(path, text, strlen(text), err);
    free(text);
    return st;
}
