/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a session from the settings, up to the first step.
 *
 * The order is cheap checks first: options equal on all ranks, output folder, manifests, checkpoint
 * (open_run); then data, engine, labels, reduction, memory and disk space. Only then do input
 * threads start and files appear (open_work). --plan stops before open_work. After each part all
 * ranks agree on the status, so that a failure on one rank ends all of them together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory_limit.h"
#include "engine/ref/head_engine.h"
#include "engine/update.h"
#include "launch/same.h"
#include "train/head_only.h"
#include "train/layer_rates.h"
#include "train/loss_setup.h"
#include "train/memory_budget.h"
#include "train/same_kernels.h"
#include "train/store/provenance.h"
#include "train/store/ranks_file.h"
#include "train/store/restore.h"
#include "train/store/run_output.h"
#include "train/watch/pass_audit.h"
#include "train/watch/requeue.h"
#include "train/watch/run_timeline.h"

enum chex_status chex_session_agree(struct chex_session *s, enum chex_status mine,
                                    struct chex_error *err) {
    const enum chex_status st =
        chex_watchdog_agree(s->world.watchdog, s->world.coll->group, mine, err);
    if (st != CHEX_OK)
        s->together = !s->world.coll->group->broken;
    return st;
}

enum chex_status chex_session_broadcast(struct chex_session *s, void *data, size_t bytes,
                                        struct chex_error *err) {
    const enum chex_phase phase = chex_watchdog_wait(s->world.watchdog);
    const enum chex_status st = chex_group_broadcast(s->world.coll->group, data, bytes, 0, err);
    chex_watchdog_at(s->world.watchdog, phase);
    return st;
}

enum chex_status chex_session_share_text(struct chex_session *s, char **text,
                                         struct chex_error *err) {
    const enum chex_phase phase = chex_watchdog_wait(s->world.watchdog);
    const enum chex_status st = chex_group_share_text(s->world.coll->group, text, err);
    chex_watchdog_at(s->world.watchdog, phase);
    return st;
}

/* Joins what the checkpoint says of each set. Rank 0. */
static enum chex_status describe_sets(struct chex_session *s, struct chex_error *err) {
    const struct chex_selection *now = s->input.selection;
    const size_t count = (size_t)now->sources.count;
    s->members = chex_alloc_zeroed(count, CHEX_MEMBERS_BYTES + 2);
    s->trained_split = chex_alloc_zeroed(count, 16);
    CHEX_ALLOCATED(s->members && s->trained_split, err, "--data");
    for (size_t i = 0; i < count; i++) {
        char members[CHEX_MEMBERS_BYTES];
        chex_members_text(now->source[i].manifest, members);
        strcat(strcat(s->members, i ? "; " : ""), members);
        strcat(strcat(s->trained_split, i ? "+" : ""),
               chex_splits_name(now->source[i].splits[CHEX_PART_TRAIN]));
    }
    return CHEX_OK;
}

enum chex_status chex_session_select(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(chex_train_input_select(&s->input, err));
    return s->rank == 0 && !s->members ? describe_sets(s, err) : CHEX_OK;
}

static struct chex_engine_config engine_config(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    return (struct chex_engine_config){.net = s->net,
                                       .image_size = c->image_size,
                                       .batch = c->batch,
                                       .precision = c->precision,
                                       .threads = c->threads,
                                       .training = true,
                                       .node_ranks = s->world.launch->local_size,
                                       .loss = s->loss.loss,
                                       .lr_scales = s->lr_scales,
                                       .ema_decay = c->ema_decay,
                                       .device = c->device};
}

static void name_engine(struct chex_session *s, const struct chex_engine *e) {
    snprintf(s->engine_name, sizeof s->engine_name, "%s", e->impl->name);
    snprintf(s->engine_variant, sizeof s->engine_variant, "%s", e->impl->variant(e->self));
}

static enum chex_status create_engine(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    CHEX_TRY(chex_layer_rates(s->net, c->layer_decay, c->freeze, &s->lr_scales, err));
    struct chex_engine_config e = engine_config(s);
    if (c->head_only) {
        CHEX_TRY(chex_head_only_create(s, &e, err));
        name_engine(s, s->extractor ? s->extractor : s->engine);
        return CHEX_OK;
    }
    if (c->sync_bn && c->logical_ranks > 1) {
        CHEX_TRY(chex_sync_bn_create(s->world.coll, s->net, c->logical_ranks, c->deterministic,
                                     &s->sync_bn, err));
        chex_sync_bn_configure(s->sync_bn, 0, &e);
        chex_watchdog_sums(s->world.watchdog, chex_sync_bn_sum(s->sync_bn));
    }
    CHEX_TRY(chex_engine_create(c->engine, &e, &s->engine, err));
    name_engine(s, s->engine);
    return CHEX_OK;
}

/* The engines of this process's other logical ranks. The first engine has its state. */
static enum chex_status start_sync_bn(struct chex_session *s, struct chex_error *err) {
    struct chex_engine_config e = engine_config(s);
    if (!s->sync_bn)
        return CHEX_OK;
    e.ema_decay = 0; /* the session's own engine keeps the moving average */
    return chex_sync_bn_start(s->sync_bn, s->config.engine, &e, s->engine, err);
}

/* Longer than --stall-abort, so that the stall watch reports a late rank, once, before each
 * message of the reduction times out. */
static uint64_t message_timeout_ms(const struct chex_train_config *c) {
    return c->stall_abort_ms + c->stall_abort_ms / 4;
}

const char *chex_session_model(const struct chex_session *s) {
    return s->features ? s->features->model : chex_net_names[s->config.model];
}

size_t chex_session_gradients(const struct chex_session *s) {
    return s->config.head_only ? chex_head_gradients(s->net) : s->net->state_count;
}

static enum chex_status create_reduce(struct chex_session *s, struct chex_error *err) {
    const struct chex_engine_impl *impl = s->engine->impl;
    const struct chex_reduce_memory *memory = NULL;
    if (impl->device)
        CHEX_TRY(impl->device->reduce_memory(s->engine->self, s->world.launch, s->world.coll->group,
                                             message_timeout_ms(&s->config), &memory, err));
    struct chex_reduce_config r = {.coll = s->world.coll,
                                   .memory = memory,
                                   .logical_ranks = s->config.logical_ranks,
                                   .count = chex_session_gradients(s),
                                   .deterministic = s->config.deterministic,
                                   .trace = s->timeline.trace};
    CHEX_TRY(chex_reduce_create(&r, &s->reduce, err));
    chex_watchdog_reduce(s->world.watchdog, s->reduce);
    return chex_step_reports_init(&s->reports, s->config.logical_ranks, s->size, err);
}

/* If a validation is due, the position is the end of an epoch: the pipeline starts with the next
 * one. */
enum chex_status chex_session_open_pipeline(struct chex_session *s, struct chex_error *err) {
    return chex_train_input_pipeline(&s->input, s->at.epoch + s->at.step_in_epoch / s->steps,
                                     s->at.step_in_epoch % s->steps, &s->pipeline, err);
}

/* --freeze must match parameters. Their names do not depend on the data. */
static enum chex_status check_freeze(const struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    struct chex_net *net = NULL;
    CHEX_AUTO_FREE double *scales = NULL;
    CHEX_TRY(chex_net_create(chex_session_model(s), 1, &net, err));
    const enum chex_status st = chex_layer_rates(net, c->layer_decay, c->freeze, &scales, err);
    chex_net_destroy(net);
    return st;
}

/* What is wrong whatever the data are: before they are read, copied to nodes or counted. Options
 * may have been taken over from the checkpoint, so their own checks come again. */
static enum chex_status check_options(struct chex_session *s, struct chex_error *err) {
    struct chex_train_config *c = &s->config;
    const struct chex_engine_impl *impl;
    CHEX_TRY(chex_schedule_check(&c->schedule, err));
    CHEX_TRY(chex_update_check(&c->update, err));
    CHEX_TRY(chex_train_choose_logical_ranks(c, s->size, err));
    CHEX_TRY(check_freeze(s, err));
    CHEX_TRY(chex_engine_check(c->engine, c->precision, &impl, err));
    return c->sync_bn ? chex_sync_bn_check(s->world.coll, c->logical_ranks, impl->device != NULL,
                                           c->pipeline == CHEX_PIPELINE_OLD, err)
                      : CHEX_OK;
}

/* What needs neither data nor engine: the options, the output folder, the manifest and the
 * checkpoint to resume from. */
static enum chex_status open_run(struct chex_session *s, struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    if (s->config.shared_options) {
        const enum chex_phase phase = chex_watchdog_wait(s->world.watchdog);
        st = chex_same_options(s->world.coll->group, s->config.shared_options, err);
        chex_watchdog_at(s->world.watchdog, phase);
    }
    CHEX_TRY(chex_session_agree(s, st, err));
    st = s->rank == 0 && !s->config.prove ? chex_session_check_output(s, err) : CHEX_OK;
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(chex_session_agree(s, chex_train_input_same(&s->input, err), err));
    CHEX_TRY(chex_session_agree(s, chex_head_only_read(s, err), err));
    chex_watchdog_at(s->world.watchdog, CHEX_PHASE_RESTORE);
    CHEX_TRY(chex_session_agree(s, chex_session_restore(s, err), err));
    chex_watchdog_at(s->world.watchdog, CHEX_PHASE_SETUP);
    if (s->complete)
        return CHEX_OK;
    CHEX_TRY(chex_session_agree(s, check_options(s, err), err));
    if (s->rank == 0 && s->world.options_final)
        s->world.options_final(s->world.restore_arg);
    CHEX_TRY(chex_session_agree(s, chex_head_only_check(s, err), err));
    return chex_session_check_init(s, err);
}

static enum chex_status open_data(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(chex_session_agree(s, chex_session_select(s, err), err));
    CHEX_TRY(chex_train_input_open(&s->input, true, err));
    s->steps = chex_order_steps(&s->input.order);
    if (!s->net)
        CHEX_TRY(chex_net_create(chex_session_model(s), s->input.train->classes, &s->net, err));
    return CHEX_OK;
}

/* Judges the labels of all ranks, and makes the loss from their counts. */
static enum chex_status open_labels(struct chex_session *s, struct chex_error *err) {
    CHEX_AUTO_FREE struct chex_label_counts *counts =
        chex_alloc_zeroed((size_t)s->input.train->classes, sizeof *counts);
    CHEX_TRY(chex_session_agree(s, counts ? CHEX_OK : chex_error_memory(err, NULL), err));
    CHEX_TRY(chex_session_agree(s, chex_session_check_labels(s, counts, err), err));
    return chex_session_make_loss(s, counts, err);
}

/* The state of the run. Collective. */
static enum chex_status open_state(struct chex_session *s, struct chex_error *err) {
    const enum chex_status st =
        s->restored ? chex_session_load_engine(s, err) : chex_session_init_state(s, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    return start_sync_bn(s, err);
}

/* Checkpoints that audits keep besides (chex_checkpoint_store_prune). */
static int kept_by_audits(const struct chex_train_config *c) {
    return c->audit_steps && c->save_keep ? 2 : 0;
}

/* The reduction, rows in the engine's memory, and the sums of memory and disk space. */
static enum chex_status reserve(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    CHEX_TRY(create_reduce(s, err));
    CHEX_TRY(chex_train_input_make_resident(&s->input, s->engine, err));
    CHEX_TRY(chex_session_measure(s, err));
    return s->rank != 0 || c->prove
               ? CHEX_OK
               : chex_checkpoint_store_check_space(c->output_dir, c->save_keep + kept_by_audits(c),
                                                   chex_train_file_bytes(s->net, c), &s->space,
                                                   err);
}

static enum chex_status open_parts(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(open_run(s, err));
    if (s->complete)
        return CHEX_OK;
    CHEX_TRY(chex_session_agree(s, open_data(s, err), err));
    CHEX_TRY(chex_session_agree(s, open_labels(s, err), err));
    /* Agree before reserve: with memory of the engine (a GPU) the reduction is collective. */
    CHEX_TRY(chex_session_agree(s, create_engine(s, err), err));
    CHEX_TRY(chex_session_agree(s, chex_session_choose_kernels(s, err), err));
    CHEX_TRY(chex_session_agree(s, open_state(s, err), err));
    CHEX_TRY(chex_session_agree(s, chex_session_open_timeline(s, err), err));
    CHEX_TRY(chex_session_agree(s, reserve(s, err), err));
    CHEX_TRY(chex_session_agree(s, chex_pass_audit_open(s, err), err));
    return chex_session_agree(s, chex_session_check_memory(s, err), err);
}

/* A process that ends without the others gives the checkpoint that is being written so long. */
static const double linger_s = 10;

/* Before the watch ends a job that hangs. */
static void on_abort(void *session, const struct chex_mark *mark, enum chex_status status) {
    const struct chex_session *s = session;
    (void)mark;
    chex_checkpoint_writer_linger(s->output.writer, linger_s);
    if (s->config.requeue)
        chex_requeue_ask(s->world.slurm, status);
}

static void on_abort_timeline(void *session, const struct chex_mark *mark,
                              enum chex_status status) {
    chex_session_write_stalled(session, mark);
    on_abort(session, mark, status);
}

/* Starts the input threads and creates the files of the run. */
static enum chex_status open_work(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(chex_pass_audit_first(s, err));
    CHEX_TRY(chex_head_only_compute(s, err));
    enum chex_status st = chex_session_open_pipeline(s, err);
    if (st == CHEX_OK && s->timeline.file)
        chex_watchdog_on_abort(s->world.watchdog, on_abort_timeline, s);
    bool made = false;
    if (st == CHEX_OK && s->rank == 0)
        st = chex_session_make_output(s, &made, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    st = chex_session_agree(s, chex_session_check_shared_output(s, err), err);
    if (st != CHEX_OK && made)
        chex_session_unmake_output(s);
    if (st == CHEX_OK && s->rank == 0)
        st = chex_session_create_output(s, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    /* Rank 0 forgets a best.h5 that is damaged. --stop-after counts from the best epoch. */
    CHEX_TRY(
        chex_group_broadcast(s->world.coll->group, &s->at.has_best, sizeof s->at.has_best, 0, err));
    st = chex_session_write_ranks(s, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    return chex_session_agree(s, chex_provenance_begin(s, err), err);
}

/* The stall watch starts first: a library may hang in the set-up too. */
static enum chex_status start_watch(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    const enum chex_status st = chex_watchdog_create(s->world.launch, c->stall_warn_ms,
                                                     c->stall_abort_ms, &s->world.watchdog, err);
    if (st == CHEX_OK)
        chex_watchdog_on_abort(s->world.watchdog, on_abort, s);
    return chex_session_agree(s, st, err);
}

enum chex_status chex_session_open(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(start_watch(s, err));
    CHEX_TRY(open_parts(s, err));
    if (s->config.plan_only)
        return CHEX_OK;
    if (s->complete)
        return chex_session_agree(s, chex_session_repair_names(s, err), err);
    CHEX_TRY(open_work(s, err));
    chex_session_describe(s);
    return CHEX_OK;
}

static void close_session(struct chex_session *s) {
    chex_watchdog_destroy(s->world.watchdog);
    chex_session_release_output(s);
    chex_pipeline_destroy(s->pipeline);
    chex_pass_audit_close(s);
    chex_reduce_destroy(s->reduce);
    chex_timeline_destroy(s->timeline.file);
    free(s->energy.rapl);
    chex_runfiles_release(&s->files);
    chex_step_reports_release(&s->reports);
    chex_sync_bn_destroy(s->sync_bn);
    chex_engine_destroy(s->engine);
    chex_checkpoint_destroy(s->restored);
    chex_loss_weights_release(&s->loss);
    free(s->lr_scales);
    chex_head_only_release(s);
    chex_train_input_close(&s->input);
    chex_net_destroy(s->net);
    free(s->members);
    free(s->trained_split);
}

/* If only this rank failed, the reduction's thread may wait for other ranks for ever. The caller
 * aborts the job, so nothing is released then. */
void chex_session_end(struct chex_session *s, enum chex_status st, bool *together_out) {
    *together_out = st == CHEX_OK || s->together;
    if (*together_out || s->size == 1)
        close_session(s);
    else
        chex_checkpoint_writer_linger(s->output.writer, linger_s);
}

void chex_session_init(struct chex_session *s, const struct chex_train_config *config,
                       const struct chex_train_world *world) {
    *s = (struct chex_session){.config = *config,
                               .world = *world,
                               .rank = world->launch->rank,
                               .size = world->launch->size,
                               .opened_s = chex_clock_s(),
                               .input = {.config = &s->config, .world = &s->world},
                               .output = {.lock = -1},
                               .needs = {.program = chex_memory_own_bytes("")}};
    chex_schedule_init(&s->config.schedule);
    if (config->features) /* a value that every set of images can have */
        s->config.image_size = 1;
}
