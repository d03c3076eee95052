/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids of images whose file names repeat, the patients of their rows, and which row a list's name
 * means.
 */
#include "label/image_ids.h"
#include "dir.h"
#include "tap.h"

static struct chex_error err;

static struct chex_label_table *table_of(const char *rows) {
    struct chex_label_table *t = NULL;
    MUST(chex_labels_load(dir_put_text("labels.csv", rows), "csv", NULL, &t, &err));
    return t;
}

static struct chex_label_table *list_of(const char *names) {
    struct chex_label_table *t = NULL;
    MUST(chex_labels_load_names(dir_put_text("labels.csv", names), &t, &err));
    return t;
}

static void row_is(const struct chex_label_table *t, size_t row, const char *id,
                   const char *patient) {
    const struct chex_label_row *r = &t->rows[row];
    OK(!strcmp(r->image_id, id) && !strcmp(r->patient_id, patient), "%s of patient %s", r->image_id,
       r->patient_id);
}

static void check_ids(void) {
    struct chex_label_table *t = table_of("image,Mass\n"
                                          "x/p1/s1/1.png,1\n"
                                          "./x//p1/./s2/1.png,1\n"
                                          "/x/p2/s1/2_a.png,0\n"
                                          "x/p3/s1/1.png,0\n");
    row_is(t, 0, "x/p1/s1/1.png", "p1");
    row_is(t, 1, "x/p1/s2/1.png", "p1");
    row_is(t, 2, "2_a.png", "p2");
    row_is(t, 3, "x/p3/s1/1.png", "p3");
    OK(strstr(t->warning, "patients of 4 images are taken from the first folders"), "%s",
       t->warning);
    chex_labels_free(t);

    t = table_of("image,Mass\nx/p1/1_a.png,1\nx/p1/2_a.png,0\n");
    row_is(t, 0, "1_a.png", "1");
    OK(!t->warning[0], "names that do not repeat stay, and so do their patients");
    chex_labels_free(t);

    t = table_of("image,patient,Mass\na/1.png,7,1\nb/1.png,Z,0\n");
    row_is(t, 0, "a/1.png", "00000007");
    row_is(t, 1, "b/1.png", "Z");
    chex_labels_free(t);

    t = table_of("image,Mass\ntrain/patient1/study1/v.jpg,1\ntrain/patient1/study2/v.jpg,0\n"
                 "a/v.jpg,0\nb/v.jpg,1\n");
    row_is(t, 0, "patient1_study1_v.jpg", "patient1");
    row_is(t, 2, "a/v.jpg", "a");
    chex_labels_free(t);
}

static void refuses(const char *rows, const char *text) {
    struct chex_label_table *t = NULL;
    const char *path = dir_put_text("labels.csv", rows);
    OK_STATUS(chex_labels_load(path, "csv", NULL, &t, &err), CHEX_E_DATA, err, text);
}

static void check_refusals(void) {
    static char longer[1400];
    refuses("image,Mass\na/1.png,1\n./a//1.png,0\n",
            "line 3, column 1: image 'a/1.png' is on line 2 already");
    refuses("image,Mass\n1.png,1\na/1.png,0\n",
            "line 3, column 1: image '1.png' is on line 2 already");
    refuses("image,Mass\na/1.png,1\n./1.png,0\n",
            "line 3, column 1: image '1.png' is on line 2 already");
    int at = snprintf(longer, sizeof longer, "image,Mass\na/1.png,1\n");
    for (int i = 0; i < 110; i++)
        at += snprintf(longer + at, sizeof longer - (size_t)at, "folder%03d/", i);
    snprintf(longer + at, sizeof longer - (size_t)at, "1.png,0\n");
    refuses(longer, "line 3: the path of image 'folder000/");
}

/* A name means this row (-1: none) and no other one. */
static void means(const struct chex_label_table *t, const char *name, int row) {
    struct chex_image_ids *ids = NULL;
    const struct chex_label_row *other;
    struct chex_label_table *list = list_of(name);
    MUST(chex_image_ids_create(t, &ids, &err));
    const struct chex_label_row *found = chex_image_ids_find(ids, &list->rows[0], &other);
    OK((found ? (int)(found - t->rows) : -1) == row && !other, "%s means row %d",
       list->rows[0].path, row);
    chex_image_ids_destroy(ids);
    chex_labels_free(list);
}

static void check_finding(void) {
    struct chex_label_table *t = table_of("image,Mass\np1/s1/1.png,1\np1/s2/1.png,1\n"
                                          "p2/s1/1.png,1\nq/own.png,0\n"
                                          "patient1/study1/v.jpg,0\n");
    means(t, "p1/s2/1.png\n", 1);
    means(t, "export/x/p1/s2/1.png\n", 1);
    means(t, "./p2//s1/1.png\n", 2);
    means(t, "s2/1.png\n", 1);
    means(t, "p9/s2/1.png\n", -1);
    means(t, "own.png\n", 3);
    means(t, "elsewhere/own.png\n", 3);
    means(t, "train/patient1/study1/v.jpg\n", 4);
    struct chex_image_ids *ids = NULL;
    const struct chex_label_row *other = NULL;
    struct chex_label_table *list = list_of("s1/1.png\n");
    MUST(chex_image_ids_create(t, &ids, &err));
    OK(chex_image_ids_find(ids, &list->rows[0], &other) && other, "two rows end in s1/1.png");
    chex_labels_free(list);
    list = list_of("a/own.png\nq/own.png\n");
    OK(!chex_image_ids_find(ids, &list->rows[0], &other),
       "where a list repeats a name, its folders count");
    OK(chex_image_ids_find(ids, &list->rows[1], &other) == &t->rows[3], "and find the row");
    chex_image_ids_destroy(ids);
    chex_labels_free(list);
    chex_labels_free(t);
}

int main(void) {
    dir_make();
    check_ids();
    check_refusals();
    check_finding();
    dir_remove();
    return tap_done();
}
