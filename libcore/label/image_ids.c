/* SPDX-License-Identifier: Apache-2.0
 *
 * Unique ids for images with equal file names, and the search for rows by such ids (image_ids.h).
 *
 * Problem: exports by patient and study repeat names such as "1.png". Label file, lists and image
 * folder may also state paths from different roots: "a/b/1.png" and "export/a/b/1.png".
 *
 * Idea: rows with equal names get their paths as ids. Two paths are the same image if one ends in
 * the other at a '/'. The ids are sorted by their reversed text, so that all ids with the same tail
 * are neighbours. A binary search then finds the first one, and its neighbour shows if the tail is
 * ambiguous.
 */
#include "label/image_ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "label/labels_format.h"
#include "label/labels_map.h"

/* True if the id is the file name. Ids of CheXpert are already made of the path. */
static bool is_plain(const struct chex_label_row *row) {
    return strcmp(chex_fs_name(row->path), row->image_id) == 0;
}

static bool is_path(const struct chex_label_row *row) { return strchr(row->image_id, '/') != NULL; }

/* ---- ids ---- */

/* Returns the path without empty and "." parts, allocated; NULL if out of memory. */
static char *plain_path(const char *path) {
    char *out = malloc(strlen(path) + 1);
    size_t length = 0;
    for (const char *p = path; out && *p;) {
        size_t n = strcspn(p, "/");
        if (n && !(n == 1 && *p == '.')) {
            if (length)
                out[length++] = '/';
            memcpy(out + length, p, n);
            length += n;
        }
        p += n + (p[n] == '/');
    }
    if (out)
        out[length] = '\0';
    return out;
}

/* Marks the rows that share a file name with another row. */
static enum chex_status mark_repeated(const struct chex_label_table *t, bool *marks,
                                      bool *repeats_out, struct chex_error *err) {
    CHEX_AUTO(chex_label_map_release) struct chex_label_map map = {0};
    *repeats_out = false;
    for (size_t i = 0, first; i < t->count; i++) {
        CHEX_TRY(chex_label_map_add(&map, t->rows[i].image_id, i, &first, err));
        if (first != i)
            *repeats_out = marks[i] = marks[first] = true;
    }
    return CHEX_OK;
}

static enum chex_status normalize_path(struct chex_label_table *t, struct chex_label_row *row,
                                       struct chex_error *err) {
    CHEX_AUTO_FREE char *plain = plain_path(row->path);
    const char *copy = plain ? chex_labels_copy(t, plain, strlen(plain)) : NULL;
    if (!copy)
        return chex_error_memory(err, "%s", t->path);
    row->path = copy;
    return CHEX_OK;
}

static enum chex_status use_path_as_id(struct chex_label_table *t, struct chex_label_row *row,
                                       struct chex_error *err) {
    CHEX_TRY(normalize_path(t, row, err));
    if (strlen(row->path) > CHEX_IMAGE_ID_MAX_BYTES)
        return chex_error_data(err,
                               "%s: line %zu: the path of image '%.60s...' has %zu bytes, expected "
                               "%d at most if file names repeat",
                               t->rows_path, row->line, row->path, strlen(row->path),
                               (int)CHEX_IMAGE_ID_MAX_BYTES);
    row->image_id = row->path;
    return CHEX_OK;
}

/* A row without folders may be the same image as another row with its file name. Gives both rows
 * the same id, so that chex_labels_finish() refuses them as duplicates. */
static void share_bare_name(struct chex_label_table *t, size_t bare) {
    const char *name = t->rows[bare].image_id;
    for (size_t i = 0; i < t->count; i++)
        if (i != bare && strcmp(chex_fs_name(t->rows[i].path), name) == 0) {
            t->rows[i].image_id = name;
            return;
        }
}

/* ---- patients that are not stated ---- */

/* Returns the length of the folders that both paths begin with, at most `limit`. */
static size_t shared_folders(const char *a, const char *b, size_t limit) {
    size_t shared = 0;
    for (size_t i = 0; i < limit && a[i] && a[i] == b[i]; i++)
        if (a[i] == '/')
            shared = i + 1;
    return shared;
}

/* Sets the patients that the label file does not state. Paths begin at the root of an export. The
 * first folder in which paths differ is the patient or a group of patients. So images of one
 * patient never get two patient ids, and cannot end up in two splits. */
static enum chex_status patients_from_folders(struct chex_label_table *t, struct chex_error *err) {
    const char *first = NULL;
    size_t shared = 0, changed = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct chex_label_row *row = &t->rows[i];
        if (!row->patient_guessed || !strchr(row->path, '/'))
            continue;
        CHEX_TRY(normalize_path(t, row, err));
        if (!first && strchr(row->path, '/')) {
            first = row->path;
            shared = (size_t)(strrchr(first, '/') + 1 - first);
        }
        shared = first ? shared_folders(first, row->path, shared) : 0;
    }
    for (size_t i = 0; first && i < t->count; i++) {
        struct chex_label_row *row = &t->rows[i];
        const char *from = row->path + shared;
        if (!row->patient_guessed || !strchr(row->path, '/') || !strchr(from, '/'))
            continue; /* no folder: the patient guessed from the file name stays */
        if (!(row->patient_id = chex_labels_copy(t, from, strcspn(from, "/"))))
            return chex_error_memory(err, "%s", t->path);
        changed++;
    }
    if (changed && !t->warning[0])
        snprintf(t->warning, sizeof t->warning,
                 "file names repeat and no column states the patients: the patients of %zu images "
                 "are taken from the first folders in which their paths differ",
                 changed);
    return CHEX_OK;
}

enum chex_status chex_image_ids_qualify(struct chex_label_table *t, bool *repeats_out,
                                        struct chex_error *err) {
    CHEX_AUTO_FREE bool *marks = chex_alloc_zeroed(t->count, sizeof *marks);
    if (!marks)
        return chex_error_memory(err, "%s", t->path);
    bool any = false;
    CHEX_TRY(mark_repeated(t, marks, repeats_out, err));
    for (size_t i = 0; *repeats_out && i < t->count; i++) {
        struct chex_label_row *row = &t->rows[i];
        if (!marks[i] || !is_plain(row))
            continue;
        CHEX_TRY(use_path_as_id(t, row, err));
        any = true;
    }
    for (size_t i = 0; any && i < t->count; i++)
        if (marks[i] && is_plain(&t->rows[i])) {
            share_bare_name(t, i);
            break; /* one pair of equal ids is enough for the refusal */
        }
    return any ? patients_from_folders(t, err) : CHEX_OK;
}

/* ---- finding rows ---- */

struct chex_image_ids {
    const struct chex_label_table *table;
    struct chex_label_map map; /* rows by id */
    size_t *paths;             // (path_count) rows whose ids are paths, in the order of by_end()
    size_t path_count;
};

/* Returns 0 if the path is `tail` or ends in it after a '/'. Otherwise orders as
 * chex_text_compare_ends(). */
static int tail_order(const char *path, const char *tail) {
    size_t m = strlen(path), n = strlen(tail);
    while (m && n && path[m - 1] == tail[n - 1])
        m--, n--;
    if (!n && (!m || path[m - 1] == '/'))
        return 0;
    char expected = n ? tail[n - 1] : '/';
    return m ? (path[m - 1] > expected ? 1 : -1) : -1;
}

static int by_end(const void *a, const void *b, void *arg) {
    const struct chex_label_row *rows = arg;
    return chex_text_compare_ends(rows[*(const size_t *)a].image_id,
                                  rows[*(const size_t *)b].image_id);
}

static enum chex_status list_paths(struct chex_image_ids *ids, struct chex_error *err) {
    const struct chex_label_table *t = ids->table;
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += is_path(&t->rows[i]);
    if (!count)
        return CHEX_OK;
    if (!(ids->paths = chex_alloc_zeroed(count, sizeof *ids->paths)))
        return chex_error_memory(err, "%s", t->path);
    for (size_t i = 0; i < t->count; i++)
        if (is_path(&t->rows[i]))
            ids->paths[ids->path_count++] = i;
    qsort_r(ids->paths, count, sizeof *ids->paths, by_end, t->rows);
    return CHEX_OK;
}

enum chex_status chex_image_ids_create(const struct chex_label_table *table,
                                       struct chex_image_ids **ids_out, struct chex_error *err) {
    CHEX_AUTO(chex_image_ids_destroy_at) struct chex_image_ids *ids = calloc(1, sizeof *ids);
    if (!ids)
        return chex_error_memory(err, "%s", table->path);
    ids->table = table;
    CHEX_TRY(chex_labels_index(table, &ids->map, err));
    CHEX_TRY(list_paths(ids, err));
    *ids_out = CHEX_TAKE(ids);
    return CHEX_OK;
}

void chex_image_ids_destroy(struct chex_image_ids *ids) {
    if (!ids)
        return;
    chex_label_map_release(&ids->map);
    free(ids->paths);
    free(ids);
}

static const struct chex_label_row *by_id(const struct chex_image_ids *ids, const char *id) {
    size_t row = chex_label_map_find(&ids->map, id);
    return row == SIZE_MAX ? NULL : &ids->table->rows[row];
}

/* Returns the first row with an id that is `tail` or ends in it. *rival_out: a second one, or NULL.
 */
static const struct chex_label_row *by_tail(const struct chex_image_ids *ids, const char *tail,
                                            const struct chex_label_row **rival_out) {
    const struct chex_label_row *rows = ids->table->rows;
    size_t low = 0, high = ids->path_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (tail_order(rows[ids->paths[mid]].image_id, tail) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    const struct chex_label_row *found[2] = {NULL, NULL};
    for (size_t i = 0; i < 2 && low + i < ids->path_count; i++)
        if (tail_order(rows[ids->paths[low + i]].image_id, tail) == 0)
            found[i] = &rows[ids->paths[low + i]];
    *rival_out = found[1];
    return found[0];
}

/* Returns the row with an id that is the end of `path` and has folders. */
static const struct chex_label_row *by_longer_path(const struct chex_image_ids *ids,
                                                   const char *path) {
    for (const char *p = strchr(path, '/'); p && strchr(p + 1, '/'); p = strchr(p + 1, '/')) {
        const struct chex_label_row *row = by_id(ids, p + 1);
        if (row)
            return row;
    }
    return NULL;
}

/* True if one of the two paths ends in the other one. */
static bool paths_match(const char *a, const char *b) {
    return strlen(a) >= strlen(b) ? tail_order(a, b) == 0 : tail_order(b, a) == 0;
}

static const struct chex_label_row *find_path(const struct chex_image_ids *ids, const char *path,
                                              const struct chex_label_row **rival_out) {
    const struct chex_label_row *row = by_id(ids, path);
    if (!row)
        row = by_tail(ids, path, rival_out);
    return row ? row : by_longer_path(ids, path);
}

const struct chex_label_row *chex_image_ids_find(const struct chex_image_ids *ids,
                                                 const struct chex_label_row *named,
                                                 const struct chex_label_row **rival_out) {
    const struct chex_label_row *row = NULL;
    *rival_out = NULL;
    if (!is_plain(named) && !is_path(named))
        return by_id(ids, named->image_id);
    if (ids->path_count) {
        CHEX_AUTO_FREE char *plain = plain_path(named->path);
        row = plain ? find_path(ids, plain, rival_out) : NULL;
    }
    if (row)
        return row;
    row = by_id(ids, chex_fs_name(named->path));
    return row && is_path(named) && !paths_match(row->path, named->path) ? NULL : row;
}
