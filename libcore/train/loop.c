/* SPDX-License-Identifier: Apache-2.0
 *
 * The step loop. A step: forward and backward of each logical rank of this process, with the
 * reduction in the background; wait for the reduction; update; exchange of step reports.
 *
 * Exactness: losses and gradients are added in an order that depends on logical ranks only, so with
 * --deterministic the bits do not depend on the number of processes. All ranks derive stop, save
 * and divergence from the same reports, so they act at the same step. A step allocates no memory,
 * except rank 0 for its files. Rank 0 writes one line of metrics per step.
 */
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "train/memory_budget.h"
#include "train/store/save.h"
#include "train/watch/pass_audit.h"
#include "train/watch/run_metrics.h"
#include "train/watch/run_timeline.h"

/* A beat in the current step, counted from 1 as in the metrics. */
static void beat(struct chex_session *s, enum chex_phase phase) {
    chex_watchdog_beat(s->world.watchdog, phase, s->at.step + 1);
}

static void span(const struct chex_session *s, enum chex_trace_kind kind, uint64_t from_ns,
                 uint64_t value) {
    chex_trace_span(s->timeline.trace, CHEX_TRACE_MAIN, kind, from_ns, value);
}

/* The next batch of this process, which is that of logical rank v. */
static enum chex_status next_batch(struct chex_session *s, int v, struct chex_ready *ready,
                                   struct chex_step_times *t, struct chex_error *err) {
    const uint64_t asked_ns = chex_trace_now(s->timeline.trace);
    beat(s, CHEX_PHASE_DATA);
    CHEX_TRY(chex_pipeline_next(s->pipeline, ready, err));
    t->data += ready->waited_s;
    span(s, CHEX_TRACE_DATA, asked_ns, (uint64_t)v);
    return CHEX_OK;
}

/* Forward, loss and backward of every logical rank of this process. Backward calls
 * chex_reduce_ready, so the reduction of finished buckets starts before the pass ends. */
static enum chex_status passes(struct chex_session *s, struct chex_step_times *t,
                               struct chex_error *err) {
    for (int v = s->input.run_from; v < s->input.run_to; v++) {
        struct chex_ready ready;
        struct chex_pass_result result = {0};
        CHEX_TRY(next_batch(s, v, &ready, t, err));
        beat(s, CHEX_PHASE_COMPUTE);
        const uint64_t began_ns = chex_trace_now(s->timeline.trace);
        const enum chex_status st = chex_pass_audit_step_pass(s, &ready, v, &result, err);
        chex_pipeline_release(s->pipeline, &ready);
        CHEX_TRY(st);
        chex_run_trace_pass(&s->timeline, s->needs.on_device, v, began_ns, &result);
        s->reports.own_losses[v - s->input.run_from] = result.loss;
        t->forward += result.forward_s;
        t->backward += result.backward_s;
    }
    return CHEX_OK;
}

/* --sync-bn: the passes of all logical ranks of this process at the same time. Then their gradients
 * go to the reduction. The times are those of the first. */
static enum chex_status passes_together(struct chex_session *s, struct chex_step_times *t,
                                        struct chex_error *err) {
    const int first = s->input.run_from, count = s->input.run_to - first;
    const size_t elements = s->net->state_count;
    struct chex_ready ready[CHEX_SYNC_BN_MOST];
    struct chex_batch batches[CHEX_SYNC_BN_MOST];
    struct chex_pass_result results[CHEX_SYNC_BN_MOST] = {0};
    for (int i = 0; i < count; i++) {
        CHEX_TRY(next_batch(s, first + i, &ready[i], t, err));
        batches[i] = ready[i].batch;
    }
    beat(s, CHEX_PHASE_COMPUTE);
    const uint64_t began_ns = chex_trace_now(s->timeline.trace);
    float *leaf = chex_reduce_leaf(s->reduce, first);
    const enum chex_status st = chex_sync_bn_pass(s->sync_bn, batches, leaf, results, err);
    for (int i = 0; i < count; i++)
        chex_pipeline_release(s->pipeline, &ready[i]);
    CHEX_TRY(st);
    chex_run_trace_pass(&s->timeline, s->needs.on_device, first, began_ns, &results[0]);
    t->forward += results[0].forward_s;
    t->backward += results[0].backward_s;
    for (int i = 0; i < count; i++) {
        if (i > 0)
            memcpy(chex_reduce_leaf(s->reduce, first + i), chex_sync_bn_grad(s->sync_bn, i),
                   elements * sizeof(float));
        chex_reduce_ready(s->reduce, 0, elements);
        s->reports.own_losses[i] = results[i].loss;
    }
    return CHEX_OK;
}

static enum chex_status reduce_and_update(struct chex_session *s, double lr,
                                          struct chex_step_times *t, struct chex_error *err) {
    const float *sum;
    const uint64_t step = s->at.step + 1, asked_ns = chex_trace_now(s->timeline.trace);
    beat(s, CHEX_PHASE_REDUCE);
    CHEX_TRY(chex_reduce_finish(s->reduce, &sum, &t->exposed, err));
    span(s, CHEX_TRACE_REDUCE, asked_ns, step);
    CHEX_TRY(chex_pass_audit_compare(s, err));
    const uint64_t began_ns = chex_trace_now(s->timeline.trace);
    beat(s, CHEX_PHASE_UPDATE);
    double start = chex_clock_s();
    struct chex_update u = s->config.update;
    u.lr = lr;
    u.step = (int64_t)step;
    u.grad_scale = 1.0 / s->config.logical_ranks;
    CHEX_TRY(s->sync_bn ? chex_sync_bn_update(s->sync_bn, &u, sum, err)
                        : chex_engine_update(s->engine, &u, sum, err));
    t->update = chex_clock_s() - start;
    span(s, CHEX_TRACE_UPDATE, began_ns, step);
    return CHEX_OK;
}

uint64_t chex_session_all_steps(const struct chex_session *s) {
    const uint64_t max = s->config.max_steps, all = (uint64_t)s->config.epochs * s->steps;
    return max && max < all ? max : all;
}

bool chex_session_out_of_steps(const struct chex_session *s) {
    return s->config.max_steps && s->at.step >= s->config.max_steps;
}

static bool time_to_save(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    if (c->save_every_steps && (s->at.step + 1) % c->save_every_steps == 0)
        return true;
    return c->save_every_ms && (chex_clock_s() - s->saved_s) * 1e3 >= (double)c->save_every_ms;
}

static enum chex_status exchange_reports(struct chex_session *s, struct chex_step_verdict *v,
                                         struct chex_error *err) {
    chex_time_left_check(&s->time_left, s->world.stop);
    chex_rapl_sample(s->energy.rapl);
    bool request[CHEX_REQUEST_COUNT];
    chex_request_files_take(&s->requests, chex_clock_s(), request);
    struct chex_error *fault = &s->output.fault;
    if (s->output.writer && fault->status == CHEX_OK)
        fault->status = chex_session_saved(s, CHEX_HELD_STAYS, fault);
    s->reports.own->wants_stop = fault->status != CHEX_OK     ? CHEX_STOP_FAILED
                                 : *s->world.stop             ? CHEX_STOP_PREEMPT
                                 : request[CHEX_REQUEST_STOP] ? CHEX_STOP_BY_FILE
                                                              : CHEX_STOP_NO;
    s->reports.own->wants_save = s->rank == 0 && (request[CHEX_REQUEST_SAVE] || time_to_save(s));
    if (request[CHEX_REQUEST_SAVE])
        chex_info("%s/save: the run saves after step %llu", s->config.output_dir,
                  (unsigned long long)s->at.step + 1);
    const uint64_t asked_ns = chex_trace_now(s->timeline.trace);
    chex_watchdog_wait(s->world.watchdog);
    CHEX_TRY(chex_step_reports_exchange(&s->reports, s->world.coll, v, err));
    span(s, CHEX_TRACE_EXCHANGE, asked_ns, s->at.step + 1);
    beat(s, CHEX_PHASE_REPORT);
    return CHEX_OK;
}

static enum chex_status diverged(struct chex_session *s, double loss, double lr,
                                 struct chex_error *err) {
    struct chex_error ignored;
    s->together = true;
    if (s->output.writer) /* the text below names the newest checkpoint that is whole */
        (void)chex_session_saved(s, CHEX_HELD_DROP, &ignored);
    return chex_error_set(err, CHEX_E_DIVERGED,
                          "the loss is %g at step %llu (epoch %llu, lr %g): lower --lr, add "
                          "--warmup-epochs, or look at the input; %s%s",
                          isnan(loss) ? (double)NAN : loss, (unsigned long long)s->at.step + 1,
                          (unsigned long long)s->at.epoch + 1, lr,
                          s->newest[0] ? "the newest checkpoint is " : "no checkpoint was written",
                          s->newest);
}

/* metrics.jsonl has each step. TensorBoard, run.html and --metrics get one each 10 s, so that they
 * show something before the first epoch ends. */
static enum chex_status write_step(struct chex_session *s, double loss, double lr, double seconds,
                                   struct chex_error *err) {
    enum { EVENT_EACH_S = 10 };
    const double images = (double)s->config.batch * s->config.logical_ranks, now = chex_clock_s();
    s->output.loss = loss;
    CHEX_TRY(chex_runfiles_step(&s->files, s->at.epoch + 1, s->at.step, loss, lr, seconds * 1e3,
                                images / seconds, err));
    if (s->output.step_event_s > 0 && now - s->output.step_event_s < EVENT_EACH_S)
        return CHEX_OK;
    s->output.step_event_s = now;
    chex_session_page_loss(s, loss, now);
    chex_run_metrics_write(s, -1);
    return chex_tfevents_scalar(s->output.events, "train/step_loss", (int64_t)s->at.step, loss,
                                err);
}

enum chex_status chex_session_step(struct chex_session *s, struct chex_step_verdict *v,
                                   struct chex_error *err) {
    double start = chex_clock_s();
    struct chex_step_times *t = &s->reports.step;
    memset(t, 0, sizeof *t);
    double lr = chex_schedule_lr(&s->config.schedule, s->at.epoch, s->at.step_in_epoch, s->steps);
    CHEX_TRY(s->sync_bn ? passes_together(s, t, err) : passes(s, t, err));
    CHEX_TRY(reduce_and_update(s, lr, t, err));
    t->total = chex_clock_s() - start;
    chex_time_left_step(&s->time_left, t->total);
    t->other = t->total - t->data - t->forward - t->backward - t->exposed - t->update;
    CHEX_TRY(exchange_reports(s, v, err));
    if (!isfinite(v->loss))
        return diverged(s, v->loss, lr, err);
    s->at.step++;
    s->at.step_in_epoch++;
    s->at.epoch_loss += v->loss;
    s->at.validation_due = s->at.step_in_epoch == s->steps || chex_session_out_of_steps(s);
    if (s->rank != 0 || s->config.prove)
        return CHEX_OK;
    double seconds = chex_clock_s() - start;
    double images = (double)s->config.batch * s->config.logical_ranks;
    chex_trace_count(s->timeline.trace, CHEX_TRACE_RATE, images / seconds);
    chex_trace_count(s->timeline.trace, CHEX_TRACE_LOSS, v->loss);
    struct chex_error why;
    chex_session_metric_written(s, write_step(s, v->loss, lr, seconds, &why), &why);
    return CHEX_OK;
}

/* Extrapolates the mean time per step of this process, which includes validation and checkpoints.
 */
static double run_left_s(const struct chex_session *s) {
    const uint64_t done = s->at.step - s->started_step;
    return (chex_clock_s() - s->started_s) / (double)done *
           (double)(chex_session_all_steps(s) - s->at.step);
}

static void show_progress(const struct chex_session *s, struct chex_progress *bar) {
    char note[160], left[32];
    const double left_s = run_left_s(s);
    const struct chex_step_times *t = &s->reports.epoch;
    snprintf(note, sizeof note, "loss %.4f, data wait %.1f %%%s%s",
             s->at.epoch_loss / (double)s->at.step_in_epoch,
             t->total > 0 ? 100 * t->data / t->total : 0, left_s > 0 ? ", the run ends in " : "",
             left_s > 0 ? chex_format_duration(left, sizeof left, left_s) : "");
    chex_progress_set(
        bar, s->at.step_in_epoch * (uint64_t)s->config.batch * (uint64_t)s->config.logical_ranks,
        note);
}

static enum chex_status save_and_wait(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(chex_session_checkpoint(s, false, 0, err));
    return chex_session_complete_save(s, err);
}

static enum chex_status save_and_leave(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(save_and_wait(s, err));
    s->together = true;
    return chex_error_set(err, CHEX_E_PREEMPTED,
                          "asked to stop: saved at step %llu; run again to go on",
                          (unsigned long long)s->at.step);
}

/* DIR/stop was created: the run ends as if it were complete. */
static enum chex_status save_and_end(struct chex_session *s, struct chex_error *err) {
    CHEX_TRY(save_and_wait(s, err));
    s->stopped = true;
    if (s->rank == 0)
        chex_info("%s/stop: saved at step %llu; run the same command again to go on",
                  s->config.output_dir, (unsigned long long)s->at.step);
    return CHEX_OK;
}

/* If rank 0 could not write a checkpoint or a line of metrics, all ranks return its error. */
static enum chex_status agree_on_fault(struct chex_session *s, struct chex_error *err) {
    if (s->rank == 0)
        *err = s->output.fault;
    return chex_session_agree(s, s->output.fault.status, err);
}

/* Runs to the end of the epoch, to --max-steps or to a request to stop. */
static enum chex_status steps_of_epoch(struct chex_session *s, struct chex_error *err) {
    char what[48];
    snprintf(what, sizeof what, "epoch %llu/%lld", (unsigned long long)s->at.epoch + 1,
             (long long)s->config.epochs);
    struct chex_progress *bar = chex_progress_create(
        what, "img",
        (uint64_t)s->steps * (uint64_t)s->config.batch * (uint64_t)s->config.logical_ranks,
        s->rank == 0);
    enum chex_status st = CHEX_OK;
    while (st == CHEX_OK && s->at.step_in_epoch < s->steps && !chex_session_out_of_steps(s) &&
           !s->stopped) {
        struct chex_step_verdict v = {0};
        const uint64_t step = s->at.step + 1, from_ns = chex_trace_now(s->timeline.trace);
        st = chex_session_step(s, &v, err);
        span(s, CHEX_TRACE_STEP, from_ns, step);
        if (st != CHEX_OK)
            break;
        show_progress(s, bar);
        s->save_due = v.save;
        if (v.stop == CHEX_STOP_FAILED)
            st = agree_on_fault(s, err);
        else if (v.stop == CHEX_STOP_PREEMPT)
            st = save_and_leave(s, err);
        else if (v.stop == CHEX_STOP_BY_FILE)
            st = save_and_end(s, err);
        else if (v.save && !s->at.validation_due)
            st = chex_session_checkpoint(s, false, 0, err);
    }
    chex_progress_destroy(bar, false);
    return st == CHEX_OK ? agree_on_fault(s, err) : st; /* of the last step's line */
}

static bool out_of_patience(const struct chex_session *s) {
    const struct chex_position *at = &s->at;
    return s->config.stop_after && at->has_best &&
           at->epoch >= at->best_epoch + s->config.stop_after;
}

const char *chex_session_ended_by(const struct chex_session *s) {
    if (s->at.epoch >= (uint64_t)s->config.epochs)
        return "epochs";
    if (s->at.validation_due)
        return NULL;
    return chex_session_out_of_steps(s) ? "max-steps" : out_of_patience(s) ? "stop-after" : NULL;
}

enum chex_status chex_session_loop(struct chex_session *s, struct chex_error *err) {
    s->saved_s = s->started_s = chex_clock_s();
    s->started_step = s->at.step;
    if (s->rank == 0)
        chex_time_left_start(&s->time_left, &s->config.save_before_end, s->world.slurm,
                             s->world.slurm_why, chex_train_file_bytes(s->net, &s->config));
    while (!chex_session_ended_by(s)) {
        const double started_s = chex_clock_s();
        const uint64_t first_step = s->at.step;
        CHEX_TRY(steps_of_epoch(s, err));
        if (s->stopped)
            return CHEX_OK;
        chex_watchdog_wait(s->world.watchdog);
        CHEX_TRY(chex_step_reports_gather_times(&s->reports, s->world.coll, err));
        CHEX_TRY(chex_session_end_steps(s, started_s, first_step, err));
    }
    CHEX_TRY(chex_session_complete_save(s, err));
    if (s->rank == 0)
        chex_session_summarise(s);
    return CHEX_OK;
}
