/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows the last step of an epoch, or the last step that --max-steps allows: snapshot,
 * validate, advance the schedule, report, save. Also the closing lines of a run.
 *
 * The validation changes no state, so the state before it and after it differ in meta only. The
 * snapshot is taken before. If the validation takes longer than short_validation_s, or ends early,
 * the state before it is written, and the next start repeats only the validation
 * (chex_position.validation_due). If it is shorter, one file is written, with the result.
 */
#include "train/loop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "base/units.h"
#include "report/run_page.h"
#include "train/store/save.h"
#include "train/validate.h"

static json_t *shares(const struct chex_bottleneck *b) {
    return chex_result(
        CHEX_FIELD("data_wait", b->data_share), CHEX_FIELD("forward", b->forward_share),
        CHEX_FIELD("backward", b->backward_share), CHEX_FIELD("allreduce_exposed", b->reduce_share),
        CHEX_FIELD("optimizer", b->update_share), CHEX_FIELD("other", b->other_share));
}

struct epoch_result {
    double loss, seconds, images_per_s, lr;
    struct chex_validation val; /* NaN without a validation */
    uint64_t epoch, steps;      /* number of the epoch, from 1; its steps that this process did */
    bool whole, validated, best, lowered;
    struct chex_grad_norms norms; /* with --clip-norm: of the steps of this process */
};

/* The AUROC of each finding: a number, or null if it is undefined. null without a validation.
 * group: 0: of all rows; 1 + i: of the rows of set i. */
static json_t *finding_aurocs(const struct chex_session *s, const struct epoch_result *e,
                              int group) {
    const double *aurocs = s->output.aurocs + group * s->net->classes;
    if (!e->validated)
        return json_null();
    json_t *all = json_object();
    for (int c = 0; c < s->net->classes; c++)
        json_object_set_new(all, s->input.train->class_names[c], chex_json_real(aurocs[c]));
    return all;
}

/* The mean over the findings with an AUROC; NaN: there is none. */
static double mean_auroc(const struct chex_session *s, int group) {
    const double *aurocs = s->output.aurocs + group * s->net->classes;
    double sum = 0;
    int defined = 0;
    for (int c = 0; c < s->net->classes; c++)
        if (isfinite(aurocs[c])) {
            sum += aurocs[c];
            defined++;
        }
    return defined ? sum / defined : NAN;
}

/* Adds to the line the results of each set, if there are several. */
static void add_sets(const struct chex_session *s, const struct epoch_result *e, json_t *line) {
    const struct chex_sources *sources = &s->input.selection->sources;
    if (!e->validated || sources->count < 2)
        return;
    json_t *sets = json_object();
    for (int i = 0; i < sources->count; i++)
        json_object_set_new(sets, sources->set[i].name,
                            chex_result(CHEX_FIELD("val_auroc_mean", mean_auroc(s, i + 1)),
                                        CHEX_FIELD("auroc", finding_aurocs(s, e, i + 1))));
    json_object_set_new(line, "sets", sets);
}

/* Logs the mean AUROC of each set, if there are several. */
static void log_sets(const struct chex_session *s, const struct epoch_result *e) {
    const struct chex_sources *sources = &s->input.selection->sources;
    for (int i = 0; e->validated && sources->count > 1 && i < sources->count; i++) {
        const double auroc = mean_auroc(s, i + 1);
        if (isfinite(auroc))
            chex_info("  set %s: val AUROC %.4f", sources->set[i].name, auroc);
        else
            chex_info("  set %s: val AUROC undefined", sources->set[i].name);
    }
}

static enum chex_status write_aurocs(struct chex_session *s, struct chex_error *err) {
    for (int c = 0; c < s->net->classes; c++) {
        char tag[128];
        snprintf(tag, sizeof tag, "auroc/%s", s->input.train->class_names[c]);
        if (isfinite(s->output.aurocs[c]))
            CHEX_TRY(chex_tfevents_scalar(s->output.events, tag, (int64_t)s->at.step,
                                          s->output.aurocs[c], err));
    }
    return CHEX_OK;
}

static enum chex_status write_scalars(struct chex_session *s, const struct epoch_result *e,
                                      struct chex_error *err) {
    const struct {
        const char *tag;
        double value;
        bool known;
    } scalars[] = {{"train/loss", e->loss, true},
                   {"train/lr", e->lr, true},
                   {"train/images_per_s", e->images_per_s, true},
                   {"val/loss", e->val.loss, e->validated},
                   {"val/auroc_mean", e->val.auroc, e->validated && isfinite(e->val.auroc)}};
    for (size_t i = 0; i < CHEX_COUNT(scalars); i++)
        if (scalars[i].known)
            CHEX_TRY(chex_tfevents_scalar(s->output.events, scalars[i].tag, (int64_t)s->at.step,
                                          scalars[i].value, err));
    return e->validated ? write_aurocs(s, err) : CHEX_OK;
}

/* The bottleneck, and the node of its slowest rank. */
struct times {
    struct chex_bottleneck b;
    char host[CHEX_HOST_BYTES];
};

static void find_times(const struct chex_session *s, const struct chex_step_times *of_ranks,
                       struct times *out) {
    chex_bottleneck_find(of_ranks, s->size, &out->b);
    chex_launch_host(s->world.launch, out->b.slowest_rank, out->host, sizeof out->host);
}

static void log_times(const char *what, const struct times *t) {
    const struct chex_bottleneck *b = &t->b;
    chex_info("  %s: data wait %.1f %%, forward %.1f %%, backward %.1f %%, all-reduce exposed "
              "%.1f %%, optimiser %.1f %%, other %.1f %%; slowest rank %d on %s (%.2f of the "
              "mean); %s",
              what, 100 * b->data_share, 100 * b->forward_share, 100 * b->backward_share,
              100 * b->reduce_share, 100 * b->update_share, 100 * b->other_share, b->slowest_rank,
              t->host, b->slowest_ratio, b->advice);
}

/* Logs the time shares when the advice changes. metrics.jsonl has them for each epoch. */
static void log_result(struct chex_session *s, const struct epoch_result *e,
                       const struct times *times) {
    char validation[96] = "no validation set", speed[48] = "", within[64] = "";
    if (e->validated && (int)e->val.defined)
        snprintf(validation, sizeof validation, "val loss %.4f, val AUROC %.4f (%d finding%s)",
                 e->val.loss, e->val.auroc, (int)e->val.defined,
                 (int)e->val.defined == 1 ? "" : "s");
    else if (e->validated)
        snprintf(validation, sizeof validation, "val loss %.4f, val AUROC undefined", e->val.loss);
    if (e->steps)
        snprintf(speed, sizeof speed, ", %.1f img/s", e->images_per_s);
    if (!e->whole)
        snprintf(within, sizeof within, ", stopped at step %llu (--max-steps)",
                 (unsigned long long)s->at.step);
    chex_info("epoch %llu/%lld%s: loss %.4f, %s%s%s, lr %g", (unsigned long long)e->epoch,
              (long long)s->config.epochs, within, e->loss, validation,
              e->best ? ", best so far" : "", speed, e->lr);
    log_sets(s, e);
    if (e->steps && strcmp(s->advice, times->b.advice) != 0) {
        snprintf(s->advice, sizeof s->advice, "%s", times->b.advice);
        log_times("time", times);
    }
    if (e->lowered)
        chex_info("  plateau: the validation loss has stopped falling; lr is %g from here",
                  chex_schedule_lr(&s->config.schedule, s->at.epoch, 0, s->steps));
}

/* The page is a view of the metrics: without it the run goes on. False: it was not written. */
static bool write_page(const struct chex_session *s) {
    const struct chex_run_page page = {.dir = s->config.output_dir,
                                       .model = s->net->model,
                                       .epochs = s->config.epochs,
                                       .options = json_object_get(s->config.options, "options"),
                                       .rows = s->files.epochs,
                                       .losses = &s->output.losses,
                                       .epoch = s->at.epoch + 1,
                                       .step = s->at.step_in_epoch,
                                       .steps = s->steps};
    struct chex_error why = {0};
    if (chex_run_page_write(&page, &why) == CHEX_OK)
        return true;
    chex_warn("%s", why.text);
    return false;
}

void chex_session_page_loss(struct chex_session *s, double loss, double now_s) {
    static const double page_each_s = 30;
    if (json_array_size(s->files.epochs))
        return;
    chex_run_losses_add(&s->output.losses, s->at.step, loss);
    if (s->output.page_s > 0 && now_s - s->output.page_s < page_each_s)
        return;
    s->output.page_s = write_page(s) ? now_s : INFINITY;
}

static enum chex_status report(struct chex_session *s, const struct epoch_result *e,
                               struct chex_error *err) {
    struct times times;
    find_times(s, s->reports.epoch_times, &times);
    const struct chex_bottleneck *b = &times.b;
    log_result(s, e, &times);
    CHEX_TRY(write_scalars(s, e, err));
    const double norm_mean = e->norms.sum / (double)e->norms.updates;
    json_t *line = chex_result(
        CHEX_FIELD("schema", 1), CHEX_FIELD("kind", e->whole ? "epoch" : "validation"),
        CHEX_MEMBER(e, epoch), CHEX_MEMBER(&s->at, step), CHEX_MEMBER(e, loss),
        CHEX_FIELD("val_loss", e->val.loss), CHEX_FIELD("val_training_loss", e->val.training_loss),
        CHEX_FIELD("val_auroc_mean", e->val.auroc),
        CHEX_FIELD("val_auroc_defined_count", e->val.defined),
        CHEX_FIELD("auroc", finding_aurocs(s, e, 0)), CHEX_MEMBER(e, lr),
        CHEX_FIELD_IF(e->norms.updates, "grad_norm_mean", norm_mean),
        CHEX_FIELD_IF(e->norms.updates, "grad_norm_largest", e->norms.largest),
        CHEX_FIELD("epoch_s", e->seconds), CHEX_MEMBER(e, images_per_s), CHEX_MEMBER(e, best),
        CHEX_FIELD("time_shares", shares(b)), CHEX_MEMBER(b, slowest_rank),
        CHEX_FIELD("slowest_host", times.host), CHEX_MEMBER(b, slowest_ratio),
        CHEX_MEMBER(b, advice));
    add_sets(s, e, line);
    CHEX_TRY(chex_runfiles_metric(&s->files, line, err));
    if (json_array_size(s->files.epochs))
        (void)write_page(s);
    return CHEX_OK;
}

/* Best by validation AUROC. If that is undefined, by the training's loss on the validation set;
 * without one, by training loss. */
static bool is_best(struct chex_session *s, const struct epoch_result *e) {
    double loss = e->validated ? e->val.training_loss : e->loss;
    double score = e->validated && isfinite(e->val.auroc) ? e->val.auroc : -loss;
    if (s->at.has_best && score <= s->at.best_score)
        return false;
    s->at.has_best = true;
    s->at.best_score = score;
    s->at.best_epoch = e->epoch;
    s->at.best_step = s->at.step;
    return true;
}

/* Whether the end of this epoch is saved, whatever its result. */
static bool is_save_due(const struct chex_session *s, const struct epoch_result *e) {
    const uint64_t every = s->config.save_every_epochs;
    return !every || e->epoch % every == 0 || !e->whole;
}

/* For how long the checkpoint before the validation is held back. */
static double hold_s(const struct chex_session *s, const struct epoch_result *e) {
    static const double short_validation_s = 10;
    if (s->save_due)
        return 0;
    return is_save_due(s, e) ? short_validation_s : INFINITY;
}

/* A validation that ends early: the state before it must be on disk. Returns the more important of
 * the two errors: a save that failed comes before a request to stop. */
static enum chex_status leave_validation(struct chex_session *s, enum chex_status st,
                                         struct chex_error *err) {
    struct chex_error fault = {0};
    if (!s->together || chex_session_complete_save(s, &fault) == CHEX_OK || st != CHEX_E_PREEMPTED)
        return st;
    *err = fault;
    return fault.status;
}

/* Hands the state to the writer, then validates. After a resume the steps are saved already
 * (e->steps is 0). */
static enum chex_status validate(struct chex_session *s, struct epoch_result *e,
                                 struct chex_error *err) {
    if (e->steps)
        CHEX_TRY(chex_session_checkpoint(s, false, hold_s(s, e), err));
    chex_watchdog_beat(s->world.watchdog, CHEX_PHASE_VALIDATE, s->at.step);
    const uint64_t from_ns = chex_trace_now(s->timeline.trace);
    enum chex_status st = chex_session_validate(s, s->output.aurocs, &e->val, err);
    chex_trace_span(s->timeline.trace, CHEX_TRACE_MAIN, CHEX_TRACE_VALIDATE, from_ns, s->at.step);
    if (st != CHEX_OK)
        st = leave_validation(s, st, err);
    if (st == CHEX_E_PREEMPTED)
        return chex_error_set(err, st,
                              "asked to stop: saved at step %llu, before its validation; run again "
                              "to go on",
                              (unsigned long long)s->at.step);
    if (st == CHEX_E_DIVERGED) { /* add the same advice as in a step */
        const struct chex_error why = *err;
        return chex_error_set(
            err, st,
            "validation at step %llu: %s: lower --lr, or add --warmup-epochs, and "
            "start a new run in another --output",
            (unsigned long long)s->at.step, why.text);
    }
    return st == CHEX_OK ? st
                         : chex_error_prefix(err, st, "validation at step %llu",
                                             (unsigned long long)s->at.step);
}

/* Tells the schedule about the epoch and moves to the next one. */
static void begin_next_epoch(struct chex_session *s, struct epoch_result *e) {
    e->lowered =
        chex_schedule_observe(&s->config.schedule, e->validated ? e->val.training_loss : e->loss);
    s->at.epoch++;
    s->at.step_in_epoch = 0;
    s->at.epoch_loss = 0;
}

enum chex_status chex_session_end_steps(struct chex_session *s, double started_s,
                                        uint64_t first_step, struct chex_error *err) {
    struct epoch_result e = {.loss = s->at.epoch_loss / (double)s->at.step_in_epoch,
                             .val = {.loss = NAN, .training_loss = NAN, .auroc = NAN},
                             .seconds = chex_clock_s() - started_s,
                             .images_per_s = NAN,
                             .epoch = s->at.epoch + 1,
                             .steps = s->at.step - first_step,
                             .whole = s->at.step_in_epoch == s->steps,
                             .validated = s->input.val != NULL};
    if (e.steps && e.seconds > 0)
        e.images_per_s = (double)e.steps * s->config.batch * s->config.logical_ranks / e.seconds;
    e.lr = chex_schedule_lr(&s->config.schedule, s->at.epoch, s->at.step_in_epoch - 1, s->steps);
    CHEX_TRY(chex_engine_grad_norms(s->engine, &e.norms, err));
    if (e.validated)
        CHEX_TRY(validate(s, &e, err));
    e.best = is_best(s, &e);
    s->at.validation_due = false;
    if (e.whole)
        begin_next_epoch(s, &e);
    chex_watchdog_beat(s->world.watchdog, CHEX_PHASE_REPORT, s->at.step);
    enum chex_status st = s->rank == 0 ? report(s, &e, err) : CHEX_OK;
    if (st != CHEX_OK)
        chex_session_write_failed(s, st, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    if (e.best || chex_session_ended_by(s) || is_save_due(s, &e))
        CHEX_TRY(chex_session_checkpoint(s, e.best, 0, err));
    chex_watchdog_wait(s->world.watchdog);
    return chex_timeline_align(s->timeline.file, err);
}

/* The best result, and the measure that best.h5 is chosen by. */
static void describe_best(const struct chex_session *s, char *text, size_t size) {
    const struct chex_position *at = &s->at;
    const unsigned long long epoch = at->best_epoch;
    if (chex_best_is_auroc(at))
        snprintf(text, size, "best val AUROC %.4f in epoch %llu", at->best_score, epoch);
    else
        snprintf(text, size, "%sbest %s loss %.4f in epoch %llu",
                 s->input.val ? "val AUROC undefined, " : "", s->input.val ? "val" : "training",
                 fabs(at->best_score), epoch);
}

void chex_session_summarise(const struct chex_session *s) {
    const struct chex_position *at = &s->at;
    const char *dir = s->config.output_dir;
    const char *limit = chex_session_ended_by(s);
    char best[96], seconds[32], why[80] = "";
    struct times times;
    if (limit && strcmp(limit, "stop-after") == 0)
        snprintf(why, sizeof why, " (stopped by --stop-after: %llu epoch%s without a better one)",
                 (unsigned long long)(at->epoch - at->best_epoch),
                 chex_text_s(at->epoch - at->best_epoch));
    else if (chex_session_out_of_steps(s))
        snprintf(why, sizeof why, " (stopped by --max-steps)");
    describe_best(s, best, sizeof best);
    const uint64_t steps = at->step - s->started_step;
    chex_info("done: %llu step%s, %llu of %lld epoch%s%s; %s; %llu step%s of this start took %s",
              (unsigned long long)at->step, chex_text_s(at->step), (unsigned long long)at->epoch,
              (long long)s->config.epochs, chex_text_s((uint64_t)s->config.epochs), why, best,
              (unsigned long long)steps, chex_text_s(steps),
              chex_format_duration(seconds, sizeof seconds, chex_clock_s() - s->started_s));
    if (steps) {
        find_times(s, s->reports.total_times, &times);
        log_times("time of all steps", &times);
    }
    const bool page =
        json_array_size(s->files.epochs) || (s->output.page_s > 0 && isfinite(s->output.page_s));
    chex_info("  files: %s/best.h5, %s/last.h5, %s/checkpoints/, %s/metrics.jsonl%s%s%s", dir, dir,
              dir, dir, page ? ", " : "", page ? dir : "", page ? "/run.html" : "");
}
