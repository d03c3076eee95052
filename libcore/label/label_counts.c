/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts labels and writes the warning about findings that cannot be learned (label_counts.h).
 */
#include "label/label_counts.h"

#include <stdio.h>

#include "base/text.h"
#include "label/values.h"

enum { SHOWN = 8 };

void chex_label_counts_add(struct chex_label_counts *counts, const int8_t *labels, size_t classes) {
    for (size_t c = 0; c < classes; c++) {
        counts[c].positive += labels[c] == 1;
        counts[c].negative += labels[c] == 0;
        counts[c].uncertain += labels[c] == CHEX_LABEL_UNCERTAIN;
        counts[c].not_stated += labels[c] == CHEX_LABEL_NOT_STATED;
    }
}

enum gap { NO_POSITIVE, NO_NEGATIVE, NEITHER, COMPLETE };

static enum gap gap_of(const struct chex_label_counts *c) {
    if (c->positive)
        return c->negative ? COMPLETE : NO_NEGATIVE;
    return c->negative ? NO_POSITIVE : NEITHER;
}

/* Appends "; no positives of A, B and 3 more". The first part has no semicolon. */
static void append_gap(struct chex_text_line *l, bool first, enum gap gap, const char *const *names,
                       const struct chex_label_counts *counts, size_t classes) {
    static const char *const what[] = {[NO_POSITIVE] = "no positives of",
                                       [NO_NEGATIVE] = "no negatives of",
                                       [NEITHER] = "neither positives nor negatives of"};
    size_t found = 0;
    chex_text_append(l, "%s%s", first ? " " : "; ", what[gap]);
    for (size_t c = 0; c < classes; c++)
        if (gap_of(&counts[c]) == gap && ++found <= SHOWN)
            chex_text_append(l, "%s%s", found > 1 ? ", " : " ", names[c]);
    if (found > SHOWN)
        chex_text_append(l, " and %zu more", found - SHOWN);
}

enum chex_status chex_label_counts_judge(const char *part, const char *const *names,
                                         const struct chex_label_counts *counts, size_t classes,
                                         bool learns, char *warning, size_t size,
                                         struct chex_error *err) {
    size_t of_gap[COMPLETE + 1] = {0}, positive = 0, negative = 0;
    warning[0] = '\0';
    for (size_t c = 0; c < classes; c++) {
        of_gap[gap_of(&counts[c])]++;
        positive += counts[c].positive;
        negative += counts[c].negative;
    }
    if (!of_gap[COMPLETE]) {
        char text[160];
        snprintf(text, sizeof text,
                 "no finding has both positives and negatives (%zu findings, %zu positive and %zu "
                 "negative labels)",
                 classes, positive, negative);
        if (learns)
            return chex_error_data(err, "%s: nothing can be learned: %s", part, text);
        snprintf(warning, size, "%s: nothing can be learned and no AUROC computed: %s", part, text);
        return CHEX_OK;
    }
    if (of_gap[COMPLETE] == classes)
        return CHEX_OK;
    struct chex_text_line l = {.text = warning, .size = size};
    chex_text_append(&l, "%s:", part);
    bool first = true;
    for (enum gap gap = NO_POSITIVE; gap < COMPLETE; gap++)
        if (of_gap[gap]) {
            append_gap(&l, first, gap, names, counts, classes);
            first = false;
        }
    return CHEX_OK;
}
