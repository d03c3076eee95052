/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that change a label table: --views, --uncertain, --not-stated.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "label/labels.h"

const char *const chex_uncertain_names[] = {"keep", "ignore", "zeros", "ones", NULL};
const char *const chex_not_stated_names[] = {"keep", "zeros", NULL};

/* By enum chex_view. */
static const char *const view_names[] = {"unknown", "PA", "AP", "LATERAL", NULL};

const char *chex_view_name(enum chex_view view) {
    return view_names[view <= CHEX_VIEW_LATERAL ? view : CHEX_VIEW_UNKNOWN];
}

enum chex_status chex_labels_parse_views(const char *text, unsigned *mask_out,
                                         struct chex_error *err) {
    const char *bad = chex_text_mask(text, view_names, mask_out);
    return bad ? chex_error_set(err, CHEX_E_USAGE,
                                "--views '%s': '%.*s', expected some of PA, AP, lateral, unknown "
                                "with commas between them",
                                text, (int)strcspn(bad, ","), bad)
               : CHEX_OK;
}

size_t chex_labels_keep_views(struct chex_label_table *t, unsigned mask) {
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++)
        if (mask >> t->rows[i].view & 1) {
            struct chex_label_row row = t->rows[i];
            t->rows[i] = t->rows[kept];
            t->rows[kept++] = row;
        }
    size_t dropped = t->count - kept;
    t->count = kept;
    return dropped;
}

const char *chex_labels_views_text(const struct chex_label_table *t, char *out, size_t size) {
    size_t count[CHEX_VIEW_LATERAL + 1] = {0}, at = 0;
    static const enum chex_view order[] = {CHEX_VIEW_PA, CHEX_VIEW_AP, CHEX_VIEW_LATERAL,
                                           CHEX_VIEW_UNKNOWN};
    for (size_t i = 0; i < t->file_count; i++)
        count[t->rows[i].view]++;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof order / sizeof order[0] && at < size; i++)
        if (count[order[i]])
            at += (size_t)snprintf(out + at, size - at, "%s%s (%zu)", at ? ", " : "",
                                   chex_view_name(order[i]), count[order[i]]);
    return out;
}

/* Replaces every label `from` by `to`. Returns their number. */
static size_t replace(struct chex_label_table *t, int8_t from, int8_t to) {
    size_t found = 0;
    for (size_t i = 0; i < t->count; i++)
        for (size_t c = 0; c < t->class_count; c++)
            if (t->rows[i].labels[c] == from) {
                t->rows[i].labels[c] = to;
                found++;
            }
    return found;
}

size_t chex_labels_apply_uncertain(struct chex_label_table *t, enum chex_uncertain policy) {
    static const int8_t becomes[] = {[CHEX_UNCERTAIN_KEEP] = CHEX_LABEL_UNCERTAIN,
                                     [CHEX_UNCERTAIN_IGNORE] = CHEX_LABEL_NOT_STATED,
                                     [CHEX_UNCERTAIN_ZEROS] = 0,
                                     [CHEX_UNCERTAIN_ONES] = 1};
    return replace(t, CHEX_LABEL_UNCERTAIN, becomes[policy]);
}

size_t chex_labels_apply_not_stated(struct chex_label_table *t, enum chex_not_stated policy) {
    return replace(t, CHEX_LABEL_NOT_STATED,
                   policy == CHEX_NOT_STATED_ZEROS ? 0 : CHEX_LABEL_NOT_STATED);
}
