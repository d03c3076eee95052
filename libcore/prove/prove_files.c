/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a run against what the run recorded (prove_files.h).
 */
#include "prove/prove_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/result.h"
#include "train/store/checkpoint_store.h"
#include "train/store/provenance.h"

struct record {
    const char *run;
    const struct chex_checkpoint_line *lines;
    size_t count;
    json_t *files; /* the result */
};

static void add(const struct record *r, const char *file, uint64_t step, const char *digest,
                const char *recorded, const char *fault) {
    const bool equal = fault == NULL;
    json_array_append_new(
        r->files, chex_result(CHEX_FIELD("file", file), CHEX_FIELD("equal", equal),
                              CHEX_FIELD_IF(digest, "step", step), CHEX_FIELD("digest", digest),
                              CHEX_FIELD("recorded_digest", recorded), CHEX_FIELD("fault", fault)));
}

enum chex_status chex_prove_digest(const char *path, char digest[CHEX_HASH128_HEX_BYTES],
                                   uint64_t *step_out, struct chex_error *err) {
    struct chex_net *net = NULL;
    struct chex_checkpoint *c = NULL;
    CHEX_TRY(chex_checkpoint_read(path, true, &net, &c, err));
    chex_checkpoint_digest(net, c, digest);
    json_t *meta = json_loads(c->meta, 0, NULL);
    const json_t *step = json_object_get(json_object_get(meta, "position"), "step");
    *step_out = (uint64_t)json_integer_value(step);
    json_decref(meta);
    chex_checkpoint_destroy(c);
    chex_net_destroy(net);
    return CHEX_OK;
}

/* The digest that was recorded for a step; NULL: none was. */
static const char *recorded_of(const struct record *r, uint64_t step) {
    for (size_t i = 0; i < r->count; i++)
        if (r->lines[i].step == step)
            return r->lines[i].digest;
    return NULL;
}

/* file: its path in the folder. required: it must exist. */
static enum chex_status check_checkpoint(const struct record *r, const char *file, bool required,
                                         struct chex_error *err) {
    struct chex_error why = {0};
    char digest[CHEX_HASH128_HEX_BYTES];
    uint64_t step = 0;
    char *path = chex_fs_join(r->run, file);
    if (!path)
        return chex_error_memory(err, NULL);
    const bool exists = chex_fs_exists(path);
    const enum chex_status st = exists ? chex_prove_digest(path, digest, &step, &why) : CHEX_OK;
    free(path);
    if (!exists && required)
        add(r, file, 0, NULL, NULL, "it does not exist");
    if (st == CHEX_E_DATA)
        add(r, file, 0, NULL, NULL, why.text);
    else if (st != CHEX_OK)
        return chex_error_set(err, st, "%s", why.text);
    if (!exists || st != CHEX_OK)
        return CHEX_OK;
    const char *recorded = recorded_of(r, step);
    const bool equal = !recorded || strcmp(recorded, digest) == 0;
    add(r, file, step, digest, recorded,
        equal ? NULL : "it holds another state than the one recorded for its step");
    return CHEX_OK;
}

static enum chex_status check_config(const struct record *r, const json_t *provenance,
                                     struct chex_error *err) {
    const json_t *start = chex_provenance_start_of(provenance, UINT64_MAX);
    char *path = chex_fs_join(r->run, "config.json"), *text = NULL;
    if (!path)
        return chex_error_memory(err, NULL);
    const enum chex_status st = chex_fs_read(path, (uint64_t)1 << 30, &text, NULL, err);
    free(path);
    CHEX_TRY(st);
    json_t *config = json_loads(text, 0, NULL);
    const bool equal =
        !start || json_equal(json_object_get(config, "options"), json_object_get(start, "options"));
    add(r, "config.json", 0, NULL, NULL,
        equal ? NULL : "its options are not those of the newest start in " CHEX_PROVENANCE);
    json_decref(config);
    free(text);
    return CHEX_OK;
}

static enum chex_status check_all(struct record *r, const json_t *provenance,
                                  struct chex_error *err) {
    uint64_t *steps = NULL;
    size_t count = 0;
    bool best = false;
    CHEX_TRY(check_config(r, provenance, err));
    for (size_t i = 0; i < r->count; i++)
        best = best || r->lines[i].best;
    CHEX_TRY(check_checkpoint(r, "last.h5", r->count > 0, err));
    CHEX_TRY(check_checkpoint(r, "best.h5", best, err));
    CHEX_TRY(chex_checkpoint_store_steps(r->run, &steps, &count, err));
    enum chex_status st = CHEX_OK;
    for (size_t i = 0; st == CHEX_OK && i < count; i++) {
        char *path = chex_checkpoint_store_path(r->run, steps[i]);
        st = path ? check_checkpoint(r, path + strlen(r->run) + 1, false, err)
                  : chex_error_memory(err, NULL);
        free(path);
    }
    free(steps);
    return st;
}

enum chex_status chex_prove_files(const char *run, const json_t *provenance,
                                  const struct chex_checkpoint_line *lines, size_t count,
                                  json_t **out, struct chex_error *err) {
    struct record r = {.run = run, .lines = lines, .count = count, .files = json_array()};
    const enum chex_status st =
        r.files ? check_all(&r, provenance, err) : chex_error_memory(err, NULL);
    if (st == CHEX_OK)
        *out = r.files;
    else
        json_decref(r.files);
    return st;
}
