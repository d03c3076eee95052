/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves the state of a run into checkpoints and restores it. Besides the parameters and moments a
 * checkpoint holds a JSON text ("meta"):
 *   identity   what decides the order of the samples; a run resumes only with equal values
 *   position   epoch, step, best result
 *   plateau    state of the learning-rate schedule
 *   options, origins   the options of the run; those not given again are taken over
 *   cuda_choices   of the CUDA engine: the kernel of each convolution (train/same_kernels.c)
 *   members, resize, mean, std, ...   provenance of the data
 *
 * Restoring: rank 0 chooses the checkpoint, reads it and gives it to all ranks. Each rank checks it
 * against its options and its data. Later, when the data is open, it loads the engine.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/update.h"
#include "model/checkpoint_broadcast.h"
#include "train/session.h"

static json_t *plateau_state(const struct chex_schedule *p) {
    return chex_result(CHEX_MEMBER(p, scale), CHEX_MEMBER(p, best), CHEX_MEMBER(p, bad_epochs),
                       CHEX_MEMBER(p, has_best));
}

static json_t *position_state(const struct chex_position *at) {
    return chex_result(CHEX_MEMBER(at, epoch), CHEX_MEMBER(at, step_in_epoch),
                       CHEX_MEMBER(at, step), CHEX_MEMBER(at, epoch_loss),
                       CHEX_MEMBER(at, best_score), CHEX_MEMBER(at, has_best),
                       CHEX_MEMBER(at, best_epoch), CHEX_MEMBER(at, best_step),
                       CHEX_MEMBER(at, ema_step), CHEX_MEMBER(at, validation_due));
}

static const char *policy_text(const struct chex_train_config *c) {
    return c->uncertain && *c->uncertain ? c->uncertain : "ignore";
}

/* What decides the order of the samples and the meaning of the parameters. */
static json_t *identity(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    return chex_result(
        CHEX_MEMBER(c, seed), CHEX_MEMBER(&s->config, logical_ranks),
        CHEX_FIELD("batch_size", c->batch), CHEX_FIELD("order", chex_order_names[c->order]),
        CHEX_MEMBER(c, shuffle_block), CHEX_FIELD("pipeline", chex_pipeline_names[c->pipeline]),
        CHEX_FIELD("rows", s->input.selection->total[CHEX_PART_TRAIN]),
        CHEX_FIELD("source_digest", s->input.selection->source_digest),
        CHEX_FIELD("where", c->where ? c->where : ""), CHEX_FIELD("uncertain", policy_text(c)),
        CHEX_FIELD("data_weights", c->data_weights ? c->data_weights : ""),
        CHEX_FIELD("opt", chex_optim_names[c->update.optim]));
}

/* Every option; `auto` is replaced by the engine that it chose. */
static json_t *settings(const struct chex_session *s) {
    json_t *all = json_copy(json_object_get(s->config.options, "options"));
    json_object_set_new(all, "engine", json_string(s->config.engine));
    return all;
}

static json_t *channels(const float values[3]) {
    return json_pack("[f,f,f]", (double)values[0], (double)values[1], (double)values[2]);
}

static char *meta_text(const struct chex_session *s) {
    struct chex_error err = {0};
    json_t *kernels = chex_session_kernels(s, &err);
    if (err.status != CHEX_OK)
        return NULL;
    json_t *meta = chex_result(
        CHEX_FIELD("schema", 1), CHEX_FIELD("tool_version", CHEXNET_VERSION),
        CHEX_FIELD("resize", chex_set_resize(s->input.train)),
        CHEX_FIELD("stored_size", s->input.train->size), CHEX_FIELD("split", s->trained_split),
        CHEX_FIELD("members", s->members), CHEX_FIELD("mean", channels(s->net->mean)),
        CHEX_FIELD("std", channels(s->net->std)), CHEX_FIELD("identity", identity(s)),
        CHEX_FIELD("position", position_state(&s->at)),
        CHEX_FIELD("plateau", plateau_state(&s->config.schedule)),
        CHEX_FIELD("options", settings(s)));
    if (kernels)
        json_object_set_new(meta, "cuda_choices", kernels);
    json_object_set(meta, "origins", json_object_get(s->config.options, "origins"));
    json_object_set(meta, "loss", json_object_get(s->config.options, "loss"));
    char *text =
        meta ? json_dumps(meta, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
             : NULL;
    json_decref(meta);
    return text;
}

bool chex_session_keeps(const struct chex_session *s, enum chex_state_part part) {
    switch (part) {
    case CHEX_STATE_PARAMS:
    case CHEX_STATE_MOMENT1: return true;
    case CHEX_STATE_MOMENT2: return chex_optim_moments(s->config.update.optim) == 2;
    case CHEX_STATE_EMA: return s->config.ema_decay > 0;
    }
    return false;
}

/* Copies the state of the engine, unless the snapshot already has it: a validation changes none. */
static enum chex_status take_snapshot(struct chex_session *s, struct chex_error *err) {
    struct chex_run_output *o = &s->output;
    if (o->snapshot_step == s->at.step)
        return CHEX_OK;
    o->snapshot_step = 0;
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        if (o->snapshot.vectors[i])
            CHEX_TRY(
                chex_engine_get(s->engine, (enum chex_state_part)i, o->snapshot.vectors[i], err));
    o->snapshot_step = s->at.step;
    return CHEX_OK;
}

enum chex_status chex_session_write_failed(const struct chex_session *s, enum chex_status st,
                                           struct chex_error *err) {
    const struct chex_error why = *err;
    if (st == CHEX_E_RESOURCE)
        return chex_error_set(err, st, "%s; make room and run again%s%s", why.text,
                              s->newest[0] ? ": it goes on from " : "", s->newest);
    if (st == CHEX_E_DIVERGED)
        return chex_error_set(
            err, st, "%s; %s%s", why.text,
            s->newest[0] ? "the newest checkpoint is " : "no checkpoint was written", s->newest);
    return st;
}

void chex_session_metric_written(struct chex_session *s, enum chex_status st,
                                 const struct chex_error *why) {
    if (st == CHEX_OK)
        return;
    s->output.fault = *why;
    chex_session_write_failed(s, st, &s->output.fault);
}

enum chex_status chex_session_saved(struct chex_session *s, bool wait, enum chex_held held,
                                    struct chex_error *err) {
    struct chex_checkpoint_writer *w = s->output.writer;
    struct chex_checkpoint_line line;
    const enum chex_status st = wait ? chex_checkpoint_writer_finish(w, held, &line, err)
                                     : chex_checkpoint_writer_poll(w, &line, err);
    if (st != CHEX_OK)
        return chex_session_write_failed(s, st, err);
    if (line.step == 0)
        return CHEX_OK;
    snprintf(s->newest, sizeof s->newest, "%s/%s", s->config.output_dir, line.file);
    chex_time_left_save(&s->time_left, line.stall_s + line.write_s);
    return CHEX_OK;
}

enum chex_status chex_session_save(struct chex_session *s, bool best, double hold_s, double from_s,
                                   struct chex_error *err) {
    struct chex_checkpoint_line about = {.step = s->at.step,
                                         .epoch = s->at.epoch,
                                         .validation_due = s->at.validation_due,
                                         .best = best};
    CHEX_TRY(chex_session_saved(s, true, CHEX_HELD_DROP, err));
    CHEX_TRY(chex_session_confirm_output(s, err));
    CHEX_TRY(take_snapshot(s, err));
    char *meta = meta_text(s);
    if (!meta)
        return chex_error_memory(err, NULL);
    about.stall_s = chex_clock_s() - from_s;
    chex_checkpoint_writer_put(s->output.writer, &about, meta, hold_s);
    return CHEX_OK;
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
        for (size_t i = 0; i < sizeof used / sizeof *used; i++)
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
                 chex_split_names[now->source[0].split[CHEX_PART_TRAIN]]);
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
    const struct chex_selection *now = s->input.selection;
    if (!digest || strcmp(digest, now->source_digest) != 0 ||
        get_u64(id, "rows") != now->total[CHEX_PART_TRAIN] ||
        json_integer_value(json_object_get(meta, "stored_size")) != now->size)
        return other_set(s, path, meta, err);
    CHEX_TRY(check_members(s, path, meta, err));
    CHEX_TRY(check_classes(s, path, c, err));
    CHEX_TRY(
        same_value(path, id, "where", json_string(s->config.where ? s->config.where : ""), err));
    CHEX_TRY(same_value(path, id, "data_weights",
                        json_string(s->config.data_weights ? s->config.data_weights : ""), err));
    return same_value(path, id, "uncertain", json_string(policy_text(&s->config)), err);
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

/* Options whose change is not logged: paths do not affect training, and --init has no effect after
 * the first step. */
static bool is_path(const char *name) {
    return strcmp(name, "data") == 0 || strcmp(name, "output") == 0 ||
           strcmp(name, "resume") == 0 || strcmp(name, "timeline") == 0 ||
           strcmp(name, "init") == 0;
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
    json_t *now = settings(s);
    char *changes = NULL;
    size_t size = 0;
    FILE *out = then ? open_memstream(&changes, &size) : NULL;
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
    free(changes);
    json_decref(now);
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
    chex_schedule_init(&c->schedule);
    return CHEX_OK;
}

static enum chex_status take_over(struct chex_session *s, const char *path,
                                  const struct chex_checkpoint *c, struct chex_error *err) {
    json_t *meta = json_loads(c->meta, 0, NULL);
    json_t *id = json_object_get(meta, "identity"), *position = json_object_get(meta, "position");
    enum chex_status st = CHEX_OK;
    char restored[1024];
    if (!id || !position)
        st = chex_error_set(err, CHEX_E_DATA, "%s: its meta holds no position of a training run",
                            path);
    if (st == CHEX_OK)
        st = restore_options(s, path, meta, restored, sizeof restored, err);
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
        s->complete = chex_session_ended_by(s) != NULL;
        if (!s->complete && !s->config.prove)
            log_options(s, path, json_object_get(meta, "options"), restored);
    }
    json_decref(meta);
    return st;
}

/* There is no checkpoint. If the metrics show that there was one, starting again would overwrite
 * them: an error. A run that ended before its first checkpoint may start again. */
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

/* Rank 0: reads the checkpoint to resume from. path: "" if there is none. */
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
    CHEX_TRY(chex_checkpoint_store_newest(dir, &s->net, c, &newest, err));
    if (!*c)
        return check_none_left(dir, err);
    snprintf(path, size, "%s", newest);
    free(newest);
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
    const enum chex_phase phase = chex_watchdog_wait(s->world.watchdog);
    if (st == CHEX_OK)
        st = chex_group_broadcast(group, path, sizeof path, 0, err);
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
