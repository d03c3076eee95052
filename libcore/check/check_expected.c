/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "check/expected.h"

struct chex_check_expected {
    json_t *values;
    char *path;
};

static bool known(const char *name) {
    for (size_t i = 0; chex_checks[i]; i++)
        if (strcmp(chex_checks[i]->name, name) == 0)
            return true;
    return false;
}

static enum chex_status validate(const char *path, json_t *values, struct chex_error *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(values))
        return chex_error_set(err, CHEX_E_USAGE,
                              "expectations %s: expected an object of check names and texts", path);
    json_object_foreach(values, name, value) {
        if (!known(name))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "expectations %s: '%s' is no check; see chex-env --json", path,
                                  name);
        if (!json_is_string(value))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "expectations %s: value of '%s': expected a text", path, name);
    }
    return CHEX_OK;
}

enum chex_status chex_check_expected_read(const char *path,
                                          struct chex_check_expected **expected_out,
                                          struct chex_error *err) {
    char *text = NULL;
    size_t size = 0;
    json_error_t where;
    json_t *values = NULL;
    struct chex_check_expected *e = NULL;
    enum chex_status st = chex_fs_read(path, 1 << 20, &text, &size, err);
    if (st != CHEX_OK) {
        if (err && st != CHEX_E_RESOURCE)
            err->status = CHEX_E_USAGE;
        return st == CHEX_E_RESOURCE ? st : CHEX_E_USAGE;
    }
    values = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    if (!values)
        st = chex_error_set(err, CHEX_E_USAGE, "expectations %s line %d: %s", path, where.line,
                            where.text);
    if (st == CHEX_OK)
        st = validate(path, values, err);
    if (st == CHEX_OK) {
        e = chex_mem_zalloc(1, sizeof *e);
        if (e)
            e->path = strdup(path);
        if (!e || !e->path)
            st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    }
    free(text);
    if (st != CHEX_OK) {
        json_decref(values);
        free(e);
        return st;
    }
    e->values = values;
    *expected_out = e;
    return CHEX_OK;
}

void chex_check_expected_destroy(struct chex_check_expected *e) {
    if (!e)
        return;
    json_decref(e->values);
    free(e->path);
    free(e);
}

void chex_check_expected_apply(const struct chex_check_expected *e, const char *name,
                               struct chex_check_result *r) {
    const char *want = json_string_value(json_object_get(e->values, name));
    if (!want || strcmp(want, r->found) == 0)
        return;
    chex_check_expect(r, "%s (from %s)", want, e->path);
    chex_check_worsen(r, CHEX_FAIL, r->fault, "mend it, or change the value in %s", e->path);
}
