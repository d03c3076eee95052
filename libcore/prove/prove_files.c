/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a run against what the run recorded (prove_files.h).
 */
#include "prove/prove_files.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/result.h"
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
    json_auto_t *meta = json_loads(c->meta, 0, NULL);
    const json_t *step = json_object_get(json_object_get(meta, "position"), "step");
    *step_out = (uint64_t)json_integer_value(step);
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
    const struct chex_path path = chex_path(r->run, file);
    const bool exists = chex_fs_exists(path.text);
    const enum chex_status st =
        exists ? chex_prove_digest(path.text, digest, &step, &why) : CHEX_OK;
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
    json_auto_t *config = NULL;
    CHEX_TRY(chex_runfiles_read_json(r->run, "config.json", &config, err));
    const bool equal =
        json_equal(json_object_get(config, "options"), json_object_get(start, "options"));
    add(r, "config.json", 0, NULL, NULL,
        equal ? NULL : "its options are not those of the newest start in " CHEX_PROVENANCE);
    return CHEX_OK;
}

enum chex_status chex_prove_files(const char *run, const json_t *provenance,
                                  const struct chex_checkpoint_line *lines, size_t count,
                                  json_t *files, struct chex_error *err) {
    const struct record r = {run, lines, count, files};
    CHEX_AUTO_FREE uint64_t *steps = NULL;
    size_t step_count = 0;
    bool best = false;
    CHEX_TRY(check_config(&r, provenance, err));
    for (size_t i = 0; i < count; i++)
        best = best || lines[i].best;
    CHEX_TRY(check_checkpoint(&r, "last.h5", count > 0, err));
    CHEX_TRY(check_checkpoint(&r, "best.h5", best, err));
    CHEX_TRY(chex_checkpoint_store_steps(run, &steps, &step_count, err));
    for (size_t i = 0; i < step_count; i++) {
        char name[CHEX_CHECKPOINT_NAME_BYTES];
        CHEX_TRY(check_checkpoint(&r, chex_checkpoint_store_name(steps[i], name), false, err));
    }
    return CHEX_OK;
}
