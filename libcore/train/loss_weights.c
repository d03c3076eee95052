/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of the findings in the training loss: from label counts, from a file, or as a run
 * recorded them (loss_weights.h).
 */
#include "train/loss_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "label/classes.h"
#include "label/csv.h"
#include "label/table_file.h"

const char *const chex_loss_mean_names[] = {"all", "stated", NULL};

/* ---- counts ---- */

static void balance(const struct chex_loss_rows *rows, float *pos) {
    for (int k = 0; k < rows->classes; k++) {
        const struct chex_label_counts *c = &rows->counts[k];
        pos[k] = 1;
        if (c->positive && c->negative)
            pos[k] = (float)((double)c->negative / (double)c->positive);
        else
            chex_warn(
                "--pos-weight balanced: %s has %zu positive and %zu negative training labels: "
                "its weight is 1",
                rows->names[k], c->positive, c->negative);
    }
}

static void weigh_stated(const struct chex_loss_rows *rows, const float *uncertain_target,
                         float *class) {
    for (int k = 0; k < rows->classes; k++) {
        const struct chex_label_counts *c = &rows->counts[k];
        const bool soft = uncertain_target && uncertain_target[k] >= 0;
        const size_t stated = c->positive + c->negative + (soft ? c->uncertain : 0);
        const size_t all = c->positive + c->negative + c->uncertain + c->not_stated;
        class[k] = stated ? (float)((double)all / (double)stated) : 1;
    }
}

/* ---- a file ---- */

enum { FILE_LIMIT_BYTES = 1 << 20 };

static enum chex_status find_class(const struct chex_csv *csv, int column,
                                   const struct chex_loss_rows *rows, int *k_out,
                                   struct chex_error *err) {
    const char *name = chex_text_of_cell(csv->fields[column]);
    struct chex_text_nearest nearest = {.word = name};
    char expected[2 * CHEX_CLASS_NAME_BYTES + 64];
    for (*k_out = 0; *k_out < rows->classes; ++*k_out) {
        if (chex_names_match(name, rows->names[*k_out]))
            return CHEX_OK;
        chex_text_offer(&nearest, rows->names[*k_out]);
    }
    snprintf(expected, sizeof expected, "a finding of the data%s%s%s",
             nearest.best ? "; did you mean " : "", nearest.best ? nearest.best : "",
             nearest.best ? "?" : "");
    return chex_csv_fault(csv, column, expected, err);
}

static enum chex_status read_row(const struct chex_csv *csv, int name, int weight,
                                 const struct chex_loss_rows *rows, float *pos,
                                 struct chex_error *err) {
    double x;
    int k;
    CHEX_TRY(find_class(csv, name, rows, &k, err));
    if (pos[k] >= 0)
        return chex_csv_fault(csv, name, "each finding once", err);
    if (!chex_csv_number(csv, (size_t)weight, &x) || !(x >= 0 && x <= 1e6))
        return chex_csv_fault(csv, weight, "a number from 0 to 1000000", err);
    pos[k] = (float)x;
    return CHEX_OK;
}

static enum chex_status read_table(struct chex_csv *csv, const struct chex_loss_rows *rows,
                                   float *pos, struct chex_error *err) {
    int name, weight;
    bool more = true;
    CHEX_TRY(chex_csv_header(csv, err));
    CHEX_TRY(chex_csv_find(csv, "class", "the columns class and pos_weight", &name, err));
    CHEX_TRY(chex_csv_find(csv, "pos_weight", "the columns class and pos_weight", &weight, err));
    for (int k = 0; k < rows->classes; k++)
        pos[k] = -1;
    for (;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            break;
        CHEX_TRY(read_row(csv, name, weight, rows, pos, err));
    }
    for (int k = 0; k < rows->classes; k++)
        if (pos[k] < 0)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: no row for %s (expected one for each of the %d findings)",
                                  csv->path, rows->names[k], rows->classes);
    return CHEX_OK;
}

static enum chex_status read_file(const char *path, const struct chex_loss_rows *rows, float *pos,
                                  struct chex_error *err) {
    struct chex_csv csv;
    CHEX_AUTO_FREE char *text = NULL;
    size_t size;
    if (!chex_fs_exists(path))
        return chex_error_set(
            err, CHEX_E_DATA,
            "--pos-weight '%s': there is no such file (expected none, balanced, or "
            "a CSV file with the columns class and pos_weight)",
            path);
    CHEX_TRY(chex_table_read(path, FILE_LIMIT_BYTES, &text, &size, err));
    chex_csv_init(&csv, path, text, size);
    chex_csv_log_separator(&csv);
    const enum chex_status st = read_table(&csv, rows, pos, err);
    chex_csv_release(&csv);
    return st;
}

/* ---- a record ---- */

static enum chex_status take_recorded(const json_t *recorded, const struct chex_loss_rows *rows,
                                      float *pos, struct chex_error *err) {
    const json_t *all = json_object_get(recorded, "pos_weight");
    for (int k = 0; k < rows->classes; k++) {
        const json_t *one = json_object_get(all, rows->names[k]);
        if (!json_is_number(one))
            return chex_error_set(err, CHEX_E_DATA,
                                  "--pos-weight: the run recorded no weight of %s: give the option "
                                  "again",
                                  rows->names[k]);
        pos[k] = (float)json_number_value(one);
    }
    return CHEX_OK;
}

enum chex_status chex_loss_weights_alloc(const struct chex_loss *loss, bool pos, bool class,
                                         size_t classes, struct chex_loss_weights *out,
                                         struct chex_error *err) {
    *out = (struct chex_loss_weights){.loss = *loss};
    out->loss.pos_weight = out->pos = pos ? chex_alloc_zeroed(classes, sizeof *out->pos) : NULL;
    out->loss.class_weight = out->class =
        class ? chex_alloc_zeroed(classes, sizeof *out->class) : NULL;
    return (pos && !out->pos) || (class && !out->class) ? chex_error_memory(err, NULL) : CHEX_OK;
}

enum chex_status chex_loss_weights_make(const struct chex_loss *loss, const char *pos_weight,
                                        enum chex_loss_mean mean, const json_t *recorded,
                                        const struct chex_loss_rows *rows,
                                        struct chex_loss_weights *out, struct chex_error *err) {
    CHEX_TRY(chex_loss_weights_alloc(loss, strcmp(pos_weight, "none") != 0,
                                     mean == CHEX_LOSS_MEAN_STATED, (size_t)rows->classes, out,
                                     err));
    if (out->class)
        weigh_stated(rows, loss->uncertain_target, out->class);
    if (!out->pos)
        return CHEX_OK;
    if (recorded)
        return take_recorded(recorded, rows, out->pos, err);
    if (strcmp(pos_weight, "balanced") != 0)
        return read_file(pos_weight, rows, out->pos, err);
    balance(rows, out->pos);
    return CHEX_OK;
}

void chex_loss_weights_release(struct chex_loss_weights *w) {
    free(w->pos);
    free(w->class);
    *w = (struct chex_loss_weights){.pos = NULL};
}

/* ---- texts ---- */

static void put_json(json_t *to, const char *key, const float *weights, const char *const *names,
                     int classes) {
    json_t *all = weights ? json_object() : NULL;
    for (int k = 0; weights && k < classes; k++)
        json_object_set_new(all, names[k], json_real((double)weights[k]));
    json_object_set_new(to, key, all); /* does nothing without an object */
}

json_t *chex_loss_weights_json(const struct chex_loss_weights *w, const char *const *names,
                               int classes) {
    json_t *object = w->pos || w->class ? json_object() : NULL;
    if (!object)
        return NULL;
    put_json(object, "pos_weight", w->pos, names, classes);
    put_json(object, "class_weight", w->class, names, classes);
    return object;
}

/* Appends the least and the greatest weight. */
static void append_range(struct chex_text_line *l, const char *what, const float *weights,
                         const char *const *names, int classes) {
    int least = 0, most = 0;
    for (int k = 0; weights && k < classes; k++) {
        least = weights[k] < weights[least] ? k : least;
        most = weights[k] > weights[most] ? k : most;
    }
    if (weights && !(weights[most] > weights[least]))
        chex_text_append(l, ", %s %.3g", what, (double)weights[0]);
    else if (weights)
        chex_text_append(l, ", %s %.3g (%s) to %.3g (%s)", what, (double)weights[least],
                         names[least], (double)weights[most], names[most]);
}

void chex_loss_weights_text(const struct chex_loss_weights *w, const char *const *names,
                            int classes, char *text, size_t size) {
    const struct chex_loss *loss = &w->loss;
    struct chex_text_line l = {text, size, 0};
    chex_text_append(&l, "%s loss", chex_loss_names[loss->kind]);
    if (loss->kind == CHEX_LOSS_FOCAL)
        chex_text_append(&l, ", gamma %g", loss->gamma_pos);
    if (loss->kind == CHEX_LOSS_FOCAL && loss->alpha >= 0)
        chex_text_append(&l, ", alpha %g", loss->alpha);
    if (loss->kind == CHEX_LOSS_ASL)
        chex_text_append(&l, ", gamma %g for positive and %g for negative labels, clip %g",
                         loss->gamma_pos, loss->gamma_neg, loss->clip);
    if (loss->smoothing > 0)
        chex_text_append(&l, ", label smoothing %g", loss->smoothing);
    append_range(&l, "pos_weight", w->pos, names, classes);
    append_range(&l, "class_weight", w->class, names, classes);
    if (loss->kind == CHEX_LOSS_BCE && !(loss->smoothing > 0) && !w->pos && !w->class)
        text[0] = '\0';
}
