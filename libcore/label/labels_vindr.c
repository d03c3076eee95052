/* SPDX-License-Identifier: Apache-2.0
 *
 * Label format of VinDr-CXR, in two forms:
 *   image_labels_train.csv  image_id,rad_id,Aortic enlargement,...: a row for each image and reader
 *   (image_labels_test.csv  the same without rad_id: the readers' consensus)
 *   annotations, train.csv  image_id,class_name,...,rad_id,...: a row for each box
 * A finding is positive if more than half of the readers of the image state it. The data set has no
 * patients, so each image is a patient. Image ids have no file name extension.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "label/labels_format.h"
#include "label/labels_map.h"

#define EXPECTS "VinDr-CXR's columns 'image_id' and findings, or 'class_name' and 'rad_id'"

enum { MAX_READERS = 64, MAX_FINDINGS = 64 };

/* Of an image. Bit r is of reader r. */
struct vote {
    uint64_t saw;                    /* the readers of the image */
    uint64_t positive[MAX_FINDINGS]; /* (class_count) the readers that state the finding */
};

struct votes {
    struct chex_label_table *table;
    struct chex_csv csv;
    int image, reader, finding; /* columns; -1: none */
    struct chex_label_map images, readers;
    struct vote *vote; /* (table->count) */
    size_t capacity;
    struct chex_label_flags flags; /* form by image */
    struct chex_label_map names;   /* form by box: finding to its index in class_of */
    size_t class_of[MAX_FINDINGS];
};

static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    bool boxes = chex_label_header_has(h, "class_name") && chex_label_header_has(h, "rad_id");
    if (!chex_label_header_has(h, "image_id") ||
        (!boxes && !chex_label_header_has(h, "Aortic enlargement")))
        return false;
    snprintf(why, why_size, "a header with 'image_id' and %s",
             boxes ? "'class_name': boxes" : "'Aortic enlargement': findings by image");
    return true;
}

/* Finds or adds the row of the record's image, and returns the bit of the record's reader. */
static enum chex_status find_row(struct votes *v, size_t *row_out, uint64_t *reader_out,
                                 struct chex_error *err) {
    struct chex_label_table *t = v->table;
    const struct chex_csv *csv = &v->csv;
    const char *image = csv->fields[v->image];
    size_t reader = 0;
    if (!chex_alloc_grow(&v->vote, t->count, &v->capacity, sizeof *v->vote))
        return chex_error_memory(err, "%s", t->path);
    CHEX_TRY(chex_label_map_add(&v->images, image, t->count, row_out, err));
    if (*row_out == t->count) {
        struct chex_label_row *row;
        int8_t *labels;
        v->vote[t->count] = (struct vote){.saw = 0};
        CHEX_TRY(chex_labels_add_row(t, csv->line, &row, &labels, err));
        CHEX_TRY(chex_labels_set_image(t, row, image, (size_t)v->image + 1, err));
    } else if (v->reader < 0) {
        return chex_csv_fault(csv, v->image, "each image once if there is no 'rad_id'", err);
    }
    if (v->reader >= 0)
        CHEX_TRY(chex_label_map_add(&v->readers, csv->fields[v->reader], v->readers.count, &reader,
                                    err));
    if (reader >= MAX_READERS)
        return chex_csv_fault(csv, v->reader, "64 readers at most", err);
    *reader_out = UINT64_C(1) << reader;
    return CHEX_OK;
}

static void count_votes(struct votes *v) {
    struct chex_label_table *t = v->table;
    for (size_t i = 0; i < t->count; i++) {
        int8_t *labels = chex_labels_of(t, i);
        const struct vote *vote = &v->vote[i];
        for (size_t c = 0; c < t->class_count; c++)
            labels[c] =
                2 * __builtin_popcountll(vote->positive[c]) > __builtin_popcountll(vote->saw);
    }
}

/* ---- by image ---- */

/* Every column except the ids is a finding. */
static enum chex_status find_findings(struct votes *v, struct chex_error *err) {
    const struct chex_csv *csv = &v->csv;
    const char *names[MAX_FINDINGS];
    size_t count = 0;
    for (size_t i = 0; i < csv->name_count; i++) {
        if ((int)i == v->image || (int)i == v->reader)
            continue;
        if (count == MAX_FINDINGS)
            return chex_error_data(err, "%s: line 1: %zu columns, expected %d at most", csv->path,
                                   csv->name_count, MAX_FINDINGS);
        names[count++] = csv->names[i];
    }
    return chex_label_flags_init(&v->flags, v->table, csv, names, count, EXPECTS, err);
}

static enum chex_status add_image(struct votes *v, struct chex_error *err) {
    size_t row;
    uint64_t reader;
    CHEX_TRY(find_row(v, &row, &reader, err));
    if (v->vote[row].saw & reader)
        return chex_csv_fault(&v->csv, v->image, "each image once by each reader", err);
    v->vote[row].saw |= reader;
    for (size_t i = 0; i < v->flags.count; i++) {
        int8_t label;
        int column = v->flags.column[i];
        if (!chex_field_flag(v->csv.fields[column], &label) || label < 0)
            return chex_csv_fault(&v->csv, column, "1 or 0", err);
        v->vote[row].positive[v->flags.class_of[i]] |= label ? reader : 0;
    }
    return CHEX_OK;
}

/* ---- by box ---- */

/* The classes are the findings that occur, because editions of the file have different findings. */
static enum chex_status collect_findings(struct votes *v, struct chex_error *err) {
    const char *names[MAX_FINDINGS] = {NULL};
    for (bool more;;) {
        size_t number;
        CHEX_TRY(chex_csv_row(&v->csv, &more, err));
        if (!more)
            break;
        const char *name = v->csv.fields[v->finding];
        CHEX_TRY(chex_label_map_add(&v->names, name, v->names.count, &number, err));
        if (v->names.count > MAX_FINDINGS)
            return chex_csv_fault(&v->csv, v->finding, "64 findings at most", err);
        names[number] = name;
    }
    return chex_labels_set_classes(v->table, names, v->names.count, v->class_of, err);
}

static enum chex_status add_box(struct votes *v, struct chex_error *err) {
    size_t row, name;
    uint64_t reader;
    CHEX_TRY(find_row(v, &row, &reader, err));
    name = chex_label_map_find(&v->names, v->csv.fields[v->finding]);
    v->vote[row].saw |= reader;
    v->vote[row].positive[v->class_of[name]] |= reader;
    return CHEX_OK;
}

static enum chex_status read_header(struct votes *v, struct chex_error *err) {
    struct chex_csv *csv = &v->csv;
    CHEX_TRY(chex_csv_header(csv, err));
    CHEX_TRY(chex_csv_find(csv, "image_id", EXPECTS, &v->image, err));
    CHEX_TRY(chex_csv_find(csv, "class_name", NULL, &v->finding, err));
    return chex_csv_find(csv, "rad_id", v->finding < 0 ? NULL : EXPECTS, &v->reader, err);
}

static enum chex_status read_rows(struct votes *v, struct chex_error *err) {
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(&v->csv, &more, err));
        if (!more)
            break;
        CHEX_TRY(v->finding < 0 ? add_image(v, err) : add_box(v, err));
    }
    count_votes(v);
    size_t n = strlen(v->table->detected);
    snprintf(v->table->detected + n, sizeof v->table->detected - n,
             ", %zu reader%s, patients unknown: each image its own",
             v->readers.count ? v->readers.count : 1, v->readers.count > 1 ? "s" : "");
    return CHEX_OK;
}

/* Parses the boxes twice: once for the classes, then for the rows. The first pass destroys its
 * text, so the second uses a copy. */
static enum chex_status read_boxes(struct votes *v, char *copy, size_t size,
                                   struct chex_error *err) {
    const int used[] = {v->image, v->reader, v->finding};
    CHEX_TRY(chex_labels_list_ignored(v->table, &chex_label_format_vindr, &v->csv, used, 3, err));
    CHEX_TRY(collect_findings(v, err));
    chex_csv_release(&v->csv);
    chex_csv_init(&v->csv, v->table->path, copy, size);
    CHEX_TRY(read_header(v, err));
    return read_rows(v, err);
}

static void release(struct votes *v) {
    chex_csv_release(&v->csv);
    chex_label_flags_release(&v->flags);
    chex_label_map_release(&v->images);
    chex_label_map_release(&v->readers);
    chex_label_map_release(&v->names);
    free(v->vote);
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_input *input,
                              struct chex_error *err) {
    CHEX_AUTO_FREE char *first = malloc(input->size + 1);
    CHEX_AUTO(release) struct votes v = {.table = t};
    if (!first)
        return chex_error_memory(err, "%s", t->path);
    memcpy(first, input->text, input->size + 1);
    /* Rows point into the text that is parsed last. So the first pass uses `first`. */
    chex_csv_init(&v.csv, t->path, first, input->size);
    CHEX_TRY(read_header(&v, err));
    if (v.finding >= 0)
        return read_boxes(&v, input->text, input->size, err);
    chex_csv_release(&v.csv);
    chex_csv_init(&v.csv, t->path, input->text, input->size);
    CHEX_TRY(read_header(&v, err));
    CHEX_TRY(find_findings(&v, err));
    return read_rows(&v, err);
}

static const char *const unread[] = {"class_id", "x_min", "y_min", "x_max", "y_max", NULL};

const struct chex_label_format chex_label_format_vindr = {
    .name = "vindr",
    .expects = "'image_id' and 'class_name' or 'Aortic enlargement'",
    .unread = unread,
    .detect = detect,
    .parse = parse,
};
