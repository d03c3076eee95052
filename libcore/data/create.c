/* SPDX-License-Identifier: Apache-2.0 */
#include "data/create.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/create_private.h"
#include "data/tfrecord.h"

const char *const chex_split_mode_names[] = {"official", "patient", "none", NULL};

typedef enum chex_status load_fn(struct chex_create *c, struct chex_error *err);

enum { SHOWN_BAD = 20 }; /* in the log; a list has them all */

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of images");
}

static enum chex_status exchange(struct chex_create *c, const char *key, const void *mine,
                                 size_t bytes, void *all, struct chex_error *err) {
    if (c->ranks->size > 1)
        return c->ranks->exchange(c->ranks->arg, key, mine, bytes, all, err);
    memcpy(all, mine, bytes);
    return CHEX_OK;
}

/* Every rank learns whether all are well; else all get the first one's status and text. */
static enum chex_status agree(struct chex_create *c, enum chex_status status,
                              struct chex_error *err) {
    struct verdict {
        int32_t status;
        char text[CHEX_ERROR_TEXT_BYTES];
    } mine = {.status = (int32_t)status}, *all;
    if (status != CHEX_OK && err)
        memcpy(mine.text, err->text, sizeof mine.text);
    if (!(all = chex_mem_zalloc((size_t)c->ranks->size, sizeof *all)))
        return no_memory(err);
    enum chex_status st = exchange(c, "shard-agree", &mine, sizeof mine, all, err);
    for (int r = 0; st == CHEX_OK && r < c->ranks->size; r++)
        if (all[r].status != CHEX_OK)
            st = chex_error_set(err, (enum chex_status)all[r].status, "%s", all[r].text);
    free(all);
    return st;
}

static enum chex_status split_rows(struct chex_create *c, struct chex_error *err) {
    const struct chex_create_options *o = c->o;
    if (!(c->split = chex_mem_zalloc(c->table->count, sizeof *c->split)))
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
    if (report.warning[0] && c->ranks->rank == 0)
        chex_warn("%s", report.warning);
    if (report.shared_patients && c->ranks->rank == 0)
        chex_warn("%zu patients are on two sides: %zu images of the lesser side are left out",
                  report.shared_patients, report.shared_images);
    if (report.unused && c->ranks->rank == 0)
        chex_warn("%zu images are given no split and are left out, such as %s", report.unused,
                  report.first_unused);
    if (report.unknown && c->ranks->rank == 0)
        chex_warn("%zu names of the lists are not in %s, such as %s", report.unknown, o->labels,
                  report.first_unknown);
    return CHEX_OK;
}

static enum chex_status load_labels(struct chex_create *c, struct chex_error *err) {
    const struct chex_create_options *o = c->o;
    size_t patients = 0;
    if (o->records)
        CHEX_TRY(chex_tfrecord_load(o->records, o->record_count, o->label_order, o->workers,
                                    &c->table, &c->folder, err));
    else
        CHEX_TRY(chex_labels_load(o->labels, o->format, o->columns, &c->table, err));
    CHEX_TRY(chex_labels_count_patients(c->table, &patients, err));
    chex_info("labels %s: %s, %zu images of %zu patients", o->labels, c->table->detected,
              c->table->count, patients);
    if (c->table->warning[0] && c->ranks->rank == 0)
        chex_warn("%s: %s", o->labels, c->table->warning);
    if (o->views) {
        size_t dropped = chex_labels_keep_views(c->table, o->views);
        chex_info("views: %zu images kept, %zu left out", c->table->count, dropped);
    }
    if (!c->table->count)
        return chex_error_set(err, CHEX_E_DATA, "%s: no image is left%s", o->labels,
                              o->views ? " with the views asked for" : "");
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

/* Images of compressed archives are known to be bad before any shard is made. */
static enum chex_status reject_spooled(struct chex_create *c, struct chex_error *err) {
    for (size_t r = 0; r < c->table->count; r++) {
        const struct chex_folder_file *f = c->files[r];
        const char *reason = f && f->spool ? chex_spool_get(f->spool, f->spool_row)->reason : NULL;
        if (reason)
            CHEX_TRY(mark_bad(c, r, reason, err));
    }
    return CHEX_OK;
}

/* A failed run's list of bad images, and how its error speaks of it; "" where it cannot be
 * written. */
static void leave_list(const struct chex_create *c, char *said, size_t size) {
    struct chex_error err = {0};
    char *path = chex_create_failed_list(c);
    said[0] = '\0';
    if (path)
        snprintf(said, size, "; %s lists %s", path, c->gave_up ? "those found" : "them all");
    if (path && c->ranks->rank == 0 && chex_create_write_failed_list(c, path, &err) != CHEX_OK) {
        chex_warn("no list of the images that cannot be used: %s", err.text);
        said[0] = '\0';
    }
    free(path);
}

/* Fails where there are more bad images than allowed; the first ones are shown before. */
static enum chex_status judge_bad(struct chex_create *c, struct chex_error *err) {
    if (c->bad_count <= c->o->max_bad)
        return CHEX_OK;
    size_t shown = 0, first = 0;
    char list[CHEX_ERROR_TEXT_BYTES];
    for (size_t r = c->table->count; r-- > 0;)
        if (c->bad[r])
            first = r;
    for (size_t r = first; c->bad_count > 1 && r < c->table->count && shown < SHOWN_BAD; r++)
        if (c->bad[r] && ++shown && c->ranks->rank == 0)
            chex_warn("%s", c->reasons[r]);
    leave_list(c, list, sizeof list);
    if (c->bad_count == 1)
        return chex_error_set(err, CHEX_E_DATA, "%s (--max-bad is 0)", c->reasons[first]);
    return chex_error_set(
        err, CHEX_E_DATA, "%s%zu images cannot be used (--max-bad is %zu): %.200s%s",
        c->gave_up ? "at least " : "", c->bad_count, c->o->max_bad, c->reasons[first], list);
}

bool chex_create_hopeless(const struct chex_create *c, size_t bad, size_t count) {
    return bad > c->o->max_bad + CHEX_BAD_MARGIN + count / 10;
}

/* Too many bad images before any was looked at: mostly the others are looked at all the same. */
static enum chex_status judge_missing(struct chex_create *c, size_t wanted,
                                      struct chex_error *err) {
    if (c->bad_count <= c->o->max_bad)
        return CHEX_OK;
    c->gave_up = chex_create_hopeless(c, c->bad_count, wanted);
    if (c->gave_up || c->bad_count == wanted)
        return judge_bad(c, err);
    c->check_only = !c->o->resume;
    chex_info("%zu images cannot be used and --max-bad is %zu: the others are looked at before "
              "this run fails",
              c->bad_count, c->o->max_bad);
    return CHEX_OK;
}

/* An id that is more than the file's name (CheXpert's) has the folders in it. */
const struct chex_folder_file *chex_create_find(const struct chex_create *c, size_t row,
                                                const struct chex_folder_file **rival_out) {
    const struct chex_label_row *r = &c->table->rows[row];
    const char *slash = strrchr(r->path, '/');
    bool by_name = strcmp(slash ? slash + 1 : r->path, r->image_id) == 0;
    return by_name ? chex_folder_find(c->folder, r->path, rival_out)
                   : chex_folder_find_whole(c->folder, r->path, rival_out);
}

/* Of both sides one name is shown: often they differ in ending or case alone. */
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

/* Finds every image's file; those without one are bad from the start. */
static enum chex_status find_images(struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    size_t wanted = 0;
    c->files = chex_mem_zalloc(t->count, sizeof *c->files);
    c->bad = chex_mem_zalloc(t->count, sizeof *c->bad);
    c->reasons = chex_mem_zalloc(t->count, sizeof *c->reasons);
    if (!c->files || !c->bad || !c->reasons)
        return no_memory(err);
    for (size_t r = 0; r < t->count; r++) {
        if ((int)c->split[r] == CHEX_SPLIT_UNUSED)
            continue;
        wanted++;
        const struct chex_folder_file *rival;
        c->files[r] = chex_create_find(c, r, &rival);
        if (rival)
            return chex_error_set(err, CHEX_E_DATA, "%s: line %zu: image %s is there twice: %s, %s",
                                  t->rows_path, t->rows[r].line, t->rows[r].path, c->files[r]->path,
                                  rival->path);
        char reason[CHEX_ERROR_TEXT_BYTES];
        snprintf(reason, sizeof reason, "%s: line %zu: image %s is not under %s", t->rows_path,
                 t->rows[r].line, t->rows[r].path, c->o->images);
        if (!c->files[r])
            CHEX_TRY(mark_bad(c, r, reason, err));
    }
    /* What is missing may lie behind the fault. */
    if (c->archive_fault && c->bad_count)
        return chex_error_set(err, CHEX_E_DATA, "%s; %zu images of %s were not found",
                              c->archive_fault, c->bad_count, c->o->labels);
    if (wanted && c->bad_count == wanted)
        return none_found(c, wanted, err);
    CHEX_TRY(reject_spooled(c, err));
    return judge_missing(c, wanted, err);
}

/* Splits that had rows and have none left are an error, unless the run fails for its bad images. */
static enum chex_status make_plan(struct chex_create *c, struct chex_error *err) {
    bool had[CHEX_SPLIT_COUNT + 1] = {false};
    chex_plan_free(c->plan);
    c->plan = NULL;
    CHEX_TRY(chex_plan_create(c->table, c->split, c->bad, c->o->shards, c->o->seed, &c->plan, err));
    for (size_t r = 0; r < c->table->count; r++)
        had[c->split[r]] = true;
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (had[s] && !c->plan->rows[s] && c->bad_count <= c->o->max_bad)
            return chex_error_set(err, CHEX_E_DATA, "no image of split %s can be used",
                                  chex_split_names[s]);
    return c->plan->shard_count
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_DATA, "%s: no image belongs to a split", c->o->labels);
}

/* Everybody's new bad images to everybody, in batches that a launcher's exchange can carry. */
static enum chex_status share_bad(struct chex_create *c, const struct chex_bad_row *mine, size_t n,
                                  size_t *news_out, struct chex_error *err) {
    enum { BATCH = 16 };
    size_t ranks = (size_t)c->ranks->size, most = 0, sum = 0;
    struct news {
        uint64_t count, gave_up;
    } own = {n, c->gave_up}, *counts = chex_mem_zalloc(ranks, sizeof *counts);
    struct chex_bad_row batch[BATCH], *all = chex_mem_zalloc(ranks, sizeof batch);
    enum chex_status st = counts && all ? CHEX_OK : no_memory(err);
    if (st == CHEX_OK)
        st = exchange(c, "shard-bad-count", &own, sizeof own, counts, err);
    for (size_t r = 0; st == CHEX_OK && r < ranks; r++) {
        sum += counts[r].count;
        most = counts[r].count > most ? counts[r].count : most;
        c->gave_up = c->gave_up || counts[r].gave_up;
    }
    for (size_t at = 0; st == CHEX_OK && at < most; at += BATCH) {
        memset(batch, 0, sizeof batch);
        for (size_t i = 0; i < BATCH && at + i < n; i++)
            batch[i] = mine[at + i];
        st = exchange(c, "shard-bad", batch, sizeof batch, all, err);
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; st == CHEX_OK && i < BATCH && at + i < counts[r].count; i++)
                st = mark_bad(c, all[r * BATCH + i].row, all[r * BATCH + i].reason, err);
    }
    free(counts);
    free(all);
    *news_out = sum;
    return st;
}

/* Plans and builds until a round meets no new bad image; mostly that is the first one. A later
 * round rebuilds only the shards whose rows changed. */
static enum chex_status build_all(struct chex_create *c, struct chex_error *err) {
    for (int round = 0;; round++) {
        struct chex_bad_row *bad = NULL;
        size_t n = 0, news = 0, kept = c->kept, kept_rows = c->kept_rows;
        enum chex_status st = CHEX_OK;
        if (round > 0)
            st = make_plan(c, err);
        if (st == CHEX_OK)
            st = chex_create_build(c, &bad, &n, err);
        if (round > 0)
            c->kept = kept, c->kept_rows = kept_rows;
        st = agree(c, st, err);
        if (st == CHEX_OK)
            st = share_bad(c, bad, n, &news, err);
        free(bad);
        if (st == CHEX_OK)
            st = judge_bad(c, err);
        if (st != CHEX_OK || !news)
            return st;
        chex_info("%zu images cannot be used; the shards they belong to are made anew", news);
    }
}

static enum chex_status fill_result(struct chex_create *c, struct chex_create_result *out,
                                    struct chex_error *err) {
    struct kept {
        uint64_t shards, rows;
    } kept = {c->kept, c->kept_rows}, *all = chex_mem_zalloc((size_t)c->ranks->size, sizeof *all);
    if (!all)
        return no_memory(err);
    enum chex_status st = exchange(c, "shard-kept", &kept, sizeof kept, all, err);
    for (int r = 0; st == CHEX_OK && r < c->ranks->size; r++)
        out->kept += all[r].shards, out->kept_rows += all[r].rows;
    free(all);
    for (size_t i = 0; i < c->plan->shard_count; i++) {
        const struct chex_plan_shard *s = &c->plan->shards[i];
        out->shards[s->split] = s->count;
        out->rows[s->split] += s->row_count;
    }
    out->rejected = c->origin ? c->origin->manifest->rejected : c->bad_count;
    return st;
}

static enum chex_status open_input(struct chex_create *c, struct chex_error *err) {
    CHEX_TRY(load_labels(c, err));
    if (!c->folder)
        CHEX_TRY(chex_folder_open(c->o->images, &c->folder, err));
    const char *closed = chex_folder_closed(c->folder);
    if (closed && c->ranks->rank == 0)
        chex_warn("%s: images in it count as missing", closed);
    return chex_create_open_archives(c, err);
}

/* Whatever their order of images, compressed archives are gone through once, before all else. */
static enum chex_status spool_archives(struct chex_create *c, struct chex_error *err) {
    if (!c->packed_count)
        return CHEX_OK;
    CHEX_TRY(agree(c, c->ranks->rank == 0 ? chex_create_occupy(c, err) : CHEX_OK, err));
    CHEX_TRY(agree(c, chex_create_spool(c, err), err));
    return chex_create_take_spools(c, err);
}

static enum chex_status name_partial(struct chex_create *c, struct chex_error *err) {
    c->partial = chex_fs_join(c->o->output, CHEX_CREATE_PARTIAL);
    return c->partial ? CHEX_OK : no_memory(err);
}

/* For --resume: every rank learns whether there is anything to do. */
static enum chex_status find_done(struct chex_create *c, struct chex_error *err) {
    if (!c->o->resume || c->o->force)
        return CHEX_OK;
    enum chex_status st = CHEX_OK;
    if (c->ranks->rank == 0)
        st = chex_create_is_done(c, &c->done, err);
    if (st == CHEX_OK && c->done)
        st = chex_create_tidy(c, err);
    CHEX_TRY(agree(c, st, err));
    bool mine = c->done, *all = chex_mem_zalloc((size_t)c->ranks->size, sizeof *all);
    if (!all)
        return no_memory(err);
    st = exchange(c, "shard-done", &mine, sizeof mine, all, err);
    c->done = all[0];
    free(all);
    return st;
}

/* Collective: the first failure is everybody's. */
static enum chex_status begin(struct chex_create *c, load_fn *load_rows, struct chex_error *err) {
    CHEX_TRY(agree(c, load_rows(c, err), err));
    CHEX_TRY(find_done(c, err));
    if (c->done)
        return CHEX_OK;
    if (!c->origin) {
        CHEX_TRY(spool_archives(c, err));
        CHEX_TRY(find_images(c, err));
    }
    return make_plan(c, err);
}

static enum chex_status tell_done(const struct chex_create *c, struct chex_create_result *out,
                                  struct chex_error *err) {
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

static enum chex_status make_set(struct chex_create *c, struct chex_create_result *result,
                                 struct chex_error *err) {
    bool first = c->ranks->rank == 0;
    if (!c->check_only)
        CHEX_TRY(agree(c, first ? chex_create_prepare(c, err) : CHEX_OK, err));
    CHEX_TRY(build_all(c, err));
    CHEX_TRY(fill_result(c, result, err));
    return agree(c, first ? chex_create_publish(c, err) : CHEX_OK, err);
}

static enum chex_status course(struct chex_create *c, load_fn *load_rows,
                               struct chex_create_result *result, struct chex_error *err) {
    CHEX_TRY(agree(c, name_partial(c, err), err));
    enum chex_status st = agree(c, begin(c, load_rows, err), err);
    if (st == CHEX_OK)
        st = c->done ? tell_done(c, result, err) : make_set(c, result, err);
    if (st != CHEX_OK && c->lock_fd >= 0)
        chex_create_discard(c);
    return st;
}

enum chex_status chex_create_run(struct chex_create *c, load_fn *load_rows,
                                 struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_error own = {0}; /* agree() needs the text even where the caller does not */
    struct chex_create_result result = {0};
    double start = chex_clock_s();
    enum chex_status st = course(c, load_rows, &result, err ? err : &own);
    result.seconds = chex_clock_s() - start;
    for (size_t r = 0; c->reasons && r < c->table->count; r++)
        free(c->reasons[r]);
    free(c->reasons);
    free(c->bad);
    free(c->files);
    free(c->split);
    free(c->partial);
    free(c->wanted);
    free(c->packed);
    free(c->archive_fault);
    chex_folder_close(c->folder);
    chex_plan_free(c->plan);
    chex_labels_free(c->table);
    if (st == CHEX_OK)
        *result_out = result;
    return st;
}

enum chex_status chex_create(const struct chex_create_options *options,
                             const struct chex_create_ranks *ranks,
                             struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_create c = {.o = options, .ranks = ranks, .lock_fd = -1};
    return chex_create_run(&c, open_input, result_out, err);
}
