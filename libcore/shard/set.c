/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the shards of one split, or of all splits, as one sequence of rows.
 *
 * The manifest supplies the rows of every shard, so the numbers of all rows are known before a
 * shard is opened. A rank opens only the shards in its range of rows. Every opened shard is
 * compared with its entry in the manifest: a shard that was changed or exchanged after the set was
 * made is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/search.h"
#include "shard/manifest.h"
#include "shard/shard.h"

void chex_set_close(struct chex_set *set) {
    if (!set)
        return;
    for (size_t i = 0; set->shards && !set->parts && i < set->shard_count; i++)
        chex_shard_close(set->shards[i]);
    for (int i = 0; set->parts && i < set->part_count; i++)
        chex_set_close(set->parts[i]);
    free(set->parts);
    free(set->labels);
    for (int i = 0; set->class_names && i < set->classes; i++)
        free(set->class_names[i]);
    CHEX_FREE(set->class_names, set->shards, set->first, set->source_digest, set->resize, set->dir,
              set);
}

void chex_sets_close(struct chex_set *(*sets)[CHEX_SPLIT_COUNT]) {
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        chex_set_close((*sets)[s]);
}

/* Fills the set from the manifest. Moves class names, source_digest and resize to the set. */
static enum chex_status set_from_manifest(struct chex_set *set, const char *dir,
                                          struct chex_manifest *m, struct chex_splits span,
                                          struct chex_error *err) {
    size_t shards = 0;
    for (int k = span.from; k < span.to; k++)
        shards += m->splits[k].shard_count;
    if (!shards)
        return chex_error_data(err, "%s: no split '%s' in " CHEX_MANIFEST_NAME, dir,
                               chex_split_names[set->split]);
    set->dir = strdup(dir);
    set->shards = chex_alloc_zeroed(shards, sizeof(struct chex_shard *));
    set->first = chex_alloc_zeroed(shards + 1, sizeof *set->first);
    if (!set->dir || !set->shards || !set->first)
        return chex_error_memory(err, "%s", dir);
    for (int k = span.from; k < span.to; k++)
        for (size_t i = 0; i < m->splits[k].shard_count; i++, set->shard_count++)
            set->first[set->shard_count + 1] =
                set->first[set->shard_count] + m->splits[k].shards[i].rows;
    set->rows = set->first[shards];
    set->size = m->size;
    set->classes = (int)m->class_count;
    set->class_names = m->classes, m->classes = NULL;
    set->source_digest = m->source_digest, m->source_digest = NULL;
    set->resize = m->resize, m->resize = NULL;
    return CHEX_OK;
}

/* Compares a shard with its entry in the manifest. */
static enum chex_status compare_with_manifest(const struct chex_set *set,
                                              const struct chex_shard *s, const char *split,
                                              size_t rows, uint64_t digest,
                                              struct chex_error *err) {
#define DIFFERS(format, ...) chex_error_data(err, "%s: " format, chex_shard_path(s), __VA_ARGS__)
    if (chex_shard_rows(s) != rows)
        return DIFFERS("%zu rows, the manifest says %zu", chex_shard_rows(s), rows);
    if (chex_shard_size(s) != set->size)
        return DIFFERS("images of %d px, the manifest says %d", chex_shard_size(s), set->size);
    if (chex_shard_classes(s) != set->classes)
        return DIFFERS("%d findings, the manifest says %d", chex_shard_classes(s), set->classes);
    for (int c = 0; c < set->classes; c++)
        if (strcmp(chex_shard_class(s, c), set->class_names[c]) != 0)
            return DIFFERS("finding %d is '%.60s', the manifest says '%.60s'", c,
                           chex_shard_class(s, c), set->class_names[c]);
    if (strcmp(chex_shard_resize(s), set->resize) != 0)
        return DIFFERS("resized by '%.60s', the manifest says '%.60s'", chex_shard_resize(s),
                       set->resize);
    if (strcmp(chex_shard_split(s), split) != 0)
        return DIFFERS("of split '%.60s', the manifest says '%s'", chex_shard_split(s), split);
    if (chex_shard_digest(s) != digest)
        return DIFFERS("digest %016llx, the manifest says %016llx: changed since the set was made",
                       (unsigned long long)chex_shard_digest(s), (unsigned long long)digest);
    return CHEX_OK;
#undef DIFFERS
}

/* Opens the shard that the manifest lists as `listed` in `split`, and compares the two. */
static enum chex_status open_one(struct chex_set *set, const char *split,
                                 const struct chex_manifest_shard *listed, const char *path,
                                 struct chex_shard **out, struct chex_error *err) {
    CHEX_AUTO(chex_shard_close_at) struct chex_shard *shard = NULL;
    CHEX_TRY(chex_shard_open(path, &shard, err));
    CHEX_TRY(compare_with_manifest(set, shard, split, listed->rows, listed->digest, err));
    *out = CHEX_TAKE(shard);
    return CHEX_OK;
}

/* Callbacks of the caller. */
struct listener {
    chex_set_bad_fn *bad; /* called for each bad shard; NULL: the first bad shard is an error */
    void *arg;
    void (*opened)(void *arg); /* called after each shard; NULL allowed */
};

static enum chex_status open_shard(struct chex_set *set, size_t i, const char *split,
                                   const struct chex_manifest_shard *listed, struct listener to,
                                   struct chex_error *err) {
    struct chex_error why = {0};
    const struct chex_path path = chex_path(set->dir, listed->file);
    enum chex_status st = open_one(set, split, listed, path.text, &set->shards[i], &why);
    if (st == CHEX_E_DATA && to.bad) {
        to.bad(to.arg, i, path.text, &why);
        st = CHEX_OK;
    }
    if (to.opened)
        to.opened(to.arg);
    if (st != CHEX_OK && err)
        *err = why;
    return st;
}

static bool has_rows_of(const struct chex_set *set, size_t shard, size_t row_from, size_t row_to) {
    return set->first[shard + 1] > row_from && set->first[shard] < row_to;
}

/* Raises the limit of open files. Each shard stays open, and a set may have more shards than the
 * default limit. */
static enum chex_status allow_shards(const struct chex_set *set, size_t row_from, size_t row_to,
                                     struct chex_error *err) {
    size_t count = 0;
    for (size_t i = 0; i < set->shard_count; i++)
        count += has_rows_of(set, i, row_from, row_to);
    return chex_fs_allow_open_files(count, set->dir, err);
}

static enum chex_status open_part(struct chex_set *set, const struct chex_manifest *m,
                                  struct chex_splits span, size_t row_from, size_t row_to,
                                  struct listener to, struct chex_error *err) {
    size_t i = 0;
    CHEX_TRY(allow_shards(set, row_from, row_to, err));
    for (int k = span.from; k < span.to; k++)
        for (size_t n = 0; n < m->splits[k].shard_count; n++, i++)
            if (has_rows_of(set, i, row_from, row_to))
                CHEX_TRY(open_shard(set, i, chex_split_names[k], &m->splits[k].shards[n], to, err));
    return CHEX_OK;
}

const char *chex_splits_name(struct chex_splits s) {
    if (s.to == s.from + 1)
        return chex_split_names[s.from];
    return s.to == CHEX_VAL + 1 ? "train+val" : chex_split_names[CHEX_ALL];
}

static enum chex_status open_span(const char *dir, struct chex_splits span, size_t row_from,
                                  size_t row_to, struct listener to, struct chex_set **set_out,
                                  struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    CHEX_AUTO(chex_set_close_at) struct chex_set *set = calloc(1, sizeof *set);
    if (!set)
        return chex_error_memory(err, "%s", dir);
    set->split = span.to == span.from + 1 ? (enum chex_split)span.from : CHEX_ALL;
    CHEX_TRY(set_from_manifest(set, dir, m, span, err));
    CHEX_TRY(open_part(set, m, span, row_from, row_to, to, err));
    *set_out = CHEX_TAKE(set);
    return CHEX_OK;
}

enum chex_status chex_set_open_splits(const char *dir, struct chex_splits splits, size_t row_from,
                                      size_t row_to, void (*opened)(void *arg), void *arg,
                                      struct chex_set **set_out, struct chex_error *err) {
    const struct listener to = {.arg = arg, .opened = opened};
    return open_span(dir, splits, row_from, row_to, to, set_out, err);
}

enum chex_status chex_set_open_sound(const char *dir, enum chex_split split, chex_set_bad_fn *bad,
                                     void *arg, struct chex_set **set_out, struct chex_error *err) {
    return open_span(dir, chex_splits_one(split), 0, SIZE_MAX,
                     (struct listener){.bad = bad, .arg = arg}, set_out, err);
}

enum chex_status chex_set_rows(const char *dir, enum chex_split split, size_t *rows_out,
                               struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    *rows_out = m->splits[split].rows;
    return CHEX_OK;
}

const struct chex_shard *chex_set_locate(const struct chex_set *set, size_t row,
                                         size_t *row_in_shard_out) {
    const size_t piece = chex_search_run(set->first, set->shard_count, row);
    *row_in_shard_out = set->in_shard ? set->in_shard[row] : row - set->first[piece];
    return set->shards[piece];
}

size_t chex_set_neighbours(const struct chex_set *set, const struct chex_shard *shard,
                           size_t row_in_shard, size_t row, size_t max) {
    size_t left = chex_shard_rows(shard) - row_in_shard, count = 1;
    if (!set->in_shard)
        return left < max ? left : max;
    left = set->first[chex_search_run(set->first, set->shard_count, row) + 1] - row;
    while (count < left && count < max && set->in_shard[row + count] == row_in_shard + count)
        count++;
    return count;
}

const int8_t *chex_set_labels(const struct chex_set *set, size_t row) {
    size_t at;
    if (set->labels)
        return set->labels + (row - set->labels_first) * (size_t)set->classes;
    const struct chex_shard *shard = chex_set_locate(set, row, &at);
    return chex_shard_labels(shard, at);
}

const char *const *chex_set_class_names(const struct chex_set *set) {
    return (const char *const *)set->class_names;
}

const char *chex_set_source_digest(const struct chex_set *set) { return set->source_digest; }
const char *chex_set_resize(const struct chex_set *set) { return set->resize; }
