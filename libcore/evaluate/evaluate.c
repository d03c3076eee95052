/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval without a subcommand: predicts a split of shards on all ranks. Rank 0 scores the
 * predictions and writes the results.
 */
#include "evaluate/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "evaluate/compute.h"
#include "evaluate/ensemble_files.h"
#include "evaluate/output.h"
#include "evaluate/results.h"
#include "evaluate/run_engine.h"
#include "evaluate/subcommands.h"
#include "infer/feature_file.h"
#include "infer/split_run.h"
#include "launch/same.h"
#include "launch/world.h"
#include "model/training_facts.h"
#include "shard/manifest.h"
#include "shard/members.h"
#include "shard/selection.h"

const char *const chex_eval_split_names[] = {"train", "val", "test", "all", "fold", NULL};

struct evaluation {
    const struct chex_eval_settings *s;
    const struct chex_opt_set *options;
    const struct chex_eval_split_use *use; /* NULL: the command itself */
    FILE *out;
    struct chex_sources sets;
    const char *data;               /* folder of the current set */
    struct chex_selection **rows;   /* (sets.count) that are evaluated */
    const struct chex_fold *fold;   /* of the current set; folds 0: a split is evaluated */
    unsigned long long fold_digest; /* of the training */
    char part[CHEX_FOLD_BYTES];     /* the same: "split test", "fold 2 of 5" */
    struct chex_eval_done *done;    /* (sets.count) on rank 0 */
    int *set_class;     /* (classes of the network), or NULL; see struct chex_eval_config */
    char **first_names; /* (first_count) classes of the first set, if the network names none */
    int first_count;
    struct chex_world world;
    struct chex_coll *coll;
    struct chex_set *set;
    enum chex_split split;
    struct chex_eval_files files; /* of --checkpoint */
    struct chex_eval_network network;
    struct chex_eval_engine engine;
    float *features; /* (rows of this rank, their number) of --features */
    char features_digest[17];
    int image_size;
    struct chex_eval_output output;   /* on rank 0 */
    const char **set_names;           /* of several sets; on rank 0 */
    struct chex_published *published; /* figures of --compare; on rank 0 */
    struct chex_eval_figures figures; /* --threshold and --prevalence; on rank 0 */
    const char *overlap;              /* from find_overlap; on rank 0 */
};

/* ---- checks: does the network's file fit the data? ---- */

/* Lists a name: "A, B, ..." */
static void list_name(struct chex_text_line *list, const char *name) {
    chex_text_append(list, "%s%s", list->used ? ", " : "", name);
}

/* The network's class names: those of its file, else those of the first set. */
static char *const *network_names(const struct evaluation *e) {
    return e->network.about.classes ? e->network.about.class_names : e->first_names;
}

/* Finds the set's class for each class of the network. Returns the number of those that both have.
 */
static int find_common(struct evaluation *e, int *set_class) {
    char *const *names = network_names(e);
    int common = 0;
    for (int c = 0; c < e->network.net->classes; c++) {
        set_class[c] = -1;
        for (int k = 0; k < e->set->classes; k++)
            if (strcmp(names[c], e->set->class_names[k]) == 0)
                set_class[c] = k;
        common += set_class[c] >= 0;
    }
    return common;
}

/* Warns of findings that only the network or only the set has. Rank 0. */
static void warn_of_others(const struct evaluation *e) {
    char missing[400] = "", unknown[400] = "";
    struct chex_text_line m = {missing, sizeof missing, 0}, u = {unknown, sizeof unknown, 0};
    char *const *names = network_names(e);
    for (int c = 0; c < e->network.net->classes; c++)
        if (e->set_class[c] < 0)
            list_name(&m, names[c]);
    for (int k = 0; k < e->set->classes; k++) {
        bool found = false;
        for (int c = 0; c < e->network.net->classes; c++)
            found = found || e->set_class[c] == k;
        if (!found)
            list_name(&u, e->set->class_names[k]);
    }
    if (missing[0])
        chex_warn("%s does not state these findings of the network, which have no AUROC: %s",
                  e->set->dir, missing);
    if (unknown[0])
        chex_warn("%s states findings that the network does not have, which are left out: %s",
                  e->set->dir, unknown);
}

static enum chex_status take_names(struct evaluation *e, struct chex_error *err) {
    const struct chex_set *set = e->set;
    if (e->network.about.classes || e->first_names)
        return CHEX_OK;
    CHEX_TRY(chex_eval_check_class_names(set->dir, set->class_names, set->classes, err));
    if (!(e->first_names = chex_alloc_zeroed((size_t)set->classes, sizeof *e->first_names)))
        return chex_error_memory(err, "%s", set->dir);
    e->first_count = set->classes;
    for (int c = 0; c < set->classes; c++)
        if (!(e->first_names[c] = strdup(set->class_names[c])))
            return chex_error_memory(err, "%s", set->dir);
    return CHEX_OK;
}

/* Matches the findings of the network and of the set by name. CHEX_E_DATA: none is common, or, with
 * e->use, not all are. */
static enum chex_status match_classes(struct evaluation *e, struct chex_error *err) {
    const int classes = e->network.net->classes;
    const char *path = e->s->checkpoint, *dir = e->set->dir;
    CHEX_TRY(take_names(e, err));
    free(e->set_class);
    if (!(e->set_class = chex_alloc_zeroed((size_t)classes, sizeof *e->set_class)))
        return chex_error_memory(err, "%s", path);
    const int common = find_common(e, e->set_class);
    bool same = classes == e->set->classes;
    for (int c = 0; c < classes; c++)
        same = same && e->set_class[c] == c;
    if (same) {
        free(e->set_class);
        e->set_class = NULL;
        return CHEX_OK;
    }
    if (e->use && common < classes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s has %d findings, and %s states %d of them: expected all", path,
                              classes, dir, common);
    if (!common) {
        char own[200] = "", other[200] = "";
        struct chex_text_line l = {own, sizeof own, 0}, r = {other, sizeof other, 0};
        for (int c = 0; c < classes; c++)
            list_name(&l, network_names(e)[c]);
        for (int k = 0; k < e->set->classes; k++)
            list_name(&r, e->set->class_names[k]);
        return chex_error_set(err, CHEX_E_DATA,
                              "%s and %s have no finding in common: the network has %s; the set "
                              "has %s",
                              path, dir, own, other);
    }
    if (e->coll->rank == 0)
        warn_of_others(e);
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

/* The number of the set among those that the network was trained on, whose digests are joined with
 * "+"; -1: it was not. split_out: its split that was trained on. */
static int trained_set(const struct chex_safetensors_about *about, const char *digest,
                       char split_out[8]) {
    const char *at = about->source_digest, *split = about->split;
    for (int i = 0; at && split; i++) {
        const size_t n = strcspn(at, "+"), length = strcspn(split, "+");
        snprintf(split_out, 8, "%.*s", (int)length, split);
        if (strlen(digest) == n && strncmp(at, digest, n) == 0)
            return i;
        at = at[n] ? at + n + 1 : NULL;
        split = split[length] ? split + length + 1 : split;
    }
    return -1;
}

/* Does the split hold images that the network was trained on? Returns "none", "yes", "likely" or
 * "unknown" for the results. why_out: the reason, as the start of a sentence. */
static const char *find_overlap(const struct evaluation *e, const char *path,
                                const struct chex_safetensors_about *about, char *why_out,
                                size_t size) {
    const char *ours = chex_split_names[e->split], *dir = e->set->dir;
    char then[CHEX_MEMBERS_BYTES], members[CHEX_MEMBERS_BYTES], split[8];
    if (e->fold->folds)
        return "none";
    const int at = trained_set(about, e->set->source_digest, split);
    if (at < 0) {
        snprintf(why_out, size, "it is unknown whether %s was trained on images of %s: %s", path,
                 dir,
                 about->split && about->source_digest ? "its training data was another set"
                                                      : "it does not name its training data");
        return "unknown";
    }
    chex_members_read(dir, members);
    chex_members_of_set(about->members, at, then);
    if (chex_members_compare(then, members, e->split) == CHEX_MEMBERS_OTHER) {
        snprintf(why_out, size,
                 "%s was trained on split %s of another set of these images, and split %s of %s "
                 "may hold some of them",
                 path, split, ours, dir);
        return "likely";
    }
    if (strcmp(split, ours) != 0 && e->split != CHEX_ALL &&
        strcmp(split, chex_split_names[CHEX_ALL]) != 0 && !(about->fold && e->split == CHEX_VAL))
        return "none";
    snprintf(why_out, size,
             "%s was trained on split %s of this data, and split %s holds the same images", path,
             about->fold ? about->split : split, ours);
    return "yes";
}

/* CHEX_E_DATA if training images would be evaluated, except with --allow-overlap: such a result
 * says nothing about new images. */
static enum chex_status check_overlap(struct evaluation *e, const char *path,
                                      const struct chex_safetensors_about *about,
                                      struct chex_error *err) {
    char why[2 * CHEX_ERROR_TEXT_BYTES];
    const char *found = find_overlap(e, path, about, why, sizeof why);
    if (!e->overlap || strcmp(e->overlap, "none") == 0 || strcmp(found, "yes") == 0)
        e->overlap = found;
    if (strcmp(found, "none") == 0)
        return CHEX_OK;
    if (e->s->allow_overlap || strcmp(found, "unknown") == 0) {
        chex_warn("%s", why);
        return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_DATA, "%s: choose another --split, or pass --allow-overlap",
                          why);
}

/* What trained network k and where it is (path_out), with borrowed texts. */
static struct chex_safetensors_about about_member(const struct evaluation *e, int k,
                                                  const char **path_out) {
    static const char *const keys[] = {"file", CHEX_MEMBER_TRAINED};
    char *text[CHEX_COUNT(keys)];
    *path_out = e->s->checkpoint;
    if (!e->network.facts)
        return e->network.about;
    const json_t *m = json_array_get(e->network.facts, (size_t)k);
    for (size_t i = 0; i < CHEX_COUNT(keys); i++)
        text[i] = (char *)(uintptr_t)json_string_value(json_object_get(m, keys[i]));
    *path_out = text[0] ? text[0] : *path_out;
    return (struct chex_safetensors_about){
        .split = text[1], .source_digest = text[2], .members = text[3], .fold = text[4]};
}

/* The same for each network. */
static enum chex_status check_overlaps(struct evaluation *e, int at, struct chex_error *err) {
    const char *path;
    e->overlap = NULL;
    if (e->fold->folds && e->rows[at]->fold_facts.digest != e->fold_digest)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: %s of %s has other patients now than in the training",
                              e->s->checkpoint, e->part, e->data);
    for (int k = 0; k < e->network.networks; k++) {
        const struct chex_safetensors_about about = about_member(e, k, &path);
        CHEX_TRY(check_overlap(e, path, &about, err));
    }
    return CHEX_OK;
}

/* ---- evaluation ---- */

/* Whether the fold that the training of each network left out is evaluated: --split fold, or
 * without --split for such networks and the set that they were trained on. */
static enum chex_status choose_fold(struct evaluation *e, const struct chex_manifest *m,
                                    struct chex_fold *fold_out, struct chex_error *err) {
    const bool asked = e->s->split == CHEX_SPLIT_COUNT;
    const char *path, *fold = NULL;
    char split[8];
    bool same = true;
    if (!asked && (e->use || chex_opt_origin(e->options, "split") != CHEX_FROM_DEFAULT))
        return CHEX_OK;
    for (int k = 0; same && k < e->network.networks; k++) {
        const struct chex_safetensors_about about = about_member(e, k, &path);
        same = about.fold && trained_set(&about, m->source_digest, split) >= 0 &&
               (!fold || strcmp(fold, about.fold) == 0);
        fold = same ? about.fold : fold;
    }
    if (same &&
        sscanf(fold, CHEX_FOLD_FORM, &fold_out->number, &fold_out->folds, &e->fold_digest) == 3)
        return CHEX_OK;
    *fold_out = (struct chex_fold){0};
    if (!asked)
        return CHEX_OK;
    return fold ? chex_error_set(err, CHEX_E_DATA,
                                 "--split fold: %s left out another fold than other members: "
                                 "choose --split test, or evaluate each member on its fold",
                                 path)
                : chex_error_set(err, CHEX_E_DATA,
                                 "--split fold: %s was not trained on folds of %s", path, e->data);
}

/* Chooses the split. If a set has only `all`, it is used without --split all. */
static enum chex_status choose_split(const struct evaluation *e, const struct chex_manifest *m,
                                     struct chex_splits *out, struct chex_error *err) {
    size_t rows = 0, whole = 0;
    char have[80] = "";
    struct chex_text_line list = {have, sizeof have, 0};
    *out = e->s->split >= CHEX_ALL ? (struct chex_splits){0, CHEX_SPLIT_COUNT}
                                   : chex_splits_one((enum chex_split)e->s->split);
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++) {
        whole += m->splits[k].rows;
        rows += k >= out->from && k < out->to ? m->splits[k].rows : 0;
        if (m->splits[k].rows)
            list_name(&list, chex_split_names[k]);
    }
    if (chex_opt_origin(e->options, "split") == CHEX_FROM_DEFAULT && whole &&
        m->splits[CHEX_ALL].rows == whole) {
        *out = (struct chex_splits){0, CHEX_SPLIT_COUNT};
        rows = whole;
        chex_info("%s was made without splits: all of it is evaluated", e->data);
    }
    return rows ? CHEX_OK
                : chex_error_set(err, CHEX_E_DATA,
                                 "%s: no image in split %s; it has %s: choose with --split",
                                 e->data, chex_splits_name(*out), have[0] ? have : "none");
}

/* The rows of set `at` by the manifest. */
static enum chex_status describe_rows(struct evaluation *e, int at, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    struct chex_splits splits = {0};
    struct chex_selection_config c = {.data = e->data,
                                      .findings = e->network.about.unions,
                                      .where = e->s->where,
                                      .evaluated = &splits};
    CHEX_TRY(chex_manifest_read(e->data, &m, err));
    enum chex_status st = choose_fold(e, m, &c.fold, err);
    if (st == CHEX_OK && !c.fold.folds)
        st = choose_split(e, m, &splits, err);
    chex_manifest_free(m);
    return st == CHEX_OK ? chex_selection_create(&c, &e->rows[at], err) : st;
}

/* CHEX_E_DATA if --unit study finds an image without a study among the rows of this rank. */
static enum chex_status check_studies(const struct evaluation *e, size_t from, size_t to,
                                      struct chex_error *err) {
    for (size_t row = from, at; e->s->unit == CHEX_UNIT_STUDY && row < to; row++) {
        const struct chex_shard *s = chex_set_locate(e->set, row, &at);
        const char *study = chex_shard_study_id(s, at);
        if (!study || !*study)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: image %s has no study id, and --unit study needs it: "
                                  "shard the set again from labels that state studies "
                                  "(--columns study=NAME), or use --unit patient",
                                  e->data, chex_shard_image_id(s, at));
    }
    return CHEX_OK;
}

static enum chex_status open_set(struct evaluation *e, int at, struct chex_error *err) {
    const struct chex_selection *rows = e->rows[at];
    const struct chex_splits splits = rows->source[0].splits[CHEX_PART_VAL];
    size_t from, to;
    chex_set_close(e->set);
    e->set = NULL;
    e->data = e->sets.set[at].dir;
    e->fold = &rows->fold;
    e->split = splits.to == splits.from + 1 ? (enum chex_split)splits.from : CHEX_ALL;
    snprintf(e->part, sizeof e->part, "split %s", chex_splits_name(splits));
    if (e->fold->folds)
        snprintf(e->part, sizeof e->part, "fold %d of %d", e->fold->number, e->fold->folds);
    chex_eval_rows(rows->rows[CHEX_PART_VAL], e->coll->rank, e->coll->size, &from, &to);
    CHEX_TRY(chex_selection_open(rows, CHEX_PART_VAL, from, to, NULL, NULL, NULL, &e->set, err));
    return check_studies(e, from, to, err);
}

/* Of the options of a rank (of_rank) data and networks are compared by content (check_same), after
 * the number of the networks' files here; the others do not change results, or only rank 0 uses
 * them. */
static enum chex_status check_options(struct evaluation *e, struct chex_error *err) {
    char count[32];
    CHEX_TRY(chex_group_agree(e->coll->group,
                              chex_eval_files_find(e->s->checkpoint, &e->files, err), err));
    snprintf(count, sizeof count, "%d files", e->files.count);
    json_auto_t *mine = chex_opt_same(e->options, e->s);
    chex_json_set(&mine, "checkpoint", json_string(count));
    return chex_group_agree(e->coll->group, chex_same_options(e->coll->group, mine, err), err);
}

/* All ranks must have the same data and the same networks. Collective. */
static enum chex_status check_same(const struct evaluation *e, struct chex_error *err) {
    const struct chex_launch *launch = &e->world.launch;
    enum chex_status st = chex_same_files(e->coll, launch, (const char *const *)e->files.path,
                                          (size_t)e->files.count, err);
    for (int i = 0; st == CHEX_OK && i < e->sets.count; i++) {
        const struct chex_path manifest = chex_path(e->sets.set[i].dir, CHEX_MANIFEST_NAME);
        const char *const data[] = {manifest.text};
        st = chex_same_files(e->coll, launch, data, 1, err);
    }
    return chex_group_agree(e->coll->group, st, err);
}

/* What must be right about --output and --compare before the work. */
static enum chex_status check_results(struct evaluation *e, struct chex_error *err) {
    e->output = chex_eval_output_of_report(e->s, true);
    if (e->sets.count > 1) {
        if (!(e->set_names = chex_eval_external_dirs(&e->sets)))
            return chex_error_memory(err, "%d sets", e->sets.count);
        e->output = chex_eval_external_output(e->s, e->set_names);
    }
    CHEX_TRY(chex_eval_output_check(&e->output, err));
    return chex_published_read(e->s->compare, &e->published, err);
}

/* Frozen thresholds hold for the input on which they were chosen. */
static void warn_other_input(const struct evaluation *e) {
    const struct chex_deployment *d = e->network.deployment;
    const char *path = e->s->checkpoint;
    if (!d || e->figures.config.source != CHEX_THRESHOLD_DEPLOYED)
        return;
    const json_int_t px = json_integer_value(json_object_get(d->provenance, "image_size_px"));
    if (px && px != e->image_size)
        chex_warn("%s: its thresholds were chosen at %d px, and the images are evaluated at %d px",
                  path, (int)px, e->image_size);
    if (e->s->tta != CHEX_TTA_NONE)
        chex_warn("%s: its thresholds were chosen without --tta", path);
}

static enum chex_status begin_results(struct evaluation *e, struct chex_error *err) {
    const struct chex_eval_settings *s = e->s;
    CHEX_TRY(chex_eval_figures_open(s, &e->network, e->network.net->classes, network_names(e),
                                    &e->figures, err));
    warn_other_input(e);
    return chex_eval_output_begin(&e->output, err);
}

/* CHEX_E_DATA if an earlier set was made from the same images: its copy, or resharded. */
static enum chex_status check_other(const struct evaluation *e, int at, struct chex_error *err) {
    for (int i = 0; i < at; i++)
        if (strcmp(e->rows[i]->source_digest, e->rows[at]->source_digest) == 0)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s and %s were made from the same images: expected other "
                                  "patients in each set",
                                  e->sets.set[i].dir, e->data);
    return CHEX_OK;
}

/* Opens results and network, and finds a missing set or split. Not collective. */
static enum chex_status prepare_all(struct evaluation *e, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    if (e->coll->rank == 0)
        CHEX_TRY(e->use ? e->use->check(e->s, err) : check_results(e, err));
    CHEX_TRY(chex_manifest_read(e->sets.set[0].dir, &m, err));
    const int classes = (int)m->class_count;
    chex_manifest_free(m);
    CHEX_TRY(chex_eval_network_open(e->s, classes, &e->network, err));
    for (int i = 0; i < e->sets.count; i++) {
        e->data = e->sets.set[i].dir;
        CHEX_TRY(describe_rows(e, i, err));
        CHEX_TRY(check_other(e, i, err));
    }
    return CHEX_OK;
}

/* Chooses the rows of all sets. Collective. */
static enum chex_status choose_rows(struct evaluation *e, struct chex_error *err) {
    const struct chex_selection_ranks ranks = {.group = e->coll->group};
    CHEX_TRY(check_same(e, err));
    CHEX_TRY(chex_group_agree(e->coll->group, prepare_all(e, err), err));
    for (int i = 0; i < e->sets.count; i++)
        CHEX_TRY(chex_selection_choose(e->rows[i], &ranks, err));
    return CHEX_OK;
}

static bool predicts(const struct evaluation *e) { return !e->use || !e->use->unpredicted; }

/* Everything before the first image of the current set. Runs on each rank; not collective. */
static enum chex_status prepare(struct evaluation *e, int at, struct chex_error *err) {
    const struct chex_eval_settings *s = e->s;
    const bool first = at == 0;
    /* Finds a missing shard or study of any set before the first one is predicted. */
    for (int i = first ? e->sets.count - 1 : at; i >= at; i--)
        CHEX_TRY(open_set(e, i, err));
    if (predicts(e))
        CHEX_TRY(match_classes(e, err));
    e->image_size = chex_eval_image_size(s, &e->network, e->set->size);
    CHEX_TRY(chex_eval_check_size(e->set, e->image_size, (enum chex_tta)s->tta, err));
    if (e->coll->rank == 0) { /* these warn, so only one rank calls them */
        if (!e->network.about.classes)
            chex_warn("%s does not name its findings: it is assumed that they are those of %s, in "
                      "the same order (--classes names others)",
                      s->checkpoint, e->set->dir);
        CHEX_TRY(check_resize(e, err));
        if (predicts(e))
            CHEX_TRY(check_overlaps(e, at, err));
        if (!e->use && first)
            CHEX_TRY(begin_results(e, err));
    }
    CHEX_TRY(chex_eval_engine_open(&e->engine, s, &e->world, &e->network, e->image_size,
                                   (int)s->batch_size, err));
    const int ranks = e->coll->size;
    char size[32];
    snprintf(size, sizeof size, " at %d px", e->image_size);
    chex_info("%s%s, engine %s, %s, %d rank%s, %d thread%s each; %s of %s: %zu image%s",
              e->network.net->model, s->features ? "" : size, e->engine.spec,
              chex_precision_names[e->engine.precision], ranks, ranks == 1 ? "" : "s",
              e->engine.threads, e->engine.threads == 1 ? "" : "s", e->part, e->data, e->set->rows,
              chex_text_s(e->set->rows));
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

/* A deployed network has the facts of its checkpoint. Members of an ensemble have their own. */
static void add_training(json_t *provenance, const struct chex_eval_network *network) {
    const json_t *deployed = network->deployment ? network->deployment->provenance : NULL;
    static const char *const keys[] = {CHEX_TRAINING_KEYS};
    const json_t *from = network->about.training ? network->about.training : deployed;
    for (size_t i = 0; provenance && i < CHEX_COUNT(keys); i++)
        if (json_object_get(from, keys[i]))
            json_object_set(provenance, keys[i], json_object_get(from, keys[i]));
}

/* "ema", "last", or NULL: unknown. Files of earlier versions have it in their provenance alone. */
static const char *weights_of(const struct chex_eval_network *n) {
    const json_t *deployed = n->deployment ? n->deployment->provenance : NULL;
    return n->about.weights ? n->about.weights
                            : json_string_value(json_object_get(deployed, "weights"));
}

static json_t *provenance_of(const struct evaluation *e, double loss) {
    const struct chex_eval_settings *s = e->s;
    json_t *o = chex_result(
        CHEX_MEMBER(s, checkpoint), CHEX_FIELD("weights", weights_of(&e->network)),
        CHEX_MEMBER(e, data), CHEX_FIELD("label_format", label_format_of(e->data)),
        CHEX_MEMBER(e->set, source_digest), CHEX_MEMBER(e->set, resize),
        CHEX_FIELD("split", e->fold->folds ? (const char *)e->part : chex_split_names[e->split]),
        CHEX_FIELD("overlap_with_training", e->overlap), CHEX_MEMBER(e->network.net, model),
        CHEX_FIELD("image_size_px", e->image_size), CHEX_FIELD("stored_size_px", e->set->size),
        CHEX_FIELD("tta", chex_tta_names[s->tta]), CHEX_FIELD("engine", e->engine.spec),
        CHEX_FIELD("precision", chex_precision_names[e->engine.precision]),
        CHEX_FIELD("ranks", e->coll->size), CHEX_FIELD("loss", loss));
    if (o && s->where)
        json_object_set_new(o, "where", json_string(s->where));
    if (e->network.networks > 1) {
        chex_json_set(&o, "ensemble", json_string(chex_ensemble_names[e->network.mean]));
        chex_json_set(&o, "members", json_incref(e->network.facts));
    }
    if (o && e->network.about.training_loss)
        json_object_set_new(o, "training_loss", json_string(e->network.about.training_loss));
    if (o && s->features) {
        json_object_set_new(o, "image_size_px", json_null());
        json_object_set_new(o, "features", json_string(s->features));
        json_object_set_new(o, "features_digest", json_string(e->features_digest));
    }
    if (e->network.networks == 1)
        add_training(o, &e->network);
    if (o && e->network.networks == 1 && e->network.about.training)
        chex_training_energy(o, s->checkpoint);
    return o;
}

/* The name of the set in each row, for tables of several sets. */
static enum chex_status name_source(struct chex_predictions *table, const char *name,
                                    struct chex_error *err) {
    CHEX_TRY(chex_predictions_add_facts(table, err));
    for (size_t i = 0; i < table->rows; i++)
        if (!(table->facts[i].source = strdup(name)))
            return chex_error_memory(err, "%zu images", table->rows);
    return CHEX_OK;
}

/* Figures at a threshold are too good on the images on which it was chosen. */
static void warn_own_images(const struct evaluation *e) {
    const struct chex_deployment *d = e->network.deployment;
    if (!d || e->figures.config.source != CHEX_THRESHOLD_DEPLOYED)
        return;
    const char *digest = json_string_value(json_object_get(d->provenance, "source_digest"));
    const char *split = json_string_value(json_object_get(d->provenance, "split"));
    if (digest && split && strcmp(digest, e->set->source_digest) == 0 &&
        strcmp(split, chex_split_names[e->split]) == 0)
        chex_warn("%s: its thresholds were chosen on these images (split %s of %s): figures on new "
                  "images will be worse",
                  e->s->checkpoint, split, e->data);
}

/* Keeps the predictions of the current set on rank 0. */
static enum chex_status keep(struct evaluation *e, int at, struct chex_predictions *table,
                             double loss, struct chex_error *err) {
    struct chex_eval_done *d = &e->done[at];
    warn_own_images(e);
    *d = (struct chex_eval_done){.table = table,
                                 .title = chex_fs_format("%s of %s%s%s, %s of %s", e->part, e->data,
                                                         e->s->where ? " where " : "",
                                                         e->s->where ? e->s->where : "",
                                                         e->network.net->model, e->s->checkpoint),
                                 .provenance = provenance_of(e, loss),
                                 .command = chex_opt_command(e->options, e->s)};
    CHEX_ALLOCATED(d->title && d->provenance && d->command, err, "the results");
    if (e->fold->folds)
        CHEX_TRY(chex_predictions_add_facts(table, err));
    for (size_t i = 0; e->fold->folds && i < table->rows; i++)
        table->facts[i].fold = e->fold->number;
    return e->sets.count > 1 ? name_source(table, e->sets.set[at].name, err) : CHEX_OK;
}

/* Chooses the hardest cases on rank 0 and makes their pictures. Collective. */
static enum chex_status find_cases(const struct evaluation *e, int at, struct chex_error *err) {
    if (e->use || !e->s->hardest || e->s->features) /* a classifier has no maps */
        return CHEX_OK;
    struct chex_cases *cases = NULL;
    enum chex_status st = CHEX_OK;
    if (e->coll->rank == 0)
        st = chex_cases_choose(e->done[at].table, (int)e->s->hardest, &cases, err);
    CHEX_TRY(chex_group_follow(e->coll->group, 0, st, err));
    if (cases) {
        cases->tta = e->s->tta != CHEX_TTA_NONE || e->network.networks > 1;
        e->done[at].cases = cases;
    }
    return chex_cases_draw(e->engine.engine, e->set, e->coll, cases, err);
}

static enum chex_status finish(const struct evaluation *e, struct chex_error *err) {
    const struct chex_eval_results results = {.s = e->s,
                                              .threads = e->engine.threads,
                                              .done = e->done,
                                              .published = e->published,
                                              .figures = &e->figures,
                                              .write_table = true,
                                              .out = e->out};
    return e->sets.count == 1 ? chex_eval_results_report(&results, err)
                              : chex_eval_external_report(&results, &e->sets, err);
}

/* Hands the predicted split to e->use. Collective. */
static enum chex_status use_split(const struct evaluation *e, struct chex_error *err) {
    const struct chex_eval_split split = {.s = e->s,
                                          .out = e->out,
                                          .engine = e->engine.engine,
                                          .coll = e->coll,
                                          .set = e->set,
                                          .split = e->split,
                                          .network = &e->network,
                                          .image_size = e->image_size,
                                          .threads = e->engine.threads,
                                          .table = e->done[0].table,
                                          .provenance = e->done[0].provenance};
    return e->use->work(&split, err);
}

static void close_set(struct evaluation *e) {
    chex_eval_engine_close(&e->engine);
    free(e->features);
    e->features = NULL;
    chex_set_close(e->set);
    e->set = NULL;
}

/* Reads the features of this rank's images. Collective. */
static enum chex_status read_features(struct evaluation *e, struct chex_pipeline_features *out,
                                      struct chex_error *err) {
    const char *path = e->s->features, *model, *file;
    struct chex_group *group = e->coll->group;
    struct chex_feature_file *f = NULL;
    size_t end;
    chex_eval_rows(e->set->rows, group->rank, group->size, &out->first, &end);
    enum chex_status st = chex_feature_file_open(path, e->data, group, &f, err);
    for (int k = 0; st == CHEX_OK && k < e->network.networks; k++) {
        model = e->network.member ? e->network.member[k]->model : e->network.net->model;
        about_member(e, k, &file);
        if (strcmp(f->model, model) != 0)
            st = chex_error_set(err, CHEX_E_DATA, "%s: %zu numbers a row, and %s is for %s", path,
                                f->count, file, model);
    }
    if (st == CHEX_OK)
        st = chex_feature_file_copy(f, e->set, out->first, end, &e->features, err);
    if (st == CHEX_OK) {
        out->count = (int)f->count;
        out->rows = e->features;
        memcpy(e->features_digest, f->digest, sizeof e->features_digest);
    }
    st = chex_group_agree(group, st, err);
    chex_feature_file_close(f);
    return st;
}

/* Predicts a set; it stays open. Each set has an engine of its own, because images may be stored at
 * other sizes. Collective. */
static enum chex_status predict_set(struct evaluation *e, int at, struct chex_error *err) {
    const struct chex_eval_settings *s = e->s;
    struct chex_predictions *table = NULL;
    struct chex_eval_loss loss = {NAN, NAN};
    close_set(e);
    CHEX_TRY(chex_group_agree(e->coll->group, prepare(e, at, err), err));
    if (!predicts(e))
        return CHEX_OK;
    struct chex_pipeline_features features = {0};
    CHEX_TRY(s->features ? read_features(e, &features, err) : CHEX_OK);
    const struct chex_eval_config config = {
        .features = features,
        .workers = (int)s->workers,
        .ensemble = &e->engine.ensemble,
        .tta = (enum chex_tta)s->tta,
        .progress = !s->common.quiet,
        .class_names = e->set_class ? (const char *const *)network_names(e) : NULL,
        .set_class = e->set_class};
    CHEX_TRY(chex_eval_run(e->engine.engine, e->set, e->coll, &config, &table, &loss, err));
    enum chex_status st = e->coll->rank == 0 ? keep(e, at, table, loss.bce, err) : CHEX_OK;
    CHEX_TRY(chex_group_follow(e->coll->group, 0, st, err));
    return find_cases(e, at, err);
}

static void evaluation_release(struct evaluation *e) {
    close_set(e);
    for (int i = 0; i < e->sets.count; i++) {
        chex_selection_destroy(e->rows[i]);
        chex_cases_destroy(e->done[i].cases);
        free(e->done[i].command);
        chex_predictions_destroy(e->done[i].table);
        json_decref(e->done[i].provenance);
        free(e->done[i].title);
    }
    for (int c = 0; c < e->first_count; c++)
        free(e->first_names[c]);
    free(e->first_names);
    free(e->set_class);
    free(e->set_names);
    free(e->done);
    free(e->rows);
    chex_eval_files_release(&e->files);
    chex_eval_network_release(&e->network);
    chex_published_destroy(e->published);
    chex_eval_figures_release(&e->figures);
}

/* Collective. All ranks return the same status. */
static enum chex_status evaluate(struct evaluation *e, struct chex_error *err) {
    enum chex_status st = chex_eval_engine_choose(&e->engine, e->options, e->s, &e->world, err);
    if (st == CHEX_OK)
        st = check_options(e, err);
    if (st == CHEX_OK)
        st = choose_rows(e, err);
    for (int i = 0; st == CHEX_OK && i < e->sets.count; i++)
        st = predict_set(e, i, err);
    if (st == CHEX_OK && e->use) {
        st = use_split(e, err);
    } else if (st == CHEX_OK) {
        if (e->coll->rank == 0)
            st = finish(e, err);
        st = chex_group_follow(e->coll->group, 0, st, err);
    }
    if (!e->use)
        chex_eval_output_end(&e->output, st);
    return st;
}

static enum chex_status open_sets(struct evaluation *e, struct chex_error *err) {
    CHEX_TRY(chex_sources_parse(e->s->data, &e->sets, err));
    if ((e->use || e->s->features) && e->sets.count > 1)
        return chex_error_set(err, CHEX_E_USAGE, "--data %s: %d sets, expected one", e->s->data,
                              e->sets.count);
    e->done = chex_alloc_zeroed((size_t)e->sets.count, sizeof *e->done);
    e->rows = chex_alloc_zeroed((size_t)e->sets.count, sizeof(struct chex_selection *));
    return e->done && e->rows ? CHEX_OK : chex_error_memory(err, "%d sets", e->sets.count);
}

enum chex_status chex_eval_split_run(const struct chex_opt_set *set,
                                     const struct chex_eval_settings *s,
                                     const struct chex_eval_split_use *use, FILE *out,
                                     struct chex_error *err) {
    CHEX_TRY(chex_text_for_json("--data", s->data, "auroc.json", err));
    CHEX_TRY(chex_text_for_json("--checkpoint", s->checkpoint, "auroc.json", err));
    CHEX_TRY(chex_text_for_json("--features", s->features, "auroc.json", err));
    struct evaluation e = {
        .s = s,
        .options = set,
        .use = use,
        .out = out,
        .output = {.lock = -1},
    };
    enum chex_status st = open_sets(&e, err);
    if (st == CHEX_OK)
        st = chex_world_open(&e.world, err);
    if (st != CHEX_OK) {
        chex_sources_release(&e.sets);
        free(e.done);
        free(e.rows);
        return st;
    }
    st = chex_coll_create(&e.world.launch, &e.coll, err);
    bool together = st == CHEX_OK;
    if (st == CHEX_OK) {
        st = evaluate(&e, err);
        together = !e.world.group->broken && !e.coll->group->broken;
    }
    /* If all ranks fail together, only rank 0 reports the cause. */
    if (st != CHEX_OK && (!together || e.world.launch.rank == 0))
        chex_err("%s", err->text);
    err->text[0] = '\0';
    evaluation_release(&e);
    chex_coll_destroy(e.coll);
    chex_world_close(&e.world, st, together);
    chex_sources_release(&e.sets);
    return st;
}

enum chex_status chex_evaluate(const struct chex_opt_set *set, const struct chex_eval_settings *s,
                               FILE *out, struct chex_error *err) {
    if (!s->data || !s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval needs --%s",
                              !s->data         ? "data DIR"
                              : !s->checkpoint ? "checkpoint FILE"
                                               : "output DIR");
    CHEX_TRY(chex_eval_figures_check(s, err));
    CHEX_TRY(chex_eval_groups_check(s, err));
    return chex_eval_split_run(set, s, NULL, out, err);
}
