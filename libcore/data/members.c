/* SPDX-License-Identifier: Apache-2.0 */
#include "data/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static uint64_t sum_of_ids(const struct chex_set *set) {
    uint64_t sum = 0;
    for (size_t i = 0; i < set->shard_count; i++)
        for (size_t row = 0; row < chex_shard_rows(set->shards[i]); row++) {
            const char *id = chex_shard_image_id(set->shards[i], row);
            sum += chex_hash64(id, strlen(id));
        }
    return sum;
}

void chex_members_read(const char *dir, char text_out[CHEX_MEMBERS_BYTES]) {
    size_t length = 0;
    text_out[0] = '\0';
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++) {
        struct chex_set *set;
        struct chex_error why = {0};
        if (chex_set_open(dir, (enum chex_split)k, 0, SIZE_MAX, &set, &why) != CHEX_OK)
            continue;
        length +=
            (size_t)snprintf(text_out + length, CHEX_MEMBERS_BYTES - length, "%s%s %016" PRIx64,
                             length ? ", " : "", chex_split_names[k], sum_of_ids(set));
        chex_set_close(set);
    }
}

/* The digits of a split in a text; NULL where it does not name it. */
static const char *find(const char *text, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = text; at && *at; at = strstr(at, ", "), at = at ? at + 2 : NULL)
        if (strncmp(at, name, length) == 0 && at[length] == ' ' && strlen(at) >= length + 17)
            return at + length + 1;
    return NULL;
}

enum chex_members_verdict chex_members_compare(const char *a, const char *b,
                                               enum chex_split split) {
    const char *ours = find(a, chex_split_names[split]), *theirs = find(b, chex_split_names[split]);
    if (!a || !*a || !b || !*b || (!ours && !theirs))
        return CHEX_MEMBERS_UNKNOWN;
    if (!ours || !theirs)
        return CHEX_MEMBERS_OTHER;
    return strncmp(ours, theirs, 16) == 0 ? CHEX_MEMBERS_SAME : CHEX_MEMBERS_OTHER;
}
