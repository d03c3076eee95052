/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train: trains CheXNet on a folder of shards, alone or with all ranks of a Slurm step.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/text.h"
#include "base/units.h"
#include "data/classes.h"
#include "data/versions.h"
#include "input/pipeline.h"
#include "engine/choose.h"
#include "launch/world.h"
#include "train/bench.h"
#include "train/bench_input.h"
#include "train/plan.h"
#include "train/trainer.h"
#include "train_bench.h"
#include "train_plan.h"

struct settings {
    struct chex_opt_common common;
    const char *data, *output, *engine, *init, *resume, *checkpoint_every, *preempt_signal, *stage;
    const char *timeline;
    int model, opt, sched, precision, order, pipeline, cache, resident;
    int64_t image_size, batch_size, epochs, threads, workers, seed, logical_ranks;
    int64_t checkpoint_keep, max_steps, shuffle_block, patience, step_epochs, bench, bench_input;
    double crop_scale, rotate, brightness, contrast;
    double lr, min_lr, lr_factor, weight_decay, momentum, warmup_epochs, consume;
    uint64_t stall_warn, stall_abort;
    bool deterministic, plan, bench_layers, bench_infer, antialias;
    const struct chex_opt_set *set; /* where the values came from */
};

#define AT(member) offsetof(struct settings, member)
static const struct chex_opt options[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Data and results"},
    {"data", 'd', CHEX_OPT_STRING, AT(data), NULL, "DIR", "folder of shards that chex-shard wrote", .of_rank = true},
    {"output", 'o', CHEX_OPT_STRING, AT(output), NULL, "DIR", "folder of the run: checkpoints, metrics, configuration", .of_rank = true},
    {"resume", 0, CHEX_OPT_STRING, AT(resume), "auto", "auto|none|FILE", "go on from the newest checkpoint in --output, start afresh, or go on from FILE", .of_rank = true},
    {"plan", 0, CHEX_OPT_FLAG, AT(plan), .help = "preview the run and do nothing of it: what it would read, compute, send, take and save, and what would stop it; exits as the run would"},
    {"init", 0, CHEX_OPT_STRING, AT(init), NULL, "FILE", "start from the parameters of a safetensors file with torchvision's names", .of_rank = true},
    {.type = CHEX_OPT_GROUP, .help = "Network and training"},
    {"model", 'm', CHEX_OPT_CHOICE, AT(model), "densenet121", "NAME", "network", chex_net_names},
    {"image-size", 0, CHEX_OPT_INT, AT(image_size), "224", "PX", "side of the crops that are trained on", .min = 32, .max = 4096},
    {"batch-size", 'b', CHEX_OPT_INT, AT(batch_size), "16", "N", "images per logical rank and step", .min = 1, .max = 65536},
    {"epochs", 'e', CHEX_OPT_INT, AT(epochs), "15", "N", "passes over the training images", .min = 1, .max = 1e6},
    {"max-steps", 0, CHEX_OPT_INT, AT(max_steps), "0", "N", "stop after N steps and save (0: no limit)", .min = 0, .max = 1e12},
    {"opt", 0, CHEX_OPT_CHOICE, AT(opt), "adam", "NAME", "optimiser", chex_optim_names},
    {"lr", 0, CHEX_OPT_FLOAT, AT(lr), "1e-4", "RATE", "learning rate; never scaled by the number of ranks", .min = 0, .max = 1e3},
    {"weight-decay", 0, CHEX_OPT_FLOAT, AT(weight_decay), "0", "X", "L2 added to the gradient (adam, sgd, lars), or decoupled (adamw); of all parameters, biases and batch norms too", .min = 0, .max = 1e3},
    {"momentum", 0, CHEX_OPT_FLOAT, AT(momentum), "0.9", "X", "momentum of sgd and lars", .min = 0, .max = 1},
    {"sched", 0, CHEX_OPT_CHOICE, AT(sched), "plateau", "NAME", "schedule of the learning rate", chex_sched_names},
    {"warmup-epochs", 0, CHEX_OPT_FLOAT, AT(warmup_epochs), "0", "X", "epochs in which the rate rises linearly to --lr", .min = 0, .max = 1e6},
    {"min-lr", 0, CHEX_OPT_FLOAT, AT(min_lr), "0", "RATE", "the schedule never goes below; only the warm-up is lower", .min = 0, .max = 1e3},
    {"lr-factor", 0, CHEX_OPT_FLOAT, AT(lr_factor), "0.1", "X", "what plateau and step multiply the rate by", .min = 1e-6, .max = 1},
    {"patience-epochs", 0, CHEX_OPT_INT, AT(patience), "3", "N", "plateau: epochs without a better validation loss before the rate falls", .min = 0, .max = 1e6},
    {"step-epochs", 0, CHEX_OPT_INT, AT(step_epochs), "10", "N", "step: epochs between two falls", .min = 1, .max = 1e6},
    {"seed", 's', CHEX_OPT_INT, AT(seed), "0", "N", "decides initial parameters, order and augmentation", .min = 0, .max = 9e15},
    {"order", 0, CHEX_OPT_CHOICE, AT(order), "local", "NAME", "shuffle within each logical rank's rows, or all rows", chex_order_names},
    {"shuffle-block", 0, CHEX_OPT_INT, AT(shuffle_block), "1", "N", "for disks with slow seeks: read runs of N rows, mixed in windows of 16 runs and at least 1,024 rows", .min = 1, .max = 1e9},
    {"pipeline", 0, CHEX_OPT_CHOICE, AT(pipeline), "new", "NAME", "input pipeline; old is the article's first one, which reads everything on every rank", chex_pipeline_names},
    {"cache", 0, CHEX_OPT_CHOICE, AT(cache), "auto", "NAME", "keep a rank's stored images in the node's memory: auto where they take less than half of what is free", chex_cache_names, .of_rank = true},
    {"resident", 0, CHEX_OPT_CHOICE, AT(resident), "auto", "NAME", "keep a rank's stored images in its GPU's memory: auto where they fit; they are read once then, and --cache is not needed", chex_resident_names, .of_rank = true},
    {"stage", 0, CHEX_OPT_STRING, AT(stage), NULL, "DIR", "copy the shards to this folder of each node first, verified; the copy vanishes with the job", .of_rank = true},
    {.type = CHEX_OPT_GROUP, .help = "Augmentation"},
    {"crop-scale", 0, CHEX_OPT_FLOAT, AT(crop_scale), "0.5", "MIN", "least share of the image's area that a random crop covers", .min = 0.01, .max = 1},
    {"antialias", 0, CHEX_OPT_FLAG, AT(antialias), .help = "average over all pixels where a crop is made smaller, instead of two each way"},
    {"rotate", 0, CHEX_OPT_FLOAT, AT(rotate), "0", "DEGREES", "turn by a random angle up to DEGREES either way; black comes in at the corners", .min = 0, .max = 180},
    {"brightness", 0, CHEX_OPT_FLOAT, AT(brightness), "0", "F", "multiply by a random factor from 1 - F (not below 0) to 1 + F", .min = 0, .max = 10},
    {"contrast", 0, CHEX_OPT_FLOAT, AT(contrast), "0", "F", "move away from the crop's mean by a random factor from 1 - F (not below 0) to 1 + F", .min = 0, .max = 10},
    {.type = CHEX_OPT_GROUP, .help = "Engine and ranks"},
    {"engine", 0, CHEX_OPT_STRING, AT(engine), "auto", "auto|cuda|cpu|ref", "what computes, with a variant as in cpu:avx2 or cuda:s1", .of_rank = true},
    {"precision", 'p', CHEX_OPT_CHOICE, AT(precision), "fp32", "NAME", "how activations are stored and multiplied; where the cpu engine has AMX or the GPU multiplies it, the default is bf16", chex_precision_names},
    {"threads", 't', CHEX_OPT_INT, AT(threads), "0", "N", "compute threads (0: the cores this rank is bound to)", .min = 0, .max = 4096, .of_rank = true},
    {"workers", 'j', CHEX_OPT_INT, AT(workers), "1", "N", "input threads", .min = 1, .max = 256, .of_rank = true},
    {"logical-ranks", 0, CHEX_OPT_INT, AT(logical_ranks), "0", "V", "batches per step; results depend on V, not on the number of processes (0: the number of processes)", .min = 0, .max = 65536},
    {"deterministic", 0, CHEX_OPT_FLAG, AT(deterministic), .help = "add gradients in one fixed order: the same bits for any number of ranks"},
    {.type = CHEX_OPT_GROUP, .help = "Checkpoints and interruptions"},
    {"checkpoint-every", 0, CHEX_OPT_STRING, AT(checkpoint_every), "30m", "30m|500steps", "save within epochs too, by time or by steps (each epoch's end saves anyway)"},
    {"checkpoint-keep", 0, CHEX_OPT_INT, AT(checkpoint_keep), "3", "N", "numbered checkpoints that are kept (0: all)", .min = 0, .max = 1e6},
    {"preempt-signal", 0, CHEX_OPT_STRING, AT(preempt_signal), "USR2", "NAME", "signal that makes all ranks save and leave with status 6; TERM, INT and HUP always do"},
    {"stall-warn", 0, CHEX_OPT_DURATION, AT(stall_warn), "60s", "TIME", "name the ranks that hold the others up after so long (0s: never)"},
    {"stall-abort", 0, CHEX_OPT_DURATION, AT(stall_abort), "600s", "TIME", "end the job with status 7 after so long (0s: never)"},
    {.type = CHEX_OPT_GROUP, .help = "Measuring"},
    {"timeline", 0, CHEX_OPT_STRING, AT(timeline), NULL, "FILE", "write what each rank did when, as Trace Event JSON for Perfetto or chrome://tracing: the last events of the run"},
    {"bench", 0, CHEX_OPT_INT, AT(bench), "0", "N", "time N steps on resident random data instead of training; with several ranks, the sum of their rates and the slowest rank's step times", .min = 0, .max = 1e9},
    {"bench-layers", 0, CHEX_OPT_FLAG, AT(bench_layers), .help = "with --bench: time, rates and share of the machine's measured limits of every operation of the last step"},
    {"bench-infer", 0, CHEX_OPT_FLAG, AT(bench_infer), .help = "with --bench: inference in place of training"},
    {"bench-input", 0, CHEX_OPT_INT, AT(bench_input), "0", "N", "time N batches of --data on each rank as training would take them, without a network", .min = 0, .max = 1e9},
    {"consume", 0, CHEX_OPT_FLOAT, AT(consume), "0", "RATE", "with --bench-input: images per second that each rank takes (0: as many as come)", .min = 0, .max = 1e9},
};

static const struct chex_opt_program program = {
    "chex-train",
    "train CheXNet on sharded chest X-rays",
    "chex-train --data DIR --output DIR [options]\n"
    "chex-train --plan --data DIR --output DIR [options]\n"
    "chex-train --bench N [options]\n"
    "chex-train --data DIR --bench-input N [options]",
    options,
    sizeof options / sizeof options[0],
    "Examples\n"
    "  chex-train --data shards --output run --epochs 10 --lr 1e-3\n"
    "  srun --gpus-per-task=1 chex-train --data shards --output run\n"
    "  chex-train --bench 20 --image-size 64 --batch-size 64 --json\n"
    "  chex-train --data shards --bench-input 2000 --workers 2 --consume 20000\n"
    "\n"
    "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad data, 4 environment, 5 node, 6 saved\n"
    "after preemption (run again to go on), 7 stalled or a rank lost, 8 loss not finite, 9 out of\n"
    "memory or disk.\n",
};

static volatile sig_atomic_t stop_asked;

static void on_signal(int number) {
    (void)number;
    stop_asked = 1;
}

static enum chex_status signal_number(const char *name, int *out, struct chex_error *err) {
    static const struct {
        const char *name;
        int number;
    } known[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"INT", SIGINT},
                 {"HUP", SIGHUP},   {"CONT", SIGCONT}};
    const char *bare = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, bare) == 0) {
            *out = known[i].number;
            return CHEX_OK;
        }
    return chex_error_set(err, CHEX_E_USAGE,
                          "--preempt-signal: '%s' is not valid: expected USR1, USR2, TERM, INT or "
                          "HUP",
                          name);
}

/* A handler sets a flag only; the ranks agree on the step at which they save. */
static enum chex_status install_signals(const struct settings *s, struct chex_error *err) {
    int number;
    CHEX_TRY(signal_number(s->preempt_signal, &number, err));
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup */
        sigaction(SIGHUP, &action, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    return CHEX_OK;
}

/* "500steps" or a duration. */
static enum chex_status parse_cadence(const char *text, uint64_t *ms_out, uint64_t *steps_out,
                                      struct chex_error *err) {
    char number[32];
    size_t n = strlen(text);
    *ms_out = *steps_out = 0;
    if (n > 5 && n - 5 < sizeof number && strcmp(text + n - 5, "steps") == 0) {
        memcpy(number, text, n - 5);
        number[n - 5] = '\0';
        if (chex_parse_u64(number, steps_out))
            return CHEX_OK;
    } else if (chex_parse_duration(text, ms_out)) {
        return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_USAGE,
                          "--checkpoint-every: '%s' is not valid: expected a time such as 30m, or "
                          "steps such as 500steps",
                          text);
}

static struct chex_update update_of(const struct settings *s) {
    return (struct chex_update){.optim = (enum chex_optim)s->opt,
                                .lr = s->lr,
                                .weight_decay = s->weight_decay,
                                .momentum = s->momentum,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .grad_scale = 1};
}

/* The effective options of a run and, under the same names, where each came from. */
static json_t *options_json(const struct settings *s) {
    json_t *object = json_object(), *origins = json_object();
    for (size_t i = 0; i < program.count; i++) {
        const struct chex_opt *o = &options[i];
        char value[4096];
        if (o->type == CHEX_OPT_GROUP || o->at < sizeof s->common || o->at == AT(plan))
            continue;
        chex_opt_value_text(o, s, value, sizeof value);
        json_object_set_new(object, o->name, json_string(value));
        json_object_set_new(origins, o->name,
                            json_string(chex_opt_origin_names[chex_opt_origin(s->set, o->name)]));
    }
    return json_pack("{s:i,s:s,s:s,s:o,s:o}", "schema", 1, "command", program.name, "version",
                     CHEXNET_VERSION, "options", object, "origins", origins);
}

/* Those of them that all ranks must have alike. */
static json_t *shared_options(const json_t *recorded) {
    json_t *shared = json_copy(json_object_get(recorded, "options"));
    for (size_t i = 0; i < program.count; i++)
        if (options[i].of_rank)
            json_object_del(shared, options[i].name);
    return shared;
}

static enum chex_status config_of(const struct settings *s, const char *engine,
                                  const struct chex_gpu *device, int threads,
                                  struct chex_train_config *out, struct chex_error *err) {
    *out = (struct chex_train_config){.data_dir = s->data,
                                      .output_dir = s->output,
                                      .model = chex_net_names[s->model],
                                      .engine = engine,
                                      .device = device,
                                      .image_size = (int)s->image_size,
                                      .batch = (int)s->batch_size,
                                      .threads = threads,
                                      .workers = (int)s->workers,
                                      .epochs = s->epochs,
                                      .max_steps = (uint64_t)s->max_steps,
                                      .precision = (enum chex_precision)s->precision,
                                      .schedule = {.kind = (enum chex_sched)s->sched,
                                                   .lr = s->lr,
                                                   .min_lr = s->min_lr,
                                                   .warmup_epochs = s->warmup_epochs,
                                                   .epochs = s->epochs,
                                                   .factor = s->lr_factor,
                                                   .patience = s->patience,
                                                   .step_epochs = s->step_epochs},
                                      .update = update_of(s),
                                      .init = s->init,
                                      .resume = s->resume,
                                      .seed = (uint64_t)s->seed,
                                      .deterministic = s->deterministic,
                                      .logical_ranks = (int)s->logical_ranks,
                                      .order = (enum chex_order_kind)s->order,
                                      .pipeline = (enum chex_pipeline_kind)s->pipeline,
                                      .shuffle_block = (size_t)s->shuffle_block,
                                      .augment = {.crop_scale = s->crop_scale,
                                                  .antialias = s->antialias,
                                                  .rotate = s->rotate,
                                                  .brightness = s->brightness,
                                                  .contrast = s->contrast},
                                      .cache = (enum chex_cache_mode)s->cache,
                                      .resident = (enum chex_resident_mode)s->resident,
                                      .stage = s->stage,
                                      .save_keep = (int)s->checkpoint_keep,
                                      .stall_warn_ms = s->stall_warn,
                                      .stall_abort_ms = s->stall_abort,
                                      .timeline = s->timeline};
    CHEX_TRY(parse_cadence(s->checkpoint_every, &out->save_every_ms, &out->save_every_steps, err));
    out->options = options_json(s);
    out->shared_options = shared_options(out->options);
    return out->shared_options ? CHEX_OK : chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
}

static enum chex_status bench(const struct settings *s, const char *engine,
                              const struct chex_gpu *device, int threads,
                              struct chex_launch *launch, bool *together, struct chex_error *err) {
    struct chex_bench b = {.engine = engine,
                           .model = chex_net_names[s->model],
                           .config = {.image_size = (int)s->image_size,
                                      .batch = (int)s->batch_size,
                                      .precision = (enum chex_precision)s->precision,
                                      .threads = threads,
                                      .training = !s->bench_infer,
                                      .device = device},
                           .update = update_of(s),
                           .classes = CHEX_CLASS_COUNT,
                           .steps = s->bench,
                           .seed = (uint64_t)s->seed,
                           .limits = s->bench_layers,
                           .stop = &stop_asked};
    return train_bench(&b, launch, s->common.json, together, err);
}

/* With the keys of --bench: no network takes the batches, which are fp32, and the threads are those
 * of the input. */
static json_t *bench_input_json(const struct chex_train_config *c, const struct settings *s,
                                const struct chex_bench_input_result *r) {
    const struct chex_bench_input_rates *all = &r->all;
    json_t *rates =
        json_pack("{s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:I}", "schema", 1, "images_per_s_median",
                  all->images_per_s_median, "images_per_s_best", all->images_per_s_best,
                  "images_per_s", all->images_per_s, "bytes_per_s", all->bytes_per_s, "stall_share",
                  all->stall_share, "consume_images_per_s", s->consume, "peak_rss_bytes",
                  (json_int_t)all->peak_rss_bytes);
    json_t *settings = json_pack(
        "{s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:s,s:s,s:I,s:I,s:I,s:i,s:i,s:f,s:s}", "engine", "none",
        "precision", chex_precision_names[CHEX_FP32], "pipeline", chex_pipeline_names[c->pipeline],
        "threads", r->workers, "workers", r->workers, "batch", c->batch, "image_size",
        c->image_size, "stored_size", r->stored_size, "cache", r->keep ? "memory" : "none", "order",
        chex_order_names[c->order], "shuffle_block", (json_int_t)c->shuffle_block, "shuffle_width",
        (json_int_t)r->shuffle_width, "batches", (json_int_t)s->bench_input, "ranks", r->ranks,
        "slowest_rank", r->slowest_rank, "slowest_images_per_s", r->slowest.images_per_s_median,
        "version", CHEXNET_VERSION);
    json_object_update(rates, settings);
    json_decref(settings);
    return rates;
}

static void print_bench_input(const struct chex_train_config *c, const struct settings *s,
                              const struct chex_bench_input_result *r) {
    const struct chex_bench_input_rates *all = &r->all;
    char rss[32];
    if (s->common.json) {
        json_t *o = bench_input_json(c, s, r);
        json_dumpf(o, stdout, JSON_PRESERVE_ORDER);
        putchar('\n');
        json_decref(o);
        return;
    }
    printf("input %s, %d px of %d stored, batch %d, %d worker%s, %d rank%s: %.0f images/s median, "
           "%.0f best of %d windows, %.3f GB/s read, peak memory %s\n",
           chex_pipeline_names[c->pipeline], c->image_size, r->stored_size, c->batch, r->workers,
           r->workers == 1 ? "" : "s", r->ranks, r->ranks == 1 ? "" : "s",
           all->images_per_s_median, all->images_per_s_best, r->windows, all->bytes_per_s / 1e9,
           chex_format_bytes(rss, sizeof rss, all->peak_rss_bytes));
    if (s->consume > 0)
        printf("consumed at %.0f images/s a rank: %.0f reached, stalled %.2f %% of the time\n",
               s->consume, all->images_per_s / r->ranks, 100 * all->stall_share);
    if (r->ranks > 1)
        printf("slowest rank %d: %.0f images/s\n", r->slowest_rank, r->slowest.images_per_s_median);
}

static enum chex_status bench_input(const struct settings *s, const struct chex_train_config *c,
                                    const struct chex_train_world *w, bool *together,
                                    struct chex_error *err) {
    const struct chex_bench_input b = {.batches = s->bench_input, .images_per_s = s->consume};
    struct chex_bench_input_result r;
    CHEX_TRY(chex_bench_input_run(&b, c, w, &r, together, err));
    if (w->launch->rank == 0)
        print_bench_input(c, s, &r);
    return CHEX_OK;
}

/* best_val_auroc or, where that was never defined, best_loss; the other is null. */
static enum chex_status print_end(const struct chex_train_config *c, const struct chex_position *at,
                                  enum chex_status status, struct chex_error *err) {
    const bool auroc = at->has_best && chex_best_is_auroc(at), loss = at->has_best && !auroc;
    json_t *o = json_pack(
        "{s:i,s:i,s:s,s:I,s:I,s:I,s:o,s:o,s:o}", "schema", 1, "status", (int)status, "output",
        c->output_dir, "steps", (json_int_t)at->step, "epochs", (json_int_t)at->epoch,
        "best_epoch", (json_int_t)(at->has_best ? at->best_epoch : 0), "best_val_auroc",
        auroc ? json_real(at->best_score) : json_null(), "best_loss",
        loss ? json_real(-at->best_score) : json_null(), "best",
        at->has_best ? json_string("best.h5") : json_null());
    if (!o)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
    return CHEX_OK;
}

/* The object is printed by rank 0, after a run that is done or saved. */
static enum chex_status train(const struct settings *s, const struct chex_train_config *c,
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

static enum chex_status plan(const struct settings *s, const struct chex_train_config *c,
                             const struct chex_train_world *w, bool *together,
                             struct chex_error *err) {
    json_t *object = NULL;
    CHEX_TRY(chex_train_plan(c, w, &object, together, err));
    if (object)
        train_plan_print(object, s->common.json);
    json_decref(object);
    return CHEX_OK;
}

/* What all ranks do together: the run itself, its preview, or the measurement of its input. */
static enum chex_status collective(const struct settings *s, const struct chex_train_config *c,
                                   struct chex_world *world, bool *together,
                                   struct chex_error *err) {
    struct chex_coll *coll = NULL;
    *together = false;
    CHEX_TRY(chex_coll_create(&world->launch, &coll, err));
    struct chex_train_world w = {.launch = &world->launch,
                                 .coll = coll,
                                 .binding = &world->binding,
                                 .gpu = &world->gpu,
                                 .stop = &stop_asked};
    enum chex_status st = s->bench_input ? bench_input(s, c, &w, together, err)
                          : s->plan      ? plan(s, c, &w, together, err)
                                         : train(s, c, &w, together, err);
    if (st == CHEX_OK || *together)
        chex_coll_destroy(coll);
    return st;
}

/* The job proper, once the launch is known. *together: see chex_train_run. */
static enum chex_status work(struct settings *s, struct chex_world *world, bool *together,
                             struct chex_error *err) {
    const char *engine = NULL;
    struct chex_gpu gpu;
    bool has_gpu = false;
    *together = true;
    if (!s->bench_input) { /* which needs none */
        enum chex_status st = chex_choose_engine(s->engine, &world->gpu, &engine, err);
        CHEX_TRY(chex_choose_gpu(&world->launch, &world->binding, &world->gpu,
                                 st == CHEX_OK ? engine : NULL, &gpu, &has_gpu, err));
        enum chex_precision usual = (enum chex_precision)s->precision;
        if (chex_opt_origin(s->set, "precision") == CHEX_FROM_DEFAULT)
            CHEX_TRY(chex_choose_precision(&world->launch, engine, &usual, err));
        s->precision = (int)usual;
    }
    const struct chex_gpu *device = has_gpu ? &gpu : NULL;
    int threads = s->threads ? (int)s->threads : world->binding.threads;
    if (s->bench)
        return bench(s, engine, device, threads, &world->launch, together, err);
    struct chex_train_config config;
    CHEX_TRY(config_of(s, engine, device, threads, &config, err));
    enum chex_status st = collective(s, &config, world, together, err);
    json_decref(config.options);
    json_decref(config.shared_options);
    return st;
}

/* A preview is an object that names all of these, whether it is printed as one or not. */
static enum chex_status check_names(const struct settings *s, struct chex_error *err) {
    const char *user = s->plan ? "--plan" : "--json";
    if (s->bench || s->bench_input || (!s->plan && !s->common.json))
        return CHEX_OK;
    CHEX_TRY(chex_text_for_json("--output", s->output, user, err));
    if (!s->plan)
        return CHEX_OK;
    CHEX_TRY(chex_text_for_json("--data", s->data, user, err));
    CHEX_TRY(chex_text_for_json("--init", s->init, user, err));
    CHEX_TRY(chex_text_for_json("--resume", s->resume, user, err));
    return chex_text_for_json("--stage", s->stage, user, err);
}

static enum chex_status check_settings(const struct settings *s, struct chex_error *err) {
    bool needs_output = !s->bench && !s->bench_input;
    if (s->bench && s->bench_input)
        return chex_error_set(err, CHEX_E_USAGE, "--bench and --bench-input: expected one of them");
    if (s->plan && (s->bench || s->bench_input))
        return chex_error_set(err, CHEX_E_USAGE, "--plan and --bench%s: expected one of them",
                              s->bench ? "" : "-input");
    if (s->timeline && (s->bench || s->bench_input))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--timeline and --bench%s: a timeline is one of a run",
                              s->bench ? "" : "-input");
    if (s->consume > 0 && !s->bench_input)
        return chex_error_set(err, CHEX_E_USAGE, "--consume %g: expected --bench-input N with it",
                              s->consume);
    if ((s->bench_layers || s->bench_infer) && !s->bench)
        return chex_error_set(err, CHEX_E_USAGE, "--bench-%s: expected --bench N with it",
                              s->bench_layers ? "layers" : "infer");
    if (s->min_lr > s->lr)
        return chex_error_set(err, CHEX_E_USAGE, "--min-lr %g: expected no more than --lr, %g",
                              s->min_lr, s->lr);
    if ((!s->bench && !s->data) || (needs_output && !s->output))
        return chex_error_set(err, CHEX_E_USAGE, "--%s DIR is required; try 'chex-train --help'",
                              s->data ? "output" : "data");
    return check_names(s, err);
}

static enum chex_status run(struct settings *s, struct chex_error *err) {
    struct chex_world world;
    CHEX_TRY(check_settings(s, err));
    CHEX_TRY(install_signals(s, err));
    CHEX_TRY(chex_world_open(&world, err));
    bool together;
    enum chex_status st = work(s, &world, &together, err);
    if (st != CHEX_OK && (world.launch.rank == 0 || !together))
        chex_log(st == CHEX_E_PREEMPTED ? CHEX_LOG_WARN : CHEX_LOG_ERROR, "%s", err->text);
    err->text[0] = '\0';
    chex_world_close(&world, st, together);
    return st;
}

int main(int argc, char **argv) {
    struct settings s;
    struct chex_opt_set *set = NULL;
    struct chex_error err = {0};
    char libraries[256];
    chex_log_init(program.name, CHEX_LOG_INFO);
    enum chex_status st = chex_opt_parse(&program, argc, argv, &s, sizeof s, &set, &err);
    if (st == CHEX_OK) {
        chex_log_set_level((enum chex_log_level)s.common.log_level);
        s.set = set;
        if (s.common.help)
            chex_opt_print_help(&program, stdout);
        else if (s.common.version)
            chex_opt_print_version(
                program.name, chex_data_libraries(libraries, sizeof libraries), stdout);
        else if (s.common.print_config)
            chex_opt_print_config(set, &s, stdout);
        else if (chex_opt_word_count(set))
            st = chex_error_set(&err, CHEX_E_USAGE, "unexpected word '%s'; try '%s --help'",
                                chex_opt_word(set, 0), program.name);
        else
            st = run(&s, &err);
    }
    if (st == CHEX_OK)
        st = chex_fs_flush_stdout(&err);
    if (st == CHEX_E_USAGE && err.text[0]) /* before the launch: run tells what comes later */
        chex_world_refuse(&err);
    else if (st != CHEX_OK && err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    return (int)st;
}
