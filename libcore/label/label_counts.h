/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the positive and negative labels of each finding in a part of a data set, and warns about
 * findings without positives or without negatives: they cannot be learned and have no AUROC.
 */
#ifndef CHEX_LABEL_LABEL_COUNTS_H
#define CHEX_LABEL_LABEL_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Numbers of labels of one finding. */
struct chex_label_counts {
    size_t positive, negative, uncertain, not_stated;
};

/* Adds one image's labels (classes) to counts (classes). */
void chex_label_counts_add(struct chex_label_counts *counts, const int8_t *labels, size_t classes);

/* Judges the counts of one part: of a split, of a run's training rows.
 * - part: the start of both texts, such as "split train".
 * - names (classes): the names of the findings.
 * - learns: true if a network will be trained on this part.
 * - warning (size): gets one line about findings without positives, without negatives or without
 *   both, with the first 8 names of each kind; "" if all have both. A line that does not fit is cut
 *   and ends in "...". 512 bytes hold 24 names of 14 bytes.
 * - If no finding has both positives and negatives: CHEX_E_DATA if `learns` is set, else a warning.
 */
enum chex_status chex_label_counts_judge(const char *part, const char *const *names,
                                         const struct chex_label_counts *counts, size_t classes,
                                         bool learns, char *warning, size_t size,
                                         struct chex_error *err);

#endif
