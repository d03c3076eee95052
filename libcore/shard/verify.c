/* SPDX-License-Identifier: Apache-2.0
 *
 * `chex-shard verify` (verify.h), in this order:
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
 */
#include "shard/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/progress.h"
#include "base/text.h"
#include "label/label_counts.h"
#include "label/labels.h"
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
    CHEX_AUTO_FREE struct chex_pixel_fault *faults = chex_alloc_zeroed(count, sizeof *faults);
    size_t rows = 0, size = (size_t)chex_shard_size(shards[0]);
    if (!faults)
        return chex_error_memory(err, "verify");
    for (size_t i = 0; i < count; i++)
        rows += chex_shard_rows(shards[i]);
    struct chex_progress *progress = chex_progress_create("verifying", "img", rows, shown);
    enum chex_status st = chex_pixels_check(shards, count, threads, progress, 0, faults, err);
    chex_progress_destroy(progress, false);
    result->shards += count;
    result->rows += rows;
    result->bytes += (uint64_t)rows * size * size;
    for (size_t i = 0; st == CHEX_OK && i < count; i++)
        if (faults[i].rows)
            st = add_fault(result, chex_shard_path(shards[i]), faults[i].first.text, faults[i].rows,
                           err);
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
            return chex_error_data(err, "%s: image %s is in two shards of split %s", set->dir,
                                   ids[i], chex_split_names[set->split]);
    return CHEX_OK;
}

/* Compares positives, uncertain labels, patients and image ids of a split with the manifest. */
static enum chex_status check_counts(const struct chex_set *set, const struct chex_manifest *m,
                                     struct chex_error *err) {
    const struct chex_manifest_split *split = &m->splits[set->split];
    const char *name = chex_split_names[set->split];
    size_t classes = (size_t)set->classes, patients = 0;
    uint64_t members = 0;
    CHEX_AUTO_FREE struct chex_label_counts *counts = chex_alloc_zeroed(classes, sizeof *counts);
    CHEX_AUTO_FREE const char **ids = chex_alloc_zeroed(set->rows, sizeof *ids);
    if (!counts || !ids)
        return chex_error_memory(err, "verify");
    for (size_t row = 0, i; row < set->rows; row++) {
        const struct chex_shard *s = chex_set_locate(set, row, &i);
        ids[row] = chex_shard_patient_id(s, i);
        chex_label_counts_add(counts, chex_shard_labels(s, i), classes);
    }
    qsort(ids, set->rows, sizeof *ids, chex_text_compare);
    for (size_t i = 0; i < set->rows; i++)
        patients += i == 0 || strcmp(ids[i], ids[i - 1]) != 0;
    CHEX_TRY(check_unique_images(set, ids, err));
    for (size_t i = 0; i < set->shard_count; i++)
        members += chex_members_sum(set->shards[i]);
    if (members != split->members)
        return chex_error_data(err, "%s: split %s holds other images than the manifest says",
                               set->dir, name);
    if (patients != split->patients)
        return chex_error_data(err, "%s: split %s has %zu patients, the manifest says %zu",
                               set->dir, name, patients, split->patients);
    for (size_t c = 0; c < classes; c++)
        if (counts[c].positive != split->positives[c] || counts[c].uncertain != split->uncertain[c])
            return chex_error_data(err,
                                   "%s: split %s has %zu positive and %zu uncertain of %s, the "
                                   "manifest says %zu and %zu",
                                   set->dir, name, counts[c].positive, counts[c].uncertain,
                                   m->classes[c], split->positives[c], split->uncertain[c]);
    return CHEX_OK;
}

struct owner {
    const char *patient;
    int split;
};

static int by_patient(const void *a, const void *b) {
    const struct owner *x = a, *y = b;
    return strcmp(x->patient, y->patient);
}

/* The patients of all open shards, sorted. NULL: out of memory. */
static struct owner *list_owners(struct chex_set *const *sets, size_t *count_out) {
    size_t rows = 0, n = 0;
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++)
        rows += sets[k] ? sets[k]->rows : 0;
    struct owner *owners = chex_alloc_zeroed(rows, sizeof *owners);
    for (int k = 0; owners && k < CHEX_SPLIT_COUNT; k++)
        for (size_t i = 0; sets[k] && i < sets[k]->shard_count; i++) {
            const struct chex_shard *s = sets[k]->shards[i];
            for (size_t row = 0; s && row < chex_shard_rows(s); row++)
                owners[n++] = (struct owner){chex_shard_patient_id(s, row), k};
        }
    if (n)
        qsort(owners, n, sizeof *owners, by_patient);
    *count_out = n;
    return owners;
}

/* No patient may be in two splits of a set. */
static enum chex_status check_leaks(const char *dir, struct chex_set *const *sets,
                                    struct chex_error *err) {
    size_t shared[CHEX_SPLIT_COUNT][CHEX_SPLIT_COUNT] = {{0}}, n = 0;
    const char *first[CHEX_SPLIT_COUNT][CHEX_SPLIT_COUNT];
    CHEX_AUTO_FREE struct owner *owners = list_owners(sets, &n);
    if (!owners)
        return chex_error_memory(err, "verify");
    for (size_t i = 0, in = 0; i < n; i++) {
        in |= (size_t)1 << owners[i].split;
        if (i + 1 < n && by_patient(&owners[i], &owners[i + 1]) == 0)
            continue;
        for (int a = 0; a < CHEX_SPLIT_COUNT; a++)
            for (int b = a + 1; b < CHEX_SPLIT_COUNT; b++)
                if (in >> a & in >> b & 1 && shared[a][b]++ == 0)
                    first[a][b] = owners[i].patient;
        in = 0;
    }
    for (int a = 0; a < CHEX_SPLIT_COUNT; a++)
        for (int b = a + 1; b < CHEX_SPLIT_COUNT; b++)
            if (shared[a][b])
                return chex_error_data(err, "%s: %zu patient%s in both %s and %s, the first is %s",
                                       dir, shared[a][b], shared[a][b] == 1 ? " is" : "s are",
                                       chex_split_names[a], chex_split_names[b], first[a][b]);
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
static enum chex_status open_split(const char *dir, enum chex_split split,
                                   const struct chex_manifest *m, struct chex_verify_result *result,
                                   struct chex_set **set_out, struct chex_error *err) {
    struct bad_shards bad = {.result = result};
    CHEX_TRY(chex_set_open_sound(dir, split, record_bad_shard, &bad, set_out, err));
    if (bad.status != CHEX_OK)
        return chex_error_memory(err, "verify");
    return bad.count ? CHEX_OK : record_data_error(result, check_counts(*set_out, m, err), err);
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
    CHEX_AUTO_FREE struct chex_shard **open =
        chex_alloc_zeroed(set->shard_count, sizeof(struct chex_shard *));
    if (!open)
        return chex_error_memory(err, "verify");
    for (size_t i = 0; i < set->shard_count; i++)
        if (set->shards[i])
            open[n++] = set->shards[i];
    CHEX_TRY(check_texts(open, n, result, err));
    return n ? read_shards(open, n, threads, shown, result, err) : CHEX_OK;
}

/* Sums the source digests of all shards. False: a shard is missing. */
static bool sum_sources(struct chex_set *const *sets, uint64_t sum_out[2]) {
    sum_out[0] = sum_out[1] = 0;
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        const struct chex_set *set = sets[s];
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
static enum chex_status check_labels_file(const char *labels, struct chex_set *const *sets,
                                          const struct chex_manifest *m,
                                          struct chex_verify_result *result,
                                          struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    char mine[CHEX_HASH128_HEX_BYTES], both[CHEX_HASH128_HEX_BYTES], why[512];
    size_t size = 0;
    uint64_t sum[2];
    if (!labels)
        return CHEX_OK;
    CHEX_TRY(chex_fs_read(labels, CHEX_LABELS_MAX_BYTES, &text, &size, err));
    bool whole = sum_sources(sets, sum);
    chex_hash128_hex(text, size, mine);
    chex_manifest_source_digest(sum, text, size, both);
    bool same = strcmp(mine, m->labels_digest) == 0;
    result->labels = same ? CHEX_VERIFY_LABELS_SAME : CHEX_VERIFY_LABELS_OTHER;
    result->source_differs = same && whole && strcmp(both, m->source_digest) != 0;
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
    return chex_error_data(
        err,
        "%s/" CHEX_MANIFEST_NAME
        ": its content does not match its digest: changed since the set was made",
        dir);
}

static enum chex_status verify_set(const char *dir, const char *labels, int threads, bool shown,
                                   struct chex_verify_result *result, struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_AUTO(chex_sets_close) struct chex_set *sets[CHEX_SPLIT_COUNT] = {NULL};
    const enum chex_status st = chex_manifest_read(dir, &m, err);
    if (st != CHEX_OK)
        return record_data_error(result, st, err);
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (m->splits[s].shard_count)
            CHEX_TRY(open_split(dir, (enum chex_split)s, m, result, &sets[s], err));
    CHEX_TRY(record_data_error(result, check_leaks(dir, sets, err), err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (sets[s])
            CHEX_TRY(read_split(sets[s], threads, shown, result, err));
    CHEX_TRY(check_labels_file(labels, sets, m, result, err));
    return result->fault_count /* other faults are more specific */
               ? CHEX_OK
               : record_data_error(result, check_manifest(dir, m, err), err);
}

static enum chex_status verify_shard(const char *path, int threads, bool shown,
                                     struct chex_verify_result *result, struct chex_error *err) {
    CHEX_AUTO(chex_shard_close_at) struct chex_shard *shard = NULL;
    const enum chex_status st = chex_shard_open(path, &shard, err);
    if (st == CHEX_E_DATA)
        return add_fault(result, path, err->text, 0, err);
    CHEX_TRY(st);
    CHEX_TRY(check_texts(&shard, 1, result, err));
    return read_shards(&shard, 1, threads, shown, result, err);
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
        return chex_error_data(err, "%s", r.faults[0].text);
    return chex_error_data(err, "%zu faults; the first: %s", r.fault_count, r.faults[0].text);
}
