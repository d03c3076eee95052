/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run in and out of checkpoints. The meta object holds the position, what the order
 * of the samples depends on, and the provenance; a run goes on only with the same.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/update.h"
#include "train/session.h"

static json_t *plateau_state(const struct chex_schedule *p) {
    return json_pack("{s:f,s:f,s:I,s:b}", "scale", p->scale, "best", p->best, "bad_epochs",
                     (json_int_t)p->bad_epochs, "has_best", p->has_best);
}

static json_t *position_state(const struct chex_position *at) {
    return json_pack("{s:I,s:I,s:I,s:f,s:f,s:b}", "epoch", (json_int_t)at->epoch, "step_in_epoch",
                     (json_int_t)at->step_in_epoch, "step", (json_int_t)at->step, "epoch_loss",
                     at->epoch_loss, "best_score", at->best_score, "has_best", at->has_best);
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

static char *meta_text(const struct chex_session *s) {
    json_t *mean = json_pack("[f,f,f]", (double)s->net->mean[0], (double)s->net->mean[1],
                             (double)s->net->mean[2]);
    json_t *std = json_pack("[f,f,f]", (double)s->net->std[0], (double)s->net->std[1],
                            (double)s->net->std[2]);
    json_t *meta = json_pack("{s:i,s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o}", "schema", 1, "tool_version",
                             CHEXNET_VERSION, "resize", chex_set_resize(s->input.train), "split",
                             chex_split_names[s->input.train->split], "mean", mean, "std", std,
                             "identity", identity(s), "position", position_state(&s->at), "plateau",
                             plateau_state(&s->config.schedule));
    char *text =
        meta ? json_dumps(meta, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
             : NULL;
    json_decref(meta);
    return text;
}

enum chex_status chex_session_save(struct chex_session *s, bool best, struct chex_error *err) {
    struct chex_checkpoint c = s->snapshot;
    int moments = chex_optim_moments(s->config.update.optim);
    CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_PARAMS, c.params, err));
    CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_MOMENT1, c.moment1, err));
    if (moments == 2)
        CHEX_TRY(chex_engine_get(s->engine, CHEX_STATE_MOMENT2, c.moment2, err));
    else
        c.moment2 = NULL;
    c.meta = meta_text(s);
    if (!c.meta)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = chex_runfiles_save(&s->files, s->net, &c, s->at.step, best, err);
    free(c.meta);
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

/* The shards must be those that the checkpoint was trained on. */
static enum chex_status check_data(struct chex_session *s, const char *path, const json_t *id,
                                   struct chex_error *err) {
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

static enum chex_status take_over(struct chex_session *s, const char *path,
                                  const struct chex_checkpoint *c, struct chex_error *err) {
    json_t *meta = json_loads(c->meta, 0, NULL);
    json_t *id = json_object_get(meta, "identity"), *position = json_object_get(meta, "position");
    enum chex_status st = CHEX_OK;
    if (!id || !position)
        st = chex_error_set(err, CHEX_E_DATA, "%s: its meta holds no position of a training run",
                            path);
    if (st == CHEX_OK && strcmp(c->model, s->config.model) != 0)
        st = chex_error_set(err, CHEX_E_USAGE, "%s: the checkpoint is a %s, --model is %s", path,
                            c->model, s->config.model);
    if (st == CHEX_OK)
        st = check_identity(s, path, id, err);
    if (st == CHEX_OK)
        st = check_data(s, path, id, err);
    if (st == CHEX_OK) {
        read_position(&s->at, position);
        read_plateau(&s->config.schedule, json_object_get(meta, "plateau"));
        s->complete = s->at.epoch >= (uint64_t)s->config.epochs ||
                      (s->config.max_steps && s->at.step >= s->config.max_steps);
        if (!s->complete)
            st = load_engine(s, c, err);
    }
    json_decref(meta);
    return st;
}

enum chex_status chex_session_restore(struct chex_session *s, struct chex_error *err) {
    const char *resume = s->config.resume;
    struct chex_checkpoint *c = NULL;
    char *path = NULL;
    enum chex_status st = CHEX_OK;
    if (strcmp(resume, "none") == 0)
        return CHEX_OK;
    if (strcmp(resume, "auto") == 0)
        st = chex_runfiles_newest(s->config.output_dir, &s->net, &c, &path, err);
    else if (!(path = strdup(resume)))
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    else
        st = chex_checkpoint_read(path, true, &s->net, &c, err);
    if (st == CHEX_OK && c)
        st = take_over(s, path, c, err);
    chex_checkpoint_destroy(c);
    free(path);
    return st;
}
