/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers by name: image ids to rows, study ids to studies. Borrows the names.
 */
#ifndef CHEX_DATA_LABELS_MAP_H
#define CHEX_DATA_LABELS_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_label_slot {
    const char *name; /* NULL: free */
    uint64_t hash;
    size_t value;
};

/* All zeros is an empty map. */
struct chex_label_map {
    struct chex_label_slot *slots;
    size_t mask, count;
};

void chex_label_map_release(struct chex_label_map *map);

/* The value of a name; SIZE_MAX where it has none. */
size_t chex_label_map_find(const struct chex_label_map *map, const char *name);

/* Gives the name that value unless it has one; *value_out is the one it has then. Fails for lack of
 * memory only. */
enum chex_status chex_label_map_add(struct chex_label_map *map, const char *name, size_t value,
                                    size_t *value_out, struct chex_error *err);

#endif
