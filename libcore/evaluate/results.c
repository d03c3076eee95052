/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of one evaluated set: writes all result files or none, and prints the table.
 */
#include "evaluate/results.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/result.h"
#include "evaluate/compute.h"
#include "report/figures_text.h"
#include "report/publish.h"

const char *const chex_eval_table_names[] = {"auroc", "operating", "calibration", "all", NULL};

/* All files or none. */
static enum chex_status write_results(const struct chex_eval_settings *s,
                                      const struct chex_report *report,
                                      const struct chex_predictions *predictions,
                                      struct chex_error *err) {
    struct chex_publish publish;
    CHEX_TRY(chex_publish_begin(s->output, CHEX_REPORT_KEY, &publish, err));
    CHEX_TRY(chex_publish_end(&publish,
                              chex_eval_write_files(publish.path, report, predictions, err), err));
    chex_info("results in %s: %sauroc.json, auroc.csv, figures.csv, curves.csv, "
              "subgroups.csv, shortcuts.csv, roc.svg, report.html",
              s->output, predictions ? "predictions.csv, " : "");
    return CHEX_OK;
}

static enum chex_status print_results(const struct chex_eval_settings *s,
                                      const struct chex_report *report, FILE *out,
                                      struct chex_error *err) {
    if (s->common.json)
        return chex_result_print(out, chex_report_json(report), NULL, JSON_COMPACT, err);
    const bool all = s->table == EVAL_TABLE_ALL;
    if (all || s->table == EVAL_TABLE_AUROC)
        chex_report_print(report, out);
    if (all)
        putc('\n', out);
    if (all || s->table == EVAL_TABLE_OPERATING)
        chex_figures_print_operating(out, report->scores, report->figures);
    if (all)
        putc('\n', out);
    if (all || s->table == EVAL_TABLE_CALIBRATION)
        chex_figures_print_calibration(out, report->scores, report->figures);
    if (s->subgroups && strcmp(s->subgroups, "none") != 0)
        chex_subgroups_print(out, report->subgroups);
    return CHEX_OK;
}

static char *unit_title_of(const struct chex_eval_settings *s, const char *title) {
    if (s->unit == CHEX_UNIT_IMAGE)
        return strdup(title);
    return chex_fs_format("%s, by %s (%s of the images)", title, chex_unit_names[s->unit],
                          chex_unit_score_names[s->unit_score]);
}

enum chex_status chex_eval_results_report(const struct chex_eval_results *q,
                                          struct chex_error *err) {
    const struct chex_eval_settings *s = q->s;
    const struct chex_eval_done *d = q->done;
    struct chex_pool *pool = NULL;
    struct chex_eval_computed computed = {0};
    CHEX_AUTO_FREE char *unit_title = unit_title_of(s, d->title);
    CHEX_ALLOCATED(unit_title, err, "the results");
    CHEX_TRY(chex_pool_create(q->threads, &pool, err));
    enum chex_status st =
        chex_eval_compute(s, d->title, d->table, &q->figures->config, pool, &computed, err);
    if (st == CHEX_OK) {
        struct chex_report report = chex_eval_report_of(s, &computed, d, q->published);
        report.title = unit_title;
        if (s->output)
            st = write_results(s, &report, q->write_table ? d->table : NULL, err);
        if (st == CHEX_OK)
            st = print_results(s, &report, q->out, err);
    }
    chex_eval_computed_release(&computed);
    chex_pool_destroy(pool);
    return st;
}
