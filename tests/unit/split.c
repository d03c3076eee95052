/* SPDX-License-Identifier: Apache-2.0 */
#include "label/split.h"

#include "dir.h"
#include "tap.h"

static struct chex_error err;
static struct chex_split_lists lists;
static struct chex_split_report r;
static enum chex_split s[15];
static const struct chex_fractions usual = {0.7, 0.1, 0.2};

/* A table of the names in `text`. */
static struct chex_label_table *table_of(const char *name, const char *text) {
    struct chex_label_table *t = NULL;
    MUST(chex_labels_load_names(dir_put_text(name, text), &t, &err));
    return t;
}

/* A table of a label file of this text. */
static struct chex_label_table *labelled(const char *name, const char *text) {
    struct chex_label_table *t = NULL;
    MUST(chex_labels_load(dir_put_text(name, text), NULL, NULL, &t, &err));
    return t;
}

/* Patients `from` to `to`, each with 1 to 12 images. */
static struct chex_label_table *many(int from, int to) {
    size_t size = (size_t)(to - from) * 12 * 24, at = 0;
    char *text = malloc(size + 1);
    for (int p = from; p < to; p++)
        for (int k = 0; k <= (p * 7919 >> 3) % 12; k++)
            at += (size_t)snprintf(text + at, size + 1 - at, "%08d_%03d.png\n", p, k);
    struct chex_label_table *t = table_of("many.txt", text);
    free(text);
    return t;
}

static void count(const enum chex_split *split, size_t n, size_t out[CHEX_SPLIT_COUNT + 1]) {
    memset(out, 0, (CHEX_SPLIT_COUNT + 1) * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[split[i]]++;
}

/* No patient in two splits. The images of a patient follow each other in many(). */
static bool patients_whole(const struct chex_label_table *t, const enum chex_split *split) {
    for (size_t i = 1; i < t->count; i++)
        if (!strcmp(t->rows[i].patient_id, t->rows[i - 1].patient_id) && split[i] != split[i - 1])
            return false;
    return true;
}

static void check_fractions(void) {
    struct chex_fractions f = {0};
    OK_CALL(chex_split_parse_fractions("0.7,0.1,0.2", &f, &err));
    OK(f.train == 0.7 && f.val == 0.1 && f.test == 0.2, "in the order train, val, test");
    OK_CALL(chex_split_parse_fractions("1,0,0", &f, &err));
    f.train = 5;
    static const char *const bad[][2] = {
        {"0.7,0.1,0.3", "the sum is 1.1, expected 1"},
        {"0.7,0.3", "expected three numbers"},
        {"0.7,0.1,0.1,0.1", "three numbers"},
        {"", "three numbers"},
        {"0.7,,0.3", "three numbers"},
        {"a,b,c", "three numbers"},
        {"1.5,-0.5,0", "expected 0 to 1"},
        {"0.7,0.1,0.2x", "three numbers"},
        {"0.7,0.1,nan", "three numbers"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        OK_STATUS(chex_split_parse_fractions(bad[i][0], &f, &err), CHEX_E_USAGE, err, bad[i][1]);
    OK(f.train == 5, "nothing is written on failure");
}

static void check_by_patient(void) {
    struct chex_label_table *t = many(1, 801), *less = many(1, 797);
    enum chex_split *a = calloc(t->count, sizeof *a), *b = calloc(t->count, sizeof *b);
    size_t n[CHEX_SPLIT_COUNT + 1];
    chex_split_none(t, a);
    count(a, t->count, n);
    OK(n[CHEX_ALL] == t->count, "none: all rows are 'all'");
    OK_CALL(chex_split_by_patient(t, &usual, 1, a, &err));
    count(a, t->count, n);
    double images = (double)t->count;
    OK(fabs((double)n[CHEX_TRAIN] - 0.7 * images) <= 12 &&
           fabs((double)n[CHEX_VAL] - 0.1 * images) <= 12 &&
           fabs((double)n[CHEX_TEST] - 0.2 * images) <= 12,
       "%zu, %zu, %zu of %zu images: within a patient of the fractions", n[CHEX_TRAIN], n[CHEX_VAL],
       n[CHEX_TEST], t->count);
    OK(patients_whole(t, a), "no patient in two splits");
    chex_split_by_patient(t, &usual, 1, b, &err);
    OK(!memcmp(a, b, t->count * sizeof *a), "the same seed deals the same");
    chex_split_by_patient(t, &usual, 2, b, &err);
    OK(memcmp(a, b, t->count * sizeof *a) != 0, "another seed deals otherwise");
    chex_split_by_patient(less, &usual, 1, b, &err);
    size_t moved = 0;
    for (size_t i = 0; i < less->count; i++)
        moved += a[i] != b[i];
    OK(moved <= 40, "4 patients less move %zu of %zu images", moved, less->count);

    const struct chex_fractions whole = {0, 0, 1}, bad = {0.5, 0.2, 0.2}, two = {0.5, 0, 0.5};
    OK_CALL(chex_split_by_patient(t, &whole, 1, a, &err));
    count(a, t->count, n);
    OK(n[CHEX_TEST] == t->count, "everything to test");
    OK_CALL(chex_split_by_patient(t, &two, 1, a, &err));
    count(a, t->count, n);
    OK(n[CHEX_VAL] == 0 && n[CHEX_TRAIN] && n[CHEX_TEST], "a fraction of 0 gets nothing");
    OK_STATUS(chex_split_by_patient(t, &bad, 1, a, &err), CHEX_E_USAGE, err, "the sum is 0.9");
    free(a);
    free(b);
    chex_labels_free(t);
    chex_labels_free(less);

    enum chex_split few[3];
    t = table_of("few.txt", "a_0.png\na_1.png\nb_0.png\n");
    OK_STATUS(chex_split_by_patient(t, &usual, 1, few, &err), CHEX_E_DATA, err, "split is empty");
    OK(strstr(err.text, "of 3 images train"), "with the counts");
    chex_labels_free(t);
}

/* Writes the lists that are not NULL, and uses these. */
static void put_lists(const char *train, const char *val, const char *test) {
    lists.train = train ? dir_put_text("tr.txt", train) : NULL;
    lists.val = val ? dir_put_text("va.txt", val) : NULL;
    lists.test = test ? dir_put_text("te.txt", test) : NULL;
}

static void split(const struct chex_label_table *t) {
    OK_CALL(chex_split_official(t, &lists, s, &r, &err));
}

static void refused(const struct chex_label_table *t, enum chex_status status, const char *needle) {
    OK_STATUS(chex_split_official(t, &lists, s, &r, &err), status, err, needle);
}

static struct chex_label_table *six(void) {
    return table_of("labels.txt", "a_0.png\na_1.png\nb_0.png\nc_0.png\nd_0.png\ne_0.png\n");
}

static void check_official(void) {
    struct chex_label_table *t = six();
    lists = (struct chex_split_lists){.fractions = {0.5, 0.25, 0.25}, .seed = 3};
    refused(t, CHEX_E_DATA, "train_val_list.txt beside the label file");
    dir_put_text("train_val_list.txt", "a_0.png\na_1.png\nb_0.png\nc_0.png\nzz_0.png\n");
    refused(t, CHEX_E_DATA, "test_list.txt beside the label file");
    dir_put_text("test_list.txt", "d_0.png\n");
    split(t);
    OK(r.count[CHEX_TRAIN] + r.count[CHEX_VAL] == 4 && r.count[CHEX_VAL] >= 1 &&
           r.count[CHEX_TEST] == 1 && s[4] == CHEX_TEST && s[0] == s[1],
       "validation is cut from the train list by patient: %s", r.text);
    OK(r.unused == 1 && !strcmp(r.first_unused, "e_0.png") && s[5] == CHEX_SPLIT_UNUSED,
       "a row in no list goes nowhere");
    OK(r.unknown == 1 && !strcmp(r.first_unknown, "zz_0.png"), "a name without a row is counted");
    lists.fractions = (struct chex_fractions){0.8, 0, 0.2};
    OK_CALL(chex_split_official(t, &lists, s, NULL, &err));
    OK(s[0] == CHEX_TRAIN && s[3] == CHEX_TRAIN, "no validation where its fraction is 0");
    chex_labels_free(t);
}

static void check_explicit(void) {
    struct chex_label_table *t = six();
    lists = (struct chex_split_lists){.fractions = usual, .seed = 1};
    put_lists("a_0.png\na_1.png\nb_0.png\n", "images_001/c_0.png\n", "d_0.png\ne_0.png\n");
    split(t);
    OK(r.count[CHEX_TRAIN] == 3 && r.count[CHEX_VAL] == 1 && r.count[CHEX_TEST] == 2 &&
           s[3] == CHEX_VAL && r.unused == 0,
       "three lists as they are");
    put_lists("a_0.png\nb_0.png\n", "a_1.png\nc_0.png\n", "d_0.png\ne_0.png\n");
    refused(t, CHEX_E_DATA, "1 patient is in two splits: a (the first in ");
    OK(strstr(err.text, "tr.txt and ") && strstr(err.text, "va.txt), expected each in one"),
       "and in which lists");
    lists.shared_patients = CHEX_SHARED_DROP;
    split(t);
    OK(r.shared_patients == 1 && r.shared_images == 1 && (int)s[0] == CHEX_SPLIT_UNUSED &&
           s[1] == CHEX_VAL && s[2] == CHEX_TRAIN && r.unused == 0,
       "dropped: val keeps patient a, train loses it");
    lists.shared_patients = CHEX_SHARED_REFUSE;
    dir_put_text("te.txt", "b_0.png\nd_0.png\n");
    refused(t, CHEX_E_DATA, "te.txt: line 1, column 1: 'b_0.png' is also in ");
    dir_put_text("te.txt", "x_0.png\n");
    refused(t, CHEX_E_DATA, "te.txt: none of its 1 image (the first is x_0.png) is in ");
    dir_put_text("te.txt", "");
    refused(t, CHEX_E_DATA, "te.txt: empty file");
    dir_put_text("te.txt", "d_0.png\nd_0.png\n");
    refused(t, CHEX_E_DATA, "te.txt: line 2");
    put_lists(NULL, NULL, "d_0.png\n");
    split(t);
    OK(r.count[CHEX_TEST] == 1 && r.unused == 5 && r.count[CHEX_TRAIN] == 0, "a test list alone");
    put_lists(NULL, "a_1.png\nc_0.png\n", NULL);
    refused(t, CHEX_E_USAGE, "needs --train-list");
    put_lists("a_0.png\na_1.png\n", NULL, NULL);
    refused(t, CHEX_E_DATA, "the val split is empty");
    lists.train = "/nonexistent";
    refused(t, CHEX_E_DATA, "/nonexistent");
    chex_labels_free(t);
}

/* Names of images that --views left out are not unknown. */
static void check_views(void) {
    struct chex_label_table *t = labelled(
        "own.csv", "image,Mass,view\na_0.png,1,AP\nb_0.png,1,PA\nc_0.png,1,PA\nd_0.png,1,AP\n");
    chex_labels_keep_views(t, 1u << CHEX_VIEW_PA);
    lists = (struct chex_split_lists){.fractions = {0.8, 0, 0.2}, .seed = 1};
    put_lists("a_0.png\nb_0.png\nzz_0.png\n", NULL, "c_0.png\nd_0.png\n");
    split(t);
    OK(r.unknown == 1 && !strcmp(r.first_unknown, "zz_0.png") && r.count[CHEX_TRAIN] == 1 &&
           r.count[CHEX_TEST] == 1,
       "views: only names that the file has not are unknown: %zu", r.unknown);
    dir_put_text("te.txt", "d_0.png\n");
    refused(t, CHEX_E_DATA, "own.csv with the views of --views");
    chex_labels_free(t);
}

/* Many patients in two splits: the first five are named. */
static void check_leak(void) {
    struct chex_label_table *t = table_of(
        "labels.txt", "a_0.png\na_1.png\nb_0.png\nb_1.png\nc_0.png\nc_1.png\nd_0.png\nd_1.png\n"
                      "e_0.png\ne_1.png\nf_0.png\nf_1.png\ng_0.png\ng_1.png\nh_0.png\n");
    lists = (struct chex_split_lists){.fractions = {1, 0, 0}, .seed = 1};
    put_lists("a_0.png\nb_0.png\nc_0.png\nd_0.png\ne_0.png\nf_0.png\ng_0.png\nh_0.png\n", NULL,
              "a_1.png\nb_1.png\nc_1.png\nd_1.png\ne_1.png\nf_1.png\ng_1.png\n");
    refused(t, CHEX_E_DATA,
            "7 patients are in two splits: a, b, c, d, e and 2 more (the first in ");
    lists.shared_patients = CHEX_SHARED_DROP;
    split(t);
    OK(r.shared_patients == 7 && r.shared_images == 7 && r.count[CHEX_TRAIN] == 1 &&
           r.count[CHEX_TEST] == 7,
       "dropped from train, kept in test");
    chex_labels_free(t);
}

/* What the label file states itself. */
static void check_stated(void) {
    struct chex_label_table *t =
        labelled("own.csv", "image,patient,split,Mass\n1.png,a,train,1\n2.png,a,train,0\n"
                            "3.png,b,valid,0\n4.png,c,test,\n5.png,d,train,-1\n6.png,e,,0\n");
    lists = (struct chex_split_lists){.fractions = usual, .seed = 1};
    split(t);
    OK(s[0] == CHEX_TRAIN && s[2] == CHEX_VAL && s[3] == CHEX_TEST && s[4] == CHEX_TRAIN &&
           (int)s[5] == CHEX_SPLIT_UNUSED && r.unused == 1 && !strcmp(r.first_unused, "6.png"),
       "as its rows say: %s", r.text);
    t->rows[1].split = CHEX_TEST;
    refused(t, CHEX_E_DATA,
            "1 patient is in two splits: a (the first in the images of split train and the images "
            "of split test)");
    t->rows[1].split = CHEX_TRAIN;
    t->rows[2].split = CHEX_TRAIN;
    lists.fractions = (struct chex_fractions){0.5, 0.25, 0.25};
    split(t);
    OK(r.count[CHEX_VAL] >= 1 && r.count[CHEX_TEST] == 1 && s[0] == s[1],
       "without a stated val it is cut from train: %s", r.text);
    put_lists(NULL, NULL, "1.png\n");
    split(t);
    OK(s[0] == CHEX_TEST && (int)s[3] == CHEX_SPLIT_UNUSED, "lists that are given go before it");
    chex_labels_free(t);
}

/* The NIH's table as large as it is, with lists of their lengths and of others. */
static void check_nih_counts(void) {
    struct chex_label_table *t = NULL;
    enum chex_split *all = calloc(CHEX_NIH_IMAGES, sizeof *all);
    lists = (struct chex_split_lists){.fractions = usual, .seed = 1};
    char *text = malloc(CHEX_NIH_IMAGES * 64), *at = text;
    size_t border = CHEX_NIH_TRAIN_VAL;
    chex_fs_mkdirs(dir_path("nih"), &err);
    at += sprintf(at, "Image Index,Finding Labels,Patient ID\n");
    for (int i = 0; i < CHEX_NIH_IMAGES; i++)
        at += sprintf(at, "%08d_%03d.png,Mass,%d\n", i / 4, i % 4, i / 4);
    dir_put_text("nih/labels.csv", text);
    for (int list = 0; list < 2; list++) {
        at = text;
        for (size_t i = list ? border : 0; i < (list ? (size_t)CHEX_NIH_IMAGES : border); i++)
            at += sprintf(at, "%08zu_%03zu.png\n", i / 4, i % 4);
        *at = '\0';
        dir_put_text(list ? "nih/test_list.txt" : "nih/train_val_list.txt", text);
    }
    MUST(chex_labels_load(dir_path("nih/labels.csv"), NULL, NULL, &t, &err));
    OK_CALL(chex_split_official(t, &lists, all, &r, &err));
    OK(strstr(r.text, "86524 and 25596 names, as the NIH's lists have; no patient in two splits") &&
           !r.warning[0] && r.count[CHEX_TEST] == CHEX_NIH_TEST &&
           r.count[CHEX_TRAIN] + r.count[CHEX_VAL] == CHEX_NIH_TRAIN_VAL,
       "%s", r.text);
    double val = (double)r.count[CHEX_VAL] / CHEX_NIH_TRAIN_VAL;
    OK(fabs(val - 0.125) < 1e-3, "an eighth of train is cut for val: %g", val);
    text[strlen(text) - 17] = '\0';
    dir_put_text("nih/test_list.txt", text);
    OK_CALL(chex_split_official(t, &lists, all, &r, &err));
    OK(strstr(r.warning, "(112120 images) hold 86524 and 25595 names, expected 86524 and 25596"),
       "%s", r.warning);
    t->file_count = t->count = CHEX_NIH_IMAGES - 1;
    OK_CALL(chex_split_official(t, &lists, all, &r, &err));
    OK(!r.warning[0], "a part of the table is not compared");
    free(text);
    free(all);
    chex_labels_free(t);
}

int main(void) {
    dir_make();
    check_fractions();
    check_by_patient();
    check_official();
    check_explicit();
    check_views();
    check_leak();
    check_stated();
    check_nih_counts();
    dir_remove();
    return tap_done();
}
