/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval: a checkpoint and a split of shards to AUROCs with intervals.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "data/verify.h"
#include "eval/report.h"
#include "eval/run.h"
#include "engine/choose.h"
#include "launch/world.h"
#include "model/checkpoint.h"
#include "model/safetensors.h"

struct settings {
    struct chex_opt_common common;
    const char *data, *checkpoint, *predictions, *output;
    int split;
    const char *model, *engine;
    int64_t image_size, batch_size, threads, workers;
    int precision, tta;
    int64_t bootstrap, seed;
    int cluster;
    const char *compare;
    bool allow_overlap, force;
    bool precision_asked;
};

#define AT(field) offsetof(struct settings, field)
#define GROUP(text)                                                                                \
    { .type = CHEX_OPT_GROUP, .help = text }

static const struct chex_opt options[] = {
    CHEX_OPT_COMMON,
    GROUP("What is evaluated"),
    {"data", 'd', CHEX_OPT_STRING, AT(data), NULL, "DIR", "folder of shards made by chex-shard"},
    {"checkpoint", 'c', CHEX_OPT_STRING, AT(checkpoint), NULL, "FILE",
     "checkpoint of chex-train (.h5) or parameters (.safetensors)"},
    {"split", 0, CHEX_OPT_CHOICE, AT(split), "test", "SPLIT", "part of the data", chex_split_names},
    {"predictions", 'p', CHEX_OPT_STRING, AT(predictions), NULL, "FILE",
     "table to score: image_id, patient_id, y_CLASS and p_CLASS for each class"},
    {"allow-overlap", 0, CHEX_OPT_FLAG, AT(allow_overlap),
     .help = "evaluate images that the network was trained on"},
    GROUP("Network"),
    {"model", 0, CHEX_OPT_STRING, AT(model), NULL, "NAME",
     "densenet121 or resnet50, where the checkpoint does not say (densenet121)"},
    {"image-size", 0, CHEX_OPT_INT, AT(image_size), "0", "PX",
     "side of the centre crop; 0: what the checkpoint was trained at", .min = 0, .max = 4096},
    {"precision", 0, CHEX_OPT_CHOICE, AT(precision), "fp32", "NAME",
     "arithmetic; where the cpu engine has AMX or the GPU multiplies it, the default is bf16",
     chex_precision_names},
    {"engine", 0, CHEX_OPT_STRING, AT(engine), "auto", "NAME",
     "auto, cuda, cpu or ref, with a variant as in cpu:avx2"},
    {"batch-size", 0, CHEX_OPT_INT, AT(batch_size), "16", "N", "images at once on each rank",
     .min = 1, .max = 65536},
    {"threads", 0, CHEX_OPT_INT, AT(threads), "0", "N", "compute threads; 0: the cores of the rank",
     .min = 0, .max = 4096},
    {"workers", 0, CHEX_OPT_INT, AT(workers), "2", "N", "reader threads", .min = 1, .max = 256},
    {"tta", 0, CHEX_OPT_CHOICE, AT(tta), "none", "KIND",
     "average over the mirror image, or over ten crops", chex_tta_names},
    GROUP("Figures"),
    {"bootstrap", 0, CHEX_OPT_INT, AT(bootstrap), "1000", "N",
     "replicates for the intervals; 0: no intervals", .min = 0, .max = 1000000},
    {"cluster", 0, CHEX_OPT_CHOICE, AT(cluster), "patient", "UNIT",
     "what is drawn for the intervals", chex_cluster_names},
    {"seed", 0, CHEX_OPT_INT, AT(seed), "1", "N", "seed of the intervals"},
    {"compare", 0, CHEX_OPT_STRING, AT(compare), "published", "WHAT",
     "published, published:COLUMN, a table of AUROCs such as auroc.csv, or none"},
    GROUP("Results"),
    {"output", 'o', CHEX_OPT_STRING, AT(output), NULL, "PATH",
     "folder for predictions.csv, auroc.json, auroc.csv, roc.svg and report.html"},
    {"force", 'f', CHEX_OPT_FLAG, AT(force), .help = "replace results that stand there"},
};

static const struct chex_opt_program program = {
    .name = "chex-eval",
    .summary = "AUROC of each finding, with its interval",
    .usage = "chex-eval --data DIR --checkpoint FILE --output DIR [options]\n"
             "chex-eval score --predictions FILE.csv [--output DIR] [options]\n"
             "chex-eval export --checkpoint FILE --output FILE.safetensors [--force]",
    .opts = options,
    .count = sizeof options / sizeof options[0],
    .epilog =
        "Subcommands\n"
        "  score    the same figures for a table of predictions, without a network\n"
        "  export   parameters of a checkpoint as safetensors, by torchvision's names\n"
        "\n"
        "Examples\n"
        "  chex-eval --data shards/ --checkpoint run/best.h5 --output run/eval/\n"
        "  chex-eval score --predictions run/eval/predictions.csv --compare published:arnoweng\n",
};

/* ---- results ---- */

/* Names what stands in the output folder already. `network`: predictions.csv is a result too. */
static enum chex_status refuse_existing(const struct settings *s, bool network,
                                        struct chex_error *err) {
    char found[200] = "";
    if (chex_fs_exists(s->output) && !chex_fs_is_dir(s->output))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is no folder", s->output);
    for (int i = network ? -1 : 0; i < 0 || chex_report_files[i]; i++) {
        const char *name = i < 0 ? "predictions.csv" : chex_report_files[i];
        char *path = chex_fs_join(s->output, name);
        size_t n = strlen(found);
        if (path && chex_fs_exists(path))
            snprintf(found + n, sizeof found - n, "%s%s", n ? ", " : "", name);
        free(path);
    }
    if (found[0] && !s->force)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "output folder %s already holds %s: name a new folder, or say --force "
            "to replace them",
            s->output, found);
    return CHEX_OK;
}

static enum chex_status write_results(const struct settings *s, const struct chex_report *report,
                                      const struct chex_predictions *predictions,
                                      struct chex_error *err) {
    CHEX_TRY(chex_fs_mkdirs(s->output, err));
    if (predictions) {
        char *path = chex_fs_join(s->output, "predictions.csv");
        enum chex_status st = path ? chex_predictions_write(path, predictions, err)
                                   : chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
        free(path);
        CHEX_TRY(st);
    }
    CHEX_TRY(chex_report_write(report, s->output, err));
    chex_info("results in %s: %sauroc.json, auroc.csv, roc.svg, report.html", s->output,
              predictions ? "predictions.csv, " : "");
    return CHEX_OK;
}

static enum chex_status print_results(const struct settings *s, const struct chex_report *report,
                                      struct chex_error *err) {
    if (!s->common.json) {
        chex_report_print(report, stdout);
    } else {
        json_t *o = NULL;
        CHEX_TRY(chex_report_json(report, &o, err));
        json_dumpf(o, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(o);
    }
    if (fflush(stdout) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write to stdout");
    return CHEX_OK;
}

/* NULL where nothing is asked for, or where the bundled table knows none of the classes. */
static enum chex_status read_published(const struct settings *s, const struct chex_scores *scores,
                                       struct chex_published **out, struct chex_error *err) {
    struct chex_published *p = NULL;
    *out = NULL;
    if (strcmp(s->compare, "none") == 0)
        return CHEX_OK;
    CHEX_TRY(chex_published_read(s->compare, &p, err));
    for (int c = 0; c < scores->classes; c++)
        if (!isnan(chex_published_auroc(p, p->headline, scores->per_class[c].name))) {
            *out = p;
            return CHEX_OK;
        }
    chex_published_destroy(p);
    chex_warn("--compare %s: it states no AUROC for any class of the data", s->compare);
    return CHEX_OK;
}

/* Scores, prints and writes. predictions_to_write may be NULL. */
static enum chex_status report_on(const struct settings *s, int threads, const char *title,
                                  const json_t *provenance, const struct chex_predictions *table,
                                  bool write_table, struct chex_error *err) {
    struct chex_pool *pool = NULL;
    struct chex_scores *scores = NULL;
    struct chex_published *published = NULL;
    enum chex_status st = chex_pool_create(threads, &pool, err);
    const struct chex_scores_config config = {.replicates = (size_t)s->bootstrap,
                                              .seed = (uint64_t)s->seed,
                                              .cluster = (enum chex_cluster)s->cluster,
                                              .pool = pool};
    if (st == CHEX_OK)
        st = chex_scores_create(table, &config, &scores, err);
    if (st == CHEX_E_DATA)
        chex_error_prefix(err, st, "%s", title);
    if (st == CHEX_OK)
        st = read_published(s, scores, &published, err);
    const struct chex_report report = {scores, published, title, provenance};
    if (st == CHEX_OK && s->output)
        st = write_results(s, &report, write_table ? table : NULL, err);
    if (st == CHEX_OK)
        st = print_results(s, &report, err);
    chex_published_destroy(published);
    chex_scores_destroy(scores);
    chex_pool_destroy(pool);
    return st;
}

/* ---- score ---- */

static enum chex_status run_score(const struct settings *s, struct chex_error *err) {
    if (!s->predictions)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval score needs --predictions FILE.csv");
    if (s->output)
        CHEX_TRY(refuse_existing(s, false, err));
    struct chex_predictions *table = NULL;
    CHEX_TRY(chex_predictions_read(s->predictions, &table, err));
    char *title = chex_fs_format("predictions of %s", s->predictions);
    json_t *provenance = json_pack("{s:s}", "predictions", s->predictions);
    enum chex_status st =
        title && provenance
            ? report_on(s, s->threads ? (int)s->threads : chex_cpu_count(), title, provenance,
                        table, false, err)
            : chex_error_set(err, CHEX_E_DATA, "--predictions: the name is no UTF-8 text");
    json_decref(provenance);
    free(title);
    chex_predictions_destroy(table);
    return st;
}

/* ---- the network ---- */

/* Parameters, and what the file says about them. */
struct network {
    struct chex_net *net;
    float *state;                       /* (state_count) */
    struct chex_checkpoint *checkpoint; /* NULL: safetensors, which do not say */
    json_t *meta;                       /* of the checkpoint; an empty object otherwise */
    int image_size;                     /* 0: not stated */
};

static void network_release(struct network *n) {
    if (!n->checkpoint)
        free(n->state);
    chex_checkpoint_destroy(n->checkpoint);
    chex_net_destroy(n->net);
    json_decref(n->meta);
}

static bool is_safetensors(const char *path) {
    static const char suffix[] = ".safetensors";
    size_t n = strlen(path), k = sizeof suffix - 1;
    return n > k && strcmp(path + n - k, suffix) == 0;
}

static enum chex_status open_safetensors(const struct settings *s, int classes, struct network *n,
                                         struct chex_error *err) {
    bool head = false;
    CHEX_TRY(chex_net_create(s->model ? s->model : "densenet121", classes, &n->net, err));
    n->state = chex_mem_alloc_aligned(n->net->state_count, sizeof *n->state);
    if (!n->state)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for the parameters");
    CHEX_TRY(chex_safetensors_read(s->checkpoint, n->net, n->state, &head, err));
    if (!head)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: its head is not one of %d classes, which the data has",
                              s->checkpoint, classes);
    return CHEX_OK;
}

static enum chex_status open_checkpoint(const struct settings *s, struct network *n,
                                        struct chex_error *err) {
    CHEX_TRY(chex_checkpoint_read(s->checkpoint, false, &n->net, &n->checkpoint, err));
    n->state = n->checkpoint->params;
    n->image_size = n->checkpoint->image_size;
    if (n->checkpoint->meta) {
        json_decref(n->meta);
        n->meta = json_loads(n->checkpoint->meta, 0, NULL);
        if (!n->meta)
            return chex_error_set(err, CHEX_E_DATA, "%s: its meta is no JSON", s->checkpoint);
    }
    if (s->model && strcmp(s->model, n->net->model) != 0)
        return chex_error_set(err, CHEX_E_DATA, "%s is a %s, --model says %s", s->checkpoint,
                              n->net->model, s->model);
    return CHEX_OK;
}

/* classes: of the data; safetensors know none. */
static enum chex_status open_network(const struct settings *s, int classes, struct network *n,
                                     struct chex_error *err) {
    n->meta = json_object();
    if (!n->meta)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    return is_safetensors(s->checkpoint) ? open_safetensors(s, classes, n, err)
                                         : open_checkpoint(s, n, err);
}

static enum chex_status check_classes(const struct settings *s, const struct chex_set *set,
                                      const struct chex_checkpoint *c, struct chex_error *err) {
    if (!c)
        return CHEX_OK;
    if (c->classes != set->classes)
        return chex_error_set(err, CHEX_E_DATA, "%s has %d classes, %s has %d", s->checkpoint,
                              c->classes, set->dir, set->classes);
    for (int i = 0; i < c->classes; i++)
        if (strcmp(c->class_names[i], set->class_names[i]) != 0)
            return chex_error_set(err, CHEX_E_DATA, "class %d is %s in %s and %s in %s", i + 1,
                                  c->class_names[i], s->checkpoint, set->class_names[i], set->dir);
    return CHEX_OK;
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* A network that saw another resize in training sees other images here. */
static enum chex_status check_resize(const struct settings *s, const struct chex_set *set,
                                     const struct network *n, struct chex_error *err) {
    const char *trained = text_of(n->meta, "resize");
    if (!trained) {
        chex_warn("%s does not say how its training images were resized; the data is by %s",
                  s->checkpoint, set->resize);
        return CHEX_OK;
    }
    if (strcmp(trained, set->resize) != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s was trained on images resized by %s, %s holds images resized by "
                              "%s: shard them alike",
                              s->checkpoint, trained, set->dir, set->resize);
    return CHEX_OK;
}

/* The images that trained a network say nothing about how it does on others. */
static enum chex_status check_overlap(const struct settings *s, const struct chex_set *set,
                                      const struct network *n, struct chex_error *err) {
    const char *split = text_of(n->meta, "split");
    const char *digest = text_of(json_object_get(n->meta, "identity"), "source_digest");
    if (s->allow_overlap)
        return CHEX_OK;
    if (!split || !digest || strcmp(digest, set->source_digest) != 0) {
        chex_warn("whether %s was trained on images of %s cannot be told: %s", s->checkpoint,
                  set->dir,
                  split && digest ? "its training data was another set" : "it does not say");
        return CHEX_OK;
    }
    const bool same = strcmp(split, chex_split_names[set->split]) == 0;
    if (same || set->split == CHEX_ALL || strcmp(split, chex_split_names[CHEX_ALL]) == 0)
        return chex_error_set(
            err, CHEX_E_DATA,
            "%s was trained on split %s of this data, and split %s holds the same "
            "images: choose another --split, or say --allow-overlap",
            s->checkpoint, split, chex_split_names[set->split]);
    return CHEX_OK;
}

/* ---- evaluation ---- */

struct evaluation {
    const struct settings *s;
    struct chex_world world;
    struct chex_coll *coll;
    struct chex_set *set;
    struct network network;
    struct chex_engine *engine;
    const char *engine_spec;
    struct chex_gpu gpu;
    bool has_gpu;
    int image_size, threads;
    enum chex_precision precision;
};

static enum chex_status open_set(struct evaluation *e, struct chex_error *err) {
    const struct settings *s = e->s;
    size_t rows, from, to;
    CHEX_TRY(chex_set_rows(s->data, (enum chex_split)s->split, &rows, err));
    if (rows == 0) {
        char have[80] = "";
        for (int k = 0; k < CHEX_SPLIT_COUNT; k++) {
            size_t other = 0, n = strlen(have);
            if (chex_set_rows(s->data, (enum chex_split)k, &other, NULL) == CHEX_OK && other)
                snprintf(have + n, sizeof have - n, "%s%s", n ? ", " : "", chex_split_names[k]);
        }
        return chex_error_set(err, CHEX_E_DATA, "%s: no image in split %s; it has %s", s->data,
                              chex_split_names[s->split], have[0] ? have : "none");
    }
    chex_eval_rows(rows, e->coll->rank, e->coll->size, &from, &to);
    return chex_set_open(s->data, (enum chex_split)s->split, from, to, &e->set, err);
}

/* Everything before the first image, on one rank. */
static enum chex_status prepare(struct evaluation *e, struct chex_error *err) {
    const struct settings *s = e->s;
    if (e->coll->rank == 0)
        CHEX_TRY(refuse_existing(s, true, err));
    CHEX_TRY(open_set(e, err));
    CHEX_TRY(open_network(s, e->set->classes, &e->network, err));
    CHEX_TRY(check_classes(s, e->set, e->network.checkpoint, err));
    e->image_size = s->image_size                ? (int)s->image_size
                    : e->network.image_size != 0 ? e->network.image_size
                                                 : e->set->size;
    CHEX_TRY(chex_eval_check(e->set, e->network.net, e->image_size, (enum chex_tta)s->tta, err));
    if (e->coll->rank == 0) { /* they warn, and once is enough */
        CHEX_TRY(check_resize(s, e->set, &e->network, err));
        CHEX_TRY(check_overlap(s, e->set, &e->network, err));
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
    chex_info("%s at %d px, engine %s, %s, %d rank%s, %d threads each; split %s of %s: %zu images",
              e->network.net->model, e->image_size, e->engine_spec,
              chex_precision_names[e->precision], ranks, ranks == 1 ? "" : "s", e->threads,
              chex_split_names[s->split], s->data, e->set->rows);
    return CHEX_OK;
}

static json_t *provenance_of(const struct evaluation *e, double loss) {
    const struct settings *s = e->s;
    return json_pack(
        "{s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:s,s:s,s:s,s:i,s:f}", "checkpoint", s->checkpoint,
        "data", s->data, "source_digest", e->set->source_digest, "resize", e->set->resize, "split",
        chex_split_names[s->split], "model", e->network.net->model, "image_size_px", e->image_size,
        "stored_size_px", e->set->size, "tta", chex_tta_names[s->tta], "engine", e->engine_spec,
        "precision", chex_precision_names[e->precision], "ranks", e->coll->size, "loss", loss);
}

static enum chex_status finish(const struct evaluation *e, const struct chex_predictions *table,
                               double loss, struct chex_error *err) {
    char *title = chex_fs_format("split %s of %s, %s of %s", chex_split_names[e->s->split],
                                 e->s->data, e->network.net->model, e->s->checkpoint);
    json_t *provenance = provenance_of(e, loss);
    enum chex_status st = CHEX_OK;
    if (!title || !provenance)
        st = chex_error_set(err, CHEX_E_DATA, "--data or --checkpoint: the name is no UTF-8 text");
    else
        st = report_on(e->s, e->threads, title, provenance, table, true, err);
    json_decref(provenance);
    free(title);
    return st;
}

/* All ranks; they return the same status. */
static enum chex_status evaluate(struct evaluation *e, struct chex_error *err) {
    const struct settings *s = e->s;
    struct chex_predictions *table = NULL;
    double loss = NAN;
    const struct chex_eval_config config = {(int)s->workers, (enum chex_tta)s->tta,
                                            !s->common.quiet};
    enum chex_status st = chex_choose_engine(s->engine, &e->world.gpu, &e->engine_spec, err);
    st = chex_choose_gpu(&e->world.launch, &e->world.binding, &e->world.gpu,
                         st == CHEX_OK ? e->engine_spec : NULL, &e->gpu, &e->has_gpu, err);
    e->precision = (enum chex_precision)s->precision;
    if (st == CHEX_OK && !s->precision_asked)
        st = chex_choose_precision(&e->world.launch, e->engine_spec, &e->precision, err);
    if (st == CHEX_OK)
        st = chex_coll_agree(e->coll, prepare(e, err), err);
    if (st == CHEX_OK)
        st = chex_eval_run(e->engine, e->set, e->coll, &config, &table, &loss, err);
    if (st == CHEX_OK) {
        if (e->coll->rank == 0)
            st = finish(e, table, loss, err);
        st = chex_coll_agree(e->coll, st, err);
    }
    chex_predictions_destroy(table);
    chex_engine_destroy(e->engine);
    network_release(&e->network);
    chex_set_close(e->set);
    return st;
}

static enum chex_status run_evaluation(const struct settings *s, struct chex_error *err) {
    if (!s->data || !s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval needs --%s",
                              !s->data         ? "data DIR"
                              : !s->checkpoint ? "checkpoint FILE"
                                               : "output DIR");
    struct evaluation e = {.s = s};
    CHEX_TRY(chex_world_open(&e.world, err));
    enum chex_status st = chex_coll_create(&e.world.launch, &e.coll, err);
    const bool together = st == CHEX_OK;
    if (st == CHEX_OK)
        st = evaluate(&e, err);
    /* Ranks that fail together have one cause, and rank 0 tells it. */
    if (st != CHEX_OK && (!together || e.world.launch.rank == 0))
        chex_err("%s", err->text);
    err->text[0] = '\0';
    chex_coll_destroy(e.coll);
    chex_world_close(&e.world, st, together);
    return st;
}

/* ---- export ---- */

static enum chex_status run_export(const struct settings *s, struct chex_error *err) {
    if (!s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval export needs --%s",
                              s->checkpoint ? "output FILE.safetensors" : "checkpoint FILE");
    if (!is_safetensors(s->output) || is_safetensors(s->checkpoint))
        return chex_error_set(err, CHEX_E_USAGE,
                              "chex-eval export makes --output FILE.safetensors of a checkpoint of "
                              "chex-train, not %s of %s",
                              s->output, s->checkpoint);
    if (chex_fs_exists(s->output) && !s->force)
        return chex_error_set(err, CHEX_E_USAGE, "--output %s exists: say --force to replace it",
                              s->output);
    struct network n = {0};
    enum chex_status st = open_network(s, 0, &n, err);
    if (st == CHEX_OK) {
        const json_t *position = json_object_get(n.meta, "position");
        json_t *names = json_array();
        for (int c = 0; c < n.net->classes; c++)
            json_array_append_new(names, json_string(n.checkpoint->class_names[c]));
        char *classes = json_dumps(names, JSON_COMPACT), size[16];
        snprintf(size, sizeof size, "%d", n.image_size);
        /* safetensors' metadata holds strings only. */
        json_t *metadata =
            json_pack("{s:s,s:s,s:s,s:s,s:s}", "format", "pt", "model", n.net->model, "image_size",
                      size, "classes", classes ? classes : "[]", "resize",
                      text_of(n.meta, "resize") ? text_of(n.meta, "resize") : "");
        char *text = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
        st = text ? chex_safetensors_write(
                        s->output, n.net, n.state,
                        (int64_t)json_integer_value(json_object_get(position, "step")), text, err)
                  : chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
        free(text);
        free(classes);
        json_decref(metadata);
        json_decref(names);
    }
    if (st == CHEX_OK)
        chex_info("%s: %zu parameters of %s", s->output, n.net->param_count, n.net->model);
    network_release(&n);
    return st;
}

/* ---- */

static enum chex_status dispatch(const struct settings *s, const struct chex_opt_set *set,
                                 struct chex_error *err) {
    const char *word = chex_opt_word(set, 0);
    if (chex_opt_word_count(set) > 1)
        return chex_error_set(err, CHEX_E_USAGE, "'%s' is one word too many",
                              chex_opt_word(set, 1));
    if (!word)
        return run_evaluation(s, err);
    if (strcmp(word, "score") == 0)
        return run_score(s, err);
    if (strcmp(word, "export") == 0)
        return run_export(s, err);
    return chex_error_set(err, CHEX_E_USAGE,
                          "unknown subcommand '%s': expected score or export, "
                          "or none with --data and --checkpoint",
                          word);
}

int main(int argc, char **argv) {
    struct settings s;
    struct chex_opt_set *set = NULL;
    struct chex_error err = {0};
    char libraries[256];
    chex_log_init("chex-eval", CHEX_LOG_INFO);
    enum chex_status st = chex_opt_parse(&program, argc, argv, &s, sizeof s, &set, &err);
    if (st == CHEX_OK) {
        chex_log_set_level((enum chex_log_level)s.common.log_level);
        s.precision_asked = chex_opt_origin(set, "precision") != CHEX_FROM_DEFAULT;
        if (s.common.help)
            chex_opt_print_help(&program, stdout);
        else if (s.common.version)
            chex_opt_print_version(program.name, chex_data_libraries(libraries, sizeof libraries),
                                   stdout);
        else if (s.common.print_config)
            chex_opt_print_config(set, &s, stdout);
        else
            st = dispatch(&s, set, &err);
    }
    if (st == CHEX_OK)
        st = chex_fs_flush_stdout(&err);
    if (st != CHEX_OK && err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    return (int)st;
}
