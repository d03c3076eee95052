/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval compare: compares tables of predictions of the same images. The first file is the
 * reference; each other file is read, compared with it and released before the next. Of two recipes
 * the files are the trainings, and there is one comparison.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "evaluate/output.h"
#include "evaluate/subcommands.h"
#include "report/paired_report.h"
#include "report/publish.h"
#include "stats/difference.h"
#include "stats/recipes.h"

static const uint64_t FILE_LIMIT_BYTES = UINT64_C(4) << 30;

/* What the comparison of all files needs. */
struct comparison {
    const struct chex_eval_settings *settings;
    FILE *out;
    struct chex_paired_config config;
    size_t files, runs[2];              /* runs: trainings of each recipe; 0: no recipes */
    struct chex_paired_file *file;      /* (files) */
    struct chex_paired **compared;      /* (files - 1); of recipes one */
    struct chex_predictions *reference; /* owns the names of the findings */
};

static void release(struct comparison *c) {
    for (size_t i = 0; c->compared && i + 1 < c->files; i++)
        chex_paired_destroy(c->compared[i]);
    free(c->compared);
    for (size_t i = 0; i < c->files; i++) {
        chex_paired_training_release(&c->file[i].training);
        free(c->file[i].path);
    }
    free(c->file);
    chex_predictions_destroy(c->reference);
    chex_pool_destroy(c->config.pool);
}

/* ---- the tables ---- */

/* Adds a table; a folder of results names the one in it. */
static enum chex_status add_file(struct comparison *c, const char *path, struct chex_error *err) {
    struct chex_paired_file *grown = realloc(c->file, (c->files + 1) * sizeof *grown);
    CHEX_ALLOCATED(grown, err, "%zu tables", c->files);
    c->file = grown;
    grown[c->files] = (struct chex_paired_file){.path = strdup(path)};
    return grown[c->files++].path ? CHEX_OK : chex_error_memory(err, "%zu tables", c->files);
}

/* Adds the trainings of a recipe. */
static enum chex_status add_recipe(struct comparison *c, int recipe, struct chex_error *err) {
    const char *option = recipe ? "--against" : "--runs";
    CHEX_AUTO_FREE char *list = strdup(recipe ? c->settings->against : c->settings->runs);
    char *rest = list;
    CHEX_ALLOCATED(list, err, NULL);
    for (char *item; (item = strsep(&rest, ",")) != NULL; c->runs[recipe]++) {
        const struct chex_path inside = chex_path(item, "predictions.csv");
        CHEX_TRY(*item
                     ? add_file(c, chex_fs_is_dir(item) ? inside.text : item, err)
                     : chex_error_set(err, CHEX_E_USAGE, "%s: an empty name in the list", option));
    }
    if (c->runs[recipe] < CHEX_RECIPES_MIN_RUNS)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "%s: %zu training%s (expected at least %d, with other seeds); chex-eval compare A B "
            "compares two networks, and its interval covers other patients, but no other training",
            option, c->runs[recipe], chex_text_s(c->runs[recipe]), CHEX_RECIPES_MIN_RUNS);
    return CHEX_OK;
}

static enum chex_status find_files(struct comparison *c, const struct chex_opt_set *set,
                                   struct chex_error *err) {
    const struct chex_eval_settings *s = c->settings;
    const size_t words = chex_opt_word_count(set);
    if (!s->runs != !s->against || (s->runs ? words || s->bootstrap : s->paired))
        return chex_error_set(err, CHEX_E_USAGE,
                              "expected tables, or --runs with --against (and --paired), without "
                              "--bootstrap");
    if (!s->runs && words < 2)
        return chex_error_set(err, CHEX_E_USAGE,
                              "chex-eval compare takes two or more tables of predictions; try "
                              "'chex-eval compare --help'");
    for (size_t i = 0; i < words; i++)
        CHEX_TRY(add_file(c, chex_opt_word(set, i), err));
    for (int i = 0; s->runs && i < 2; i++)
        CHEX_TRY(add_recipe(c, i, err));
    if (s->paired && c->runs[0] != c->runs[1])
        return chex_error_set(err, CHEX_E_USAGE,
                              "--paired: %zu trainings in --runs and %zu in --against (expected "
                              "equal numbers)",
                              c->runs[0], c->runs[1]);
    return CHEX_OK;
}

static enum chex_status read_table(const struct comparison *c, struct chex_paired_file *f,
                                   struct chex_predictions **table_out, struct chex_error *err) {
    CHEX_AUTO_FREE char *bytes = NULL;
    size_t size = 0;
    CHEX_TRY(chex_fs_read(f->path, FILE_LIMIT_BYTES, &bytes, &size, err));
    chex_hash128_hex(bytes, size, f->digest);
    CHEX_TRY(
        chex_predictions_read(f->path, (enum chex_score_kind)c->settings->scores, table_out, err));
    f->rows = (*table_out)->rows;
    return chex_paired_training_read(f->path, f->digest, &f->training, err);
}

static enum chex_status compare_file(struct comparison *c, size_t i, struct chex_error *err) {
    CHEX_AUTO_PREDICTIONS struct chex_predictions *table = NULL;
    CHEX_TRY(read_table(c, &c->file[i], &table, err));
    const struct chex_predictions *const tables[] = {c->reference, table};
    const char *const names[] = {c->file[0].path, c->file[i].path};
    CHEX_TRY(chex_paired_create(tables, names, &c->config, &c->compared[i - 1], err));
    if (strcmp(c->file[0].digest, c->file[i].digest) == 0)
        chex_warn("%s and %s are equal: every difference is 0", names[0], names[1]);
    if (c->compared[i - 1]->tests == 0)
        chex_warn("%s, %s: no finding has positives and negatives of at least 2 %ss: no interval "
                  "and no test",
                  names[0], names[1], chex_cluster_names[c->config.cluster]);
    return CHEX_OK;
}

/* Of several comparisons the p values of the means are corrected, as for the runs of a sweep. */
static enum chex_status correct_means(const struct comparison *c, struct chex_error *err) {
    const size_t n = c->files - 1;
    size_t tests;
    CHEX_AUTO_FREE double *p = chex_alloc_zeroed(n, 2 * sizeof *p);
    CHEX_ALLOCATED(p, err, NULL);
    for (size_t i = 0; i < n; i++)
        p[i] = c->compared[i]->mean.p_value;
    CHEX_TRY(chex_difference_holm(p, n, p + n, &tests, err));
    for (size_t i = 0; n > 1 && i < n; i++)
        c->compared[i]->mean.p_holm = p[n + i];
    return CHEX_OK;
}

/* ---- recipes ---- */

/* Each training counts once. Those of a recipe differ in the seed only, else the interval covers
 * more than seeds. Paired ones have the same seed. */
static enum chex_status check_training(const struct comparison *c, size_t i,
                                       struct chex_error *err) {
    const size_t first = i < c->runs[0] ? 0 : c->runs[0];
    const struct chex_paired_file *f = &c->file[i], *of = &c->file[first], *pair = f - first;
    for (size_t k = 0; k < c->files; k++)
        if (k != i && strcmp(c->file[k].digest, f->digest) == 0)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s and %s are the same table (digest %s); expected another "
                                  "training each",
                                  c->file[k].path, f->path, f->digest);
    if (c->settings->paired &&
        chex_paired_training_differs(&pair->training, &f->training, "seed", true))
        return chex_error_set(err, CHEX_E_DATA, "--paired: %s and %s differ in --seed", pair->path,
                              f->path);
    const char *other = chex_paired_training_differs(&of->training, &f->training, "seed", false);
    if (other)
        chex_warn("%s and %s differ in --%s; trainings of one recipe differ in --seed only",
                  of->path, f->path, other);
    return CHEX_OK;
}

static enum chex_status add_training(struct comparison *c, size_t i,
                                     const struct chex_predictions *table, struct chex_recipes *r,
                                     struct chex_error *err) {
    const struct chex_predictions *const tables[] = {c->reference, table};
    const char *const names[] = {c->file[0].path, c->file[i].path};
    const size_t half = c->runs[0];
    __attribute__((cleanup(chex_join_release))) struct chex_join j;
    CHEX_TRY(chex_join_create(tables, names, c->config.cluster, &j, err));
    if (j.left_out[0] || j.left_out[1])
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: %zu images of %s are missing, %zu are not in it; trainings are "
                              "compared on the same images",
                              names[1], j.left_out[0], names[0], j.left_out[1]);
    for (int k = 0; k < 2; k++)
        if (j.missing_count[k])
            return chex_error_set(err, CHEX_E_DATA,
                                  "finding %s: in %s, not in %s; trainings are compared on the "
                                  "same findings",
                                  j.missing[k][0], names[k], names[!k]);
    CHEX_TRY(chex_recipes_add(r, i >= half, &j, err));
    return i == half ? chex_paired_create(tables, names, &c->config, &c->compared[0], err)
                     : CHEX_OK; /* names and counts */
}

/* Paired trainings follow each other. */
static enum chex_status compare_recipes(struct comparison *c, struct chex_recipes *r,
                                        struct chex_error *err) {
    for (size_t n = 0; n < 2 * c->files; n++) {
        CHEX_AUTO_PREDICTIONS struct chex_predictions *table = NULL;
        const size_t i = n / 2 + (n % 2 ? c->runs[0] : 0);
        if (n / 2 >= c->runs[n % 2])
            continue;
        if (i) /* the reference has been read */
            CHEX_TRY(read_table(c, &c->file[i], &table, err));
        CHEX_TRY(check_training(c, i, err));
        CHEX_TRY(add_training(c, i, i ? table : c->reference, r, err));
    }
    return chex_recipes_finish(r, c->compared[0], err);
}

/* ---- all ---- */

static enum chex_status compare_files(struct comparison *c, struct chex_error *err) {
    const struct chex_eval_settings *s = c->settings;
    const int threads = s->threads ? (int)s->threads : chex_cpu_count();
    c->compared = chex_alloc_zeroed(c->files, sizeof *c->compared);
    CHEX_ALLOCATED(c->compared, err, NULL);
    if (s->bootstrap)
        CHEX_TRY(chex_pool_create(threads, &c->config.pool, err));
    CHEX_TRY(read_table(c, &c->file[0], &c->reference, err));
    for (size_t i = 1; !c->runs[0] && i < c->files; i++)
        CHEX_TRY(compare_file(c, i, err));
    if (!c->runs[0])
        return correct_means(c, err);
    struct chex_recipes *r = NULL;
    CHEX_TRY(chex_recipes_create(c->runs, s->paired, &r, err));
    const enum chex_status st = compare_recipes(c, r, err);
    chex_recipes_destroy(r);
    return st;
}

static enum chex_status write_results(const struct comparison *c,
                                      const struct chex_paired_report *report,
                                      struct chex_error *err) {
    const char *dir = c->settings->output;
    struct chex_publish publish;
    CHEX_TRY(chex_publish_begin(dir, chex_paired_report_files[0], &publish, err));
    CHEX_TRY(chex_publish_end(&publish, chex_paired_report_write(report, publish.path, err), err));
    chex_info("results in %s: compare.json, compare.csv, compare.svg", dir);
    return CHEX_OK;
}

static enum chex_status report(const struct comparison *c, struct chex_error *err) {
    const size_t *runs = c->runs;
    const struct chex_paired_report r = {.config = &c->config,
                                         .count = runs[0] ? 1 : c->files - 1,
                                         .file = c->file,
                                         .compared = c->compared,
                                         .runs = {runs[0], runs[1]},
                                         .paired_seeds = c->settings->paired};
    if (c->settings->output)
        CHEX_TRY(write_results(c, &r, err));
    if (c->settings->common.json)
        return chex_result_print(c->out, chex_paired_report_json(&r), NULL, JSON_COMPACT, err);
    chex_paired_report_print(&r, c->out);
    return CHEX_OK;
}

static enum chex_status check_paths(const struct comparison *c, struct chex_error *err) {
    for (size_t i = 0; i < c->files; i++) {
        const char *path = c->file[i].path;
        if (chex_fs_is_dir(path))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "%s: a folder, expected a table such as predictions.csv of "
                                  "chex-eval",
                                  path);
        if (c->settings->output)
            CHEX_TRY(chex_text_for_json("chex-eval compare", path, "compare.json", err));
        else if (c->settings->common.json)
            CHEX_TRY(chex_text_for_json("chex-eval compare", path, "--json", err));
    }
    return CHEX_OK;
}

static enum chex_status compare(struct comparison *c, struct chex_error *err) {
    const struct chex_eval_settings *s = c->settings;
    struct chex_eval_output output =
        chex_eval_output_of(s, chex_paired_report_files[0], chex_paired_report_files, NULL);
    CHEX_TRY(check_paths(c, err));
    if (s->output) {
        CHEX_TRY(chex_text_for_json("--output", s->output, "a log", err));
        CHEX_TRY(chex_eval_output_check(&output, err));
    }
    enum chex_status st = compare_files(c, err);
    if (st == CHEX_OK && s->output)
        st = chex_eval_output_begin(&output, err);
    if (st == CHEX_OK)
        st = report(c, err);
    chex_eval_output_end(&output, st);
    return st;
}

enum chex_status chex_evaluate_compare(const struct chex_opt_set *set,
                                       const struct chex_eval_settings *s, FILE *out,
                                       struct chex_error *err) {
    struct comparison c = {.settings = s,
                           .out = out,
                           .config = {.cluster = (enum chex_cluster)s->cluster,
                                      .replicates = (size_t)s->bootstrap,
                                      .seed = (uint64_t)s->seed,
                                      .margin = s->margin > 0 ? s->margin : NAN}};
    enum chex_status st = find_files(&c, set, err);
    if (st == CHEX_OK)
        st = compare(&c, err);
    release(&c);
    return st;
}
