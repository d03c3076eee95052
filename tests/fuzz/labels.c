/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a label file of any format: a table whose rows keep what labels.h promises, or one
 * error text. A line "==> NAME" ends a file and begins another: "metadata" and "split" for MIMIC's
 * files beside the labels, "columns" for --columns.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "label/labels.h"
#include "label/split.h"

enum part { LABELS, METADATA, SPLIT, COLUMNS, PARTS };
static const char *const part_names[PARTS] = {"labels", "metadata", "split", "columns"};

struct text {
    const uint8_t *data;
    size_t size;
};

/* The folder of links to the files, which are in memory only. */
static char dir[] = "/tmp/chex-fuzz-labels-XXXXXX";
static int files[COLUMNS];
static char paths[COLUMNS][96];

static void remove_dir(void) {
    for (int i = 0; i < COLUMNS; i++)
        unlink(paths[i]);
    rmdir(dir);
}

static void open_files(void) {
    static const char *const names[COLUMNS] = {"chexpert", "metadata", "split"};
    FUZZ_CHECK(mkdtemp(dir));
    for (int i = 0; i < COLUMNS; i++) {
        char target[64];
        files[i] = memfd_create(part_names[i], MFD_CLOEXEC);
        snprintf(target, sizeof target, "/proc/%d/fd/%d", (int)getpid(), files[i]);
        snprintf(paths[i], sizeof paths[i], "%s/x-%s.csv", dir, names[i]);
        FUZZ_CHECK(files[i] >= 0 && symlink(target, paths[i]) == 0);
    }
    atexit(remove_dir);
}

/* Cuts the input at its "==> NAME" lines. */
static void take_apart(const uint8_t *data, size_t size, struct text parts[PARTS]) {
    static const char mark[] = "\n==> ";
    int part = LABELS;
    memset(parts, 0, PARTS * sizeof *parts);
    for (const uint8_t *end = data + size; data < end;) {
        const uint8_t *stop = memmem(data, (size_t)(end - data), mark, sizeof mark - 1);
        parts[part] = (struct text){data, (size_t)((stop ? stop : end) - data)};
        if (!stop)
            return;
        data = stop + sizeof mark - 1;
        for (part = PARTS - 1; part > LABELS; part--) {
            size_t n = strlen(part_names[part]);
            if ((size_t)(end - data) > n && !memcmp(data, part_names[part], n) && data[n] == '\n') {
                data += n + 1;
                break;
            }
        }
        if (part == LABELS)
            return;
    }
}

static void check_table(const struct chex_label_table *t) {
    FUZZ_CHECK(t->class_count > 0 && t->count == t->file_count && t->detected[0]);
    for (size_t c = 0; c < t->class_count; c++)
        FUZZ_CHECK(t->classes[c][0] && !strpbrk(t->classes[c], ", \"\n"));
    for (size_t r = 0; r < t->count; r++) {
        const struct chex_label_row *row = &t->rows[r];
        FUZZ_CHECK(row->image_id[0] && strlen(row->image_id) < 256 && !strchr(row->image_id, '/'));
        FUZZ_CHECK(row->patient_id[0] && row->line > 0 && row->path[0]);
        FUZZ_CHECK(row->age_years >= CHEX_AGE_UNKNOWN && row->age_years < 10000);
        FUZZ_CHECK(row->sex == 0 || row->sex == 'M' || row->sex == 'F');
        FUZZ_CHECK(row->split >= CHEX_SPLIT_NOT_STATED && row->split <= CHEX_TEST);
        FUZZ_CHECK(row->split == CHEX_SPLIT_NOT_STATED || t->split_from);
        for (size_t c = 0; c < t->class_count; c++)
            FUZZ_CHECK(row->labels[c] <= 1 && row->labels[c] >= CHEX_LABEL_NOT_STATED);
    }
}

/* What the file states of its splits never puts a patient in two splits. */
static void check_splits(const struct chex_label_table *t) {
    static const struct chex_split_lists lists = {
        .fractions = {0.7, 0.1, 0.2}, .seed = 1, .shared_patients = CHEX_SHARED_DROP};
    struct chex_error err = {0};
    struct chex_split_report report;
    enum chex_split *split = calloc(t->count, sizeof *split);
    FUZZ_CHECK(split);
    if (t->split_from && t->count < 300 &&
        chex_split_official(t, &lists, split, &report, &err) == CHEX_OK)
        for (size_t i = 0; i < t->count; i++)
            for (size_t k = 0; k < i; k++)
                FUZZ_CHECK((int)split[i] == CHEX_SPLIT_UNUSED ||
                           (int)split[k] == CHEX_SPLIT_UNUSED || split[i] == split[k] ||
                           strcmp(t->rows[i].patient_id, t->rows[k].patient_id) != 0);
    free(split);
}

static void load(const char *format, const char *columns) {
    struct chex_label_table *table = NULL;
    struct chex_error err = {0};
    enum chex_status st = chex_labels_load(paths[LABELS], format, columns, &table, &err);
    FUZZ_CHECK((st == CHEX_OK) == (table != NULL) && (st == CHEX_OK || err.text[0]));
    FUZZ_CHECK(st == CHEX_OK || st == CHEX_E_DATA || (st == CHEX_E_USAGE && columns));
    if (table) {
        check_table(table);
        check_splits(table);
    }
    chex_labels_free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct text parts[PARTS];
    struct chex_label_table *names = NULL;
    struct chex_error err = {0};
    char columns[512] = "";
    if (!files[0])
        open_files();
    take_apart(data, size, parts);
    for (int i = 0; i < COLUMNS; i++)
        FUZZ_CHECK(ftruncate(files[i], 0) == 0 &&
                   pwrite(files[i], parts[i].data, parts[i].size, 0) == (ssize_t)parts[i].size);
    size_t n = parts[COLUMNS].size < sizeof columns ? parts[COLUMNS].size : sizeof columns - 1;
    if (n)
        memcpy(columns, parts[COLUMNS].data, n);
    columns[strcspn(columns, "\n")] = '\0';
    for (const char *const *format = chex_label_format_names; *format; format++)
        load(*format, NULL);
    if (*columns)
        load("csv", columns);
    if (chex_labels_load_names(paths[LABELS], &names, &err) == CHEX_OK)
        chex_labels_free(names);
    return 0;
}
