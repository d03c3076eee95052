/* SPDX-License-Identifier: Apache-2.0 */
#include "data/split.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/units.h"

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_RESOURCE, ENOMEM, "splits");
}

static enum chex_status check_fractions(const struct chex_fractions *f, struct chex_error *err) {
    const double part[3] = {f->train, f->val, f->test};
    for (int i = 0; i < 3; i++)
        if (!(part[i] >= 0.0 && part[i] <= 1.0))
            return chex_error_set(err, CHEX_E_USAGE, "fraction %g, expected 0 to 1", part[i]);
    double sum = f->train + f->val + f->test;
    if (fabs(sum - 1.0) > 1e-6)
        return chex_error_set(err, CHEX_E_USAGE,
                              "fractions %g, %g, %g sum to %g, expected 1 (train, val, test)",
                              f->train, f->val, f->test, sum);
    return CHEX_OK;
}

enum chex_status chex_split_parse_fractions(const char *text, struct chex_fractions *out,
                                            struct chex_error *err) {
    char word[3][32];
    double part[3];
    const char *p = text;
    for (int i = 0; i < 3; i++) {
        size_t n = strcspn(p, ",");
        bool last = i == 2;
        bool fits = n < sizeof word[i] && (p[n] == ',') == !last;
        if (fits) {
            memcpy(word[i], p, n);
            word[i][n] = '\0';
        }
        if (!fits || !chex_parse_f64(word[i], &part[i]))
            return chex_error_set(err, CHEX_E_USAGE,
                                  "fractions '%s', expected three numbers such as 0.7,0.1,0.2 "
                                  "(train, val, test)",
                                  text);
        p += n + 1;
    }
    struct chex_fractions f = {part[0], part[1], part[2]};
    CHEX_TRY(check_fractions(&f, err));
    *out = f;
    return CHEX_OK;
}

void chex_split_none(const struct chex_label_table *table, enum chex_split *split_out) {
    for (size_t i = 0; i < table->count; i++)
        split_out[i] = CHEX_ALL;
}

/* ---- by patient ---- */

struct member {
    uint64_t key; // places the patient
    const char *patient;
    size_t row;
};

static int compare_members(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    int by_name = strcmp(x->patient, y->patient);
    return by_name ? by_name : (x->row > y->row) - (x->row < y->row);
}

/* The rows that `split` gives to `which`, patients together, in the order of the hash. */
static enum chex_status deal(const struct chex_label_table *t, const enum chex_split *split,
                             enum chex_split which, uint64_t seed, struct member **members_out,
                             size_t *count_out, struct chex_error *err) {
    struct member *m = calloc(t->count ? t->count : 1, sizeof *m);
    if (!m)
        return no_memory(err);
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (split[i] != which)
            continue;
        const char *patient = t->rows[i].patient_id;
        struct chex_rng4 r =
            chex_rng(seed, CHEX_RNG_SPLIT, chex_hash64(patient, strlen(patient)), 0);
        m[n++] = (struct member){(uint64_t)r.v[1] << 32 | r.v[0], patient, i};
    }
    qsort(m, n, sizeof *m, compare_members);
    *members_out = m;
    *count_out = n;
    return CHEX_OK;
}

static size_t patient_end(const struct member *m, size_t count, size_t from) {
    size_t to = from + 1;
    while (to < count && !strcmp(m[to].patient, m[from].patient))
        to++;
    return to;
}

/* Gives the rows of `which` to test, val and train. A patient goes where the middle of its images
 * falls, so no border is off by more than half a patient. */
static enum chex_status cut(const struct chex_label_table *t, enum chex_split which,
                            const struct chex_fractions *f, uint64_t seed, enum chex_split *split,
                            struct chex_error *err) {
    struct member *m = NULL;
    size_t count = 0;
    CHEX_TRY(deal(t, split, which, seed, &m, &count, err));
    double test_end = f->test * (double)count, val_end = (f->test + f->val) * (double)count;
    for (size_t from = 0, to; from < count; from = to) {
        to = patient_end(m, count, from);
        double middle = 0.5 * ((double)from + (double)to);
        /* A fraction of 0 gets nothing, however the last border rounds. */
        enum chex_split s = middle < test_end                   ? CHEX_TEST
                            : middle < val_end || f->train <= 0 ? CHEX_VAL
                                                                : CHEX_TRAIN;
        if (s == CHEX_VAL && f->val <= 0)
            s = CHEX_TEST;
        for (size_t i = from; i < to; i++)
            split[m[i].row] = s;
    }
    free(m);
    return CHEX_OK;
}

static void count_splits(const struct chex_label_table *t, const enum chex_split *split,
                         size_t count[CHEX_SPLIT_COUNT + 1]) {
    memset(count, 0, (CHEX_SPLIT_COUNT + 1) * sizeof *count);
    for (size_t i = 0; i < t->count; i++)
        count[split[i]]++;
}

static enum chex_status refuse_empty(const struct chex_label_table *t, const size_t *count,
                                     bool train, bool val, bool test, struct chex_error *err) {
    const char *empty = train && !count[CHEX_TRAIN] ? "train"
                        : val && !count[CHEX_VAL]   ? "val"
                        : test && !count[CHEX_TEST] ? "test"
                                                    : NULL;
    if (!empty)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s: the %s split is empty: of %zu images train %zu, val %zu, test %zu; "
                          "expected at least one patient in each",
                          t->path, empty, t->count, count[CHEX_TRAIN], count[CHEX_VAL],
                          count[CHEX_TEST]);
}

enum chex_status chex_split_by_patient(const struct chex_label_table *table,
                                       const struct chex_fractions *f, uint64_t seed,
                                       enum chex_split *split_out, struct chex_error *err) {
    size_t count[CHEX_SPLIT_COUNT + 1];
    CHEX_TRY(check_fractions(f, err));
    chex_split_none(table, split_out);
    CHEX_TRY(cut(table, CHEX_ALL, f, seed, split_out, err));
    count_splits(table, split_out, count);
    return refuse_empty(table, count, f->train > 0, f->val > 0, f->test > 0, err);
}

/* ---- by lists ---- */

struct list_use {
    const struct chex_label_table *table;
    const struct chex_label_index *index;
    enum chex_split *split;
    struct chex_split_report report;
    const char *path[CHEX_SPLIT_COUNT]; // the list of each split
};

static void keep_first(char *out, size_t size, const char *id) {
    if (!out[0])
        snprintf(out, size, "%s", id);
}

static enum chex_status use_names(struct list_use *use, const struct chex_label_table *names,
                                  enum chex_split which, struct chex_error *err) {
    size_t found = 0;
    for (size_t i = 0; i < names->count; i++) {
        const char *id = names->rows[i].image_id;
        const struct chex_label_row *row = chex_label_index_find(use->index, id);
        if (!row) {
            use->report.unknown++;
            keep_first(use->report.first_unknown, sizeof use->report.first_unknown, id);
            continue;
        }
        enum chex_split *split = &use->split[row - use->table->rows];
        if (*split != CHEX_SPLIT_UNUSED)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: line %zu, column 1: '%s' stands in %s as well, expected "
                                  "each image in one list",
                                  names->path, names->rows[i].line, id, use->path[*split]);
        *split = which;
        found++;
    }
    if (!found)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: none of its %zu images (the first is %s) is in %s", names->path,
                              names->count, names->rows[0].image_id, use->table->path);
    return CHEX_OK;
}

static enum chex_status use_list(struct list_use *use, const char *path, enum chex_split which,
                                 struct chex_error *err) {
    if (!path)
        return CHEX_OK;
    struct chex_label_table *names = NULL;
    CHEX_TRY(chex_labels_load_names(path, &names, err));
    use->path[which] = path;
    enum chex_status st = use_names(use, names, which, err);
    chex_labels_free(names);
    return st;
}

/* Counts patients with rows in two splits. */
static enum chex_status refuse_shared(struct list_use *use, struct chex_error *err) {
    const struct chex_label_table *t = use->table;
    struct member *m = calloc(t->count ? t->count : 1, sizeof *m);
    if (!m)
        return no_memory(err);
    size_t n = 0, shared = 0;
    for (size_t i = 0; i < t->count; i++)
        if (use->split[i] != CHEX_SPLIT_UNUSED)
            m[n++] = (struct member){0, t->rows[i].patient_id, i};
    qsort(m, n, sizeof *m, compare_members);
    const char *first = NULL, *list_a = NULL, *list_b = NULL;
    for (size_t from = 0, to; from < n; from = to) {
        to = patient_end(m, n, from);
        enum chex_split a = use->split[m[from].row], b = a;
        for (size_t i = from; i < to && a == b; i++)
            b = use->split[m[i].row];
        if (a == b)
            continue;
        if (!shared++)
            first = m[from].patient, list_a = use->path[a], list_b = use->path[b];
    }
    free(m);
    if (!shared)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%zu patient%s in two lists, the first is %s (in %s and %s), expected "
                          "each patient in one list",
                          shared, shared == 1 ? " is" : "s are", first, list_a, list_b);
}

/* train_val_list.txt and test_list.txt beside the label file. */
static enum chex_status find_lists(const struct chex_label_table *t, char **train_out,
                                   char **test_out, struct chex_error *err) {
    const char *slash = strrchr(t->path, '/');
    int dir = slash ? (int)(slash - t->path) + 1 : 0;
    char *train = chex_fs_format("%.*strain_val_list.txt", dir, t->path);
    char *test = chex_fs_format("%.*stest_list.txt", dir, t->path);
    enum chex_status st = CHEX_OK;
    if (!train || !test)
        st = no_memory(err);
    else if (!chex_fs_exists(train) || !chex_fs_exists(test))
        st = chex_error_set(err, CHEX_E_DATA,
                            "official split: no %s beside the label file; give the lists by "
                            "--train-list, --val-list and --test-list, or split by patient",
                            chex_fs_exists(train) ? test : train);
    if (st != CHEX_OK) {
        free(train);
        free(test);
        return st;
    }
    *train_out = train;
    *test_out = test;
    return CHEX_OK;
}

static void fill_report(struct list_use *use, bool cut_val) {
    size_t count[CHEX_SPLIT_COUNT + 1];
    struct chex_split_report *r = &use->report;
    count_splits(use->table, use->split, count);
    memcpy(r->count, count, sizeof r->count);
    r->unused = count[CHEX_SPLIT_UNUSED];
    for (size_t i = 0; i < use->table->count && r->unused; i++)
        if (use->split[i] == CHEX_SPLIT_UNUSED)
            keep_first(r->first_unused, sizeof r->first_unused, use->table->rows[i].image_id);
    const char *const *p = use->path;
    snprintf(r->text, sizeof r->text, "train %s, val %s, test %s",
             p[CHEX_TRAIN] ? p[CHEX_TRAIN] : "none",
             p[CHEX_VAL] ? p[CHEX_VAL]
             : cut_val   ? "cut from train by patient"
                         : "none",
             p[CHEX_TEST] ? p[CHEX_TEST] : "none");
}

static enum chex_status apply_lists(struct list_use *use, const char *train, const char *val,
                                    const char *test, const struct chex_split_lists *lists,
                                    struct chex_error *err) {
    CHEX_TRY(use_list(use, train, CHEX_TRAIN, err));
    CHEX_TRY(use_list(use, val, CHEX_VAL, err));
    CHEX_TRY(use_list(use, test, CHEX_TEST, err));
    CHEX_TRY(refuse_shared(use, err));
    const struct chex_fractions *f = &lists->fractions;
    bool cut_val = train && !val && f->val > 0;
    if (cut_val) {
        double part = f->val / (f->val + f->train);
        const struct chex_fractions of_train = {1 - part, part, 0};
        CHEX_TRY(cut(use->table, CHEX_TRAIN, &of_train, lists->seed, use->split, err));
    }
    fill_report(use, cut_val);
    return refuse_empty(use->table, use->report.count, train && (!cut_val || f->train > 0),
                        val || cut_val, test != NULL, err);
}

enum chex_status chex_split_official(const struct chex_label_table *table,
                                     const struct chex_split_lists *lists,
                                     enum chex_split *split_out,
                                     struct chex_split_report *report_out, struct chex_error *err) {
    char *train = NULL, *test = NULL;
    struct chex_label_index *index = NULL;
    CHEX_TRY(check_fractions(&lists->fractions, err));
    bool given = lists->train || lists->val || lists->test;
    if (lists->val && !lists->train)
        return chex_error_set(err, CHEX_E_USAGE, "a validation list (%s) needs a train list",
                              lists->val);
    if (!given)
        CHEX_TRY(find_lists(table, &train, &test, err));
    enum chex_status st = chex_label_index_create(table, &index, err);
    if (st == CHEX_OK) {
        struct list_use use = {.table = table, .index = index, .split = split_out};
        for (size_t i = 0; i < table->count; i++)
            split_out[i] = CHEX_SPLIT_UNUSED;
        st = apply_lists(&use, given ? lists->train : train, lists->val, given ? lists->test : test,
                         lists, err);
        if (st == CHEX_OK && report_out)
            *report_out = use.report;
    }
    chex_label_index_destroy(index);
    free(train);
    free(test);
    return st;
}

/* ---- audit ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char **sorted(const char *const *names, size_t count) {
    const char **copy = malloc((count ? count : 1) * sizeof *copy);
    if (!copy)
        return NULL;
    if (count)
        memcpy(copy, names, count * sizeof *copy);
    qsort(copy, count, sizeof *copy, compare_names);
    return copy;
}

struct overlap {
    size_t distinct_a, distinct_b, shared, rows_a, rows_b; // rows: of the shared names
    const char *first;
};

static size_t run_end(const char *const *names, size_t count, size_t from) {
    size_t to = from;
    while (to < count && !strcmp(names[to], names[from]))
        to++;
    return to;
}

/* Merges two sorted lists. */
static struct overlap compare_sides(const char *const *a, size_t na, const char *const *b,
                                    size_t nb) {
    struct overlap o = {0};
    for (size_t i = 0, j = 0; i < na || j < nb;) {
        int order = i == na ? 1 : j == nb ? -1 : strcmp(a[i], b[j]);
        size_t ie = order <= 0 ? run_end(a, na, i) : i, je = order >= 0 ? run_end(b, nb, j) : j;
        o.distinct_a += order <= 0;
        o.distinct_b += order >= 0;
        if (order == 0) {
            if (!o.shared++)
                o.first = a[i];
            o.rows_a += ie - i;
            o.rows_b += je - j;
        }
        i = ie;
        j = je;
    }
    return o;
}

enum chex_status chex_split_audit(const struct chex_audit_side *a, const struct chex_audit_side *b,
                                  struct chex_audit *audit_out, struct chex_error *err) {
    const char **ia = sorted(a->image_ids, a->count), **ib = sorted(b->image_ids, b->count);
    const char **pa = sorted(a->patient_ids, a->count), **pb = sorted(b->patient_ids, b->count);
    bool ok = ia && ib && pa && pb;
    if (ok) {
        struct overlap images = compare_sides(ia, a->count, ib, b->count);
        struct overlap patients = compare_sides(pa, a->count, pb, b->count);
        struct chex_audit audit = {
            .images_a = images.distinct_a,
            .images_b = images.distinct_b,
            .patients_a = patients.distinct_a,
            .patients_b = patients.distinct_b,
            .shared_images = images.shared,
            .shared_patients = patients.shared,
            .shared_patient_images_a = patients.rows_a,
            .shared_patient_images_b = patients.rows_b,
        };
        keep_first(audit.first_image, sizeof audit.first_image, images.first ? images.first : "");
        keep_first(audit.first_patient, sizeof audit.first_patient,
                   patients.first ? patients.first : "");
        *audit_out = audit;
    }
    free(ia);
    free(ib);
    free(pa);
    free(pb);
    return ok ? CHEX_OK : no_memory(err);
}

/* (2 * count) pointers: image ids, then patient ids. */
static const char **ids_of(const struct chex_label_table *t) {
    const char **ids = malloc((2 * t->count + 1) * sizeof *ids);
    for (size_t i = 0; ids && i < t->count; i++) {
        ids[i] = t->rows[i].image_id;
        ids[t->count + i] = t->rows[i].patient_id;
    }
    return ids;
}

enum chex_status chex_split_audit_tables(const struct chex_label_table *a,
                                         const struct chex_label_table *b,
                                         struct chex_audit *audit_out, struct chex_error *err) {
    const char **ids_a = ids_of(a), **ids_b = ids_of(b);
    enum chex_status st = CHEX_OK;
    if (!ids_a || !ids_b) {
        st = no_memory(err);
    } else {
        struct chex_audit_side side_a = {ids_a, ids_a + a->count, a->count};
        struct chex_audit_side side_b = {ids_b, ids_b + b->count, b->count};
        st = chex_split_audit(&side_a, &side_b, audit_out, err);
    }
    free(ids_a);
    free(ids_b);
    return st;
}
