/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train: trains CheXNet on a folder of shards, alone or with all ranks of a Slurm step.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "base/units.h"
#include "command.h"
#include "engine/choose.h"
#include "engine/update.h"
#include "input/pipeline.h"
#include "label/classes.h"
#include "launch/world.h"
#include "option_rows.h"
#include "train/bench.h"
#include "train/bench_input.h"
#include "train/plan.h"
#include "train/prove.h"
#include "train/requeue.h"
#include "train/trainer.h"
#include "train_bench.h"
#include "train_plan.h"
#include "train_prove.h"
#include "train_signals.h"

struct settings {
    struct chex_opt_common common;
    const char *data, *findings, *uncertain, *where, *data_weights;
    const char *output, *engine, *init, *resume, *checkpoint_every, *preempt_signal, *stage;
    const char *save_before_end, *freeze;
    const char *timeline, *prove, *cluster;
    const char *pos_weight;
    int model, opt, sched, precision, order, pipeline, cache, resident, loss, loss_mean;
    int64_t image_size, batch_size, epochs, threads, workers, seed, logical_ranks, accumulate;
    int64_t checkpoint_keep, max_steps, stop_after, shuffle_block, patience, step_epochs, bench,
        bench_input, stretches, audit_steps;
    double crop_scale, hflip, rotate, brightness, contrast;
    double label_smoothing, focal_gamma, focal_alpha, asl_gamma_neg, asl_gamma_pos, asl_clip;
    double lr, min_lr, lr_factor, weight_decay, momentum, clip_norm, layer_decay, ema,
        warmup_epochs, consume;
    uint64_t stall_warn, stall_abort;
    bool deterministic, plan, bench_layers, bench_infer, antialias, job_comment, requeue;
    bool nesterov, decay_norms, sync_bn, head_only;
    int64_t accumulated_ranks; /* logical ranks by --accumulate; 0: not given */
    char proven_engine[128];   /* --prove: that of the run */
    struct chex_opt_set *set;  /* the origin of each value */
};

#define AT(member) offsetof(struct settings, member)
static const struct chex_opt options[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Data and results"),
    OPTION("data", STRING, AT(data), .letter = 'd', .metavar = "DIR[,DIR...]", .of_rank = true,
           .help = "folder of shards that chex-shard wrote; several sets are trained on together, "
                   "each as DIR or NAME=DIR"),
    OPTION("findings", STRING, AT(findings), .metavar = "NAME,...", .of_run = true,
           .help = "findings to train on, in the order of the network's outputs; without it, all "
                   "findings of the data"),
    OPTION("uncertain", STRING, AT(uncertain), .def = "ignore",
           .metavar = "POLICY|FINDING=POLICY,...", .of_run = true,
           .help = "uncertain labels: ignore (no loss), zeros, ones, or smooth:X (target X of the "
                   "loss; 0.7 without X)"),
    OPTION("where", STRING, AT(where), .metavar = "CONDITIONS", .of_run = true,
           .help = "train and validate on the images that meet all conditions, such as "
                   "view=PA,age>=18,sex=F,source=NAME"),
    OPTION("data-weights", STRING, AT(data_weights), .metavar = "N,...", .of_run = true,
           .help = "for each set of --data, how often an epoch uses each of its training images "
                   "(default: once)"),
    OPTION("output", STRING, AT(output), .letter = 'o', .metavar = "DIR", .of_rank = true,
           .help = "folder of the run: checkpoints, metrics, configuration"),
    OPTION(
        "resume", STRING, AT(resume), .def = "auto", .metavar = "auto|none|FILE", .of_rank = true,
        .help =
            "continue from the newest checkpoint in --output, start anew, or continue from FILE"),
    OPTION("plan", FLAG, AT(plan),
           .help = "print a plan instead of training: data, memory, messages, time, checkpoints, "
                   "and errors; exits with the status of the run"),
    OPTION("cluster", STRING, AT(cluster), .metavar = "FILE",
           .help = "with --plan: predict speed and efficiency on the cluster that FILE describes"),
    OPTION("prove", STRING, AT(prove), .metavar = "RUN",
           .help = "repeat stretches of the run in folder RUN and compare the results to the last "
                   "bit; changes nothing"),
    OPTION("stretches", INT, AT(stretches), .def = "3", .metavar = "K", .min = 0, .max = 1e9,
           .help = "with --prove: stretches between checkpoints, chosen at random (0: all)"),
    OPTION("init", STRING, AT(init), .metavar = "FILE", .of_rank = true,
           .help = "start from the parameters of a checkpoint, safetensors or PyTorch file"),
    OPTION_GROUP("Network and training"),
    OPTION("model", CHOICE, AT(model), .letter = 'm', .def = "densenet121", .metavar = "NAME",
           .choices = chex_net_names, .of_run = true, .help = "network"),
    OPTION("image-size", INT, AT(image_size), .def = "224", .metavar = "PX", .min = 32, .max = 4096,
           .of_run = true, .help = "side of the training crops"),
    OPTION("batch-size", INT, AT(batch_size), .letter = 'b', .def = "16", .metavar = "N", .min = 1,
           .max = 65536, .of_run = true, .help = "images per logical rank and step"),
    OPTION("epochs", INT, AT(epochs), .letter = 'e', .def = "15", .metavar = "N", .min = 1,
           .max = 1e6, .of_run = true, .help = "passes over the training images"),
    OPTION("max-steps", INT, AT(max_steps), .def = "0", .metavar = "N", .min = 0, .max = 1e12,
           .help = "stop after N steps and save (0: no limit)"),
    OPTION("stop-after", INT, AT(stop_after), .def = "0", .metavar = "N", .min = 0, .max = 1e6,
           .of_run = true,
           .help = "stop after N epochs without a better result than that of best.h5 (0: never)"),
    OPTION("loss", CHOICE, AT(loss), .def = "bce", .metavar = "NAME", .choices = chex_loss_names,
           .of_run = true,
           .help = "binary cross-entropy, focal loss or asymmetric loss; validation always reports "
                   "plain bce"),
    OPTION("pos-weight", STRING, AT(pos_weight), .def = "none", .metavar = "none|balanced|FILE",
           .of_run = true,
           .help = "weights of positive labels: 1; negative labels divided by positive labels of "
                   "the training rows; or by finding, from a CSV file"),
    OPTION("label-smoothing", FLOAT, AT(label_smoothing), .def = "0", .metavar = "X", .min = 0,
           .max = 1, .of_run = true, .help = "targets become X/2 and 1 - X/2 instead of 0 and 1"),
    OPTION("focal-gamma", FLOAT, AT(focal_gamma), .def = "2", .metavar = "X", .min = 0, .max = 100,
           .of_run = true, .help = "focal: exponent that reduces the loss of easy labels"),
    OPTION("focal-alpha", FLOAT, AT(focal_alpha), .def = "-1", .metavar = "X", .min = -1, .max = 1,
           .of_run = true,
           .help = "focal: weight of positive labels; that of negative labels is 1 - X (negative: "
                   "no weights)"),
    OPTION("asl-gamma-neg", FLOAT, AT(asl_gamma_neg), .def = "4", .metavar = "X", .min = 0,
           .max = 100, .of_run = true, .help = "asl: exponent for negative labels"),
    OPTION("asl-gamma-pos", FLOAT, AT(asl_gamma_pos), .def = "1", .metavar = "X", .min = 0,
           .max = 100, .of_run = true, .help = "asl: exponent for positive labels"),
    OPTION("asl-clip", FLOAT, AT(asl_clip), .def = "0.05", .metavar = "P", .min = 0, .max = 0.99,
           .of_run = true,
           .help = "asl: a negative label whose probability is at most P has no loss"),
    OPTION("loss-mean", CHOICE, AT(loss_mean), .def = "all", .metavar = "all|stated",
           .choices = chex_loss_mean_names, .of_run = true,
           .help = "divide the loss by all labels, or, for each finding, by those that the "
                   "training rows state"),
    OPTION("opt", CHOICE, AT(opt), .def = "adam", .metavar = "NAME", .choices = chex_optim_names,
           .of_run = true, .help = "optimiser"),
    OPTION("lr", FLOAT, AT(lr), .def = "1e-4", .metavar = "RATE", .min = 0, .max = 1e3,
           .of_run = true, .help = "learning rate; never scaled by the number of ranks"),
    OPTION("weight-decay", FLOAT, AT(weight_decay), .def = "0", .metavar = "X", .min = 0,
           .max = 1e3, .of_run = true,
           .help = "L2 penalty (adam, sgd, lars) or decoupled decay (adamw) of the weights of "
                   "convolutions and classifier"),
    OPTION("decay-norms", FLAG, AT(decay_norms), .of_run = true,
           .help = "apply --weight-decay to batch norms and biases too"),
    OPTION("momentum", FLOAT, AT(momentum), .def = "0.9", .metavar = "X", .min = 0, .max = 1,
           .of_run = true, .help = "momentum of sgd and lars"),
    OPTION("nesterov", FLAG, AT(nesterov), .of_run = true, .help = "Nesterov's momentum, for sgd"),
    OPTION("clip-norm", FLOAT, AT(clip_norm), .def = "0", .metavar = "X", .min = 0, .max = 1e9,
           .of_run = true,
           .help = "scale the mean gradient down to norm X if it is larger (0: do not clip)"),
    OPTION("layer-decay", FLOAT, AT(layer_decay), .def = "1", .metavar = "X", .min = 0.01, .max = 1,
           .of_run = true,
           .help = "multiply the rate of each layer by X for every layer between it and the "
                   "classifier"),
    OPTION("freeze", STRING, AT(freeze), .def = "none", .metavar = "none|PATTERN,...",
           .of_run = true,
           .help = "do not train the parameters whose names match, such as 'features.*'"),
    OPTION("head-only", FLAG, AT(head_only), .of_run = true,
           .help = "train only the classifier, on features of all images that are computed once, "
                   "without augmentation; minutes instead of hours"),
    OPTION("ema", FLOAT, AT(ema), .def = "0", .metavar = "DECAY", .min = 0, .max = 0.9999999,
           .of_run = true,
           .help = "keep an exponential moving average of the parameters; validation, best.h5 and "
                   "chex-eval use it (0: none)"),
    OPTION("sched", CHOICE, AT(sched), .def = "plateau", .metavar = "NAME",
           .choices = chex_sched_names, .of_run = true, .help = "schedule of the learning rate"),
    OPTION("warmup-epochs", FLOAT, AT(warmup_epochs), .def = "0", .metavar = "X", .min = 0,
           .max = 1e6, .of_run = true, .help = "epochs of linear warm-up to --lr"),
    OPTION("min-lr", FLOAT, AT(min_lr), .def = "0", .metavar = "RATE", .min = 0, .max = 1e3,
           .of_run = true, .help = "lower limit of the schedule; the warm-up starts below it"),
    OPTION("lr-factor", FLOAT, AT(lr_factor), .def = "0.1", .metavar = "X", .min = 1e-6, .max = 1,
           .of_run = true, .help = "factor of plateau and step"),
    OPTION("patience-epochs", INT, AT(patience), .def = "3", .metavar = "N", .min = 0, .max = 1e6,
           .of_run = true,
           .help = "plateau: epochs without a lower validation loss before the rate is reduced"),
    OPTION("step-epochs", INT, AT(step_epochs), .def = "10", .metavar = "N", .min = 1, .max = 1e6,
           .of_run = true, .help = "step: epochs between reductions"),
    OPTION("seed", INT, AT(seed), .letter = 's', .def = "0", .metavar = "N", .min = 0, .max = 9e15,
           .of_run = true, .help = "seed of initial parameters, sample order and augmentation"),
    OPTION("order", CHOICE, AT(order), .def = "local", .metavar = "NAME",
           .choices = chex_order_names, .of_run = true,
           .help = "shuffle within each logical rank's rows, or all rows"),
    OPTION("shuffle-block", INT, AT(shuffle_block), .def = "1", .metavar = "N", .min = 1,
           .max = 1e9, .of_run = true,
           .help = "for disks with slow seeks: read runs of N rows; shuffle in windows of 16 runs "
                   "and at least 1,024 rows"),
    OPTION(
        "pipeline", CHOICE, AT(pipeline), .def = "new", .metavar = "NAME",
        .choices = chex_pipeline_names, .of_run = true,
        .help =
            "input pipeline; old: the article's first version, in which every rank reads all data"),
    OPTION("cache", CHOICE, AT(cache), .def = "auto", .metavar = "NAME",
           .choices = chex_cache_names, .of_rank = true,
           .help = "cache the rank's stored images in host memory; auto: if they need less than "
                   "half of the free memory"),
    OPTION("resident", CHOICE, AT(resident), .def = "auto", .metavar = "NAME",
           .choices = chex_resident_names, .of_rank = true,
           .help = "keep the rank's stored images in GPU memory; auto: if they fit. Each is read "
                   "once, and --cache is not needed"),
    OPTION("stage", STRING, AT(stage), .metavar = "DIR", .of_rank = true,
           .help = "first copy the shards to this folder on each node and verify them; the copy is "
                   "removed at the end"),
    OPTION_GROUP("Augmentation"),
    OPTION("crop-scale", FLOAT, AT(crop_scale), .def = "0.5", .metavar = "MIN", .min = 0.01,
           .max = 1, .of_run = true,
           .help = "smallest fraction of the image's area that a random crop covers"),
    OPTION("hflip", FLOAT, AT(hflip), .def = "0.5", .metavar = "P", .min = 0, .max = 1,
           .of_run = true,
           .help = "probability of the horizontal flip; 0 keeps left and right as they are"),
    OPTION("antialias", FLAG, AT(antialias), .of_run = true,
           .help = "antialias crops that are reduced; without it, bilinear from four pixels"),
    OPTION("rotate", FLOAT, AT(rotate), .def = "0", .metavar = "DEGREES", .min = 0, .max = 180,
           .of_run = true,
           .help = "rotate by a random angle of at most DEGREES in either direction; corners "
                   "become black"),
    OPTION("brightness", FLOAT, AT(brightness), .def = "0", .metavar = "F", .min = 0, .max = 10,
           .of_run = true, .help = "multiply by a random factor from 1 - F (not below 0) to 1 + F"),
    OPTION("contrast", FLOAT, AT(contrast), .def = "0", .metavar = "F", .min = 0, .max = 10,
           .of_run = true,
           .help = "scale the difference from the crop's mean by a random factor from 1 - F (not "
                   "below 0) to 1 + F"),
    OPTION_GROUP("Engine and ranks"),
    OPTION("engine", STRING, AT(engine), .def = "auto", .metavar = "auto|cuda|cpu|ref",
           .of_rank = true, .help = "engine; a variant can follow, as in cpu:avx2 or cuda:s1"),
    OPTION("precision", CHOICE, AT(precision), .letter = 'p', .def = "fp32", .metavar = "NAME",
           .choices = chex_precision_names, .of_run = true,
           .help = "precision of activations and products; the default is bf16 on GPUs and "
                   "processors with bf16 matrix units"),
    OPTION("threads", INT, AT(threads), .letter = 't', .def = "0", .metavar = "N", .min = 0,
           .max = 4096, .of_rank = true,
           .help = "compute threads (0: the cores this rank is bound to)"),
    OPTION("workers", INT, AT(workers), .letter = 'j', .def = "1", .metavar = "N", .min = 1,
           .max = 256, .of_rank = true, .help = "input threads"),
    OPTION("logical-ranks", INT, AT(logical_ranks), .def = "0", .metavar = "V", .min = 0,
           .max = 65536, .of_run = true,
           .help = "batches per step; results depend on V, not on the number of processes (0: the "
                   "number of processes)"),
    OPTION("accumulate", INT, AT(accumulate), .def = "0", .metavar = "N", .min = 0, .max = 65536,
           .help = "batches of each process per step: --logical-ranks of N times the processes"),
    OPTION("sync-bn", FLAG, AT(sync_bn), .of_run = true,
           .help = "batch norms use the statistics of all logical ranks of a step, as if it were "
                   "one batch; slower"),
    OPTION("deterministic", FLAG, AT(deterministic), .of_run = true,
           .help = "add gradients in one fixed order: the same bits for any number of ranks"),
    OPTION("audit-steps", INT, AT(audit_steps), .def = "0", .metavar = "N", .min = 0, .max = 1e12,
           .of_run = true,
           .help = "every N steps another process repeats a pass of one; different bits end the "
                   "run with status 5 and name the node (0: never)"),
    OPTION_GROUP("Checkpoints and interruptions"),
    OPTION("checkpoint-every", STRING, AT(checkpoint_every), .def = "30m",
           .metavar = "30m|500steps|2epochs", .of_run = true,
           .help = "save by time or by steps, and at each epoch's end; or only at the end of every "
                   "so many epochs, and when the result is the best so far"),
    OPTION("checkpoint-keep", INT, AT(checkpoint_keep), .def = "3", .metavar = "N", .min = 0,
           .max = 1e6, .of_run = true, .help = "numbered checkpoints that are kept (0: all)"),
    OPTION("preempt-signal", STRING, AT(preempt_signal), .def = "USR2", .metavar = "NAME",
           .help = "signal after which all ranks save and exit with status 6; TERM, INT and HUP do "
                   "so too"),
    OPTION("save-before-end", STRING, AT(save_before_end), .def = "auto",
           .metavar = "auto|off|TIME",
           .help = "save and exit with status 6 this long before the end of the Slurm job; auto: "
                   "from measured step and save times, plus 20 s"),
    OPTION("requeue", FLAG, AT(requeue),
           .help = "after a save (status 6) or lost ranks (status 7; three times at most) put the "
                   "Slurm batch job back into the queue; for scripts that do not"),
    OPTION("stall-warn", DURATION, AT(stall_warn), .def = "60s", .metavar = "TIME",
           .help = "after this time without progress, name the ranks that the others wait for (0s: "
                   "never)"),
    OPTION("stall-abort", DURATION, AT(stall_abort), .def = "600s", .metavar = "TIME",
           .help = "after this time without progress, end the job with status 7 (0s: never)"),
    OPTION_GROUP("Measuring"),
    OPTION("job-comment", FLAG, AT(job_comment),
           .help = "at the end, write the images per second into the comment of the Slurm job"),
    OPTION("timeline", STRING, AT(timeline), .metavar = "FILE",
           .help = "write a timeline of the last events of each rank, as Trace Event JSON for "
                   "Perfetto or chrome://tracing"),
    OPTION("bench", INT, AT(bench), .def = "0", .metavar = "N", .min = 0, .max = 1e9,
           .help = "time N steps on random data in memory instead of training; several ranks: the "
                   "sum of the rates, and the step times of the slowest rank"),
    OPTION("bench-layers", FLAG, AT(bench_layers),
           .help = "with --bench: time, rate and fraction of the measured limits for every "
                   "operation of the last step"),
    OPTION("bench-infer", FLAG, AT(bench_infer),
           .help = "with --bench: inference instead of training"),
    OPTION("bench-input", INT, AT(bench_input), .def = "0", .metavar = "N", .min = 0, .max = 1e9,
           .help = "time the input of N training batches on each rank, without a network"),
    OPTION("consume", FLOAT, AT(consume), .def = "0", .metavar = "RATE", .min = 0, .max = 1e9,
           .help = "with --bench-input: images per second that each rank consumes (0: no limit)"),
};

static enum chex_status run(struct chex_opt_set *set, void *settings, struct chex_error *err);

static const struct chex_opt_program program = {
    .name = "chex-train",
    .summary = "train CheXNet on sharded chest X-rays",
    .usage = "chex-train --data DIR --output DIR [options]\n"
             "chex-train --plan --data DIR --output DIR [options]\n"
             "chex-train --prove RUN [--data DIR] [options]\n"
             "chex-train --bench N [options]\n"
             "chex-train --data DIR --bench-input N [options]",
    .opts = options,
    .count = COUNT(options),
    .epilog = "Examples\n"
              "  chex-train --data shards --output run --epochs 10 --lr 1e-3\n"
              "  srun -n4 --gpus-per-task=1 chex-train --data shards --output run\n"
              "  chex-train --bench 20 --image-size 64 --batch-size 64 --json\n"
              "  chex-train --data shards --bench-input 2000 --workers 2 --consume 20000\n"
              "\n"
              "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad data, 4 environment, 5 node, "
              "6 saved\n"
              "after preemption (run again to go on), 7 stalled or a rank lost, 8 loss not finite, "
              "9 out of\n"
              "memory or disk.\n",
    .settings_size = sizeof(struct settings),
    .run = run,
};

/* A whole number with the unit after it: "500steps". */
static bool parse_count(const char *text, const char *unit, uint64_t *out) {
    char number[32];
    const size_t n = strlen(text), after = strlen(unit);
    if (n <= after || n - after >= sizeof number || strcmp(text + n - after, unit) != 0)
        return false;
    snprintf(number, sizeof number, "%.*s", (int)(n - after), text);
    return chex_parse_u64(number, out);
}

/* --checkpoint-every: "500steps", "2epochs" or a duration. Sets one of the three numbers. */
static enum chex_status parse_cadence(const char *text, struct chex_train_config *out,
                                      struct chex_error *err) {
    if (parse_count(text, "steps", &out->save_every_steps) ||
        parse_count(text, "epochs", &out->save_every_epochs) ||
        chex_parse_duration(text, &out->save_every_ms))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "--checkpoint-every: '%s' is not valid: expected a time such as 30m, "
                          "steps such as 500steps, or epochs such as 2epochs",
                          text);
}

static enum chex_status parse_save_before_end(const char *text, struct chex_save_before_end *out,
                                              struct chex_error *err) {
    *out = (struct chex_save_before_end){.off = strcmp(text, "off") == 0};
    if (out->off || strcmp(text, "auto") == 0 ||
        (chex_parse_duration(text, &out->margin_ms) && out->margin_ms))
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_USAGE,
        "--save-before-end: '%s' is not valid: expected auto, off, or a time such "
        "as 5m",
        text);
}

static struct chex_update update_of(const struct settings *s) {
    return (struct chex_update){.optim = (enum chex_optim)s->opt,
                                .lr = s->lr,
                                .weight_decay = s->weight_decay,
                                .momentum = s->momentum,
                                .nesterov = s->nesterov,
                                .decay_norms = s->decay_norms,
                                .clip_norm = s->clip_norm,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .grad_scale = 1};
}

static struct chex_loss loss_of(const struct settings *s) {
    const bool focal = s->loss == CHEX_LOSS_FOCAL, asl = s->loss == CHEX_LOSS_ASL;
    return (struct chex_loss){.kind = (enum chex_loss_kind)s->loss,
                              .smoothing = s->label_smoothing,
                              .gamma_pos = focal ? s->focal_gamma
                                           : asl ? s->asl_gamma_pos
                                                 : 0,
                              .gamma_neg = asl ? s->asl_gamma_neg : 0,
                              .clip = asl ? s->asl_clip : 0,
                              .alpha = focal ? s->focal_alpha : -1};
}

/* An option of one loss must be given with that loss. Those of a resumed run may stay. */
static enum chex_status check_loss(const struct settings *s, struct chex_error *err) {
    static const struct {
        const char *name;
        enum chex_loss_kind kind;
    } own[] = {{"focal-gamma", CHEX_LOSS_FOCAL},
               {"focal-alpha", CHEX_LOSS_FOCAL},
               {"asl-gamma-neg", CHEX_LOSS_ASL},
               {"asl-gamma-pos", CHEX_LOSS_ASL},
               {"asl-clip", CHEX_LOSS_ASL}};
    for (size_t i = 0; i < COUNT(own); i++)
        if (chex_opt_origin(s->set, own[i].name) > CHEX_FROM_RUN && (int)own[i].kind != s->loss)
            return chex_error_set(err, CHEX_E_USAGE, "--%s: --loss is %s (expected %s)",
                                  own[i].name, chex_loss_names[s->loss],
                                  chex_loss_names[own[i].kind]);
    return CHEX_OK;
}

/* --head-only has no augmentation and no pass through the other layers. */
static enum chex_status check_head_only(const struct settings *s, struct chex_error *err) {
    static const char *const refused[] = {"crop-scale", "hflip",       "antialias",  "rotate",
                                          "brightness", "contrast",    "freeze",     "layer-decay",
                                          "sync-bn",    "audit-steps", "cache",      "resident",
                                          "cluster",    "bench",       "bench-input"};
    for (size_t i = 0; s->head_only && i < COUNT(refused); i++)
        if (chex_opt_origin(s->set, refused[i]) > CHEX_FROM_RUN)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--head-only and --%s: only the classifier trains, on features "
                                  "that are computed once",
                                  refused[i]);
    return CHEX_OK;
}

/* For config.json and checkpoints: the effective options and, by the same names, their origins.
 * --plan, --prove and the shared options (--help, --json, ...) are left out. */
static json_t *options_json(const struct settings *s) {
    json_t *object = json_object(), *origins = json_object();
    for (size_t i = 0; i < program.count; i++) {
        const struct chex_opt *o = &options[i];
        char value[4096];
        if (o->type == CHEX_OPT_GROUP || o->at < sizeof s->common || o->at == AT(plan) ||
            o->at == AT(cluster) || o->at == AT(prove) || o->at == AT(stretches))
            continue;
        chex_opt_value_text(o, s, value, sizeof value);
        json_object_set_new(object, o->name, json_string(value));
        json_object_set_new(origins, o->name,
                            json_string(chex_opt_origin_names[chex_opt_origin(s->set, o->name)]));
    }
    return chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("command", program.name),
                       CHEX_FIELD("version", CHEXNET_VERSION), CHEX_FIELD("options", object),
                       CHEX_FIELD("origins", origins));
}

/* The options that must be equal on all ranks. The files of --init and --resume and the folder of
 * --stage may differ between ranks. But if only some ranks have one, the ranks would make different
 * collective calls. */
static json_t *shared_options(const json_t *recorded) {
    json_t *shared = json_copy(json_object_get(recorded, "options"));
    for (size_t i = 0; i < program.count; i++) {
        const struct chex_opt *o = &options[i];
        const char *value = json_string_value(json_object_get(shared, o->name));
        if (!o->of_rank)
            continue;
        if (o->at != AT(init) && o->at != AT(resume) && o->at != AT(stage))
            json_object_del(shared, o->name);
        else if (value && value[0] && strcmp(value, "auto") != 0 && strcmp(value, "none") != 0)
            json_object_set_new(shared, o->name, json_string("a path"));
    }
    return shared;
}

static enum chex_status config_of(const struct settings *s, const char *engine,
                                  const struct chex_gpu *device, int threads,
                                  struct chex_train_config *out, struct chex_error *err) {
    *out = (struct chex_train_config){
        .data_dir = s->data,
        .findings = s->findings,
        .uncertain = s->uncertain,
        .where = s->where,
        .data_weights = s->data_weights,
        .output_dir = s->output,
        .cluster = s->cluster,
        .model = chex_net_names[s->model],
        .engine = engine,
        .device = device,
        .image_size = (int)s->image_size,
        .batch = (int)s->batch_size,
        .threads = threads,
        .workers = (int)s->workers,
        .epochs = s->epochs,
        .max_steps = (uint64_t)s->max_steps,
        .stop_after = (uint64_t)s->stop_after,
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
        .loss = loss_of(s),
        .pos_weight = s->pos_weight,
        .loss_mean = (enum chex_loss_mean)s->loss_mean,
        .layer_decay = s->layer_decay,
        .freeze = s->freeze,
        .head_only = s->head_only,
        .ema_decay = s->ema,
        .init = s->init,
        .resume = s->resume,
        .seed = (uint64_t)s->seed,
        .deterministic = s->deterministic,
        .sync_bn = s->sync_bn,
        .audit_steps = (uint64_t)s->audit_steps,
        .logical_ranks = (int)(s->accumulate ? s->accumulated_ranks : s->logical_ranks),
        .order = (enum chex_order_kind)s->order,
        .pipeline = (enum chex_pipeline_kind)s->pipeline,
        .shuffle_block = (size_t)s->shuffle_block,
        .augment = {.crop_scale = s->crop_scale,
                    .hflip = s->hflip,
                    .antialias = s->antialias,
                    .rotate = s->rotate,
                    .brightness = s->brightness,
                    .contrast = s->contrast},
        .cache = (enum chex_cache_mode)s->cache,
        .resident = (enum chex_resident_mode)s->resident,
        .stage = s->stage,
        .save_keep = (int)s->checkpoint_keep,
        .job_comment = s->job_comment,
        .stall_warn_ms = s->stall_warn,
        .stall_abort_ms = s->stall_abort,
        .timeline = s->timeline};
    CHEX_TRY(parse_cadence(s->checkpoint_every, out, err));
    CHEX_TRY(parse_save_before_end(s->save_before_end, &out->save_before_end, err));
    out->options = options_json(s);
    out->shared_options = shared_options(out->options);
    return out->shared_options ? CHEX_OK : chex_error_memory(err, NULL);
}

/* For restore_from_run: the inputs of config_of. */
struct starter {
    struct settings *s;
    const char *engine;
    const struct chex_gpu *device;
    int threads;
    struct chex_train_config *config;
};

/* The default of --precision depends on the machine. A resumed run chooses it again, if the user
 * had not given it. A proof never does. */
static bool machine_chose(const struct settings *s, const struct chex_opt *o,
                          const json_t *origins) {
    const char *origin = json_string_value(json_object_get(origins, o->name));
    return o->at == AT(precision) && !s->prove &&
           (!origin || strcmp(origin, chex_opt_origin_names[CHEX_FROM_DEFAULT]) == 0);
}

/* The recorded text of an option of the run; NULL: none. Checkpoints without --decay-norms are from
 * versions that applied weight decay to all parameters. */
static const char *recorded_text(const struct chex_opt *o, const json_t *recorded) {
    const char *text = o->of_run ? json_string_value(json_object_get(recorded, o->name)) : NULL;
    return !text && o->at == AT(decay_norms) ? "yes" : text;
}

/* Takes over the recorded options that were not given again. `restored` gets the list of changes.
 */
static enum chex_status restore_options(struct settings *s, const char *path,
                                        const json_t *recorded, const json_t *origins,
                                        char *restored, size_t size, struct chex_error *err) {
    size_t used = 0;
    restored[0] = '\0';
    for (size_t i = 0; i < program.count; i++) {
        const struct chex_opt *o = &options[i];
        const char *value = recorded_text(o, recorded);
        char before[64], after[64];
        if (!value || !*value || machine_chose(s, o, origins))
            continue;
        chex_opt_value_text(o, s, before, sizeof before);
        CHEX_TRY(chex_opt_take(s->set, o, s, value, path, err));
        chex_opt_value_text(o, s, after, sizeof after);
        if (strcmp(before, after) != 0 && used < size)
            used += (size_t)snprintf(restored + used, size - used, "%s%s '%s'", used ? ", " : "",
                                     o->name, after);
    }
    return CHEX_OK;
}

/* --accumulate N: sets --logical-ranks before a run starts or resumes. */
static enum chex_status accumulate(struct settings *s, int processes, struct chex_error *err) {
    enum { MOST = 65536 };
    if (s->accumulate * processes > MOST)
        return chex_error_set(
            err, CHEX_E_USAGE, "--accumulate %lld: %lld logical ranks on %d processes (at most %d)",
            (long long)s->accumulate, (long long)s->accumulate * processes, processes, MOST);
    s->accumulated_ranks = s->accumulate * processes;
    return CHEX_OK;
}

static enum chex_status check_settings(const struct settings *s, struct chex_error *err);

/* The moving average and the moments of the other layers would not fit the new kind of run. */
static enum chex_status same_head_only(const struct settings *s, const char *path,
                                       const json_t *recorded, struct chex_error *err) {
    const char *was = json_string_value(json_object_get(recorded, "head-only"));
    if ((was && strcmp(was, "yes") == 0) == s->head_only)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "%s: the run was made %s --head-only; start another one from it with "
                          "--init, in another --output",
                          path, s->head_only ? "without" : "with");
}

/* A chex_train_restore_fn. */
static enum chex_status restore_from_run(void *arg, const char *path, const json_t *recorded,
                                         const json_t *origins, struct chex_train_config *config,
                                         char *restored, size_t size, struct chex_error *err) {
    const struct starter *start = arg;
    struct chex_train_config now;
    CHEX_TRY(restore_options(start->s, path, recorded, origins, restored, size, err));
    CHEX_TRY(same_head_only(start->s, path, recorded, err));
    CHEX_TRY(check_settings(start->s, err));
    CHEX_TRY(config_of(start->s, start->engine, start->device, start->threads, &now, err));
    now.requeue = start->config->requeue;
    json_decref(start->config->options);
    json_decref(start->config->shared_options);
    *config = *start->config = now;
    return CHEX_OK;
}

static enum chex_status bench(const struct settings *s, const char *engine,
                              const struct chex_gpu *device, int threads, struct chex_group *group,
                              bool *together, struct chex_error *err) {
    struct chex_bench b = {.engine = engine,
                           .model = chex_net_names[s->model],
                           .config = {.image_size = (int)s->image_size,
                                      .batch = (int)s->batch_size,
                                      .precision = (enum chex_precision)s->precision,
                                      .threads = threads,
                                      .training = !s->bench_infer,
                                      .loss = loss_of(s),
                                      .ema_decay = s->ema,
                                      .device = device},
                           .update = update_of(s),
                           .classes = CHEX_CLASS_COUNT,
                           .steps = s->bench,
                           .seed = (uint64_t)s->seed,
                           .limits = s->bench_layers,
                           .stop = &train_stop_asked};
    return train_bench(&b, group, s->common.json, together, err);
}

/* The keys are those of --bench. There is no engine, precision is fp32, and threads are the
 * input's.
 */
static json_t *bench_input_json(const struct chex_train_config *c, const struct settings *s,
                                const struct chex_bench_input_result *r) {
    const struct chex_bench_input_rates *all = &r->all;
    return chex_result(
        CHEX_FIELD("schema", 1), CHEX_MEMBER(all, images_per_s_median),
        CHEX_MEMBER(all, images_per_s_best), CHEX_MEMBER(all, images_per_s),
        CHEX_MEMBER(all, bytes_per_s), CHEX_MEMBER(all, stall_share),
        CHEX_FIELD("consume_images_per_s", s->consume), CHEX_MEMBER(all, peak_rss_bytes),
        CHEX_FIELD("engine", "none"), CHEX_FIELD("precision", chex_precision_names[CHEX_FP32]),
        CHEX_FIELD("pipeline", chex_pipeline_names[c->pipeline]), CHEX_FIELD("threads", r->workers),
        CHEX_MEMBER(r, workers), CHEX_MEMBER(c, batch), CHEX_MEMBER(c, image_size),
        CHEX_MEMBER(r, stored_size), CHEX_FIELD("cache", r->keep ? "memory" : "none"),
        CHEX_FIELD("order", chex_order_names[c->order]), CHEX_MEMBER(c, shuffle_block),
        CHEX_MEMBER(r, shuffle_width), CHEX_FIELD("batches", s->bench_input), CHEX_MEMBER(r, ranks),
        CHEX_MEMBER(r, slowest_rank),
        CHEX_FIELD("slowest_images_per_s", r->slowest.images_per_s_median),
        CHEX_FIELD("version", CHEXNET_VERSION));
}

static const char bench_input_text[] =
    "input {pipeline}, {image_size} px of {stored_size} stored, batch {batch}, {workers worker}, "
    "{ranks rank}: {images_per_s_median:.0f} images/s median, {images_per_s_best:.0f} best of "
    "{windows} windows, {bytes_per_s:.3G} GB/s read, peak memory {peak_rss_bytes:B}\n"
    "{consume_images_per_s?consumed at {consume_images_per_s:.0f} images/s a rank: "
    "{reached_images_per_s:.0f} reached, stalled {stall_share:.2%} % of the time\n}"
    "{ranks=1!slowest rank {slowest_rank}: {slowest_images_per_s:.0f} images/s\n}";

static enum chex_status bench_input(const struct settings *s, const struct chex_train_config *c,
                                    const struct chex_train_world *w, bool *together,
                                    struct chex_error *err) {
    const struct chex_bench_input b = {.batches = s->bench_input, .images_per_s = s->consume};
    struct chex_bench_input_result r;
    CHEX_TRY(chex_bench_input_run(&b, c, w, &r, together, err));
    if (w->launch->rank != 0)
        return CHEX_OK;
    json_t *o = bench_input_json(c, s, &r);
    if (!s->common.json) /* what only the text has */
        json_object_update_new(
            o, chex_result(CHEX_MEMBER(&r, windows),
                           CHEX_FIELD("reached_images_per_s", r.all.images_per_s / r.ranks)));
    return chex_result_print(stdout, o, s->common.json ? NULL : bench_input_text, 0, err);
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
    if (object && s->common.json)
        return chex_result_print(stdout, object, NULL, JSON_REAL_PRECISION(9), err);
    if (object)
        train_plan_print(object);
    json_decref(object);
    return CHEX_OK;
}

static enum chex_status prove(const struct settings *s, const struct chex_train_config *c,
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
    const struct settings *s = start->s;
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
                                 .restore_arg = start,
                                 .stop = &train_stop_asked,
                                 .slurm = slurm,
                                 .slurm_why = why.text};
    enum chex_status st = s->bench_input ? bench_input(s, c, &w, together, err)
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
static enum chex_status take_run(struct settings *s, struct chex_error *err) {
    struct chex_prove_options run = {0};
    char taken[1024];
    CHEX_TRY(chex_prove_options_read(s->prove, &run, err));
    enum chex_status st = restore_options(s, s->prove, run.options, NULL, taken, sizeof taken, err);
    const char *data = json_string_value(json_object_get(run.options, "data"));
    for (size_t i = 0; st == CHEX_OK && data && i < program.count; i++)
        if (options[i].at == AT(data))
            st = chex_opt_take(s->set, &options[i], s, data, s->prove, err);
    if (st == CHEX_OK && chex_opt_origin(s->set, "engine") == CHEX_FROM_DEFAULT) {
        snprintf(s->proven_engine, sizeof s->proven_engine, "%s", run.engine);
        s->engine = s->proven_engine;
    }
    json_decref(run.options);
    return st;
}

/* The work after the launch. *together as in chex_train_run. */
static enum chex_status work(struct settings *s, struct chex_world *world, bool *together,
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
        return bench(s, engine, device, threads, world->group, together, err);
    }
    struct chex_train_config config;
    *together = false;
    CHEX_TRY(config_of(s, engine, device, threads, &config, err));
    struct starter start = {s, engine, device, threads, &config};
    enum chex_status st = collective(&start, world, together, err);
    json_decref(config.options);
    json_decref(config.shared_options);
    return st;
}

/* Paths that appear in JSON must be UTF-8. --plan always builds a JSON object with all of them,
 * even without --json. */
static enum chex_status check_names(const struct settings *s, struct chex_error *err) {
    const char *user = s->plan ? "--plan" : "--json";
    if (s->bench || s->bench_input || (!s->plan && !s->common.json))
        return CHEX_OK;
    CHEX_TRY(chex_text_for_json("--output", s->output, user, err));
    if (!s->plan)
        return CHEX_OK;
    CHEX_TRY(chex_text_for_json("--data", s->data, user, err));
    CHEX_TRY(chex_text_for_json("--cluster", s->cluster, user, err));
    CHEX_TRY(chex_text_for_json("--init", s->init, user, err));
    CHEX_TRY(chex_text_for_json("--resume", s->resume, user, err));
    return chex_text_for_json("--stage", s->stage, user, err);
}

/* --prove repeats the run with its own options. The user may only say where: data, engine, threads
 * and the like. */
static enum chex_status check_prove(const struct settings *s, struct chex_error *err) {
    static const char *const refused[] = {"output",   "resume", "init",    "stage",
                                          "timeline", "plan",   "requeue", "job-comment"};
    if (!s->prove && chex_opt_origin(s->set, "stretches") > CHEX_FROM_RUN)
        return chex_error_set(err, CHEX_E_USAGE, "--stretches: expected --prove RUN with it");
    for (size_t i = 0; s->prove && i < program.count; i++) {
        const struct chex_opt *o = &options[i];
        bool bad = o->of_run || o->at == AT(bench) || o->at == AT(bench_input) ||
                   o->at == AT(max_steps) || o->at == AT(accumulate);
        for (size_t r = 0; o->name && r < COUNT(refused); r++)
            bad = bad || strcmp(o->name, refused[r]) == 0;
        if (bad && chex_opt_origin(s->set, o->name) > CHEX_FROM_RUN)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--prove and --%s: a proof repeats the run with its own options "
                                  "and writes nothing",
                                  o->name);
    }
    return CHEX_OK;
}

static enum chex_status check_settings(const struct settings *s, struct chex_error *err) {
    bool needs_output = !s->bench && !s->bench_input && !s->prove;
    CHEX_TRY(check_prove(s, err));
    if (s->bench && s->bench_input)
        return chex_error_set(err, CHEX_E_USAGE, "--bench and --bench-input: expected one of them");
    if (s->plan && (s->bench || s->bench_input))
        return chex_error_set(err, CHEX_E_USAGE, "--plan and --bench%s: expected one of them",
                              s->bench ? "" : "-input");
    if (s->cluster && !s->plan)
        return chex_error_set(err, CHEX_E_USAGE, "--cluster %s: expected --plan with it",
                              s->cluster);
    if (s->timeline && (s->bench || s->bench_input))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--timeline and --bench%s: a timeline is one of a run",
                              s->bench ? "" : "-input");
    if (s->accumulate && s->logical_ranks &&
        chex_opt_origin(s->set, "logical-ranks") > CHEX_FROM_RUN)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--accumulate and --logical-ranks: expected one of them");
    if (s->sync_bn && s->bench)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--sync-bn and --bench: it times each rank on its own");
    if (s->consume > 0 && !s->bench_input)
        return chex_error_set(err, CHEX_E_USAGE, "--consume %g: expected --bench-input N with it",
                              s->consume);
    if ((s->bench_layers || s->bench_infer) && !s->bench)
        return chex_error_set(err, CHEX_E_USAGE, "--bench-%s: expected --bench N with it",
                              s->bench_layers ? "layers" : "infer");
    CHEX_TRY(check_loss(s, err));
    CHEX_TRY(check_head_only(s, err));
    /* A default --opt may be replaced by that of the resumed run, which is checked there. */
    if (chex_opt_origin(s->set, "opt") != CHEX_FROM_DEFAULT || s->bench) {
        const struct chex_update update = update_of(s);
        CHEX_TRY(chex_update_check(&update, err));
    }
    /* A default --lr may be replaced by that of the resumed run: chex_train_run checks again. */
    if (s->min_lr > s->lr && chex_opt_origin(s->set, "lr") != CHEX_FROM_DEFAULT)
        return chex_error_set(err, CHEX_E_USAGE, "--min-lr %g: expected no more than --lr, %g",
                              s->min_lr, s->lr);
    if ((!s->bench && !s->prove && !s->data) || (needs_output && !s->output))
        return chex_error_set(err, CHEX_E_USAGE, "--%s DIR is required; try 'chex-train --help'",
                              s->data ? "output" : "data");
    return check_names(s, err);
}

/* Limit of the launch, in addition to --stall-abort. The launch of many ranks takes long, and the
 * stall watch starts only after it. */
static const uint64_t launch_ms = 60000;

static enum chex_status run(struct chex_opt_set *set, void *settings, struct chex_error *err) {
    struct settings *s = settings;
    struct chex_world world;
    s->set = set;
    CHEX_TRY(check_settings(s, err));
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
    return command_main(&program, argc, argv, chex_world_refuse);
}
