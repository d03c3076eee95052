/* SPDX-License-Identifier: Apache-2.0
 *
 * Restores a run from a checkpoint (train/store/save.c has its parts). Rank 0 chooses the
 * checkpoint, reads it and gives it to all ranks. Each rank checks it against its options and its
 * data. Later, when the data is open, it loads the engine.
 */
#include "train/store/restore.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "model/checkpoint_broadcast.h"
#include "train/loop.h"
#include "train/store/save.h"

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
    at->ema_step = get_u64(o, "ema_step");
    at->validation_due = json_is_true(json_object_get(o, "validation_due"));
}

static void read_plateau(struct chex_schedule *p, const json_t *o) {
    p->scale = json_number_value(json_object_get(o, "scale"));
    p->best = json_number_value(json_object_get(o, "best"));
    p->bad_epochs = json_integer_value(json_object_get(o, "bad_epochs"));
    p->has_best = json_is_true(json_object_get(o, "has_best"));
}

/* CHEX_E_USAGE if the value differs from the checkpoint's. Takes the reference of `now`. */
static enum chex_status same_value(const char *path, const json_t *then, const char *key,
                                   json_t *now, struct chex_error *err) {
    json_auto_t *value = now;
    const json_t *was = json_object_get(then, key);
    if (json_equal(was, value))
        return CHEX_OK;
    CHEX_AUTO_FREE char *a = was ? json_dumps(was, JSON_ENCODE_ANY) : NULL;
    CHEX_AUTO_FREE char *b = json_dumps(value, JSON_ENCODE_ANY);
    return chex_error_set(err, CHEX_E_USAGE,
                          "%s: %s is %s in the checkpoint and %s now: give the same, or start a "
                          "new run in another --output",
                          path, key, a ? a : "missing", b ? b : "?");
}

/* text: NULL is "". */
static enum chex_status same_text(const char *path, const json_t *then, const char *key,
                                  const char *text, struct chex_error *err) {
    return same_value(path, then, key, json_string(text ? text : ""), err);
}

static enum chex_status check_identity(struct chex_session *s, const char *path, const json_t *id,
                                       struct chex_error *err) {
    struct chex_train_config *c = &s->config;
    if (c->logical_ranks == 0)
        c->logical_ranks = (int)get_u64(id, "logical_ranks");
    CHEX_TRY(same_value(path, id, "seed", json_integer((json_int_t)c->seed), err));
    CHEX_TRY(same_value(path, id, "logical_ranks", json_integer(c->logical_ranks), err));
    CHEX_TRY(same_value(path, id, "batch_size", json_integer(c->batch), err));
    CHEX_TRY(same_text(path, id, "order", chex_order_names[c->order], err));
    CHEX_TRY(
        same_value(path, id, "shuffle_block", json_integer((json_int_t)c->shuffle_block), err));
    CHEX_TRY(same_text(path, id, "pipeline", chex_pipeline_names[c->pipeline], err));
    if (s->config.features)
        CHEX_TRY(same_text(path, id, "features_digest", s->features_digest, err));
    return same_text(path, id, "opt", chex_optim_names[c->update.optim], err);
}

/* The classes must have the same names in the same order. */
static enum chex_status check_classes(const struct chex_session *s, const char *path,
                                      const struct chex_checkpoint *c, struct chex_error *err) {
    const struct chex_selection *now = s->input.selection;
    bool same = c->classes == now->classes;
    for (int i = 0; same && i < c->classes; i++)
        same = strcmp(c->class_names[i], now->class_names[i]) == 0;
    if (same)
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_USAGE,
        "%s: its %d findings are not the %d of %s%s%s: give the shards that it was "
        "trained on, and the same --findings",
        path, c->classes, now->classes, s->config.data_dir,
        s->config.findings ? " with --findings " : "",
        s->config.findings ? s->config.findings : "");
}

/* The splits that a run reads must hold the same images as before. Otherwise training images could
 * become validation images. Only rank 0 has s->members. */
static enum chex_status check_members(const struct chex_session *s, const char *path,
                                      const json_t *meta, struct chex_error *err) {
    static const enum chex_split used[] = {CHEX_TRAIN, CHEX_VAL, CHEX_ALL};
    const struct chex_sources *sources = &s->input.selection->sources;
    const char *recorded = json_string_value(json_object_get(meta, "members"));
    for (int k = 0; s->members && k < sources->count; k++) {
        char then[CHEX_MEMBERS_BYTES], now[CHEX_MEMBERS_BYTES];
        chex_members_of_set(recorded, k, then);
        chex_members_of_set(s->members, k, now);
        for (size_t i = 0; i < CHEX_COUNT(used); i++)
            if (chex_members_compare(then, now, used[i]) == CHEX_MEMBERS_OTHER)
                return chex_error_set(
                    err, CHEX_E_USAGE,
                    "%s: its split %s held other images than that of %s: give the shards that it "
                    "was trained on, or start a new run in another --output",
                    path, chex_split_names[used[i]], sources->set[k].dir);
    }
    return CHEX_OK;
}

/* Describes the sets by path and size: digests would not help a reader. */
static enum chex_status other_set(const struct chex_session *s, const char *path,
                                  const json_t *meta, struct chex_error *err) {
    const struct chex_selection *now = s->input.selection;
    const json_t *then = json_object_get(meta, "identity");
    const char *dir = json_string_value(json_object_get(json_object_get(meta, "options"), "data"));
    char was[300], is[64] = "";
    snprintf(was, sizeof was, "%llu images of %lld px in %.200s",
             (unsigned long long)get_u64(then, "rows"),
             (long long)json_integer_value(json_object_get(meta, "stored_size")), dir ? dir : "?");
    if (now->sources.count == 1)
        snprintf(is, sizeof is, "split %s of ",
                 chex_splits_name(now->source[0].splits[CHEX_PART_TRAIN]));
    return chex_error_set(
        err, CHEX_E_USAGE,
        "%s: it was trained on another set (%s) than %s--data %s (%zu "
        "images of %d px): give the shards that it was trained on, or start a new "
        "run in another --output",
        path, was, is, s->config.data_dir, now->total[CHEX_PART_TRAIN], now->size);
}

/* The data and what the options choose of it must be those of the checkpoint. */
static enum chex_status check_data(struct chex_session *s, const char *path,
                                   const struct chex_checkpoint *c, const json_t *meta,
                                   struct chex_error *err) {
    const json_t *id = json_object_get(meta, "identity");
    const char *digest = json_string_value(json_object_get(id, "source_digest"));
    const enum chex_status st = chex_session_select(s, err);
    if (st == CHEX_E_USAGE) /* an option may be of this start or of the run */
        return chex_error_prefix(err, st, "resuming from %s", path);
    CHEX_TRY(st);
    CHEX_TRY(same_value(path, id, "folds", json_integer(s->config.fold.folds), err));
    CHEX_TRY(same_value(path, id, "fold", json_integer(s->config.fold.number), err));
    const struct chex_selection *now = s->input.selection;
    if (!digest || strcmp(digest, now->source_digest) != 0 ||
        get_u64(id, "rows") != now->total[CHEX_PART_TRAIN] ||
        json_integer_value(json_object_get(meta, "stored_size")) != now->size)
        return other_set(s, path, meta, err);
    CHEX_TRY(check_members(s, path, meta, err));
    CHEX_TRY(check_classes(s, path, c, err));
    CHEX_TRY(same_text(path, id, "findings", s->config.findings, err));
    CHEX_TRY(same_text(path, id, "where", s->config.where, err));
    CHEX_TRY(same_text(path, id, "data_weights", s->config.data_weights, err));
    return same_text(path, id, "uncertain", chex_save_policy(&s->config), err);
}

enum chex_status chex_session_load_engine(struct chex_session *s, struct chex_error *err) {
    struct chex_checkpoint *c = s->restored;
    CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_PARAMS, c->params, err));
    if (c->moment1)
        CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_MOMENT1, c->moment1, err));
    if (c->moment2)
        CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_MOMENT2, c->moment2, err));
    if (!c->ema)
        s->at.ema_step = s->config.ema_decay > 0 ? s->at.step : 0;
    if (s->config.ema_decay > 0 && !c->ema && s->rank == 0)
        chex_info("--ema %g: the run had no moving average; it starts from the parameters of step "
                  "%llu",
                  s->config.ema_decay, (unsigned long long)s->at.step);
    if (s->config.ema_decay > 0)
        CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_EMA, c->ema ? c->ema : c->params, err));
    chex_checkpoint_destroy(c);
    s->restored = NULL;
    return CHEX_OK;
}

static enum chex_status check_shape(const struct chex_session *s, const char *path,
                                    const struct chex_checkpoint *c, struct chex_error *err) {
    const char *model = chex_session_model(s);
    if (strcmp(c->model, model) != 0)
        return chex_error_set(err, CHEX_E_USAGE, "%s: the checkpoint is a %s, --%s is %s", path,
                              c->model, s->config.features ? "features" : "model", model);
    if (c->image_size != s->config.image_size)
        return chex_error_set(err, CHEX_E_USAGE,
                              "%s: image_size is %d in the checkpoint and %d now: give the same, "
                              "or start a new run in another --output",
                              path, c->image_size, s->config.image_size);
    return CHEX_OK;
}

/* Options whose change is not logged: paths do not affect training, and --init has no effect after
 * the first step. */
static bool is_path(const char *name) {
    static const char *const paths[] = {"data", "output", "resume", "timeline", "init"};
    bool found = false;
    for (size_t i = 0; i < CHEX_COUNT(paths); i++)
        found = found || strcmp(name, paths[i]) == 0;
    return found;
}

static void list_changes(const json_t *then, const json_t *now, FILE *out) {
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)now, name, value) {
        const json_t *was = json_object_get(then, name);
        if (was && !is_path(name) && !json_equal(was, value))
            fprintf(out, "%s %s '%s' -> '%s'", ftell(out) ? "," : "", name, json_string_value(was),
                    json_string_value(value));
    }
}

/* Logs in one line which options the run takes over from the checkpoint, and which have changed. */
static void log_options(const struct chex_session *s, const char *path, const json_t *then,
                        const char *restored) {
    json_auto_t *now = chex_save_options(s);
    CHEX_AUTO_FREE char *changes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&changes, &size);
    if (out) {
        list_changes(then, now, out);
        if (fclose(out) == 0 && restored[0])
            chex_info("taken from %s: %s%s%s", path, restored, size ? "; changed since:" : "",
                      size ? changes : "");
        else if (size)
            chex_info("changed since %s:%s", path, changes);
    }
    const char *init = json_string_value(json_object_get(then, "init"));
    if (s->config.init && (!init || strcmp(init, s->config.init) != 0))
        chex_warn("--init %s has no effect: the run goes on from %s", s->config.init, path);
}

/* Takes over the recorded options that were not given again. `restored` gets their list. */
static enum chex_status restore_options(struct chex_session *s, const char *path,
                                        const json_t *meta, char *restored, size_t size,
                                        struct chex_error *err) {
    const json_t *options = json_object_get(meta, "options");
    struct chex_train_config *c = &s->config;
    const bool plan_only = c->plan_only, prove = c->prove;
    restored[0] = '\0';
    if (!s->world.restore || !options)
        return CHEX_OK;
    CHEX_TRY(s->world.restore(s->world.restore_arg, path, options, json_object_get(meta, "origins"),
                              c, restored, size, err));
    c->plan_only = plan_only;
    c->prove = prove;
    if (c->features)
        c->image_size = 1;
    chex_schedule_init(&c->schedule);
    return CHEX_OK;
}

static enum chex_status take_over(struct chex_session *s, const char *path,
                                  const struct chex_checkpoint *c, struct chex_error *err) {
    json_auto_t *meta = json_loads(c->meta, 0, NULL);
    json_t *id = json_object_get(meta, "identity"), *position = json_object_get(meta, "position");
    char restored[1024];
    if (!id || !position)
        return chex_error_set(err, CHEX_E_DATA, "%s: its meta holds no position of a training run",
                              path);
    CHEX_TRY(restore_options(s, path, meta, restored, sizeof restored, err));
    CHEX_TRY(check_shape(s, path, c, err));
    CHEX_TRY(check_identity(s, path, id, err));
    CHEX_TRY(check_data(s, path, c, meta, err));
    read_position(&s->at, position);
    read_plateau(&s->config.schedule, json_object_get(meta, "plateau"));
    snprintf(s->newest, sizeof s->newest, "%s", path);
    s->complete = chex_session_ended_by(s) != NULL;
    if (!s->complete && !s->config.prove)
        log_options(s, path, json_object_get(meta, "options"), restored);
    return CHEX_OK;
}

/* There is no checkpoint. A run that ended before its first one was whole may start again: its log
 * of checkpoints is empty. Otherwise starting again would overwrite the metrics: an error. */
static enum chex_status check_none_left(const char *dir, struct chex_error *err) {
    CHEX_AUTO_FREE struct chex_checkpoint_line *lines = NULL;
    size_t count;
    CHEX_TRY(chex_checkpoint_log_read(dir, &lines, &count, err));
    if (count || (chex_fs_exists(chex_path(dir, "metrics.jsonl").text) &&
                  !chex_fs_exists(chex_path(dir, CHEX_CHECKPOINT_LOG).text)))
        return chex_error_set(err, CHEX_E_DATA,
                              "%s holds the metrics of a run, but no checkpoint of it: bring "
                              "%s/last.h5 back, or name a new folder with --output",
                              dir, dir);
    if (chex_runfiles_has_run(dir))
        chex_info("%s: the run there ended before its first checkpoint; it starts again", dir);
    return CHEX_OK;
}

/* Rank 0: reads the checkpoint to resume from. path: "" if there is none. */
static enum chex_status choose(struct chex_session *s, struct chex_checkpoint **c, char *path,
                               size_t size, struct chex_error *err) {
    const char *resume = s->config.resume, *dir = s->config.output_dir;
    CHEX_AUTO_FREE char *newest = NULL;
    path[0] = '\0';
    if (strcmp(resume, "auto") != 0) {
        CHEX_TRY(chex_checkpoint_read(resume, true, &s->net, c, err));
        snprintf(path, size, "%s", resume);
        return CHEX_OK;
    }
    CHEX_TRY(chex_checkpoint_store_newest(dir, &s->net, c, &newest, err));
    if (!*c)
        return check_none_left(dir, err);
    snprintf(path, size, "%s", newest);
    return CHEX_OK;
}

/* For checkpoints.jsonl, if the run was killed before it could write this line. */
static void describe_resumed(struct chex_session *s, const struct chex_checkpoint *c) {
    struct chex_checkpoint_line *line = &s->output.resumed;
    *line = (struct chex_checkpoint_line){.step = s->at.step,
                                          .epoch = s->at.epoch,
                                          .validation_due = s->at.validation_due,
                                          .best = s->at.best_step == s->at.step,
                                          .time_unix_s = chex_clock_unix_s()};
    chex_checkpoint_digest(s->net, c, line->digest);
}

enum chex_status chex_session_restore(struct chex_session *s, struct chex_error *err) {
    struct chex_group *group = s->world.coll->group;
    struct chex_checkpoint *c = NULL;
    char path[4096];
    if (strcmp(s->config.resume, "none") == 0)
        return CHEX_OK;
    enum chex_status st = s->rank == 0 ? choose(s, &c, path, sizeof path, err) : CHEX_OK;
    st = chex_session_agree(s, st, err);
    if (st == CHEX_OK)
        st = chex_session_broadcast(s, path, sizeof path, err);
    const enum chex_phase phase = chex_watchdog_wait(s->world.watchdog);
    if (st == CHEX_OK && path[0])
        st = chex_checkpoint_broadcast(group, &s->net, &c, err);
    chex_watchdog_at(s->world.watchdog, phase);
    if (st == CHEX_OK && c)
        st = take_over(s, path, c, err);
    if (st == CHEX_OK && c && s->rank == 0)
        describe_resumed(s, c);
    if (st == CHEX_OK && !s->complete)
        s->restored = c;
    else
        chex_checkpoint_destroy(c);
    return st;
}
