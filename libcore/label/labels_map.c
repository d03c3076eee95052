/* SPDX-License-Identifier: Apache-2.0
 *
 * The hash map of labels_map.h: open addressing with linear probing, a power of two of slots, at
 * most three quarters used.
 */
#include "label/labels_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

void chex_label_map_release(struct chex_label_map *map) {
    free(map->slots);
    *map = (struct chex_label_map){0};
}

/* Returns the slot of the name, or the free slot for it. The map must have a free slot. */
static struct chex_label_slot *locate(const struct chex_label_map *map, const char *name,
                                      uint64_t hash) {
    size_t at = (size_t)hash & map->mask;
    while (map->slots[at].name &&
           (map->slots[at].hash != hash || strcmp(map->slots[at].name, name) != 0))
        at = (at + 1) & map->mask;
    return &map->slots[at];
}

size_t chex_label_map_find(const struct chex_label_map *map, const char *name) {
    if (!map->slots)
        return SIZE_MAX;
    const struct chex_label_slot *slot = locate(map, name, chex_hash64(name, strlen(name)));
    return slot->name ? slot->value : SIZE_MAX;
}

static enum chex_status grow(struct chex_label_map *map, struct chex_error *err) {
    size_t capacity = map->slots ? 2 * (map->mask + 1) : 64;
    struct chex_label_map grown = {.mask = capacity - 1, .count = map->count};
    if (!(grown.slots = calloc(capacity, sizeof *grown.slots)))
        return chex_error_memory(err, "the list of images");
    for (size_t i = 0; map->slots && i <= map->mask; i++)
        if (map->slots[i].name)
            *locate(&grown, map->slots[i].name, map->slots[i].hash) = map->slots[i];
    free(map->slots);
    *map = grown;
    return CHEX_OK;
}

enum chex_status chex_label_map_add(struct chex_label_map *map, const char *name, size_t value,
                                    size_t *value_out, struct chex_error *err) {
    if (!map->slots || (map->count + 1) / 3 * 4 >= map->mask) /* keep at least a quarter free */
        CHEX_TRY(grow(map, err));
    uint64_t hash = chex_hash64(name, strlen(name));
    struct chex_label_slot *slot = locate(map, name, hash);
    if (!slot->name) {
        *slot = (struct chex_label_slot){name, hash, value};
        map->count++;
    }
    *value_out = slot->value;
    return CHEX_OK;
}
