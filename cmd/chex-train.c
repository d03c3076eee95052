/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train: trains CheXNet on a folder of shards, alone or with all ranks of a Slurm step.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/result.h"
#include "engine/choose.h"
#include "launch/world.h"
#include "plan/plan.h"
#include "train/watch/requeue.h"
#include "train_print.h"
#include "train_settings.h"
#include "train_signals.h"

/* The moving average and the moments of the other layers would not fit the new kind of run, and
 * the features of the run do not come from its images. */
static enum chex_status same_kind(const struct train_settings *s, const char *path,
                                  const json_t *recorded, struct chex_error *err) {
    const char *was = json_string_value(json_object_get(recorded, "head-only"));
    const char *features = json_string_value(json_object_get(recorded, "features"));
    if ((features && *features) != (s->config.features != NULL))
        return chex_error_set(err, CHEX_E_USAGE, "%s: the run was made %s --features%s", path,
                              s->config.features ? "without" : "with",
                              s->config.features ? "; start another one in another --output"
                                                 : " FILE: give the file again");
    if ((was && strcmp(was, "yes") == 0) == s->config.head_only)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "%s: the run was made %s --head-only; start another one from it with "
                          "--init, in another --output",
                          path, s->config.head_only ? "without" : "with");
}

static void options_are_final(void *arg) { train_warn_without_effect(arg); }

/* A chex_train_restore_fn. */
static enum chex_status restore_from_run(void *arg, const char *path, const json_t *recorded,
                                         const json_t *origins, struct chex_train_config *config,
                                         char *restored, size_t size, struct chex_error *err) {
    struct train_settings *s = arg;
    CHEX_TRY(train_restore_options(s, path, recorded, origins, restored, size, err));
    CHEX_TRY(same_kind(s, path, recorded, err));
    CHEX_TRY(train_check_settings(s, err));
    CHEX_TRY(train_complete(s, err));
    *config = s->config;
    return CHEX_OK;
}

/* Prints the result of a run as JSON. Of best_val_auroc and best_loss one is null: the AUROC counts
 * if it was ever defined. */
static enum chex_status print_end(const struct chex_train_config *c, const struct chex_position *at,
                                  const struct chex_energy *used, enum chex_status status,
                                  struct chex_error *err) {
    json_t *energy = chex_energy_json(used);
    const bool auroc = at->has_best && chex_best_is_auroc(at), loss = at->has_best && !auroc;
    return chex_result_print(
        stdout,
        chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("status", (int)status),
                    CHEX_FIELD("output", c->output_dir), CHEX_FIELD("steps", at->step),
                    CHEX_FIELD("epochs", at->epoch),
                    CHEX_FIELD("best_epoch", at->has_best ? at->best_epoch : 0),
                    CHEX_FIELD_IF(auroc, "best_val_auroc", at->best_score),
                    CHEX_FIELD_IF(loss, "best_loss", -at->best_score),
                    CHEX_FIELD_IF(at->has_best, "best", "best.h5"),
                    CHEX_FIELD_IF(energy, "energy", energy)),
        NULL, JSON_COMPACT, err);
}

/* With --json rank 0 prints the result, after a run that is complete or was saved. */
static enum chex_status train(const struct train_settings *s, const struct chex_train_world *world,
                              bool *together, struct chex_error *err) {
    struct chex_position end = {0};
    struct chex_energy energy = {0};
    struct chex_train_world w = *world;
    w.end = &end;
    w.energy = &energy;
    const enum chex_status st = chex_train_run(&s->config, &w, together, err);
    if (!s->common.json || w.launch->rank != 0 || (st != CHEX_OK && st != CHEX_E_PREEMPTED))
        return st;
    const enum chex_status printed = print_end(&s->config, &end, &energy, st, err);
    return printed == CHEX_OK ? st : printed;
}

/* Prints the result and releases it; NULL: this is not rank 0, or there is none. flags: of
 * json_dumps. */
static enum chex_status print(const struct train_settings *s, json_t *result, size_t flags,
                              void (*text)(const json_t *result), struct chex_error *err) {
    if (result && s->common.json)
        return chex_result_print(stdout, result, NULL, flags, err);
    if (result)
        text(result);
    json_decref(result);
    return CHEX_OK;
}

static enum chex_status plan(const struct train_settings *s, const struct chex_train_world *w,
                             bool *together, struct chex_error *err) {
    json_t *object = NULL;
    const enum chex_status st = chex_train_plan(&s->config, w, &object, together, err);
    if (st == CHEX_OK)
        return print(s, object, JSON_REAL_PRECISION(9), train_plan_print, err);
    json_decref(object);
    return st;
}

static enum chex_status prove(const struct train_settings *s, const struct chex_train_world *w,
                              bool *together, struct chex_error *err) {
    json_t *proof = NULL;
    const enum chex_status st = chex_train_prove(&s->prove, w, &proof, together, err);
    const enum chex_status printed = print(s, proof, JSON_INDENT(2), train_prove_print, err);
    return printed == CHEX_OK ? st : printed;
}

static enum chex_status bench_steps(const struct train_settings *s, struct chex_group *group,
                                    bool *together, struct chex_error *err) {
    json_t *result = NULL;
    train_signals_limit(0);
    if (group->rank == 0)
        train_warn_without_effect(s);
    CHEX_TRY(
        chex_bench_steps(&s->bench, &s->config, group, &train_stop_asked, &result, together, err));
    return print(s, result, 0, train_bench_print, err);
}

static enum chex_status bench_input(const struct train_settings *s,
                                    const struct chex_train_world *w, bool *together,
                                    struct chex_error *err) {
    json_t *result = NULL;
    CHEX_TRY(chex_bench_input(&s->bench, &s->config, w, &result, together, err));
    if (s->common.json) { /* what only the text has */
        json_object_del(result, "windows");
        json_object_del(result, "reached_images_per_s");
    }
    return print(s, result, 0, train_bench_print, err);
}

/* The collective work: training, --plan, --prove or --bench-input. */
static enum chex_status collective(struct train_settings *s, struct chex_world *world,
                                   bool *together, struct chex_error *err) {
    struct chex_train_config *c = &s->config;
    const bool asks = world->launch.rank == 0 && !s->bench.batches && !s->prove.run;
    struct chex_coll *coll = NULL;
    const struct chex_slurm_library *slurm = NULL;
    struct chex_error why = {0};
    if (asks && (!c->save_before_end.off || c->job_comment || s->requeue))
        (void)chex_slurm_open(&slurm, &why); /* before MPI */
    c->requeue =
        s->requeue && !s->plan && !s->prove.run && (!asks || chex_requeue_check(slurm, why.text));
    CHEX_TRY(chex_coll_create(&world->launch, &coll, err));
    train_signals_limit(0);
    struct chex_train_world w = {.launch = &world->launch,
                                 .coll = coll,
                                 .binding = &world->binding,
                                 .gpu = &world->gpu,
                                 .restore = restore_from_run,
                                 .options_final = s->prove.run ? NULL : options_are_final,
                                 .restore_arg = s,
                                 .stop = &train_stop_asked,
                                 .slurm = slurm,
                                 .slurm_why = why.text};
    enum chex_status st = s->bench.batches ? bench_input(s, &w, together, err)
                          : s->plan        ? plan(s, &w, together, err)
                          : s->prove.run   ? prove(s, &w, together, err)
                                           : train(s, &w, together, err);
    *together = *together && !coll->group->broken;
    if (st == CHEX_OK || *together)
        chex_coll_destroy(coll);
    if (c->requeue && asks)
        chex_requeue_ask(slurm, st);
    return st;
}

/* --prove: the options of the run, before an engine is chosen. An engine, a folder of data or a
 * file of features that the user names comes first. */
static enum chex_status take_run(struct train_settings *s, struct chex_error *err) {
    struct chex_prove_options run = {0};
    const char *path = s->prove.run;
    char taken[1024];
    CHEX_TRY(chex_prove_options_read(path, &run, err));
    enum chex_status st =
        train_restore_options(s, path, run.options, NULL, taken, sizeof taken, err);
    for (size_t i = 0; st == CHEX_OK && i < train_program.count; i++) {
        const struct chex_opt *o = &train_program.opts[i];
        const bool input = o->at == AT(config.data_dir) || o->at == AT(config.features);
        const char *was = input ? json_string_value(json_object_get(run.options, o->name)) : NULL;
        if (was && *was)
            st = chex_opt_take(s->set, o, s, was, path, err);
    }
    if (st == CHEX_OK && chex_opt_origin(s->set, "engine") == CHEX_FROM_DEFAULT) {
        snprintf(s->proven_engine, sizeof s->proven_engine, "%s", run.engine);
        s->engine = s->proven_engine;
    }
    json_decref(run.options);
    return st;
}

/* The engine, its GPU and the precision. gpu: filled if the engine uses one. */
static enum chex_status choose_engine(struct train_settings *s, struct chex_world *world,
                                      struct chex_gpu *gpu, struct chex_error *err) {
    struct chex_train_config *c = &s->config;
    bool has_gpu = false;
    if (c->features) { /* no network runs; the classifier has an engine of its own */
        c->engine = "ref";
        c->precision = CHEX_FP32;
        return CHEX_OK;
    }
    const enum chex_status st = chex_choose_engine(s->engine, &world->gpu, &c->engine, err);
    CHEX_TRY(chex_choose_gpu(&world->launch, world->group, &world->binding, &world->gpu,
                             st == CHEX_OK ? c->engine : NULL, gpu, &has_gpu, err));
    c->device = has_gpu ? gpu : NULL;
    enum chex_precision precision = c->precision;
    const bool asked = chex_opt_origin(s->set, "precision") != CHEX_FROM_DEFAULT;
    CHEX_TRY(chex_choose_precision(world->group, c->engine, asked, &precision, err));
    if (!s->prove.run)
        c->precision = precision;
    return CHEX_OK;
}

/* The work after the launch. *together as in chex_train_run. */
static enum chex_status work(struct train_settings *s, struct chex_world *world, bool *together,
                             struct chex_error *err) {
    struct chex_gpu gpu;
    *together = true;
    if (s->prove.run)
        CHEX_TRY(chex_group_agree(world->group, take_run(s, err), err));
    if (!s->bench.batches) /* --bench-input uses no engine */
        CHEX_TRY(choose_engine(s, world, &gpu, err));
    s->own_threads = world->binding.threads;
    s->size = world->launch.size;
    CHEX_TRY(chex_group_agree(world->group, train_complete(s, err), err));
    if (s->bench.steps)
        return bench_steps(s, world->group, together, err);
    *together = false;
    return collective(s, world, together, err);
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
    train_signals_limit(s->config.stall_abort_ms ? s->config.stall_abort_ms + launch_ms : 0);
    CHEX_TRY(chex_world_open(&world, err));
    bool together;
    enum chex_status st = work(s, &world, &together, err);
    together = together && !world.group->broken;
    if (st != CHEX_OK && (world.launch.rank == 0 || !together))
        chex_log(st == CHEX_E_PREEMPTED ? CHEX_LOG_WARN : CHEX_LOG_ERROR, "%s", err->text);
    err->text[0] = '\0';
    chex_world_close(&world, st, together);
    train_release(s);
    return st;
}

int main(int argc, char **argv) {
    train_signals_begin();
    return command_main(&train_program, argc, argv, chex_world_refuse);
}
