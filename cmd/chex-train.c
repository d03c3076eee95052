/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train: trains CheXNet on a folder of shards, alone or with all ranks of a Slurm step.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "engine/choose.h"
#include "label/classes.h"
#include "launch/world.h"
#include "plan/plan.h"
#include "train/prove.h"
#include "train/requeue.h"
#include "train_bench.h"
#include "train_plan.h"
#include "train_prove.h"
#include "train_settings.h"
#include "train_signals.h"

/* For restore_from_run: the inputs of train_config_of. */
struct starter {
    struct train_settings *s;
    const char *engine;
    const struct chex_gpu *device;
    int threads;
    struct chex_train_config *config;
};

/* --accumulate N: sets --logical-ranks before a run starts or resumes. */
static enum chex_status accumulate(struct train_settings *s, int processes,
                                   struct chex_error *err) {
    enum { MOST = 65536 };
    if (s->accumulate * processes > MOST)
        return chex_error_set(
            err, CHEX_E_USAGE, "--accumulate %lld: %lld logical ranks on %d processes (at most %d)",
            (long long)s->accumulate, (long long)s->accumulate * processes, processes, MOST);
    s->accumulated_ranks = s->accumulate * processes;
    return CHEX_OK;
}

/* The moving average and the moments of the other layers would not fit the new kind of run. */
static enum chex_status same_head_only(const struct train_settings *s, const char *path,
                                       const json_t *recorded, struct chex_error *err) {
    const char *was = json_string_value(json_object_get(recorded, "head-only"));
    if ((was && strcmp(was, "yes") == 0) == s->head_only)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "%s: the run was made %s --head-only; start another one from it with "
                          "--init, in another --output",
                          path, s->head_only ? "without" : "with");
}

static void options_are_final(void *arg) {
    const struct starter *start = arg;
    train_warn_without_effect(start->s);
}

/* A chex_train_restore_fn. */
static enum chex_status restore_from_run(void *arg, const char *path, const json_t *recorded,
                                         const json_t *origins, struct chex_train_config *config,
                                         char *restored, size_t size, struct chex_error *err) {
    const struct starter *start = arg;
    struct chex_train_config now;
    CHEX_TRY(train_restore_options(start->s, path, recorded, origins, restored, size, err));
    CHEX_TRY(same_head_only(start->s, path, recorded, err));
    CHEX_TRY(train_check_settings(start->s, err));
    CHEX_TRY(train_config_of(start->s, start->engine, start->device, start->threads, &now, err));
    now.requeue = start->config->requeue;
    json_decref(start->config->options);
    json_decref(start->config->shared_options);
    *config = *start->config = now;
    return CHEX_OK;
}

static enum chex_status bench(const struct train_settings *s, const char *engine,
                              const struct chex_gpu *device, int threads, struct chex_group *group,
                              bool *together, struct chex_error *err) {
    struct chex_bench b = {.engine = engine,
                           .model = chex_net_names[s->model],
                           .config = {.image_size = (int)s->image_size,
                                      .batch = (int)s->batch_size,
                                      .precision = (enum chex_precision)s->precision,
                                      .threads = threads,
                                      .training = !s->bench_infer,
                                      .loss = train_loss_of(s),
                                      .ema_decay = s->ema,
                                      .device = device},
                           .update = train_update_of(s),
                           .classes = CHEX_CLASS_COUNT,
                           .steps = s->bench,
                           .seed = (uint64_t)s->seed,
                           .limits = s->bench_layers,
                           .stop = &train_stop_asked};
    return train_bench(&b, group, s->common.json, together, err);
}

/* Prints the result of a run as JSON. Of best_val_auroc and best_loss one is null: the AUROC counts
 * if it was ever defined. */
static enum chex_status print_end(const struct chex_train_config *c, const struct chex_position *at,
                                  enum chex_status status, struct chex_error *err) {
    const bool auroc = at->has_best && chex_best_is_auroc(at), loss = at->has_best && !auroc;
    return chex_result_print(
        stdout,
        chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("status", (int)status),
                    CHEX_FIELD("output", c->output_dir), CHEX_FIELD("steps", at->step),
                    CHEX_FIELD("epochs", at->epoch),
                    CHEX_FIELD("best_epoch", at->has_best ? at->best_epoch : 0),
                    CHEX_FIELD_IF(auroc, "best_val_auroc", at->best_score),
                    CHEX_FIELD_IF(loss, "best_loss", -at->best_score),
                    CHEX_FIELD_IF(at->has_best, "best", "best.h5")),
        NULL, JSON_COMPACT, err);
}

/* With --json rank 0 prints the result, after a run that is complete or was saved. */
static enum chex_status train(const struct train_settings *s, const struct chex_train_config *c,
                              const struct chex_train_world *world, bool *together,
                              struct chex_error *err) {
    struct chex_position end = {0};
    struct chex_train_world w = *world;
    w.end = &end;
    const enum chex_status st = chex_train_run(c, &w, together, err);
    if (!s->common.json || w.launch->rank != 0 || (st != CHEX_OK && st != CHEX_E_PREEMPTED))
        return st;
    struct chex_error unprinted = {0};
    const enum chex_status printed = print_end(c, &end, st, &unprinted);
    return printed == CHEX_OK ? st : chex_error_set(err, printed, "%s", unprinted.text);
}

static enum chex_status plan(const struct train_settings *s, const struct chex_train_config *c,
                             const struct chex_train_world *w, bool *together,
                             struct chex_error *err) {
    json_t *object = NULL;
    CHEX_TRY(chex_train_plan(c, w, &object, together, err));
    if (object && s->common.json)
        return chex_result_print(stdout, object, NULL, JSON_REAL_PRECISION(9), err);
    if (object)
        train_plan_print(object);
    json_decref(object);
    return CHEX_OK;
}

static enum chex_status prove(const struct train_settings *s, const struct chex_train_config *c,
                              const struct chex_train_world *w, bool *together,
                              struct chex_error *err) {
    const struct chex_prove p = {.run = s->prove, .stretches = s->stretches};
    struct chex_error unprinted = {0};
    json_t *proof = NULL;
    const enum chex_status st = chex_train_prove(&p, c, w, &proof, together, err);
    if (proof && s->common.json) {
        const enum chex_status printed =
            chex_result_print(stdout, proof, NULL, JSON_INDENT(2), &unprinted);
        return printed == CHEX_OK ? st : chex_error_set(err, printed, "%s", unprinted.text);
    }
    if (proof)
        train_prove_print(proof);
    json_decref(proof);
    return st;
}

/* The collective work: training, --plan, --prove or --bench-input. */
static enum chex_status collective(struct starter *start, struct chex_world *world, bool *together,
                                   struct chex_error *err) {
    const struct train_settings *s = start->s;
    const bool asks = world->launch.rank == 0 && !s->bench_input && !s->prove;
    struct chex_coll *coll = NULL;
    const struct chex_slurm_library *slurm = NULL;
    struct chex_error why = {0};
    if (asks && (!start->config->save_before_end.off || s->job_comment || s->requeue))
        (void)chex_slurm_open(&slurm, &why); /* before MPI */
    start->config->requeue =
        s->requeue && !s->plan && !s->prove && (!asks || chex_requeue_check(slurm, why.text));
    const struct chex_train_config first = *start->config, *c = &first;
    CHEX_TRY(chex_coll_create(&world->launch, &coll, err));
    train_signals_limit(0);
    struct chex_train_world w = {.launch = &world->launch,
                                 .coll = coll,
                                 .binding = &world->binding,
                                 .gpu = &world->gpu,
                                 .restore = restore_from_run,
                                 .options_final = s->prove ? NULL : options_are_final,
                                 .restore_arg = start,
                                 .stop = &train_stop_asked,
                                 .slurm = slurm,
                                 .slurm_why = why.text};
    enum chex_status st = s->bench_input ? train_bench_input(s, c, &w, together, err)
                          : s->plan      ? plan(s, c, &w, together, err)
                          : s->prove     ? prove(s, c, &w, together, err)
                                         : train(s, c, &w, together, err);
    *together = *together && !coll->group->broken;
    if (st == CHEX_OK || *together)
        chex_coll_destroy(coll);
    if (first.requeue && asks)
        chex_requeue_ask(slurm, st);
    return st;
}

/* --prove: the options of the run, before an engine is chosen. An engine or a folder of data that
 * the user names comes first. */
static enum chex_status take_run(struct train_settings *s, struct chex_error *err) {
    struct chex_prove_options run = {0};
    char taken[1024];
    CHEX_TRY(chex_prove_options_read(s->prove, &run, err));
    enum chex_status st =
        train_restore_options(s, s->prove, run.options, NULL, taken, sizeof taken, err);
    const char *data = json_string_value(json_object_get(run.options, "data"));
    for (size_t i = 0; st == CHEX_OK && data && i < train_program.count; i++)
        if (train_program.opts[i].at == AT(data))
            st = chex_opt_take(s->set, &train_program.opts[i], s, data, s->prove, err);
    if (st == CHEX_OK && chex_opt_origin(s->set, "engine") == CHEX_FROM_DEFAULT) {
        snprintf(s->proven_engine, sizeof s->proven_engine, "%s", run.engine);
        s->engine = s->proven_engine;
    }
    json_decref(run.options);
    return st;
}

/* The work after the launch. *together as in chex_train_run. */
static enum chex_status work(struct train_settings *s, struct chex_world *world, bool *together,
                             struct chex_error *err) {
    const char *engine = NULL;
    struct chex_gpu gpu;
    bool has_gpu = false;
    *together = true;
    if (s->prove)
        CHEX_TRY(chex_group_agree(world->group, take_run(s, err), err));
    if (!s->bench_input) { /* --bench-input uses no engine */
        enum chex_status st = chex_choose_engine(s->engine, &world->gpu, &engine, err);
        CHEX_TRY(chex_choose_gpu(&world->launch, world->group, &world->binding, &world->gpu,
                                 st == CHEX_OK ? engine : NULL, &gpu, &has_gpu, err));
        enum chex_precision precision = (enum chex_precision)s->precision;
        const bool asked = chex_opt_origin(s->set, "precision") != CHEX_FROM_DEFAULT;
        CHEX_TRY(chex_choose_precision(world->group, engine, asked, &precision, err));
        if (!s->prove)
            s->precision = (int)precision;
    }
    const struct chex_gpu *device = has_gpu ? &gpu : NULL;
    int threads = s->threads ? (int)s->threads : world->binding.threads;
    CHEX_TRY(accumulate(s, world->launch.size, err));
    if (s->bench) {
        train_signals_limit(0);
        if (world->launch.rank == 0)
            train_warn_without_effect(s);
        return bench(s, engine, device, threads, world->group, together, err);
    }
    struct chex_train_config config;
    *together = false;
    CHEX_TRY(train_config_of(s, engine, device, threads, &config, err));
    struct starter start = {s, engine, device, threads, &config};
    enum chex_status st = collective(&start, world, together, err);
    json_decref(config.options);
    json_decref(config.shared_options);
    return st;
}

/* Limit of the launch, in addition to --stall-abort. The launch of many ranks takes long, and the
 * stall watch starts only after it. */
static const uint64_t launch_ms = 60000;

enum chex_status train_run(struct chex_opt_set *set, void *settings, struct chex_error *err) {
    struct train_settings *s = settings;
    struct chex_world world;
    s->set = set;
    CHEX_TRY(train_check_settings(s, err));
    CHEX_TRY(train_signals_choose(s->preempt_signal, err));
    train_signals_limit(s->stall_abort ? s->stall_abort + launch_ms : 0);
    CHEX_TRY(chex_world_open(&world, err));
    bool together;
    enum chex_status st = work(s, &world, &together, err);
    together = together && !world.group->broken;
    if (st != CHEX_OK && (world.launch.rank == 0 || !together))
        chex_log(st == CHEX_E_PREEMPTED ? CHEX_LOG_WARN : CHEX_LOG_ERROR, "%s", err->text);
    err->text[0] = '\0';
    chex_world_close(&world, st, together);
    return st;
}

int main(int argc, char **argv) {
    train_signals_begin();
    return command_main(&train_program, argc, argv, chex_world_refuse);
}
