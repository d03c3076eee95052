/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a new set: counts of each split from the label table, digests from the finished
 * shards, options from this run or, in reshard, from the input set.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/text.h"
#include "ingest/create_private.h"
#include "label/label_counts.h"
#include "shard/members.h"

/* Rows, patients and label counts of one split, from the label table. */
static enum chex_status count_split(const struct chex_create *c, enum chex_split which,
                                    struct chex_manifest_split *split, struct chex_error *err) {
    const size_t classes = c->table->class_count;
    size_t n = 0;
    CHEX_AUTO_FREE const char **patients = chex_alloc_zeroed(c->table->count, sizeof *patients);
    CHEX_AUTO_FREE struct chex_label_counts *counts = chex_alloc_zeroed(classes, sizeof *counts);
    split->positives = chex_alloc_zeroed(classes, sizeof *split->positives);
    split->uncertain = chex_alloc_zeroed(classes, sizeof *split->uncertain);
    if (!patients || !counts || !split->positives || !split->uncertain)
        return chex_error_memory(err, "the manifest");
    for (size_t r = 0; r < c->table->count; r++) {
        if (c->split[r] != which || (c->bad && c->bad[r]))
            continue;
        patients[n++] = c->table->rows[r].patient_id;
        chex_label_counts_add(counts, c->table->rows[r].labels, classes);
    }
    for (size_t i = 0; i < classes; i++) {
        split->positives[i] = counts[i].positive;
        split->uncertain[i] = counts[i].uncertain;
    }
    if (n)
        qsort(patients, n, sizeof *patients, chex_text_compare);
    for (size_t i = 0; i < n; i++)
        split->patients += i == 0 || strcmp(patients[i], patients[i - 1]) != 0;
    split->rows = n;
    return CHEX_OK;
}

/* Opens a finished shard, which checks that it can be read, and adds its digests. */
static enum chex_status inspect(const char *path, struct chex_manifest_split *split,
                                struct chex_manifest_shard *shard, uint64_t sum[2],
                                struct chex_error *err) {
    CHEX_AUTO(chex_shard_close_at) struct chex_shard *s = NULL;
    CHEX_TRY(chex_shard_open(path, &s, err));
    shard->rows = chex_shard_rows(s);
    shard->digest = chex_shard_digest(s);
    split->members += chex_members_sum(s);
    chex_shard_add_source(s, sum);
    return CHEX_OK;
}

static enum chex_status list_shards(const struct chex_store *store, struct chex_manifest *m,
                                    uint64_t sum[2], struct chex_error *err) {
    for (size_t i = 0; i < store->shard_count; i++) {
        const struct chex_layout_shard *p = store->shards[i].layout;
        struct chex_manifest_split *split = &m->splits[p->split];
        if (!split->shards) {
            CHEX_TRY(count_split(store->c, p->split, split, err));
            if (!(split->shards = chex_alloc_zeroed(p->count, sizeof *split->shards)))
                return chex_error_memory(err, "the manifest");
            split->shard_count = p->count;
        }
        struct chex_manifest_shard *shard = &split->shards[p->index];
        if (!(shard->file = strdup(store->shards[i].file)))
            return chex_error_memory(err, "the manifest");
        CHEX_TRY(inspect(store->shards[i].path, split, shard, sum, err));
    }
    return CHEX_OK;
}

enum chex_status chex_store_digest_source(const struct chex_create *c, const uint64_t sum[2],
                                          char out[CHEX_HASH128_HEX_BYTES],
                                          char labels_out[CHEX_HASH128_HEX_BYTES],
                                          struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    if (c->o->records) /* the digest covers the list of names and labels (table->text) */
        text = strdup(c->table->text), size = text ? strlen(text) : 0;
    else
        CHEX_TRY(chex_fs_read(c->o->labels, CHEX_LABELS_MAX_BYTES, &text, &size, err));
    if (!text)
        return chex_error_memory(err, "the manifest");
    chex_manifest_source_digest(sum, text, size, out);
    chex_hash128_hex(text, size, labels_out);
    return CHEX_OK;
}

/* Digests and options are of this run; in reshard, of the input set. */
static bool describe(const struct chex_create *c, const char *digest, const char *labels_digest,
                     struct chex_manifest *m) {
    const struct chex_manifest *old = c->origin ? c->origin->manifest : NULL;
    const struct chex_create_facts facts = chex_create_facts(c);
    const struct {
        char **to;
        const char *text;
    } texts[] = {{&m->tool_version, c->o->tool_version},
                 {&m->resize, facts.resize},
                 {&m->label_format, facts.label_format},
                 {&m->uncertain, facts.uncertain},
                 {&m->split_mode, facts.split_mode},
                 {&m->png16, facts.png16},
                 {&m->source_digest, old ? old->source_digest : digest},
                 {&m->labels_digest, old ? old->labels_digest : labels_digest}};
    m->size = (int)c->o->size;
    m->seed = c->o->seed;
    m->rejected = old ? old->rejected : c->bad_count;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!(*texts[i].to = strdup(texts[i].text)))
            return false;
    m->classes = chex_alloc_zeroed(c->table->class_count, sizeof *m->classes);
    for (; m->classes && m->class_count < c->table->class_count; m->class_count++)
        if (!(m->classes[m->class_count] = strdup(c->table->classes[m->class_count])))
            return false;
    return m->classes != NULL;
}

enum chex_status chex_store_make_manifest(const struct chex_store *store,
                                          struct chex_manifest **out, struct chex_error *err) {
    const struct chex_create *c = store->c;
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = calloc(1, sizeof *m);
    char digest[CHEX_HASH128_HEX_BYTES] = "", labels_digest[CHEX_HASH128_HEX_BYTES] = "";
    uint64_t sum[2] = {0, 0};
    if (!m)
        return chex_error_memory(err, "the manifest");
    CHEX_TRY(list_shards(store, m, sum, err));
    if (!c->origin)
        CHEX_TRY(chex_store_digest_source(c, sum, digest, labels_digest, err));
    if (!describe(c, digest, labels_digest, m))
        return chex_error_memory(err, "the manifest");
    *out = CHEX_TAKE(m);
    return CHEX_OK;
}
