/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves the state of a run into checkpoints. Besides the parameters and moments a checkpoint holds
 * a JSON text ("meta"), which restore.c reads: identity   what decides the order of the samples; a
 * run resumes only with equal values position   epoch, step, best result plateau    state of the
 * learning-rate schedule options, origins   the options of the run; those not given again are taken
 * over cuda_choices   of the CUDA engine: the kernel of each convolution (train/same_kernels.c)
 *   members, resize, mean, std, ...   provenance of the data
 */
#include "train/store/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/result.h"
#include "engine/update.h"
#include "train/same_kernels.h"
#include "train/store/run_output.h"
#include "train/watch/pass_audit.h"

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

const char *chex_save_policy(const struct chex_train_config *c) {
    return c->uncertain && *c->uncertain ? c->uncertain : "ignore";
}

/* What decides the order of the samples and the meaning of the parameters. */
static json_t *identity(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    json_t *id = chex_result(
        CHEX_MEMBER(c, seed), CHEX_MEMBER(&s->config, logical_ranks),
        CHEX_FIELD("batch_size", c->batch), CHEX_FIELD("order", chex_order_names[c->order]),
        CHEX_MEMBER(c, shuffle_block), CHEX_FIELD("pipeline", chex_pipeline_names[c->pipeline]),
        CHEX_FIELD("rows", s->input.selection->total[CHEX_PART_TRAIN]),
        CHEX_FIELD("source_digest", s->input.selection->source_digest),
        CHEX_FIELD("findings", c->findings ? c->findings : ""),
        CHEX_FIELD("where", c->where ? c->where : ""), CHEX_FIELD("folds", c->fold.folds),
        CHEX_FIELD("fold", c->fold.number), CHEX_FIELD("uncertain", chex_save_policy(c)),
        CHEX_FIELD("data_weights", c->data_weights ? c->data_weights : ""),
        CHEX_FIELD("opt", chex_optim_names[c->update.optim]));
    if (s->config.features)
        chex_json_set(&id, "features_digest", json_string(s->features_digest));
    return id;
}

json_t *chex_save_options(const struct chex_session *s) {
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
    json_auto_t *meta = chex_result(
        CHEX_FIELD("schema", 1), CHEX_FIELD("tool_version", CHEXNET_VERSION),
        CHEX_FIELD("resize", chex_set_resize(s->input.train)),
        CHEX_FIELD("stored_size", s->input.train->size), CHEX_FIELD("split", s->trained_split),
        CHEX_FIELD("members", s->members), CHEX_FIELD("mean", channels(s->net->mean)),
        CHEX_FIELD("std", channels(s->net->std)), CHEX_FIELD("identity", identity(s)),
        CHEX_FIELD("position", position_state(&s->at)),
        CHEX_FIELD("plateau", plateau_state(&s->config.schedule)),
        CHEX_FIELD("options", chex_save_options(s)));
    if (kernels)
        json_object_set_new(meta, "cuda_choices", kernels);
    if (s->config.fold.folds) {
        char fold[CHEX_FOLD_BYTES];
        snprintf(fold, sizeof fold, CHEX_FOLD_FORM, s->config.fold.number, s->config.fold.folds,
                 (unsigned long long)s->input.selection->fold_facts.digest);
        json_object_set_new(meta, "fold", json_string(fold));
    }
    json_object_set(meta, "origins", json_object_get(s->config.options, "origins"));
    json_object_set(meta, "loss", json_object_get(s->config.options, "loss"));
    return meta ? json_dumps(meta, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17))
                : NULL;
}

static bool keeps(const struct chex_session *s, enum chex_state_part part) {
    switch (part) {
    case CHEX_STATE_PARAMS:
    case CHEX_STATE_MOMENT1: return true;
    case CHEX_STATE_MOMENT2: return chex_optim_moments(s->config.update.optim) == 2;
    case CHEX_STATE_EMA: return s->config.ema_decay > 0;
    }
    return false;
}

/* The pages are touched here, so that the first snapshot of the steps does not wait for them. */
enum chex_status chex_session_alloc_state(const struct chex_session *s, struct chex_checkpoint *c,
                                          struct chex_error *err) {
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++) {
        if (!keeps(s, (enum chex_state_part)i))
            continue;
        if (!(c->vectors[i] = chex_alloc_aligned(s->net->state_count, sizeof(float))))
            return chex_error_memory(err, NULL);
        memset(c->vectors[i], 0, s->net->state_count * sizeof(float));
    }
    return CHEX_OK;
}

enum chex_status chex_session_get_state(const struct chex_session *s, struct chex_checkpoint *c,
                                        struct chex_error *err) {
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        if (c->vectors[i])
            CHEX_TRY(chex_engine_get(s->engine, (enum chex_state_part)i, c->vectors[i], err));
    return CHEX_OK;
}

void chex_session_free_state(struct chex_checkpoint *c) {
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        free(c->vectors[i]);
}

/* Copies the state of the engine, unless the snapshot already has it: a validation changes none. */
static enum chex_status take_snapshot(struct chex_session *s, struct chex_error *err) {
    struct chex_run_output *o = &s->output;
    if (o->snapshot_step == s->at.step)
        return CHEX_OK;
    o->snapshot_step = 0;
    CHEX_TRY(chex_session_get_state(s, &o->snapshot, err));
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

enum chex_status chex_session_saved(struct chex_session *s, enum chex_held held,
                                    struct chex_error *err) {
    struct chex_checkpoint_line line;
    const enum chex_status st = chex_checkpoint_writer_result(s->output.writer, held, &line, err);
    if (st != CHEX_OK)
        return chex_session_write_failed(s, st, err);
    if (line.step == 0)
        return CHEX_OK;
    snprintf(s->newest, sizeof s->newest, "%s/%s", s->config.output_dir, line.file);
    s->output.saved_unix_s = line.time_unix_s;
    chex_time_left_save(&s->time_left, line.stall_s + line.write_s);
    return CHEX_OK;
}

/* Rank 0 takes a snapshot and hands it to the writer, after it has waited for the one before.
 * from_s: when the steps stopped. */
static enum chex_status save(struct chex_session *s, bool best, double hold_s, double from_s,
                             struct chex_error *err) {
    struct chex_checkpoint_line about = {.step = s->at.step,
                                         .epoch = s->at.epoch,
                                         .validation_due = s->at.validation_due,
                                         .best = best};
    CHEX_TRY(chex_session_saved(s, CHEX_HELD_DROP, err));
    CHEX_TRY(chex_session_confirm_output(s, err));
    CHEX_TRY(take_snapshot(s, err));
    char *meta = meta_text(s);
    CHEX_ALLOCATED(meta, err, NULL);
    about.stall_s = chex_clock_s() - from_s;
    chex_checkpoint_writer_put(s->output.writer, &about, meta, hold_s);
    return CHEX_OK;
}

enum chex_status chex_session_checkpoint(struct chex_session *s, bool best, double hold_s,
                                         struct chex_error *err) {
    const uint64_t from_ns = chex_trace_now(s->timeline.trace);
    const double from_s = chex_clock_s();
    chex_watchdog_beat(s->world.watchdog, CHEX_PHASE_SAVE, s->at.step);
    CHEX_TRY(chex_reduce_settle(s->reduce, err));
    enum chex_status st = s->rank == 0 ? save(s, best, hold_s, from_s, err) : CHEX_OK;
    chex_pass_audit_prune(s);
    s->saved_s = chex_clock_s();
    st = chex_session_agree(s, st, err);
    chex_trace_span(s->timeline.trace, CHEX_TRACE_MAIN, CHEX_TRACE_SAVE, from_ns, s->at.step);
    return st;
}

enum chex_status chex_session_complete_save(struct chex_session *s, struct chex_error *err) {
    const uint64_t from_ns = chex_trace_now(s->timeline.trace);
    chex_watchdog_beat(s->world.watchdog, CHEX_PHASE_SAVE, s->at.step);
    const enum chex_status st =
        s->rank == 0 ? chex_session_saved(s, CHEX_HELD_WRITE, err) : CHEX_OK;
    chex_pass_audit_prune(s);
    chex_trace_span(s->timeline.trace, CHEX_TRACE_MAIN, CHEX_TRACE_SAVE, from_ns, s->at.step);
    return chex_session_agree(s, st, err);
}
