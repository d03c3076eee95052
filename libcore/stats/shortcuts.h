/* SPDX-License-Identifier: Apache-2.0
 *
 * Audit of shortcuts: could the network do without the lungs? For each finding and each attribute
 * of the images:
 * - alone: the AUROC that the attribute reaches without any network.
 *   - Numbers (age, size, brightness): the AUROC of the value, in the direction that is above 0.5.
 *   - Categories (view, sex): the AUROC of the share of positives in the category. The share comes
 *     from the other half of the patients, and only pairs within a half are compared. The share
 *     among all other rows ("leave one out") would be wrong: without a row its own category has a
 *     lower share if the row is positive, so an attribute without information gets an AUROC of 0.
 * - network: the AUROC of the network on the images whose attribute is known.
 * - within: the AUROC of the network within strata of the attribute (stats/stratified.h):
 * categories, or fifths of the images by value.
 * - drop: network minus within.
 * A network that is good because it sees the attribute has a large drop. An attribute may also be a
 * legitimate part of the finding (age and emphysema).
 */
#ifndef CHEX_STATS_SHORTCUTS_H
#define CHEX_STATS_SHORTCUTS_H

#include "stats/figure.h"
#include "stats/scores.h"

enum chex_shortcut_attribute {
    CHEX_SHORTCUT_VIEW,
    CHEX_SHORTCUT_SEX,
    CHEX_SHORTCUT_AGE,
    CHEX_SHORTCUT_SIZE, /* pixels of the original file */
    CHEX_SHORTCUT_BRIGHTNESS,
    CHEX_SHORTCUT_COUNT
};
extern const char *const chex_shortcut_names[]; /* "view", "sex", "age", "size", "brightness", NULL
                                                 */

enum { CHEX_SHORTCUT_STRATA = 5 }; /* of numbers */

struct chex_shortcut {
    size_t positives, negatives; /* whose attribute is known */
    int direction;               /* of numbers: 1 larger in positives, -1 smaller; 0: categories */
    struct chex_figure alone, network, within, drop;
};

struct chex_shortcut_table {
    bool known; /* at least one image states the attribute */
    size_t unknown;
    int strata;                      /* with at least one image */
    struct chex_shortcut *per_class; /* (classes), if known */
};

struct chex_shortcuts {
    const struct chex_scores *scores; /* borrowed */
    struct chex_shortcut_table attribute[CHEX_SHORTCUT_COUNT];
};

/* Does not depend on the number of threads. CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_shortcuts_create(const struct chex_scores *scores,
                                       struct chex_shortcuts **out, struct chex_error *err);
void chex_shortcuts_destroy(struct chex_shortcuts *s); /* NULL allowed */

#endif
