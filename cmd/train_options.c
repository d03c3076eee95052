/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the options of chex-train.
 */
#include "option_rows.h"
#include "train_settings.h"

static const struct chex_opt options[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Data and results"),
    OPTION("data", STRING, AT(config.data_dir), .basic = true, .letter = 'd',
           .metavar = "DIR[,DIR...]", .of_rank = true,
           .help = "folder of shards that chex-shard wrote; several sets are trained on together, "
                   "each as DIR or NAME=DIR"),
    OPTION("findings", STRING, AT(config.findings), .basic = true, .metavar = "NAME,...",
           .of_run = true,
           .help = "findings to train on, in the order of the network's outputs; NAME=A|B is the "
                   "union of others; without it, all findings of the data"),
    OPTION("uncertain", STRING, AT(config.uncertain), .basic = true, .def = "ignore",
           .metavar = "POLICY|FINDING=POLICY,...", .of_run = true,
           .help = "uncertain labels: ignore (no loss), zeros, ones, or smooth:X (target X of the "
                   "loss; 0.7 without X)"),
    OPTION("where", STRING, AT(config.where), .metavar = "CONDITIONS", .of_run = true,
           .help = "train and validate on the images that meet all conditions, such as "
                   "view=PA,age>=18,sex=F,source=NAME"),
    OPTION("data-weights", STRING, AT(config.data_weights), .metavar = "N,...", .of_run = true,
           .help = "for each set of --data, how often an epoch uses each of its training images "
                   "(default: once)"),
    OPTION("folds", INT32, AT(config.fold.folds), .def = "0", .metavar = "K", .min = 0,
           .max = CHEX_FOLDS_MOST, .of_run = true,
           .help =
               "divide the patients of splits train and val into K folds, each with its share of "
               "the positives of each finding (0: use the splits)"),
    OPTION("fold", INT32, AT(config.fold.number), .def = "0", .metavar = "I", .min = 0,
           .max = CHEX_FOLDS_MOST, .of_run = true,
           .help = "with --folds: validate on fold I, from 1 on, and train on the others"),
    OPTION("output", STRING, AT(config.output_dir), .basic = true, .letter = 'o', .metavar = "DIR",
           .of_rank = true, .help = "folder of the run: checkpoints, metrics, configuration"),
    OPTION(
        "resume", STRING, AT(config.resume), .basic = true, .def = "auto",
        .metavar = "auto|none|FILE", .of_rank = true,
        .help =
            "continue from the newest checkpoint in --output, start anew, or continue from FILE"),
    OPTION("plan", FLAG, AT(plan), .basic = true,
           .help = "print a plan instead of training: data, memory, messages, time, checkpoints, "
                   "and errors; exits with the status of the run"),
    OPTION("machines", STRING, AT(config.cluster), .metavar = "FILE", .elsewhere = "cluster",
           .help = "with --plan: predict speed and efficiency on the cluster that FILE describes"),
    OPTION("prove", STRING, AT(prove.run), .metavar = "RUN",
           .help = "repeat stretches of the run in folder RUN and compare the results to the last "
                   "bit; changes nothing"),
    OPTION("stretches", INT, AT(prove.stretches), .def = "3", .metavar = "K", .min = 0, .max = 1e9,
           .help = "with --prove: stretches between checkpoints, chosen at random (0: all)"),
    OPTION("init", STRING, AT(config.init), .basic = true, .metavar = "FILE", .of_rank = true,
           .help = "start from the parameters of a checkpoint, safetensors or PyTorch file"),
    OPTION_GROUP("Network and training"),
    OPTION("model", CHOICE, AT(config.model), .basic = true, .letter = 'm', .def = "densenet121",
           .metavar = "NAME", .choices = chex_net_names, .listed = &chex_net_count, .of_run = true,
           .help = "network"),
    OPTION("image-size", INT32, AT(config.image_size), .basic = true, .def = "224", .metavar = "PX",
           .min = 32, .max = 4096, .of_run = true, .help = "side of the training crops"),
    OPTION("batch-size", INT32, AT(config.batch), .basic = true, .letter = 'b', .def = "16",
           .metavar = "N", .min = 1, .max = 65536, .of_run = true,
           .help = "images per logical rank and step"),
    OPTION("epochs", INT, AT(config.epochs), .basic = true, .letter = 'e', .def = "15",
           .metavar = "N", .min = 1, .max = 1e6, .of_run = true,
           .help = "passes over the training images"),
    OPTION("max-steps", INT, AT(config.max_steps), .def = "0", .metavar = "N", .min = 0,
           .max = 1e12, .help = "stop after N steps and save (0: no limit)"),
    OPTION("stop-after", INT, AT(config.stop_after), .basic = true, .def = "0", .metavar = "N",
           .min = 0, .max = 1e6, .of_run = true,
           .help = "stop after N epochs without a better result than that of best.h5 (0: never)"),
    OPTION("loss", CHOICE, AT(config.loss.kind), .def = "bce", .metavar = "NAME",
           .choices = chex_loss_names, .of_run = true,
           .help = "binary cross-entropy, focal loss or asymmetric loss; validation always reports "
                   "plain bce"),
    OPTION("pos-weight", STRING, AT(config.pos_weight), .def = "none",
           .metavar = "none|balanced|FILE", .of_run = true,
           .help = "weights of positive labels: 1; negative labels divided by positive labels of "
                   "the training rows; or by finding, from a CSV file"),
    OPTION("label-smoothing", FLOAT, AT(config.loss.smoothing), .def = "0", .metavar = "X",
           .min = 0, .max = 1, .of_run = true,
           .help = "targets become X/2 and 1 - X/2 instead of 0 and 1"),
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
    OPTION("loss-mean", CHOICE, AT(config.loss_mean), .def = "all", .metavar = "all|stated",
           .choices = chex_loss_mean_names, .of_run = true,
           .help = "divide the loss by all labels, or, for each finding, by those that the "
                   "training rows state"),
    OPTION("opt", CHOICE, AT(config.update.optim), .basic = true, .def = "adam", .metavar = "NAME",
           .choices = chex_optim_names, .of_run = true, .elsewhere = "optimizer",
           .help = "optimiser"),
    OPTION("lr", FLOAT, AT(config.schedule.lr), .basic = true, .def = "1e-4", .metavar = "RATE",
           .min = 0, .max = 1e3, .of_run = true, .elsewhere = "learning-rate",
           .help = "learning rate; never scaled by the number of ranks"),
    OPTION("weight-decay", FLOAT, AT(config.update.weight_decay), .basic = true, .def = "0",
           .metavar = "X", .min = 0, .max = 1e3, .of_run = true,
           .help = "L2 penalty (adam, sgd, lars) or decoupled decay (adamw) of the weights of "
                   "convolutions and classifier"),
    OPTION("decay-norms", FLAG, AT(config.update.decay_norms), .of_run = true,
           .help = "apply --weight-decay to batch norms and biases too"),
    OPTION("momentum", FLOAT, AT(config.update.momentum), .def = "0.9", .metavar = "X", .min = 0,
           .max = 1, .of_run = true, .help = "momentum of sgd and lars"),
    OPTION("nesterov", FLAG, AT(config.update.nesterov), .of_run = true,
           .help = "Nesterov's momentum, for sgd"),
    OPTION("clip-norm", FLOAT, AT(config.update.clip_norm), .def = "0", .metavar = "X", .min = 0,
           .max = 1e9, .of_run = true,
           .help = "scale the mean gradient down to norm X if it is larger (0: do not clip)"),
    OPTION("layer-decay", FLOAT, AT(config.layer_decay), .def = "1", .metavar = "X", .min = 0.01,
           .max = 1, .of_run = true,
           .help = "multiply the rate of each layer by X for every layer between it and the "
                   "classifier"),
    OPTION("freeze", STRING, AT(config.freeze), .def = "none", .metavar = "none|PATTERN,...",
           .of_run = true,
           .help = "do not train the parameters whose names match, such as 'features.*'"),
    OPTION("head-only", FLAG, AT(config.head_only), .basic = true, .of_run = true,
           .help = "train only the classifier, on features of all images that are computed once, "
                   "without augmentation; minutes instead of hours"),
    OPTION("features", STRING, AT(config.features), .basic = true, .metavar = "FILE",
           .help =
               "train a classifier on the features in FILE, which any program computed, in place "
               "of a network on the images; HDF5, or npy with a .csv of image ids beside it"),
    OPTION("ema", FLOAT, AT(config.ema_decay), .def = "0", .metavar = "DECAY", .min = 0,
           .max = 0.9999999, .of_run = true,
           .help = "keep an exponential moving average of the parameters; validation, best.h5 and "
                   "chex-eval use it (0: none)"),
    OPTION("sched", CHOICE, AT(config.schedule.kind), .basic = true, .def = "plateau",
           .metavar = "NAME", .choices = chex_sched_names, .of_run = true, .elsewhere = "scheduler",
           .help = "schedule of the learning rate"),
    OPTION("warmup-epochs", FLOAT, AT(config.schedule.warmup_epochs), .def = "0", .metavar = "X",
           .min = 0, .max = 1e6, .of_run = true, .help = "epochs of linear warm-up to --lr"),
    OPTION("min-lr", FLOAT, AT(config.schedule.min_lr), .def = "0", .metavar = "RATE", .min = 0,
           .max = 1e3, .of_run = true,
           .help = "lower limit of the schedule; the warm-up starts below it"),
    OPTION("lr-factor", FLOAT, AT(config.schedule.factor), .def = "0.1", .metavar = "X",
           .min = 1e-6, .max = 1, .of_run = true, .help = "factor of plateau and step"),
    OPTION("patience-epochs", INT, AT(config.schedule.patience), .def = "3", .metavar = "N",
           .min = 0, .max = 1e6, .of_run = true,
           .help = "plateau: epochs without a lower validation loss before the rate is reduced"),
    OPTION("step-epochs", INT, AT(config.schedule.step_epochs), .def = "10", .metavar = "N",
           .min = 1, .max = 1e6, .of_run = true, .help = "step: epochs between reductions"),
    OPTION("seed", INT, AT(config.seed), .basic = true, .letter = 's', .def = "0", .metavar = "N",
           .min = 0, .max = 9e15, .of_run = true,
           .help = "seed of initial parameters, sample order and augmentation"),
    OPTION("order", CHOICE, AT(config.order), .def = "local", .metavar = "NAME",
           .choices = chex_order_names, .of_run = true,
           .help = "shuffle within each logical rank's rows, or all rows"),
    OPTION("shuffle-block", INT, AT(config.shuffle_block), .def = "1", .metavar = "N", .min = 1,
           .max = 1e9, .of_run = true,
           .help = "for disks with slow seeks: read runs of N rows; shuffle in windows of 16 runs "
                   "and at least 1,024 rows"),
    OPTION(
        "pipeline", CHOICE, AT(config.pipeline), .def = "new", .metavar = "NAME",
        .choices = chex_pipeline_names, .of_run = true,
        .help =
            "input pipeline; old: the article's first version, in which every rank reads all data"),
    OPTION("cache", CHOICE, AT(config.cache), .def = "auto", .metavar = "NAME",
           .choices = chex_cache_names, .of_rank = true,
           .help = "cache the rank's stored images in host memory; auto: if they need less than "
                   "half of the free memory"),
    OPTION("resident", CHOICE, AT(config.resident), .def = "auto", .metavar = "NAME",
           .choices = chex_resident_names, .of_rank = true,
           .help = "keep the rank's stored images in GPU memory; auto: if they fit. Each is read "
                   "once, and --cache is not needed"),
    OPTION("stage", STRING, AT(config.stage), .basic = true, .metavar = "DIR", .of_rank = true,
           .help = "first copy the shards to this folder on each node and verify them; the copy is "
                   "removed at the end"),
    OPTION_GROUP("Augmentation"),
    OPTION("crop-scale", FLOAT, AT(config.augment.crop_scale), .def = "0.5", .metavar = "MIN",
           .min = 0.01, .max = 1, .of_run = true,
           .help = "smallest fraction of the image's area that a random crop covers"),
    OPTION("hflip", FLOAT, AT(config.augment.hflip), .basic = true, .def = "0.5", .metavar = "P",
           .min = 0, .max = 1, .of_run = true,
           .help = "probability of the horizontal flip; 0 keeps left and right as they are"),
    OPTION("antialias", FLAG, AT(config.augment.antialias), .of_run = true,
           .help = "antialias crops that are reduced; without it, bilinear from four pixels"),
    OPTION("rotate", FLOAT, AT(config.augment.rotate), .def = "0", .metavar = "DEGREES", .min = 0,
           .max = 180, .of_run = true,
           .help = "rotate by a random angle of at most DEGREES in either direction; corners "
                   "become black"),
    OPTION("brightness", FLOAT, AT(config.augment.brightness), .def = "0", .metavar = "F", .min = 0,
           .max = 10, .of_run = true,
           .help = "multiply by a random factor from 1 - F (not below 0) to 1 + F"),
    OPTION("contrast", FLOAT, AT(config.augment.contrast), .def = "0", .metavar = "F", .min = 0,
           .max = 10, .of_run = true,
           .help = "scale the difference from the crop's mean by a random factor from 1 - F (not "
                   "below 0) to 1 + F"),
    OPTION_GROUP("Engine and ranks"),
    OPTION("engine", STRING, AT(engine), .basic = true, .def = "auto",
           .metavar = "auto|cuda|cpu|ref", .of_rank = true,
           .help = "engine; a variant can follow, as in cpu:avx2 or cuda:s1"),
    OPTION("precision", CHOICE, AT(config.precision), .basic = true, .letter = 'p', .def = "fp32",
           .metavar = "NAME", .choices = chex_precision_names, .of_run = true,
           .help = "precision of activations and products; the default is bf16 on GPUs and "
                   "processors with bf16 matrix units"),
    OPTION("threads", INT32, AT(threads), .basic = true, .letter = 't', .def = "0", .metavar = "N",
           .min = 0, .max = 4096, .of_rank = true,
           .help = "compute threads (0: the cores this rank is bound to)"),
    OPTION("workers", INT32, AT(config.workers), .basic = true, .letter = 'j', .def = "1",
           .metavar = "N", .min = 1, .max = 256, .of_rank = true, .help = "input threads"),
    OPTION("logical-ranks", INT32, AT(logical_ranks), .basic = true, .def = "0", .metavar = "V",
           .min = 0, .max = 65536, .of_run = true,
           .help = "batches per step; results depend on V, not on the number of processes (0: the "
                   "number of processes)"),
    OPTION("accumulate", INT32, AT(config.accumulate), .def = "0", .metavar = "N", .min = 0,
           .max = 65536,
           .help = "batches of each process per step: --logical-ranks of N times the processes"),
    OPTION("sync-bn", FLAG, AT(config.sync_bn), .of_run = true,
           .help = "batch norms use the statistics of all logical ranks of a step, as if it were "
                   "one batch; slower"),
    OPTION("deterministic", FLAG, AT(config.deterministic), .of_run = true,
           .help = "add gradients in one fixed order: the same bits for any number of ranks"),
    OPTION("audit-steps", INT, AT(config.audit_steps), .def = "0", .metavar = "N", .min = 0,
           .max = 1e12, .of_run = true,
           .help = "every N steps another process repeats a pass of one; different bits end the "
                   "run with status 5 and name the node (0: never)"),
    OPTION_GROUP("Checkpoints and interruptions"),
    OPTION("checkpoint-every", STRING, AT(checkpoint_every), .basic = true, .def = "30m",
           .metavar = "30m|500steps|2epochs", .of_run = true,
           .help = "save by time or by steps, and at each epoch's end; or only at the end of every "
                   "so many epochs, and when the result is the best so far"),
    OPTION("checkpoint-keep", INT32, AT(config.save_keep), .def = "3", .metavar = "N", .min = 0,
           .max = 1e6, .of_run = true, .help = "numbered checkpoints that are kept (0: all)"),
    OPTION("preempt-signal", STRING, AT(preempt_signal), .def = "USR2", .metavar = "NAME",
           .help = "signal after which all ranks save and exit with status 6; TERM, INT and HUP do "
                   "so too"),
    OPTION("save-before-end", STRING, AT(save_before_end), .def = "auto",
           .metavar = "auto|off|TIME",
           .help = "save and exit with status 6 this long before the end of the Slurm job; auto: "
                   "from measured step and save times, plus 20 s"),
    OPTION("requeue", FLAG, AT(requeue), .basic = true,
           .help = "after a save (status 6) or lost ranks (status 7; three times at most) put the "
                   "Slurm batch job back into the queue; for scripts that do not"),
    OPTION("stall-warn", DURATION, AT(config.stall_warn_ms), .def = "60s", .metavar = "TIME",
           .help = "after this time without progress, name the ranks that the others wait for (0s: "
                   "never)"),
    OPTION("stall-abort", DURATION, AT(config.stall_abort_ms), .def = "600s", .metavar = "TIME",
           .help = "after this time without progress, end the job with status 7 (0s: never)"),
    OPTION_GROUP("Measuring"),
    OPTION("job-comment", FLAG, AT(config.job_comment),
           .help = "at the end, write the images per second and the energy into the comment of the "
                   "Slurm job"),
    OPTION("metrics", STRING, AT(config.metrics), .metavar = "FILE",
           .help = "every 10 s, replace FILE by the state of the run for Prometheus, to be read by "
                   "the textfile collector of node_exporter"),
    OPTION("timeline", STRING, AT(config.timeline), .metavar = "FILE",
           .help = "write a timeline of the last events of each rank, as Trace Event JSON for "
                   "Perfetto or chrome://tracing"),
    OPTION("bench", INT, AT(bench.steps), .def = "0", .metavar = "N", .min = 0, .max = 1e9,
           .help = "time N steps on random data in memory instead of training; several ranks: the "
                   "sum of the rates, and the step times of the slowest rank"),
    OPTION("bench-layers", FLAG, AT(bench.layers),
           .help = "with --bench: time, rate and fraction of the measured limits for every "
                   "operation of the last step"),
    OPTION("bench-infer", FLAG, AT(bench.infer),
           .help = "with --bench: inference instead of training"),
    OPTION("bench-input", INT, AT(bench.batches), .def = "0", .metavar = "N", .min = 0, .max = 1e9,
           .help = "time the input of N training batches on each rank, without a network"),
    OPTION("consume", FLOAT, AT(bench.images_per_s), .def = "0", .metavar = "RATE", .min = 0,
           .max = 1e9,
           .help = "with --bench-input: images per second that each rank consumes (0: no limit)"),
};

const struct chex_opt_program train_program = {
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
    .settings_size = sizeof(struct train_settings),
    .run = train_run,
};
