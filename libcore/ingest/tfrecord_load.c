/* SPDX-License-Identifier: Apache-2.0
 *
 * TFRecord files as the input of create: makes a label table and a folder from all records. Threads
 * read the files; the table is then filled in the order of files and records, so it does not depend
 * on timing. Images are not kept in memory: the folder stores their offsets.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/pool.h"
#include "ingest/tfrecord.h"
#include "label/image_ids.h"
#include "label/labels_format.h"

/* The column order of training_labels_new.pkl, the label file of Dell's TFRecord writer. */
static const char dell_order[] =
    "Cardiomegaly,Emphysema,Effusion,Hernia,Nodule,Pneumothorax,Atelectasis,Pleural_Thickening,"
    "Mass,Edema,Consolidation,Infiltration,Fibrosis,Pneumonia";

struct row {
    char *name;
    uint64_t offset, bytes; /* of the image */
    int8_t labels[CHEX_CLASS_COUNT];
};

struct file {
    const char *path;
    int64_t modified_ns;
    struct row *rows;
    size_t count, capacity;
};

struct load {
    struct file *files; // (count)
    size_t count;
    int class_of[CHEX_CLASS_COUNT];
};

enum chex_status chex_tfrecord_parse_order(const char *order, int class_out[CHEX_CLASS_COUNT],
                                           struct chex_error *err) {
    bool seen[CHEX_CLASS_COUNT] = {false};
    const char *names = strcmp(order, "dell") == 0 ? dell_order : order;
    size_t count = 0;
    if (strcmp(order, "chexnet") == 0) {
        for (int i = 0; i < CHEX_CLASS_COUNT; i++)
            class_out[i] = i;
        return CHEX_OK;
    }
    for (const char *p = names;; p++) {
        char name[64];
        size_t n = strcspn(p, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        int class = chex_class_find(name);
        if (class < 0)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--label-order '%s': '%s', expected dell, chexnet or these 14 in "
                                  "the records' order: %s",
                                  order, name, dell_order);
        if (seen[class])
            return chex_error_set(err, CHEX_E_USAGE, "--label-order '%s': %s is there twice", order,
                                  name);
        seen[class] = true;
        class_out[count++] = class;
        p += n;
        if (!*p)
            break;
    }
    if (count != CHEX_CLASS_COUNT)
        return chex_error_set(err, CHEX_E_USAGE, "--label-order '%s': %zu names, expected %d",
                              order, count, CHEX_CLASS_COUNT);
    return CHEX_OK;
}

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "the list of records");
}

static enum chex_status add_row(struct file *f, const struct chex_tfrecord_example *e,
                                uint64_t offset, const int *class_of, struct chex_error *err) {
    if (!chex_alloc_grow(&f->rows, f->count, &f->capacity, sizeof *f->rows))
        return no_memory(err);
    struct row *row = &f->rows[f->count];
    if (!(row->name = strndup(e->name, e->name_bytes)))
        return no_memory(err);
    row->offset = offset;
    row->bytes = e->image_bytes;
    for (int i = 0; i < CHEX_CLASS_COUNT; i++)
        row->labels[class_of[i]] = e->labels[i];
    f->count++;
    return CHEX_OK;
}

static enum chex_status read_file(void *arg, size_t item, int worker, struct chex_error *err) {
    const struct load *l = arg;
    struct file *f = &l->files[item];
    (void)worker;
    CHEX_AUTO(chex_tfrecord_close_at) struct chex_tfrecord *r = NULL;
    struct chex_tfrecord_example e;
    struct stat info;
    CHEX_TRY(chex_tfrecord_open(f->path, &r, err));
    if (stat(f->path, &info) == 0)
        f->modified_ns = chex_fs_modified_ns(&info);
    for (;;) {
        const uint8_t *data = NULL;
        size_t bytes = 0;
        uint64_t at = 0;
        CHEX_TRY(chex_tfrecord_next(r, &data, &bytes, &at, err));
        if (!data)
            return CHEX_OK;
        enum chex_status st = chex_tfrecord_parse(data, bytes, &e, err);
        if (st != CHEX_OK)
            return chex_error_prefix(err, st, "%s: record %zu at byte %llu", f->path, f->count + 1,
                                     (unsigned long long)(at - CHEX_TFRECORD_HEAD_BYTES));
        CHEX_TRY(add_row(f, &e, at + (uint64_t)(e.image - data), l->class_of, err));
    }
}

/* The file and the record number of row `at` of the table. */
static const struct file *file_of(const struct load *l, size_t at, size_t *record_out) {
    size_t i = 0;
    while (at >= l->files[i].count)
        at -= l->files[i++].count;
    *record_out = at + 1;
    return &l->files[i];
}

/* CHEX_E_DATA with both records if an image occurs twice. */
static enum chex_status check_unique(const struct load *l, const struct chex_label_table *t,
                                     struct chex_error *err) {
    CHEX_AUTO(chex_label_map_release) struct chex_label_map rows = {0};
    for (size_t r = 0, first, a, b; r < t->count; r++) {
        CHEX_TRY(chex_label_map_add(&rows, t->rows[r].image_id, r, &first, err));
        if (first == r)
            continue;
        const struct file *fa = file_of(l, r, &a), *fb = file_of(l, first, &b);
        return chex_error_data(
            err, "%s: record %zu: image '%s' is record %zu of %s already, expected each image once",
            fa->path, a, t->rows[r].image_id, b, fb->path);
    }
    return CHEX_OK;
}

/* Writes the rows as a CheXNet list to table->text. The source digest covers this text. */
static enum chex_status write_text(const struct load *l, struct chex_label_table *t,
                                   struct chex_error *err) {
    size_t size = 0;
    FILE *f = open_memstream(&t->text, &size);
    for (size_t i = 0; f && i < l->count; i++)
        for (const struct row *r = l->files[i].rows; r < l->files[i].rows + l->files[i].count;
             r++) {
            fputs(r->name, f);
            for (int c = 0; c < CHEX_CLASS_COUNT; c++)
                fprintf(f, " %d", r->labels[c]);
            fputc('\n', f);
        }
    return f && fclose(f) == 0 ? CHEX_OK : no_memory(err);
}

static enum chex_status fill_table(const struct load *l, const char *order,
                                   struct chex_label_table *t, struct chex_error *err) {
    t->format = "tfrecord";
    snprintf(t->detected, sizeof t->detected, "%zu TFRecord files, labels in %s", l->count,
             strcmp(order, "dell") == 0      ? "Dell's order"
             : strcmp(order, "chexnet") == 0 ? "the order of the CheXNet lists"
                                             : "the order given");
    for (size_t i = 0; i < l->count; i++)
        for (size_t k = 0; k < l->files[i].count; k++) {
            const struct row *from = &l->files[i].rows[k];
            struct chex_label_row *row;
            int8_t *labels;
            const char *name = chex_labels_copy(t, from->name, strlen(from->name));
            if (!name)
                return no_memory(err);
            CHEX_TRY(chex_labels_add_row(t, t->count + 1, &row, &labels, err));
            CHEX_TRY(chex_labels_set_image(t, row, name, 1, err));
            memcpy(labels, from->labels, sizeof from->labels);
        }
    if (t->count == 0)
        return chex_error_data(err, "%s: no records, expected at least one image", t->path);
    bool repeats = false;
    CHEX_TRY(chex_image_ids_qualify(t, &repeats, err));
    if (repeats)
        CHEX_TRY(check_unique(l, t, err));
    CHEX_TRY(write_text(l, t, err));
    return chex_labels_finish(t, err);
}

static enum chex_status fill_folder(const struct load *l, struct chex_folder *folder,
                                    struct chex_error *err) {
    for (size_t i = 0; i < l->count; i++) {
        const struct file *f = &l->files[i];
        const struct chex_container *container = NULL;
        CHEX_TRY(chex_folder_add_container(folder, f->path, &container, err));
        for (size_t k = 0; k < f->count; k++) {
            struct chex_folder_file image = {.bytes = f->rows[k].bytes,
                                             .modified_ns = f->modified_ns,
                                             .container = container,
                                             .offset = f->rows[k].offset};
            CHEX_TRY(chex_folder_add(folder, &image, f->path, f->rows[k].name, err));
        }
    }
    chex_folder_sort(folder);
    return CHEX_OK;
}

static void release(struct load *l) {
    for (size_t i = 0; l->files && i < l->count; i++) {
        for (size_t k = 0; k < l->files[i].count; k++)
            free(l->files[i].rows[k].name);
        free(l->files[i].rows);
    }
    free(l->files);
}

enum chex_status chex_tfrecord_load(const char *const *paths, size_t path_count, const char *order,
                                    int threads, struct chex_label_table **table_out,
                                    struct chex_folder **folder_out, struct chex_error *err) {
    CHEX_AUTO(release) struct load l = {.count = path_count};
    CHEX_AUTO(chex_labels_free_at) struct chex_label_table *table = NULL;
    CHEX_AUTO(chex_folder_close_at) struct chex_folder *folder = NULL;
    CHEX_TRY(chex_tfrecord_parse_order(order, l.class_of, err));
    if (!(l.files = chex_alloc_zeroed(path_count, sizeof *l.files)))
        return no_memory(err);
    for (size_t i = 0; i < path_count; i++)
        l.files[i].path = paths[i];
    CHEX_TRY(chex_pool_try(threads, path_count, read_file, &l, err));
    CHEX_TRY(chex_labels_new(paths[0], &table, err));
    CHEX_TRY(fill_table(&l, order, table, err));
    CHEX_TRY(chex_folder_create(&folder, err));
    CHEX_TRY(fill_folder(&l, folder, err));
    *table_out = CHEX_TAKE(table);
    *folder_out = CHEX_TAKE(folder);
    return CHEX_OK;
}
