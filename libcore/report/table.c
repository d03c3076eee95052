/* SPDX-License-Identifier: Apache-2.0
 *
 * Columns and CSV files of result tables (table.h).
 */
#include "report/table.h"

#include <math.h>
#include <string.h>

#include "base/result.h"

const struct chex_figure *chex_column_figure(const struct chex_column *column, const void *row) {
    return (const struct chex_figure *)((const char *)row + column->at);
}

/* The three names of a column. */
struct names {
    char text[3][80];
};

static struct names names_of(const struct chex_column *c) {
    const char *gap = *c->interval ? "_" : "";
    struct names n;
    snprintf(n.text[0], sizeof n.text[0], "%s", c->key);
    snprintf(n.text[1], sizeof n.text[1], "%s%sci_low", c->interval, gap);
    snprintf(n.text[2], sizeof n.text[2], "%s%sci_high", c->interval, gap);
    return n;
}

void chex_columns_set(json_t **object, const struct chex_column *columns, size_t count,
                      const void *row) {
    for (size_t i = 0; i < count; i++) {
        const struct chex_figure *f = chex_column_figure(&columns[i], row);
        const double values[] = {f->value, f->interval.low, f->interval.high};
        const struct names names = names_of(&columns[i]);
        for (int k = 0; k < 3; k++)
            chex_json_set(object, names.text[k], chex_json_real(values[k]));
    }
}

void chex_columns_names(struct chex_text_line *to, const struct chex_column *columns,
                        size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct names n = names_of(&columns[i]);
        chex_text_append(to, ",%s,%s,%s", n.text[0], n.text[1], n.text[2]);
    }
}

/* ---- CSV ---- */

static void put_cell(FILE *to, const json_t *v, bool may_lack) {
    if (json_is_string(v))
        chex_text_put_cell(to, json_string_value(v));
    else if (json_is_integer(v))
        fprintf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        fprintf(to, "%.9g", json_real_value(v));
    else if (json_is_boolean(v))
        putc(json_is_true(v) ? '1' : '0', to);
    else if (v && !may_lack)
        fputs("nan", to);
}

/* Writes the names, or with `row` the cells under them. */
static void put_line(FILE *to, const char *names, const json_t *row) {
    for (const char *at = names;; at++) {
        const size_t name = strcspn(at, "=?,"), own = at[name] == '=' ? name + 1 : 0;
        const bool may_lack = at[name] == '?';
        char key[80];
        snprintf(key, sizeof key, "%.*s", (int)(own ? strcspn(at + own, ",") : name), at + own);
        if (row)
            put_cell(to, json_object_get(row, key), may_lack);
        else
            fprintf(to, "%.*s", (int)name, at);
        at += strcspn(at, ",");
        putc(*at ? ',' : '\n', to);
        if (!*at)
            return;
    }
}

enum chex_status chex_csv_write(FILE *to, const char *names, json_t *rows, struct chex_error *err) {
    const json_t *row;
    size_t i;
    CHEX_ALLOCATED(rows, err, "the results");
    put_line(to, names, NULL);
    json_array_foreach(rows, i, row) put_line(to, names, row);
    json_decref(rows);
    return CHEX_OK;
}

/* ---- text ---- */

const char *chex_figure_format(const struct chex_figure *f, bool sign, char *buf, size_t size) {
    if (isnan(f->value))
        snprintf(buf, size, "-");
    else if (isnan(f->interval.low))
        snprintf(buf, size, sign ? "%+.4f" : "%.4f", f->value);
    else
        snprintf(buf, size, sign ? "%+.4f (%+.4f to %+.4f)" : "%.4f (%.4f to %.4f)", f->value,
                 f->interval.low, f->interval.high);
    return buf;
}

int chex_names_width(char *const *names, int count, int least) {
    for (int c = 0; c < count; c++) {
        const int n = chex_text_columns(names[c]);
        least = n > least ? n : least;
    }
    return least;
}
