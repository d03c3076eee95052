/* SPDX-License-Identifier: Apache-2.0
 *
 * One-hot columns: one column for each finding, with 1 (positive), 0 (negative), -1 (uncertain) or
 * empty (not stated).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "label/labels_format.h"

enum chex_status chex_label_flags_init(struct chex_label_flags *flags,
                                       struct chex_label_table *table, const struct chex_csv *csv,
                                       const char *const *names, size_t count, const char *expects,
                                       struct chex_error *err) {
    CHEX_AUTO_FREE int *column = chex_alloc_zeroed(count, sizeof *column);
    CHEX_AUTO_FREE size_t *class_of = chex_alloc_zeroed(count, sizeof *class_of);
    if (!column || !class_of)
        return chex_error_memory(err, "%s", table->path);
    for (size_t i = 0; i < count; i++)
        CHEX_TRY(chex_csv_find(csv, names[i], expects, &column[i], err));
    CHEX_TRY(chex_labels_set_classes(table, names, count, class_of, err));
    *flags = (struct chex_label_flags){count, CHEX_TAKE(column), CHEX_TAKE(class_of)};
    return CHEX_OK;
}

void chex_label_flags_release(struct chex_label_flags *flags) {
    free(flags->column);
    free(flags->class_of);
    *flags = (struct chex_label_flags){0};
}

enum chex_status chex_label_flags_read(const struct chex_label_flags *flags,
                                       const struct chex_csv *csv, int8_t *labels,
                                       struct chex_error *err) {
    for (size_t i = 0; i < flags->count; i++)
        if (!chex_field_flag(csv->fields[flags->column[i]], &labels[flags->class_of[i]]))
            return chex_csv_fault(csv, flags->column[i], CHEX_FLAG_EXPECTED, err);
    return CHEX_OK;
}

enum chex_status chex_label_flags_list_ignored(const struct chex_label_flags *flags,
                                               struct chex_label_table *t,
                                               const struct chex_label_format *format,
                                               const struct chex_csv *csv, const int *at,
                                               size_t count, struct chex_error *err) {
    CHEX_AUTO_FREE int *used = calloc(count + flags->count, sizeof *used);
    if (!used)
        return chex_error_memory(err, "%s", t->path);
    memcpy(used, at, count * sizeof *used);
    if (flags->count)
        memcpy(used + count, flags->column, flags->count * sizeof *used);
    return chex_labels_list_ignored(t, format, csv, used, count + flags->count, err);
}

/* ---- detection of one-hot columns ---- */

/* What a column holds. Empty cells count in neither number. */
struct column {
    size_t flags, others;
    const char *other; /* the first value that is no flag, and its line */
    size_t line;
    bool has_text; /* a cell that is not empty, NA included */
};

static enum chex_status scan_rows(struct chex_csv *csv, const int *columns, size_t count,
                                  struct column *found, struct chex_error *err) {
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            return CHEX_OK;
        for (size_t i = 0; i < count; i++) {
            struct column *c = &found[i];
            int8_t label = CHEX_LABEL_NOT_STATED;
            const char *cell = csv->fields[columns[i]];
            c->has_text |= *cell != '\0';
            if (chex_field_flag(cell, &label))
                c->flags += label != CHEX_LABEL_NOT_STATED;
            else if (c->others++ == 0)
                c->other = cell, c->line = csv->line;
        }
    }
}

/* Decides by the values of one column. A column of flags with a few other values is an error: it
 * must not disappear because of one cell. */
static enum chex_status judge(struct chex_label_table *t, const struct chex_csv *csv, int column,
                              const struct column *c, bool *keep_out, struct chex_error *err) {
    char expected[200], name[48], value[32];
    *keep_out = c->flags && !c->others;
    if (!c->others || c->flags <= c->others)
        return CHEX_OK;
    if (c->flags >= 9 * c->others) {
        snprintf(expected, sizeof expected,
                 CHEX_FLAG_EXPECTED " as in %zu other rows; if the column is no finding, name the "
                                    "findings with --columns labels=A:B",
                 c->flags);
        return chex_text_fault(csv->path, c->line, (size_t)column + 1, csv->names[column], c->other,
                               expected, err);
    }
    if (!t->warning[0])
        snprintf(t->warning, sizeof t->warning,
                 "column '%s' is not read as a finding: %zu of %zu values are not 1, 0 or -1 (line "
                 "%zu: '%s')",
                 chex_text_printable(csv->names[column], name, sizeof name), c->others,
                 c->flags + c->others, c->line, chex_text_printable(c->other, value, sizeof value));
    return CHEX_OK;
}

static enum chex_status keep_flags(struct chex_label_table *t, const struct chex_csv *csv,
                                   int *columns, size_t *count, const struct column *found,
                                   int *empty_out, struct chex_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        bool keep;
        CHEX_TRY(judge(t, csv, columns[i], &found[i], &keep, err));
        if (*empty_out < 0 && !found[i].has_text)
            *empty_out = columns[i];
        if (keep)
            columns[kept++] = columns[i];
    }
    *count = kept;
    return CHEX_OK;
}

enum chex_status chex_label_flags_guess(struct chex_label_table *t, const struct chex_csv *csv,
                                        int *columns, size_t *count, int *empty_out,
                                        struct chex_error *err) {
    *empty_out = -1;
    if (*count == 0)
        return CHEX_OK;
    CHEX_AUTO_FREE struct column *found = calloc(*count, sizeof *found);
    const size_t size = (size_t)(csv->end - csv->at);
    CHEX_AUTO_FREE char *copy = malloc(size + 1); /* the parser changes the text */
    if (!found || !copy)
        return chex_error_memory(err, "%s", t->path);
    memcpy(copy, csv->at, size + 1);
    struct chex_csv rows = {.path = csv->path,
                            .separator = csv->separator,
                            .at = copy,
                            .end = copy + size,
                            .next_line = csv->next_line,
                            .names = csv->names, /* owned by the caller */
                            .name_count = csv->name_count};
    const enum chex_status st = scan_rows(&rows, columns, *count, found, err);
    free(rows.fields);
    CHEX_TRY(st);
    return keep_flags(t, csv, columns, count, found, empty_out, err);
}
