/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run in and out of checkpoints. The meta object holds the position, what the order
 * of the samples depends on, and the provenance; a run goes on only with the same.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/update.h"
#include "train/session.h"

static json_t *plateau_state(const struct chex_schedule *p) {
    return json_pack("{s:f,s:f,s:I,s:b}", "scale", p->scale, "best", p->best, "bad_epochs",
                     (json_int_t)p->bad_epochs, "has_best", p->has_best);
}

static json_t *position_state(const struct chex_position *at) {
    return json_pack("{s:I,s:I,s:I,s:f,s:f,s:b,s:I,s:I,s:b}", "epoch", (json_int_t)at->epoch,
                     "step_in_epoch", (json_int_t)at->step_in_epoch, "step", (json_int_t)at->step,
                     "epoch_loss", at->epoch_loss, "best_score", at->best_score, "has_best",
                     at->has_best, "best_epoch", (json_int_t)at->best_epoch, "best_step",
                     (json_int_t)at->best_step, "validation_due", at->validation_due);
}

/* What decides which sample comes when, and what the parameters mean. */
static json_t *identity(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    return json_pack(
        "{s:I,s:i,s:i,s:s,s:I,s:s,s:I,s:s,s:s}", "seed", (json_int_t)c->seed, "logical_ranks",
        s->logical_ranks, "batch_size", c->batch, "order", chex_order_names[c->order],
        "shuffle_block", (json_int_t)c->shuffle_block, "pipeline", chex_pipeline_names[c->pipeline],
        "rows", (json_int_t)s->input.train->rows, "source_digest",
        chex_set_source_digest(s->input.train), "opt", chex_optim_names[c->update.optim]);
}

/* Every option, with the engine that was meant by auto. */
static json_t *settings(const struct chex_session *s) {
    json_t *all = json_copy(json_object_get(s->config.options, "options"));
    json_object_set_new(all, "engine", json_string(s->config.engine));
    return all;
}

static char *meta_text(const struct chex_session *s) {
    json_t *mean = json_pack("[f,f,f]", (double)s->net->mean[0], (double)s->net->mean[1],
                             (double)s->net->mean[2]);
    json_t *std = json_pack("[f,f,f]", (double)s->net->std[0], (double)s->net->std[1],
                            (double)s->net->std[2]);
    json_t *meta =
        json_pack("{s:i,s:s,s:s,s:i,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "schema", 1, "tool_version",
                  CHEXNET_VERSION, "resize", chex_set_resize(s->input.train), "stored_size",
                  s->input.train->size, "split", chex_split_names[s->input.train->split], "members",
                  s->members, "mean", mean, "std", std, "identity", identity(s), "position",
                  position_state(&s->at), "plateau", plateau_state(&s->config.schedule), "options",
                  settings(s));
    char *text =
        meta ? json_dumps(meta, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
             : NULL;
    json_decref(meta);
    return text;
}

/* A checkpoint that nothing can come of must not take the place of a good one. */
static enum chex_status check_finite(const struct chex_session *s, const float *params,
                                     struct chex_error *err) {
    for (size_t i = 0; i < s->net->state_count; i++)
        if (!isfinite(params[i]))
            return chex_error_set(err, CHEX_E_DIVERGED,
                                  "the parameters are no finite numbers after step %llu: lower "
                                  "--lr, or add --warmup-epochs; %s%s",
                                  (unsigned long long)s->at.step,
                                  s->newest[0] ? "the newest checkpoint is "
                                               : "no checkpoint was written",
                                  s->newest);
    return CHEX_OK;
}

/* A full disk costs the steps since the last checkpoint and no more. */
static enum chex_status no_room(const struct chex_session *s, struct chex_error *err) {
    const struct chex_error why = *err;
    return chex_error_set(err, CHEX_E_RESOURCE, "%s; make room and run again%s%s", why.text,
                          s->newest[0] ? ": it goes on from " : "", s->newest);
}

enum chex_status chex_session_save(struct chex_session *s, bool best, struct chex_error *err) {
    struct chex_checkpoint c = s->snapshot;
    int moments = chex_optim_moments(s->config.update.optim);
    CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_PARAMS, c.params, err));
    CHEX_TRY(check_finite(s, c.params, err));
    CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_MOMENT1, c.moment1, err));
    if (moments == 2)
        CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_MOMENT2, c.moment2, err));
    else
        c.moment2 = NULL;
    c.meta = meta_text(s);
    if (!c.meta)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = chex_saved_write(s->config.output_dir, s->config.save_keep, s->net, &c,
                                           s->at.step, best, err);
    free(c.meta);
    if (st == CHEX_E_RESOURCE)
        return no_room(s, err);
    char *path = st == CHEX_OK ? chex_saved_path(s->config.output_dir, s->at.step) : NULL;
    if (path)
        snprintf(s->newest, sizeof s->newest, "%s", path);
    free(path);
    return st;
}

static uint64_t get_u64(const json_t *o, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void read_position(struct chex_position *at, const json_t *o) {
    at->epoch = get_u64(o, "epoch");
    at->step_in_epoch = get_u64(o, "step_in_epoch");
    at->step = get_u64(o, "step");
    at->epoch_loss = json_number_value(json_object_get(o, "epoch_loss"));
    at->best_score = json_number_value(json_object_get(o, "best_score"));
    at->has_best = json_is_true(json_object_get(o, "has_best"));
    at->best_epoch = get_u64(o, "best_epoch");
    at->best_step = get_u64(o, "best_step");
    at->validation_due = json_is_true(json_object_get(o, "validation_due"));
}

static void read_plateau(struct chex_schedule *p, const json_t *o) {
    p->scale = json_number_value(json_object_get(o, "scale"));
    p->best = json_number_value(json_object_get(o, "best"));
    p->bad_epochs = json_integer_value(json_object_get(o, "bad_epochs"));
    p->has_best = json_is_true(json_object_get(o, "has_best"));
}

/* The option's value now against the checkpoint's. */
static enum chex_status same_value(const char *path, const json_t *then, const char *key,
                                   json_t *now, struct chex_error *err) {
    const json_t *was = json_object_get(then, key);
    enum chex_status st = CHEX_OK;
    if (!json_equal(was, now)) {
        char *a = was ? json_dumps(was, JSON_ENCODE_ANY) : NULL;
        char *b = json_dumps(now, JSON_ENCODE_ANY);
        st = chex_error_set(err, CHEX_E_USAGE,
                            "%s: %s is %s in the checkpoint and %s now: give the same, or start a "
                            "new run in another --output",
                            path, key, a ? a : "missing", b ? b : "?");
        free(a);
        free(b);
    }
    json_decref(now);
    return st;
}

static enum chex_status check_identity(struct chex_session *s, const char *path, const json_t *id,
                                       struct chex_error *err) {
    struct chex_train_config *c = &s->config;
    if (c->logical_ranks == 0)
        c->logical_ranks = (int)get_u64(id, "logical_ranks");
    CHEX_TRY(same_value(path, id, "seed", json_integer((json_int_t)c->seed), err));
    CHEX_TRY(same_value(path, id, "logical_ranks", json_integer(c->logical_ranks), err));
    CHEX_TRY(same_value(path, id, "batch_size", json_integer(c->batch), err));
    CHEX_TRY(same_value(path, id, "order", json_string(chex_order_names[c->order]), err));
    CHEX_TRY(
        same_value(path, id, "shuffle_block", json_integer((json_int_t)c->shuffle_block), err));
    CHEX_TRY(same_value(path, id, "pipeline", json_string(chex_pipeline_names[c->pipeline]), err));
    return same_value(path, id, "opt", json_string(chex_optim_names[c->update.optim]), err);
}

/* Labels of the shards must mean what they meant. */
static enum chex_status check_classes(const char *path, const struct chex_checkpoint *c,
                                      const struct chex_set *set, struct chex_error *err) {
    const char *const *names = chex_set_class_names(set);
    bool same = c->classes == set->classes;
    for (int i = 0; same && i < c->classes; i++)
        same = strcmp(c->class_names[i], names[i]) == 0;
    if (same)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "%s: its %d classes are not the %d of %s: give the shards that it was "
                          "trained on",
                          path, c->classes, set->classes, set->dir);
}

/* The splits that a run looks at must hold the images that they held: with others, those that
 * trained it would validate it. Rank 0 knows what they hold. */
static enum chex_status check_members(const struct chex_session *s, const char *path,
                                      const json_t *meta, struct chex_error *err) {
    static const enum chex_split used[] = {CHEX_TRAIN, CHEX_VAL, CHEX_ALL};
    const char *then = json_string_value(json_object_get(meta, "members"));
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (chex_members_compare(then, s->members, used[i]) == CHEX_MEMBERS_OTHER)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "%s: its split %s held other images than that of %s: give the "
                                  "shards that it was trained on, or start a new run in another "
                                  "--output",
                                  path, chex_split_names[used[i]], s->config.data_dir);
    return CHEX_OK;
}

/* The shards must be those that the checkpoint was trained on. */
static enum chex_status check_data(struct chex_session *s, const char *path,
                                   const struct chex_checkpoint *c, const json_t *meta,
                                   struct chex_error *err) {
    const json_t *id = json_object_get(meta, "identity");
    struct chex_set *probe;
    size_t rows;
    enum chex_split kind = CHEX_TRAIN;
    CHEX_TRY(chex_set_rows(s->config.data_dir, CHEX_TRAIN, &rows, err));
    if (rows == 0)
        kind = CHEX_ALL;
    CHEX_TRY(chex_set_open(s->config.data_dir, kind, 0, 1, &probe, err));
    enum chex_status st =
        same_value(path, id, "source_digest", json_string(chex_set_source_digest(probe)), err);
    if (st == CHEX_OK)
        st = same_value(path, id, "rows", json_integer((json_int_t)probe->rows), err);
    if (st == CHEX_OK)
        st = same_value(path, meta, "stored_size", json_integer(probe->size), err);
    if (st == CHEX_OK)
        st = check_members(s, path, meta, err);
    if (st == CHEX_OK)
        st = check_classes(path, c, probe, err);
    chex_set_close(probe);
    return st;
}

static enum chex_status load_engine(struct chex_session *s, const struct chex_checkpoint *c,
                                    struct chex_error *err) {
    CHEX_TRY(chex_session_create_engine(s, err));
    CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_PARAMS, c->params, err));
    if (c->moment1)
        CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_MOMENT1, c->moment1, err));
    if (c->moment2)
        CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_MOMENT2, c->moment2, err));
    return CHEX_OK;
}

static enum chex_status check_shape(const struct chex_session *s, const char *path,
                                    const struct chex_checkpoint *c, struct chex_error *err) {
    if (strcmp(c->model, s->config.model) != 0)
        return chex_error_set(err, CHEX_E_USAGE, "%s: the checkpoint is a %s, --model is %s", path,
                              c->model, s->config.model);
    if (c->image_size != s->config.image_size)
        return chex_error_set(err, CHEX_E_USAGE,
                              "%s: image_size is %d in the checkpoint and %d now: give the same, "
                              "or start a new run in another --output",
                              path, c->image_size, s->config.image_size);
    return CHEX_OK;
}

/* Where files lie is no setting of the training. */
static bool is_place(const char *name) {
    return strcmp(name, "data") == 0 || strcmp(name, "output") == 0 ||
           strcmp(name, "resume") == 0 || strcmp(name, "timeline") == 0;
}

/* What may change on resume changes with a word. */
static void say_changes(const struct chex_session *s, const char *path, const json_t *then) {
    json_t *now = settings(s), *value;
    const char *name;
    char *text = NULL;
    size_t size = 0;
    FILE *out = then ? open_memstream(&text, &size) : NULL;
    if (out) {
        json_object_foreach(now, name, value) {
            const json_t *was = json_object_get(then, name);
            if (was && !is_place(name) && !json_equal(was, value))
                fprintf(out, "%s %s '%s' -> '%s'", ftell(out) ? "," : "", name,
                        json_string_value(was), json_string_value(value));
        }
        if (fclose(out) == 0 && size)
            chex_info("changed since %s:%s", path, text);
    }
    free(text);
    json_decref(now);
}

static enum chex_status take_over(struct chex_session *s, const char *path,
                                  const struct chex_checkpoint *c, struct chex_error *err) {
    json_t *meta = json_loads(c->meta, 0, NULL);
    json_t *id = json_object_get(meta, "identity"), *position = json_object_get(meta, "position");
    enum chex_status st = CHEX_OK;
    if (!id || !position)
        st = chex_error_set(err, CHEX_E_DATA, "%s: its meta holds no position of a training run",
                            path);
    if (st == CHEX_OK)
        st = check_shape(s, path, c, err);
    if (st == CHEX_OK)
        st = check_identity(s, path, id, err);
    if (st == CHEX_OK)
        st = check_data(s, path, c, meta, err);
    if (st == CHEX_OK) {
        read_position(&s->at, position);
        read_plateau(&s->config.schedule, json_object_get(meta, "plateau"));
        snprintf(s->newest, sizeof s->newest, "%s", path);
        s->complete = s->at.epoch >= (uint64_t)s->config.epochs ||
                      (chex_session_out_of_steps(s) && !s->at.validation_due);
        if (!s->complete) {
            say_changes(s, path, json_object_get(meta, "options"));
            st = load_engine(s, c, err);
        }
    }
    json_decref(meta);
    return st;
}

/* A run that has come to its first checkpoint and has none left would begin anew over its own
 * metrics; one that ended before it may. */
static enum chex_status check_none_left(const char *dir, struct chex_error *err) {
    if (chex_runfiles_had_epochs(dir))
        return chex_error_set(err, CHEX_E_DATA,
                              "%s holds the metrics of a run, but no checkpoint of it: bring "
                              "%s/last.h5 back, or name a new folder with --output",
                              dir, dir);
    if (chex_runfiles_has_run(dir))
        chex_info("%s: the run there ended before its first checkpoint; it starts again", dir);
    return CHEX_OK;
}

/* Rank 0 chooses; "" is none. */
static enum chex_status choose(struct chex_session *s, struct chex_checkpoint **c, char *path,
                               size_t size, struct chex_error *err) {
    const char *resume = s->config.resume, *dir = s->config.output_dir;
    char *newest = NULL;
    path[0] = '\0';
    if (strcmp(resume, "auto") != 0) {
        CHEX_TRY(chex_checkpoint_read(resume, true, &s->net, c, err));
        snprintf(path, size, "%s", resume);
        return CHEX_OK;
    }
    CHEX_TRY(chex_saved_newest(dir, &s->net, c, &newest, err));
    if (!*c)
        return check_none_left(dir, err);
    snprintf(path, size, "%s", newest);
    free(newest);
    return CHEX_OK;
}

enum chex_status chex_session_restore(struct chex_session *s, struct chex_error *err) {
    struct chex_checkpoint *c = NULL;
    char path[4096];
    if (strcmp(s->config.resume, "none") == 0)
        return CHEX_OK;
    enum chex_status st = s->rank == 0 ? choose(s, &c, path, sizeof path, err) : CHEX_OK;
    st = chex_session_agree(s, st, err);
    if (st == CHEX_OK)
        st = chex_coll_broadcast(s->world.coll, path, sizeof path, 0, err);
    if (st == CHEX_OK && s->rank != 0 && path[0])
        st = chex_checkpoint_read(path, true, &s->net, &c, err);
    if (st == CHEX_OK && c)
        st = take_over(s, path, c, err);
    chex_checkpoint_destroy(c);
    return st;
}
