/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a session from the settings, up to the first step.
 *
 * The order is cheap checks first: options equal on all ranks, output folder, manifests, checkpoint
 * (open_parts); then data, engine, labels, reduction, memory and disk space. Only then do input
 * threads start and files appear (open_work). --plan stops before open_work. After each part all
 * ranks agree on the status, so that a failure on one rank ends all of them together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/lockfile.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "base/text.h"
#include "base/units.h"
#include "launch/same.h"
#include "model/safetensors.h"
#include "train/session.h"

enum chex_status chex_session_agree(struct chex_session *s, enum chex_status mine,
                                    struct chex_error *err) {
    const enum chex_phase phase = chex_watchdog_wait(s->watchdog);
    enum chex_status st = chex_group_agree(s->world.coll->group, mine, err);
    chex_watchdog_at(s->watchdog, phase);
    if (st != CHEX_OK)
        s->together = true;
    return st;
}

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
}

#define LOCK_NAME ".lock"

static enum chex_status lock_output(struct chex_session *s, struct chex_error *err) {
    static const char advice[] = "name a new folder with --output";
    const char *dir = s->config.output_dir;
    char subject[CHEX_ERROR_TEXT_BYTES];
    snprintf(subject, sizeof subject, "output folder %s", dir);
    if (!s->config.plan_only)
        return chex_lockfile_take(dir, LOCK_NAME, subject, advice, &s->lock, err);
    return chex_lockfile_check(dir, LOCK_NAME, subject, advice, err);
}

/* Rank 0 checks the output folder first, and locks it if it exists. make_output creates and locks a
 * new one later, when the run can begin. */
static enum chex_status check_output(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    char *name = NULL;
    if (chex_fs_exists(c->output_dir) && !chex_fs_is_dir(c->output_dir))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is a file, expected a folder",
                              c->output_dir);
    CHEX_TRY(chex_fs_check_mkdirs(c->output_dir, err));
    if (chex_runfiles_is_foreign(c->output_dir, &name)) {
        chex_error_set(
            err, CHEX_E_USAGE,
            "output folder %s holds no training run, but other files (%s): name a new or an empty "
            "folder with --output",
            c->output_dir, name ? name : "a file");
        free(name);
        return CHEX_E_USAGE;
    }
    if (strcmp(c->resume, "none") == 0 && chex_runfiles_has_run(c->output_dir))
        return chex_error_set(err, CHEX_E_USAGE,
                              "output folder %s already holds a run: go on with --resume auto, or "
                              "name a new folder with --output",
                              c->output_dir);
    if (c->timeline)
        CHEX_TRY(chex_timeline_check(c->timeline, err));
    if (!chex_fs_is_dir(c->output_dir))
        return CHEX_OK;
    CHEX_TRY(lock_output(s, err));
    if (!c->plan_only) /* before check_space, because this frees space */
        chex_runfiles_sweep(c->output_dir);
    return CHEX_OK;
}

static enum chex_status open_data(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(chex_train_input_open(&s->config, &s->world, true, &s->input, err));
    s->steps = chex_order_steps(&s->input.order);
    return CHEX_OK;
}

enum chex_status chex_session_create_engine(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    struct chex_engine_config e = {.net = s->net,
                                   .image_size = c->image_size,
                                   .batch = c->batch,
                                   .precision = c->precision,
                                   .threads = c->threads,
                                   .training = true,
                                   .device = c->device};
    return chex_engine_create(c->engine, &e, &s->engine, err);
}

/* Reads --init. The file's head is used only if its classes are the same: an equal number of other
 * classes is not enough. */
static enum chex_status read_init(const struct chex_session *s, float *state,
                                  struct chex_error *err) {
    const char *path = s->config.init;
    struct chex_safetensors_about about;
    bool head = false;
    CHEX_TRY(chex_safetensors_about(path, &about, err));
    const bool ours = chex_safetensors_may_be(&about, chex_set_class_names(s->input.train),
                                              s->input.train->classes);
    chex_safetensors_about_release(&about);
    CHEX_TRY(chex_safetensors_read(path, s->net, state, ours ? &head : NULL, err));
    chex_info("parameters from %s; the head is %s", path,
              head   ? "the file's"
              : ours ? "new, because the file has none of this shape"
                     : "new, because the file's is for other classes or another order of them");
    return CHEX_OK;
}

/* Checks that --init fits this network, before the data, because staging may take long. Its head
 * may be for other classes. */
static enum chex_status check_init(const struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    struct chex_net *net = NULL;
    if (s->rank != 0 || s->at.step || !c->init)
        return CHEX_OK;
    CHEX_TRY(chex_net_create(c->model, 1, &net, err));
    float *state = chex_alloc_aligned(net->state_count, sizeof *state);
    enum chex_status st =
        state ? chex_safetensors_read(c->init, net, state, NULL, err) : no_memory(err);
    free(state);
    chex_net_destroy(net);
    return st;
}

/* --init must be the same file on all ranks. Ignored if the run resumes. */
static enum chex_status same_init(struct chex_session *s, struct chex_error *err) {
    const char *const paths[] = {s->config.init};
    return s->at.step || !s->config.init
               ? CHEX_OK
               : chex_same_files(s->world.coll, s->world.launch, paths, 1, err);
}

/* New parameters: by seed, or from --init. Moments are zero. */
static enum chex_status start_afresh(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    float *state = chex_alloc_aligned(s->net->state_count, sizeof *state);
    if (!state)
        return no_memory(err);
    chex_net_init_state(s->net, c->seed, c->threads, state);
    enum chex_status st = c->init ? read_init(s, state, err) : CHEX_OK;
    if (st == CHEX_OK)
        st = chex_engine_set(s->engine, CHEX_STATE_PARAMS, state, err);
    memset(state, 0, s->net->state_count * sizeof *state);
    if (st == CHEX_OK)
        st = chex_engine_set(s->engine, CHEX_STATE_MOMENT1, state, err);
    if (st == CHEX_OK)
        st = chex_engine_set(s->engine, CHEX_STATE_MOMENT2, state, err);
    free(state);
    return st;
}

/* Longer than --stall-abort, so that the stall watch reports a late rank, once, before each
 * message of the reduction times out. */
static uint64_t message_timeout_ms(const struct chex_train_config *c) {
    return c->stall_abort_ms + c->stall_abort_ms / 4;
}

static enum chex_status create_reduce(struct chex_session *s, struct chex_error *err) {
    const struct chex_engine_impl *impl = s->engine->impl;
    const struct chex_reduce_memory *memory = NULL;
    if (impl->device)
        CHEX_TRY(impl->device->reduce_memory(s->engine->self, s->world.launch,
                                             message_timeout_ms(&s->config), &memory, err));
    struct chex_reduce_config r = {.coll = s->world.coll,
                                   .memory = memory,
                                   .logical_ranks = s->logical_ranks,
                                   .count = s->net->state_count,
                                   .deterministic = s->config.deterministic,
                                   .trace = s->trace};
    CHEX_TRY(chex_reduce_create(&r, &s->reduce, err));
    int longest = 0;
    for (int k = 0; k < s->size; k++) {
        int from, to;
        chex_reduce_run(s->logical_ranks, s->size, k, &from, &to);
        longest = to - from > longest ? to - from : longest;
    }
    s->report_bytes = sizeof(struct chex_step_report) + (size_t)longest * sizeof(double);
    s->report = chex_alloc_zeroed(1, s->report_bytes);
    s->reports = chex_alloc_zeroed((size_t)s->size, s->report_bytes);
    s->epoch_times = chex_alloc_zeroed((size_t)s->size, sizeof *s->epoch_times);
    s->total_times = chex_alloc_zeroed((size_t)s->size, sizeof *s->total_times);
    return s->report && s->reports && s->epoch_times && s->total_times ? CHEX_OK : no_memory(err);
}

static enum chex_status make_output(struct chex_session *s, struct chex_error *err) {
    const char *dir = s->config.output_dir;
    if (s->lock >= 0)
        return CHEX_OK;
    CHEX_TRY(lock_output(s, err));
    if (chex_runfiles_has_run(dir))
        return chex_error_set(err, CHEX_E_ENV,
                              "another run has begun and ended in output folder %s meanwhile: run "
                              "again to go on with it, or name a new folder with --output",
                              dir);
    return CHEX_OK;
}

static enum chex_status check_space(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    return chex_checkpoint_store_check_space(c->output_dir, c->save_keep,
                                             chex_session_file_bytes(s), &s->space, err);
}

/* If the run resumes from an older checkpoint, sets the later ones aside. */
static enum chex_status settle_checkpoints(struct chex_session *s, struct chex_error *err) {
    struct chex_position *at = &s->at;
    if (!s->newest[0])
        return CHEX_OK;
    bool best;
    CHEX_TRY(chex_checkpoint_store_go_on_from(s->config.output_dir, s->newest, at->step,
                                              at->has_best ? at->best_step : 0, &best, err));
    if (at->has_best && !best)
        chex_info("%s/best.h5 is not there or is damaged: the next validation writes a new one",
                  s->config.output_dir);
    at->has_best = at->has_best && best;
    return CHEX_OK;
}

/* For a complete run: repairs last.h5 and best.h5 if it ended while it wrote its last checkpoint.
 */
static enum chex_status settle_names(struct chex_session *s, struct chex_error *err) {
    const struct chex_position *at = &s->at;
    bool best;
    if (s->rank != 0 || strcmp(s->config.resume, "auto") != 0)
        return CHEX_OK;
    return chex_checkpoint_store_set_names(s->config.output_dir, s->newest, at->step,
                                           at->has_best ? at->best_step : 0, &best, err);
}

/* Rank 0: creates the folder, config.json and the metric files, and allocates the snapshot. */
static enum chex_status open_files(struct chex_session *s, struct chex_error *err) {
    if (s->space.warning[0])
        chex_warn("%s", s->space.warning);
    CHEX_TRY(make_output(s, err));
    if (s->config.timeline)
        CHEX_TRY(chex_fs_make_folder_of(s->config.timeline, err));
    CHEX_TRY(chex_runfiles_init(&s->files, s->config.output_dir, err));
    CHEX_TRY(settle_checkpoints(s, err));
    CHEX_TRY(chex_runfiles_json(&s->files, "config.json", json_incref(s->config.options), err));
    CHEX_TRY(chex_runfiles_open_metrics(&s->files, s->at.step, s->at.validation_due, err));
    const uint64_t next = s->at.step + !s->at.validation_due; /* the next step with results */
    CHEX_TRY(chex_tfevents_create(s->config.output_dir, s->world.launch->host, (int64_t)next,
                                  &s->events, err));
    struct chex_checkpoint *c = &s->snapshot;
    snprintf(c->model, sizeof c->model, "%s", s->net->model);
    c->classes = s->net->classes;
    c->class_names = s->input.train->class_names;
    c->image_size = s->config.image_size;
    c->params = chex_alloc_aligned(s->net->state_count, sizeof(float));
    c->moment1 = chex_alloc_aligned(s->net->state_count, sizeof(float));
    c->moment2 = chex_alloc_aligned(s->net->state_count, sizeof(float));
    return c->params && c->moment1 && c->moment2 ? CHEX_OK : no_memory(err);
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
    char rotate[48] = "", brightness[32] = "", contrast[32] = "";
    if (a->rotate > 0)
        snprintf(rotate, sizeof rotate, ", rotation up to %g degree%s", a->rotate,
                 a->rotate == 1 ? "" : "s");
    if (a->brightness > 0)
        snprintf(brightness, sizeof brightness, ", brightness %g", a->brightness);
    if (a->contrast > 0)
        snprintf(contrast, sizeof contrast, ", contrast %g", a->contrast);
    chex_info("augmentation: crops of %g of the area or more%s, flip%s%s%s (%s kernels)",
              a->crop_scale, a->antialias ? ", antialiased" : "", rotate, brightness, contrast,
              by_engine ? "the engine's" : chex_augment_kernels_name());
}

static void describe(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    const struct chex_engine_impl *impl = s->engine->impl;
    char bytes[32];
    chex_info(
        "%s, %d class%s, %.2f M parameters, %d px, %.2f GFLOP an image (forward and backward)",
        s->net->model, s->net->classes, s->net->classes == 1 ? "" : "es",
        (double)s->net->param_count / 1e6, c->image_size,
        6 * chex_net_macs(s->net, c->image_size) / 1e9);
    chex_info("engine %s (%s), %s, %d thread%s, %s of memory", impl->name,
              impl->variant(s->engine->self), chex_precision_names[c->precision], c->threads,
              c->threads == 1 ? "" : "s",
              chex_format_bytes(bytes, sizeof bytes, impl->bytes(s->engine->self)));
    const size_t val = s->input.val ? s->input.val->rows : 0;
    const int images = c->batch * s->logical_ranks;
    chex_info("%zu training image%s, %zu validation image%s; batch %d x %d logical rank%s = %d "
              "image%s a step, %zu step%s an epoch",
              s->input.train->rows, chex_text_s(s->input.train->rows), val, chex_text_s(val),
              c->batch, s->logical_ranks, chex_text_s((uint64_t)s->logical_ranks), images,
              chex_text_s((uint64_t)images), s->steps, chex_text_s(s->steps));
    chex_train_input_describe(&s->input, c);
    chex_info("%s, lr %g (not scaled by ranks), %s", chex_optim_names[c->update.optim],
              c->schedule.lr, chex_sched_names[c->schedule.kind]);
    describe_augmentation(&c->augment, s->input.resident.raw);
    if (s->at.step)
        chex_info("going on from step %llu (epoch %llu)", (unsigned long long)s->at.step,
                  (unsigned long long)s->at.epoch + 1);
}

static enum chex_status choose_logical_ranks(struct chex_session *s, struct chex_error *err) {
    if (s->config.logical_ranks == 0)
        s->config.logical_ranks = s->size;
    s->logical_ranks = s->config.logical_ranks;
    if (s->logical_ranks < s->size)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--logical-ranks %d, but the job has %d ranks: expected at least as "
                              "many",
                              s->logical_ranks, s->size);
    chex_reduce_run(s->logical_ranks, s->size, s->rank, &s->run_from, &s->run_to);
    return CHEX_OK;
}

/* If a validation is due, the position is the end of an epoch: the pipeline starts with the next
 * one. */
static enum chex_status open_pipeline(struct chex_session *s, struct chex_error *err) {
    return chex_train_input_pipeline(&s->input, &s->config,
                                     s->at.epoch + s->at.step_in_epoch / s->steps,
                                     s->at.step_in_epoch % s->steps, &s->pipeline, err);
}

/* Checked again, because rates may have been taken over from the checkpoint. */
static enum chex_status check_rates(const struct chex_schedule *p, struct chex_error *err) {
    return p->min_lr > p->lr
               ? chex_error_set(err, CHEX_E_USAGE, "--min-lr %g: expected no more than --lr, %g",
                                p->min_lr, p->lr)
               : CHEX_OK;
}

static enum chex_status open_parts(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(chex_session_check_options(s, err));
    enum chex_status st = s->rank == 0 ? check_output(s, err) : CHEX_OK;
    CHEX_TRY(chex_session_agree(s, st, err));
    if (s->rank == 0)
        chex_members_read(s->config.data_dir, s->members);
    st = chex_train_input_same(&s->config, &s->world, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    chex_watchdog_at(s->watchdog, CHEX_PHASE_RESTORE);
    CHEX_TRY(chex_session_agree(s, chex_session_restore(s, err), err));
    chex_watchdog_at(s->watchdog, CHEX_PHASE_SETUP);
    if (s->complete)
        return CHEX_OK;
    CHEX_TRY(chex_session_agree(s, check_rates(&s->config.schedule, err), err));
    CHEX_TRY(chex_session_agree(s, same_init(s, err), err));
    CHEX_TRY(chex_session_agree(s, check_init(s, err), err));
    st = choose_logical_ranks(s, err);
    if (st == CHEX_OK)
        st = open_data(s, err);
    if (st == CHEX_OK && !s->net)
        st = chex_net_create(s->config.model, s->input.train->classes, &s->net, err);
    if (st == CHEX_OK && !s->engine)
        st = chex_session_create_engine(s, err);
    if (st == CHEX_OK && s->at.step == 0)
        st = start_afresh(s, err);
    /* Agree before create_reduce: with memory of the engine (a GPU) it is collective. */
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(chex_session_agree(s, chex_session_check_labels(s, err), err));
    CHEX_TRY(chex_session_agree(s, chex_session_open_timeline(s, err), err));
    st = create_reduce(s, err);
    if (st == CHEX_OK)
        chex_watchdog_reduce(s->watchdog, s->reduce);
    if (st == CHEX_OK)
        st = chex_train_input_make_resident(&s->input, &s->config, s->engine, err);
    if (st == CHEX_OK)
        st = chex_session_measure(s, err);
    if (st == CHEX_OK && s->rank == 0)
        st = check_space(s, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(chex_session_agree(s, chex_session_check_memory(s, err), err));
    return CHEX_OK;
}

/* Starts the input threads and creates the files of the run. */
static enum chex_status open_work(struct chex_session *s, struct chex_error *err) {
    enum chex_status st = open_pipeline(s, err);
    if (st == CHEX_OK && s->timeline)
        chex_watchdog_on_abort(s->watchdog, chex_session_write_stalled, s);
    if (st == CHEX_OK && s->rank == 0)
        st = open_files(s, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    return chex_session_agree(s, chex_session_write_ranks(s, err), err);
}

/* The stall watch starts first: a library may hang in the set-up too. */
static enum chex_status start_watch(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    const enum chex_status st = chex_watchdog_create(s->world.launch, c->stall_warn_ms,
                                                     c->stall_abort_ms, &s->watchdog, err);
    s->world.watchdog = s->watchdog;
    return chex_session_agree(s, st, err);
}

enum chex_status chex_session_open(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(start_watch(s, err));
    CHEX_TRY(open_parts(s, err));
    if (s->config.plan_only)
        return CHEX_OK;
    if (s->complete)
        return chex_session_agree(s, settle_names(s, err), err);
    CHEX_TRY(open_work(s, err));
    describe(s);
    warn_of_labels(&s->gaps);
    return CHEX_OK;
}

void chex_session_close(struct chex_session *s) {
    chex_watchdog_destroy(s->watchdog);
    chex_pipeline_destroy(s->pipeline);
    chex_reduce_destroy(s->reduce);
    chex_timeline_destroy(s->timeline);
    chex_tfevents_close(s->events);
    chex_runfiles_release(&s->files);
    chex_lockfile_release(s->config.output_dir, LOCK_NAME, s->lock, false);
    free(s->snapshot.params);
    free(s->snapshot.moment1);
    free(s->snapshot.moment2);
    free(s->report);
    free(s->reports);
    free(s->epoch_times);
    free(s->total_times);
    chex_engine_destroy(s->engine);
    chex_train_input_close(&s->input);
    chex_net_destroy(s->net);
}

void chex_session_init(struct chex_session *s, const struct chex_train_config *config,
                       const struct chex_train_world *world) {
    *s = (struct chex_session){.config = *config,
                               .world = *world,
                               .rank = world->launch->rank,
                               .size = world->launch->size,
                               .lock = -1,
                               .needs = {.program = chex_memory_own_bytes("")}};
    chex_schedule_init(&s->config.schedule);
}

static enum chex_status work(struct chex_session *s, struct chex_error *err) {
    const enum chex_status st = chex_session_loop(s, err);
    if (st == CHEX_E_PREEMPTED)
        chex_watchdog_saved(s->watchdog);
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
                  config->output_dir, (unsigned long long)s.at.step,
                  s.at.epoch < (uint64_t)s.config.epochs ? "max-steps" : "epochs");
    else if (st == CHEX_OK)
        st = work(&s, err);
    *together_out = st == CHEX_OK || s.together;
    if (world->end)
        *world->end = s.at;
    /* If only this rank failed, the reduction's thread may wait for other ranks for ever. The
     * caller aborts the job, so nothing is released here. */
    if (*together_out || s.size == 1)
        chex_session_close(&s);
    return st;
}
