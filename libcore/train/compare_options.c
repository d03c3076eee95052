/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the options of all ranks with those of rank 0. With different options some ranks would
 * skip a collective call that others make, and the run would hang.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "train/session.h"

static enum chex_status compare(json_t *mine, const json_t *first, struct chex_error *err) {
    const char *name;
    json_t *value;
    json_object_foreach(mine, name, value) {
        const json_t *theirs = json_object_get(first, name);
        if (json_equal(value, theirs))
            continue;
        return chex_error_set(err, CHEX_E_USAGE,
                              "--%s is '%.100s' here and '%.100s' on rank 0: give all ranks the "
                              "same options",
                              name, json_string_value(value),
                              json_is_string(theirs) ? json_string_value(theirs) : "");
    }
    return CHEX_OK;
}

enum chex_status chex_train_compare_options(const struct chex_train_world *w, json_t *mine,
                                            struct chex_error *err) {
    struct chex_group *group = w->coll->group;
    json_t *first = NULL;
    if (group->size == 1 || !mine)
        return CHEX_OK;
    char *text = group->rank == 0 ? json_dumps(mine, JSON_COMPACT) : NULL;
    uint64_t bytes = text ? strlen(text) + 1 : 0;
    enum chex_status st = chex_group_broadcast(group, &bytes, sizeof bytes, 0, err);
    if (st == CHEX_OK && group->rank != 0)
        text = chex_alloc_zeroed((size_t)bytes + 1, 1);
    if (st == CHEX_OK && (!text || !bytes))
        st = chex_error_memory(err, "the options");
    st = chex_watchdog_agree(w->watchdog, group, st, err);
    if (st == CHEX_OK)
        st = chex_group_broadcast(group, text, (size_t)bytes, 0, err);
    if (st == CHEX_OK && !(first = json_loads(text, 0, NULL)))
        st = chex_error_memory(err, "the options");
    if (st == CHEX_OK)
        st = compare(mine, first, err);
    json_decref(first);
    free(text);
    return st;
}
