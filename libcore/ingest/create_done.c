/* SPDX-License-Identifier: Apache-2.0
 *
 * --resume on a complete set: checks if a run would make the same set again. If so, the run
 * succeeds without work. A job that Slurm requeues after its success then ends in seconds.
 *
 * Compared are options, classes, every row (labels, split, patient, view, age, sex), the digest of
 * the label file, and the time of each image file: it must not be newer than the manifest. Image
 * contents are not read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "ingest/create_private.h"

struct comparison {
    const struct chex_create *c;
    const struct chex_manifest *m;
    struct chex_label_map rows; /* by image id */
    int64_t made_ns;            /* when the manifest was written */
    bool *seen;                 // (table->count) the row is in the set
    uint64_t sum[2];            /* sum of the shards' source digests */
    char difference[160];
};

static void release(struct comparison *l) {
    chex_label_map_release(&l->rows);
    free(l->seen);
}

/* Records the first difference. Always returns false, so that callers can return it. */
static bool differs(struct comparison *l, const char *what, const char *value) {
    if (!l->difference[0])
        snprintf(l->difference, sizeof l->difference, "%s%.100s", what, value);
    return false;
}

static bool same_text(struct comparison *l, const char *what, const char *there,
                      const char *wanted) {
    return strcmp(there, wanted) == 0 || differs(l, what, there);
}

static bool same_number(struct comparison *l, const char *what, uint64_t there, uint64_t wanted) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)there);
    return there == wanted || differs(l, what, text);
}

static bool same_options(struct comparison *l) {
    const struct chex_create_options *o = l->c->o;
    const struct chex_label_table *t = l->c->table;
    const struct chex_manifest *m = l->m;
    const struct chex_create_facts facts = chex_create_facts(l->c);
    bool same = same_text(l, "made by ", m->tool_version, o->tool_version) &&
                same_number(l, "size ", (uint64_t)m->size, (uint64_t)o->size) &&
                same_number(l, "seed ", m->seed, o->seed) &&
                same_text(l, "resized by ", m->resize, facts.resize) &&
                same_text(l, "labels ", m->label_format, facts.label_format) &&
                same_text(l, "uncertain ", m->uncertain, facts.uncertain) &&
                same_text(l, "split ", m->split_mode, facts.split_mode) &&
                same_number(l, "number of findings ", m->class_count, t->class_count);
    for (size_t i = 0; same && i < t->class_count; i++)
        same = same_text(l, "finding ", m->classes[i], t->classes[i]);
    for (int s = 0; same && s < CHEX_SPLIT_COUNT; s++) {
        size_t rows = m->splits[s].rows;
        same = same_number(l, "shards a split: ", m->splits[s].shard_count,
                           rows < o->shards ? rows : o->shards);
    }
    return same;
}

/* Compares the file of row r, which is in the set. */
static bool same_file(struct comparison *l, size_t r) {
    const struct chex_create *c = l->c;
    const char *id = c->table->rows[r].image_id;
    const struct chex_folder_file *f = chex_create_find(c, r, NULL);
    if (f && f->modified_ns > l->made_ns)
        return differs(l, "a newer file of ", id);
    return f || c->packed_count || differs(l, "the file is gone of ", id);
}

static bool same_row(struct comparison *l, enum chex_split split, const struct chex_shard *s,
                     size_t i) {
    const char *id = chex_shard_image_id(s, i);
    const size_t r = chex_label_map_find(&l->rows, id);
    char what[32];
    if (r == SIZE_MAX || l->c->split[r] != split)
        return differs(l, "its split has no ", id);
    const char *field = chex_create_difference(l->c, r, s, i);
    snprintf(what, sizeof what, "another %s of ", field ? field : "");
    if (field)
        return differs(l, what, id);
    l->seen[r] = true;
    return l->c->origin || same_file(l, r);
}

static bool same_shards(struct comparison *l, const struct chex_set *set) {
    bool same = true;
    for (size_t k = 0; same && k < set->shard_count; k++) {
        const struct chex_shard *s = set->shards[k];
        chex_shard_add_source(s, l->sum);
        for (size_t i = 0; same && i < chex_shard_rows(s); i++)
            same = same_row(l, set->split, s, i);
    }
    return same;
}

/* Rows that are not in the set must be the rejected images. */
static bool same_rest(struct comparison *l) {
    size_t out = 0;
    for (size_t r = 0; r < l->c->table->count; r++)
        out += (int)l->c->split[r] != CHEX_SPLIT_UNUSED && !l->seen[r];
    if (l->c->origin)
        return same_number(l, "images left out: ", l->m->rejected,
                           l->c->origin->manifest->rejected) &&
               same_number(l, "images missing: ", out, 0);
    return same_number(l, "images left out: ", l->m->rejected, out) &&
           (out <= l->c->o->max_bad || differs(l, "more images left out than --max-bad", ""));
}

static bool same_archives(struct comparison *l) {
    for (size_t i = 0; i < l->c->packed_count; i++)
        if (l->c->packed[i]->modified_ns > l->made_ns)
            return differs(l, "newer archive ", l->c->packed[i]->path);
    return true;
}

static enum chex_status same_source(struct comparison *l, bool *same_out, struct chex_error *err) {
    char digest[CHEX_HASH128_HEX_BYTES], labels_digest[CHEX_HASH128_HEX_BYTES];
    const char *wanted = digest;
    if (l->c->origin)
        wanted = l->c->origin->manifest->source_digest;
    else
        CHEX_TRY(chex_store_digest_source(l->c, l->sum, digest, labels_digest, err));
    *same_out = same_text(l, "source ", l->m->source_digest, wanted);
    return CHEX_OK;
}

/* A set that cannot be read counts as different. */
static enum chex_status compare_rows(struct comparison *l, bool *same_out, struct chex_error *err) {
    struct chex_error ignored = {0};
    bool same = same_archives(l);
    for (int s = 0; same && s < CHEX_SPLIT_COUNT; s++) {
        CHEX_AUTO(chex_set_close_at) struct chex_set *set = NULL;
        if (!l->m->splits[s].shard_count)
            continue;
        if (chex_set_open(l->c->o->output, (enum chex_split)s, 0, SIZE_MAX, &set, &ignored) !=
            CHEX_OK)
            same = differs(l, "", ignored.text);
        else
            same = same_shards(l, set);
    }
    same = same && same_rest(l);
    *same_out = same;
    return same ? same_source(l, same_out, err) : CHEX_OK;
}

enum chex_status chex_store_compare_done(const struct chex_create *c, bool *done_out,
                                         struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_AUTO(release) struct comparison l = {.c = c};
    struct stat made;
    *done_out = false;
    if (stat(chex_path(c->o->output, CHEX_MANIFEST_NAME).text, &made) != 0 ||
        chex_manifest_read(c->o->output, &m, NULL) != CHEX_OK)
        return CHEX_OK;
    l.m = m;
    l.made_ns = chex_fs_modified_ns(&made);
    l.seen = chex_alloc_zeroed(c->table->count, sizeof *l.seen);
    if (!l.seen)
        return chex_error_memory(err, "the list of images");
    CHEX_TRY(chex_labels_index(c->table, &l.rows, err));
    if (same_options(&l))
        CHEX_TRY(compare_rows(&l, done_out, err));
    if (!*done_out)
        chex_info("--resume: the set in %s is not the set of this run: %s", c->o->output,
                  l.difference);
    return CHEX_OK;
}
