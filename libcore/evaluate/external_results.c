/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of several sets: the files of each set in a folder of its name, and external.json and
 * external.csv above them. All of them appear together or not at all.
 */
#include "evaluate/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/result.h"
#include "base/textfile.h"
#include "evaluate/compute.h"
#include "report/figures_text.h"
#include "report/publish.h"

#define KEY_FILE "external.json" /* the file that appears last */
#define CSV_FILE "external.csv"

/* ---- the folder ---- */

const char **chex_eval_external_dirs(const struct chex_sources *sets) {
    const char **dirs = chex_alloc_zeroed((size_t)sets->count + 1, sizeof *dirs);
    for (int i = 0; dirs && i < sets->count; i++)
        dirs[i] = sets->set[i].name;
    return dirs;
}

struct chex_eval_output chex_eval_external_output(const struct chex_eval_settings *s,
                                                  const char *const *dirs) {
    static const char *const files[] = {KEY_FILE, CSV_FILE, NULL};
    return chex_eval_output_of(s, KEY_FILE, files, dirs);
}

/* ---- computing ---- */

struct external {
    const struct chex_eval_results *q;
    const struct chex_sources *names;
    struct chex_eval_computed *computed; /* (sets) */
    struct chex_external_set *sets;      /* (sets) */
    double *threshold;                   /* (classes) those of the first set */
    char *rule;                          /* how they were chosen */
    struct chex_figures_config rest;     /* figures of the other sets */
    struct chex_external *result;
};

/* A rule chooses thresholds on the first set only. The other sets keep them: thresholds that are
 * chosen anew on each set would hide that decisions no longer fit. */
static enum chex_status freeze_thresholds(struct external *x, const struct chex_figures_config *own,
                                          struct chex_error *err) {
    const struct chex_figures *first = x->computed[0].figures;
    x->rest = *own;
    if (own->source != CHEX_THRESHOLD_CHOSEN)
        return CHEX_OK;
    x->threshold = chex_alloc_zeroed((size_t)first->classes, sizeof *x->threshold);
    x->rule = chex_fs_format("%s on %s", own->rule_text, x->names->set[0].name);
    CHEX_ALLOCATED(x->threshold && x->rule, err, "the thresholds");
    for (int c = 0; c < first->classes; c++)
        x->threshold[c] = first->per_class[c].operating.threshold;
    x->rest.source = CHEX_THRESHOLD_GIVEN;
    x->rest.threshold = x->threshold;
    x->rest.rule_text = x->rule;
    return CHEX_OK;
}

static enum chex_status compute_sets(struct external *x, struct chex_pool *pool,
                                     struct chex_error *err) {
    const struct chex_figures_config *own = &x->q->figures->config;
    for (int i = 0; i < x->names->count; i++) {
        const struct chex_eval_done *d = &x->q->done[i];
        CHEX_TRY(chex_eval_compute(x->q->s, d->title, d->table, i ? &x->rest : own, pool,
                                   &x->computed[i], err));
        if (i == 0)
            CHEX_TRY(freeze_thresholds(x, own, err));
        x->sets[i] = (struct chex_external_set){.name = x->names->set[i].name,
                                                .data = x->names->set[i].dir,
                                                .title = d->title,
                                                .scores = x->computed[i].scores,
                                                .figures = x->computed[i].figures};
    }
    return chex_external_create(x->sets, x->names->count, &x->result, err);
}

/* ---- writing ---- */

static enum chex_status write_set(const struct external *x, int i, const char *dir,
                                  struct chex_error *err) {
    const struct chex_eval_done *d = &x->q->done[i];
    const struct chex_report report =
        chex_eval_report_of(x->q->s, &x->computed[i], d, x->q->published);
    const struct chex_path folder = chex_path(dir, x->names->set[i].name);
    CHEX_TRY(chex_fs_mkdirs(folder.text, err));
    return chex_eval_write_files(folder.text, &report, d->table, err);
}

static enum chex_status put_json(FILE *to, const struct chex_external *x, struct chex_error *err) {
    return chex_result_print(to, chex_external_json(x), NULL, JSON_INDENT(2), err);
}

static enum chex_status write_all(const struct external *x, const char *dir,
                                  struct chex_error *err) {
    for (int i = 0; i < x->names->count; i++)
        CHEX_TRY(write_set(x, i, dir, err));
    struct chex_textfile t;
    CHEX_TRY(chex_textfile_open_in(dir, CSV_FILE, &t, err));
    CHEX_TRY(chex_textfile_close(&t, chex_external_put_csv(t.f, x->result, err), err));
    CHEX_TRY(chex_textfile_open_in(dir, KEY_FILE, &t, err));
    return chex_textfile_close(&t, put_json(t.f, x->result, err), err);
}

static enum chex_status publish(const struct external *x, struct chex_error *err) {
    struct chex_publish publish;
    CHEX_TRY(chex_publish_begin(x->q->s->output, KEY_FILE, &publish, err));
    CHEX_TRY(chex_publish_end(&publish, write_all(x, publish.path, err), err));
    chex_info("results in %s: external.json, external.csv, and a folder for each of %d sets",
              x->q->s->output, x->names->count);
    return CHEX_OK;
}

static enum chex_status print_sets(const struct external *x, FILE *out, struct chex_error *err) {
    if (x->q->s->common.json)
        return chex_result_print(out, chex_external_json(x->result), NULL, JSON_COMPACT, err);
    chex_external_print(out, x->result);
    for (int i = 0; x->q->s->subgroups && strcmp(x->q->s->subgroups, "none") && i < x->names->count;
         i++) {
        fprintf(out, "\n%s:", x->names->set[i].name);
        chex_subgroups_print(out, x->computed[i].subgroups);
    }
    return CHEX_OK;
}

enum chex_status chex_eval_external_report(const struct chex_eval_results *q,
                                           const struct chex_sources *sets,
                                           struct chex_error *err) {
    const size_t count = (size_t)sets->count;
    struct chex_pool *pool = NULL;
    struct external x = {.q = q,
                         .names = sets,
                         .computed = chex_alloc_zeroed(count, sizeof *x.computed),
                         .sets = chex_alloc_zeroed(count, sizeof *x.sets)};
    enum chex_status st =
        x.computed && x.sets ? CHEX_OK : chex_error_memory(err, "%zu sets", count);
    if (st == CHEX_OK)
        st = chex_pool_create(q->threads, &pool, err);
    if (st == CHEX_OK)
        st = compute_sets(&x, pool, err);
    if (st == CHEX_OK)
        st = publish(&x, err);
    if (st == CHEX_OK)
        st = print_sets(&x, q->out, err);
    chex_external_destroy(x.result);
    for (size_t i = 0; x.computed && i < count; i++)
        chex_eval_computed_release(&x.computed[i]);
    free(x.computed);
    free(x.sets);
    free(x.threshold);
    free(x.rule);
    chex_pool_destroy(pool);
    return st;
}
