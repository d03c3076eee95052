/* SPDX-License-Identifier: Apache-2.0
 *
 * The shards of a store: their names, and which of them are finished.
 *
 * --resume reuses the shards that an interrupted run finished. A shard's name is a digest of its
 * inputs; it does not prove that the file is intact. So each finished shard is read once and
 * compared with the label table and its checksums. A damaged shard is removed and built again.
 * Shards that this run checked or built are not read again in a later build round.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "ingest/create_private.h"
#include "shard/pixels_check.h"
#include "shard/shard_write.h"

enum { BATCH = 64 }; /* open shards at a time */

/* ---- names ---- */

/* Digest of everything that the shard's bytes depend on. The content of an image file is
 * represented by its size and modification time. */
static uint64_t shard_key(const struct chex_create *c, const struct chex_layout_shard *s) {
    const struct chex_label_table *t = c->table;
    const uint64_t numbers[] = {CHEX_SHARD_VERSION,
                                CHEX_CREATE_REVISION,
                                (uint64_t)c->o->size,
                                s->split,
                                s->index,
                                s->count};
    uint64_t h = chex_hash64_mix(0, numbers, sizeof numbers);
    h = chex_hash64_mix_text(h, c->o->tool_version);
    h = chex_hash64_mix_text(h, chex_create_facts(c).resize);
    for (size_t i = 0; i < t->class_count; i++)
        h = chex_hash64_mix_text(h, t->classes[i]);
    for (size_t i = 0; i < s->row_count; i++) {
        const size_t row = s->rows[i];
        const struct chex_label_row *r = &t->rows[row];
        const struct chex_folder_file *file = c->origin ? NULL : c->files[row];
        const int64_t facts[] = {file ? (int64_t)file->bytes : (int64_t)c->origin->content[row],
                                 file ? file->modified_ns : 0, r->view, r->age_years, r->sex};
        h = chex_hash64_mix_text(h, r->image_id);
        h = chex_hash64_mix_text(h, r->patient_id);
        h = chex_hash64_mix_text(h, r->study_id ? r->study_id : "");
        h = chex_hash64_mix(h, r->labels, t->class_count);
        h = chex_hash64_mix(h, facts, sizeof facts);
    }
    return h;
}

static bool name_shard(const struct chex_store *s, const struct chex_layout_shard *layout,
                       struct chex_store_shard *shard) {
    CHEX_AUTO_FREE char *name = chex_layout_shard_name(layout);
    shard->layout = layout;
    if (name) {
        shard->path = chex_fs_format("%s/%s.%016llx.h5", s->partial, name,
                                     (unsigned long long)shard_key(s->c, layout));
        shard->file = chex_fs_format("%s/%s.h5", chex_split_names[layout->split], name);
    }
    return shard->path && shard->file;
}

static void free_list(struct chex_store_shard *shards, size_t count) {
    for (size_t i = 0; shards && i < count; i++) {
        free(shards[i].path);
        free(shards[i].file);
    }
    free(shards);
}

void chex_store_free_shards(struct chex_store *s) { free_list(s->shards, s->shard_count); }

/* Replaces the list by one of the present layout. A shard whose path is that of the last round
 * stays finished. */
static enum chex_status name_shards(struct chex_store *s, struct chex_error *err) {
    const struct chex_layout *layout = s->c->layout;
    struct chex_store_shard *shards = chex_alloc_zeroed(layout->shard_count, sizeof *shards);
    bool whole = shards != NULL;
    for (size_t i = 0; whole && i < layout->shard_count; i++) {
        whole = name_shard(s, &layout->shards[i], &shards[i]);
        shards[i].finished = whole && i < s->shard_count && s->shards[i].finished &&
                             strcmp(s->shards[i].path, shards[i].path) == 0;
    }
    if (!whole) {
        free_list(shards, layout->shard_count);
        return chex_error_memory(err, "the list of shards");
    }
    free_list(s->shards, s->shard_count);
    s->shards = shards;
    s->shard_count = layout->shard_count;
    return CHEX_OK;
}

/* ---- comparing ---- */

struct check {
    const struct chex_create *c;
    struct chex_store_shard **shards; // (count) finished by an interrupted run
    size_t count, rows;               /* rows: of all of them */
    struct chex_progress *progress;
    size_t rows_done, damaged;
    char first[CHEX_ERROR_TEXT_BYTES]; /* what is wrong with the first damaged shard */
};

static bool same_attributes(const struct chex_create *c, const struct chex_layout_shard *layout,
                            const struct chex_shard *s) {
    bool same = chex_shard_rows(s) == layout->row_count && chex_shard_size(s) == c->o->size &&
                (size_t)chex_shard_classes(s) == c->table->class_count &&
                strcmp(chex_shard_resize(s), chex_create_facts(c).resize) == 0 &&
                strcmp(chex_shard_split(s), chex_split_names[layout->split]) == 0 &&
                strcmp(chex_shard_tool_version(s), c->o->tool_version) == 0;
    for (size_t i = 0; same && i < c->table->class_count; i++)
        same = strcmp(chex_shard_class(s, (int)i), c->table->classes[i]) == 0;
    return same;
}

/* CHEX_E_DATA if the attributes or a row are not as in the label table. */
static enum chex_status compare(const struct chex_create *c, const struct chex_layout_shard *layout,
                                const struct chex_shard *s, struct chex_error *err) {
    if (!same_attributes(c, layout, s))
        return chex_error_data(err, "%s: its attributes differ from those of this run",
                               chex_shard_path(s));
    for (size_t i = 0; i < layout->row_count; i++) {
        const char *field = chex_create_difference(c, layout->rows[i], s, i);
        if (field)
            return chex_error_data(err, "%s: row %zu: the %s of %s differs from the label file",
                                   chex_shard_path(s), i, field,
                                   c->table->rows[layout->rows[i]].image_id);
    }
    return CHEX_OK;
}

static enum chex_status open_equal(const struct chex_create *c,
                                   const struct chex_store_shard *shard, struct chex_shard **out,
                                   struct chex_error *err) {
    CHEX_AUTO(chex_shard_close_at) struct chex_shard *s = NULL;
    CHEX_TRY(chex_shard_open(shard->path, &s, err));
    CHEX_TRY(compare(c, shard->layout, s, err));
    *out = CHEX_TAKE(s);
    return CHEX_OK;
}

/* Counts a damaged shard and removes its file. */
static enum chex_status drop(struct check *k, const struct chex_store_shard *shard,
                             const struct chex_error *why, struct chex_error *err) {
    if (k->damaged++ == 0)
        snprintf(k->first, sizeof k->first, "%s", why->text);
    if (unlink(shard->path) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", shard->path);
    return CHEX_OK;
}

static enum chex_status check_batch(struct check *k, struct chex_store_shard *const *batch,
                                    size_t count, struct chex_error *err) {
    struct chex_shard *open[BATCH];
    struct chex_store_shard *of[BATCH];
    struct chex_pixel_fault faults[BATCH] = {0};
    enum chex_status st = CHEX_OK;
    size_t n = 0;
    for (size_t i = 0; st == CHEX_OK && i < count; i++) {
        struct chex_error why = {0};
        st = open_equal(k->c, batch[i], &open[n], &why);
        if (st == CHEX_OK)
            of[n++] = batch[i];
        else
            st = st == CHEX_E_DATA ? drop(k, batch[i], &why, err)
                                   : chex_error_set(err, st, "%s", why.text);
    }
    if (st == CHEX_OK && n)
        st = chex_pixels_check(open, n, (int)k->c->o->workers, k->progress, k->rows_done, faults,
                               err);
    for (size_t i = 0; i < n; i++) {
        chex_shard_close(open[i]);
        of[i]->finished = st == CHEX_OK && !faults[i].rows;
        if (st == CHEX_OK && faults[i].rows)
            st = drop(k, of[i], &faults[i].first, err);
    }
    for (size_t i = 0; i < count; i++)
        k->rows_done += batch[i]->layout->row_count;
    chex_progress_set(k->progress, k->rows_done, NULL);
    return st;
}

static enum chex_status check(struct check *k, struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    k->progress =
        chex_progress_create("checking finished shards", "img", k->rows, k->c->group->rank == 0);
    for (size_t at = 0; st == CHEX_OK && at < k->count; at += BATCH)
        st = check_batch(k, k->shards + at, k->count - at < BATCH ? k->count - at : BATCH, err);
    chex_progress_destroy(k->progress, st == CHEX_OK);
    if (st == CHEX_OK && k->damaged)
        chex_warn(
            "--resume: %zu of %zu finished shards are damaged and will be built again, the first: "
            "%s",
            k->damaged, k->count, k->first);
    return st;
}

/* ---- the list ---- */

/* Finds the finished shards of this rank. Those of a later build round do not count as kept. */
static enum chex_status find_finished(struct chex_store *s, bool first, struct chex_error *err) {
    const size_t rank = (size_t)s->c->group->rank, size = (size_t)s->c->group->size;
    CHEX_AUTO_FREE struct chex_store_shard **shards =
        chex_alloc_zeroed(s->shard_count, sizeof(struct chex_store_shard *));
    struct check k = {.c = s->c, .shards = shards};
    if (!shards)
        return chex_error_memory(err, "the list of finished shards");
    for (size_t i = rank; i < s->shard_count; i += size) {
        struct chex_store_shard *shard = &s->shards[i];
        if (shard->finished || !chex_fs_exists(shard->path))
            continue;
        shard->finished = !s->c->o->resume;
        k.shards[k.count++] = shard;
        k.rows += shard->layout->row_count;
    }
    const enum chex_status st = k.count && s->c->o->resume ? check(&k, err) : CHEX_OK;
    for (size_t i = 0; first && i < k.count; i++)
        if (k.shards[i]->finished) {
            s->kept++;
            s->kept_rows += k.shards[i]->layout->row_count;
        }
    return st;
}

enum chex_status chex_store_list(struct chex_store *s, struct chex_error *err) {
    const bool first = !s->shards;
    enum chex_status st = name_shards(s, err);
    if (st == CHEX_OK)
        st = find_finished(s, first, err);
    CHEX_TRY(chex_group_agree(s->c->group, st, err));
    st = first && s->lock_fd >= 0 ? chex_store_check_space(s, err) : CHEX_OK;
    return chex_group_follow(s->c->group, 0, st, err);
}
