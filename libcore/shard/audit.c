/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares two sides (audit.h). The names of both are sorted and merged, once for images and once
 * for patients. A side owns the set, shard or label table that it was read from, and borrows its
 * names and labels.
 */
#include "shard/audit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "label/image_ids.h"
#include "label/labels.h"
#include "shard/manifest.h"
#include "shard/shard.h"

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "audit");
}

/* ---- comparing ---- */

struct named {
    const char *name;
    size_t row;
};

static int by_name(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->row > y->row) - (x->row < y->row);
}

static struct named *sorted(const struct chex_audit_side *s, bool patients) {
    struct named *names = chex_alloc_zeroed(s->count, sizeof *names);
    for (size_t i = 0; names && i < s->count; i++)
        names[i] = (struct named){patients ? s->rows[i].patient : s->rows[i].image, i};
    if (names && s->count)
        qsort(names, s->count, sizeof *names, by_name);
    return names;
}

struct overlap {
    size_t distinct_a, distinct_b, shared, rows_a, rows_b; // rows: of the shared names
    const char *first;
};

static size_t run_end(const struct named *names, size_t count, size_t from) {
    size_t to = from;
    while (to < count && !strcmp(names[to].name, names[from].name))
        to++;
    return to;
}

static void mark(bool *marks, const struct named *names, size_t from, size_t to) {
    for (; marks && from < to; from++)
        marks[names[from].row] = true;
}

/* Merges two sorted lists and counts shared names. Marks their rows in marks_a and marks_b (NULL
 * allowed). */
static struct overlap merge(const struct named *a, size_t na, const struct named *b, size_t nb,
                            bool *marks_a, bool *marks_b) {
    struct overlap o = {0};
    for (size_t i = 0, j = 0; i < na || j < nb;) {
        int order = i == na ? 1 : j == nb ? -1 : strcmp(a[i].name, b[j].name);
        size_t ie = order <= 0 ? run_end(a, na, i) : i, je = order >= 0 ? run_end(b, nb, j) : j;
        o.distinct_a += order <= 0;
        o.distinct_b += order >= 0;
        if (order == 0) {
            if (!o.shared++)
                o.first = a[i].name;
            o.rows_a += ie - i;
            o.rows_b += je - j;
            mark(marks_a, a, i, ie);
            mark(marks_b, b, j, je);
        }
        i = ie;
        j = je;
    }
    return o;
}

static enum chex_status compare_names(const struct chex_audit_side *a,
                                      const struct chex_audit_side *b, bool patients, bool *marks_a,
                                      bool *marks_b, struct overlap *out, struct chex_error *err) {
    CHEX_AUTO_FREE struct named *x = sorted(a, patients), *y = sorted(b, patients);
    if (!x || !y)
        return no_memory(err);
    *out = merge(x, a->count, y, b->count, marks_a, marks_b);
    return CHEX_OK;
}

/* Counts the positives of one class in all rows and in the marked rows. */
static void count_positives(const struct chex_audit_side *s, size_t class, const bool *marks,
                            size_t *all_out, size_t *marked_out) {
    for (size_t i = 0; i < s->count; i++) {
        bool positive = s->rows[i].labels && s->rows[i].labels[class] == 1;
        *all_out += positive;
        *marked_out += positive && marks[i];
    }
}

static enum chex_status compare_classes(const struct chex_audit_side *a,
                                        const struct chex_audit_side *b, const bool *marks_a,
                                        const bool *marks_b, struct chex_audit *audit,
                                        struct chex_error *err) {
    if (!a->class_count || !b->class_count)
        return CHEX_OK;
    if (!(audit->classes = chex_alloc_zeroed(a->class_count, sizeof *audit->classes)))
        return no_memory(err);
    for (size_t c = 0; c < a->class_count; c++)
        for (size_t d = 0; d < b->class_count; d++) {
            if (strcmp(a->class_names[c], b->class_names[d]) != 0)
                continue;
            struct chex_audit_class *k = &audit->classes[audit->class_count++];
            k->name = a->class_names[c];
            count_positives(a, c, marks_a, &k->positives_a, &k->shared_a);
            count_positives(b, d, marks_b, &k->positives_b, &k->shared_b);
            break;
        }
    return CHEX_OK;
}

enum chex_status chex_audit_compare(const struct chex_audit_side *a,
                                    const struct chex_audit_side *b, struct chex_audit *out,
                                    struct chex_error *err) {
    CHEX_AUTO_FREE bool *marks_a = chex_alloc_zeroed(a->count, sizeof *marks_a);
    CHEX_AUTO_FREE bool *marks_b = chex_alloc_zeroed(b->count, sizeof *marks_b);
    struct overlap images = {0}, patients = {0};
    *out = (struct chex_audit){0};
    if (!marks_a || !marks_b)
        return no_memory(err);
    CHEX_TRY(compare_names(a, b, false, NULL, NULL, &images, err));
    CHEX_TRY(compare_names(a, b, true, marks_a, marks_b, &patients, err));
    *out = (struct chex_audit){.images_a = images.distinct_a,
                               .images_b = images.distinct_b,
                               .patients_a = patients.distinct_a,
                               .patients_b = patients.distinct_b,
                               .shared_images = images.shared,
                               .shared_patients = patients.shared,
                               .shared_patient_images_a = patients.rows_a,
                               .shared_patient_images_b = patients.rows_b,
                               .first_image = images.first,
                               .first_patient = patients.first};
    return compare_classes(a, b, marks_a, marks_b, out, err);
}

/* ---- the sides ---- */

struct side {
    struct chex_set *sets[CHEX_SPLIT_COUNT];
    struct chex_shard *shard;
    struct chex_label_table *table;
    struct chex_audit_row *rows;
    size_t count, capacity;
    const char *const *class_names;
    const char **own_names; /* class_names, if no other object owns the list; else NULL */
    size_t class_count;
};

struct chex_audit_inputs {
    struct chex_label_table *table; /* of the label file for lists; NULL without one */
    struct chex_image_ids *ids;
    struct side side[2];
};

void chex_audit_release(struct chex_audit *audit) {
    struct chex_audit_inputs *in = audit->inputs;
    for (int k = 0; in && k < 2; k++) {
        struct side *s = &in->side[k];
        chex_sets_close(&s->sets);
        chex_shard_close(s->shard);
        chex_labels_free(s->table);
        free(s->rows);
        free(s->own_names);
    }
    if (in) {
        chex_image_ids_destroy(in->ids);
        chex_labels_free(in->table);
    }
    free(in);
    free(audit->classes);
    *audit = (struct chex_audit){0};
}

static enum chex_status add(struct side *s, struct chex_audit_row row, struct chex_error *err) {
    if (!chex_alloc_grow(&s->rows, s->count, &s->capacity, sizeof *s->rows))
        return no_memory(err);
    s->rows[s->count++] = row;
    return CHEX_OK;
}

/* The classes of the side are those of its first shard. All shards of a set have the same ones. */
static enum chex_status name_classes(struct side *side, const struct chex_shard *s,
                                     struct chex_error *err) {
    if (side->class_names)
        return CHEX_OK;
    side->class_count = (size_t)chex_shard_classes(s);
    if (!(side->own_names = chex_alloc_zeroed(side->class_count, sizeof *side->own_names)))
        return no_memory(err);
    for (size_t c = 0; c < side->class_count; c++)
        side->own_names[c] = chex_shard_class(s, (int)c);
    side->class_names = side->own_names;
    return CHEX_OK;
}

static enum chex_status add_shard(struct side *side, const struct chex_shard *s,
                                  struct chex_error *err) {
    CHEX_TRY(name_classes(side, s, err));
    for (size_t i = 0; i < chex_shard_rows(s); i++)
        CHEX_TRY(add(side,
                     (struct chex_audit_row){chex_shard_image_id(s, i), chex_shard_patient_id(s, i),
                                             chex_shard_labels(s, i)},
                     err));
    return CHEX_OK;
}

static enum chex_status open_split(struct side *side, const char *dir, enum chex_split split,
                                   struct chex_error *err) {
    CHEX_TRY(chex_set_open(dir, split, 0, SIZE_MAX, &side->sets[split], err));
    for (size_t i = 0; i < side->sets[split]->shard_count; i++)
        CHEX_TRY(add_shard(side, side->sets[split]->shards[i], err));
    return CHEX_OK;
}

static enum chex_status open_set(struct side *side, const char *dir, struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (m->splits[s].shard_count)
            CHEX_TRY(open_split(side, dir, (enum chex_split)s, err));
    return CHEX_OK;
}

/* Adds the rows of a list of names, with patients and labels from the label file. */
static enum chex_status add_names(const struct chex_audit_inputs *in, struct side *side,
                                  const char *path, struct chex_error *err) {
    const struct chex_label_table *names = side->table;
    for (size_t i = 0; i < names->count; i++) {
        const char *id = names->rows[i].image_id;
        const struct chex_label_row *rival;
        const struct chex_label_row *row = chex_image_ids_find(in->ids, &names->rows[i], &rival);
        if (rival)
            return chex_error_data(err, "%s: line %zu: " CHEX_IMAGE_IDS_RIVALS, path,
                                   names->rows[i].line, id, row->image_id, rival->image_id);
        if (!row)
            return chex_error_data(err, "%s: line %zu, column 1: '%s', expected an image of %s",
                                   path, names->rows[i].line, id, in->table->path);
        CHEX_TRY(
            add(side, (struct chex_audit_row){row->image_id, row->patient_id, row->labels}, err));
    }
    side->class_names = in->table->classes;
    side->class_count = in->table->class_count;
    return CHEX_OK;
}

static enum chex_status add_table(struct side *side, struct chex_error *err) {
    const struct chex_label_table *t = side->table;
    for (size_t i = 0; i < t->count; i++)
        CHEX_TRY(add(
            side,
            (struct chex_audit_row){t->rows[i].image_id, t->rows[i].patient_id, t->rows[i].labels},
            err));
    side->class_names = t->classes;
    side->class_count = t->class_count;
    return CHEX_OK;
}

/* Loads a label file. --columns applies to plain CSV only, and the other side may have a format
 * that its header identifies. So if loading with columns fails, it is tried without them. A plain
 * CSV file without the named columns stays an error. */
static enum chex_status load_labels(const struct chex_audit_labels *l, const char *path,
                                    struct chex_label_table **table_out, struct chex_error *err) {
    CHEX_AUTO(chex_labels_free_at) struct chex_label_table *table = NULL;
    enum chex_status st = chex_labels_load(path, l->format, l->columns, table_out, err);
    if (st != CHEX_E_DATA || !l->columns ||
        chex_labels_load(path, l->format, NULL, &table, NULL) != CHEX_OK ||
        strcmp(table->format, "csv") == 0)
        return st;
    *table_out = CHEX_TAKE(table);
    return CHEX_OK;
}

/* Loads a list of names. A first line with a comma is the header of a table, not a name. */
static bool load_names(const char *path, struct chex_label_table **table_out) {
    CHEX_AUTO(chex_labels_free_at) struct chex_label_table *table = NULL;
    if (chex_labels_load_names(path, &table, NULL) != CHEX_OK ||
        (table->count && strchr(table->rows[0].image_id, ',')))
        return false;
    *table_out = CHEX_TAKE(table);
    return true;
}

/* Reads a list of names or a label file. With a label file for lists, a list is tried first;
 * without, a label file is tried first. If both fail, the error is that of the label file. */
static enum chex_status open_text(const struct chex_audit_inputs *in,
                                  const struct chex_audit_labels *l, struct side *side,
                                  const char *path, struct chex_error *err) {
    if (in->table && chex_labels_load_names(path, &side->table, NULL) == CHEX_OK)
        return add_names(in, side, path, err);
    const enum chex_status st = load_labels(l, path, &side->table, err);
    if (st != CHEX_OK && (st != CHEX_E_DATA || !load_names(path, &side->table)))
        return st;
    return add_table(side, err);
}

static bool begins_as_hdf5(const char *path) {
    static const unsigned char magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char head[8] = {0};
    CHEX_AUTO(chex_fs_close_at) int fd = -1;
    return chex_fs_open(path, &fd, NULL, NULL) == CHEX_OK && pread(fd, head, 8, 0) == 8 &&
           memcmp(head, magic, 8) == 0;
}

/* If `path` ends in the name of a split: returns the split's number and the folder above it, which
 * the caller frees. Otherwise -1. */
static int split_folder(const char *path, char **dir_out) {
    CHEX_AUTO_FREE char *copy = strdup(path);
    char *slash = NULL;
    for (size_t n = copy ? strlen(copy) : 0; n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    const char *name = copy && (slash = strrchr(copy, '/')) ? slash + 1 : copy;
    for (int s = 0; name && s < CHEX_SPLIT_COUNT; s++) {
        if (strcmp(name, chex_split_names[s]) != 0)
            continue;
        *dir_out = slash == copy ? strdup("/")
                   : slash       ? strndup(copy, (size_t)(slash - copy))
                                 : strdup(".");
        return *dir_out ? s : -1;
    }
    return -1;
}

static enum chex_status open_side(const struct chex_audit_inputs *in,
                                  const struct chex_audit_labels *labels, struct side *side,
                                  const char *path, struct chex_error *err) {
    if (!chex_fs_exists(path))
        return chex_error_data(err, "%s: no such file or folder", path);
    if (!chex_fs_is_dir(path) && !begins_as_hdf5(path))
        return open_text(in, labels, side, path, err);
    if (!chex_fs_is_dir(path)) {
        CHEX_TRY(chex_shard_open(path, &side->shard, err));
        return add_shard(side, side->shard, err);
    }
    CHEX_AUTO_FREE char *dir = NULL;
    const bool is_set = chex_fs_exists(chex_path(path, CHEX_MANIFEST_NAME).text);
    const int split = is_set ? -1 : split_folder(path, &dir);
    return split < 0 ? open_set(side, path, err)
                     : open_split(side, dir, (enum chex_split)split, err);
}

static struct chex_audit_side borrow(const struct side *s) {
    return (struct chex_audit_side){s->rows, s->count, s->class_names, s->class_count};
}

static enum chex_status run(struct chex_audit_inputs *in, const char *const paths[2],
                            const struct chex_audit_labels *l, struct chex_audit *out,
                            struct chex_error *err) {
    if (l->path) {
        CHEX_TRY(chex_labels_load(l->path, l->format, l->columns, &in->table, err));
        CHEX_TRY(chex_image_ids_create(in->table, &in->ids, err));
    }
    for (int k = 0; k < 2; k++)
        CHEX_TRY(open_side(in, l, &in->side[k], paths[k], err));
    const struct chex_audit_side a = borrow(&in->side[0]), b = borrow(&in->side[1]);
    return chex_audit_compare(&a, &b, out, err);
}

enum chex_status chex_audit_run(const char *a, const char *b,
                                const struct chex_audit_labels *labels,
                                struct chex_audit *audit_out, struct chex_error *err) {
    CHEX_AUTO(chex_audit_release) struct chex_audit audit = {0};
    struct chex_audit_inputs *in = chex_alloc_zeroed(1, sizeof *in);
    if (!in)
        return no_memory(err);
    const enum chex_status st = run(in, (const char *const[]){a, b}, labels, &audit, err);
    audit.inputs = in;
    CHEX_TRY(st);
    *audit_out = audit;
    audit = (struct chex_audit){0};
    return CHEX_OK;
}
