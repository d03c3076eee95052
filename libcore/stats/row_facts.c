/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and reads the columns of predictions.csv that describe images (row_facts.h).
 */
#include "stats/row_facts.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/text.h"
#include "label/labels.h"
#include "stats/groups.h"

const char *const chex_fact_names[CHEX_FACT_COUNT] = {"study_id",  "source",     "view",
                                                      "age_years", "sex",        "width_px",
                                                      "height_px", "brightness", "fold"};

static const char *const expected[CHEX_FACT_COUNT] = {
    [CHEX_FACT_VIEW] = "PA, AP, LATERAL or unknown",   [CHEX_FACT_AGE] = "years from 0 to 32767",
    [CHEX_FACT_SEX] = "M, F, male, female or unknown", [CHEX_FACT_WIDTH] = "pixels from 1 to 65535",
    [CHEX_FACT_HEIGHT] = "pixels from 1 to 65535",     [CHEX_FACT_BRIGHTNESS] = "0 to 1",
    [CHEX_FACT_FOLD] = "a fold from 1 to 64"};

static bool is_known(const struct chex_row_facts *f, enum chex_fact fact) {
    switch (fact) {
    case CHEX_FACT_STUDY_ID: return f->study_id && f->study_id[0];
    case CHEX_FACT_SOURCE: return f->source && f->source[0];
    case CHEX_FACT_VIEW: return f->view != CHEX_VIEW_UNKNOWN;
    case CHEX_FACT_AGE: return f->age_years >= 0;
    case CHEX_FACT_SEX: return f->sex != 0;
    case CHEX_FACT_WIDTH: return f->width_px > 0;
    case CHEX_FACT_HEIGHT: return f->height_px > 0;
    case CHEX_FACT_BRIGHTNESS: return !isnan(f->brightness);
    case CHEX_FACT_FOLD: return f->fold > 0;
    case CHEX_FACT_COUNT: break;
    }
    return false;
}

/* ---- writing ---- */

unsigned chex_facts_known(const struct chex_predictions *p) {
    unsigned mask = 0;
    for (size_t i = 0; p->facts && i < p->rows; i++)
        for (unsigned k = 0; k < CHEX_FACT_COUNT; k++)
            if (!(mask >> k & 1) && is_known(&p->facts[i], (enum chex_fact)k))
                mask |= 1u << k;
    return mask;
}

void chex_facts_put_names(FILE *to, unsigned mask) {
    for (unsigned k = 0; k < CHEX_FACT_COUNT; k++)
        if (mask >> k & 1)
            fprintf(to, ",%s", chex_fact_names[k]);
}

static void put_cell(FILE *to, enum chex_fact fact, const struct chex_row_facts *f) {
    switch (fact) {
    case CHEX_FACT_STUDY_ID: chex_text_put_cell(to, f->study_id); break;
    case CHEX_FACT_SOURCE: chex_text_put_cell(to, f->source); break;
    case CHEX_FACT_VIEW: fputs(chex_view_name(f->view), to); break;
    case CHEX_FACT_AGE: fprintf(to, "%d", f->age_years); break;
    case CHEX_FACT_SEX: putc(f->sex, to); break;
    case CHEX_FACT_WIDTH: fprintf(to, "%d", f->width_px); break;
    case CHEX_FACT_HEIGHT: fprintf(to, "%d", f->height_px); break;
    case CHEX_FACT_BRIGHTNESS: fprintf(to, "%.9g", f->brightness); break;
    case CHEX_FACT_FOLD: fprintf(to, "%d", f->fold); break;
    case CHEX_FACT_COUNT: break;
    }
}

void chex_facts_put_cells(FILE *to, unsigned mask, const struct chex_row_facts *f) {
    for (unsigned k = 0; k < CHEX_FACT_COUNT; k++)
        if (mask >> k & 1) {
            putc(',', to);
            if (is_known(f, (enum chex_fact)k))
                put_cell(to, (enum chex_fact)k, f);
        }
}

/* ---- reading ---- */

enum chex_status chex_facts_find(const struct chex_csv *csv, struct chex_fact_columns *c,
                                 struct chex_error *err) {
    *c = (struct chex_fact_columns){0};
    for (unsigned k = 0; k < CHEX_FACT_COUNT; k++)
        for (size_t i = 0; i < csv->count; i++) {
            if (strcmp(csv->fields[i], chex_fact_names[k]) != 0)
                continue;
            if (c->mask >> k & 1)
                return chex_error_set(
                    err, CHEX_E_DATA, "%s line %zu: column %s appears twice, at %d and %zu",
                    csv->path, csv->line, chex_fact_names[k], c->at[k] + 1, i + 1);
            c->mask |= 1u << k;
            c->at[k] = (int)i;
        }
    return CHEX_OK;
}

static bool read_view(const char *cell, enum chex_view *out) {
    for (int v = CHEX_VIEW_UNKNOWN; v <= CHEX_VIEW_LATERAL; v++)
        if (strcasecmp(cell, chex_view_name((enum chex_view)v)) == 0) {
            *out = (enum chex_view)v;
            return true;
        }
    return false;
}

static bool read_sex(const char *cell, char *out) {
    static const struct {
        const char *word;
        char sex;
    } words[] = {{"M", 'M'}, {"F", 'F'}, {"male", 'M'}, {"female", 'F'}, {"unknown", 0}};
    for (size_t i = 0; i < CHEX_COUNT(words); i++)
        if (strcasecmp(cell, words[i].word) == 0) {
            *out = words[i].sex;
            return true;
        }
    return false;
}

/* A whole number. Data frames also write "45.0". */
static bool read_whole(const struct chex_csv *csv, size_t column, double low, double high,
                       int *out) {
    double v;
    if (!chex_csv_number(csv, column, &v) || v < low || v > high || v != floor(v))
        return false;
    *out = (int)v;
    return true;
}

static bool read_cell(const struct chex_csv *csv, size_t column, enum chex_fact fact,
                      struct chex_row_facts *f) {
    const char *cell = csv->fields[column];
    double v;
    switch (fact) {
    case CHEX_FACT_VIEW: return read_view(cell, &f->view);
    case CHEX_FACT_AGE: return read_whole(csv, column, 0, INT16_MAX, &f->age_years);
    case CHEX_FACT_SEX: return read_sex(cell, &f->sex);
    case CHEX_FACT_WIDTH: return read_whole(csv, column, 1, UINT16_MAX, &f->width_px);
    case CHEX_FACT_HEIGHT: return read_whole(csv, column, 1, UINT16_MAX, &f->height_px);
    case CHEX_FACT_BRIGHTNESS:
        if (!chex_csv_number(csv, column, &v) || v < 0 || v > 1)
            return false;
        f->brightness = v;
        return true;
    case CHEX_FACT_FOLD: return read_whole(csv, column, 1, CHEX_GROUPS_MAX, &f->fold);
    case CHEX_FACT_STUDY_ID:
    case CHEX_FACT_SOURCE:
    case CHEX_FACT_COUNT: break;
    }
    return true;
}

enum chex_status chex_facts_read(const struct chex_csv *csv, struct chex_fact_columns *c,
                                 struct chex_row_facts *f, struct chex_error *err) {
    for (unsigned k = 0; k < CHEX_FACT_COUNT; k++) {
        const char *cell = c->mask >> k & 1 ? csv->fields[c->at[k]] : "";
        if (chex_csv_is_missing(cell))
            continue;
        if (k == CHEX_FACT_STUDY_ID || k == CHEX_FACT_SOURCE) {
            const bool study = k == CHEX_FACT_STUDY_ID;
            char **text = study ? &f->study_id : &f->source;
            if (!chex_text_is_utf8(cell))
                return chex_text_encoding_fault(csv->path, csv->line, study ? "study" : "source",
                                                cell, "", err);
            if (!(*text = strdup(chex_text_of_cell(cell))))
                return chex_error_memory(err, "%s", csv->path);
        } else if (!read_cell(csv, (size_t)c->at[k], (enum chex_fact)k, f)) {
            c->bad[k]++;
        }
    }
    return CHEX_OK;
}

void chex_facts_warn(const struct chex_fact_columns *c, const char *path) {
    for (int k = 0; k < CHEX_FACT_COUNT; k++)
        if (c->bad[k])
            chex_warn(
                "%s: column %s: %zu cell%s cannot be read (expected %s) and count%s as unknown",
                path, chex_fact_names[k], c->bad[k], chex_text_s(c->bad[k]), expected[k],
                c->bad[k] == 1 ? "s" : "");
}
