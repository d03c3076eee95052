/* SPDX-License-Identifier: Apache-2.0
 *
 * --resume reuses the shards that an interrupted run finished. A shard's name is a digest of its
 * inputs; it does not prove that the file is intact. So each finished shard is read once and
 * compared with the label table and its checksums. A damaged shard is removed and built again.
 *
 * Shards that this run checked or built are trusted: a later build round does not read them again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "ingest/create_private.h"
#include "shard/pixels_check.h"

enum { BATCH = 64 }; /* open shards at a time */

struct kept {
    const struct chex_layout_shard *layout;
    char *path;
    struct chex_shard *shard;
};

struct check {
    struct chex_create *c;
    struct kept *kept; // (count) in the order of the layout
    size_t count;
    struct chex_progress *progress;
    size_t rows_done, damaged;
    char first[CHEX_ERROR_TEXT_BYTES]; /* what is wrong with the first damaged shard */
};

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static bool is_trusted(const struct chex_create *c, const char *path) {
    const uint64_t key = chex_hash64(path, strlen(path));
    return c->trusted_count &&
           bsearch(&key, c->trusted, c->trusted_count, sizeof *c->trusted, by_value);
}

enum chex_status chex_create_trust(struct chex_create *c, struct chex_error *err) {
    const size_t all = c->layout->shard_count, size = (size_t)c->group->size;
    free(c->trusted);
    c->trusted_count = 0;
    if (!(c->trusted = chex_alloc_zeroed(all, sizeof *c->trusted)))
        return chex_error_memory(err, "the list of finished shards");
    for (size_t s = (size_t)c->group->rank; s < all; s += size) {
        char *path = chex_create_shard_path(c, &c->layout->shards[s]);
        if (!path)
            return chex_error_memory(err, "the list of finished shards");
        c->trusted[c->trusted_count++] = chex_hash64(path, strlen(path));
        free(path);
    }
    qsort(c->trusted, c->trusted_count, sizeof *c->trusted, by_value);
    return CHEX_OK;
}

/* ---- comparing ---- */

/* The name of the first field of row i that differs from the label table; NULL if none. */
static const char *differing_field(const struct chex_create *c, const struct kept *k, size_t i) {
    const struct chex_label_row *row = &c->table->rows[k->layout->rows[i]];
    const struct chex_shard *s = k->shard;
    const int age = row->age_years < INT16_MAX ? row->age_years : INT16_MAX;
    if (strcmp(row->image_id, chex_shard_image_id(s, i)) != 0)
        return "image id";
    if (strcmp(row->patient_id, chex_shard_patient_id(s, i)) != 0)
        return "patient";
    if (!chex_create_same_study(row, s, i))
        return "study";
    if (memcmp(row->labels, chex_shard_labels(s, i), c->table->class_count) != 0)
        return "labels";
    if (row->view != chex_shard_view(s, i))
        return "view";
    if (age != chex_shard_age_years(s, i))
        return "age";
    if (row->sex != chex_shard_sex(s, i))
        return "sex";
    if (c->origin && c->origin->content[k->layout->rows[i]] != chex_shard_checksum(s, i))
        return "checksum";
    return NULL;
}

static bool same_attributes(const struct chex_create *c, const struct kept *k) {
    const struct chex_shard *s = k->shard;
    const char *resize = chex_create_resize_name(c);
    uint64_t sum[2];
    bool same = chex_shard_rows(s) == k->layout->row_count && chex_shard_size(s) == c->o->size &&
                (size_t)chex_shard_classes(s) == c->table->class_count &&
                strcmp(chex_shard_resize(s), resize) == 0 &&
                strcmp(chex_shard_split(s), chex_split_names[k->layout->split]) == 0 &&
                strcmp(chex_shard_tool_version(s), c->o->tool_version) == 0 &&
                chex_shard_source_sum(s, sum);
    for (size_t i = 0; same && i < c->table->class_count; i++)
        same = strcmp(chex_shard_class(s, (int)i), c->table->classes[i]) == 0;
    return same;
}

/* True if attributes and rows are as in the label table. If not, `why` holds the difference. */
static bool same_rows(const struct chex_create *c, const struct kept *k, struct chex_error *why) {
    if (!same_attributes(c, k)) {
        chex_error_set(why, CHEX_E_DATA, "%s: its attributes differ from those of this run",
                       k->path);
        return false;
    }
    for (size_t i = 0; i < k->layout->row_count; i++) {
        const char *field = differing_field(c, k, i);
        if (!field)
            continue;
        chex_error_set(why, CHEX_E_DATA, "%s: row %zu: the %s of %s differs from the label file",
                       k->path, i, field, c->table->rows[k->layout->rows[i]].image_id);
        return false;
    }
    return true;
}

/* ---- a batch ---- */

/* Counts a damaged shard and removes its file. */
static enum chex_status drop(struct check *k, struct kept *kept, const struct chex_error *why,
                             struct chex_error *err) {
    chex_shard_close(kept->shard);
    kept->shard = NULL;
    if (k->damaged++ == 0)
        snprintf(k->first, sizeof k->first, "%s", why->text);
    if (unlink(kept->path) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", kept->path);
    return CHEX_OK;
}

static enum chex_status check_rows(struct check *k, struct kept *kept, struct chex_error *err) {
    struct chex_error why = {0};
    enum chex_status st = chex_shard_open(kept->path, &kept->shard, &why);
    if (st == CHEX_OK)
        return same_rows(k->c, kept, &why) ? CHEX_OK : drop(k, kept, &why, err);
    return st == CHEX_E_DATA ? drop(k, kept, &why, err) : chex_error_set(err, st, "%s", why.text);
}

static enum chex_status check_pixels(struct check *k, struct kept *batch, size_t count,
                                     struct chex_error *err) {
    struct chex_shard *shards[BATCH];
    struct kept *of[BATCH];
    struct chex_pixel_fault faults[BATCH] = {0};
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!batch[i].shard)
            continue;
        of[n] = &batch[i];
        shards[n++] = batch[i].shard;
    }
    enum chex_status st = CHEX_OK;
    if (n)
        st = chex_pixels_check(shards, n, k->c->o->workers, k->progress, k->rows_done, faults, err);
    for (size_t i = 0; st == CHEX_OK && i < n; i++)
        if (faults[i].rows)
            st = drop(k, of[i], &faults[i].first, err);
    return st;
}

static enum chex_status check_batch(struct check *k, struct kept *batch, size_t count,
                                    struct chex_error *err) {
    enum chex_status st = CHEX_OK;
    for (size_t i = 0; st == CHEX_OK && i < count; i++)
        st = check_rows(k, &batch[i], err);
    if (st == CHEX_OK)
        st = check_pixels(k, batch, count, err);
    for (size_t i = 0; i < count; i++) {
        k->rows_done += batch[i].layout->row_count;
        chex_shard_close(batch[i].shard);
        batch[i].shard = NULL;
    }
    chex_progress_set(k->progress, k->rows_done, NULL);
    return st;
}

/* Lists the finished shards of this rank that are not trusted, and counts their rows. */
static enum chex_status list_kept(struct check *k, size_t *rows_out, struct chex_error *err) {
    const struct chex_create *c = k->c;
    const size_t all = c->layout->shard_count, size = (size_t)c->group->size;
    *rows_out = 0;
    if (!(k->kept = chex_alloc_zeroed(all, sizeof *k->kept)))
        return chex_error_memory(err, "the list of finished shards");
    for (size_t s = (size_t)c->group->rank; s < all; s += size) {
        char *path = chex_create_shard_path(c, &c->layout->shards[s]);
        if (!path)
            return chex_error_memory(err, "the list of finished shards");
        if (!chex_fs_exists(path) || is_trusted(c, path)) {
            free(path);
            continue;
        }
        k->kept[k->count++] = (struct kept){.layout = &c->layout->shards[s], .path = path};
        *rows_out += c->layout->shards[s].row_count;
    }
    return CHEX_OK;
}

static enum chex_status check_all(struct check *k, struct chex_error *err) {
    size_t rows = 0;
    CHEX_TRY(list_kept(k, &rows, err));
    if (!k->count)
        return CHEX_OK;
    k->progress =
        chex_progress_create("checking finished shards", "img", rows, k->c->group->rank == 0);
    enum chex_status st = CHEX_OK;
    for (size_t at = 0; st == CHEX_OK && at < k->count; at += BATCH)
        st = check_batch(k, k->kept + at, k->count - at < BATCH ? k->count - at : BATCH, err);
    chex_progress_destroy(k->progress, st == CHEX_OK);
    if (st == CHEX_OK && k->damaged)
        chex_warn(
            "--resume: %zu of %zu finished shards are damaged and will be built again, the first: "
            "%s",
            k->damaged, k->count, k->first);
    return st;
}

enum chex_status chex_create_check_kept(struct chex_create *c, struct chex_error *err) {
    struct check k = {.c = c};
    if (!c->o->resume)
        return CHEX_OK;
    enum chex_status st = check_all(&k, err);
    for (size_t i = 0; i < k.count; i++)
        free(k.kept[i].path);
    free(k.kept);
    return st;
}
