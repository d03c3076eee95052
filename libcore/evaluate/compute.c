/* SPDX-License-Identifier: Apache-2.0
 *
 * From a table of predictions to a report: units, scores, figures, subgroups, shortcuts.
 */
#include "evaluate/compute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"

/* --subgroups and --age-bands. */
static enum chex_status parse_groups(const struct chex_eval_settings *s,
                                     struct chex_subgroups_config *out, struct chex_error *err) {
    out->asked = s->subgroups && strcmp(s->subgroups, "all") != 0;
    CHEX_TRY(chex_age_bands_parse(s->age_bands, &out->bands, err));
    return chex_attributes_parse(s->subgroups ? s->subgroups : "all", &out->attributes, err);
}

enum chex_status chex_eval_groups_check(const struct chex_eval_settings *s,
                                        struct chex_error *err) {
    struct chex_subgroups_config ignored;
    return parse_groups(s, &ignored, err);
}

/* Groups the images into units; NULL: each image is one. */
static enum chex_status make_units(const struct chex_eval_settings *s,
                                   const struct chex_predictions *images,
                                   struct chex_predictions **units_out, struct chex_error *err) {
    *units_out = NULL;
    return s->unit == CHEX_UNIT_IMAGE
               ? CHEX_OK
               : chex_units_create(images, (enum chex_unit)s->unit,
                                   (enum chex_unit_score)s->unit_score, units_out, err);
}

/* Compares an ensemble with its members, whose tables differ in the scores alone. */
static enum chex_status compare_members(const struct chex_eval_settings *s,
                                        const struct chex_predictions *images,
                                        struct chex_eval_computed *out, struct chex_error *err) {
    const size_t members = (size_t)images->members;
    CHEX_AUTO_FREE struct chex_predictions *own = chex_alloc_zeroed(members, sizeof *own);
    CHEX_AUTO_FREE struct chex_predictions **units = chex_alloc_zeroed(members, sizeof *units);
    CHEX_AUTO_FREE const struct chex_predictions **table =
        chex_alloc_zeroed(members, sizeof *table);
    enum chex_status st =
        own && units && table ? CHEX_OK : chex_error_memory(err, "%zu members", members);
    for (size_t m = 0; st == CHEX_OK && m < members; m++) {
        own[m] = *images;
        own[m].score = images->member_score + m * images->rows * (size_t)images->classes;
        st = make_units(s, &own[m], &units[m], err);
        table[m] = units[m] ? units[m] : &own[m];
    }
    if (st == CHEX_OK)
        st = chex_gains_create(out->scores, table, images->members, &out->gains, err);
    for (size_t m = 0; units && m < members; m++)
        chex_predictions_destroy(units[m]);
    return st;
}

enum chex_status chex_eval_compute(const struct chex_eval_settings *s, const char *title,
                                   const struct chex_predictions *table,
                                   const struct chex_figures_config *figures,
                                   struct chex_pool *pool, struct chex_eval_computed *out,
                                   struct chex_error *err) {
    const struct chex_scores_config config = {.replicates = (size_t)s->bootstrap,
                                              .seed = (uint64_t)s->seed,
                                              .cluster = (enum chex_cluster)s->cluster,
                                              .pool = pool,
                                              .method = (enum chex_interval_method)s->interval};
    struct chex_subgroups_config groups;
    CHEX_TRY(parse_groups(s, &groups, err));
    enum chex_status st = make_units(s, table, &out->units, err);
    if (st == CHEX_OK)
        st = chex_scores_create(out->units ? out->units : table, &config, &out->scores, err);
    if (st == CHEX_OK && table->members)
        st = compare_members(s, table, out, err);
    if (st == CHEX_OK)
        st = chex_figures_create(out->scores, figures, &out->figures, err);
    if (st == CHEX_OK)
        st = chex_subgroups_create(out->scores, out->figures, &groups, &out->subgroups, err);
    if (st == CHEX_OK)
        st = chex_shortcuts_create(out->scores, &out->shortcuts, err);
    if (st == CHEX_E_DATA)
        chex_error_prefix(err, st, "%s", title);
    if (st == CHEX_OK && out->scores->defined == 0)
        chex_warn("no finding has both positive and negative images: no AUROC is defined");
    return st;
}

void chex_eval_computed_release(struct chex_eval_computed *c) {
    free(c->gains);
    chex_shortcuts_destroy(c->shortcuts);
    chex_subgroups_destroy(c->subgroups);
    chex_figures_destroy(c->figures);
    chex_scores_destroy(c->scores);
    chex_predictions_destroy(c->units);
    *c = (struct chex_eval_computed){0};
}

/* True if the published figures name an AUROC for at least one class of the data. If not, warns;
 * the default of --compare only says so. */
static bool is_comparable(const struct chex_eval_settings *s, const struct chex_published *p,
                          const struct chex_scores *scores) {
    for (int c = 0; p && c < scores->classes; c++)
        if (!isnan(chex_published_auroc(p, p->headline, scores->per_class[c].name)))
            return true;
    if (p)
        chex_log(strcmp(s->compare, "published") ? CHEX_LOG_WARN : CHEX_LOG_INFO,
                 "--compare %s: it states no AUROC for any finding of the data", s->compare);
    return false;
}

struct chex_report chex_eval_report_of(const struct chex_eval_settings *s,
                                       const struct chex_eval_computed *c,
                                       const struct chex_eval_done *done,
                                       const struct chex_published *published) {
    return (struct chex_report){
        .scores = c->scores,
        .published = is_comparable(s, published, c->scores) ? published : NULL,
        .title = done->title,
        .provenance = done->provenance,
        .command = done->command,
        .cases = done->cases,
        .figures = c->figures,
        .subgroups = c->subgroups,
        .shortcuts = c->shortcuts,
        .gains = c->gains,
        .unit = chex_unit_names[s->unit],
        .unit_score = s->unit == CHEX_UNIT_IMAGE ? NULL : chex_unit_score_names[s->unit_score]};
}

/* Writes predictions.csv. Its digest in auroc.json says that the two belong together. */
static enum chex_status write_table(const char *path, const struct chex_predictions *predictions,
                                    char digest[CHEX_HASH128_HEX_BYTES], struct chex_error *err) {
    CHEX_AUTO_FREE char *bytes = NULL;
    size_t size = 0;
    CHEX_TRY(chex_predictions_write(path, predictions, err));
    CHEX_TRY(chex_fs_read(path, UINT64_MAX, &bytes, &size, err));
    chex_hash128_hex(bytes, size, digest);
    return CHEX_OK;
}

enum chex_status chex_eval_write_files(const char *dir, const struct chex_report *report,
                                       const struct chex_predictions *predictions,
                                       struct chex_error *err) {
    struct chex_report written = *report;
    char digest[CHEX_HASH128_HEX_BYTES];
    if (predictions) {
        CHEX_TRY(write_table(chex_path(dir, "predictions.csv").text, predictions, digest, err));
        written.table_digest = digest;
    }
    return chex_report_write(&written, dir, err);
}
