/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a set of shards with one or more ranks: the order of the steps and how the ranks agree.
 *
 * All ranks see the same input and the same output folder (a shared file system). Shard i belongs
 * to rank i mod size. Only rank 0 changes the output folder's state: it takes the lock, publishes
 * and cleans up. Other ranks only write files below the partial folder. The steps are:
 *
 *  1. Rank 0 checks that the output folder can be used, before any input is read.
 *  2. Every rank loads the labels, splits them and lists the image files.
 *  3. The ranks compare digests of their rows and archives (create_same.c).
 *  4. With --resume, rank 0 checks if the output is already this set. If so, the run ends here.
 *  5. Compressed archives: rank 0 locks the output, archive i is resized into a spool by rank i mod
 *     size, then every rank opens all spools (create_spool.c).
 *  6. Every rank finds the file of each row. The ranks compare digests of the files.
 *  7. Every rank computes the layout: which row goes to which shard. It is a pure function of the
 *     input, so all ranks have the same layout without communication.
 *  8. Rank 0 locks the output, if step 5 did not, and checks the free space.
 *  9. Build rounds: every rank builds its missing shards and the ranks exchange new bad images. If
 *     there are any, all ranks compute a new layout without them and build again. Only shards whose
 *     rows changed have new names, so only these are built again. More than max_bad bad images end
 *     the run.
 * 10. Rank 0 publishes the set (create_output.c).
 *
 * Invariant: work that can fail on one rank is followed by chex_group_agree(), work of rank 0 alone
 * by chex_group_follow(). Both give every rank the same status. So all ranks take the same branch
 * and reach the same exchanges in the same order. On failure rank 0 discards what the run made, or
 * keeps the finished shards with --resume.
 */
#include "ingest/create.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/archive.h"
#include "ingest/create_private.h"
#include "ingest/tfrecord.h"
#include "label/label_counts.h"

const char *const chex_split_mode_names[] = {"official", "patient", "none", NULL};

typedef enum chex_status load_fn(struct chex_create *c, struct chex_error *err);

enum { SHOWN_BAD = 20 }; /* bad images in the log; OUT.rejected.csv lists all */

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of images");
}

static enum chex_status split_rows(struct chex_create *c, struct chex_error *err) {
    const struct chex_create_options *o = c->o;
    if (!(c->split = chex_alloc_zeroed(c->table->count, sizeof *c->split)))
        return no_memory(err);
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

static enum chex_status load_labels(struct chex_create *c, struct chex_error *err) {
    const struct chex_create_options *o = c->o;
    size_t patients = 0;
    if (o->records) {
        CHEX_TRY(chex_tfrecord_load(o->records, o->record_count, o->label_order, o->workers,
                                    &c->table, &c->folder, err));
    } else {
        CHEX_TRY(check_kinds(o, err));
        CHEX_TRY(chex_labels_load(o->labels, o->format, o->columns, &c->table, err));
    }
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
    char views[128];
    if (!c->table->count)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: no image has a view that --views keeps; the views are %s",
                              o->labels, chex_labels_views_text(c->table, views, sizeof views));
    size_t unstated = chex_labels_apply_not_stated(c->table, o->not_stated);
    if (unstated)
        chex_info("labels that are not stated: %zu, policy %s", unstated,
                  chex_not_stated_names[o->not_stated]);
    size_t uncertain = chex_labels_apply_uncertain(c->table, o->uncertain);
    if (uncertain)
        chex_info("uncertain labels: %zu, policy %s", uncertain,
                  chex_uncertain_names[o->uncertain]);
    return split_rows(c, err);
}

static enum chex_status mark_bad(struct chex_create *c, size_t row, const char *reason,
                                 struct chex_error *err) {
    if (c->bad[row])
        return CHEX_OK;
    if (!(c->reasons[row] = strdup(reason)))
        return no_memory(err);
    c->bad[row] = true;
    c->bad_count++;
    return CHEX_OK;
}

/* True if a component of the path begins with a dot and is not "." or "..". chex_folder_open()
 * skips such files. */
static bool is_hidden(const char *path) {
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        const size_t n = strcspn(p, "/");
        if (p[0] == '.' && n > 1 && !(n == 2 && p[1] == '.'))
            return true;
    }
    return false;
}

static enum chex_status mark_missing(struct chex_create *c, size_t row, struct chex_error *err) {
    const struct chex_label_row *r = &c->table->rows[row];
    char reason[CHEX_ERROR_TEXT_BYTES];
    snprintf(reason, sizeof reason, "%s: line %zu: image %s is not under %s%s", c->table->rows_path,
             r->line, r->path, c->o->images,
             is_hidden(r->path) ? ": files and folders whose names begin with a dot are skipped"
                                : "");
    return mark_bad(c, row, reason, err);
}

/* Marks the bad images of compressed archives. They are known from spooling, before any shard is
 * built. */
static enum chex_status reject_spooled(struct chex_create *c, struct chex_error *err) {
    for (size_t r = 0; r < c->table->count; r++) {
        const struct chex_folder_file *f = c->files[r];
        const char *reason = f && f->spool ? chex_spool_get(f->spool, f->spool_row)->reason : NULL;
        if (reason)
            CHEX_TRY(mark_bad(c, r, reason, err));
    }
    return CHEX_OK;
}

/* Rank 0 writes the list of bad images of a failed run. `mention` receives the end of the error
 * message that names the list; "" if the list cannot be written. */
static void write_failed_list(const struct chex_create *c, char *mention, size_t size) {
    struct chex_error err = {0};
    char *path = chex_create_failed_list(c);
    mention[0] = '\0';
    if (path)
        snprintf(mention, size, "; %s lists %s", path, c->gave_up ? "those found" : "them all");
    if (path && c->group->rank == 0 && chex_create_write_failed_list(c, path, &err) != CHEX_OK) {
        chex_warn("no list of the images that cannot be used: %s", err.text);
        mention[0] = '\0';
    }
    free(path);
}

/* CHEX_E_DATA if there are more than max_bad bad images. Rank 0 first logs SHOWN_BAD of them. */
static enum chex_status check_bad_limit(struct chex_create *c, struct chex_error *err) {
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
        return chex_error_set(err, CHEX_E_DATA, "%s (--max-bad is 0)", c->reasons[first]);
    return chex_error_set(
        err, CHEX_E_DATA, "%s%zu images cannot be used (--max-bad is %zu): %.200s%s",
        c->gave_up ? "at least " : "", c->bad_count, c->o->max_bad, c->reasons[first], list);
}

bool chex_create_hopeless(const struct chex_create *c, size_t bad, size_t count) {
    return bad > c->o->max_bad + CHEX_BAD_MARGIN + count / 10;
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
        return check_bad_limit(c, err);
    c->check_only = !c->o->resume;
    chex_info("%zu image%s cannot be used and --max-bad is %zu: the other images are checked "
              "before this run fails",
              c->bad_count, chex_text_s(c->bad_count), c->o->max_bad);
    return CHEX_OK;
}

/* If the image id is the bare file name, folders of the path need not match. Otherwise the id
 * contains folders because names repeat, and the whole path must match. */
const struct chex_folder_file *chex_create_find(const struct chex_create *c, size_t row,
                                                const struct chex_folder_file **rival_out) {
    const struct chex_label_row *r = &c->table->rows[row];
    bool by_name = strcmp(chex_fs_name(r->path), r->image_id) == 0;
    return by_name ? chex_folder_find(c->folder, r->path, rival_out)
                   : chex_folder_find_whole(c->folder, r->path, rival_out);
}

/* The message shows one name of each side: often they differ only in extension or case. */
static enum chex_status none_found(const struct chex_create *c, size_t wanted,
                                   struct chex_error *err) {
    size_t first = 0, files = chex_folder_count(c->folder);
    while (!c->bad[first])
        first++;
    return chex_error_set(
        err, CHEX_E_DATA,
        "none of the %zu images of %s (%.100s) is under %s, which holds %zu files "
        "(%.200s): is it the label file of another data set?",
        wanted, c->o->labels, c->table->rows[first].path, c->o->images, files,
        files ? chex_folder_sample(c->folder) : "none");
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
    struct owner *owners = chex_alloc_zeroed(t->count, sizeof *owners);
    enum chex_status st = CHEX_OK;
    size_t n = 0;
    if (!owners)
        return no_memory(err);
    for (size_t r = 0; r < t->count; r++)
        if (c->files[r])
            owners[n++] = (struct owner){c->files[r], r};
    qsort(owners, n, sizeof *owners, by_file);
    for (size_t i = 1; st == CHEX_OK && i < n; i++) {
        const struct chex_label_row *a = &t->rows[owners[i - 1].row], *b = &t->rows[owners[i].row];
        if (owners[i].file == owners[i - 1].file)
            st = chex_error_set(
                err, CHEX_E_DATA,
                "%s: line %zu: image %s is the same file (%s) as image %s of line %zu, expected "
                "each image once",
                t->rows_path, b->line, b->path, owners[i].file->path, a->path, a->line);
    }
    free(owners);
    return st;
}

/* Finds the file of every row. Rows without a file are marked bad. */
static enum chex_status find_images(struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    size_t wanted = 0;
    c->files = chex_alloc_zeroed(t->count, sizeof *c->files);
    c->bad = chex_alloc_zeroed(t->count, sizeof *c->bad);
    c->reasons = chex_alloc_zeroed(t->count, sizeof *c->reasons);
    if (!c->files || !c->bad || !c->reasons)
        return no_memory(err);
    for (size_t r = 0; r < t->count; r++) {
        if ((int)c->split[r] == CHEX_SPLIT_UNUSED)
            continue;
        wanted++;
        const struct chex_folder_file *rival;
        c->files[r] = chex_create_find(c, r, &rival);
        if (rival)
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: line %zu: image %s matches two files: %s, %s", t->rows_path,
                                  t->rows[r].line, t->rows[r].path, c->files[r]->path, rival->path);
        if (!c->files[r])
            CHEX_TRY(mark_missing(c, r, err));
    }
    CHEX_TRY(refuse_shared_files(c, err));
    /* The missing images may be in the archive after its fault. */
    if (c->archive_fault && c->bad_count)
        return chex_error_set(err, CHEX_E_DATA, "%s; %zu images of %s were not found",
                              c->archive_fault, c->bad_count, c->o->labels);
    if (wanted && c->bad_count == wanted)
        return none_found(c, wanted, err);
    CHEX_TRY(reject_spooled(c, err));
    return check_missing_limit(c, wanted, err);
}

/* Warns about findings without positives or negatives, one line per split. This is no error,
 * because the set may be for evaluation or for other labels. Training refuses such a set. */
static enum chex_status warn_of_labels(struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    struct chex_label_counts *counts =
        chex_alloc_zeroed(CHEX_SPLIT_COUNT * t->class_count, sizeof *counts);
    enum chex_status st = counts ? CHEX_OK : no_memory(err);
    for (size_t r = 0; st == CHEX_OK && r < t->count; r++)
        if ((int)c->split[r] != CHEX_SPLIT_UNUSED && !c->bad[r])
            chex_label_counts_add(counts + c->split[r] * t->class_count, t->rows[r].labels,
                                  t->class_count);
    for (int s = 0; st == CHEX_OK && s < CHEX_SPLIT_COUNT; s++) {
        char part[32], warning[CHEX_ERROR_TEXT_BYTES];
        if (!c->layout->rows[s])
            continue;
        snprintf(part, sizeof part, "split %s", chex_split_names[s]);
        st = chex_label_counts_judge(part, t->classes, counts + (size_t)s * t->class_count,
                                     t->class_count, false, warning, sizeof warning, err);
        if (st == CHEX_OK && warning[0] && c->group->rank == 0)
            chex_warn("%s", warning);
    }
    free(counts);
    return st;
}

/* Collective. If the ranks see different files, that error has precedence over missing images. */
static enum chex_status find_same_images(struct chex_create *c, struct chex_error *err) {
    struct chex_error other = {0};
    const enum chex_status st = find_images(c, err);
    CHEX_TRY(chex_group_agree(c->group, st == CHEX_E_DATA ? CHEX_OK : st, err));
    const enum chex_status same = chex_create_compare_images(c, &other);
    return same == CHEX_OK ? st : chex_error_set(err, same, "%s", other.text);
}

/* A split that loses all its rows is an error, unless the run fails for its bad images anyway. */
static enum chex_status make_layout(struct chex_create *c, struct chex_error *err) {
    bool had[CHEX_SPLIT_COUNT + 1] = {false};
    chex_layout_free(c->layout);
    c->layout = NULL;
    CHEX_TRY(
        chex_layout_create(c->table, c->split, c->bad, c->o->shards, c->o->seed, &c->layout, err));
    for (size_t r = 0; r < c->table->count; r++)
        had[c->split[r]] = true;
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (had[s] && !c->layout->rows[s] && c->bad_count <= c->o->max_bad)
            return chex_error_set(err, CHEX_E_DATA, "no image of split %s can be used",
                                  chex_split_names[s]);
    if (!c->layout->shard_count)
        return chex_error_set(err, CHEX_E_DATA, "%s: no image belongs to a split", c->o->labels);
    return c->origin || c->bad_count > c->o->max_bad ? CHEX_OK : warn_of_labels(c, err);
}

/* Collective. All ranks exchange their new bad images and mark all of them. It uses batches of 16
 * because a launcher limits the size of one exchange. *new_out: new bad images of all ranks. */
static enum chex_status share_bad(struct chex_create *c, const struct chex_bad_row *mine, size_t n,
                                  size_t *new_out, struct chex_error *err) {
    enum { BATCH = 16 };
    const uint64_t none = UINT64_MAX;
    const size_t ranks = (size_t)c->group->size;
    const uint64_t own[] = {n, c->gave_up};
    struct chex_bad_row batch[BATCH];
    uint64_t largest = 0, sum = 0;
    enum chex_status st = CHEX_OK;
    CHEX_TRY(chex_group_exchange(c->group, "shard-bad-count", own, sizeof own, err));
    for (size_t r = 0; r < ranks; r++) {
        const uint64_t *theirs = (const uint64_t *)c->group->all + 2 * r;
        sum += theirs[0];
        largest = theirs[0] > largest ? theirs[0] : largest;
        c->gave_up = c->gave_up || theirs[1];
    }
    for (size_t at = 0; at < largest; at += BATCH) {
        memset(batch, 0, sizeof batch);
        for (size_t i = 0; i < BATCH; i++)
            if (at + i < n)
                batch[i] = mine[at + i];
            else
                batch[i].row = none;
        CHEX_TRY(chex_group_exchange(c->group, "shard-bad", batch, sizeof batch, err));
        const struct chex_bad_row *all = c->group->all;
        for (size_t i = 0; st == CHEX_OK && i < ranks * BATCH; i++)
            if (all[i].row != none)
                st = mark_bad(c, all[i].row, all[i].reason, err);
    }
    *new_out = sum;
    return chex_group_agree(c->group, st, err);
}

/* Computes the layout and builds until a round finds no new bad image, usually the first round. A
 * later round builds only the shards whose rows changed; the others are found under their names.
 * They must not count as kept, hence the saved counts. */
static enum chex_status build_all(struct chex_create *c, struct chex_error *err) {
    for (int round = 0;; round++) {
        struct chex_bad_row *bad = NULL;
        size_t n = 0, new_bad = 0, kept = c->kept, kept_rows = c->kept_rows;
        enum chex_status st = CHEX_OK;
        if (round > 0)
            st = make_layout(c, err);
        if (st == CHEX_OK)
            st = chex_create_build(c, &bad, &n, err);
        if (round > 0)
            c->kept = kept, c->kept_rows = kept_rows;
        st = chex_group_agree(c->group, st, err);
        if (st == CHEX_OK)
            st = share_bad(c, bad, n, &new_bad, err);
        free(bad);
        if (st == CHEX_OK)
            st = check_bad_limit(c, err);
        if (st != CHEX_OK || !new_bad)
            return st;
        chex_info("%zu image%s cannot be used; the shards are built again without %s", new_bad,
                  chex_text_s(new_bad), new_bad == 1 ? "it" : "them");
    }
}

static enum chex_status fill_result(struct chex_create *c, struct chex_create_result *out,
                                    struct chex_error *err) {
    const uint64_t kept[] = {c->kept, c->kept_rows};
    CHEX_TRY(chex_group_exchange(c->group, "shard-kept", kept, sizeof kept, err));
    const uint64_t *all = c->group->all;
    for (int r = 0; r < c->group->size; r++)
        out->kept += all[2 * r], out->kept_rows += all[2 * r + 1];
    for (size_t i = 0; i < c->layout->shard_count; i++) {
        const struct chex_layout_shard *s = &c->layout->shards[i];
        out->shards[s->split] = s->count;
        out->rows[s->split] += s->row_count;
    }
    out->rejected = c->origin ? c->origin->manifest->rejected : c->bad_count;
    return CHEX_OK;
}

static enum chex_status open_input(struct chex_create *c, struct chex_error *err) {
    CHEX_TRY(load_labels(c, err));
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

/* A compressed archive can only be read from start to end, so each is read once, before the rows
 * are assigned to shards. */
static enum chex_status spool_archives(struct chex_create *c, struct chex_error *err) {
    if (!c->packed_count)
        return CHEX_OK;
    enum chex_status st = c->group->rank == 0 ? chex_create_occupy(c, err) : CHEX_OK;
    CHEX_TRY(chex_group_follow(c->group, 0, st, err));
    CHEX_TRY(chex_group_agree(c->group, chex_create_spool(c, err), err));
    return chex_group_agree(c->group, chex_create_take_spools(c, err), err);
}

static enum chex_status name_partial(struct chex_create *c, struct chex_error *err) {
    c->partial = chex_fs_join(c->o->output, CHEX_CREATE_PARTIAL);
    return c->partial ? CHEX_OK : no_memory(err);
}

/* Collective, for --resume: sets c->done on every rank if the output is already this set. */
static enum chex_status find_done(struct chex_create *c, struct chex_error *err) {
    if (!c->o->resume || c->o->force)
        return CHEX_OK;
    enum chex_status st = CHEX_OK;
    if (c->group->rank == 0)
        st = chex_create_is_done(c, &c->done, err);
    if (st == CHEX_OK && c->done)
        st = chex_create_tidy(c, err);
    CHEX_TRY(chex_group_follow(c->group, 0, st, err));
    return chex_group_broadcast(c->group, &c->done, sizeof c->done, 0, err);
}

/* Steps 2 to 7 of the head. Collective. */
static enum chex_status begin(struct chex_create *c, load_fn *load_rows, struct chex_error *err) {
    CHEX_TRY(chex_group_agree(c->group, load_rows(c, err), err));
    CHEX_TRY(chex_create_compare_rows(c, err));
    CHEX_TRY(find_done(c, err));
    if (c->done)
        return CHEX_OK;
    if (!c->origin) {
        CHEX_TRY(spool_archives(c, err));
        CHEX_TRY(find_same_images(c, err));
    }
    return make_layout(c, err);
}

/* The result of a run that found its set complete. */
static enum chex_status fill_done_result(const struct chex_create *c,
                                         struct chex_create_result *out, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(c->o->output, &m, err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        out->shards[s] = m->splits[s].shard_count;
        out->rows[s] = m->splits[s].rows;
        out->kept += m->splits[s].shard_count;
    }
    out->rejected = m->rejected;
    out->done = true;
    chex_manifest_free(m);
    return CHEX_OK;
}

/* Steps 8 to 10 of the head. Collective. */
static enum chex_status make_set(struct chex_create *c, struct chex_create_result *result,
                                 struct chex_error *err) {
    const bool first = c->group->rank == 0;
    if (!c->check_only)
        CHEX_TRY(
            chex_group_follow(c->group, 0, first ? chex_create_prepare(c, err) : CHEX_OK, err));
    CHEX_TRY(build_all(c, err));
    CHEX_TRY(fill_result(c, result, err));
    return chex_group_follow(c->group, 0, first ? chex_create_publish(c, err) : CHEX_OK, err);
}

static enum chex_status run_steps(struct chex_create *c, load_fn *load_rows,
                                  struct chex_create_result *result, struct chex_error *err) {
    CHEX_TRY(chex_group_agree(c->group, name_partial(c, err), err));
    enum chex_status st = c->group->rank == 0 ? chex_create_check_folder(c, err) : CHEX_OK;
    CHEX_TRY(chex_group_follow(c->group, 0, st, err));
    st = chex_group_agree(c->group, begin(c, load_rows, err), err);
    if (st == CHEX_OK)
        st = c->done ? chex_group_agree(c->group, fill_done_result(c, result, err), err)
                     : make_set(c, result, err);
    if (st != CHEX_OK && c->lock_fd >= 0)
        chex_create_discard(c);
    return st;
}

enum chex_status chex_create_run(struct chex_create *c, load_fn *load_rows,
                                 struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_error own = {0}; /* the ranks exchange the text even if the caller passes no err */
    struct chex_create_result result = {0};
    double start = chex_clock_s();
    enum chex_status st = run_steps(c, load_rows, &result, err ? err : &own);
    result.seconds = chex_clock_s() - start;
    for (size_t r = 0; c->reasons && r < c->table->count; r++)
        free(c->reasons[r]);
    free(c->reasons);
    free(c->bad);
    free(c->files);
    free(c->split);
    free(c->partial);
    free(c->trusted);
    free(c->wanted);
    free(c->packed);
    free(c->archive_fault);
    chex_folder_close(c->folder);
    chex_layout_free(c->layout);
    chex_labels_free(c->table);
    if (st == CHEX_OK)
        *result_out = result;
    return st;
}

enum chex_status chex_create(const struct chex_create_options *options, struct chex_group *group,
                             struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_create c = {.o = options, .group = group, .lock_fd = -1};
    return chex_create_run(&c, open_input, result_out, err);
}
