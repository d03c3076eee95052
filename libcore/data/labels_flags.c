/* SPDX-License-Identifier: Apache-2.0
 *
 * One-hot columns: a column a finding, of 1, 0, -1 or nothing.
 */
#include <stdlib.h>

#include "data/labels_format.h"

enum chex_status chex_label_flags_init(struct chex_label_flags *flags,
                                       struct chex_label_table *table, const struct chex_csv *csv,
                                       const char *const *names, size_t count, const char *expects,
                                       struct chex_error *err) {
    struct chex_label_flags f = {.count = count};
    f.column = calloc(count ? count : 1, sizeof *f.column);
    f.class_of = calloc(count ? count : 1, sizeof *f.class_of);
    enum chex_status st = f.column && f.class_of ? CHEX_OK : chex_labels_no_memory(table, err);
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
