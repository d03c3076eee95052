/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins two tables of predictions. stats/join.h has the contract.
 */
#include "stats/join.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "label/labels_map.h"
#include "stats/bootstrap.h"

static enum chex_status match_classes(struct chex_join *j, struct chex_error *err) {
    const struct chex_predictions *const *t = j->tables;
    for (int i = 0; i < 2; i++) {
        j->column[i] = chex_alloc_zeroed((size_t)t[0]->classes, sizeof *j->column[i]);
        j->missing[i] = chex_alloc_zeroed((size_t)t[i]->classes, sizeof *j->missing[i]);
        CHEX_ALLOCATED(j->column[i] && j->missing[i], err, "%d findings", t[i]->classes);
    }
    for (int i = 0; i < 2; i++)
        for (int a = 0; a < t[i]->classes; a++) {
            int b = 0;
            while (b < t[!i]->classes && strcmp(t[i]->class_names[a], t[!i]->class_names[b]) != 0)
                b++;
            if (b == t[!i]->classes) {
                char **name = &j->missing[i][j->missing_count[i]++];
                if (!(*name = strdup(t[i]->class_names[a])))
                    return chex_error_memory(err, "%d findings", t[i]->classes);
            } else if (i == 0) {
                j->column[0][j->classes] = a;
                j->column[1][j->classes++] = b;
            }
        }
    if (j->classes)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s and %s have no finding in common (the first of each: %s, %s)",
                          j->names[0], j->names[1], t[0]->class_names[0], t[1]->class_names[0]);
}

static enum chex_status match_rows(struct chex_join *j, struct chex_error *err) {
    const struct chex_predictions *const *t = j->tables;
    __attribute__((cleanup(chex_label_map_release))) struct chex_label_map map = {0};
    for (size_t i = 0, known; i < t[1]->rows; i++)
        CHEX_TRY(chex_label_map_add(&map, t[1]->image_id[i], i, &known, err));
    for (int i = 0; i < 2; i++)
        if (!(j->row[i] = chex_alloc_zeroed(t[0]->rows, sizeof *j->row[i])))
            return chex_error_memory(err, "%zu images", t[0]->rows);
    for (size_t i = 0; i < t[0]->rows; i++) {
        const size_t other = chex_label_map_find(&map, t[0]->image_id[i]);
        if (other == SIZE_MAX)
            continue;
        j->row[0][j->rows] = (uint32_t)i;
        j->row[1][j->rows++] = (uint32_t)other;
    }
    for (int i = 0; i < 2; i++)
        j->left_out[i] = t[i]->rows - j->rows;
    if (!j->rows)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s and %s have no image in common (the first of each: %s, %s)",
                              j->names[0], j->names[1], t[0]->image_id[0], t[1]->image_id[0]);
    return CHEX_OK;
}

static int8_t label_of(const struct chex_join *j, int i, size_t row, int c) {
    const struct chex_predictions *t = j->tables[i];
    return t->label[j->row[i][row] * (size_t)t->classes + (size_t)j->column[i][c]];
}

/* Two labels that both mask the image agree. */
static enum chex_status check_labels(const struct chex_join *j, struct chex_error *err) {
    for (size_t k = 0; k < j->rows; k++)
        for (int c = 0; c < j->classes; c++) {
            const int a = label_of(j, 0, k, c), b = label_of(j, 1, k, c);
            if (a == b || (a < 0 && b < 0))
                continue;
            return chex_error_set(err, CHEX_E_DATA,
                                  "image %s, finding %s: label %d in %s and %d in %s; only equal "
                                  "labels can be compared",
                                  j->tables[0]->image_id[j->row[0][k]],
                                  j->tables[0]->class_names[j->column[0][c]], a, j->names[0], b,
                                  j->names[1]);
        }
    return CHEX_OK;
}

/* ---- patients ---- */

static const char *patient_of(const struct chex_join *j, int i, size_t row) {
    const struct chex_predictions *t = j->tables[i];
    return t->patient_id ? t->patient_id[j->row[i][row]] : "";
}

/* The patient of a joined row by either table. */
static enum chex_status find_patient(const struct chex_join *j, size_t row, const char **out,
                                     struct chex_error *err) {
    const char *a = patient_of(j, 0, row), *b = patient_of(j, 1, row);
    *out = *a ? a : b;
    if (!*a || !*b || strcmp(a, b) == 0)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA, "image %s: patient %s in %s and %s in %s",
                          j->tables[0]->image_id[j->row[0][row]], a, j->names[0], b, j->names[1]);
}

static enum chex_status number_patients(struct chex_join *j, bool needed, struct chex_error *err) {
    if (!j->tables[0]->patient_id && !j->tables[1]->patient_id)
        return needed ? chex_error_set(err, CHEX_E_DATA,
                                       "%s and %s: no column patient_id, and intervals by patient "
                                       "need it: add it, or use --cluster image",
                                       j->names[0], j->names[1])
                      : CHEX_OK;
    CHEX_AUTO_FREE const char **ids = chex_alloc_zeroed(j->rows, sizeof *ids);
    j->patient = chex_alloc_zeroed(j->rows, sizeof *j->patient);
    CHEX_ALLOCATED(ids && j->patient, err, "the patients");
    for (size_t k = 0; k < j->rows; k++) {
        CHEX_TRY(find_patient(j, k, &ids[k], err));
        if (needed && !*ids[k])
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: image %s has no patient_id, and intervals by patient need "
                                  "it: add it, or use --cluster image",
                                  j->names[0], j->tables[0]->image_id[j->row[0][k]]);
    }
    return chex_bootstrap_cluster(ids, j->rows, j->patient, &j->patients, err);
}

/* ---- all ---- */

static enum chex_status set_clusters(struct chex_join *j, enum chex_cluster cluster,
                                     struct chex_error *err) {
    j->score = chex_alloc_zeroed(j->rows, sizeof *j->score);
    j->label = chex_alloc_zeroed(j->rows, sizeof *j->label);
    j->cluster = chex_alloc_zeroed(j->rows, sizeof *j->cluster);
    CHEX_ALLOCATED(j->score && j->label && j->cluster, err, "%zu images", j->rows);
    j->clusters = cluster == CHEX_CLUSTER_IMAGE ? j->rows : j->patients;
    for (uint32_t k = 0; k < j->rows; k++)
        j->cluster[k] = cluster == CHEX_CLUSTER_IMAGE ? k : j->patient[k];
    return CHEX_OK;
}

enum chex_status chex_join_create(const struct chex_predictions *const tables[2],
                                  const char *const names[2], enum chex_cluster cluster,
                                  struct chex_join *j, struct chex_error *err) {
    *j = (struct chex_join){.tables = tables, .names = names};
    CHEX_TRY(match_classes(j, err));
    CHEX_TRY(match_rows(j, err));
    CHEX_TRY(check_labels(j, err));
    CHEX_TRY(number_patients(j, cluster == CHEX_CLUSTER_PATIENT, err));
    return set_clusters(j, cluster, err);
}

void chex_join_release(struct chex_join *j) {
    for (int i = 0; i < 2; i++) {
        for (int c = 0; c < j->missing_count[i]; c++)
            free(j->missing[i][c]);
        free(j->missing[i]);
        free(j->row[i]);
        free(j->column[i]);
    }
    free(j->patient);
    free(j->cluster);
    free(j->score);
    free(j->label);
    *j = (struct chex_join){0};
}

enum chex_status chex_join_rank(const struct chex_join *j, int i, int c, struct chex_ranking **out,
                                struct chex_error *err) {
    const struct chex_predictions *t = j->tables[i];
    for (size_t k = 0; k < j->rows; k++) {
        j->score[k] = t->score[j->row[i][k] * (size_t)t->classes + (size_t)j->column[i][c]];
        j->label[k] = label_of(j, i, k, c);
    }
    enum chex_status st = chex_ranking_create(j->score, j->label, j->rows, 1, out, err);
    return st == CHEX_OK ? st
                         : chex_error_prefix(err, st, "%s: finding %s", j->names[i],
                                             t->class_names[j->column[i][c]]);
}
