/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of chex-eval: the folder of --output, the table on stdout.
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
#include "eval/report.h"
#include "eval_commands.h"

enum chex_status eval_results_refuse(const struct eval_settings *s, bool network,
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

#define LOCK_NAME ".eval.lock"

enum chex_status eval_results_begin(const struct eval_settings *s, bool network,
                                    struct eval_output *o, struct chex_error *err) {
    char subject[CHEX_ERROR_TEXT_BYTES];
    const bool made = !chex_fs_exists(s->output);
    CHEX_TRY(chex_fs_mkdirs(s->output, err));
    if (access(s->output, W_OK | X_OK) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno,
                                "output folder %s: nothing can be written into it", s->output);
    o->made = made;
    snprintf(subject, sizeof subject, "output folder %s", s->output);
    CHEX_TRY(chex_lockfile_take(s->output, LOCK_NAME, subject, "name a new folder with --output",
                                &o->lock, err));
    return eval_results_refuse(s, network, err); /* another one may have ended meanwhile */
}

void eval_results_end(const struct eval_settings *s, const struct eval_output *o,
                      enum chex_status status) {
    if (o->lock >= 0)
        chex_lockfile_release(s->output, LOCK_NAME, o->lock, true);
    if (status != CHEX_OK && o->made)
        rmdir(s->output);
}

static enum chex_status write_results(const struct eval_settings *s,
                                      const struct chex_report *report,
                                      const struct chex_predictions *predictions,
                                      struct chex_error *err) {
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

static enum chex_status print_results(const struct eval_settings *s,
                                      const struct chex_report *report, struct chex_error *err) {
    if (!s->common.json) {
        chex_report_print(report, stdout);
    } else {
        json_t *o = NULL;
        CHEX_TRY(chex_report_json(report, &o, err));
        json_dumpf(o, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(o);
    }
    return CHEX_OK;
}

/* NULL where nothing is asked for, or where the bundled table knows none of the classes. */
static enum chex_status read_published(const struct eval_settings *s,
                                       const struct chex_scores *scores,
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

enum chex_status eval_results_report(const struct eval_settings *s, int threads, const char *title,
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
    if (st == CHEX_OK && scores->defined == 0)
        chex_warn("no class has both positive and negative images: no AUROC is defined");
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
