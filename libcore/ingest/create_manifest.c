/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a new set: counts of each split from the label table, digests from the finished
 * shards, options from this run or, in reshard, from the input set.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/text.h"
#include "ingest/create_private.h"
#include "shard/members.h"

/* Rows, patients and label counts of one split, from the label table. */
static enum chex_status count_split(const struct chex_create *c, enum chex_split which,
                                    struct chex_manifest_split *split, struct chex_error *err) {
    size_t classes = c->table->class_count, n = 0;
    const char **patients = chex_alloc_zeroed(c->table->count, sizeof *patients);
    split->positives = chex_alloc_zeroed(classes, sizeof *split->positives);
    split->uncertain = chex_alloc_zeroed(classes, sizeof *split->uncertain);
    if (!patients || !split->positives || !split->uncertain) {
        free(patients);
        return chex_error_memory(err, "the manifest");
    }
    for (size_t r = 0; r < c->table->count; r++) {
        if (c->split[r] != which || (c->bad && c->bad[r]))
            continue;
        const struct chex_label_row *row = &c->table->rows[r];
        patients[n++] = row->patient_id;
        for (size_t i = 0; i < classes; i++) {
            split->positives[i] += row->labels[i] == 1;
            split->uncertain[i] += row->labels[i] == CHEX_LABEL_UNCERTAIN;
        }
    }
    qsort(patients, n, sizeof *patients, chex_text_compare);
    for (size_t i = 0; i < n; i++)
        split->patients += i == 0 || strcmp(patients[i], patients[i - 1]) != 0;
    split->rows = n;
    free(patients);
    return CHEX_OK;
}

/* Opens a finished shard, which checks that it can be read, and adds its digests. */
static enum chex_status inspect(const char *path, struct chex_manifest_split *split,
                                struct chex_manifest_shard *shard, uint64_t sum[2],
                                struct chex_error *err) {
    struct chex_shard *s = NULL;
    uint64_t own[2];
    CHEX_TRY(chex_shard_open(path, &s, err));
    shard->rows = chex_shard_rows(s);
    shard->digest = chex_shard_digest(s);
    split->members += chex_members_sum(s);
    bool fits = chex_shard_source_sum(s, own);
    chex_shard_close(s);
    if (!fits)
        return chex_error_set(err, CHEX_E_FAIL, "%s: source_digest is not 32 hex digits", path);
    sum[0] += own[0];
    sum[1] += own[1];
    return CHEX_OK;
}

static enum chex_status list_shards(struct chex_create *c, struct chex_manifest *m, uint64_t sum[2],
                                    struct chex_error *err) {
    for (size_t i = 0; i < c->layout->shard_count; i++) {
        const struct chex_layout_shard *p = &c->layout->shards[i];
        struct chex_manifest_split *split = &m->splits[p->split];
        if (!split->shards) {
            CHEX_TRY(count_split(c, p->split, split, err));
            if (!(split->shards = chex_alloc_zeroed(p->count, sizeof *split->shards)))
                return chex_error_memory(err, "the manifest");
            split->shard_count = p->count;
            split->has_members = true;
        }
        char *path = chex_create_shard_path(c, p), *name = chex_layout_shard_name(p);
        struct chex_manifest_shard *shard = &split->shards[p->index];
        if (path && name)
            shard->file = chex_fs_format("%s/%s.h5", chex_split_names[p->split], name);
        enum chex_status st = shard->file ? inspect(path, split, shard, sum, err)
                                          : chex_error_memory(err, "the manifest");
        free(path);
        free(name);
        CHEX_TRY(st);
    }
    return CHEX_OK;
}

enum chex_status chex_create_digest_source(const struct chex_create *c, const uint64_t sum[2],
                                           char out[CHEX_HASH128_HEX_BYTES],
                                           char labels_out[CHEX_HASH128_HEX_BYTES],
                                           struct chex_error *err) {
    char *text = NULL;
    size_t size = 0;
    if (c->o->records) /* the digest covers the list of names and labels (table->text) */
        text = strdup(c->table->text), size = text ? strlen(text) : 0;
    else
        CHEX_TRY(chex_fs_read(c->o->labels, CHEX_LABELS_MAX_BYTES, &text, &size, err));
    if (!text)
        return chex_error_memory(err, "the manifest");
    chex_manifest_source_digest(sum, text, size, out);
    if (labels_out)
        chex_hash128_hex(text, size, labels_out);
    free(text);
    return CHEX_OK;
}

/* Create: fills the manifest's source and options from this run. */
static bool describe(const struct chex_create *c, const char *digest, const char *labels_digest,
                     struct chex_manifest *m) {
    m->seed = c->o->seed;
    m->rejected = c->bad_count;
    m->resize = strdup(chex_create_resize_name(c));
    m->label_format = strdup(c->table->format);
    m->uncertain = strdup(chex_uncertain_names[c->o->uncertain]);
    m->split_mode = strdup(chex_split_mode_names[c->o->split_mode]);
    m->source_digest = strdup(digest);
    m->labels_digest = strdup(labels_digest);
    return m->resize && m->label_format && m->uncertain && m->split_mode && m->source_digest &&
           m->labels_digest;
}

/* Reshard: copies the source and options from the manifest of the input set. */
static bool inherit(const struct chex_manifest *from, struct chex_manifest *m) {
    m->seed = from->seed;
    m->rejected = from->rejected;
    m->resize = strdup(from->resize);
    m->label_format = strdup(from->label_format);
    m->uncertain = strdup(from->uncertain);
    m->split_mode = strdup(from->split_mode);
    m->source_digest = strdup(from->source_digest);
    m->labels_digest = from->labels_digest ? strdup(from->labels_digest) : NULL;
    return m->resize && m->label_format && m->uncertain && m->split_mode && m->source_digest &&
           (m->labels_digest || !from->labels_digest);
}

enum chex_status chex_create_make_manifest(struct chex_create *c, struct chex_manifest **out,
                                           struct chex_error *err) {
    struct chex_manifest *m = calloc(1, sizeof *m);
    char digest[CHEX_HASH128_HEX_BYTES] = "", labels_digest[CHEX_HASH128_HEX_BYTES] = "";
    uint64_t sum[2] = {0, 0};
    if (!m)
        return chex_error_memory(err, "the manifest");
    enum chex_status st = list_shards(c, m, sum, err);
    if (st == CHEX_OK && !c->origin)
        st = chex_create_digest_source(c, sum, digest, labels_digest, err);
    if (st == CHEX_OK) {
        m->size = c->o->size;
        m->tool_version = strdup(c->o->tool_version);
        m->classes = calloc(c->table->class_count, sizeof *m->classes);
        bool whole =
            m->tool_version && m->classes &&
            (c->origin ? inherit(c->origin->manifest, m) : describe(c, digest, labels_digest, m));
        for (size_t i = 0; whole && i < c->table->class_count; i++, m->class_count++)
            whole = (m->classes[i] = strdup(c->table->classes[i])) != NULL;
        if (!whole)
            st = chex_error_memory(err, "the manifest");
    }
    if (st == CHEX_OK)
        *out = m;
    else
        chex_manifest_free(m);
    return st;
}
