/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes, reads and compares the fingerprints of splits (see members.h).
 */
#include "shard/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "shard/manifest.h"

uint64_t chex_members_sum(const struct chex_shard *s) {
    uint64_t sum = 0;
    for (size_t row = 0; row < chex_shard_rows(s); row++) {
        const char *id = chex_shard_image_id(s, row);
        sum += chex_hash64(id, strlen(id));
    }
    return sum;
}

void chex_members_text(const struct chex_manifest *m, char text_out[CHEX_MEMBERS_BYTES]) {
    size_t length = 0;
    text_out[0] = '\0';
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++)
        if (m->splits[k].shard_count)
            length +=
                (size_t)snprintf(text_out + length, CHEX_MEMBERS_BYTES - length, "%s%s %016" PRIx64,
                                 length ? ", " : "", chex_split_names[k], m->splits[k].members);
}

void chex_members_of_set(const char *text, int at, char text_out[CHEX_MEMBERS_BYTES]) {
    for (; text && at > 0; at--) {
        text = strstr(text, "; ");
        text = text ? text + 2 : NULL;
    }
    snprintf(text_out, CHEX_MEMBERS_BYTES, "%.*s", text ? (int)strcspn(text, ";") : 0,
             text ? text : "");
}

void chex_members_read(const char *dir, char text_out[CHEX_MEMBERS_BYTES]) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    text_out[0] = '\0';
    if (chex_manifest_read(dir, &m, NULL) == CHEX_OK)
        chex_members_text(m, text_out);
}

/* Returns the 16 digits of a split in a text; NULL if the text does not have the split. */
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
