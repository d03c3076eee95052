/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of --checkpoint, and the members of an ensemble (ensemble_files.h).
 */
#include "evaluate/ensemble_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "evaluate/output.h"
#include "model/parameter_names.h"

enum { SCHEMA = 1, MOST = 500 }; /* members: the header of auroc.csv names them all */

/* ---- the files ---- */

void chex_eval_files_release(struct chex_eval_files *f) {
    for (int i = 0; i < f->count; i++) {
        if (f->kept)
            chex_weights_close(&f->kept[i]);
        free(f->path[i]);
    }
    free(f->kept);
    free(f->path);
    *f = (struct chex_eval_files){0};
}

static enum chex_status add_file(struct chex_eval_files *f, const char *path,
                                 struct chex_error *err) {
    for (int i = 0; i < f->count; i++)
        if (chex_fs_same(f->path[i], path))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--checkpoint: %s and %s are one file (expected each once)",
                                  f->path[i], path);
    char **grown = realloc(f->path, ((size_t)f->count + 2) * sizeof *grown);
    CHEX_ALLOCATED(grown, err, "%s", path);
    f->path = grown;
    if (!(f->path[f->count] = strdup(path)))
        return chex_error_memory(err, "%s", path);
    f->path[++f->count] = NULL;
    return CHEX_OK;
}

/* A common mistake: --checkpoint is the folder of one run. The error suggests best.h5 or last.h5.
 */
static enum chex_status refuse_run(const char *dir, struct chex_error *err) {
    struct chex_path path = chex_path(dir, "best.h5");
    if (!chex_fs_exists(path.text))
        path = chex_path(dir, "last.h5");
    return !chex_fs_exists(path.text)
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_USAGE,
                                "--checkpoint %s: a folder, expected a file; did you mean %s?", dir,
                                path.text);
}

/* Adds best.h5 of each run in the folder. One that a run lacks is reported by its reader. */
static enum chex_status add_runs(struct chex_eval_files *f, const char *dir,
                                 struct chex_error *err) {
    struct dirent **list = NULL;
    const int before = f->count;
    CHEX_TRY(refuse_run(dir, err));
    const int n = scandir(dir, &list, NULL, alphasort);
    enum chex_status st =
        n < 0 ? chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", dir) : CHEX_OK;
    for (int i = 0; i < n; i++) {
        const struct chex_path run = chex_path(dir, list[i]->d_name);
        const struct chex_path best = chex_path(run.text, "best.h5");
        if (st == CHEX_OK && list[i]->d_name[0] != '.' &&
            (chex_fs_exists(best.text) || chex_fs_exists(chex_path(run.text, "config.json").text)))
            st = add_file(f, best.text, err);
        free(list[i]);
    }
    free(list);
    if (st == CHEX_OK && f->count == before)
        st = chex_error_set(err, CHEX_E_USAGE,
                            "--checkpoint %s: a folder, expected a file such as best.h5 of "
                            "chex-train, or a folder with the folders of several runs",
                            dir);
    return st;
}

static enum chex_status add_part(struct chex_eval_files *f, const char *path,
                                 struct chex_error *err) {
    return chex_fs_is_dir(path) ? add_runs(f, path, err) : add_file(f, path, err);
}

enum chex_status chex_eval_files_find(const char *text, struct chex_eval_files *out,
                                      struct chex_error *err) {
    if (!strchr(text, ',') || chex_fs_exists(text))
        return add_part(out, text, err);
    CHEX_AUTO_FREE char *parts = strdup(text);
    CHEX_ALLOCATED(parts, err, "%s", text);
    for (char *path, *rest = parts; (path = strsep(&rest, ",")) != NULL;) {
        if (!*path)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--checkpoint %s: an empty name between commas", text);
        CHEX_TRY(add_part(out, path, err));
    }
    return CHEX_OK;
}

enum chex_status chex_eval_files_check(const struct chex_eval_settings *s, struct chex_error *err) {
    struct chex_eval_files read = {0};
    enum chex_status st = chex_eval_files_find(s->checkpoint, &read, err);
    if (st == CHEX_OK)
        st = chex_eval_file_check(s, s->output, (const char *const *)read.path, err);
    chex_eval_files_release(&read);
    return st;
}

/* ---- several files as one ---- */

static enum chex_status open_one(const struct chex_eval_settings *s, const char *path,
                                 struct chex_weights *w, struct chex_error *err) {
    CHEX_TRY(chex_weights_open(path, s->weights == EVAL_WEIGHTS_LAST, w, err));
    const bool averaged = w->about.weights && strcmp(w->about.weights, "ema") == 0;
    if (s->weights == (averaged ? EVAL_WEIGHTS_LAST : EVAL_WEIGHTS_EMA))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--weights %s: %s has %s (expected a checkpoint of chex-train --ema)",
                              chex_eval_weights_names[s->weights], path,
                              averaged ? "the moving average only" : "no moving average");
    if (averaged && chex_weights_format(path) == CHEX_WEIGHTS_CHECKPOINT)
        chex_info("%s: the moving average of its parameters; --weights last reads those of the "
                  "last update",
                  path);
    const bool classifier = w->about.model && chex_net_is_features(w->about.model);
    if (classifier != (s->features != NULL))
        return chex_error_set(err, CHEX_E_USAGE, "%s is a %s", path,
                              classifier ? "classifier of features, which only chex-eval "
                                           "--features FILE can use"
                                         : "network for images; --features needs a checkpoint of "
                                           "chex-train --features");
    if (s->model && w->about.model && strcmp(s->model, w->about.model) != 0)
        return chex_error_set(err, CHEX_E_DATA, "%s is a %s, --model says %s", path, w->about.model,
                              s->model);
    return CHEX_OK;
}

/* What all members share. */
static json_t *shared(const struct chex_safetensors_about *a) {
    return chex_result(
        CHEX_MEMBER(a, resize), CHEX_FIELD("image size", a->image_size),
        CHEX_FIELD("stored size", a->stored_size), CHEX_FIELD("number of findings", a->classes),
        CHEX_FIELD("findings", chex_result_texts(a->class_names, (size_t)a->classes)),
        CHEX_FIELD("unions of findings", a->unions));
}

static enum chex_status check_alike(const struct chex_eval_files *f, int k,
                                    struct chex_error *err) {
    json_auto_t *wanted = shared(&f->kept[0].about), *own = shared(&f->kept[k].about);
    const char *key;
    json_t *v;
    CHEX_ALLOCATED(wanted && own, err, "%d members", f->count);
    json_object_foreach(own, key, v) {
        json_t *first = json_object_get(wanted, key);
        if (json_equal(v, first))
            continue;
        CHEX_AUTO_FREE char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        CHEX_AUTO_FREE char *expected = json_dumps(first, JSON_ENCODE_ANY | JSON_COMPACT);
        return chex_error_set(
            err, CHEX_E_DATA,
            "%s: no member of this ensemble: %s %.120s (expected %.120s, as in %s)", f->path[k],
            key, text ? text : "", expected ? expected : "", f->path[0]);
    }
    return CHEX_OK;
}

/* Adds the facts of a member. */
static enum chex_status add_facts(const struct chex_eval_settings *s, const char *path,
                                  const struct chex_weights *w, json_t **facts,
                                  struct chex_error *err) {
    const struct chex_safetensors_about *a = &w->about;
    const json_t *options = json_object_get(a->training, "training_options");
    const char *seed = json_string_value(json_object_get(options, "seed"));
    const char *model = a->model ? a->model : s->model ? s->model : chex_net_names[0];
    char digest[CHEX_HASH128_HEX_BYTES];
    CHEX_AUTO_FREE char *bytes = NULL;
    size_t size;
    CHEX_TRY(chex_fs_read(path, UINT64_MAX, &bytes, &size, err));
    chex_hash128_hex(bytes, size, digest);
    chex_json_append(facts, chex_result(CHEX_FIELD("file", path), CHEX_FIELD("digest", &digest[0]),
                                        CHEX_FIELD("model", model), CHEX_MEMBER(a, weights),
                                        CHEX_FIELD_IF(w->step, "step", w->step),
                                        CHEX_FIELD_IF(seed, "seed", atoll(seed)),
                                        CHEX_FIELD("training_split", a->split),
                                        CHEX_FIELD("training_digest", a->source_digest),
                                        CHEX_FIELD("training_members", a->members),
                                        CHEX_FIELD_IF(a->fold, "training_fold", a->fold)));
    return CHEX_OK;
}

/* Adds the tensors of a file under the names of chex_net_join. */
static enum chex_status add_member(const struct chex_eval_settings *s, struct chex_eval_files *f,
                                   int k, struct chex_tensor_set *to, struct chex_error *err) {
    struct chex_weights *w = &f->kept[k];
    CHEX_TRY(open_one(s, f->path[k], w, err));
    if (w->about.ensemble)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: an ensemble (expected one network, as a member of another one)",
                              f->path[k]);
    if (w->about.deployment)
        chex_warn("%s: its thresholds and recalibration are for its own score, and are not used",
                  f->path[k]);
    free(w->about.deployment);
    w->about.deployment = NULL;
    for (size_t i = 0; i < w->tensors.count; i++) {
        struct chex_tensor t = w->tensors.tensors[i];
        char name[CHEX_NET_NAME_BYTES], full[2 * CHEX_NET_NAME_BYTES];
        if (chex_parameter_is_extra(t.name) || !chex_parameter_name(t.name, name, sizeof name))
            continue;
        snprintf(full, sizeof full, CHEX_NET_MEMBER "%s", k, name);
        t.name = full;
        CHEX_TRY(chex_tensor_set_add(to, &t, w->tensors.tensors[i].strides, err));
    }
    return check_alike(f, k, err);
}

enum chex_status chex_eval_files_open(const struct chex_eval_settings *s, struct chex_eval_files *f,
                                      struct chex_weights *w, struct chex_error *err) {
    const bool logit = s->ensemble == CHEX_MEAN_LOGIT;
    if (f->count == 1)
        return open_one(s, f->path[0], w, err);
    if (!(f->kept = chex_alloc_zeroed((size_t)f->count, sizeof *f->kept)))
        return chex_error_memory(err, "%d networks", f->count);
    json_auto_t *facts = json_array();
    CHEX_TRY(chex_tensor_set_begin(&w->tensors, s->checkpoint, NULL, err));
    for (int k = 0; k < f->count; k++) {
        CHEX_TRY(add_member(s, f, k, &w->tensors, err));
        CHEX_TRY(add_facts(s, f->path[k], &f->kept[k], &facts, err));
    }
    w->step = f->kept[0].step;
    w->about = f->kept[0].about;
    f->kept[0].about = (struct chex_safetensors_about){0};
    for (int k = 1; k < f->count && !w->about.training_loss; k++) {
        w->about.training_loss = f->kept[k].about.training_loss;
        f->kept[k].about.training_loss = NULL;
    }
    free(w->about.model);
    free(w->about.weights);
    free(w->about.fold); /* each member has its own */
    w->about.model = w->about.weights = w->about.fold = NULL;
    w->about.ensemble =
        chex_eval_members_text(logit ? CHEX_MEAN_LOGIT : CHEX_MEAN_PROBABILITY, facts);
    return w->about.ensemble ? CHEX_OK : chex_error_memory(err, "%d networks", f->count);
}

/* ---- their description ---- */

char *chex_eval_members_text(enum chex_ensemble_mean mean, const json_t *facts) {
    json_auto_t *o = chex_result(CHEX_FIELD("schema", (int)SCHEMA),
                                 CHEX_FIELD("mean", chex_ensemble_names[mean]),
                                 CHEX_FIELD("members", json_deep_copy(facts)));
    return o ? json_dumps(o, JSON_COMPACT) : NULL;
}

enum chex_status chex_eval_members_parse(const char *path, const char *text,
                                         enum chex_ensemble_mean *mean_out, json_t **facts_out,
                                         struct chex_error *err) {
    json_auto_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *mean = json_string_value(json_object_get(o, "mean"));
    json_t *members = json_object_get(o, "members");
    const size_t count = json_array_size(members);
    size_t i, named = 0;
    json_t *m;
    json_array_foreach(members, i, m) named += json_is_string(json_object_get(m, "file"));
    int kind = CHEX_MEAN_PROBABILITY;
    while (mean && chex_ensemble_names[kind] && strcmp(mean, chex_ensemble_names[kind]) != 0)
        kind++;
    if (json_integer_value(json_object_get(o, "schema")) != SCHEMA || count < 2 || count > MOST ||
        named < count || !mean || !chex_ensemble_names[kind])
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: ensemble: no description of schema 1 with a mean and 2 to %d "
                              "named members: written by a newer chexnet?",
                              path, MOST);
    *mean_out = (enum chex_ensemble_mean)kind;
    *facts_out = json_incref(members);
    return CHEX_OK;
}
