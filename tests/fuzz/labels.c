/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a label file of any format: a table whose rows keep what labels.h promises, or one
 * error text.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/labels.h"
#include "fuzz.h"

static void check_table(const struct chex_label_table *t) {
    for (size_t r = 0; r < t->count; r++) {
        const struct chex_label_row *row = &t->rows[r];
        FUZZ_CHECK(row->image_id[0] && !strchr(row->image_id, '/'));
        FUZZ_CHECK(row->patient_id[0] && row->line > 0);
        for (size_t c = 0; c < t->class_count; c++)
            FUZZ_CHECK(row->labels[c] <= 1 && row->labels[c] >= CHEX_LABEL_NOT_STATED);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("labels", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    FUZZ_CHECK(file >= 0 && ftruncate(file, 0) == 0);
    FUZZ_CHECK(pwrite(file, data, size, 0) == (ssize_t)size);
    for (const char *const *format = chex_labels_formats(); *format; format++) {
        struct chex_label_table *table = NULL;
        struct chex_error err = {0};
        enum chex_status st = chex_labels_load(path, *format, &table, &err);
        FUZZ_CHECK((st == CHEX_OK) == (table != NULL) && (st == CHEX_OK || err.text[0]));
        if (table)
            check_table(table);
        chex_labels_free(table);
    }
    return 0;
}
