/* SPDX-License-Identifier: Apache-2.0
 *
 * The input of create: labels, splits, the file of each row, images that cannot be used, and the
 * layout of the shards. Every rank computes all of it for itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/archive.h"
#include "ingest/create_private.h"
#include "ingest/spool.h"
#include "ingest/tfrecord.h"
#include "label/label_counts.h"

enum { SHOWN_BAD = 20 }; /* bad images in the log; OUT.rejected.csv lists all */

static enum chex_status split_rows(struct chex_create *c, struct chex_error *err) {
    const struct chex_create_options *o = c->o;
    if (!(c->split = chex_alloc_zeroed(c->table->count, sizeof *c->split)))
        return chex_error_memory(err, "the list of images");
    if (o->split_mode == CHEX_SPLIT_NONE) {
        chex_split_none(c->table, c->split);
        return CHEX_OK;
    }
    if (o->split_mode == CHEX_SPLIT_PATIENT)
        return chex_split_by_patient(c->table, &o->fractions, o->seed, c->split, err);
    struct chex_split_lists lists = {.train = o->train_list,
                                     .val = o->val_list,
                                     .test = o->test_list,
                                     .shared_patients = o->shared_patients,
                                     .fractions = o->fractions,
                                     .seed = o->seed};
    struct chex_split_report report = {0};
    CHEX_TRY(chex_split_official(c->table, &lists, c->split, &report, err));
    chex_info("official split: %s", report.text);
    if (report.warning[0] && c->group->rank == 0)
        chex_warn("%s", report.warning);
    if (report.shared_patients && c->group->rank == 0)
        chex_warn("%zu patient%s in two splits: %zu of their images %s left out (test has "
                  "precedence over val, val over train)",
                  report.shared_patients, report.shared_patients == 1 ? " is" : "s are",
                  report.shared_images, report.shared_images == 1 ? "is" : "are");
    if (report.unused && c->group->rank == 0)
        chex_warn("%zu image%s to no split and %s left out, such as %s", report.unused,
                  report.unused == 1 ? " belongs" : "s belong", report.unused == 1 ? "is" : "are",
                  report.first_unused);
    if (report.unknown && c->group->rank == 0)
        chex_warn("%zu names of the lists are not in %s, such as %s", report.unknown, o->labels,
                  report.first_unknown);
    return CHEX_OK;
}

/* Users often swap --images and --labels: detect it and say so. */
static enum chex_status check_kinds(const struct chex_create_options *o, struct chex_error *err) {
    const bool folder = chex_fs_is_dir(o->labels);
    const bool file =
        chex_fs_exists(o->images) && !chex_fs_is_dir(o->images) && !chex_archive_named(o->images);
    if (folder && file)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--images %s is a file and --labels %s is a folder: are the two "
                              "swapped?",
                              o->images, o->labels);
    if (folder)
        return chex_error_set(err, CHEX_E_USAGE, "--labels %s: a folder, expected a label file",
                              o->labels);
    if (file)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--images %s: a file, expected a folder of images or an archive "
                              "(.tar, .tar.gz, .tgz)",
                              o->images);
    return CHEX_OK;
}

enum chex_status chex_create_load_labels(struct chex_create *c, struct chex_error *err) {
    const struct chex_create_options *o = c->o;
    size_t patients = 0;
    if (o->records)
        CHEX_TRY(chex_tfrecord_load(o->records, o->record_count, o->label_order, (int)o->workers,
                                    &c->table, &c->folder, err));
    else
        CHEX_TRY(chex_labels_load(o->labels, o->format, o->columns, &c->table, err));
    CHEX_TRY(chex_labels_count_patients(c->table, &patients, err));
    chex_info("labels %s: %s, %zu image%s of %zu patient%s", o->labels, c->table->detected,
              c->table->count, chex_text_s(c->table->count), patients, chex_text_s(patients));
    if (c->table->ignored)
        chex_info("labels %s: ignored columns: %s", o->labels, c->table->ignored);
    if (c->table->warning[0] && c->group->rank == 0)
        chex_warn("%s: %s", o->labels, c->table->warning);
    if (o->views) {
        size_t dropped = chex_labels_keep_views(c->table, o->views);
        chex_info("views: %zu image%s kept, %zu left out", c->table->count,
                  chex_text_s(c->table->count), dropped);
    }
    size_t unstated = chex_labels_apply_not_stated(c->table, o->not_stated);
    if (unstated)
        chex_info("labels that are not stated: %zu, policy %s", unstated,
                  chex_not_stated_names[o->not_stated]);
    size_t uncertain = chex_labels_apply_uncertain(c->table, o->uncertain);
    if (uncertain)
        chex_info("uncertain labels: %zu, policy %s", uncertain,
                  chex_uncertain_names[o->uncertain]);
    return CHEX_OK;
}

enum chex_status chex_create_mark_bad(struct chex_create *c, size_t row, const char *reason,
                                      struct chex_error *err) {
    if (c->bad[row])
        return CHEX_OK;
    if (!(c->reasons[row] = strdup(reason)))
        return chex_error_memory(err, "the list of images");
    c->bad[row] = true;
    c->bad_count++;
    return CHEX_OK;
}

static enum chex_status mark_missing(struct chex_create *c, size_t row, struct chex_error *err) {
    const struct chex_label_row *r = &c->table->rows[row];
    const struct chex_folder_file *unread = chex_folder_find_unread(c->folder, r->path);
    char reason[CHEX_ERROR_TEXT_BYTES], why[160] = "";
    if (chex_fs_is_hidden(r->path))
        snprintf(why, sizeof why, ": files and folders whose names begin with a dot are skipped");
    else if (unread)
        snprintf(why, sizeof why, ": it is %.150s", unread->unread);
    snprintf(reason, sizeof reason, "%s: line %zu: image %s is not under %s%s", c->table->rows_path,
             r->line, r->path, c->o->images, why);
    return chex_create_mark_bad(c, row, reason, err);
}

/* Marks the bad images of compressed archives. They are known from spooling, before any shard is
 * built. */
static enum chex_status reject_spooled(struct chex_create *c, struct chex_error *err) {
    for (size_t r = 0; r < c->table->count; r++) {
        const struct chex_folder_file *f = c->files[r];
        const char *reason = f && f->spool ? chex_spool_get(f->spool, f->spool_row)->reason : NULL;
        if (reason)
            CHEX_TRY(chex_create_mark_bad(c, r, reason, err));
    }
    return CHEX_OK;
}

/* Rank 0 writes the list of bad images of a failed run. `mention` receives the end of the error
 * message that names the list; "" if the list cannot be written. */
static void write_failed_list(const struct chex_create *c, char *mention, size_t size) {
    struct chex_error err = {0};
    CHEX_AUTO_FREE char *path = chex_store_failed_list(c);
    mention[0] = '\0';
    if (path)
        snprintf(mention, size, "; %s lists %s", path, c->gave_up ? "those found" : "them all");
    if (path && c->group->rank == 0 && chex_store_write_failed_list(c, path, &err) != CHEX_OK) {
        chex_warn("no list of the images that cannot be used: %s", err.text);
        mention[0] = '\0';
    }
}

/* CHEX_E_DATA if there are more than max_bad bad images. Rank 0 first logs SHOWN_BAD of them. */
enum chex_status chex_create_check_bad_limit(struct chex_create *c, struct chex_error *err) {
    if (c->bad_count <= c->o->max_bad)
        return CHEX_OK;
    size_t shown = 0, first = 0;
    char list[CHEX_ERROR_TEXT_BYTES];
    for (size_t r = c->table->count; r-- > 0;)
        if (c->bad[r])
            first = r;
    for (size_t r = first; c->bad_count > 1 && r < c->table->count && shown < SHOWN_BAD; r++)
        if (c->bad[r] && ++shown && c->group->rank == 0)
            chex_warn("%s", c->reasons[r]);
    write_failed_list(c, list, sizeof list);
    if (c->bad_count == 1)
        return chex_error_data(err, "%s (--max-bad is 0)", c->reasons[first]);
    return chex_error_data(err, "%s%zu images cannot be used (--max-bad is %zu): %.200s%s",
                           c->gave_up ? "at least " : "", c->bad_count, c->o->max_bad,
                           c->reasons[first], list);
}

/* For images that are bad before any shard is built, mostly missing ones. If there are more than
 * max_bad but not hopelessly many, the run goes on, so that one list names all bad images. Without
 * --resume it then only checks images and writes no shard. */
static enum chex_status check_missing_limit(struct chex_create *c, size_t wanted,
                                            struct chex_error *err) {
    if (c->bad_count <= c->o->max_bad)
        return CHEX_OK;
    c->gave_up = chex_create_hopeless(c, c->bad_count, wanted);
    if (c->gave_up || c->bad_count == wanted)
        return chex_create_check_bad_limit(c, err);
    c->check_only = !c->o->resume;
    chex_info("%zu image%s cannot be used and --max-bad is %zu: the other images are checked "
              "before this run fails",
              c->bad_count, chex_text_s(c->bad_count), c->o->max_bad);
    return CHEX_OK;
}

/* The message shows one name of each side: often they differ only in extension or case. The file
 * is from the middle of the list, because a README is usually first or last. */
static enum chex_status none_found(const struct chex_create *c, size_t wanted,
                                   struct chex_error *err) {
    size_t first = 0, count;
    const struct chex_folder_file *files = chex_folder_files(c->folder, &count);
    while (!c->bad[first])
        first++;
    return chex_error_data(err,
                           "none of the %zu images of %s (%.100s) is under %s, which holds %zu "
                           "files (%.200s): is it the label file of another data set?",
                           wanted, c->o->labels, c->table->rows[first].path, c->o->images, count,
                           count ? files[count / 2].path : "none");
}

struct owner {
    const struct chex_folder_file *file;
    size_t row;
};

static int by_file(const void *a, const void *b) {
    const struct owner *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* Two label rows may name the same file, for example 1.png and a/1.png. That is an error. */
static enum chex_status refuse_shared_files(const struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    CHEX_AUTO_FREE struct owner *owners = chex_alloc_zeroed(t->count, sizeof *owners);
    size_t n = 0;
    if (!owners)
        return chex_error_memory(err, "the list of images");
    for (size_t r = 0; r < t->count; r++)
        if (c->files[r])
            owners[n++] = (struct owner){c->files[r], r};
    qsort(owners, n, sizeof *owners, by_file);
    for (size_t i = 1; i < n; i++) {
        const struct chex_label_row *a = &t->rows[owners[i - 1].row], *b = &t->rows[owners[i].row];
        if (owners[i].file == owners[i - 1].file)
            return chex_error_data(err,
                                   "%s: line %zu: image %s is the same file (%s) as image %s of "
                                   "line %zu, expected each image once",
                                   t->rows_path, b->line, b->path, owners[i].file->path, a->path,
                                   a->line);
    }
    return CHEX_OK;
}

/* Finds the file of every row. Rows without a file are marked bad. */
static enum chex_status find_files(struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    size_t wanted = 0;
    c->files = chex_alloc_zeroed(t->count, sizeof *c->files);
    c->bad = chex_alloc_zeroed(t->count, sizeof *c->bad);
    c->reasons = chex_alloc_zeroed(t->count, sizeof *c->reasons);
    if (!c->files || !c->bad || !c->reasons)
        return chex_error_memory(err, "the list of images");
    for (size_t r = 0; r < t->count; r++) {
        if ((int)c->split[r] == CHEX_SPLIT_UNUSED)
            continue;
        wanted++;
        const struct chex_folder_file *rival;
        c->files[r] = chex_create_find(c, r, &rival);
        if (rival)
            return chex_error_data(err, "%s: line %zu: image %s matches two files: %s, %s",
                                   t->rows_path, t->rows[r].line, t->rows[r].path,
                                   c->files[r]->path, rival->path);
        if (!c->files[r])
            CHEX_TRY(mark_missing(c, r, err));
    }
    CHEX_TRY(refuse_shared_files(c, err));
    /* The missing images may be in the archive after its fault. */
    if (c->archive_fault && c->bad_count)
        return chex_error_data(err, "%s; %zu images of %s were not found", c->archive_fault,
                               c->bad_count, c->o->labels);
    if (wanted && c->bad_count == wanted)
        return none_found(c, wanted, err);
    CHEX_TRY(reject_spooled(c, err));
    return check_missing_limit(c, wanted, err);
}

/* If the ranks see different files, that error has precedence over missing images. */
enum chex_status chex_create_find_images(struct chex_create *c, struct chex_error *err) {
    struct chex_error other = {0};
    CHEX_TRY(chex_create_spool(c, err));
    const enum chex_status st = find_files(c, err);
    CHEX_TRY(chex_group_agree(c->group, st == CHEX_E_DATA ? CHEX_OK : st, err));
    const enum chex_status same = chex_create_compare_images(c, &other);
    return chex_group_agree(
        c->group, same == CHEX_OK ? st : chex_error_set(err, same, "%s", other.text), err);
}

/* Warns about findings without positives or negatives, one line per split. This is no error,
 * because the set may be for evaluation or for other labels. Training refuses such a set. */
static enum chex_status warn_of_labels(struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    CHEX_AUTO_FREE struct chex_label_counts *counts =
        chex_alloc_zeroed(CHEX_SPLIT_COUNT * t->class_count, sizeof *counts);
    if (!counts)
        return chex_error_memory(err, "the list of images");
    for (size_t r = 0; r < t->count; r++)
        if ((int)c->split[r] != CHEX_SPLIT_UNUSED && !(c->bad && c->bad[r]))
            chex_label_counts_add(counts + c->split[r] * t->class_count, t->rows[r].labels,
                                  t->class_count);
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        char part[32], warning[CHEX_ERROR_TEXT_BYTES];
        if (!c->layout->rows[s])
            continue;
        snprintf(part, sizeof part, "split %s", chex_split_names[s]);
        CHEX_TRY(chex_label_counts_judge(part, t->classes, counts + (size_t)s * t->class_count,
                                         t->class_count, false, warning, sizeof warning, err));
        if (warning[0] && c->group->rank == 0)
            chex_warn("%s", warning);
    }
    return CHEX_OK;
}

/* A split that loses all its rows is an error, unless the run fails for its bad images anyway. */
enum chex_status chex_create_make_layout(struct chex_create *c, struct chex_error *err) {
    bool had[CHEX_SPLIT_COUNT + 1] = {false};
    chex_layout_free(c->layout);
    c->layout = NULL;
    CHEX_TRY(
        chex_layout_create(c->table, c->split, c->bad, c->o->shards, c->o->seed, &c->layout, err));
    for (size_t r = 0; r < c->table->count; r++)
        had[c->split[r]] = true;
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (had[s] && !c->layout->rows[s] && c->bad_count <= c->o->max_bad)
            return chex_error_data(err, "no image of split %s can be used", chex_split_names[s]);
    if (!c->layout->shard_count)
        return chex_error_data(err, "%s: no image belongs to a split", c->o->labels);
    const bool known = c->origin && !c->origin->new_labels;
    return known || c->bad_count > c->o->max_bad ? CHEX_OK : warn_of_labels(c, err);
}

enum chex_status chex_create_load_input(struct chex_create *c, struct chex_error *err) {
    char views[128];
    if (!c->o->records)
        CHEX_TRY(check_kinds(c->o, err));
    CHEX_TRY(chex_create_load_labels(c, err));
    if (!c->table->count)
        return chex_error_data(err, "%s: no image has a view that --views keeps; the views are %s",
                               c->o->labels, chex_labels_views_text(c->table, views, sizeof views));
    CHEX_TRY(split_rows(c, err));
    if (!c->folder)
        CHEX_TRY(chex_folder_open(c->o->images, &c->folder, err));
    const char *closed = chex_folder_closed(c->folder);
    if (closed && c->group->rank == 0)
        chex_warn("%s: images in it count as missing", closed);
    size_t skipped = 0;
    const char *first = chex_folder_skipped(c->folder, &skipped);
    if (first && c->group->rank == 0)
        chex_warn("%s: not followed; folders that were not followed: %zu", first, skipped);
    return chex_create_open_archives(c, err);
}
