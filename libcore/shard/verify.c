/* SPDX-License-Identifier: Apache-2.0
 *
 * `chex-shard verify` and `chex-shard audit` (verify.h).
 *
 * Verify, in this order:
 * 1. The manifest is read, and every shard is opened and compared with its entry there.
 * 2. For each complete split: positives, uncertain labels, patients and image ids match the
 *    manifest, and no image is there twice.
 * 3. No patient is in two splits.
 * 4. Every shard that could be opened: no control characters in names and ids, and every row
 *    matches its checksum.
 * 5. The label file, if given, matches its digest in the manifest.
 * 6. The manifest matches its own digest. This runs only if no other fault was found, because other
 *    faults are more specific.
 *
 * Data that is wrong is recorded as a fault, and the check continues. Only other errors (memory,
 * I/O) end it.
 *
 * Audit reads image ids, patients and labels of two sources and counts what they share. A source of
 * unknown type is read as HDF5 if it begins with the HDF5 signature. Otherwise it is read as a
 * label file, and if that fails as a list of file names.
 */
#include "shard/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "label/image_ids.h"
#include "shard/manifest.h"
#include "shard/members.h"
#include "shard/pixels_check.h"
#include "shard/shard.h"

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
        return chex_error_memory(err, "verify");
    r->faults = grown;
    struct chex_verify_fault *f = &grown[r->fault_count++];
    *f = (struct chex_verify_fault){
        .file = file ? strdup(file) : NULL, .text = strdup(text), .rows = rows};
    return (f->file || !file) && f->text ? CHEX_OK : chex_error_memory(err, "verify");
}

/* Records CHEX_E_DATA as a fault of the set. Returns any other status to the caller. */
static enum chex_status record_data_error(struct chex_verify_result *r, enum chex_status st,
                                          struct chex_error *err) {
    return st == CHEX_E_DATA ? add_fault(r, NULL, err->text, 0, err) : st;
}

/* ---- pixels ---- */

/* Compares all pixels of the shards with their checksums. shards (count): at least one, all with
 * the same image size. */
static enum chex_status read_shards(struct chex_shard *const *shards, size_t count, int threads,
                                    bool shown, struct chex_verify_result *result,
                                    struct chex_error *err) {
    struct chex_pixel_fault *faults = chex_alloc_zeroed(count, sizeof *faults);
    size_t rows = 0, size = (size_t)chex_shard_size(shards[0]);
    if (!faults)
        return chex_error_memory(err, "verify");
    for (size_t i = 0; i < count; i++)
        rows += chex_shard_rows(shards[i]);
    struct chex_progress *progress = chex_progress_create("verifying", "img", rows, shown);
    enum chex_status st = chex_pixels_check(shards, count, threads, progress, 0, faults, err);
    chex_progress_destroy(progress, false);
    for (size_t i = 0; st == CHEX_OK && i < count; i++) {
        struct chex_pixel_fault *f = &faults[i];
        if (f->rows)
            st = add_fault(result, chex_shard_path(shards[i]), f->first.text, f->rows, err);
    }
    free(faults);
    result->shards += count;
    result->rows += rows;
    result->bytes += (uint64_t)rows * size * size;
    return st;
}

/* ---- the set ---- */

/* Refuses an image that is in two shards. chex_shard_open() already refused duplicates within a
 * shard. ids (set->rows) is scratch. */
static enum chex_status check_unique_images(const struct chex_set *set, const char **ids,
                                            struct chex_error *err) {
    for (size_t row = 0; row < set->rows; row++) {
        size_t i;
        const struct chex_shard *s = chex_set_locate(set, row, &i);
        ids[row] = chex_shard_image_id(s, i);
    }
    qsort(ids, set->rows, sizeof *ids, chex_text_compare);
    for (size_t i = 1; i < set->rows; i++)
        if (strcmp(ids[i], ids[i - 1]) == 0)
            return chex_error_set(err, CHEX_E_DATA, "%s: image %s is in two shards of split %s",
                                  set->dir, ids[i], chex_split_names[set->split]);
    return CHEX_OK;
}

/* Compares positives, uncertain labels, patients and image ids of a split with the manifest. */
static enum chex_status check_counts(const struct chex_set *set, const struct chex_manifest *m,
                                     struct chex_error *err) {
    const struct chex_manifest_split *split = &m->splits[set->split];
    const char *name = chex_split_names[set->split];
    size_t classes = (size_t)set->classes, patients = 0;
    uint64_t members = 0;
    size_t *counts = chex_alloc_zeroed(2 * classes, sizeof *counts);
    const char **ids = chex_alloc_zeroed(set->rows, sizeof *ids);
    enum chex_status st = counts && ids ? CHEX_OK : chex_error_memory(err, "verify");
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
        qsort(ids, set->rows, sizeof *ids, chex_text_compare);
    for (size_t i = 0; st == CHEX_OK && i < set->rows; i++)
        patients += i == 0 || strcmp(ids[i], ids[i - 1]) != 0;
    if (st == CHEX_OK)
        st = check_unique_images(set, ids, err);
    for (size_t i = 0; st == CHEX_OK && i < set->shard_count; i++)
        members += chex_members_sum(set->shards[i]);
    if (st == CHEX_OK && members != split->members)
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

/* One source: ids and labels of its images, and the objects that own them. */
struct side {
    struct chex_set *sets[CHEX_SPLIT_COUNT];
    struct chex_shard *shard;
    struct chex_label_table *table;
    const char **images, **patients;
    const int8_t **labels;
    const char *const *class_names;
    const char **own_names; /* class_names, if no other object owns the list; else NULL */
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
    return images && patients && labels ? CHEX_OK : chex_error_memory(err, "audit");
}

static void side_put(struct side *s, const char *image, const char *patient, const int8_t *labels) {
    s->images[s->count] = image;
    s->patients[s->count] = patient;
    s->labels[s->count++] = labels;
}

/* Sets the classes of a side from its first shard. All shards of a set have the same classes. */
static enum chex_status side_classes(struct side *side, const struct chex_shard *s,
                                     struct chex_error *err) {
    if (side->class_names)
        return CHEX_OK;
    size_t n = (size_t)chex_shard_classes(s);
    const char **names = chex_alloc_zeroed(n, sizeof *names);
    if (!names)
        return chex_error_memory(err, "audit");
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

/* Adds the open shards of side->sets[split]. */
static enum chex_status side_add_split(struct side *side, enum chex_split split,
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
    return side_add_split(side, split, err);
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
                return chex_error_set(
                    err, CHEX_E_DATA, "%s: %zu patient%s in both %s and %s, the first is %s", dir,
                    audit.shared_patients, audit.shared_patients == 1 ? " is" : "s are",
                    chex_split_names[a], chex_split_names[b], audit.first_patient);
        }
    return CHEX_OK;
}

struct bad_shards {
    struct chex_verify_result *result;
    size_t count; /* of this split */
    enum chex_status status;
};

static void record_bad_shard(void *arg, size_t shard, const char *path,
                             const struct chex_error *why) {
    struct bad_shards *b = arg;
    (void)shard;
    b->count++;
    if (b->status == CHEX_OK)
        b->status = add_fault(b->result, path, why->text, 0, NULL);
}

/* Opens the shards of a split. If no shard is bad, compares the counts with the manifest. */
static enum chex_status open_split(struct side *side, const char *dir, enum chex_split split,
                                   const struct chex_manifest *m, struct chex_verify_result *result,
                                   struct chex_error *err) {
    struct bad_shards bad = {.result = result};
    CHEX_TRY(chex_set_open_sound(dir, split, record_bad_shard, &bad, &side->sets[split], err));
    if (bad.status != CHEX_OK)
        return chex_error_memory(err, "verify");
    CHEX_TRY(side_add_split(side, split, err));
    return bad.count ? CHEX_OK
                     : record_data_error(result, check_counts(side->sets[split], m, err), err);
}

static enum chex_status add_text_fault(struct chex_verify_result *result,
                                       const struct chex_shard *s, const char *what, size_t row,
                                       const char *text, struct chex_error *err) {
    char shown[64], fault[CHEX_ERROR_TEXT_BYTES];
    snprintf(fault, sizeof fault, "%s: row %zu: %s '%s' has control characters", chex_shard_path(s),
             row, what, chex_text_printable(text, shown, sizeof shown));
    return add_fault(result, chex_shard_path(s), fault, 1, err);
}

/* Reports the first id or class name with control characters of each shard. `chex-shard create`
 * never writes such names. */
static enum chex_status check_texts(struct chex_shard *const *shards, size_t count,
                                    struct chex_verify_result *result, struct chex_error *err) {
    for (size_t i = 0; i < count; i++) {
        const struct chex_shard *s = shards[i];
        const char *bad = NULL, *what = "finding";
        size_t row = 0;
        for (int c = 0; c < chex_shard_classes(s) && !bad; c++)
            if (chex_text_has_control(chex_shard_class(s, c)))
                bad = chex_shard_class(s, c);
        for (size_t r = 0; r < chex_shard_rows(s) && !bad; r++) {
            const char *study = chex_shard_study_id(s, r);
            const char *const ids[] = {chex_shard_image_id(s, r), chex_shard_patient_id(s, r),
                                       study ? study : ""};
            static const char *const names[] = {"image_id", "patient_id", "study_id"};
            for (int k = 0; k < 3 && !bad; k++) {
                if (!chex_text_has_control(ids[k]))
                    continue;
                bad = ids[k];
                what = names[k];
                row = r;
            }
        }
        if (bad)
            CHEX_TRY(add_text_fault(result, s, what, row, bad, err));
    }
    return CHEX_OK;
}

/* Checks names and pixels of all open shards of a split. */
static enum chex_status read_split(const struct chex_set *set, int threads, bool shown,
                                   struct chex_verify_result *result, struct chex_error *err) {
    size_t n = 0;
    struct chex_shard **open = chex_alloc_zeroed(set->shard_count, sizeof(struct chex_shard *));
    if (!open)
        return chex_error_memory(err, "verify");
    for (size_t i = 0; i < set->shard_count; i++)
        if (set->shards[i])
            open[n++] = set->shards[i];
    enum chex_status st = check_texts(open, n, result, err);
    if (st == CHEX_OK && n)
        st = read_shards(open, n, threads, shown, result, err);
    free(open);
    return st;
}

/* Sums the source digests of all shards. False: a shard is missing. */
static bool sum_sources(const struct side sides[CHEX_SPLIT_COUNT], uint64_t sum_out[2]) {
    sum_out[0] = sum_out[1] = 0;
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        const struct chex_set *set = sides[s].sets[s];
        for (size_t i = 0; set && i < set->shard_count; i++) {
            if (!set->shards[i])
                return false;
            chex_shard_add_source(set->shards[i], sum_out);
        }
    }
    return true;
}

/* Compares a label file with the manifest. source_digest, which covers shards and label file
 * together, can match only if the shards are those that `create` wrote; `reshard` changes them. */
static enum chex_status check_labels_file(const char *labels, const struct side *sides,
                                          const struct chex_manifest *m,
                                          struct chex_verify_result *result,
                                          struct chex_error *err) {
    char *text = NULL, mine[CHEX_HASH128_HEX_BYTES], source[CHEX_HASH128_HEX_BYTES], why[512];
    size_t size = 0;
    uint64_t sum[2];
    if (!labels)
        return CHEX_OK;
    CHEX_TRY(chex_fs_read(labels, CHEX_LABELS_MAX_BYTES, &text, &size, err));
    bool whole = sum_sources(sides, sum);
    chex_hash128_hex(text, size, mine);
    chex_manifest_source_digest(sum, text, size, source);
    free(text);
    bool same = strcmp(mine, m->labels_digest) == 0;
    result->labels = same ? CHEX_VERIFY_LABELS_SAME : CHEX_VERIFY_LABELS_OTHER;
    result->source_differs = same && whole && strcmp(source, m->source_digest) != 0;
    if (same)
        return CHEX_OK;
    snprintf(why, sizeof why,
             "%.300s: not the label file that the set was made from (digest %s; the manifest says "
             "%.40s)",
             labels, mine, m->labels_digest);
    return add_fault(result, labels, why, 0, err);
}

static enum chex_status check_manifest(const char *dir, const struct chex_manifest *m,
                                       struct chex_error *err) {
    if (!m->altered)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s/" CHEX_MANIFEST_NAME ": its content does not match its digest: "
                          "changed since the set was made",
                          dir);
}

static enum chex_status verify_set(const char *dir, const char *labels, int threads, bool shown,
                                   struct chex_verify_result *result, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    struct side sides[CHEX_SPLIT_COUNT] = {0};
    enum chex_status st = chex_manifest_read(dir, &m, err);
    if (st != CHEX_OK)
        return record_data_error(result, st, err);
    for (int s = 0; s < CHEX_SPLIT_COUNT && st == CHEX_OK; s++)
        if (m->splits[s].shard_count)
            st = open_split(&sides[s], dir, (enum chex_split)s, m, result, err);
    if (st == CHEX_OK)
        st = record_data_error(result, check_leaks(dir, sides, err), err);
    for (int s = 0; s < CHEX_SPLIT_COUNT && st == CHEX_OK; s++)
        if (sides[s].sets[s])
            st = read_split(sides[s].sets[s], threads, shown, result, err);
    if (st == CHEX_OK)
        st = check_labels_file(labels, sides, m, result, err);
    if (st == CHEX_OK && !result->fault_count) /* other faults are more specific */
        st = record_data_error(result, check_manifest(dir, m, err), err);
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
        st = check_texts(&shard, 1, result, err);
    if (st == CHEX_OK)
        st = read_shards(&shard, 1, threads, shown, result, err);
    chex_shard_close(shard);
    return st;
}

enum chex_status chex_verify(const char *path, const char *labels, int threads, bool show_progress,
                             struct chex_verify_result *result_out, struct chex_error *err) {
    struct chex_error own = {0}; /* fault texts are copied from it, so it is never NULL */
    struct chex_verify_result r = {0};
    double start = chex_clock_s();
    bool file = chex_fs_exists(path) && !chex_fs_is_dir(path);
    err = err ? err : &own;
    *result_out = r;
    if (file && labels)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "%s is one shard, expected the folder of a set to compare labels with", path);
    enum chex_status st = file ? verify_shard(path, threads, show_progress, &r, err)
                               : verify_set(path, labels, threads, show_progress, &r, err);
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
    int fd = -1;
    if (chex_fs_open(path, &fd, NULL, NULL) != CHEX_OK)
        return false;
    bool yes = pread(fd, head, 8, 0) == 8 && memcmp(head, magic, 8) == 0;
    close(fd);
    return yes;
}

struct chex_audit_pair {
    const struct chex_audit_labels *labels; /* NULL after opening */
    struct chex_label_table *table;         /* of labels->path; NULL without one */
    struct chex_image_ids *ids;
    struct side a, b;
    struct chex_audit audit;
};

/* Adds the images of a list of names, with patients and labels from the label file. */
static enum chex_status side_names(const struct chex_audit_pair *p, struct side *side,
                                   const char *path, struct chex_error *err) {
    const struct chex_label_table *names = side->table;
    for (size_t i = 0; i < names->count; i++) {
        const char *id = names->rows[i].image_id;
        const struct chex_label_row *rival;
        const struct chex_label_row *row = chex_image_ids_find(p->ids, &names->rows[i], &rival);
        if (rival)
            return chex_error_set(err, CHEX_E_DATA, "%s: line %zu: " CHEX_IMAGE_IDS_RIVALS, path,
                                  names->rows[i].line, id, row->image_id, rival->image_id);
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

/* Loads a source as a label file. --columns applies to plain CSV only, and the other source may
 * have a format that its header identifies. So if loading with columns fails, try again without
 * them. A plain CSV file without the named columns stays an error. */
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

/* Loads a list of names. A first line with a comma is the header of a table, not a name. */
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

/* Loads a source as a list of names or as a label file. With --labels a list is tried first;
 * without, a label file is tried first. If both fail, the error is that of the label file. */
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

/* If `path` ends in the name of a split: returns the split's number and the folder above it, which
 * the caller frees. Otherwise -1. */
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
    return chex_image_ids_create(p->table, &p->ids, err);
}

enum chex_status chex_audit_open(const char *a, const char *b,
                                 const struct chex_audit_labels *labels,
                                 struct chex_audit_pair **pair_out, struct chex_audit *audit_out,
                                 struct chex_error *err) {
    struct chex_audit_pair *p = chex_alloc_zeroed(1, sizeof *p);
    if (!p)
        return chex_error_memory(err, "audit");
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
    chex_image_ids_destroy(p->ids);
    chex_labels_free(p->table);
    free(p);
}
