/* SPDX-License-Identifier: Apache-2.0 */
#include "data/verify.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/progress.h"
#include "data/manifest.h"
#include "data/members.h"
#include "data/shard.h"

enum { BLOCK_ROWS = 64 };

/* ---- faults ---- */

void chex_verify_release(struct chex_verify_result *r) {
    for (size_t i = 0; i < r->fault_count; i++) {
        free(r->faults[i].file);
        free(r->faults[i].text);
    }
    free(r->faults);
    r->faults = NULL;
    r->fault_count = 0;
}

static enum chex_status add_fault(struct chex_verify_result *r, const char *file, const char *text,
                                  size_t rows, struct chex_error *err) {
    struct chex_verify_fault *grown = realloc(r->faults, (r->fault_count + 1) * sizeof *r->faults);
    if (!grown)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "verify");
    r->faults = grown;
    struct chex_verify_fault *f = &grown[r->fault_count++];
    *f = (struct chex_verify_fault){
        .file = file ? strdup(file) : NULL, .text = strdup(text), .rows = rows};
    return (f->file || !file) && f->text ? CHEX_OK
                                         : chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "verify");
}

/* A CHEX_E_DATA of the set itself is a fault like others; all else goes on to the caller. */
static enum chex_status take_fault(struct chex_verify_result *r, enum chex_status st,
                                   struct chex_error *err) {
    return st == CHEX_E_DATA ? add_fault(r, NULL, err->text, 0, err) : st;
}

/* ---- pixels ---- */

struct reading_fault { /* of a shard */
    size_t rows, first_row;
    struct chex_error first;
};

/* One row after the other, on all threads. Blocks of rows are the items of the loop. */
struct reading {
    struct chex_shard *const *shards; // (shard_count), none of them NULL
    const size_t *first;              // (shard_count + 1) blocks before each shard
    size_t shard_count;
    uint8_t **rows; // (threads)
    struct chex_progress *progress;
    atomic_size_t done;
    pthread_mutex_t lock;         /* over the rest */
    struct reading_fault *faults; // (shard_count)
    enum chex_status status;      /* of what is no fault of the data */
    struct chex_error err;
};

static void note(struct reading *r, size_t shard, size_t row, enum chex_status status,
                 const struct chex_error *err) {
    pthread_mutex_lock(&r->lock);
    struct reading_fault *f = &r->faults[shard];
    if (status != CHEX_E_DATA && r->status == CHEX_OK) {
        r->status = status;
        r->err = *err;
    }
    if (f->rows++ == 0 || row < f->first_row) {
        f->first_row = row;
        f->first = *err;
    }
    pthread_mutex_unlock(&r->lock);
}

static void read_block(void *arg, size_t item, int worker) {
    struct reading *r = arg;
    size_t s = 0;
    while (r->first[s + 1] <= item)
        s++;
    const struct chex_shard *shard = r->shards[s];
    size_t from = (item - r->first[s]) * BLOCK_ROWS, rows = chex_shard_rows(shard);
    size_t to = from + BLOCK_ROWS < rows ? from + BLOCK_ROWS : rows;
    chex_shard_will_need(shard, to, rows - to < BLOCK_ROWS ? rows - to : BLOCK_ROWS);
    for (size_t i = from; i < to; i++) {
        struct chex_error err = {0};
        enum chex_status st = chex_shard_read(shard, i, 1, true, r->rows[worker], &err);
        if (st != CHEX_OK)
            note(r, s, i, st, &err);
    }
    chex_progress_set(r->progress, atomic_fetch_add(&r->done, to - from) + to - from, NULL);
}

static enum chex_status run_reading(struct reading *r, struct chex_pool *pool, size_t row_bytes,
                                    size_t rows, bool shown, struct chex_error *err) {
    int threads = chex_pool_threads(pool);
    r->rows = chex_mem_zalloc((size_t)threads, sizeof *r->rows);
    bool whole = r->rows != NULL;
    for (int i = 0; whole && i < threads; i++)
        whole = (r->rows[i] = malloc(row_bytes)) != NULL;
    if (whole) {
        r->progress = chex_progress_create("verifying", "img", rows, shown);
        chex_pool_run(pool, r->first[r->shard_count], read_block, r);
        chex_progress_destroy(r->progress, false);
    }
    for (int i = 0; r->rows && i < threads; i++)
        free(r->rows[i]);
    free(r->rows);
    if (!whole)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "verify");
    if (r->status != CHEX_OK)
        return chex_error_set(err, r->status, "%s", r->err.text);
    return CHEX_OK;
}

static enum chex_status report_reading(const struct reading *r, struct chex_verify_result *result,
                                       struct chex_error *err) {
    for (size_t i = 0; i < r->shard_count; i++) {
        struct reading_fault *f = &r->faults[i];
        if (f->rows > 1)
            chex_error_prefix(&f->first, CHEX_E_DATA, "%zu rows are damaged; the first", f->rows);
        if (f->rows)
            CHEX_TRY(add_fault(result, chex_shard_path(r->shards[i]), f->first.text, f->rows, err));
    }
    return CHEX_OK;
}

/* All shards given, at least one, have images of one size. */
static enum chex_status read_shards(struct chex_shard *const *shards, size_t count, int threads,
                                    bool shown, struct chex_verify_result *result,
                                    struct chex_error *err) {
    struct chex_pool *pool = NULL;
    size_t *first = chex_mem_zalloc(count + 1, sizeof *first), rows = 0;
    struct reading r = {.shards = shards, .first = first, .shard_count = count};
    r.faults = chex_mem_zalloc(count, sizeof *r.faults);
    if (!first || !r.faults) {
        free(first);
        free(r.faults);
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "verify");
    }
    for (size_t i = 0; i < count; i++) {
        size_t n = chex_shard_rows(shards[i]);
        first[i + 1] = first[i] + (n + BLOCK_ROWS - 1) / BLOCK_ROWS;
        rows += n;
    }
    pthread_mutex_init(&r.lock, NULL);
    size_t row_bytes = (size_t)chex_shard_size(shards[0]) * (size_t)chex_shard_size(shards[0]);
    enum chex_status st = chex_pool_create(threads, &pool, err);
    if (st == CHEX_OK)
        st = run_reading(&r, pool, row_bytes, rows, shown, err);
    if (st == CHEX_OK)
        st = report_reading(&r, result, err);
    chex_pool_destroy(pool);
    pthread_mutex_destroy(&r.lock);
    free(first);
    free(r.faults);
    result->shards += count;
    result->rows += rows;
    result->bytes += (uint64_t)rows * row_bytes;
    return st;
}

/* ---- the set ---- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Within a shard, opening it has looked. ids (set->rows) is scratch. */
static enum chex_status check_twice(const struct chex_set *set, const char **ids,
                                    struct chex_error *err) {
    for (size_t row = 0; row < set->rows; row++) {
        size_t i;
        const struct chex_shard *s = chex_set_locate(set, row, &i);
        ids[row] = chex_shard_image_id(s, i);
    }
    qsort(ids, set->rows, sizeof *ids, by_text);
    for (size_t i = 1; i < set->rows; i++)
        if (strcmp(ids[i], ids[i - 1]) == 0)
            return chex_error_set(err, CHEX_E_DATA, "%s: image %s is in two shards of split %s",
                                  set->dir, ids[i], chex_split_names[set->split]);
    return CHEX_OK;
}

/* Positives, uncertain labels and patients as the manifest counts them. */
static enum chex_status check_counts(const struct chex_set *set, const struct chex_manifest *m,
                                     struct chex_error *err) {
    const struct chex_manifest_split *split = &m->splits[set->split];
    const char *name = chex_split_names[set->split];
    size_t classes = (size_t)set->classes, patients = 0;
    uint64_t members = 0;
    size_t *counts = chex_mem_zalloc(2 * classes, sizeof *counts);
    const char **ids = chex_mem_zalloc(set->rows, sizeof *ids);
    enum chex_status st =
        counts && ids ? CHEX_OK : chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "verify");
    for (size_t row = 0; st == CHEX_OK && row < set->rows; row++) {
        size_t i;
        const struct chex_shard *s = chex_set_locate(set, row, &i);
        const int8_t *labels = chex_shard_labels(s, i);
        ids[row] = chex_shard_patient_id(s, i);
        for (size_t c = 0; c < classes; c++) {
            counts[c] += labels[c] == 1;
            counts[classes + c] += labels[c] == CHEX_LABEL_UNCERTAIN;
        }
    }
    if (st == CHEX_OK)
        qsort(ids, set->rows, sizeof *ids, by_text);
    for (size_t i = 0; st == CHEX_OK && i < set->rows; i++)
        patients += i == 0 || strcmp(ids[i], ids[i - 1]) != 0;
    if (st == CHEX_OK)
        st = check_twice(set, ids, err);
    for (size_t i = 0; st == CHEX_OK && i < set->shard_count; i++)
        members += chex_members_sum(set->shards[i]);
    if (st == CHEX_OK && split->has_members && members != split->members)
        st = chex_error_set(err, CHEX_E_DATA,
                            "%s: split %s holds other images than the manifest says", set->dir,
                            name);
    if (st == CHEX_OK && patients != split->patients)
        st =
            chex_error_set(err, CHEX_E_DATA, "%s: split %s has %zu patients, the manifest says %zu",
                           set->dir, name, patients, split->patients);
    for (size_t c = 0; st == CHEX_OK && c < classes; c++)
        if (counts[c] != split->positives[c] || counts[classes + c] != split->uncertain[c])
            st = chex_error_set(err, CHEX_E_DATA,
                                "%s: split %s has %zu positive and %zu uncertain of %s, the "
                                "manifest says %zu and %zu",
                                set->dir, name, counts[c], counts[classes + c], m->classes[c],
                                split->positives[c], split->uncertain[c]);
    free(counts);
    free(ids);
    return st;
}

/* A source's ids, and what owns them. */
struct side {
    struct chex_set *sets[CHEX_SPLIT_COUNT];
    struct chex_shard *shard;
    struct chex_label_table *table;
    const char **images, **patients;
    const int8_t **labels;
    const char *const *class_names;
    const char **own_names; /* class_names, where nothing else owns the list */
    size_t count, class_count;
};

static void side_free(struct side *s) {
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++)
        chex_set_close(s->sets[i]);
    chex_shard_close(s->shard);
    chex_labels_free(s->table);
    free(s->images);
    free(s->patients);
    free(s->labels);
    free(s->own_names);
}

static enum chex_status side_room(struct side *s, size_t more, struct chex_error *err) {
    const char **images = realloc(s->images, (s->count + more + 1) * sizeof *images);
    if (images)
        s->images = images;
    const char **patients = realloc(s->patients, (s->count + more + 1) * sizeof *patients);
    if (patients)
        s->patients = patients;
    const int8_t **labels = realloc(s->labels, (s->count + more + 1) * sizeof *labels);
    if (labels)
        s->labels = labels;
    return images && patients && labels ? CHEX_OK
                                        : chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "audit");
}

static void side_put(struct side *s, const char *image, const char *patient, const int8_t *labels) {
    s->images[s->count] = image;
    s->patients[s->count] = patient;
    s->labels[s->count++] = labels;
}

/* The classes of a side are those of its first shard: a set's are all alike. */
static enum chex_status side_classes(struct side *side, const struct chex_shard *s,
                                     struct chex_error *err) {
    if (side->class_names)
        return CHEX_OK;
    size_t n = (size_t)chex_shard_classes(s);
    const char **names = chex_mem_zalloc(n, sizeof *names);
    if (!names)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "audit");
    for (size_t c = 0; c < n; c++)
        names[c] = chex_shard_class(s, (int)c);
    side->class_names = side->own_names = names;
    side->class_count = n;
    return CHEX_OK;
}

static enum chex_status side_shard(struct side *side, const struct chex_shard *s,
                                   struct chex_error *err) {
    CHEX_TRY(side_room(side, chex_shard_rows(s), err));
    CHEX_TRY(side_classes(side, s, err));
    for (size_t i = 0; i < chex_shard_rows(s); i++)
        side_put(side, chex_shard_image_id(s, i), chex_shard_patient_id(s, i),
                 chex_shard_labels(s, i));
    return CHEX_OK;
}

/* The shards of side->sets[split] that are open. */
static enum chex_status side_take(struct side *side, enum chex_split split,
                                  struct chex_error *err) {
    const struct chex_set *set = side->sets[split];
    for (size_t i = 0; i < set->shard_count; i++)
        if (set->shards[i])
            CHEX_TRY(side_shard(side, set->shards[i], err));
    return CHEX_OK;
}

static enum chex_status side_split(struct side *side, const char *dir, enum chex_split split,
                                   struct chex_error *err) {
    CHEX_TRY(chex_set_open(dir, split, 0, SIZE_MAX, &side->sets[split], err));
    return side_take(side, split, err);
}

static struct chex_audit_side borrow(const struct side *s) {
    return (struct chex_audit_side){.image_ids = s->images,
                                    .patient_ids = s->patients,
                                    .count = s->count,
                                    .labels = s->class_count ? s->labels : NULL,
                                    .class_names = s->class_names,
                                    .class_count = s->class_count};
}

/* No patient may be in two splits of a set. */
static enum chex_status check_leaks(const char *dir, struct side sides[CHEX_SPLIT_COUNT],
                                    struct chex_error *err) {
    for (int a = 0; a < CHEX_SPLIT_COUNT; a++)
        for (int b = a + 1; b < CHEX_SPLIT_COUNT; b++) {
            struct chex_audit audit;
            if (!sides[a].count || !sides[b].count)
                continue;
            struct chex_audit_side x = borrow(&sides[a]), y = borrow(&sides[b]);
            CHEX_TRY(chex_split_audit(&x, &y, &audit, err));
            chex_audit_release(&audit);
            if (audit.shared_patients)
                return chex_error_set(err, CHEX_E_DATA,
                                      "%s: %zu patients are in both %s and %s, the first is %s",
                                      dir, audit.shared_patients, chex_split_names[a],
                                      chex_split_names[b], audit.first_patient);
        }
    return CHEX_OK;
}

struct bad_shards {
    struct chex_verify_result *result;
    size_t count; /* of this split */
    enum chex_status status;
};

static void note_shard(void *arg, size_t shard, const char *path, const struct chex_error *why) {
    struct bad_shards *b = arg;
    (void)shard;
    b->count++;
    if (b->status == CHEX_OK)
        b->status = add_fault(b->result, path, why->text, 0, NULL);
}

/* Opens what can be opened of a split; its counts are compared where that is all. */
static enum chex_status open_split(struct side *side, const char *dir, enum chex_split split,
                                   const struct chex_manifest *m, struct chex_verify_result *result,
                                   struct chex_error *err) {
    struct bad_shards bad = {.result = result};
    CHEX_TRY(chex_set_open_sound(dir, split, note_shard, &bad, &side->sets[split], err));
    if (bad.status != CHEX_OK)
        return chex_error_errno(err, bad.status, ENOMEM, "verify");
    CHEX_TRY(side_take(side, split, err));
    return bad.count ? CHEX_OK : take_fault(result, check_counts(side->sets[split], m, err), err);
}

/* The shards that are open, one behind the other, and all pixels of them. */
static enum chex_status read_split(const struct chex_set *set, int threads, bool shown,
                                   struct chex_verify_result *result, struct chex_error *err) {
    size_t n = 0;
    struct chex_shard **open = chex_mem_zalloc(set->shard_count, sizeof(struct chex_shard *));
    if (!open)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "verify");
    for (size_t i = 0; i < set->shard_count; i++)
        if (set->shards[i])
            open[n++] = set->shards[i];
    enum chex_status st = n ? read_shards(open, n, threads, shown, result, err) : CHEX_OK;
    free(open);
    return st;
}

static enum chex_status verify_set(const char *dir, int threads, bool shown,
                                   struct chex_verify_result *result, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    struct side sides[CHEX_SPLIT_COUNT] = {0};
    enum chex_status st = chex_manifest_read(dir, &m, err);
    if (st != CHEX_OK)
        return take_fault(result, st, err);
    for (int s = 0; s < CHEX_SPLIT_COUNT && st == CHEX_OK; s++)
        if (m->splits[s].shard_count)
            st = open_split(&sides[s], dir, (enum chex_split)s, m, result, err);
    if (st == CHEX_OK)
        st = take_fault(result, check_leaks(dir, sides, err), err);
    for (int s = 0; s < CHEX_SPLIT_COUNT && st == CHEX_OK; s++)
        if (sides[s].sets[s])
            st = read_split(sides[s].sets[s], threads, shown, result, err);
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        side_free(&sides[s]);
    chex_manifest_free(m);
    return st;
}

static enum chex_status verify_shard(const char *path, int threads, bool shown,
                                     struct chex_verify_result *result, struct chex_error *err) {
    struct chex_shard *shard = NULL;
    enum chex_status st = chex_shard_open(path, &shard, err);
    if (st == CHEX_E_DATA)
        return add_fault(result, path, err->text, 0, err);
    if (st == CHEX_OK)
        st = read_shards(&shard, 1, threads, shown, result, err);
    chex_shard_close(shard);
    return st;
}

enum chex_status chex_verify(const char *path, int threads, bool show_progress,
                             struct chex_verify_result *result_out, struct chex_error *err) {
    struct chex_error own = {0}; /* faults are made of it */
    struct chex_verify_result r = {0};
    double start = chex_clock_s();
    bool file = chex_fs_exists(path) && !chex_fs_is_dir(path);
    err = err ? err : &own;
    enum chex_status st = file ? verify_shard(path, threads, show_progress, &r, err)
                               : verify_set(path, threads, show_progress, &r, err);
    r.seconds = chex_clock_s() - start;
    *result_out = r;
    if (st != CHEX_OK || !r.fault_count)
        return st;
    if (r.fault_count == 1)
        return chex_error_set(err, CHEX_E_DATA, "%s", r.faults[0].text);
    return chex_error_set(err, CHEX_E_DATA, "%zu faults; the first: %s", r.fault_count,
                          r.faults[0].text);
}

static bool begins_as_hdf5(const char *path) {
    static const unsigned char magic[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    unsigned char head[8] = {0};
    FILE *f = fopen(path, "rb");
    bool yes = f && fread(head, 1, 8, f) == 8 && memcmp(head, magic, 8) == 0;
    if (f)
        fclose(f);
    return yes;
}

struct chex_audit_pair {
    const struct chex_audit_labels *labels; /* while it is being opened */
    struct chex_label_table *table;         /* of labels->path, or NULL */
    struct chex_label_index *index;
    struct side a, b;
    struct chex_audit audit;
};

/* The names of a list with what the label file says of them. */
static enum chex_status side_names(const struct chex_audit_pair *p, struct side *side,
                                   const char *path, struct chex_error *err) {
    const struct chex_label_table *names = side->table;
    for (size_t i = 0; i < names->count; i++) {
        const char *id = names->rows[i].image_id;
        const struct chex_label_row *row = chex_label_index_find(p->index, id);
        if (!row)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: line %zu, column 1: '%s', expected an image of %s", path,
                                  names->rows[i].line, id, p->table->path);
        side_put(side, row->image_id, row->patient_id, row->labels);
    }
    side->class_names = p->table->classes;
    side->class_count = p->table->class_count;
    return CHEX_OK;
}

/* --columns is for plain CSV: the other source may be a file of a kind that is told by its own
 * header. A plain one without the named columns is at fault. */
static enum chex_status side_labels(const struct chex_audit_labels *l, const char *path,
                                    struct chex_label_table **table_out, struct chex_error *err) {
    struct chex_error ignored = {0};
    struct chex_label_table *table = NULL;
    enum chex_status st = chex_labels_load(path, l->format, l->columns, table_out, err);
    if (st != CHEX_E_DATA || !l->columns ||
        chex_labels_load(path, l->format, NULL, &table, &ignored) != CHEX_OK)
        return st;
    if (strcmp(table->format, "csv") == 0) {
        chex_labels_free(table);
        return st;
    }
    *table_out = table;
    return CHEX_OK;
}

/* A list of names alone. A first line with a comma is a table's header, no name. */
static bool is_name_list(const char *path, struct chex_label_table **table_out) {
    struct chex_error ignored = {0};
    struct chex_label_table *table = NULL;
    if (chex_labels_load_names(path, &table, &ignored) != CHEX_OK)
        return false;
    if (table->count && strchr(table->rows[0].image_id, ',')) {
        chex_labels_free(table);
        return false;
    }
    *table_out = table;
    return true;
}

/* A label file of any format, else a list of names; where both fail the label file's fault is
 * told. */
static enum chex_status side_table(const struct chex_audit_pair *p, struct side *side,
                                   const char *path, struct chex_error *err) {
    struct chex_error ignored = {0};
    enum chex_status st = CHEX_E_DATA;
    bool is_list = p->table && chex_labels_load_names(path, &side->table, &ignored) == CHEX_OK;
    if (!is_list) {
        st = side_labels(p->labels, path, &side->table, err);
        if (st == CHEX_E_DATA && is_name_list(path, &side->table))
            st = CHEX_OK;
        CHEX_TRY(st);
    }
    CHEX_TRY(side_room(side, side->table->count, err));
    if (is_list)
        return side_names(p, side, path, err);
    for (size_t i = 0; i < side->table->count; i++)
        side_put(side, side->table->rows[i].image_id, side->table->rows[i].patient_id,
                 side->table->rows[i].labels);
    side->class_names = side->table->classes;
    side->class_count = side->table->class_count;
    return CHEX_OK;
}

static enum chex_status side_set(struct side *side, const char *dir, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    enum chex_status st = CHEX_OK;
    for (int s = 0; s < CHEX_SPLIT_COUNT && st == CHEX_OK; s++)
        if (m->splits[s].shard_count)
            st = side_split(side, dir, (enum chex_split)s, err);
    chex_manifest_free(m);
    return st;
}

/* DIR/train where DIR is a set: the split's number, and the set's folder in fresh memory. */
static int split_folder(const char *path, char **dir_out) {
    char *copy = strdup(path), *slash = NULL;
    for (size_t n = copy ? strlen(copy) : 0; n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    const char *name = copy && (slash = strrchr(copy, '/')) ? slash + 1 : copy;
    for (int s = 0; name && s < CHEX_SPLIT_COUNT; s++) {
        if (strcmp(name, chex_split_names[s]) != 0)
            continue;
        *dir_out = slash == copy ? strdup("/")
                   : slash       ? strndup(copy, (size_t)(slash - copy))
                                 : strdup(".");
        free(copy);
        return *dir_out ? s : -1;
    }
    free(copy);
    return -1;
}

static enum chex_status side_open(const struct chex_audit_pair *p, struct side *side,
                                  const char *path, struct chex_error *err) {
    if (!chex_fs_exists(path))
        return chex_error_set(err, CHEX_E_DATA, "%s: no such file or folder", path);
    if (!chex_fs_is_dir(path) && !begins_as_hdf5(path))
        return side_table(p, side, path, err);
    if (!chex_fs_is_dir(path)) {
        CHEX_TRY(chex_shard_open(path, &side->shard, err));
        return side_shard(side, side->shard, err);
    }
    char *own = chex_fs_join(path, CHEX_MANIFEST_NAME), *dir = NULL;
    bool is_set = own && chex_fs_exists(own);
    free(own);
    int split = is_set ? -1 : split_folder(path, &dir);
    enum chex_status st =
        split < 0 ? side_set(side, path, err) : side_split(side, dir, (enum chex_split)split, err);
    free(dir);
    return st;
}

static enum chex_status open_labels(struct chex_audit_pair *p, struct chex_error *err) {
    const struct chex_audit_labels *l = p->labels;
    if (!l->path)
        return CHEX_OK;
    CHEX_TRY(chex_labels_load(l->path, l->format, l->columns, &p->table, err));
    return chex_label_index_create(p->table, &p->index, err);
}

enum chex_status chex_audit_open(const char *a, const char *b,
                                 const struct chex_audit_labels *labels,
                                 struct chex_audit_pair **pair_out, struct chex_audit *audit_out,
                                 struct chex_error *err) {
    struct chex_audit_pair *p = chex_mem_zalloc(1, sizeof *p);
    if (!p)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "audit");
    p->labels = labels;
    enum chex_status st = open_labels(p, err);
    if (st == CHEX_OK)
        st = side_open(p, &p->a, a, err);
    if (st == CHEX_OK)
        st = side_open(p, &p->b, b, err);
    if (st == CHEX_OK) {
        struct chex_audit_side x = borrow(&p->a), y = borrow(&p->b);
        st = chex_split_audit(&x, &y, &p->audit, err);
    }
    p->labels = NULL;
    if (st != CHEX_OK) {
        chex_audit_close(p);
        return st;
    }
    *pair_out = p;
    *audit_out = p->audit;
    return CHEX_OK;
}

void chex_audit_close(struct chex_audit_pair *p) {
    if (!p)
        return;
    chex_audit_release(&p->audit);
    side_free(&p->a);
    side_free(&p->b);
    chex_label_index_destroy(p->index);
    chex_labels_free(p->table);
    free(p);
}
