/* SPDX-License-Identifier: Apache-2.0
 *
 * One-hot columns: one column for each finding, with 1 (positive), 0 (negative), -1 (uncertain) or
 * empty (not stated).
 */
#include <stdlib.h>
#include <string.h>

#include "label/labels_format.h"

enum chex_status chex_label_flags_init(struct chex_label_flags *flags,
                                       struct chex_label_table *table, const struct chex_csv *csv,
                                       const char *const *names, size_t count, const char *expects,
                                       struct chex_error *err) {
    struct chex_label_flags f = {.count = count};
    f.column = calloc(count ? count : 1, sizeof *f.column);
    f.class_of = calloc(count ? count : 1, sizeof *f.class_of);
    enum chex_status st =
        f.column && f.class_of ? CHEX_OK : chex_error_memory(err, "%s", table->path);
    for (size_t i = 0; st == CHEX_OK && i < count; i++)
        st = chex_csv_find(csv, names[i], expects, &f.column[i], err);
    if (st == CHEX_OK)
        st = chex_labels_set_classes(table, names, count, f.class_of, err);
    if (st == CHEX_OK)
        *flags = f;
    else
        chex_label_flags_release(&f);
    return st;
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
    int *used = calloc(count + flags->count, sizeof *used);
    if (!used)
        return chex_error_memory(err, "%s", t->path);
    memcpy(used, at, count * sizeof *used);
    if (flags->count)
        memcpy(used + count, flags->column, flags->count * sizeof *used);
    enum chex_status st = chex_labels_list_ignored(t, format, csv, used, count + flags->count, err);
    free(used);
    return st;
}

/* ---- detection of one-hot columns ---- */

struct guess {
    struct chex_csv csv;
    bool *stated; /* (count): a row has 1, 0 or -1 */
    bool *other;  /* (count): a row has a value that is no flag */
};

static enum chex_status scan_rows(struct guess *g, const int *columns, size_t count,
                                  struct chex_error *err) {
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(&g->csv, &more, err));
        if (!more)
            return CHEX_OK;
        for (size_t i = 0; i < count; i++) {
            int8_t label = CHEX_LABEL_NOT_STATED;
            g->other[i] |= !chex_field_flag(g->csv.fields[columns[i]], &label);
            g->stated[i] |= label != CHEX_LABEL_NOT_STATED;
        }
    }
}

enum chex_status chex_label_flags_guess(const struct chex_label_table *t,
                                        const struct chex_csv *csv, int *columns, size_t *count,
                                        struct chex_error *err) {
    if (*count == 0)
        return CHEX_OK;
    struct guess g = {.stated = calloc(*count, sizeof *g.stated),
                      .other = calloc(*count, sizeof *g.other)};
    const size_t size = (size_t)(csv->end - csv->at);
    char *copy = malloc(size + 1); /* the parser changes the text */
    enum chex_status st =
        g.stated && g.other && copy ? CHEX_OK : chex_error_memory(err, "%s", t->path);
    if (st == CHEX_OK) {
        memcpy(copy, csv->at, size + 1);
        g.csv = (struct chex_csv){.path = csv->path,
                                  .at = copy,
                                  .end = copy + size,
                                  .next_line = csv->next_line,
                                  .names = csv->names,
                                  .name_count = csv->name_count};
        st = scan_rows(&g, columns, *count, err);
        g.csv.names = NULL; /* owned by the caller */
        chex_csv_release(&g.csv);
    }
    size_t kept = 0;
    for (size_t i = 0; st == CHEX_OK && i < *count; i++)
        if (g.stated[i] && !g.other[i])
            columns[kept++] = columns[i];
    if (st == CHEX_OK)
        *count = kept;
    free(copy);
    free(g.stated);
    free(g.other);
    return st;
}
