/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes predictions.csv. stats/predictions.h describes the format.
 */
#include "stats/predictions.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "base/textfile.h"
#include "label/csv.h"
#include "label/labels.h"
#include "label/table_file.h"
#include "stats/row_facts.h"

/* Enough for 2^23 rows (CHEX_RANKING_MAX_ROWS) of 512 bytes. */
static const uint64_t FILE_LIMIT_BYTES = UINT64_C(4) << 30;

const char *const chex_score_kind_names[] = {"probability", "any", NULL};

enum chex_status chex_predictions_create(size_t rows, int classes, const char *const *class_names,
                                         struct chex_predictions **p_out, struct chex_error *err) {
    CHEX_AUTO_PREDICTIONS struct chex_predictions *p = calloc(1, sizeof *p);
    CHEX_ALLOCATED(p, err, "predictions of %zu images", rows);
    p->rows = rows;
    p->classes = classes;
    p->class_names = chex_alloc_zeroed((size_t)classes, sizeof *p->class_names);
    p->image_id = chex_alloc_zeroed(rows, sizeof *p->image_id);
    p->patient_id = chex_alloc_zeroed(rows, sizeof *p->patient_id);
    p->label = chex_alloc_zeroed(rows, (size_t)classes * sizeof *p->label);
    p->score = chex_alloc_zeroed(rows, (size_t)classes * sizeof *p->score);
    bool all = p->class_names && p->image_id && p->patient_id && p->label && p->score;
    for (int c = 0; all && c < classes; c++)
        all = (p->class_names[c] = strdup(class_names[c])) != NULL;
    CHEX_ALLOCATED(all, err, "predictions of %zu images", rows);
    *p_out = p;
    p = NULL;
    return CHEX_OK;
}

enum chex_status chex_predictions_add_facts(struct chex_predictions *p, struct chex_error *err) {
    if (p->facts)
        return CHEX_OK;
    if (!(p->facts = chex_alloc_zeroed(p->rows, sizeof *p->facts)))
        return chex_error_memory(err, "predictions of %zu images", p->rows);
    for (size_t i = 0; i < p->rows; i++)
        p->facts[i] = (struct chex_row_facts){.age_years = -1, .brightness = NAN};
    return CHEX_OK;
}

struct chex_spread chex_spread_of(const double *score, int count, size_t stride) {
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++)
        sum += score[(size_t)i * stride];
    const double mean = sum / count;
    for (int i = 0; i < count; i++) {
        const double distance = score[(size_t)i * stride] - mean;
        squares += distance * distance;
    }
    return (struct chex_spread){mean, count > 1 ? sqrt(squares / (count - 1)) : 0};
}

static void free_strings(char **strings, size_t n) {
    for (size_t i = 0; strings && i < n; i++)
        free(strings[i]);
    free(strings);
}

void chex_predictions_destroy(struct chex_predictions *p) {
    if (!p)
        return;
    free_strings(p->class_names, (size_t)p->classes);
    free_strings(p->image_id, p->rows);
    free_strings(p->patient_id, p->rows);
    for (size_t i = 0; p->facts && i < p->rows; i++) {
        free(p->facts[i].study_id);
        free(p->facts[i].source);
    }
    free(p->facts);
    free(p->member_score);
    free(p->label);
    free(p->score);
    free(p);
}

void chex_predictions_put_columns(FILE *to, const char *prefix, char *const *class_names,
                                  int classes) {
    for (int c = 0; c < classes; c++) {
        CHEX_AUTO_FREE char *name = chex_fs_format("%s%s", prefix, class_names[c]);
        putc(',', to);
        chex_text_put_cell(to, name ? name : "");
    }
}

static void write_table(FILE *f, const struct chex_predictions *p) {
    const unsigned facts = chex_facts_known(p);
    fputs("image_id,patient_id", f);
    chex_predictions_put_columns(f, "y_", p->class_names, p->classes);
    chex_predictions_put_columns(f, "p_", p->class_names, p->classes);
    if (p->members)
        chex_predictions_put_columns(f, "s_", p->class_names, p->classes);
    chex_facts_put_names(f, facts);
    putc('\n', f);
    for (size_t i = 0; i < p->rows; i++) {
        const size_t at = i * (size_t)p->classes;
        chex_text_put_cell(f, p->image_id[i]);
        putc(',', f);
        chex_text_put_cell(f, p->patient_id && p->patient_id[i] ? p->patient_id[i] : "");
        for (int c = 0; c < p->classes; c++)
            fprintf(f, ",%d", p->label[at + (size_t)c]);
        for (int c = 0; c < p->classes; c++)
            fprintf(f, ",%.9g", p->score[at + (size_t)c]);
        for (int c = 0; p->members && c < p->classes; c++)
            fprintf(f, ",%.6g",
                    chex_spread_of(p->member_score + at + (size_t)c, p->members,
                                   p->rows * (size_t)p->classes)
                        .sd);
        if (facts)
            chex_facts_put_cells(f, facts, &p->facts[i]);
        putc('\n', f);
    }
}

enum chex_status chex_predictions_write(const char *path, const struct chex_predictions *p,
                                        struct chex_error *err) {
    struct chex_textfile t;
    CHEX_TRY(chex_textfile_open(path, &t, err));
    write_table(t.f, p);
    return chex_textfile_close(&t, CHEX_OK, err);
}

/* ---- reading ---- */

static const size_t NONE = SIZE_MAX;

struct columns {
    enum chex_score_kind kind;
    size_t count; /* of the header */
    size_t image_id, patient_id;
    int classes;
    char **names; /* (classes) copies, in order of the p_ columns */
    size_t *label, *score;
    struct chex_fact_columns facts;
};

static void columns_release(struct columns *c) {
    free_strings(c->names, (size_t)c->classes);
    free(c->label);
    free(c->score);
}

/* The index of the column named prefix + name, or NONE. Two such columns are an error. */
static enum chex_status find_column(const struct chex_csv *csv, const char *prefix,
                                    const char *name, size_t *at_out, struct chex_error *err) {
    const size_t n = strlen(prefix);
    size_t at = NONE;
    for (size_t i = 0; i < csv->count; i++) {
        if (strncmp(csv->fields[i], prefix, n) != 0 || strcmp(csv->fields[i] + n, name) != 0)
            continue;
        if (at != NONE)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s line %zu: column %s appears twice, at %zu and %zu", csv->path,
                                  csv->line, csv->fields[i], at + 1, i + 1);
        at = i;
    }
    *at_out = at;
    return CHEX_OK;
}

static enum chex_status add_class(struct columns *c, const struct chex_csv *csv, size_t column,
                                  struct chex_error *err) {
    const char *name = csv->fields[column] + 2;
    size_t y, p;
    if (!chex_text_is_utf8(name))
        return chex_text_encoding_fault(csv->path, csv->line, "finding", name, "", err);
    if (!chex_text_is_printable(name))
        return chex_error_set(
            err, CHEX_E_DATA,
            "%s line %zu: column '%s': the name of a finding has control characters", csv->path,
            csv->line, csv->fields[column]);
    CHEX_TRY(find_column(csv, "p_", name, &p, err));
    CHEX_TRY(find_column(csv, "y_", name, &y, err));
    if (y == NONE)
        return chex_error_set(err, CHEX_E_DATA, "%s line %zu: column p_%s has no column y_%s",
                              csv->path, csv->line, name, name);
    const int k = c->classes;
    if (!(c->names[k] = strdup(name)))
        return chex_error_memory(err, "%s", csv->path);
    c->label[k] = y;
    c->score[k] = p;
    c->classes++;
    return CHEX_OK;
}

static enum chex_status read_header(struct chex_csv *csv, struct columns *c,
                                    struct chex_error *err) {
    bool more;
    CHEX_TRY(chex_csv_next(csv, &more, err));
    if (!more)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: empty; expected a header image_id,patient_id,y_...,p_...",
                              csv->path);
    c->count = csv->count;
    c->names = chex_alloc_zeroed(csv->count, sizeof *c->names);
    c->label = chex_alloc_zeroed(csv->count, sizeof *c->label);
    c->score = chex_alloc_zeroed(csv->count, sizeof *c->score);
    CHEX_ALLOCATED(c->names && c->label && c->score, err, "%s", csv->path);
    CHEX_TRY(find_column(csv, "", "image_id", &c->image_id, err));
    CHEX_TRY(find_column(csv, "", "patient_id", &c->patient_id, err));
    if (c->image_id == NONE)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s line %zu: no column image_id; expected a header "
                              "image_id,patient_id,y_...,p_...",
                              csv->path, csv->line);
    for (size_t i = 0; i < csv->count; i++) {
        const char *name = csv->fields[i];
        if (strncmp(name, "p_", 2) == 0) {
            CHEX_TRY(add_class(c, csv, i, err));
        } else if (strncmp(name, "y_", 2) == 0) {
            size_t p;
            CHEX_TRY(find_column(csv, "p_", name + 2, &p, err));
            if (p == NONE)
                return chex_error_set(err, CHEX_E_DATA, "%s line %zu: column %s has no column p_%s",
                                      csv->path, csv->line, name, name + 2);
        }
    }
    if (c->classes == 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s line %zu: no finding; expected columns y_<Class> and p_<Class>",
                              csv->path, csv->line);
    return chex_facts_find(csv, &c->facts, err);
}

/* The id of an image or a patient. Results name ids, and are UTF-8. */
static enum chex_status read_id(const struct chex_csv *csv, size_t column, const char *what,
                                char **out, struct chex_error *err) {
    const char *id = chex_text_of_cell(csv->fields[column]);
    if (!chex_text_is_utf8(id))
        return chex_text_encoding_fault(csv->path, csv->line, what, id, "", err);
    return (*out = strdup(id)) ? CHEX_OK : chex_error_memory(err, "%s", csv->path);
}

/* A label as in label files, or -2 (not stated) as this table writes it. */
static bool parse_label(const char *text, int8_t *out) {
    if (chex_field_flag(text, out))
        return true;
    *out = CHEX_LABEL_NOT_STATED;
    return !strcmp(text, "-2") || !strcmp(text, "-2.0");
}

static enum chex_status read_row(const struct chex_csv *csv, struct columns *c,
                                 struct chex_predictions *p, size_t row, struct chex_error *err) {
    if (csv->count != c->count)
        return chex_error_set(err, CHEX_E_DATA, "%s line %zu: %zu columns, the header has %zu",
                              csv->path, csv->line, csv->count, c->count);
    CHEX_TRY(read_id(csv, c->image_id, "image", &p->image_id[row], err));
    if (!*p->image_id[row])
        return chex_error_set(err, CHEX_E_DATA, "%s line %zu: image_id is empty", csv->path,
                              csv->line);
    if (p->patient_id)
        CHEX_TRY(read_id(csv, c->patient_id, "patient", &p->patient_id[row], err));
    for (int k = 0; k < c->classes; k++) {
        const size_t at = row * (size_t)c->classes + (size_t)k;
        const char *y = csv->fields[c->label[k]], *s = csv->fields[c->score[k]];
        double score;
        if (!parse_label(y, &p->label[at]))
            return chex_error_set(
                err, CHEX_E_DATA,
                "%s line %zu, column y_%s: '%s', expected 1, 0, -1, -2, NA, true or false",
                csv->path, csv->line, c->names[k], y);
        if (!chex_csv_number(csv, c->score[k], &score))
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s line %zu, column p_%s: '%s', expected a number", csv->path,
                                  csv->line, c->names[k], s);
        if (c->kind == CHEX_SCORE_PROBABILITY && (score < 0 || score > 1))
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s line %zu, column p_%s: '%s', expected a probability from 0 "
                                  "to 1; for other scores add --scores any",
                                  csv->path, csv->line, c->names[k], s);
        p->score[at] = score;
    }
    return p->facts ? chex_facts_read(csv, &c->facts, &p->facts[row], err) : CHEX_OK;
}

#define RELEASED __attribute__((cleanup(chex_label_map_release))) = {0}

static enum chex_status check_unique(struct chex_label_map *lines, const struct chex_csv *csv,
                                     const char *id, struct chex_error *err) {
    size_t line;
    CHEX_TRY(chex_label_map_add(lines, id, csv->line, &line, err));
    if (line == csv->line)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s line %zu: image %s is already on line %zu; each image counts once",
                          csv->path, csv->line, id, line);
}

static enum chex_status read_rows(struct chex_csv *csv, struct columns *c, size_t capacity,
                                  struct chex_predictions **p_out, struct chex_error *err) {
    CHEX_AUTO_PREDICTIONS struct chex_predictions *p = NULL;
    struct chex_label_map lines RELEASED; /* of the image ids */
    size_t row = 0;
    CHEX_TRY(chex_predictions_create(capacity, c->classes, (const char *const *)c->names, &p, err));
    if (c->patient_id == NONE) {
        free(p->patient_id);
        p->patient_id = NULL;
    }
    if (c->facts.mask)
        CHEX_TRY(chex_predictions_add_facts(p, err));
    for (bool more;; row++) {
        CHEX_TRY(chex_csv_next(csv, &more, err));
        if (!more)
            break;
        CHEX_TRY(read_row(csv, c, p, row, err));
        CHEX_TRY(check_unique(&lines, csv, p->image_id[row], err));
    }
    if (row == 0)
        return chex_error_set(err, CHEX_E_DATA, "%s: a header and no row", csv->path);
    chex_facts_warn(&c->facts, csv->path);
    p->rows = row; /* the ids of the unused rows are still NULL */
    *p_out = p;
    p = NULL;
    return CHEX_OK;
}

enum chex_status chex_predictions_read(const char *path, enum chex_score_kind kind,
                                       struct chex_predictions **p_out, struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    size_t size;
    CHEX_TRY(chex_table_read(path, FILE_LIMIT_BYTES, &text, &size, err));
    struct chex_csv csv;
    struct columns columns = {.kind = kind};
    chex_csv_init(&csv, path, text, size);
    chex_csv_log_separator(&csv);
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    enum chex_status st = read_header(&csv, &columns, err);
    if (st == CHEX_OK)
        st = read_rows(&csv, &columns, lines, p_out, err);
    columns_release(&columns);
    chex_csv_release(&csv);
    return st;
}
