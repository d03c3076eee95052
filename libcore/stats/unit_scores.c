/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups the images of a table by study or patient (unit_scores.h).
 */
#include "stats/unit_scores.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "stats/bootstrap.h"

const char *const chex_unit_names[] = {"image", "study", "patient", NULL};
const char *const chex_unit_score_names[] = {"max", "mean", NULL};

static enum chex_status missing(const struct chex_predictions *t, size_t row, enum chex_unit unit,
                                struct chex_error *err) {
    return chex_error_set(
        err, CHEX_E_DATA,
        unit == CHEX_UNIT_STUDY
            ? "image %s has no study id, and --unit study needs it: shard the set again from "
              "labels "
              "that state studies (--columns study=NAME), add a column study_id to the table, or "
              "use --unit patient"
            : "image %s has no patient id, and --unit needs it: add a column patient_id to the "
              "table",
        t->image_id[row]);
}

/* The id of the unit of a row, in new memory. */
static enum chex_status name_unit(const struct chex_predictions *t, size_t row, enum chex_unit unit,
                                  char **out, struct chex_error *err) {
    const char *patient = t->patient_id ? t->patient_id[row] : "";
    const char *study = t->facts && t->facts[row].study_id ? t->facts[row].study_id : "";
    if (!*patient)
        return missing(t, row, CHEX_UNIT_PATIENT, err);
    if (unit == CHEX_UNIT_STUDY && !*study)
        return missing(t, row, unit, err);
    const bool alone = unit == CHEX_UNIT_STUDY && !strncmp(study, patient, strlen(patient));
    *out = unit == CHEX_UNIT_PATIENT ? strdup(patient)
           : alone                   ? strdup(study)
                                     : chex_fs_format("%s/%s", patient, study);
    return *out ? CHEX_OK : chex_error_memory(err, "%zu units", t->rows);
}

static int rank_of(int8_t label) {
    return label == 1 ? 3 : label == CHEX_LABEL_UNCERTAIN ? 2 : label == 0 ? 1 : 0;
}

/* Keeps what the unit and one more image share. */
static void share_facts(struct chex_row_facts *u, const struct chex_row_facts *f) {
    if (u->view != f->view)
        u->view = CHEX_VIEW_UNKNOWN;
    if (u->age_years != f->age_years)
        u->age_years = -1;
    if (u->sex != f->sex)
        u->sex = 0;
    if (u->fold != f->fold)
        u->fold = 0;
    if (u->width_px != f->width_px || u->height_px != f->height_px)
        u->width_px = u->height_px = 0;
    if (u->source && (!f->source || strcmp(u->source, f->source) != 0)) {
        free(u->source);
        u->source = NULL;
    }
    if (u->study_id && (!f->study_id || strcmp(u->study_id, f->study_id) != 0)) {
        free(u->study_id);
        u->study_id = NULL;
    }
    u->brightness += f->brightness;
}

static enum chex_status copy_text(char **to, const char *text, struct chex_error *err) {
    *to = text ? strdup(text) : NULL;
    return *to || !text ? CHEX_OK : chex_error_memory(err, "the units");
}

/* The first image of a unit. Moves the unit's id. */
static enum chex_status start_unit(struct chex_predictions *u, size_t unit,
                                   const struct chex_predictions *t, size_t row, char **id,
                                   struct chex_error *err) {
    const size_t classes = (size_t)t->classes;
    u->image_id[unit] = *id;
    *id = NULL;
    memcpy(u->label + unit * classes, t->label + row * classes, classes);
    memcpy(u->score + unit * classes, t->score + row * classes, classes * sizeof *u->score);
    CHEX_TRY(copy_text(&u->patient_id[unit], t->patient_id[row], err));
    if (!t->facts)
        return CHEX_OK;
    struct chex_row_facts *f = &u->facts[unit];
    *f = t->facts[row];
    f->study_id = f->source = NULL;
    CHEX_TRY(copy_text(&f->study_id, t->facts[row].study_id, err));
    return copy_text(&f->source, t->facts[row].source, err);
}

static void add_image(struct chex_predictions *u, size_t unit, const struct chex_predictions *t,
                      size_t row, enum chex_unit_score score) {
    const size_t classes = (size_t)t->classes;
    for (size_t c = 0; c < classes; c++) {
        int8_t *label = &u->label[unit * classes + c];
        double *value = &u->score[unit * classes + c];
        const int8_t y = t->label[row * classes + c];
        const double p = t->score[row * classes + c];
        if (rank_of(y) > rank_of(*label))
            *label = y;
        *value = score == CHEX_UNIT_MEAN ? *value + p : fmax(*value, p);
    }
    if (t->facts)
        share_facts(&u->facts[unit], &t->facts[row]);
}

static void divide(struct chex_predictions *u, const size_t *images, enum chex_unit_score score) {
    const size_t classes = (size_t)u->classes;
    for (size_t i = 0; i < u->rows; i++) {
        for (size_t c = 0; score == CHEX_UNIT_MEAN && c < classes; c++)
            u->score[i * classes + c] /= (double)images[i];
        if (u->facts)
            u->facts[i].brightness /= (double)images[i];
    }
}

static enum chex_status fill(struct chex_predictions *u, const struct chex_predictions *t,
                             char **ids, const uint32_t *unit_of, enum chex_unit_score score,
                             struct chex_error *err) {
    CHEX_AUTO_FREE size_t *images = chex_alloc_zeroed(u->rows, sizeof *images);
    CHEX_ALLOCATED(images, err, "the units");
    for (size_t i = 0; i < t->rows; i++) {
        const uint32_t k = unit_of[i];
        if (images[k]++ == 0)
            CHEX_TRY(start_unit(u, k, t, i, &ids[i], err));
        else
            add_image(u, k, t, i, score);
    }
    divide(u, images, score);
    return CHEX_OK;
}

enum chex_status chex_units_create(const struct chex_predictions *images, enum chex_unit unit,
                                   enum chex_unit_score score, struct chex_predictions **out,
                                   struct chex_error *err) {
    const size_t rows = images->rows;
    CHEX_AUTO_FREE char **ids = chex_alloc_zeroed(rows, sizeof *ids);
    CHEX_AUTO_FREE uint32_t *unit_of = chex_alloc_zeroed(rows, sizeof *unit_of);
    struct chex_predictions *u = NULL;
    size_t units = 0;
    enum chex_status st = ids && unit_of ? CHEX_OK : chex_error_memory(err, "the units");
    for (size_t i = 0; st == CHEX_OK && i < rows; i++)
        st = name_unit(images, i, unit, &ids[i], err);
    if (st == CHEX_OK)
        st = chex_bootstrap_cluster((const char *const *)ids, rows, unit_of, &units, err);
    if (st == CHEX_OK)
        st = chex_predictions_create(units, images->classes,
                                     (const char *const *)images->class_names, &u, err);
    if (st == CHEX_OK && images->facts)
        st = chex_predictions_add_facts(u, err);
    if (st == CHEX_OK)
        st = fill(u, images, ids, unit_of, score, err);
    for (size_t i = 0; ids && i < rows; i++)
        free(ids[i]);
    if (st == CHEX_OK)
        *out = u;
    else
        chex_predictions_destroy(u);
    return st;
}
