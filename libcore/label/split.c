/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits by patient and splits by lists (split.h).
 *
 * Split by patient: every patient gets a key, a counter-based random number of (seed, hash of the
 * patient id). Rows are sorted by key, so that the rows of a patient are neighbours. Two borders
 * divide the sorted rows into test, val and train. A patient belongs to the part in which the
 * middle of its rows is. The key depends on nothing else, so a patient keeps its place when other
 * patients are added or removed.
 *
 * Split by lists: every name of a list is matched to a row (image_ids.h). Patients in two splits
 * are then refused or reduced to one split. If no list supplies val, the first method cuts it from
 * train.
 */
#include "label/split.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/units.h"
#include "label/image_ids.h"

const char *const chex_split_names[] = {"train", "val", "test", "all", NULL};

const char *const chex_shared_patients_names[] = {"refuse", "drop", NULL};

static enum chex_status check_fractions(const struct chex_fractions *f, struct chex_error *err) {
    const double part[3] = {f->train, f->val, f->test};
    for (int i = 0; i < 3; i++)
        if (!(part[i] >= 0.0 && part[i] <= 1.0))
            return chex_error_set(err, CHEX_E_USAGE, "--fractions: %g, expected 0 to 1 each",
                                  part[i]);
    double sum = f->train + f->val + f->test;
    if (fabs(sum - 1.0) > 1e-6)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--fractions %g,%g,%g: the sum is %g, expected 1 (train, val, test)",
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
                                  "--fractions '%s': expected three numbers such as 0.7,0.1,0.2 "
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
    uint64_t key; // sort key of the patient; 0 if rows are only grouped
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

/* Lists the rows of split `which` in the order of their patients' keys; without a seed the rows of
 * all splits in the order of their patients' names. */
static enum chex_status sort_by_patient(const struct chex_label_table *t,
                                        const enum chex_split *split, enum chex_split which,
                                        const uint64_t *seed, struct member **members_out,
                                        size_t *count_out, struct chex_error *err) {
    struct member *m = calloc(t->count ? t->count : 1, sizeof *m);
    if (!m)
        return chex_error_memory(err, "splits");
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (seed ? split[i] != which : split[i] == CHEX_SPLIT_UNUSED)
            continue;
        const char *patient = t->rows[i].patient_id;
        struct chex_rng4 r = {{0}};
        if (seed)
            r = chex_rng(*seed, CHEX_RNG_SPLIT, chex_hash64(patient, strlen(patient)), 0);
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

/* Divides the rows of `which` into test, val and train. A patient goes to the part in which the
 * middle of its images is, so a border is off by at most half a patient. */
static enum chex_status cut(const struct chex_label_table *t, enum chex_split which,
                            const struct chex_fractions *f, uint64_t seed, enum chex_split *split,
                            struct chex_error *err) {
    CHEX_AUTO_FREE struct member *m = NULL;
    size_t count = 0;
    CHEX_TRY(sort_by_patient(t, split, which, &seed, &m, &count, err));
    double test_end = f->test * (double)count, val_end = (f->test + f->val) * (double)count;
    for (size_t from = 0, to; from < count; from = to) {
        to = patient_end(m, count, from);
        double middle = 0.5 * ((double)from + (double)to);
        /* A split with fraction 0 stays empty, even if a border is rounded. */
        enum chex_split s = middle < test_end                   ? CHEX_TEST
                            : middle < val_end || f->train <= 0 ? CHEX_VAL
                                                                : CHEX_TRAIN;
        if (s == CHEX_VAL && f->val <= 0)
            s = CHEX_TEST;
        for (size_t i = from; i < to; i++)
            split[m[i].row] = s;
    }
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
    return chex_error_data(err,
                           "%s: the %s split is empty: of %zu image%s train %zu, val %zu, test "
                           "%zu; expected at least one patient in each",
                           t->path, empty, t->count, chex_text_s(t->count), count[CHEX_TRAIN],
                           count[CHEX_VAL], count[CHEX_TEST]);
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

enum { SHOWN_PATIENTS = 5 }; // names in the error text

struct list_use {
    const struct chex_label_table *table;
    struct chex_image_ids *ids;     // finds the table's rows
    struct chex_image_ids *dropped; // finds rows that --views dropped; NULL if there are none
    struct chex_label_table rest;   // the dropped rows as a table
    enum chex_split *split;
    struct chex_split_report report;
    const char *path[CHEX_SPLIT_COUNT]; // the list of each split
    size_t names[CHEX_SPLIT_COUNT];     // number of names in each list
};

static void release(struct list_use *use) {
    chex_image_ids_destroy(use->ids);
    chex_image_ids_destroy(use->dropped);
}

static void keep_first(char *out, size_t size, const char *id) {
    if (!out[0])
        snprintf(out, size, "%s", id);
}

static enum chex_status use_names(struct list_use *use, const struct chex_label_table *names,
                                  enum chex_split which, struct chex_error *err) {
    size_t found = 0;
    for (size_t i = 0; i < names->count; i++) {
        const char *id = names->rows[i].image_id;
        const struct chex_label_row *rival, *other;
        const struct chex_label_row *row = chex_image_ids_find(use->ids, &names->rows[i], &rival);
        if (!row && use->dropped && chex_image_ids_find(use->dropped, &names->rows[i], &other))
            continue;
        if (rival)
            return chex_error_data(err, "%s: line %zu: " CHEX_IMAGE_IDS_RIVALS, names->path,
                                   names->rows[i].line, id, row->image_id, rival->image_id);
        if (!row) {
            use->report.unknown++;
            keep_first(use->report.first_unknown, sizeof use->report.first_unknown, id);
            continue;
        }
        enum chex_split *split = &use->split[row - use->table->rows];
        if (*split != CHEX_SPLIT_UNUSED)
            return chex_error_data(
                err, "%s: line %zu, column 1: '%s' is also in %s, expected each image in one list",
                names->path, names->rows[i].line, id, use->path[*split]);
        *split = which;
        found++;
    }
    if (!found)
        return chex_error_data(err,
                               "%s: none of its %zu image%s (the first is %s) is in %s%s; to split "
                               "your own images at random by patient, use --split patient",
                               names->path, names->count, chex_text_s(names->count),
                               names->rows[0].image_id, use->table->path,
                               use->dropped ? " with the views of --views" : "");
    return CHEX_OK;
}

static enum chex_status use_list(struct list_use *use, const char *path, enum chex_split which,
                                 struct chex_error *err) {
    if (!path)
        return CHEX_OK;
    CHEX_AUTO(chex_labels_free_at) struct chex_label_table *names = NULL;
    CHEX_TRY(chex_labels_load_names(path, &names, err));
    use->path[which] = path;
    use->names[which] = names->count;
    return use_names(use, names, which, err);
}

/* The patients with rows in two splits. */
struct shared {
    size_t count, images; // images: number of dropped images
    char names[256];      // the first few patients
    const char *from[2];  // the two lists of the first patient
};

static void record_shared(struct list_use *use, struct shared *shared, const char *patient,
                          enum chex_split a, enum chex_split b) {
    size_t at = strlen(shared->names);
    if (!shared->count++)
        shared->from[0] = use->path[a], shared->from[1] = use->path[b];
    if (shared->count <= SHOWN_PATIENTS)
        snprintf(shared->names + at, sizeof shared->names - at, "%s%.40s", at ? ", " : "", patient);
}

/* Records the patients with rows in two splits. With `drop` such a patient keeps only the rows in
 * the last of its splits (train < val < test). */
static enum chex_status find_shared(struct list_use *use, bool drop, struct shared *shared,
                                    struct chex_error *err) {
    CHEX_AUTO_FREE struct member *m = NULL;
    size_t n = 0;
    CHEX_TRY(sort_by_patient(use->table, use->split, CHEX_ALL, NULL, &m, &n, err));
    for (size_t from = 0, to; from < n; from = to) {
        to = patient_end(m, n, from);
        enum chex_split first = use->split[m[from].row], last = first;
        for (size_t i = from; i < to; i++) {
            enum chex_split s = use->split[m[i].row];
            first = s < first ? s : first;
            last = s > last ? s : last;
        }
        if (first == last)
            continue;
        record_shared(use, shared, m[from].patient, first, last);
        for (size_t i = from; drop && i < to; i++)
            if (use->split[m[i].row] != last) {
                use->split[m[i].row] = CHEX_SPLIT_UNUSED;
                shared->images++;
            }
    }
    return CHEX_OK;
}

static enum chex_status judge_shared(struct list_use *use, enum chex_shared_patients policy,
                                     struct chex_error *err) {
    struct shared shared = {0};
    char more[32] = "";
    CHEX_TRY(find_shared(use, policy == CHEX_SHARED_DROP, &shared, err));
    use->report.shared_patients = shared.count;
    use->report.shared_images = shared.images;
    if (!shared.count || policy == CHEX_SHARED_DROP)
        return CHEX_OK;
    if (shared.count > SHOWN_PATIENTS)
        snprintf(more, sizeof more, " and %zu more", shared.count - SHOWN_PATIENTS);
    return chex_error_data(
        err,
        "%zu patient%s in two splits: %s%s (the first in %s and %s), expected each in one; "
        "--shared-patients drop leaves out the images of the lesser split",
        shared.count, shared.count == 1 ? " is" : "s are", shared.names, more, shared.from[0],
        shared.from[1]);
}

/* Finds train_val_list.txt and test_list.txt in the folder of the label file. The caller frees
 * both. */
static enum chex_status find_lists(const struct chex_label_table *t, char **train_out,
                                   char **test_out, struct chex_error *err) {
    int dir = (int)(chex_fs_name(t->path) - t->path);
    *train_out = chex_fs_format("%.*strain_val_list.txt", dir, t->path);
    *test_out = chex_fs_format("%.*stest_list.txt", dir, t->path);
    if (!*train_out || !*test_out)
        return chex_error_memory(err, "splits");
    if (!chex_fs_exists(*train_out) || !chex_fs_exists(*test_out))
        return chex_error_data(
            err,
            "official split: no %s beside the label file; give the lists by --train-list, "
            "--val-list and --test-list, or split at random by patient with --split patient",
            chex_fs_exists(*train_out) ? *test_out : *train_out);
    return CHEX_OK;
}

static void count_unused(struct list_use *use) {
    struct chex_split_report *r = &use->report;
    for (size_t i = 0; i < use->table->count; i++)
        if (use->split[i] == CHEX_SPLIT_UNUSED) {
            r->unused++;
            keep_first(r->first_unused, sizeof r->first_unused, use->table->rows[i].image_id);
        }
}

/* For the whole NIH table: checks that the lists in its folder have the lengths of the official
 * lists. Returns a text for the log, or sets the warning. */
static const char *check_nih_counts(struct list_use *use) {
    const struct chex_label_table *t = use->table;
    size_t train = use->names[CHEX_TRAIN], test = use->names[CHEX_TEST];
    if (strcmp(t->format, "nih") != 0 || t->file_count != CHEX_NIH_IMAGES)
        return "";
    if (train == CHEX_NIH_TRAIN_VAL && test == CHEX_NIH_TEST)
        return "; 86524 and 25596 names, as the NIH's lists have";
    snprintf(use->report.warning, sizeof use->report.warning,
             "the lists beside the NIH's whole table (%d images) hold %zu and %zu names, expected "
             "%d and %d: they are not the NIH's",
             CHEX_NIH_IMAGES, train, test, CHEX_NIH_TRAIN_VAL, CHEX_NIH_TEST);
    return "";
}

static void fill_report(struct list_use *use, bool cut_val, const char *counts) {
    size_t count[CHEX_SPLIT_COUNT + 1];
    struct chex_split_report *r = &use->report;
    const char *const *p = use->path;
    count_splits(use->table, use->split, count);
    memcpy(r->count, count, sizeof r->count);
    snprintf(r->text, sizeof r->text, "train %s, val %s, test %s%s%s",
             p[CHEX_TRAIN] ? p[CHEX_TRAIN] : "none",
             p[CHEX_VAL] ? p[CHEX_VAL]
             : cut_val   ? "cut from train by patient"
                         : "none",
             p[CHEX_TEST] ? p[CHEX_TEST] : "none", counts,
             r->shared_patients ? "" : "; no patient in two splits");
}

/* The steps after every row has its split from the lists or from the label file. */
static enum chex_status finish_official(struct list_use *use, const struct chex_split_lists *lists,
                                        const char *counts, struct chex_error *err) {
    const struct chex_fractions *f = &lists->fractions;
    const char *const *p = use->path;
    bool cut_val = p[CHEX_TRAIN] && !p[CHEX_VAL] && f->val > 0;
    count_unused(use);
    CHEX_TRY(judge_shared(use, lists->shared_patients, err));
    if (cut_val) {
        double part = f->val / (f->val + f->train);
        const struct chex_fractions of_train = {1 - part, part, 0};
        CHEX_TRY(cut(use->table, CHEX_TRAIN, &of_train, lists->seed, use->split, err));
    }
    fill_report(use, cut_val, counts);
    return refuse_empty(use->table, use->report.count, p[CHEX_TRAIN] && (!cut_val || f->train > 0),
                        p[CHEX_VAL] || cut_val, p[CHEX_TEST] != NULL, err);
}

/* Uses the splits that the label file states. */
static enum chex_status use_stated(struct list_use *use, const struct chex_split_lists *lists,
                                   struct chex_error *err) {
    static const char *const stated[] = {"the images of split train", "the images of split val",
                                         "the images of split test"};
    const struct chex_label_table *t = use->table;
    for (size_t i = 0; i < t->count; i++) {
        int split = t->rows[i].split;
        if (split == CHEX_SPLIT_NOT_STATED)
            continue;
        use->split[i] = (enum chex_split)split;
        use->path[split] = stated[split];
    }
    char counts[160];
    snprintf(counts, sizeof counts, ", by %.120s", t->split_from);
    return finish_official(use, lists, counts, err);
}

static enum chex_status index_table(struct list_use *use, struct chex_error *err) {
    const struct chex_label_table *t = use->table;
    CHEX_TRY(chex_image_ids_create(t, &use->ids, err));
    if (t->file_count == t->count)
        return CHEX_OK;
    use->rest = *t;
    use->rest.rows += t->count;
    use->rest.count = t->file_count - t->count;
    return chex_image_ids_create(&use->rest, &use->dropped, err);
}

static enum chex_status use_lists(struct list_use *use, const struct chex_split_lists *lists,
                                  const char *train, const char *test, bool given,
                                  struct chex_error *err) {
    CHEX_TRY(index_table(use, err));
    CHEX_TRY(use_list(use, train, CHEX_TRAIN, err));
    CHEX_TRY(use_list(use, lists->val, CHEX_VAL, err));
    CHEX_TRY(use_list(use, test, CHEX_TEST, err));
    return finish_official(use, lists, given ? "" : check_nih_counts(use), err);
}

enum chex_status chex_split_official(const struct chex_label_table *table,
                                     const struct chex_split_lists *lists,
                                     enum chex_split *split_out,
                                     struct chex_split_report *report_out, struct chex_error *err) {
    CHEX_AUTO_FREE char *train = NULL, *test = NULL;
    CHEX_AUTO(release) struct list_use use = {.table = table, .split = split_out};
    CHEX_TRY(check_fractions(&lists->fractions, err));
    bool given = lists->train || lists->val || lists->test;
    if (lists->val && !lists->train)
        return chex_error_set(err, CHEX_E_USAGE, "--val-list %s needs --train-list", lists->val);
    for (size_t i = 0; i < table->count; i++)
        split_out[i] = CHEX_SPLIT_UNUSED;
    if (given) {
        CHEX_TRY(use_lists(&use, lists, lists->train, lists->test, true, err));
    } else if (table->split_from) {
        CHEX_TRY(use_stated(&use, lists, err));
    } else {
        CHEX_TRY(find_lists(table, &train, &test, err));
        CHEX_TRY(use_lists(&use, lists, train, test, false, err));
    }
    if (report_out)
        *report_out = use.report;
    return CHEX_OK;
}
