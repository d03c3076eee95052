/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval without a subcommand: predicts a split of shards on all ranks. Rank 0 scores the
 * predictions and writes the results.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "engine/choose.h"
#include "eval/predict_split.h"
#include "eval_commands.h"
#include "launch/same.h"
#include "launch/world.h"
#include "shard/manifest.h"
#include "shard/members.h"
#include "shard/shard.h"

static const struct chex_opt evaluate_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is evaluated"),
    OPTION("data", STRING, EVAL_AT(data), .letter = 'd', .metavar = "DIR",
           .help = "folder of shards made by chex-shard"),
    EVAL_CHECKPOINT_ROW,
    OPTION("split", CHOICE, EVAL_AT(split), .def = "test", .metavar = "SPLIT",
           .choices = chex_split_names, .help = "part of the data; all: every part that there is"),
    OPTION("allow-overlap", FLAG, EVAL_AT(allow_overlap),
           .help = "evaluate images that the network was trained on"),
    OPTION_GROUP("Network"),
    EVAL_NETWORK_ROWS,
    OPTION("batch-size", INT, EVAL_AT(batch_size), .def = "16", .metavar = "N", .min = 1,
           .max = 65536, .help = "images at once on each rank"),
    EVAL_THREADS_ROW("compute threads; 0: the cores of the rank"),
    OPTION("workers", INT, EVAL_AT(workers), .def = "2", .metavar = "N", .min = 1, .max = 256,
           .help = "reader threads"),
    OPTION("tta", CHOICE, EVAL_AT(tta), .def = "none", .metavar = "KIND", .choices = chex_tta_names,
           .help = "average over the mirror image, or over ten crops"),
    EVAL_FIGURE_ROWS,
    EVAL_GROUP_ROWS,
    OPTION_GROUP("Results"),
    EVAL_OUTPUT_ROW("DIR",
                    "folder for predictions.csv, auroc.json, auroc.csv, figures.csv, curves.csv, "
                    "subgroups.csv, shortcuts.csv, roc.svg and report.html"),
    EVAL_FORCE_ROW,
};

struct evaluation {
    const struct eval_settings *s;
    const struct eval_split_use *use; /* NULL: the command itself */
    bool split_asked, precision_asked;
    struct chex_world world;
    struct chex_coll *coll;
    struct chex_set *set;
    enum chex_split split;
    struct eval_network network;
    struct chex_engine *engine;
    const char *engine_spec;
    struct chex_gpu gpu;
    bool has_gpu;
    int image_size, threads;
    enum chex_precision precision;
    struct eval_output output;        /* on rank 0 */
    struct chex_published *published; /* figures of --compare; on rank 0 */
    struct eval_figures figures;      /* --threshold and --prevalence; on rank 0 */
    const char *overlap;              /* from find_overlap; on rank 0 */
};

/* ---- checks: does the network's file fit the data? ---- */

static enum chex_status check_classes(const struct evaluation *e, struct chex_error *err) {
    const struct chex_safetensors_about *a = &e->network.about;
    const struct chex_set *set = e->set;
    const char *path = e->s->checkpoint;
    if (!a->classes)
        return eval_check_class_names(set->dir, set->class_names, set->classes, err);
    if (a->classes != set->classes)
        return chex_error_set(err, CHEX_E_DATA, "%s has %d classes, %s has %d", path, a->classes,
                              set->dir, set->classes);
    for (int i = 0; i < a->classes; i++)
        if (strcmp(a->class_names[i], set->class_names[i]) != 0)
            return chex_error_set(err, CHEX_E_DATA, "class %d is %s in %s and %s in %s", i + 1,
                                  a->class_names[i], path, set->class_names[i], set->dir);
    return CHEX_OK;
}

/* CHEX_E_DATA if the training images were resized by another method than the data. */
static enum chex_status check_resize(const struct evaluation *e, struct chex_error *err) {
    const char *trained = e->network.about.resize, *path = e->s->checkpoint;
    const struct chex_set *set = e->set;
    if (!trained) {
        chex_warn("%s does not say how its training images were resized; the data is by %s", path,
                  set->resize);
        return CHEX_OK;
    }
    if (strcmp(trained, set->resize) != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s was trained on images resized by %s, %s holds images resized by "
                              "%s: shard them alike",
                              path, trained, set->dir, set->resize);
    return CHEX_OK;
}

/* Does the split hold images that the network was trained on? Returns "none", "yes", "likely" or
 * "unknown" for the results. why_out: the reason, as the start of a sentence. */
static const char *find_overlap(const struct evaluation *e, char *why_out, size_t size) {
    const struct chex_safetensors_about *about = &e->network.about;
    const char *path = e->s->checkpoint, *ours = chex_split_names[e->split], *dir = e->set->dir;
    char members[CHEX_MEMBERS_BYTES];
    if (!about->split || !about->source_digest ||
        strcmp(about->source_digest, e->set->source_digest) != 0) {
        snprintf(why_out, size, "it is unknown whether %s was trained on images of %s: %s", path,
                 dir,
                 about->split && about->source_digest ? "its training data was another set"
                                                      : "it does not name its training data");
        return "unknown";
    }
    chex_members_read(dir, members);
    if (chex_members_compare(about->members, members, e->split) == CHEX_MEMBERS_OTHER) {
        snprintf(why_out, size,
                 "%s was trained on split %s of another set of these images, and split %s of %s "
                 "may hold some of them",
                 path, about->split, ours, dir);
        return "likely";
    }
    if (strcmp(about->split, ours) != 0 && e->split != CHEX_ALL &&
        strcmp(about->split, chex_split_names[CHEX_ALL]) != 0)
        return "none";
    snprintf(why_out, size,
             "%s was trained on split %s of this data, and split %s holds the same images", path,
             about->split, ours);
    return "yes";
}

/* CHEX_E_DATA if training images would be evaluated, except with --allow-overlap: such a result
 * says nothing about new images. */
static enum chex_status check_overlap(struct evaluation *e, struct chex_error *err) {
    char why[2 * CHEX_ERROR_TEXT_BYTES];
    e->overlap = find_overlap(e, why, sizeof why);
    if (strcmp(e->overlap, "none") == 0)
        return CHEX_OK;
    if (e->s->allow_overlap || strcmp(e->overlap, "unknown") == 0) {
        chex_warn("%s", why);
        return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_DATA, "%s: choose another --split, or pass --allow-overlap",
                          why);
}

/* ---- evaluation ---- */

/* Chooses the split and counts its rows. If a set has only `all`, it is used without --split all.
 */
static enum chex_status choose_split(struct evaluation *e, size_t *rows_out,
                                     struct chex_error *err) {
    const struct eval_settings *s = e->s;
    size_t rows[CHEX_SPLIT_COUNT], whole = 0;
    char have[80] = "";
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++) {
        size_t n = strlen(have);
        CHEX_TRY(chex_set_rows(s->data, (enum chex_split)k, &rows[k], err));
        whole += rows[k];
        if (rows[k])
            snprintf(have + n, sizeof have - n, "%s%s", n ? ", " : "", chex_split_names[k]);
    }
    e->split = (enum chex_split)s->split;
    if (!e->split_asked && rows[CHEX_ALL] && rows[CHEX_ALL] == whole) {
        e->split = CHEX_ALL;
        chex_info("%s was made without splits: all of it is evaluated", s->data);
    }
    *rows_out = e->split == CHEX_ALL ? whole : rows[e->split];
    if (*rows_out == 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: no image in split %s; it has %s: choose with --split", s->data,
                              chex_split_names[e->split], have[0] ? have : "none");
    return CHEX_OK;
}

static enum chex_status open_set(struct evaluation *e, struct chex_error *err) {
    size_t rows, from, to;
    CHEX_TRY(choose_split(e, &rows, err));
    chex_eval_rows(rows, e->coll->rank, e->coll->size, &from, &to);
    return e->split == CHEX_ALL ? chex_set_open_whole(e->s->data, from, to, &e->set, err)
                                : chex_set_open(e->s->data, e->split, from, to, &e->set, err);
}

/* All ranks must have the same data and the same network. */
static enum chex_status check_same(const struct evaluation *e, struct chex_error *err) {
    char *manifest = chex_fs_join(e->s->data, CHEX_MANIFEST_NAME);
    const char *const paths[] = {manifest, e->s->checkpoint};
    enum chex_status st = chex_same_files(e->coll, &e->world.launch, paths, COUNT(paths), err);
    free(manifest);
    return chex_group_agree(e->coll->group, st, err);
}

/* What must be right about --output and --compare before the work. */
static enum chex_status check_results(struct evaluation *e, struct chex_error *err) {
    CHEX_TRY(eval_results_refuse(e->s, true, err));
    return eval_results_compare(e->s, &e->published, err);
}

static enum chex_status begin_results(struct evaluation *e, struct chex_error *err) {
    const struct eval_settings *s = e->s;
    CHEX_TRY(
        eval_figures_open(s, &e->network, e->set->classes, e->set->class_names, &e->figures, err));
    return eval_results_begin(s, true, &e->output, err);
}

/* Everything before the first image. Runs on each rank; not collective. */
static enum chex_status prepare(struct evaluation *e, struct chex_error *err) {
    const struct eval_settings *s = e->s;
    if (e->coll->rank == 0)
        CHEX_TRY(e->use ? e->use->check(s, err) : check_results(e, err));
    CHEX_TRY(open_set(e, err));
    CHEX_TRY(eval_network_open(s, e->set->classes, &e->network, err));
    CHEX_TRY(check_classes(e, err));
    e->image_size = eval_image_size(s, &e->network, e->set->size);
    CHEX_TRY(chex_eval_check(e->set, e->network.net, e->image_size, (enum chex_tta)s->tta, err));
    if (e->coll->rank == 0) { /* these warn, so only one rank calls them */
        CHEX_TRY(check_resize(e, err));
        CHEX_TRY(check_overlap(e, err));
        if (!e->use)
            CHEX_TRY(begin_results(e, err));
    }
    e->threads = s->threads ? (int)s->threads : e->world.binding.threads;
    const struct chex_engine_config config = {.net = e->network.net,
                                              .image_size = e->image_size,
                                              .batch = (int)s->batch_size,
                                              .precision = e->precision,
                                              .threads = e->threads,
                                              .device = e->has_gpu ? &e->gpu : NULL};
    CHEX_TRY(chex_engine_create(e->engine_spec, &config, &e->engine, err));
    CHEX_TRY(chex_engine_set(e->engine, CHEX_STATE_PARAMS, e->network.state, err));
    const int ranks = e->coll->size;
    chex_info(
        "%s at %d px, engine %s, %s, %d rank%s, %d thread%s each; split %s of %s: %zu image%s",
        e->network.net->model, e->image_size, e->engine_spec, chex_precision_names[e->precision],
        ranks, ranks == 1 ? "" : "s", e->threads, e->threads == 1 ? "" : "s",
        chex_split_names[e->split], s->data, e->set->rows, chex_text_s(e->set->rows));
    return CHEX_OK;
}

/* The label format in the manifest; null if the manifest cannot be read. */
static json_t *label_format_of(const char *dir) {
    struct chex_manifest *m = NULL;
    struct chex_error err = {0};
    json_t *format =
        chex_manifest_read(dir, &m, &err) == CHEX_OK ? json_string(m->label_format) : json_null();
    chex_manifest_free(m);
    return format;
}

static json_t *provenance_of(const struct evaluation *e, double loss) {
    const struct eval_settings *s = e->s;
    return chex_result(
        CHEX_MEMBER(s, checkpoint), CHEX_MEMBER(s, data),
        CHEX_FIELD("label_format", label_format_of(s->data)), CHEX_MEMBER(e->set, source_digest),
        CHEX_MEMBER(e->set, resize), CHEX_FIELD("split", chex_split_names[e->split]),
        CHEX_FIELD("overlap_with_training", e->overlap), CHEX_MEMBER(e->network.net, model),
        CHEX_FIELD("image_size_px", e->image_size), CHEX_FIELD("stored_size_px", e->set->size),
        CHEX_FIELD("tta", chex_tta_names[s->tta]), CHEX_FIELD("engine", e->engine_spec),
        CHEX_FIELD("precision", chex_precision_names[e->precision]),
        CHEX_FIELD("ranks", e->coll->size), CHEX_FIELD("loss", loss));
}

static enum chex_status finish(const struct evaluation *e, const struct chex_predictions *table,
                               double loss, struct chex_error *err) {
    char *title = chex_fs_format("split %s of %s, %s of %s", chex_split_names[e->split], e->s->data,
                                 e->network.net->model, e->s->checkpoint);
    json_t *provenance = provenance_of(e, loss);
    enum chex_status st = CHEX_OK;
    if (!title || !provenance)
        st = chex_error_memory(err, "the results");
    else
        st = eval_results_report(e->s, e->threads, title, provenance, e->published, &e->figures,
                                 table, true, err);
    json_decref(provenance);
    free(title);
    return st;
}

/* Hands the predicted split to e->use. Collective. */
static enum chex_status use_split(const struct evaluation *e, const struct chex_predictions *table,
                                  double loss, struct chex_error *err) {
    json_t *provenance = e->coll->rank == 0 ? provenance_of(e, loss) : NULL;
    const struct eval_split split = {.s = e->s,
                                     .engine = e->engine,
                                     .coll = e->coll,
                                     .set = e->set,
                                     .split = e->split,
                                     .network = &e->network,
                                     .image_size = e->image_size,
                                     .threads = e->threads,
                                     .table = table,
                                     .provenance = provenance};
    const enum chex_status st = e->use->work(&split, err);
    json_decref(provenance);
    return st;
}

/* Collective. All ranks return the same status. */
static enum chex_status evaluate(struct evaluation *e, struct chex_error *err) {
    const struct eval_settings *s = e->s;
    struct chex_predictions *table = NULL;
    double loss = NAN;
    const struct chex_eval_config config = {(int)s->workers, (enum chex_tta)s->tta,
                                            !s->common.quiet};
    enum chex_status st = chex_choose_engine(s->engine, &e->world.gpu, &e->engine_spec, err);
    st = chex_choose_gpu(&e->world.launch, e->world.group, &e->world.binding, &e->world.gpu,
                         st == CHEX_OK ? e->engine_spec : NULL, &e->gpu, &e->has_gpu, err);
    e->precision = (enum chex_precision)s->precision;
    if (st == CHEX_OK)
        st = chex_choose_precision(e->world.group, e->engine_spec, e->precision_asked,
                                   &e->precision, err);
    if (st == CHEX_OK)
        st = check_same(e, err);
    if (st == CHEX_OK)
        st = chex_group_agree(e->coll->group, prepare(e, err), err);
    if (st == CHEX_OK)
        st = chex_eval_run(e->engine, e->set, e->coll, &config, &table, &loss, err);
    if (st == CHEX_OK && e->use) {
        st = use_split(e, table, loss, err);
    } else if (st == CHEX_OK) {
        if (e->coll->rank == 0)
            st = finish(e, table, loss, err);
        st = chex_group_follow(e->coll->group, 0, st, err);
    }
    if (!e->use)
        eval_results_end(s, &e->output, st);
    chex_predictions_destroy(table);
    chex_engine_destroy(e->engine);
    eval_network_release(&e->network);
    chex_published_destroy(e->published);
    eval_figures_release(&e->figures);
    chex_set_close(e->set);
    return st;
}

static enum chex_status run_evaluate(struct chex_opt_set *set, void *settings,
                                     struct chex_error *err) {
    const struct eval_settings *s = settings;
    if (!s->data || !s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval needs --%s",
                              !s->data         ? "data DIR"
                              : !s->checkpoint ? "checkpoint FILE"
                                               : "output DIR");
    CHEX_TRY(eval_figures_check(s, err));
    CHEX_TRY(eval_groups_check(s, err));
    return eval_split_run(set, s, NULL, err);
}

enum chex_status eval_split_run(struct chex_opt_set *set, const struct eval_settings *s,
                                const struct eval_split_use *use, struct chex_error *err) {
    CHEX_TRY(chex_text_for_json("--data", s->data, "auroc.json", err));
    CHEX_TRY(chex_text_for_json("--checkpoint", s->checkpoint, "auroc.json", err));
    struct evaluation e = {
        .s = s,
        .use = use,
        .output = {.lock = -1},
        .split_asked = chex_opt_origin(set, "split") != CHEX_FROM_DEFAULT,
        .precision_asked = chex_opt_origin(set, "precision") != CHEX_FROM_DEFAULT,
    };
    CHEX_TRY(chex_world_open(&e.world, err));
    enum chex_status st = chex_coll_create(&e.world.launch, &e.coll, err);
    bool together = st == CHEX_OK;
    if (st == CHEX_OK) {
        st = evaluate(&e, err);
        together = !e.world.group->broken && !e.coll->group->broken;
    }
    /* If all ranks fail together, only rank 0 reports the cause. */
    if (st != CHEX_OK && (!together || e.world.launch.rank == 0))
        chex_err("%s", err->text);
    err->text[0] = '\0';
    chex_coll_destroy(e.coll);
    chex_world_close(&e.world, st, together);
    return st;
}

const struct chex_opt_program eval_program = {
    .name = "chex-eval",
    .summary = "AUROC of each finding, with its interval",
    .usage = "chex-eval --data DIR --checkpoint FILE --output DIR [options]\n"
             "chex-eval score --predictions FILE.csv [--output DIR] [options]\n"
             "chex-eval cam --image FILE --checkpoint FILE --output FILE.png [options]\n"
             "chex-eval export --checkpoint FILE --output FILE.safetensors [--force]\n"
             "chex-eval deploy --data DIR --checkpoint FILE --output FILE.safetensors [options]",
    .opts = evaluate_opts,
    .count = COUNT(evaluate_opts),
    .epilog = "Examples\n"
              "  chex-eval --data shards/ --checkpoint run/best.h5 --output "
              "run/eval/\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct eval_settings),
    .run = run_evaluate,
    .subcommands = eval_subcommands,
};
