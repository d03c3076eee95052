/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash map from names to numbers: image ids to rows, study ids to studies. The map borrows the
 * names: they must live as long as the map.
 */
#ifndef CHEX_LABEL_LABELS_MAP_H
#define CHEX_LABEL_LABELS_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_label_slot {
    const char *name; /* NULL: free */
    uint64_t hash;
    size_t value;
};

/* Initialise with {0}: an empty map. */
struct chex_label_map {
    struct chex_label_slot *slots;
    size_t mask, count;
};

void chex_label_map_release(struct chex_label_map *map);

/* Returns the value of a name; SIZE_MAX if the map does not have the name. */
size_t chex_label_map_find(const struct chex_label_map *map, const char *name);

/* Adds a name with a value, unless the map has the name.
 * - *value_out: the value of the name after the call.
 * - CHEX_E_RESOURCE: out of memory. There is no other failure. */
enum chex_status chex_label_map_add(struct chex_label_map *map, const char *name, size_t value,
                                    size_t *value_out, struct chex_error *err);

#endif
