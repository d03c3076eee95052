/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of chex-eval: checks and locks the folder of --output, writes all result files or none,
 * and prints the table.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/lockfile.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/result.h"
#include "eval_commands.h"
#include "report/figures_text.h"
#include "report/report.h"
#include "report/staging.h"

const char *const eval_table_names[] = {"auroc", "operating", "calibration", "all", NULL};

#define LOCK_NAME ".eval.lock"
#define KEY_FILE "auroc.json" /* moved last: if it exists, all results exist */

enum chex_status eval_output_refuse(const struct eval_settings *s, const char *also,
                                    const char *const *files, struct chex_error *err) {
    char found[200] = "";
    enum chex_status st = CHEX_OK;
    if (chex_fs_exists(s->output) && !chex_fs_is_dir(s->output))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is no folder", s->output);
    if (chex_staging_pending(s->output)) /* checked again after chex_staging_recover */
        return CHEX_OK;
    for (int i = also ? -1 : 0; st == CHEX_OK && (i < 0 || files[i]); i++) {
        const char *name = i < 0 ? also : files[i];
        char *path = chex_fs_join(s->output, name);
        size_t n = strlen(found);
        if (!path)
            st = chex_error_memory(err, "%s", s->output);
        else if (chex_fs_exists(path)) {
            snprintf(found + n, sizeof found - n, "%s%s", n ? ", " : "", name);
            st = chex_fs_check_create(path, err);
        }
        free(path);
    }
    CHEX_TRY(st);
    if (found[0] && !s->force)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "output folder %s already holds %s: name a new folder, or say --force "
            "to replace them",
            s->output, found);
    return CHEX_OK;
}

enum chex_status eval_output_lock(const struct eval_settings *s, struct eval_output *o,
                                  struct chex_error *err) {
    char subject[CHEX_ERROR_TEXT_BYTES];
    const bool made = !chex_fs_exists(s->output);
    CHEX_TRY(chex_fs_mkdirs(s->output, err));
    if (access(s->output, W_OK | X_OK) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno,
                                "output folder %s: nothing can be written into it", s->output);
    o->made = made;
    snprintf(subject, sizeof subject, "output folder %s", s->output);
    return chex_lockfile_take(s->output, LOCK_NAME, subject, "name a new folder with --output",
                              &o->lock, err);
}

enum chex_status eval_results_open(const struct eval_settings *s, const char *key,
                                   struct eval_output *o, struct chex_error *err) {
    CHEX_TRY(eval_output_lock(s, o, err));
    return chex_staging_recover(s->output, key, err);
}

enum chex_status eval_output_begin(const struct eval_settings *s, const char *also,
                                   const char *const *files, struct eval_output *o,
                                   struct chex_error *err) {
    CHEX_TRY(eval_results_open(s, files[0], o, err));
    return eval_output_refuse(s, also, files, err); /* another process may have ended meanwhile */
}

enum chex_status eval_results_refuse(const struct eval_settings *s, bool network,
                                     struct chex_error *err) {
    return eval_output_refuse(s, network ? "predictions.csv" : NULL, chex_report_files, err);
}

enum chex_status eval_results_begin(const struct eval_settings *s, bool network,
                                    struct eval_output *o, struct chex_error *err) {
    return eval_output_begin(s, network ? "predictions.csv" : NULL, chex_report_files, o, err);
}

void eval_results_end(const struct eval_settings *s, const struct eval_output *o,
                      enum chex_status status) {
    if (o->lock >= 0)
        chex_lockfile_release(s->output, LOCK_NAME, o->lock, true);
    if (status != CHEX_OK && o->made)
        rmdir(s->output);
}

static char *lock_name_of(const char *path) {
    return chex_fs_format(".%s.lock", chex_fs_name(path));
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? chex_fs_format("%.*s", slash == path ? 1 : (int)(slash - path), path)
                 : chex_fs_format(".");
}

enum chex_status eval_file_lock(const char *path, int *lock_out, struct chex_error *err) {
    char *name = lock_name_of(path), *dir = folder_of(path);
    enum chex_status st =
        name && dir ? chex_fs_make_folder_of(path, err) : chex_error_memory(err, NULL);
    *lock_out = -1;
    if (st == CHEX_OK)
        st = chex_lockfile_take(dir, name, path, "name another file with --output", lock_out, err);
    if (st == CHEX_OK)
        chex_fs_remove_temps(path);
    free(name);
    free(dir);
    return st;
}

void eval_file_unlock(const char *path, int lock) {
    char *name = lock_name_of(path), *dir = folder_of(path);
    if (lock >= 0 && name && dir)
        chex_lockfile_release(dir, name, lock, true);
    free(name);
    free(dir);
}

/* All files or none. */
static enum chex_status write_results(const struct eval_settings *s,
                                      const struct chex_report *report,
                                      const struct chex_predictions *predictions,
                                      struct chex_error *err) {
    struct chex_staging staging;
    CHEX_TRY(chex_staging_begin(s->output, KEY_FILE, &staging, err));
    CHEX_TRY(
        chex_staging_end(&staging, eval_write_files(staging.path, report, predictions, err), err));
    chex_info("results in %s: %sauroc.json, auroc.csv, figures.csv, curves.csv, "
              "subgroups.csv, shortcuts.csv, roc.svg, report.html",
              s->output, predictions ? "predictions.csv, " : "");
    return CHEX_OK;
}

static enum chex_status print_results(const struct eval_settings *s,
                                      const struct chex_report *report, struct chex_error *err) {
    if (s->common.json)
        return chex_result_print(stdout, chex_report_json(report), NULL, JSON_COMPACT, err);
    const bool all = s->table == EVAL_TABLE_ALL;
    if (all || s->table == EVAL_TABLE_AUROC)
        chex_report_print(report, stdout);
    if (all)
        putchar('\n');
    if (all || s->table == EVAL_TABLE_OPERATING)
        chex_figures_print_operating(stdout, report->scores, report->figures);
    if (all)
        putchar('\n');
    if (all || s->table == EVAL_TABLE_CALIBRATION)
        chex_figures_print_calibration(stdout, report->scores, report->figures);
    if (s->subgroups && strcmp(s->subgroups, "none") != 0)
        chex_subgroups_print(stdout, report->subgroups);
    return CHEX_OK;
}

enum chex_status eval_results_compare(const struct eval_settings *s,
                                      struct chex_published **published_out,
                                      struct chex_error *err) {
    *published_out = NULL;
    return strcmp(s->compare, "none") == 0 ? CHEX_OK
                                           : chex_published_read(s->compare, published_out, err);
}

static char *unit_title_of(const struct eval_settings *s, const char *title) {
    if (s->unit == CHEX_UNIT_IMAGE)
        return strdup(title);
    return chex_fs_format("%s, by %s (%s of the images)", title, chex_unit_names[s->unit],
                          chex_unit_score_names[s->unit_score]);
}

enum chex_status eval_results_report(const struct eval_results *q, struct chex_error *err) {
    const struct eval_settings *s = q->s;
    const struct eval_done *d = q->done;
    struct chex_pool *pool = NULL;
    struct eval_computed computed = {0};
    char *unit_title = unit_title_of(s, d->title);
    enum chex_status st = chex_pool_create(q->threads, &pool, err);
    if (st == CHEX_OK && !unit_title)
        st = chex_error_memory(err, "the results");
    if (st == CHEX_OK)
        st = eval_compute(s, d->title, d->table, &q->figures->config, pool, &computed, err);
    if (st == CHEX_OK) {
        struct chex_report report =
            eval_report_of(s, &computed, unit_title, d->provenance, q->published);
        report.cases = d->cases;
        report.command = d->command;
        if (s->output)
            st = write_results(s, &report, q->write_table ? d->table : NULL, err);
        if (st == CHEX_OK)
            st = print_results(s, &report, err);
    }
    eval_computed_release(&computed);
    chex_pool_destroy(pool);
    free(unit_title);
    return st;
}
