/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a session from the settings, up to the first step.
 *
 * The order is cheap checks first: options equal on all ranks, output folder, manifests, checkpoint
 * (open_run); then data, engine, labels, reduction, memory and disk space. Only then do input
 * threads start and files appear (open_work). --plan stops before open_work. After each part all
 * ranks agree on the status, so that a failure on one rank ends all of them together.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/ref/head_engine.h"
#include "engine/update.h"
#include "launch/same.h"
#include "train/head_only.h"
#include "train/job_use.h"
#include "train/requeue.h"
#include "train/session.h"
#include "train/store/provenance.h"
#include "train/watch/layer_rates.h"
#include "train/watch/pass_audit.h"

enum chex_status chex_session_agree(struct chex_session *s, enum chex_status mine,
                                    struct chex_error *err) {
    const enum chex_status st =
        chex_watchdog_agree(s->world.watchdog, s->world.coll->group, mine, err);
    if (st != CHEX_OK)
        s->together = !s->world.coll->group->broken;
    return st;
}

/* Joins what the checkpoint says of each set. Rank 0. */
static enum chex_status describe_sets(struct chex_session *s, struct chex_error *err) {
    const struct chex_selection *now = s->input.selection;
    const size_t count = (size_t)now->sources.count;
    s->members = chex_alloc_zeroed(count, CHEX_MEMBERS_BYTES + 2);
    s->trained_split = chex_alloc_zeroed(count, 8);
    if (!s->members || !s->trained_split)
        return chex_error_memory(err, "--data");
    for (size_t i = 0; i < count; i++) {
        char members[CHEX_MEMBERS_BYTES];
        chex_members_text(now->source[i].manifest, members);
        strcat(strcat(s->members, i ? "; " : ""), members);
        strcat(strcat(s->trained_split, i ? "+" : ""),
               chex_split_names[now->source[i].split[CHEX_PART_TRAIN]]);
    }
    return CHEX_OK;
}

enum chex_status chex_session_select(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(chex_train_input_select(&s->config, &s->input, err));
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

enum chex_status chex_session_create_engine(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    CHEX_TRY(chex_layer_rates(s->net, c->layer_decay, c->freeze, &s->lr_scales, err));
    struct chex_engine_config e = engine_config(s);
    if (c->head_only) {
        CHEX_TRY(chex_head_only_create(s, &e, err));
        name_engine(s, s->extractor);
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

/* The average of a short run still holds a part of the first parameters: after T updates, decay^T.
 */
static void warn_of_short_average(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    uint64_t updates = (uint64_t)c->epochs * s->steps;
    if (c->max_steps && c->max_steps < updates)
        updates = c->max_steps;
    updates -= s->at.ema_step < updates ? s->at.ema_step : updates;
    const double first = c->ema_decay > 0 ? pow(c->ema_decay, (double)updates) : 0;
    char since[32] = "of this run";
    if (s->at.ema_step)
        snprintf(since, sizeof since, "since step %llu", (unsigned long long)s->at.ema_step);
    if (first > 0.01)
        chex_warn(
            "--ema %g: after the %llu update%s %s, %.2g %% of the average are still the first "
            "parameters: lower it, or train longer",
            c->ema_decay, (unsigned long long)updates, chex_text_s(updates), since, 100 * first);
}

/* --max-steps belongs to a start, and the schedule to the run. */
static void warn_of_cut_cosine(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    const uint64_t all = (uint64_t)c->epochs * s->steps, end = c->max_steps;
    if (c->schedule.kind == CHEX_SCHED_COSINE && end && end < all)
        chex_warn(
            "--sched cosine: the rate falls over the %llu steps of --epochs %lld; at the end "
            "of --max-steps %llu it is %.3g: to end there, give --epochs %.3g",
            (unsigned long long)all, (long long)c->epochs, (unsigned long long)end,
            chex_schedule_lr(&c->schedule, (end - 1) / s->steps, (end - 1) % s->steps, s->steps),
            ceil((double)end / (double)s->steps));
}

static void warn_of_labels(const struct chex_label_gaps *gaps) {
    if (gaps->train[0])
        chex_warn("%s", gaps->train);
    if (gaps->val[0])
        chex_warn("%s", gaps->val);
    if (gaps->no_auroc)
        chex_warn("%s", CHEX_NO_AUROC);
}

/* Logs the augmentations that are on. */
static void describe_augmentation(const struct chex_augment_options *a, bool by_engine) {
    char flip[48] = "", rotate[48] = "", brightness[32] = "", contrast[32] = "";
    if (a->hflip > 0)
        snprintf(flip, sizeof flip, ", flip with probability %g", a->hflip);
    if (a->rotate > 0)
        snprintf(rotate, sizeof rotate, ", rotation up to %g degree%s", a->rotate,
                 a->rotate == 1 ? "" : "s");
    if (a->brightness > 0)
        snprintf(brightness, sizeof brightness, ", brightness %g", a->brightness);
    if (a->contrast > 0)
        snprintf(contrast, sizeof contrast, ", contrast %g", a->contrast);
    chex_info("augmentation: crops of %g of the area or more%s%s%s%s%s (%s kernels)", a->crop_scale,
              a->antialias ? ", antialiased" : "", flip, rotate, brightness, contrast,
              by_engine ? "the engine's" : chex_augment_kernels_name());
}

static void describe_sync_bn(const struct chex_session *s, int images) {
    const int engines = chex_sync_bn_engines(s->sync_bn);
    char shared[96] = "";
    if (!s->config.sync_bn)
        return;
    if (!s->sync_bn) {
        chex_info("--sync-bn: one logical rank: its batch is the whole step already");
        return;
    }
    if (engines > 1)
        snprintf(shared, sizeof shared,
                 "; this rank has %d engines, which share its memory and %d thread%s", engines,
                 s->config.threads, s->config.threads == 1 ? "" : "s");
    chex_info("--sync-bn: batch norms use the %d images of a step; gradients are reduced after "
              "backward%s%s",
              images, shared,
              s->engine->impl->device
                  ? "; kernels are launched one by one, not as CUDA graphs, which is slower"
                  : "");
}

/* Network, engine, data, schedule. The memory is that of all engines of this rank. */
static void describe(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    const struct chex_train_needs *n = &s->needs;
    const int engines = chex_sync_bn_engines(s->sync_bn);
    char bytes[32], shares[32] = "";
    if (engines > 1)
        snprintf(shares, sizeof shares, " in %d engines", engines);
    chex_info(
        "%s, %d finding%s, %.2f M parameters, %d px, %.2f GFLOP an image (forward and backward)",
        s->net->model, s->net->classes, s->net->classes == 1 ? "" : "s",
        (double)s->net->param_count / 1e6, c->image_size,
        6 * chex_net_macs(s->net, c->image_size) / 1e9);
    chex_info("engine %s (%s), %s, %d thread%s, %s of memory%s", s->engine_name, s->engine_variant,
              chex_precision_names[c->precision], c->threads, c->threads == 1 ? "" : "s",
              chex_format_bytes(bytes, sizeof bytes,
                                n->on_device ? n->device : n->params + n->moments + n->work),
              shares);
    const size_t val = s->input.val ? s->input.val->rows : 0;
    const int images = c->batch * s->config.logical_ranks;
    chex_info("%zu training image%s, %zu validation image%s; batch %d x %d logical rank%s = %d "
              "image%s a step, %zu step%s an epoch",
              s->input.train->rows, chex_text_s(s->input.train->rows), val, chex_text_s(val),
              c->batch, s->config.logical_ranks, chex_text_s((uint64_t)s->config.logical_ranks),
              images, chex_text_s((uint64_t)images), s->steps, chex_text_s(s->steps));
    describe_sync_bn(s, images);
    chex_train_input_describe(&s->input, c);
    char clip[48] = "", average[48] = "";
    if (c->update.clip_norm > 0)
        snprintf(clip, sizeof clip, ", gradients clipped at norm %g", c->update.clip_norm);
    if (c->ema_decay > 0)
        snprintf(average, sizeof average, ", moving average of decay %g", c->ema_decay);
    chex_info("%s%s, lr %g (not scaled by ranks), %s%s%s", chex_optim_names[c->update.optim],
              c->update.nesterov ? " with Nesterov's momentum" : "", c->schedule.lr,
              chex_sched_names[c->schedule.kind], clip, average);
    char loss[512];
    chex_loss_weights_text(&s->loss, chex_set_class_names(s->input.train), s->net->classes, loss,
                           sizeof loss);
    if (loss[0])
        chex_info("%s; validation reports the plain bce", loss);
    if (s->lr_scales) {
        char rates[160] = "";
        chex_layer_rates_text(s->net, s->lr_scales, rates, sizeof rates);
        chex_info("%s", rates);
    }
    if (!c->head_only)
        describe_augmentation(&c->augment, s->input.resident.raw);
    const json_t *origins = json_object_get(c->options, "origins");
    const char *origin = json_string_value(json_object_get(origins, "hflip"));
    if (!s->at.step && !c->head_only && c->augment.hflip > 0 && origin &&
        strcmp(origin, "default") == 0)
        chex_info("--hflip %g is the default: a flip puts the heart on the other side; --hflip 0 "
                  "keeps the sides",
                  c->augment.hflip);
    if (s->at.step)
        chex_info("going on from step %llu (epoch %llu)", (unsigned long long)s->at.step,
                  (unsigned long long)s->at.epoch + 1);
}

/* If a validation is due, the position is the end of an epoch: the pipeline starts with the next
 * one. */
enum chex_status chex_session_open_pipeline(struct chex_session *s, struct chex_error *err) {
    return chex_train_input_pipeline(&s->input, &s->config,
                                     s->at.epoch + s->at.step_in_epoch / s->steps,
                                     s->at.step_in_epoch % s->steps, &s->pipeline, err);
}

/* --freeze must match parameters. Their names do not depend on the data. */
static enum chex_status check_freeze(const struct chex_train_config *c, struct chex_error *err) {
    struct chex_net *net = NULL;
    double *scales = NULL;
    CHEX_TRY(chex_net_create(c->model, 1, &net, err));
    const enum chex_status st = chex_layer_rates(net, c->layer_decay, c->freeze, &scales, err);
    free(scales);
    chex_net_destroy(net);
    return st;
}

/* What is wrong whatever the data are: before they are read, copied to nodes or counted. Options
 * may have been taken over from the checkpoint, so their own checks come again. */
static enum chex_status check_options(struct chex_session *s, struct chex_error *err) {
    struct chex_train_config *c = &s->config;
    const struct chex_schedule *p = &c->schedule;
    const struct chex_engine_impl *impl;
    if (p->min_lr > p->lr)
        return chex_error_set(err, CHEX_E_USAGE, "--min-lr %g: expected no more than --lr, %g",
                              p->min_lr, p->lr);
    CHEX_TRY(chex_update_check(&c->update, err));
    CHEX_TRY(chex_train_choose_logical_ranks(c, s->size, err));
    CHEX_TRY(check_freeze(c, err));
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
    st = s->rank == 0 && !s->config.prove ? chex_run_output_check(&s->output, &s->config, err)
                                          : CHEX_OK;
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(chex_session_agree(s, chex_train_input_same(&s->config, &s->world, err), err));
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
    CHEX_TRY(chex_train_input_open(&s->config, &s->world, true, &s->input, err));
    s->steps = chex_order_steps(&s->input.order);
    if (!s->net)
        CHEX_TRY(chex_net_create(s->config.model, s->input.train->classes, &s->net, err));
    return CHEX_OK;
}

/* Judges the labels of all ranks, and makes the loss from their counts. */
static enum chex_status open_labels(struct chex_session *s, struct chex_error *err) {
    struct chex_label_counts *counts =
        chex_alloc_zeroed((size_t)s->input.train->classes, sizeof *counts);
    enum chex_status st =
        chex_session_agree(s, counts ? CHEX_OK : chex_error_memory(err, NULL), err);
    if (st == CHEX_OK)
        st = chex_train_check_labels(&s->world, &s->input, s->config.pipeline, &s->gaps, counts,
                                     err);
    st = chex_session_agree(s, st, err);
    if (st == CHEX_OK)
        st = chex_session_make_loss(s, counts, err);
    free(counts);
    return st;
}

/* The state of the run. Collective. */
static enum chex_status open_state(struct chex_session *s, struct chex_error *err) {
    const enum chex_status st =
        s->restored ? chex_session_load_engine(s, err) : chex_session_init_state(s, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    return start_sync_bn(s, err);
}

/* Checkpoints that audits keep besides (chex_checkpoint_store_prune_audited). */
static int kept_by_audits(const struct chex_train_config *c) {
    return c->audit_steps && c->save_keep ? 2 : 0;
}

/* The reduction, rows in the engine's memory, and the sums of memory and disk space. */
static enum chex_status reserve(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    CHEX_TRY(create_reduce(s, err));
    CHEX_TRY(chex_train_input_make_resident(&s->input, c, s->engine, err));
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
    CHEX_TRY(chex_session_agree(s, chex_session_create_engine(s, err), err));
    CHEX_TRY(chex_session_agree(s, chex_session_choose_kernels(s, err), err));
    CHEX_TRY(chex_session_agree(s, open_state(s, err), err));
    CHEX_TRY(chex_session_agree(s, chex_session_open_timeline(s, err), err));
    CHEX_TRY(chex_session_agree(s, reserve(s, err), err));
    CHEX_TRY(chex_session_agree(s, chex_pass_audit_open(s, err), err));
    return chex_session_agree(s, chex_session_check_memory(s, err), err);
}

/* A process that ends without the others gives the checkpoint that is being written so long. */
static const double linger_s = 10;

/* Before the watch ends a job that hangs: with a timeline, and without. */
static void on_abort_timeline(void *session, const struct chex_mark *mark,
                              enum chex_status status) {
    struct chex_session *s = session;
    chex_session_write_stalled(s, mark);
    chex_checkpoint_writer_linger(s->output.writer, linger_s);
    if (s->config.requeue)
        chex_requeue_ask(s->world.slurm, status);
}

static void on_abort(void *session, const struct chex_mark *mark, enum chex_status status) {
    const struct chex_session *s = session;
    (void)mark;
    chex_checkpoint_writer_linger(s->output.writer, linger_s);
    if (s->config.requeue)
        chex_requeue_ask(s->world.slurm, status);
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
    st = chex_train_write_ranks(&s->world, &s->config, &s->input, &s->files, err);
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
    describe(s);
    warn_of_labels(&s->gaps);
    if (s->rank == 0) {
        warn_of_short_average(s);
        warn_of_cut_cosine(s);
    }
    return CHEX_OK;
}

void chex_session_close(struct chex_session *s) {
    chex_watchdog_destroy(s->world.watchdog);
    chex_run_output_release(&s->output, s->config.output_dir);
    chex_pipeline_destroy(s->pipeline);
    chex_pass_audit_close(s);
    chex_reduce_destroy(s->reduce);
    chex_timeline_destroy(s->timeline.file);
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

void chex_session_init(struct chex_session *s, const struct chex_train_config *config,
                       const struct chex_train_world *world) {
    *s = (struct chex_session){.config = *config,
                               .world = *world,
                               .rank = world->launch->rank,
                               .size = world->launch->size,
                               .opened_s = chex_clock_s(),
                               .output = {.lock = -1},
                               .needs = {.program = chex_memory_own_bytes("")}};
    chex_schedule_init(&s->config.schedule);
}

/* --job-comment. Rank 0. Only warns: the results are on disk. */
static void write_job_comment(const struct chex_session *s) {
    const double images =
        (double)(s->at.step - s->started_step) * s->config.batch * s->config.logical_ranks;
    const double seconds = s->reports.total.total;
    struct chex_error why = {0};
    enum chex_status st = CHEX_OK;
    if (!s->world.slurm)
        chex_warn("--job-comment: %s", s->world.slurm_why);
    else if (images > 0 && seconds > 0)
        st = chex_slurm_write_rate(s->world.slurm, images / seconds, &why);
    if (st != CHEX_OK)
        chex_warn("--job-comment: %s", why.text);
}

/* What each rank reports for the line about the job. */
struct rank_use {
    int32_t node, gpu;
    uint64_t bytes;
    double cores;
};

static struct rank_use own_use(const struct chex_session *s) {
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    const double cpu_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    const double elapsed_s = chex_clock_s() - s->opened_s;
    return (struct rank_use){.node = s->world.launch->node,
                             .gpu = s->config.device != NULL,
                             .bytes = chex_alloc_peak_rss_bytes(),
                             .cores = elapsed_s > 0 ? cpu_s / elapsed_s : 0};
}

static struct chex_job_used sum_use(const struct chex_session *s, const struct rank_use *ranks) {
    struct chex_job_used u = {.whole = s->started_step == 0 && chex_session_ended_by(s)};
    for (int r = 0; r < s->size; r++) {
        uint64_t bytes = 0;
        for (int other = 0; other < s->size; other++)
            bytes += ranks[other].node == ranks[r].node ? ranks[other].bytes : 0;
        u.node_bytes = bytes > u.node_bytes ? bytes : u.node_bytes;
        u.cores = ranks[r].cores > u.cores ? ranks[r].cores : u.cores;
        u.gpus += ranks[r].gpu;
    }
    return u;
}

/* In a job rank 0 logs what was asked, what was used and what to ask for. Collective. */
static enum chex_status log_job_use(struct chex_session *s, struct chex_error *err) {
    const struct rank_use mine = own_use(s);
    struct chex_job_asked asked;
    double elapsed_s;
    char text[512];
    chex_watchdog_wait(s->world.watchdog);
    CHEX_TRY(chex_group_exchange(s->world.coll->group, "use", &mine, sizeof mine, err));
    if (s->rank != 0 || !chex_job_asked_read(chex_clock_unix_s(), &asked, &elapsed_s))
        return CHEX_OK;
    struct chex_job_used used = sum_use(s, s->world.coll->group->all);
    used.elapsed_s = elapsed_s;
    chex_info("%s", chex_job_use_text(&asked, &used, text, sizeof text));
    return CHEX_OK;
}

static enum chex_status work(struct chex_session *s, struct chex_error *err) {
    enum chex_status st = chex_session_loop(s, err);
    if (st == CHEX_OK)
        st = log_job_use(s, err);
    if (s->config.job_comment && s->rank == 0 && (st == CHEX_OK || st == CHEX_E_PREEMPTED))
        write_job_comment(s);
    if (st == CHEX_E_PREEMPTED)
        chex_watchdog_saved(s->world.watchdog);
    struct chex_error why;
    if (s->rank == 0 && (st == CHEX_OK || st == CHEX_E_PREEMPTED) &&
        chex_provenance_end(s, &why) != CHEX_OK)
        chex_warn("%s", why.text);
    return chex_session_end_timeline(s, st, err);
}

enum chex_status chex_train_run(const struct chex_train_config *config,
                                const struct chex_train_world *world, bool *together_out,
                                struct chex_error *err) {
    struct chex_session s;
    chex_session_init(&s, config, world);
    enum chex_status st = chex_session_open(&s, err);
    if (st == CHEX_OK && s.complete)
        chex_info("%s: the run is complete at step %llu; nothing to do (raise --%s to go on)",
                  config->output_dir, (unsigned long long)s.at.step, chex_session_ended_by(&s));
    else if (st == CHEX_OK)
        st = work(&s, err);
    *together_out = st == CHEX_OK || s.together;
    if (world->end)
        *world->end = s.at;
    /* If only this rank failed, the reduction's thread may wait for other ranks for ever. The
     * caller aborts the job, so nothing is released here. */
    if (*together_out || s.size == 1)
        chex_session_close(&s);
    else
        chex_checkpoint_writer_linger(s.output.writer, linger_s);
    return st;
}
