/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval compare: compares tables of predictions of the same images. The first file is the
 * reference; each other file is read, compared with it and released before the next.
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

static const uint64_t FILE_LIMIT_BYTES = UINT64_C(4) << 30;

/* What the comparison of all files needs. */
struct comparison {
    const struct chex_eval_settings *settings;
    FILE *out;
    struct chex_paired_config config;
    size_t files;
    struct chex_paired_file *file;      /* (files) */
    struct chex_paired **compared;      /* (files - 1) */
    struct chex_predictions *reference; /* owns the names of the findings */
};

static void release(struct comparison *c) {
    for (size_t i = 0; c->compared && i + 1 < c->files; i++)
        chex_paired_destroy(c->compared[i]);
    free(c->compared);
    for (size_t i = 0; i < c->files; i++)
        chex_paired_training_release(&c->file[i].training);
    free(c->file);
    chex_predictions_destroy(c->reference);
    chex_pool_destroy(c->config.pool);
}

static enum chex_status read_table(const struct comparison *c, struct chex_paired_file *f,
                                   struct chex_predictions **table_out, struct chex_error *err) {
    char *bytes = NULL;
    size_t size = 0;
    CHEX_TRY(chex_fs_read(f->path, FILE_LIMIT_BYTES, &bytes, &size, err));
    chex_hash128_hex(bytes, size, f->digest);
    free(bytes);
    CHEX_TRY(
        chex_predictions_read(f->path, (enum chex_score_kind)c->settings->scores, table_out, err));
    f->rows = (*table_out)->rows;
    return chex_paired_training_read(f->path, f->digest, &f->training, err);
}

static enum chex_status compare_file(struct comparison *c, size_t i, struct chex_error *err) {
    struct chex_predictions *table = NULL;
    CHEX_TRY(read_table(c, &c->file[i], &table, err));
    const struct chex_predictions *const tables[] = {c->reference, table};
    const char *const names[] = {c->file[0].path, c->file[i].path};
    enum chex_status st = chex_paired_create(tables, names, &c->config, &c->compared[i - 1], err);
    chex_predictions_destroy(table);
    if (st == CHEX_OK && strcmp(c->file[0].digest, c->file[i].digest) == 0)
        chex_warn("%s and %s are equal: every difference is 0", names[0], names[1]);
    if (st == CHEX_OK && c->compared[i - 1]->tests == 0)
        chex_warn("%s, %s: no finding has positives and negatives of at least 2 %ss: no interval "
                  "and no test",
                  names[0], names[1], chex_cluster_names[c->config.cluster]);
    return st;
}

static enum chex_status compare_files(struct comparison *c, struct chex_error *err) {
    const struct chex_eval_settings *s = c->settings;
    const int threads = s->threads ? (int)s->threads : chex_cpu_count();
    c->compared = chex_alloc_zeroed(c->files, sizeof *c->compared);
    if (!c->compared)
        return chex_error_memory(err, NULL);
    if (s->bootstrap)
        CHEX_TRY(chex_pool_create(threads, &c->config.pool, err));
    CHEX_TRY(read_table(c, &c->file[0], &c->reference, err));
    for (size_t i = 1; i < c->files; i++)
        CHEX_TRY(compare_file(c, i, err));
    return CHEX_OK;
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
    const struct chex_paired_report r = {&c->config, c->files - 1, c->file, c->compared};
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
                           .files = chex_opt_word_count(set),
                           .config = {.cluster = (enum chex_cluster)s->cluster,
                                      .replicates = (size_t)s->bootstrap,
                                      .seed = (uint64_t)s->seed,
                                      .margin = s->margin > 0 ? s->margin : NAN}};
    c.file = chex_alloc_zeroed(c.files, sizeof *c.file);
    if (!c.file)
        return chex_error_memory(err, NULL);
    for (size_t i = 0; i < c.files; i++)
        c.file[i].path = chex_opt_word(set, i);
    enum chex_status st = compare(&c, err);
    release(&c);
    return st;
}
